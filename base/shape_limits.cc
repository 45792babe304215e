#include "base/shape_limits.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/ndarray.h"

namespace temper {

absl::Status CheckTensorShape(std::span<const int64_t> shape) {
  if (std::ssize(shape) > kMaxTensorRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tensor of ", shape.size(), " dimensions: there may be ", kMaxTensorRank));
  }
  int64_t elements = 1;
  for (const int64_t extent : shape) {
    if (extent < 0)
      return absl::InvalidArgumentError(absl::StrCat("a tensor of ", ShapeText(shape), " has a negative extent"));
    if (extent > kMaxTensorElements / elements)
      return absl::InvalidArgumentError(absl::StrCat("a tensor of ", ShapeText(shape), " is too large"));
    elements *= std::max<int64_t>(extent, 1);
  }
  return absl::OkStatus();
}

}  // namespace temper
