// A server that a test scripts: it grants what it is given, keeps what it is told, and loses what it is told to lose.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
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
    if (register_failures_ > 0) {
      --register_failures_;
      return absl::UnavailableError("not yet");
    }
    registrations_.push_back(request);
    v1::RegisterReply reply;
    session_ = "s" + std::to_string(registrations_.size());
    reply.set_session(session_);
    reply.set_sync_ms(50);
    changed_.notify_all();
    return reply;
  }

  void StartSync(const v1::SyncRequest& request, ServerLink::SyncDone done) {
    std::unique_lock lock(mutex_);
    syncs_.push_back(request);
    ServerLink::SyncDone older = std::move(parked_);
    parked_ = std::move(done);
    parked_free_ = request.free_slots();
    parked_session_ = request.session();
    changed_.notify_all();
    std::vector<std::function<void()>> calls;
    if (older) calls.push_back([older] { older(v1::SyncReply()); });
    if (sync_failures_ > 0) {
      --sync_failures_;
      calls.push_back([done = std::exchange(parked_, nullptr)] { done(absl::UnavailableError("connection broke")); });
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

  // As when the waiting call has waited for as long as it was asked to.
  void Expire() {
    std::unique_lock lock(mutex_);
    ServerLink::SyncDone done = std::exchange(parked_, nullptr);
    lock.unlock();
    if (done) done(v1::SyncReply());
  }
  // Ends the waiting call with `status`.
  void End(const absl::Status& status) {
    std::unique_lock lock(mutex_);
    ServerLink::SyncDone done = std::exchange(parked_, nullptr);
    lock.unlock();
    if (done) done(status);
  }

  void Grant(v1::Lease lease) {
    Change([&] { to_grant_.push_back(std::move(lease)); });
  }
  void Cancel(int64_t lease) {
    Change([&] { to_cancel_.push_back(lease); });
  }
  void ForgetSession() {
    Change([&] { session_ = "forgotten"; });
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

  std::vector<v1::RegisterRequest> registrations_;
  std::vector<v1::SyncRequest> syncs_;
  std::vector<v1::SubmitResultsRequest> submissions_;
  std::map<int64_t, v1::CandidateResult> results_;
  std::map<int64_t, v1::ModelResult> models_;

 private:
  template <typename F>
  void Change(F change) {
    std::vector<std::function<void()>> calls;
    {
      std::lock_guard lock(mutex_);
      change();
      Answer(calls);
    }
    for (auto& call : calls) call();
  }

  // The waiting call's answer, if there is something to say. Under the lock; `calls` are made without it.
  void Answer(std::vector<std::function<void()>>& calls) {
    if (!parked_) return;
    v1::SyncReply reply;
    if (parked_session_ != session_) {
      reply.set_unknown_session(true);
    } else {
      for (; parked_free_ > 0 && !to_grant_.empty(); --parked_free_) {
        *reply.add_grants() = to_grant_.front();
        to_grant_.pop_front();
      }
      for (int64_t c : to_cancel_) reply.add_cancels(c);
      to_cancel_.clear();
      if (reply.grants().empty() && reply.cancels().empty()) return;
    }
    calls.push_back([done = std::exchange(parked_, nullptr), reply] { done(reply); });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string session_;
  ServerLink::SyncDone parked_;
  int parked_free_ = 0;
  std::string parked_session_;
  std::deque<v1::Lease> to_grant_;
  std::vector<int64_t> to_cancel_;
  int register_failures_ = 0, sync_failures_ = 0, submit_failures_ = 0;
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
