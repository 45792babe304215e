#include "base/clock.h"

#include <ctime>

#include "absl/time/clock.h"

namespace temper {
namespace {

class SystemClock : public Clock {
 public:
  absl::Duration Monotonic() const override {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return absl::DurationFromTimespec(t);
  }
  absl::Time Wall() const override { return absl::Now(); }
};

}  // namespace

const Clock& Clock::System() {
  static const SystemClock clock;
  return clock;
}

}  // namespace temper
