// Tries an operator that was written outside of the tree: what its author runs before anything is tuned with it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace temper {

// One config that was built, run and compared.
struct OperatorTrial {
  std::string template_name;
  std::string config;  // canonical text
  double error;        // largest difference from the reference, over the reference's largest value
};

// Runs the workload (its canonical text) with configs of each template that fits it, on this machine's target and on
// random inputs drawn by `seed`, and compares the results with the operators' references. At most about `most` configs
// of each template. Errors: a workload that can not be read or that no template fits, a reference or a build that
// fails; a wrong answer is no error here.
absl::StatusOr<std::vector<OperatorTrial>> TryOperator(std::string_view workload, int64_t most = 64, uint64_t seed = 1);

}  // namespace temper
