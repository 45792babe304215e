// A server that a test scripts: it grants what it is given, keeps what it is told, and loses what it is told to lose.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "measure_worker/service/server_link.h"

namespace temper::worker {

// The logic, without a transport. Calls that wait are kept until there is something to say.
class FakeServer {
 public:
  absl::StatusOr<v1::RegisterReply> Register(const v1::RegisterRequest& request) {
    std::lock_guard lock(mutex_);
    ++register_calls_;
    changed_.notify_all();
    if (!refusal_.ok()) return refusal_;
    if (register_failures_ > 0) {
      --register_failures_;
      return absl::UnavailableError("not yet");
    }
    registrations_.push_back(request);
    v1::RegisterReply reply;
    reply.set_session("s" + std::to_string(registrations_.size()));
    if (!forgets_) sessions_.insert(reply.session());
    reply.set_sync_ms(50);
    changed_.notify_all();
    return reply;
  }

  void StartSync(const v1::SyncRequest& request, ServerLink::SyncDone done) {
    std::unique_lock lock(mutex_);
    syncs_.push_back(request);
    Calls calls;
    if (const auto older = parked_.find(request.session()); older != parked_.end()) Expire(older->second, calls);
    parked_[request.session()] = {std::move(done), request.free_slots()};
    changed_.notify_all();
    if (sync_failures_ > 0) {
      --sync_failures_;
      EndAll(absl::UnavailableError("connection broke"), calls);
    } else {
      Answer(calls);
    }
    lock.unlock();
    for (auto& call : calls) call();
  }

  absl::StatusOr<v1::SubmitResultsReply> SubmitResults(const v1::SubmitResultsRequest& request) {
    std::lock_guard lock(mutex_);
    submissions_.push_back(request);
    changed_.notify_all();
    if (request.ByteSizeLong() > kMostSubmittedBytes) return absl::ResourceExhaustedError("larger than 1 MiB");
    for (const auto& r : request.results()) {
      if (r.candidate() == refused_candidate_) return absl::InvalidArgumentError("a field breaks its limit");
    }
    if (busy_ > 0) {
      --busy_;
      return absl::ResourceExhaustedError("no room");
    }
    if (submit_failures_ > 0) {
      --submit_failures_;
      return absl::UnavailableError("the reply was lost");
    }
    v1::SubmitResultsReply reply;
    for (const auto& r : request.results()) {
      results_[r.candidate()] = r;
      reply.add_acked(true);
    }
    for (const auto& m : request.models()) {
      models_[m.lease()] = m;
      reply.add_acked(true);
    }
    return reply;
  }

  absl::Status Leave(const v1::LeaveRequest& request) {
    std::lock_guard lock(mutex_);
    farewells_.push_back(request);
    changed_.notify_all();
    return absl::OkStatus();
  }

  // As when the waiting calls have waited for as long as they were asked to.
  void Expire() {
    Calls calls;
    {
      std::lock_guard lock(mutex_);
      for (auto& [session, parked] : parked_) Expire(parked, calls);
      parked_.clear();
    }
    for (auto& call : calls) call();
  }
  // Ends the waiting calls with `status`.
  void End(const absl::Status& status) {
    Calls calls;
    {
      std::lock_guard lock(mutex_);
      EndAll(status, calls);
    }
    for (auto& call : calls) call();
  }

  void Grant(v1::Lease lease) {
    Change([&] { to_grant_.push_back(std::move(lease)); });
  }
  void Cancel(int64_t lease) {
    Change([&] { to_cancel_.push_back(lease); });
  }
  void ForgetSession() {
    Change([&] { sessions_.clear(); });
  }
  void Drain(const std::string& why) {
    Change([&] { draining_ = why; });
  }
  // Whoever registers from now on.
  void Refuse(const absl::Status& why) {
    std::lock_guard lock(mutex_);
    refusal_ = why;
  }
  // No session lasts from now on, as where another worker registers as this one all the time.
  void ForgetEachSession() {
    Change([&] {
      forgets_ = true;
      sessions_.clear();
    });
  }
  // From now on.
  void AnswerAtOnceWithNothing() {
    Change([&] { says_nothing_ = true; });
  }
  void RefuseResult(int64_t candidate) {
    std::lock_guard lock(mutex_);
    refused_candidate_ = candidate;
  }
  // Has no room for the next `submits`.
  void BeBusy(int submits) {
    std::lock_guard lock(mutex_);
    busy_ = submits;
  }
  void FailNext(int registers, int syncs, int submits) {
    std::lock_guard lock(mutex_);
    register_failures_ = registers;
    sync_failures_ = syncs;
    submit_failures_ = submits;
  }

