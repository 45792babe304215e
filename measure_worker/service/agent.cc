#include "measure_worker/service/agent.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <spdlog/spdlog.h>

#include "proto/convert_trial.h"

namespace temper::worker {
namespace {

constexpr std::chrono::seconds kFarewell{3};  // for handing in the last results to a server that may be gone

}  // namespace

Agent::Agent(ServerLink& link, Measurer& measurer, AgentOptions options)
    : link_(link), measurer_(measurer), options_(std::move(options)), rng_(options_.seed) {}

Agent::~Agent() { Stop(); }

void Agent::Start() {
  control_ = std::thread([this] { ControlLoop(); });
  measure_ = std::thread([this] { MeasureLoop(); });
  submit_ = std::thread([this] { SubmitLoop(); });
}

void Agent::Stop() {
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
  link_.Close();
  submit_.join();
  control_.join();
}

int Agent::FreeSlots() const {
  const auto busy = std::count_if(held_.begin(), held_.end(), [](const auto& h) { return !h.second.measured; });
  return std::max(0, options_.registration.slots() - static_cast<int>(busy));
}

absl::Duration Agent::Jittered(absl::Duration d) { return d * (0.8 + 0.4 * rng_.Uniform()); }

void Agent::BackOff(std::unique_lock<std::mutex>& lock, int failures) {
  constexpr int kMaxDoublings = 16;
  const double factor = std::pow(2.0, std::min(failures, kMaxDoublings));
  const absl::Duration ceiling = std::min(options_.back_off_least * factor, options_.back_off_most);
  changed_.wait_for(lock, absl::ToChronoNanoseconds(ceiling * rng_.Uniform()), [this] { return stopping_; });
}

// --- control: registration and syncs ---

void Agent::ControlLoop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (session_.empty()) {
      lock.unlock();
      const bool registered = RegisterOnce();
      lock.lock();
      if (!registered) BackOff(lock, register_failures_ - 1);
      continue;
    }
    if (sync_failures_ > 0 && syncs_.empty()) BackOff(lock, sync_failures_ - 1);
    if (stopping_) break;
    SyncIfDue(lock);
    // Due again when none is under way, or when the one that is says "full" while a slot has become free.
    changed_.wait(lock, [this] {
      return stopping_ || session_.empty() || syncs_.empty() || (syncs_.rbegin()->second == 0 && FreeSlots() > 0);
    });
  }
}

bool Agent::RegisterOnce() {
  auto reply = link_.Register(options_.registration);
  std::lock_guard lock(mutex_);
  if (!reply.ok()) {
    if (!stopping_ && register_failures_++ == 0) {
      spdlog::warn("cannot register with the server, and keep trying: {}", std::string(reply.status().message()));
    }
    return false;
  }
  register_failures_ = 0;
  session_ = reply->session();
  if (reply->sync_ms() > 0) busy_wait_ = absl::Milliseconds(reply->sync_ms());
  sync_failures_ = 0;
  spdlog::info("registered for key '{}' as session {}", options_.registration.device_key(), session_);
  return true;
}

void Agent::SyncIfDue(std::unique_lock<std::mutex>& lock) {
  const int free_slots = FreeSlots();
  if (!syncs_.empty() && !(syncs_.rbegin()->second == 0 && free_slots > 0)) return;
  v1::SyncRequest request;
  request.set_session(session_);
  for (const auto& [id, held] : held_) request.add_leases(id);
  request.set_free_slots(free_slots);
  request.set_wait_ms(
      static_cast<int32_t>(absl::ToInt64Milliseconds(Jittered(held_.empty() ? options_.idle_wait : busy_wait_))));
  const int64_t call = next_sync_++;
  syncs_[call] = free_slots;
  lock.unlock();
  link_.StartSync(request, [this, call, free_slots](absl::StatusOr<v1::SyncReply> reply) {
    OnSync(call, free_slots, std::move(reply));
  });
  lock.lock();
}

void Agent::OnSync(int64_t call, int free_slots, absl::StatusOr<v1::SyncReply> reply) {
  std::lock_guard lock(mutex_);
  syncs_.erase(call);
  if (!reply.ok()) {
    // A broken call that a newer one has replaced says nothing about the server.
    if (syncs_.empty()) ++sync_failures_;
    if (!stopping_ && sync_failures_ == 1) spdlog::warn("lost the server: {}", std::string(reply.status().message()));
  } else {
    sync_failures_ = 0;
    if (reply->unknown_session()) session_.clear();
    for (v1::Lease& lease : *reply->mutable_grants()) {
      const int64_t id = lease.lease();
      if (stopping_ || held_.contains(id)) continue;
      held_[id].lease = std::move(lease);
      to_measure_.push_back(id);
    }
    for (int64_t id : reply->cancels()) {
      const auto it = held_.find(id);
      if (it == held_.end()) continue;
      it->second.token->Cancel();
      // One that has not begun is dropped here; one that has is ended by its token.
      if (std::erase(to_measure_, id) > 0) held_.erase(it);
    }
  }
  changed_.notify_all();
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
    lock.unlock();
    Outgoing done{id, {}};
    Measure(held, done.results);
    lock.lock();
    held_.at(id).measured = true;
    if (done.results.results_size() + done.results.models_size() > 0) {
      outbox_.push_back(std::move(done));
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
    changed_.wait(lock, [this] { return measuring_ended_ || !outbox_.empty(); });
    if (outbox_.empty()) return;
    const Outgoing out = outbox_.front();
    v1::SubmitResultsRequest request = out.results;
    request.set_session(session_);
    lock.unlock();
    const bool taken = Submit(request, failures > 0);
    lock.lock();
    if (taken) {
      // Only now is the lease no longer ours: until then the server must not give it to another.
      held_.erase(out.lease);
      outbox_.pop_front();
      failures = 0;
      changed_.notify_all();
    } else if (stopping_) {
      return;  // the server will have it measured again
    } else {
      BackOff(lock, failures++);
    }
  }
}

bool Agent::Submit(const v1::SubmitResultsRequest& results, bool again) {
  auto reply = link_.SubmitResults(results);
  if (!reply.ok()) {
    if (!again) spdlog::warn("cannot hand in results yet: {}", std::string(reply.status().message()));
    // What the server refuses as such it will refuse again.
    return absl::IsInvalidArgument(reply.status()) || absl::IsPermissionDenied(reply.status());
  }
  const auto refused = std::count(reply->acked().begin(), reply->acked().end(), false);
  if (refused > 0) spdlog::warn("the server refused {} results that contradict earlier ones", refused);
  return true;
}

}  // namespace temper::worker
