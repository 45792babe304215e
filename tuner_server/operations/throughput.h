// How many results were stored in each of the latest minutes, for people. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "absl/time/time.h"

namespace temper {

class Throughput {
 public:
  static constexpr int64_t kMinutes = 24 * 60;  // so many are kept

  struct Minute {
    int64_t start_unix_s = 0;
    int64_t measured = 0, failed = 0;
  };

  void Add(absl::Time now, int64_t measured, int64_t failed);
  // Those of the latest `minutes` until now that have results, oldest first.
  std::vector<Minute> Latest(absl::Time now, int64_t minutes) const;

 private:
  mutable std::mutex mutex_;
  std::deque<Minute> minutes_;  // rising
};

}  // namespace temper
