// The multiplication under the references of matmul and the convolutions.
#pragma once

#include <cstdint>
#include <functional>

namespace temper::reference {

// A matrix by strides, so that a transposed one needs no copy.
struct Matrix {
  const float* data;
  int64_t row_stride, column_stride;
};

// Writes columns [n0, n0 + count) of row k of the right operand to `row`. Several threads may call it.
using RowReader = std::function<void(int64_t k, int64_t n0, int64_t count, float* row)>;

// c[m, n] = a[m, k] * b[k, n], c dense with rows `ldc` apart, overwritten. Large ones on all cores, with the same
// result. Sums run in blocks of 256 terms.
void Gemm(int64_t m, int64_t n, int64_t k, const Matrix& a, const RowReader& b, float* c, int64_t ldc);
RowReader Rows(const Matrix& b);

}  // namespace temper::reference
