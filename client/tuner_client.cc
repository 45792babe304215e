#include "client/tuner_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/natural_order.h"
#include "base/secure_random.h"
#include "client/incoming_stream.h"
#include "proto/convert.h"
#include "proto/limits.h"
#include "storage/check.h"
#include "temper/v1/tuning.grpc.pb.h"

namespace temper {
namespace {

// Keeps a request of queries or records well below the server's 4 MiB.
constexpr size_t kMostBytesARequest = 1 << 20;
constexpr int kJobsAPage = 1000;
// A watch is one call; it is taken up again when this has passed, so that a half-open connection cannot hold it for
// ever.
constexpr absl::Duration kWatchDeadline = absl::Hours(1);
constexpr absl::Duration kFirstBackOff = absl::Milliseconds(100);
constexpr absl::Duration kMostBackOff = absl::Seconds(2);

size_t WireBytes(const Record& r) {
  return r.workload.size() + r.anchor.size() + r.target.size() + r.fingerprint.size() + r.config.size() +
         r.error.size() + r.costs_s.size() * sizeof(double) + 256;
}

size_t WireBytes(const BestQuery& q) {
  return q.workload.size() + q.anchor.size() + q.target.size() + q.fingerprint.size() + q.templates.size() * 64 + 128;
}

// A record as every store takes it, so that one of a server that was measured has times.
absl::StatusOr<Record> Believed(absl::StatusOr<Record> record) {
  if (!record.ok()) return record;
  const absl::Status sound = CheckRecord(*record);
  return sound.ok() ? std::move(record) : RefusedAnswer(sound.message());
}

// Calls `send` with runs of at most `most` items, each of a bounded size.
template <typename T, typename Send>
absl::Status InChunks(std::span<const T> items, size_t most, const Send& send) {
  for (size_t begin = 0; begin < items.size();) {
    size_t end = begin, bytes = 0;
    while (end < std::min(items.size(), begin + most) &&
           (end == begin || bytes + WireBytes(items[end]) <= kMostBytesARequest)) {
      bytes += WireBytes(items[end++]);
    }
    TEMPER_RETURN_IF_ERROR(send(items.subspan(begin, end - begin)));
    begin = end;
  }
  return absl::OkStatus();
}

}  // namespace

struct StopSignal::Impl {
  std::mutex mutex;
  std::condition_variable wake;
  bool cancelled = false;
  grpc::ClientContext* context = nullptr;  // of the call now running, if any

  // For ServerConnection::Call; null: nothing ends the call.
  static std::function<void(grpc::ClientContext*)> UnderWay(StopSignal* stop) {
    return [stop](grpc::ClientContext* context) {
      if (stop == nullptr) return;
      std::lock_guard lock(stop->impl_->mutex);
      stop->impl_->context = context;
      if (stop->impl_->cancelled && context != nullptr) context->TryCancel();
    };
  }
  // False: it was cancelled meanwhile.
  bool Wait(absl::Duration time) {
    std::unique_lock lock(mutex);
    return !wake.wait_for(lock, absl::ToChronoMilliseconds(time), [this] { return cancelled; });
  }
};

StopSignal::StopSignal() : impl_(std::make_unique<Impl>()) {}
StopSignal::~StopSignal() = default;

void StopSignal::Cancel() {
  std::lock_guard lock(impl_->mutex);
  impl_->cancelled = true;
  if (impl_->context != nullptr) impl_->context->TryCancel();
  impl_->wake.notify_all();
}

bool StopSignal::cancelled() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->cancelled;
}

struct TunerClient::Impl : ServiceConnection<v1::TuningService> {};

TunerClient::TunerClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TunerClient::~TunerClient() = default;

const std::string& TunerClient::address() const { return impl_->connection->address(); }

absl::StatusOr<std::unique_ptr<TunerClient>> TunerClient::Connect(const std::string& address,
                                                                  const ClientOptions& options) {
  auto impl = std::make_unique<Impl>();
  TEMPER_RETURN_IF_ERROR(impl->Dial(address, options));
  return std::unique_ptr<TunerClient>(new TunerClient(std::move(impl)));
}

absl::Status TunerClient::WaitUntilReady(absl::Duration timeout) { return impl_->connection->WaitUntilReady(timeout); }

absl::StatusOr<int64_t> TunerClient::SubmitJob(v1::SubmitJobRequest request, absl::Duration patience,
                                               StopSignal* stop) {
  if (request.request_id().empty()) request.set_request_id(SecureHex());
  StopSignal own;
  StopSignal& signal = stop != nullptr ? *stop : own;
  absl::Time give_up = absl::InfiniteFuture();
  for (absl::Duration back_off = kFirstBackOff;; back_off = std::min(back_off * 2, kMostBackOff)) {
    v1::SubmitJobReply reply;
    const absl::Status status = impl_->connection->Call(*impl_->stub, &v1::TuningService::Stub::SubmitJob, request,
                                                        reply, StopSignal::Impl::UnderWay(&signal));
    if (status.ok()) return reply.job();
    if (signal.cancelled()) return absl::CancelledError("the submission was stopped");
    give_up = std::min(give_up, absl::Now() + patience);
    const bool again = absl::IsUnavailable(status) && impl_->connection->answered() && absl::Now() < give_up;
    if (!again) return status;
    if (!signal.impl_->Wait(back_off)) return absl::CancelledError("the submission was stopped");
  }
}

