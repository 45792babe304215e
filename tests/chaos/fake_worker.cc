#include "tests/chaos/fake_worker.h"

#include <fcntl.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/hash.h"
#include "base/secure_random.h"
#include "compiler/target/target.h"
#include "proto/convert.h"

namespace temper {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(5);
constexpr absl::Duration kBackOff = absl::Milliseconds(30);
constexpr absl::Duration kWait = absl::Seconds(20);  // of a Sync with nothing to renew
constexpr int kReconnectMs = 50, kConnectMs = 5'000;
constexpr absl::Duration kLook = absl::Milliseconds(200);  // whether what it holds is still wanted

std::vector<v1::Batch> BatchesOf(const v1::Lease& lease) {
  if (lease.has_finals()) return {lease.finals().tasks().begin(), lease.finals().tasks().end()};
  return lease.has_batch() ? std::vector<v1::Batch>{lease.batch()} : std::vector<v1::Batch>();
}

// The results of all that the lease asks for.
v1::SubmitResultsRequest Measure(const v1::Lease& lease, std::vector<Ledger::Execution>& executions) {
  constexpr int kSamples = 3;
  v1::SubmitResultsRequest results;
  if (lease.has_model()) {
    v1::ModelResult* result = results.add_models();
    result->set_lease(lease.lease());
    result->set_outcome("ok");
    for (int i = 0; i < kSamples; ++i) result->add_untuned_s(2e-3);
    for (int i = 0; i < kSamples; ++i) result->add_tuned_s(1e-3);
  }
  for (const v1::Batch& batch : BatchesOf(lease)) {
    for (const v1::CandidateSpec& candidate : batch.candidates()) {
      const double seconds =
          FakeSeconds(batch.workload(), candidate.config(), candidate.candidate(), candidate.attempt());
      v1::CandidateResult* result = results.add_results();
      result->set_lease(lease.lease());
      result->set_candidate(candidate.candidate());
      result->set_attempt(candidate.attempt());
      result->set_outcome("ok");
      for (int i = 0; i < kSamples; ++i) result->add_costs_s(seconds);
      executions.push_back({lease.job(), candidate.candidate(), candidate.attempt(), batch.workload(),
                            candidate.template_name(), candidate.config(), seconds});
    }
  }
  return results;
}

}  // namespace

// --- the ledger ---

Ledger::Ledger(const std::string& path)
    : path_(path), file_(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {}

std::string Ledger::Execution::CandidateText() const { return absl::StrCat(workload, " ", template_name, " ", config); }

void Ledger::Measured(const std::vector<Execution>& executions) {
  std::lock_guard lock(mutex_);
  for (const Execution& execution : executions) {
    if (known_.contains({execution.job, execution.CandidateText()})) ++measured_again_;
    measured_.push_back(execution);
  }
}

void Ledger::Acknowledged(const std::vector<Execution>& executions) {
  std::lock_guard lock(mutex_);
  std::string lines;
  for (const Execution& execution : executions) {
    known_.insert({execution.job, execution.CandidateText()});
    absl::StrAppendFormat(&lines, "%d %d %d %.17g\n", execution.job, execution.candidate, execution.attempt,
                          execution.seconds);
  }
  if (write(file_.get(), lines.data(), lines.size()) < 0) return;
  fdatasync(file_.get());
  size_ += static_cast<int64_t>(executions.size());
}

int64_t Ledger::Size() const {
  std::lock_guard lock(mutex_);
  return size_;
}

std::vector<Ledger::Execution> Ledger::measured() const {
  std::lock_guard lock(mutex_);
  return measured_;
}

std::vector<Ledger::Execution> Ledger::acknowledged() const {
  std::lock_guard lock(mutex_);
  std::vector<Execution> all;
  std::ifstream file(path_);
  for (Execution next; file >> next.job >> next.candidate >> next.attempt >> next.seconds;) all.push_back(next);
  return all;
}

int Ledger::measured_again() const {
  std::lock_guard lock(mutex_);
  return measured_again_;
}

int Ledger::highest_attempt() const {
  std::lock_guard lock(mutex_);
  int highest = 0;
  for (const Execution& execution : measured_) highest = std::max(highest, execution.attempt);
  return highest;
}

// --- the worker ---

std::string FakeTarget() {
  return Text(Target{.device = CpuTarget{.cpu = "x86-64-v3", .features = {"avx2", "fma"}, .vector_bits = 256}});
}

double FakeSeconds(const std::string& workload, const std::string& config, int64_t candidate, int attempt) {
  const auto share = [](const std::string& text) {
    return static_cast<double>(StableHash(text) >> 11) / static_cast<double>(uint64_t{1} << 53);
  };
  return 1e-4 * (1 + 9 * share(workload + config)) + 1e-7 * share(absl::StrCat(candidate, ":", attempt));
}

FakeWorker::FakeWorker(FakeWorkerOptions options) : options_(std::move(options)), instance_(SecureHex()) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMs);  // how long an attempt may take, too
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 4 * kReconnectMs);
  // As a worker has it: a connection that is half open is noticed.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  stub_ = v1::WorkerService::NewStub(grpc::CreateCustomChannel(
      options_.address, options_.credentials ? options_.credentials : grpc::InsecureChannelCredentials(), arguments));
  thread_ = std::thread([this] { Run(); });
}

