#include "measure_worker/service/agent.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "base/log.h"
#include "proto/convert.h"
#include "proto/convert_trial.h"

namespace temper::worker {
namespace {

constexpr std::chrono::seconds kFarewell{1};  // for handing in the last results to a server that may be gone
// The server refuses reports of more than 1 MiB.
constexpr size_t kMostSubmittedBytes = 768 << 10;

// A lease is renewed for so many times what its work may take, and for what cannot be told beforehand: preparing, and
// waiting for others who measure on the same cores. Then the server gives it to somebody else.
constexpr int kMostTimesItsWork = 10;
constexpr absl::Duration kForTheRest = absl::Minutes(30);
constexpr int64_t kCancelled = 600'000'000'000;  // ns within which a cancelled measurement has ended

absl::Duration MostAge(const v1::Lease& lease) {
  absl::Duration work;
  if (lease.has_batch()) {
    const SamplingPlan plan = FromWire(lease.batch().plan());
    work = lease.batch().candidates_size() * absl::Milliseconds(plan.build_timeout_ms + plan.run_timeout_ms);
  }
  work += absl::Milliseconds(lease.model().budget_ms()) + absl::Milliseconds(lease.finals().model().budget_ms());
  return kMostTimesItsWork * work + kForTheRest;
}

// Of who this is. Anything else may pass.
constexpr char kHowToJoin[] = "; if it should serve, ask for an invitation and run: temper-worker join";

bool IsForGood(const absl::Status& status) {
  return absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status);
}

int CountResults(const v1::SubmitResultsRequest& request) { return request.results_size() + request.models_size(); }

// All results of a request are of one lease.
int64_t LeaseOf(const v1::SubmitResultsRequest& request) {
  if (request.results_size() > 0) return request.results(0).lease();
  return request.models_size() > 0 ? request.models(0).lease() : 0;
}

}  // namespace

Agent::Agent(ServerLink& link, Measurer& measurer, Spool& spool, AgentOptions options)
    : link_(link), measurer_(measurer), spool_(spool), options_(std::move(options)), rng_(options_.seed) {
  for (const SpoolEntry& entry : spool_.entries()) {
    Held& held = held_[entry.lease];
    held.measured = true;
    held.granted_ns = options_.now_ns();
    held.most_age_ns = absl::ToInt64Nanoseconds(kForTheRest);
  }
}

Agent::~Agent() { Stop("the worker ends"); }

void Agent::Start() {
  control_ = std::thread([this] { ControlLoop(); });
  measure_ = std::thread([this] { MeasureLoop(); });
  submit_ = std::thread([this] { SubmitLoop(); });
}

void Agent::Stop(const std::string& why) {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    for (auto& [id, held] : held_) held.token->Cancel();
  }
  changed_.notify_all();
  if (!control_.joinable()) return;
  measure_.join();
  {
    std::unique_lock lock(mutex_);
    measuring_ended_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, kFarewell, [this] { return submitting_ended_; });
  }
  Farewell(why);
  link_.Close();
  submit_.join();
  control_.join();
}

void Agent::Farewell(const std::string& why) {
  v1::LeaveRequest request;
  {
    std::lock_guard lock(mutex_);
    if (session_.empty()) return;
    request.set_session(session_);
  }
  request.set_reason(why);
  if (const absl::Status left = link_.Leave(request); !left.ok())
    LogInfo(About(), "the server was not told of the end: {}", std::string(left.message()));
}

bool Agent::Lives() {
  std::lock_guard lock(mutex_);
  return !measuring_until_ns_.has_value() || options_.now_ns() < *measuring_until_ns_ + kCancelled;
}

std::string Agent::Refused() {
  std::lock_guard lock(mutex_);
  return refused_;
}

int Agent::FreeSlots() const {
  if (!draining_.empty()) return 0;
  const auto busy = std::count_if(held_.begin(), held_.end(), [](const auto& h) { return !h.second.measured; });
  return std::max(0, options_.registration.slots() - static_cast<int>(busy));
}

absl::Duration Agent::Jittered(absl::Duration d) { return d * (0.8 + 0.4 * rng_.Uniform()); }