absl::Status TunerClient::WatchJob(int64_t job, const std::function<bool(const v1::JobEvent&)>& on_event,
                                   absl::Duration patience, StopSignal* stop) {
  StopSignal own;
  StopSignal::Impl& signal = stop != nullptr ? *stop->impl_ : *own.impl_;
  v1::WatchJobRequest request;
  request.set_job(job);
  absl::Time broken_since = absl::InfiniteFuture();  // the server tells the state at once on a new stream
  absl::Duration back_off = kFirstBackOff;
  while (true) {
    grpc::ClientContext context;
    impl_->connection->Prepare(context, kWatchDeadline);
    {
      std::lock_guard lock(signal.mutex);
      if (signal.cancelled) return absl::CancelledError("the watch was stopped");
      signal.context = &context;
    }
    IncomingStream<v1::JobEvent> stream(context, [&](grpc::CompletionQueue* queue) {
      return impl_->stub->AsyncWatchJob(&context, request, queue, nullptr);
    });
    v1::JobEvent event;
    bool wanted = true, ended = false;
    absl::Status sound;
    while (wanted && stream.Read(&event)) {
      sound = CheckAnswer(event);
      if (!sound.ok()) break;
      impl_->connection->NoteAnswer();
      broken_since = absl::InfiniteFuture();
      back_off = kFirstBackOff;
      request.set_cursor(event.cursor());
      ended = IsFinalJobState(event.state());
      wanted = on_event(event);
    }
    if (!wanted || !sound.ok()) context.TryCancel();
    const grpc::Status status = stream.Finish();
    std::unique_lock lock(signal.mutex);
    signal.context = nullptr;
    TEMPER_RETURN_IF_ERROR(sound);
    if (ended) return absl::OkStatus();
    if (!wanted || signal.cancelled) return absl::CancelledError("the watch was stopped");
    // A server cancels the watches of those that may no longer watch. What it says to the next one is the reason.
    const bool passing = status.ok() || status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                         status.error_code() == grpc::StatusCode::CANCELLED ||
                         status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    broken_since = std::min(broken_since, absl::Now());
    if (!passing || absl::Now() - broken_since >= patience) return impl_->connection->Told(status);
    signal.wake.wait_for(lock, absl::ToChronoMilliseconds(back_off), [&] { return signal.cancelled; });
    back_off = std::min(back_off * 2, kMostBackOff);
  }
}

absl::Status TunerClient::SetPriority(int64_t job, int priority) {
  v1::SetPriorityRequest request;
  request.set_job(job);
  request.set_priority(priority);
  v1::SetPriorityReply reply;
  return impl_->Call(&v1::TuningService::Stub::SetPriority, request, reply);
}

absl::Status TunerClient::CancelJob(int64_t job) {
  v1::CancelJobRequest request;
  request.set_job(job);
  v1::CancelJobReply reply;
  return impl_->Call(&v1::TuningService::Stub::CancelJob, request, reply);
}

absl::StatusOr<std::vector<v1::JobSummary>> TunerClient::ListJobs(int64_t most, const std::string& state) {
  std::vector<v1::JobSummary> jobs;
  v1::ListJobsRequest request;
  request.set_state(state);
  while (true) {
    const int64_t left = most - static_cast<int64_t>(jobs.size());
    request.set_limit(most == 0 ? kJobsAPage : static_cast<int32_t>(std::min<int64_t>(left, kJobsAPage)));
    v1::ListJobsReply reply;
    TEMPER_RETURN_IF_ERROR(impl_->Call(&v1::TuningService::Stub::ListJobs, request, reply));
    jobs.insert(jobs.end(), reply.jobs().begin(), reply.jobs().end());
    if (reply.next_before() == 0 || (most != 0 && static_cast<int64_t>(jobs.size()) >= most)) return jobs;
    if (request.before() != 0 && reply.next_before() >= request.before()) return RefusedAnswer(kSamePage);
    request.set_before(reply.next_before());
  }
}

absl::StatusOr<v1::JobSummary> TunerClient::GetJob(int64_t job) {
  if (job == std::numeric_limits<int64_t>::max()) return absl::NotFoundError(absl::StrCat("there is no job ", job));
  v1::ListJobsRequest request;
  request.set_before(job + 1);
  request.set_limit(1);
  v1::ListJobsReply reply;
  TEMPER_RETURN_IF_ERROR(impl_->Call(&v1::TuningService::Stub::ListJobs, request, reply));
  if (reply.jobs_size() == 0 || reply.jobs(0).job() != job)
    return absl::NotFoundError(absl::StrCat("there is no job ", job));
  return reply.jobs(0);
}

