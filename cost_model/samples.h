// What all models ask of their samples.
#pragma once

#include "cost_model/cost_model.h"

namespace temper {

// kInvalidArgument: rows of another width, no finite positive draft, a cost that is no positive number (infinite is a
// failure).
absl::Status CheckRows(const Rows& rows, size_t width);
absl::Status CheckSamples(const Rows& rows, std::span<const double> cost_s, std::span<const int> groups);

}  // namespace temper
