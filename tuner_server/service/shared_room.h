// What is held in memory for those who open streams, and may not read: bytes of events, or exports with a page each.
// Thread-safe.
#pragma once

#include <mutex>
#include <string>

#include "tuner_server/service/fair_share.h"

namespace temper {

class SharedRoom {
 public:
  explicit SharedRoom(size_t most) : shares_(most) {}

  size_t most() const { return shares_.most(); }
  // Room for `who`, until Leave. False: not now (LeavesEnough).
  bool Take(const std::string& who, size_t size) {
    std::lock_guard lock(mutex_);
    if (!shares_.MayTake(who, size)) return false;
    shares_.Take(who, size);
    return true;
  }
  void Leave(const std::string& who, size_t size) {
    std::lock_guard lock(mutex_);
    shares_.Leave(who, size);
  }

 private:
  std::mutex mutex_;
  FairShares shares_;
};

}  // namespace temper
