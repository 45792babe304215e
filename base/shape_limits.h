// What a tensor may be. Models, graphs and workloads come from files and over the wire: what no network needs is
// refused before anything is computed from its shape or allocated.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"

namespace temper {

inline constexpr int64_t kMaxTensorRank = 16;  // TEMPER_MAX_RANK of include/temper/model.h, for which callers have room
inline constexpr int64_t kMaxTensorElements = int64_t{1} << 36;

// OK: no extent is negative, there are at most kMaxTensorRank, and their product is at most kMaxTensorElements. An
// extent of 0 counts as 1 there, so that products of some of the extents do not overflow either.
absl::Status CheckTensorShape(std::span<const int64_t> shape);

}  // namespace temper
