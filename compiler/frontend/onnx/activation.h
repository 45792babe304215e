// The functions that a recurrent layer is given by name.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "compiler/frontend/onnx/formula.h"

namespace temper::onnx_frontend {

struct ActivationRule;  // a line of the table
struct Activation {
  const ActivationRule* rule;
  double alpha, beta;
};

// Those of all directions, one direction's behind the other's: what the node states, or `otherwise` for each direction.
absl::StatusOr<std::vector<Activation>> ActivationsOf(const OnnxNode& n, std::span<const std::string_view> otherwise,
                                                      int64_t directions);
ValueId Activate(Formula& f, const Activation& activation, ValueId v);

}  // namespace temper::onnx_frontend
