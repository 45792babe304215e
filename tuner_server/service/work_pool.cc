#include "tuner_server/service/work_pool.h"

#include <utility>

namespace temper {

WorkPool::WorkPool(const Limits& limits) : calls_(limits.waiting), bytes_(limits.bytes) {
  for (int i = 0; i < limits.threads; ++i) threads_.emplace_back([this] { Loop(); });
}

WorkPool::~WorkPool() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    wake_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

absl::Status WorkPool::Run(const std::string& who, size_t bytes, std::function<void()> work) {
  std::lock_guard lock(mutex_);
  if (!calls_.MayTake(who, 1) || !bytes_.MayTake(who, bytes))
    return absl::ResourceExhaustedError("the server is busy with such calls; try again later");
  calls_.Take(who, 1);
  bytes_.Take(who, bytes);
  queues_[who].push_back({bytes, std::move(work)});
  wake_.notify_one();
  return absl::OkStatus();
}

WorkPool::Call WorkPool::TakeNext() {
  auto next = queues_.upper_bound(last_);
  if (next == queues_.end()) next = queues_.begin();
  last_ = next->first;
  Call call = std::move(next->second.front());
  next->second.pop_front();
  if (next->second.empty()) queues_.erase(next);
  calls_.Leave(last_, 1);
  bytes_.Leave(last_, call.bytes);
  return call;
}

void WorkPool::Loop() {
  while (true) {
    Call call;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return closed_ || !queues_.empty(); });
      if (queues_.empty()) return;
      call = TakeNext();
    }
    call.work();
  }
}

}  // namespace temper
