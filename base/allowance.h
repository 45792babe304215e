// So much at once, and so much more with each second.
#pragma once

#include <algorithm>
#include <utility>

#include "absl/time/time.h"

namespace temper {

// `now` is monotonic. Not thread-safe.
class Allowance {
 public:
  Allowance(double at_once, double per_second) : at_once_(at_once), per_second_(per_second) {}

  // False: there is not so much left, and nothing is taken.
  bool Take(double much, absl::Duration now) {
    Forgive(now);
    if (taken_ + much > at_once_) return false;
    taken_ += much;
    return true;
  }
  // Takes it in any case. False: that was more than there was.
  bool Overdraw(double much, absl::Duration now) {
    Forgive(now);
    taken_ += much;
    return taken_ <= at_once_;
  }
  bool IsWhole(absl::Duration now) const { return StillTaken(now) <= 0; }

 private:
  double StillTaken(absl::Duration now) const { return taken_ - absl::ToDoubleSeconds(now - since_) * per_second_; }
  void Forgive(absl::Duration now) {
    taken_ = std::max(0.0, StillTaken(now));
    since_ = now;
  }

  double at_once_, per_second_;
  double taken_ = 0;      // by `since_`
  absl::Duration since_;  // the first time of all is long after it
};

}  // namespace temper
