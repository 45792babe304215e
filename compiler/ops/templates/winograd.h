// The matrices of Winograd's minimal filtering F(m, 3): m outputs of a 3-tap filter from m + 2 inputs with m + 2
// multiplications,  y = A^T [(G g) * (B^T d)].  Made by the Toom-Cook construction (Lavin and Gray, 1509.09308).
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/expr.h"

namespace temper {

using Matrix = std::vector<std::vector<double>>;  // rows

struct WinogradMatrices {
  Matrix input;   // B^T: (m + 2) x (m + 2)
  Matrix filter;  // G: (m + 2) x 3
  Matrix output;  // A^T: m x (m + 2)
};
// Largest error over largest output that is to be expected of F(4, 3) beside exact arithmetic, with inputs and weights
// of like sizes; of F(2, 3) it is ten times less. Measured over random layers of up to 512 channels.
inline constexpr double kWinogradErrorBound = 3e-5;
WinogradMatrices MakeWinograd(int64_t m);  // m in {2, 4}

// Row number `row` of matrix * values. Where `row` is a loop variable, its loop is to be unrolled. Zeros are left out,
// and what the rows of opposite points share is written alike in both, so that it is computed once: sums over even and
// odd columns of the input's and the filter's matrix, sums and differences of two columns of the output's.
enum class Sharing { kEvenOdd, kPairs };
ir::Expr MatrixTimes(const Matrix& matrix, const ir::Expr& row, const std::vector<ir::Expr>& values, Sharing sharing);

}  // namespace temper
