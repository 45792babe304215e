#include "tuner_server/service/work_pool.h"

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

absl::Status WorkPool::Run(size_t bytes, std::function<void()> work) {
  std::lock_guard lock(mutex_);
  if (calls_.size() >= limits_.waiting || bytes_ + bytes > limits_.bytes)
    return absl::ResourceExhaustedError("the server is busy with such calls; try again later");
  bytes_ += bytes;
  calls_.push_back({bytes, std::move(work)});
  wake_.notify_one();
  return absl::OkStatus();
}

void WorkPool::Loop() {
  while (true) {
    Call call;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return closed_ || !calls_.empty(); });
      if (calls_.empty()) return;
      call = std::move(calls_.front());
      calls_.pop_front();
      bytes_ -= call.bytes;
    }
    call.work();
  }
}

}  // namespace temper
