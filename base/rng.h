// A small seeded generator (SplitMix64). The same seed gives the same sequence on every platform, which the standard
// library's distributions do not promise.
#pragma once

#include <cstdint>

namespace temper {

class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  int64_t Below(int64_t n) { return static_cast<int64_t>(Next() % static_cast<uint64_t>(n)); }  // [0, n), n > 0
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }                    // [0, 1)

 private:
  uint64_t state_;
};

}  // namespace temper
