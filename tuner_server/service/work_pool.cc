#include "tuner_server/service/work_pool.h"

#include <utility>

#include "tuner_server/service/fair_share.h"

namespace temper {

WorkPool::WorkPool(const Limits& limits) : limits_(limits) {
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
  const auto found = queues_.find(who);
  const size_t own_calls = found == queues_.end() ? 0 : found->second.calls.size();
  const size_t own_bytes = found == queues_.end() ? 0 : found->second.bytes;
  if (!LeavesEnough(who, own_calls, 1, calls_, limits_.waiting) ||
      !LeavesEnough(who, own_bytes, bytes, bytes_, limits_.bytes))
    return absl::ResourceExhaustedError("the server is busy with such calls; try again later");
  Queue& queue = queues_[who];
  queue.calls.push_back({bytes, std::move(work)});
  queue.bytes += bytes;
  ++calls_;
  bytes_ += bytes;
  wake_.notify_one();
  return absl::OkStatus();
}

WorkPool::Call WorkPool::TakeNext() {
  auto next = queues_.upper_bound(last_);
  if (next == queues_.end()) next = queues_.begin();
  last_ = next->first;
  Queue& queue = next->second;
  Call call = std::move(queue.calls.front());
  queue.calls.pop_front();
  queue.bytes -= call.bytes;
  --calls_;
  bytes_ -= call.bytes;
  if (queue.calls.empty()) queues_.erase(next);
  return call;
}

void WorkPool::Loop() {
  while (true) {
    Call call;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return closed_ || calls_ > 0; });
      if (calls_ == 0) return;
      call = TakeNext();
    }
    call.work();
  }
}

}  // namespace temper
