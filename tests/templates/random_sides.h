// Spatial dimensions of random convolutions.
#pragma once

#include <algorithm>

#include "base/rng.h"

namespace temper {

struct Sides {
  int64_t size, taps, stride, dilation, before, after;
  int64_t out() const { return (size + before + after - dilation * (taps - 1) - 1) / stride + 1; }
};

// Windows that hang over an image of up to `most` on any side, by more than a tile or by more than the image.
inline Sides RandomSides(Rng& rng, int64_t most) {
  Sides s{1 + rng.Below(most), 1 + rng.Below(5), 1 + rng.Below(3), 1 + rng.Below(3), 0, 0};
  const int64_t span = s.dilation * (s.taps - 1) + 1;
  s.before = rng.Below(span + 2);
  s.after = rng.Below(span + 2);
  // Nothing is left of an image that the filter does not fit into.
  s.after = std::max(s.after, span - s.size - s.before);
  return s;
}

}  // namespace temper
