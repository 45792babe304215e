// Configs that together have every value of every knob, and targets that make more of them differ.
#pragma once

#include "base/rng.h"
#include "compiler/schedule/config_space.h"
#include "compiler/target/target.h"

namespace temper {

// A legal config for each value of each knob, drawn at random.
inline std::vector<Config> CoveringConfigs(const ConfigSpace& space, Rng& rng) {
  const std::vector<Config> all = space.Enumerate(1 << 16);
  std::vector<Config> result;
  for (const Knob& knob : space.knobs()) {
    for (int64_t value : knob.values) {
      std::vector<Config> with;
      for (const Config& c : all) {
        if (c[knob.name] == value) with.push_back(c);
      }
      if (!with.empty()) result.push_back(with[static_cast<size_t>(rng.Below(static_cast<int64_t>(with.size())))]);
    }
  }
  return result;
}

// Some rows and panels fit L2, but neither operand does.
inline Target WithSmallCaches(Target t) {
  t.cpu()->l1_bytes = 2048;
  t.cpu()->l2_bytes = 32 << 10;
  return t;
}

}  // namespace temper
