// How many exports go on at once: each holds a page until its reader takes it. Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "base/status.h"

namespace temper {

class ExportSeats {
 public:
  static constexpr int kMost = 16, kMostOfOne = 4;

  // A seat for `who`, until Leave. kResourceExhausted: all are taken, or all that one caller gets.
  absl::Status Take(const std::string& who) {
    std::lock_guard lock(mutex_);
    if (taken_ >= kMost) return absl::ResourceExhaustedError("the server is busy with other exports; try again later");
    const auto [own, fresh] = by_caller_.try_emplace(who);
    if (own->second >= kMostOfOne)
      return absl::ResourceExhaustedError("the server is busy with other exports of yours; try again later");
    ++own->second;
    ++taken_;
    return absl::OkStatus();
  }
  void Leave(const std::string& who) {
    std::lock_guard lock(mutex_);
    const auto own = by_caller_.find(who);
    if (--own->second == 0) by_caller_.erase(own);
    --taken_;
  }

 private:
  std::mutex mutex_;
  int taken_ = 0;
  std::map<std::string, int> by_caller_;
};

}  // namespace temper
