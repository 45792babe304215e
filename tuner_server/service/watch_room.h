// How much of what watchers are told waits for them to take it, in all: events of large jobs are large, and anybody may
// open streams and not read. Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "tuner_server/service/fair_share.h"

namespace temper {

class WatchRoom {
 public:
  explicit WatchRoom(size_t most_bytes) : most_(most_bytes) {}

  size_t most() const { return most_; }
  // Room for an event of `who`, until Leave. False: not now (LeavesEnough).
  bool Take(const std::string& who, size_t bytes) {
    std::lock_guard lock(mutex_);
    const auto found = by_caller_.find(who);
    if (!LeavesEnough(who, found == by_caller_.end() ? 0 : found->second, bytes, taken_, most_)) return false;
    by_caller_[who] += bytes;
    taken_ += bytes;
    return true;
  }
  void Leave(const std::string& who, size_t bytes) {
    std::lock_guard lock(mutex_);
    const auto own = by_caller_.find(who);
    own->second -= bytes;
    if (own->second == 0) by_caller_.erase(own);
    taken_ -= bytes;
  }

 private:
  const size_t most_;
  std::mutex mutex_;
  size_t taken_ = 0;
  std::map<std::string, size_t> by_caller_;
};

}  // namespace temper