void Agent::BackOff(std::unique_lock<std::mutex>& lock, int failures) {
  constexpr int kMaxDoublings = 16;
  const double factor = std::pow(2.0, std::min(failures, kMaxDoublings));
  const absl::Duration ceiling = std::min(options_.back_off_least * factor, options_.back_off_most);
  const int free_slots = FreeSlots();
  changed_.wait_for(lock, absl::ToChronoNanoseconds(ceiling * rng_.Uniform()),
                    [&] { return stopping_ || !measured_.empty() || FreeSlots() > free_slots; });
}

// --- control: registration and syncs ---

void Agent::ControlLoop() {
  std::unique_lock lock(mutex_);
  while (!stopping_ && refused_.empty()) {
    if (session_.empty()) {
      if (short_sessions_ > 0) BackOff(lock, short_sessions_ - 1);
      if (stopping_) break;
      lock.unlock();
      const bool registered = RegisterOnce();
      lock.lock();
      if (!registered && refused_.empty()) BackOff(lock, register_failures_ - 1);
      continue;
    }
    if (sync_failures_ > 0 && syncs_.empty()) BackOff(lock, sync_failures_ - 1);
    // Of two calls the older is answered at once, so one empty answer is none too many.
    if (empty_answers_ > 1 && syncs_.empty()) BackOff(lock, empty_answers_ - 2);
    if (stopping_) break;
    SyncIfDue(lock);
    // Due again when none is under way, or when the one that is says "full" while a slot has become free.
    changed_.wait(lock, [this] {
      return stopping_ || session_.empty() || syncs_.empty() ||
             (syncs_.rbegin()->second.free_slots == 0 && FreeSlots() > 0);
    });
  }
}

bool Agent::RegisterOnce() {
  v1::RegisterRequest request = options_.registration;
  request.set_instance(spool_.instance());
  request.set_wire_version(kWireVersion);
  auto reply = link_.Register(request);
  std::lock_guard lock(mutex_);
  if (!reply.ok()) {
    ++register_failures_;
    // What it says of itself does not change.
    if (absl::IsInvalidArgument(reply.status()))
      refused_ = std::string(reply.status().message());
    else if (IsForGood(reply.status()))
      refused_ = absl::StrCat(reply.status().message(), kHowToJoin);
    else
      TellTrouble("cannot register with the server, and keep trying", reply.status());
    return false;
  }
  register_failures_ = 0;
  trouble_.clear();
  session_ = reply->session();
  registered_ns_ = options_.now_ns();
  if (reply->sync_ms() > 0) busy_wait_ = absl::Milliseconds(reply->sync_ms());
  sync_failures_ = empty_answers_ = 0;
  LogInfo(About(), "registered for key '{}' as session {}", options_.registration.device_key(), session_);
  return true;
}

void Agent::TellTrouble(const char* what, const absl::Status& status) {
  const std::string message(status.message());
  if (stopping_ || message == trouble_) return;
  trouble_ = message;
  // A server that has answered speaks as this worker does, and one that is not there speaks nothing.
  const bool hints =
      absl::IsUnavailable(status) && registered_ns_ == 0 && !absl::StrContains(message, "Connection refused");
  LogWarn(About(), "{}: {}{}", what, message, hints ? options_.hint : "");
}

void Agent::SyncIfDue(std::unique_lock<std::mutex>& lock) {
  const int free_slots = FreeSlots();
  if (!syncs_.empty() && !(syncs_.rbegin()->second.free_slots == 0 && free_slots > 0)) return;
  DropAged();
  v1::SyncRequest request;
  request.set_session(session_);
  for (const auto& [id, held] : held_) request.add_leases(id);
  request.set_free_slots(free_slots);
  request.set_wait_ms(
      static_cast<int32_t>(absl::ToInt64Milliseconds(Jittered(held_.empty() ? options_.idle_wait : busy_wait_))));
  const int64_t call = next_sync_++;
  syncs_[call] = {free_slots, options_.now_ns()};
  lock.unlock();
  link_.StartSync(request, [this, call, session = request.session()](absl::StatusOr<v1::SyncReply> reply) {
    OnSync(call, session, std::move(reply));
  });
  lock.lock();
}

