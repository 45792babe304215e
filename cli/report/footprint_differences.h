// What a change of config did, in terms of the footprint.
#pragma once

#include <string>
#include <vector>

#include "compiler/ops/footprint.h"
#include "compiler/target/target.h"

namespace temper {

struct Difference {
  std::string what, before, after;
};

// How one config differs from another on the target. Both have one schema: where there are words for its kind, an
// aspect in words; else each value under its name.
std::vector<Difference> FootprintDifferences(const Footprint& before, const Footprint& after, const Target& t);

}  // namespace temper
