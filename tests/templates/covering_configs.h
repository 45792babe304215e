// Configs that together have every value of every knob, and targets that make more of them differ.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "compiler/schedule/config_space.h"
#include "compiler/target/target.h"

namespace temper {

// A legal config for each value of each knob that no config before it has: of some drawn at random, the one that has
// most other values for the first time.
inline std::vector<Config> CoveringConfigs(const ConfigSpace& space, Rng& rng) {
  constexpr int kDraws = 32;
  const std::vector<Config> all = space.Enumerate(1 << 16);
  std::set<std::pair<std::string, int64_t>> covered;
  const auto new_values = [&](const Config& c) {
    const auto is_new = [&](const Knob& knob) { return !covered.contains({knob.name, c[knob.name]}); };
    return std::ranges::count_if(space.knobs(), is_new);
  };
  std::vector<Config> result;
  for (const Knob& knob : space.knobs()) {
    for (int64_t value : knob.values) {
      if (covered.contains({knob.name, value})) continue;
      std::vector<const Config*> with;
      for (const Config& c : all) {
        if (c[knob.name] == value) with.push_back(&c);
      }
      if (with.empty()) continue;
      const auto draw = [&] { return with[static_cast<size_t>(rng.Below(static_cast<int64_t>(with.size())))]; };
      const Config* best = draw();
      for (int i = 1; i < kDraws; ++i) {
        const Config* other = draw();
        if (new_values(*other) > new_values(*best)) best = other;
      }
      for (const Knob& k : space.knobs()) covered.insert({k.name, (*best)[k.name]});
      result.push_back(*best);
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