FakeWorker::~FakeWorker() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    if (call_ != nullptr) call_->TryCancel();
    stopped_.notify_all();
  }
  thread_.join();
}

bool FakeWorker::stopping() {
  std::lock_guard lock(mutex_);
  return stopping_;
}

void FakeWorker::Rest(absl::Duration time) {
  std::unique_lock lock(mutex_);
  stopped_.wait_for(lock, absl::ToChronoNanoseconds(time), [this] { return stopping_; });
}

grpc::Status FakeWorker::Call(const std::function<grpc::Status(grpc::ClientContext*)>& call, absl::Duration timeout) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return grpc::Status::CANCELLED;
    call_ = &context;
  }
  const grpc::Status status = call(&context);
  std::lock_guard lock(mutex_);
  call_ = nullptr;
  return status;
}

void FakeWorker::Run() {
  while (!stopping()) {
    if (session_.empty() && !Register()) {
      Rest(kBackOff);
      continue;
    }
    const v1::SyncReply reply = Sync({}, 1, kWait);
    for (const v1::Lease& lease : reply.grants()) Work(lease);
  }
}

bool FakeWorker::Register() {
  v1::RegisterRequest request;
  request.set_device_key(options_.key);
  request.set_fingerprint(kFakeFingerprint);
  request.set_target(FakeTarget());
  request.set_codegen_id(kFakeCodegen);
  request.set_threads(1);
  request.set_slots(1);
  request.set_name(options_.name);
  request.set_instance(instance_);
  request.set_wire_version(kWireVersion);
  v1::RegisterReply reply;
  const grpc::Status status =
      Call([&](grpc::ClientContext* context) { return stub_->Register(context, request, &reply); }, kCallTimeout);
  if (!status.ok()) return false;
  session_ = reply.session();
  renewal_ = absl::Milliseconds(reply.sync_ms());
  ++registrations_;
  return true;
}

v1::SyncReply FakeWorker::Sync(const std::vector<int64_t>& held, int free_slots, absl::Duration wait) {
  v1::SyncRequest request;
  request.set_session(session_);
  request.mutable_leases()->Add(held.begin(), held.end());
  request.set_free_slots(free_slots);
  request.set_wait_ms(static_cast<int32_t>(absl::ToInt64Milliseconds(wait)));
  v1::SyncReply reply;
  const grpc::Status status =
      Call([&](grpc::ClientContext* context) { return stub_->Sync(context, request, &reply); }, wait + kCallTimeout);
  if (!status.ok()) {
    ++refusals_;
    Rest(kBackOff);
  }
  if (reply.unknown_session()) {
    session_.clear();
    Register();
  }
  return reply;
}

bool FakeWorker::Hold(int64_t lease, absl::Duration time) {
  const absl::Time end = absl::Now() + time;
  while (!stopping() && (paused_ || absl::Now() < end)) {
    const absl::Duration left = paused_ ? kLook : end - absl::Now();
    if (frozen_ || left < kLook) {
      Rest(frozen_ ? kBackOff : left);
      continue;
    }
    const v1::SyncReply reply = Sync({lease}, 0, std::min(kLook, renewal_));
    for (const int64_t cancelled : reply.cancels()) {
      if (cancelled != lease) continue;
      was_cancelled_ = true;
      return false;
    }
  }
  return !stopping();
}

void FakeWorker::Work(const v1::Lease& lease) {
  std::vector<Ledger::Execution> executions;
  const v1::SubmitResultsRequest results = Measure(lease, executions);
  lease_kind_ = lease.work_case();
  if (lease_kind_ == pause_at_) paused_ = true;
  holds_lease_ = true;
  const bool finished = Hold(lease.lease(), options_.trial * static_cast<double>(executions.size()));
  if (finished) {
    if (options_.ledger != nullptr) options_.ledger->Measured(executions);
    Deliver(results, executions);
  }
  holds_lease_ = false;
}

void FakeWorker::Deliver(const v1::SubmitResultsRequest& results, const std::vector<Ledger::Execution>& executions) {
  v1::SubmitResultsRequest request = results;
  const int64_t lease = request.models_size() > 0 ? request.models(0).lease() : request.results(0).lease();
  while (!stopping()) {
    request.set_session(session_);
    request.set_instance(instance_);
    v1::SubmitResultsReply reply;
    const grpc::Status status = Call(
        [&](grpc::ClientContext* context) { return stub_->SubmitResults(context, request, &reply); }, kCallTimeout);
    if (!status.ok()) {
      ++refusals_;
      Rest(kBackOff);
      Sync({lease}, 0, absl::ZeroDuration());
      continue;
    }
    std::vector<Ledger::Execution> acknowledged;
    for (size_t i = 0; i < executions.size(); ++i) {
      if (reply.acked(static_cast<int>(i))) acknowledged.push_back(executions[i]);
    }
    acknowledged_ += static_cast<int64_t>(acknowledged.size());
    if (options_.ledger != nullptr) options_.ledger->Acknowledged(acknowledged);
    return;
  }
}

}  // namespace temper
