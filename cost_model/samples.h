// What all models ask of their samples.
#pragma once

#include "cost_model/cost_model.h"

namespace temper {

// kInvalidArgument: no finite positive draft, a cost that is no positive number (infinite is a failure), rows of
// different lengths.
absl::Status CheckCandidates(std::span<const Sample> candidates, size_t width);
absl::Status CheckSamples(std::span<const Sample> samples, std::span<const int> groups, size_t width);

}  // namespace temper
