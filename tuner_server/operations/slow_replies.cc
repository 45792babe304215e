#include "tuner_server/operations/slow_replies.h"

namespace temper {

SlowReplies::SlowReplies(std::function<void()> ready) : ready_(std::move(ready)), thread_([this] { Loop(); }) {}

SlowReplies::~SlowReplies() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

bool SlowReplies::Make(int64_t connection, std::function<HttpReply()> reply) {
  const std::lock_guard lock(mutex_);
  if (waiting_.size() >= kMostWaiting) return false;
  waiting_.emplace_back(connection, std::move(reply));
  wake_.notify_one();
  return true;
}

void SlowReplies::Drop(int64_t connection) {
  const std::lock_guard lock(mutex_);
  std::erase_if(waiting_, [connection](const auto& waiting) { return waiting.first == connection; });
}

std::vector<std::pair<int64_t, HttpReply>> SlowReplies::Take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(made_, {});
}

void SlowReplies::Loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
    if (closed_) return;
    const auto [connection, make] = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    HttpReply reply = make();
    lock.lock();
    made_.emplace_back(connection, std::move(reply));
    ready_();
  }
}

}  // namespace temper