  // Blocks until `holds` (of this) is true; what it sees is consistent.
  template <typename F>
  bool Await(F holds) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return holds(*this); });
  }

  int register_calls_ = 0;  // failed ones too
  std::vector<v1::RegisterRequest> registrations_;
  std::vector<v1::SyncRequest> syncs_;
  std::vector<v1::SubmitResultsRequest> submissions_;
  std::vector<v1::LeaveRequest> farewells_;
  std::map<int64_t, v1::CandidateResult> results_;
  std::map<int64_t, v1::ModelResult> models_;

 private:
  using Calls = std::vector<std::function<void()>>;  // made without the lock
  struct Parked {
    ServerLink::SyncDone done;
    int free = 0;
  };

  template <typename F>
  void Change(F change) {
    Calls calls;
    {
      std::lock_guard lock(mutex_);
      change();
      Answer(calls);
    }
    for (auto& call : calls) call();
  }

  void Expire(Parked& parked, Calls& calls) {
    v1::SyncReply reply;
    reply.set_draining(draining_);
    calls.push_back([done = std::move(parked.done), reply] { done(reply); });
  }
  void EndAll(const absl::Status& status, Calls& calls) {
    for (auto& [session, parked] : parked_) calls.push_back([done = std::move(parked.done), status] { done(status); });
    parked_.clear();
  }

  // The answers to waiting calls, if there is something to say.
  void Answer(Calls& calls) {
    for (auto it = parked_.begin(); it != parked_.end();) {
      const std::optional<v1::SyncReply> reply = AnswerTo(it->first, it->second.free);
      if (reply.has_value()) {
        calls.push_back([done = std::move(it->second.done), reply = *reply] { done(reply); });
        it = parked_.erase(it);
      } else {
        ++it;
      }
    }
  }

  std::optional<v1::SyncReply> AnswerTo(const std::string& session, int free) {
    v1::SyncReply reply;
    if (says_nothing_) return reply;
    if (!sessions_.contains(session)) {
      reply.set_unknown_session(true);
      return reply;
    }
    for (; free > 0 && !to_grant_.empty(); --free) {
      *reply.add_grants() = to_grant_.front();
      to_grant_.pop_front();
    }
    for (int64_t c : to_cancel_) reply.add_cancels(c);
    to_cancel_.clear();
    reply.set_draining(draining_);
    if (reply.grants().empty() && reply.cancels().empty() && draining_ == told_draining_) return std::nullopt;
    told_draining_ = draining_;
    return reply;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> sessions_;
  std::string draining_, told_draining_;
  static constexpr size_t kMostSubmittedBytes = 1 << 20;
  bool forgets_ = false, says_nothing_ = false;
  int64_t refused_candidate_ = 0;
  std::map<std::string, Parked> parked_;  // by session
  std::deque<v1::Lease> to_grant_;
  std::vector<int64_t> to_cancel_;
  int register_failures_ = 0, sync_failures_ = 0, submit_failures_ = 0, busy_ = 0;
  absl::Status refusal_;
};

// Straight into it, without a wire.
class FakeLink : public ServerLink {
 public:
  explicit FakeLink(FakeServer& server) : server_(server) {}
  absl::StatusOr<v1::RegisterReply> Register(const v1::RegisterRequest& request) override {
    return server_.Register(request);
  }
  void StartSync(const v1::SyncRequest& request, SyncDone done) override {
    {
      std::lock_guard lock(mutex_);
      if (closed_) {
        done(absl::CancelledError("closed"));
        return;
      }
    }
    server_.StartSync(request, std::move(done));
  }
  absl::StatusOr<v1::SubmitResultsReply> SubmitResults(const v1::SubmitResultsRequest& request) override {
    return server_.SubmitResults(request);
  }
  absl::Status Leave(const v1::LeaveRequest& request) override { return server_.Leave(request); }
  void Close() override {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    server_.End(absl::CancelledError("closed"));
  }

 private:
  FakeServer& server_;
  std::mutex mutex_;
  bool closed_ = false;
};

}  // namespace temper::worker
