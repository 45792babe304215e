#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace temper {

// How far apart neighbours along each axis are, in elements of a dense row-major tensor.
inline std::vector<int64_t> RowMajorStrides(std::span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

}  // namespace temper
