#include "compiler/ops/reference/loops.h"

#include <cstdio>
#include <cstdlib>

namespace temper::reference {

void NotWidened(DType dtype) {
  std::fprintf(stderr, "a reference got %s, which has to be widened\n", std::string(Name(dtype)).c_str());
  std::abort();
}

int64_t AxisOf(const Attrs& attrs, int64_t otherwise, const Shape& shape) {
  const int64_t axis = attrs.Int("axis", otherwise);
  return axis < 0 ? axis + static_cast<int64_t>(shape.size()) : axis;
}

std::vector<int64_t> BroadcastStrides(const Shape& operand, const Shape& result) {
  std::vector<int64_t> dense = RowMajorStrides(operand), strides(result.size(), 0);
  size_t offset = result.size() - operand.size();
  for (size_t i = 0; i < operand.size(); ++i) strides[offset + i] = operand[i] == 1 ? 0 : dense[i];
  return strides;
}

void ForEachRun(const Shape& shape, const std::vector<std::vector<int64_t>>& strides,
                absl::FunctionRef<void(int64_t, const std::vector<int64_t>&, int64_t)> f) {
  if (NumElements(shape) == 0) return;
  size_t rank = shape.size();
  int64_t length = rank == 0 ? 1 : shape.back();
  std::vector<int64_t> index(rank, 0), offsets(strides.size(), 0);
  int64_t runs = NumElements(shape) / length;
  for (int64_t run = 0; run < runs; ++run) {
    f(run * length, offsets, length);
    for (size_t d = rank; d-- > 1;) {
      size_t axis = d - 1;
      ++index[axis];
      for (size_t k = 0; k < offsets.size(); ++k) offsets[k] += strides[k][axis];
      if (index[axis] < shape[axis]) break;
      index[axis] = 0;
      for (size_t k = 0; k < offsets.size(); ++k) offsets[k] -= strides[k][axis] * shape[axis];
    }
  }
}

}  // namespace temper::reference
