// How much of what watchers are told waits for them to take it, in all: events of large jobs are large, and anybody may
// open streams and not read. Thread-safe.
#pragma once

#include <mutex>
#include <string>

#include "tuner_server/service/fair_share.h"

namespace temper {

class WatchRoom {
 public:
  explicit WatchRoom(size_t most_bytes) : shares_(most_bytes) {}

  size_t most() const { return shares_.most(); }
  // Room for an event of `who`, until Leave. False: not now (LeavesEnough).
  bool Take(const std::string& who, size_t bytes) {
    std::lock_guard lock(mutex_);
    if (!shares_.MayTake(who, bytes)) return false;
    shares_.Take(who, bytes);
    return true;
  }
  void Leave(const std::string& who, size_t bytes) {
    std::lock_guard lock(mutex_);
    shares_.Leave(who, bytes);
  }

 private:
  std::mutex mutex_;
  FairShares shares_;
};

}  // namespace temper
