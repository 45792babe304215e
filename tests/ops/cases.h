// Random calls of every operator.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "compiler/ops/op.h"

namespace temper {

struct Case {
  Attrs attrs;
  std::vector<NDArray> inputs;
};
using Generator = Case (*)(Rng& rng);

// By operator; each of AllOps() has one. The type rule may refuse a case: a random window may be larger than its image.
const std::map<std::string_view, Generator>& CaseGenerators();

}  // namespace temper