void Agent::OnSync(int64_t call, const std::string& session, absl::StatusOr<v1::SyncReply> reply) {
  std::lock_guard lock(mutex_);
  const bool at_once = options_.now_ns() - syncs_.at(call).begun_ns < absl::ToInt64Nanoseconds(options_.back_off_least);
  syncs_.erase(call);
  if (!reply.ok()) {
    // A broken call that a newer one has replaced says nothing about the server.
    if (syncs_.empty()) ++sync_failures_;
    short_sessions_ = 0;  // a server that was away, so one that comes back may have forgotten this one
    if (sync_failures_ > 0) TellTrouble("lost the server", reply.status());
    // Whether that is for good is the answer to its next registration.
    if (IsForGood(reply.status()) && session == session_) session_.clear();
  } else {
    sync_failures_ = 0;
    trouble_.clear();
    // What an answer that comes late says of an earlier session is no news.
    if (reply->unknown_session() && session == session_) EndSession();
    const bool news = TakeReply(*reply);
    empty_answers_ = !news && at_once && syncs_.empty() ? empty_answers_ + 1 : 0;
  }
  changed_.notify_all();
}

// As when another worker registers as this one, with a copy of its spool: each would end the other's session without a
// pause.
void Agent::EndSession() {
  session_.clear();
  const bool soon = options_.now_ns() - registered_ns_ < absl::ToInt64Nanoseconds(options_.back_off_most);
  short_sessions_ = soon ? short_sessions_ + 1 : 0;
}

bool Agent::TakeReply(v1::SyncReply& reply) {
  bool news = reply.unknown_session();
  if (reply.draining() != draining_ && !reply.unknown_session()) {
    draining_ = reply.draining();
    news = true;
    if (draining_.empty())
      LogWarn(About(), "the server grants again");
    else
      LogWarn(About(), "the server grants nothing more, what is held is finished: {}", draining_);
  }
  for (v1::Lease& lease : *reply.mutable_grants()) {
    if (stopping_ || held_.contains(lease.lease())) continue;
    Hold(std::move(lease));
    news = true;
  }
  for (int64_t id : reply.cancels()) {
    const auto it = held_.find(id);
    if (it == held_.end()) continue;
    news |= !it->second.token->cancelled();
    it->second.token->Cancel();
    // One that has not begun is dropped here; one that has is ended by its token.
    if (std::erase(to_measure_, id) > 0) held_.erase(it);
  }
  return news;
}

void Agent::Hold(v1::Lease lease) {
  const int64_t id = lease.lease();
  Held& held = held_[id];
  held.granted_ns = options_.now_ns();
  held.most_age_ns = absl::ToInt64Nanoseconds(MostAge(lease));
  held.lease = std::move(lease);
  to_measure_.push_back(id);
}

// What is too old to be renewed: nobody waits for it any more, but what has been measured is handed in.
void Agent::DropAged() {
  const int64_t now = options_.now_ns();
  std::erase_if(held_, [&](auto& entry) {
    auto& [id, held] = entry;
    if (now - held.granted_ns < held.most_age_ns) return false;
    LogWarn(About(id), "lease {} is given up: it has been held for too long", id);
    held.token->Cancel();
    std::erase(to_measure_, id);
    return true;
  });
}

// --- measuring ---

void Agent::MeasureLoop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !to_measure_.empty(); });
    if (stopping_) return;
    const int64_t id = to_measure_.front();
    to_measure_.pop_front();
    const Held held = held_.at(id);
    measuring_until_ns_ = held.granted_ns + held.most_age_ns;
    lock.unlock();
    Outgoing done{id, {}};
    Measure(held, done.results);
    lock.lock();
    measuring_until_ns_.reset();
    // It is no longer there if it got too old.
    if (const auto it = held_.find(id); it != held_.end()) it->second.measured = true;
    if (CountResults(done.results) > 0) {
      measured_.push_back(std::move(done));
    } else {
      held_.erase(id);
    }
    changed_.notify_all();
  }
}

