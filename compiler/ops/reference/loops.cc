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

}  // namespace temper::reference
