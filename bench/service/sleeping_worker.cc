#include "bench/service/sleeping_worker.h"

#include "bench/service/call.h"

namespace temper::bench {
namespace {

constexpr int kSlots = 2;

}  // namespace

SleepingWorker::SleepingWorker(const std::string& address, const std::string& name, absl::Duration trial, Cost cost)
    : trial_(trial),
      cost_(std::move(cost)),
      instance_(SecureHex()),
      stub_(ConnectAlone(address, grpc::InsecureChannelCredentials())) {
  Register(name);
  Fetch();
  measuring_ = std::thread([this] { Measure(); });
}

SleepingWorker::~SleepingWorker() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  if (fetching_ != nullptr) fetching_->TryCancel();
  changed_.notify_all();
  lock.unlock();
  measuring_.join();
  lock.lock();
  changed_.wait(lock, [this] { return under_way_ == 0; });
}

void SleepingWorker::Register(const std::string& name) {
  Call<v1::RegisterRequest, v1::RegisterReply> call(kCallTimeout);
  call.request = RegistrationOf(kNullKey, name, instance_, kSlots);
  if (stub_->Register(&call.context, call.request, &call.reply).ok()) session_ = call.reply.session();
}

void SleepingWorker::Fetch() {
  auto call = std::make_shared<Call<v1::SyncRequest, v1::SyncReply>>(kLongPoll + kCallTimeout);
  {
    std::lock_guard lock(mutex_);
    const int free = kSlots - static_cast<int>(leases_.size());
    if (stopping_ || fetching_ != nullptr || free <= 0) return;
    for (const v1::Lease& lease : leases_) call->request.add_leases(lease.lease());
    call->request.set_free_slots(free);
    fetching_ = &call->context;
    ++under_way_;
  }
  call->request.set_session(session_);
  call->request.set_wait_ms(static_cast<int32_t>(absl::ToInt64Milliseconds(kLongPoll)));
  stub_->async()->Sync(&call->context, &call->request, &call->reply, [this, call](const grpc::Status& status) {
    {
      std::lock_guard lock(mutex_);
      fetching_ = nullptr;
      for (const v1::Lease& lease : call->reply.grants()) leases_.push_back(lease);
      changed_.notify_all();
    }
    if (status.ok()) Fetch();
    std::lock_guard lock(mutex_);
    --under_way_;
    changed_.notify_all();
  });
}

void SleepingWorker::Measure() {
  for (;;) {
    v1::Lease lease;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !leases_.empty(); });
      if (stopping_) return;
      lease = leases_.front();
    }
    // As of its beginning, so that what the loop itself takes is no part of a trial.
    absl::Time end = absl::Now();
    for (const v1::CandidateSpec& candidate : lease.batch().candidates()) {
      const absl::Time begin = end;
      end = begin + trial_;
      absl::SleepFor(end - absl::Now());
      v1::CandidateResult result;
      result.set_lease(lease.lease());
      result.set_candidate(candidate.candidate());
      result.set_attempt(candidate.attempt());
      result.set_outcome("ok");
      const double seconds = cost_(lease.batch(), candidate);
      for (int i = 0; i < 3; ++i) result.add_costs_s(seconds);
      {
        std::lock_guard lock(mutex_);
        ++work_.trials;
        work_.first = std::min(work_.first, begin);
        work_.last = std::max(work_.last, absl::Now());
        // Its last result frees its place.
        if (&candidate == &*lease.batch().candidates().rbegin()) leases_.pop_front();
      }
      Submit(result);
    }
    Fetch();
  }
}

void SleepingWorker::Submit(const v1::CandidateResult& result) {
  auto call = std::make_shared<Call<v1::SubmitResultsRequest, v1::SubmitResultsReply>>(kCallTimeout);
  call->request.set_session(session_);
  call->request.set_instance(instance_);
  *call->request.add_results() = result;
  {
    std::lock_guard lock(mutex_);
    ++under_way_;
  }
  stub_->async()->SubmitResults(&call->context, &call->request, &call->reply, [this, call](const grpc::Status& status) {
    std::lock_guard lock(mutex_);
    work_.refused += status.ok() && call->reply.acked_size() == 1 && call->reply.acked(0) ? 0 : 1;
    --under_way_;
    changed_.notify_all();
  });
}

SleepingWorker::Work SleepingWorker::work() {
  std::lock_guard lock(mutex_);
  return work_;
}

}  // namespace temper::bench
