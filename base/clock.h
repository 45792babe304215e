// Time is passed in, so tests own it and none sleeps.
#pragma once

#include "absl/time/time.h"

namespace temper {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Duration Monotonic() const = 0;  // since an arbitrary start; never goes back
  virtual absl::Time Wall() const = 0;           // for people and records only, never for decisions
  static const Clock& System();
};

class FakeClock : public Clock {
 public:
  absl::Duration Monotonic() const override { return now_; }
  absl::Time Wall() const override { return absl::UnixEpoch() + now_; }
  void Advance(absl::Duration d) { now_ += d; }

 private:
  absl::Duration now_ = absl::ZeroDuration();
};

}  // namespace temper