absl::StatusOr<std::vector<v1::Device>> TunerClient::ListDevices(const std::string& awaited_key, StopSignal* stop) {
  std::vector<v1::Device> devices;
  v1::ListDevicesRequest request;
  request.set_awaited_key(awaited_key);
  do {
    v1::ListDevicesReply reply;
    TEMPER_RETURN_IF_ERROR(impl_->connection->Call(*impl_->stub, &v1::TuningService::Stub::ListDevices, request, reply,
                                                   StopSignal::Impl::UnderWay(stop)));
    devices.insert(devices.end(), reply.devices().begin(), reply.devices().end());
    if (!reply.next_after().empty() && reply.next_after() <= request.after()) return RefusedAnswer(kSamePage);
    request.set_after(reply.next_after());
  } while (!request.after().empty());
  std::stable_sort(devices.begin(), devices.end(), [](const v1::Device& a, const v1::Device& b) {
    return a.key() != b.key() ? NaturalLess(a.key(), b.key()) : NaturalLess(a.name(), b.name());
  });
  return devices;
}

absl::StatusOr<std::vector<std::optional<BestAnswer>>> TunerClient::QueryBest(std::span<const BestQuery> queries) {
  std::vector<std::optional<BestAnswer>> answers;
  TEMPER_RETURN_IF_ERROR(InChunks(queries, kMostQueries, [&](std::span<const BestQuery> chunk) -> absl::Status {
    v1::QueryBestRequest request;
    for (const BestQuery& query : chunk) *request.add_queries() = ToWire(query);
    v1::QueryBestReply reply;
    TEMPER_RETURN_IF_ERROR(impl_->Call(&v1::TuningService::Stub::QueryBest, request, reply));
    if (static_cast<size_t>(reply.answers_size()) != chunk.size()) {
      return absl::InternalError("the server answered another number of queries than it was asked");
    }
    for (const v1::BestAnswer& answer : reply.answers()) {
      TEMPER_ASSIGN_OR_RETURN(answers.emplace_back(), FromWire(answer));
      if (answers.back()) TEMPER_RETURN_IF_ERROR(Believed(answers.back()->record).status());
    }
    return absl::OkStatus();
  }));
  return answers;
}

absl::StatusOr<std::optional<TunerClient::Verdict>> TunerClient::QueryVerdict(const std::string& model_hash,
                                                                              const std::string& target,
                                                                              const std::string& device_key) {
  v1::QueryVerdictRequest request;
  request.set_model_hash(model_hash);
  request.set_target(target);
  request.set_device_key(device_key);
  v1::QueryVerdictReply reply;
  TEMPER_RETURN_IF_ERROR(impl_->Call(&v1::TuningService::Stub::QueryVerdict, request, reply));
  if (reply.job() == 0) return std::nullopt;
  return Verdict{reply.job(), reply.build_with()};
}

absl::StatusOr<std::vector<int64_t>> TunerClient::PutRecords(std::span<const Record> records, bool trusted) {
  std::vector<int64_t> ids;
  const absl::Status put = InChunks(records, kMostRecords, [&](std::span<const Record> chunk) -> absl::Status {
    v1::PutRecordsRequest request;
    request.set_trusted(trusted);
    for (const Record& record : chunk) *request.add_records() = ToWire(record);
    v1::PutRecordsReply reply;
    TEMPER_RETURN_IF_ERROR(impl_->Call(&v1::TuningService::Stub::PutRecords, request, reply));
    if (static_cast<size_t>(reply.ids_size()) != chunk.size())
      return RefusedAnswer("it has ids for another number of records than it was given");
    ids.insert(ids.end(), reply.ids().begin(), reply.ids().end());
    return absl::OkStatus();
  });
  if (put.ok()) return ids;
  if (ids.empty()) return put;
  return absl::Status(put.code(), absl::StrCat(put.message(), "; ", ids.size(), " of ", records.size(),
                                               " records are there by now: the same again adds the others"));
}

absl::Status TunerClient::ExportRecords(const RecordFilter& filter, bool best,
                                        const std::function<bool(const Record&)>& visit) {
  grpc::ClientContext context;
  impl_->connection->Prepare(context, kWatchDeadline);
  v1::ExportRecordsRequest request;
  request.set_after_id(filter.after_id);
  request.set_best(best);
  request.set_workload(filter.workload);
  request.set_target(filter.target);
  request.set_device_key(filter.device_key);
  if (filter.outcome.has_value()) request.set_outcome(std::string(Text(*filter.outcome)));
  request.set_purpose(filter.purpose);
  IncomingStream<v1::Record> stream(context, [&](grpc::CompletionQueue* queue) {
    return impl_->stub->AsyncExportRecords(&context, request, queue, nullptr);
  });
  v1::Record record;
  while (stream.Read(&record)) {
    TEMPER_RETURN_IF_ERROR(CheckAnswer(record));
    TEMPER_ASSIGN_OR_RETURN(const Record value, Believed(FromWire(record)));
    if (!visit(value)) return absl::CancelledError("the export was stopped");
  }
  return impl_->connection->Told(stream.Finish());
}

}  // namespace temper
