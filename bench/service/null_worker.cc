#include "bench/service/null_worker.h"

#include "bench/service/call.h"

namespace temper::bench {
namespace {

constexpr size_t kRefillBelow = 1;

}  // namespace

NullWorker::NullWorker(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials)
    : stub_(ConnectAlone(address, credentials)), instance_(SecureHex()) {}

void NullWorker::Register(const std::string& key, const std::string& name, OpenLoop::Done done) {
  auto call = std::make_shared<Call<v1::RegisterRequest, v1::RegisterReply>>(kCallTimeout);
  call->request = RegistrationOf(key, name, instance_, 1);
  stub_->async()->Register(&call->context, &call->request, &call->reply,
                           [this, call, done = std::move(done)](const grpc::Status& status) {
                             session_ = call->reply.session();
                             done(status.ok());
                           });
}

void NullWorker::Sync(OpenLoop::Done done) {
  auto call = std::make_shared<Call<v1::SyncRequest, v1::SyncReply>>(kCallTimeout);
  call->request.set_session(session_);
  {
    std::lock_guard lock(mutex_);
    call->request.mutable_leases()->Add(held_.begin(), held_.end());
  }
  stub_->async()->Sync(&call->context, &call->request, &call->reply,
                       [call, done = std::move(done)](const grpc::Status& status) {
                         done(status.ok() && !call->reply.unknown_session());
                       });
}

void NullWorker::TakeLeases() {
  {
    std::lock_guard lock(mutex_);
    takes_ = true;
  }
  Take();
}

void NullWorker::Take() {
  auto call = std::make_shared<Call<v1::SyncRequest, v1::SyncReply>>(kLongPoll + kCallTimeout);
  {
    std::lock_guard lock(mutex_);
    if (taking_ || stopping_) return;
    taking_ = true;
    call->request.mutable_leases()->Add(held_.begin(), held_.end());
  }
  call->request.set_session(session_);
  call->request.set_free_slots(1);
  call->request.set_wait_ms(static_cast<int32_t>(absl::ToInt64Milliseconds(kLongPoll)));
  stub_->async()->Sync(&call->context, &call->request, &call->reply, [this, call](const grpc::Status& status) {
    {
      std::lock_guard lock(mutex_);
      taking_ = false;
    }
    if (status.ok()) Keep(call->reply);
    if (status.ok() && call->reply.grants().empty()) Take();
  });
}

void NullWorker::Keep(const v1::SyncReply& reply) {
  std::lock_guard lock(mutex_);
  for (const v1::Lease& lease : reply.grants()) {
    held_.push_back(lease.lease());
    for (const v1::CandidateSpec& candidate : lease.batch().candidates()) {
      v1::CandidateResult& result = results_.emplace_back();
      result.set_lease(lease.lease());
      result.set_candidate(candidate.candidate());
      result.set_attempt(candidate.attempt());
      result.set_outcome("ok");
      for (int i = 0; i < 3; ++i) result.add_costs_s(1e-3 * (1 + static_cast<double>(candidate.candidate() % 97) / 97));
    }
  }
}

bool NullWorker::HasWork() {
  std::lock_guard lock(mutex_);
  return !results_.empty();
}

bool NullWorker::SubmitOne(OpenLoop::Done done) {
  auto call = std::make_shared<Call<v1::SubmitResultsRequest, v1::SubmitResultsReply>>(kCallTimeout);
  bool last = false;
  {
    std::lock_guard lock(mutex_);
    if (results_.empty()) return false;
    *call->request.add_results() = results_.front();
    results_.pop_front();
    if (results_.empty()) held_.clear();
    last = results_.size() < kRefillBelow;
  }
  call->request.set_session(session_);
  call->request.set_instance(instance_);
  stub_->async()->SubmitResults(&call->context, &call->request, &call->reply,
                                [this, call, last, done = std::move(done)](const grpc::Status& status) {
                                  done(status.ok() && call->reply.acked_size() == 1 && call->reply.acked(0));
                                  if (last) Take();
                                });
  return true;
}

}  // namespace temper::bench