void Agent::Measure(const Held& held, v1::SubmitResultsRequest& results) {
  const v1::Lease& lease = held.lease;
  if (lease.has_model()) {
    auto result = measurer_.Run(FromWire(lease.model()), *held.token);
    if (absl::IsCancelled(result.status())) return;
    if (!result.ok()) result = ModelResult{Outcome::kInfrastructure, std::string(result.status().message())};
    *results.add_models() = ToWire(lease.lease(), *result);
    return;
  }
  const FinalsWork finals = FromWire(lease.finals());
  const BatchWork batch = FromWire(lease.batch());
  const std::vector<Candidate> candidates = lease.has_finals() ? finals.Candidates() : batch.candidates;
  std::vector<bool> told(candidates.size());
  const auto tell = [&](int index, const TrialResult& result) {
    told[index] = true;
    *results.add_results() = ToWire(lease.lease(), candidates[index], result);
  };
  const absl::Status status =
      lease.has_finals() ? measurer_.Run(finals, *held.token, tell) : measurer_.Run(batch, *held.token, tell);
  if (status.ok() || absl::IsCancelled(status)) return;
  for (size_t i = 0; i < told.size(); ++i) {
    if (!told[i]) tell(static_cast<int>(i), {Outcome::kInfrastructure, std::string(status.message())});
  }
}

// --- handing in ---

void Agent::SubmitLoop() {
  std::unique_lock lock(mutex_);
  SubmitAll(lock);
  submitting_ended_ = true;
  changed_.notify_all();
}

void Agent::SubmitAll(std::unique_lock<std::mutex>& lock) {
  for (int failures = 0;;) {
    changed_.wait(lock, [this] { return measuring_ended_ || !measured_.empty() || !spool_.entries().empty(); });
    const std::deque<Outgoing> measured = std::exchange(measured_, {});
    lock.unlock();
    for (const Outgoing& done : measured) spool_.Add(done.lease, done.results);
    if (spool_.entries().empty()) {
      lock.lock();
      if (measuring_ended_ && measured_.empty()) return;
      continue;
    }
    const SpoolEntry& next = spool_.entries().front();
    const int64_t lease = next.lease;
    const bool taken = Deliver(next.results, failures > 0);
    if (taken)
      spool_.Remove(next.number);
    else
      spool_.Sync(options_.now_ns());
    lock.lock();
    if (taken) {
      // Only now is the lease no longer ours: until then the server must not give it to another.
      held_.erase(lease);
      failures = 0;
      changed_.notify_all();
    } else if (stopping_) {
      // The next life hands in what is left.
      changed_.wait(lock, [this] { return measuring_ended_; });
      for (const Outgoing& done : measured_) spool_.Add(done.lease, done.results);
      return;
    } else {
      BackOff(lock, failures++);
    }
  }
}

bool Agent::Deliver(const v1::SubmitResultsRequest& results, bool again) {
  const bool one = CountResults(results) <= 1;
  if (!one && results.ByteSizeLong() > kMostSubmittedBytes) return DeliverInHalves(results, again);
  const absl::Status status = Submit(results, again);
  // What the server refuses as such it will refuse again. One result that is too large or breaks another limit must not
  // take the others with it. A server that has no room for what is small enough may have some later.
  const bool too_large = absl::IsResourceExhausted(status) && results.ByteSizeLong() > kMostSubmittedBytes;
  if (!too_large && !absl::IsInvalidArgument(status)) return status.ok() || absl::IsPermissionDenied(status);
  if (!one) return DeliverInHalves(results, again);
  LogWarn(About(LeaseOf(results)), "a result is dropped, for the server does not take it: {}",
          std::string(status.message()));
  return true;
}

bool Agent::DeliverInHalves(const v1::SubmitResultsRequest& results, bool again) {
  const int half = CountResults(results) / 2;
  v1::SubmitResultsRequest parts[2];
  for (int i = 0; i < results.results_size(); ++i) *parts[i >= half].add_results() = results.results(i);
  for (int i = 0; i < results.models_size(); ++i)
    *parts[results.results_size() + i >= half].add_models() = results.models(i);
  return Deliver(parts[0], again) && Deliver(parts[1], again);
}

absl::Status Agent::Submit(v1::SubmitResultsRequest results, bool again) {
  results.set_instance(spool_.instance());
  {
    std::lock_guard lock(mutex_);
    results.set_session(session_);
  }
  const auto reply = link_.SubmitResults(results);
  if (!reply.ok()) {
    if (!again)
      LogWarn(About(LeaseOf(results)), "cannot hand in results yet: {}", std::string(reply.status().message()));
    return reply.status();
  }
  const auto refused = std::count(reply->acked().begin(), reply->acked().end(), false);
  if (refused > 0) {
    LogWarn(About(LeaseOf(results)),
            "the server did not take {} results: they contradict earlier ones, or are of no work that it knows",
            refused);
  }
  return absl::OkStatus();
}

}  // namespace temper::worker
