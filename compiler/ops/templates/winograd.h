// The matrices of Winograd's minimal filtering F(m, 3): m outputs of a 3-tap filter from m + 2 inputs with m + 2
// multiplications,  y = A^T [(G g) * (B^T d)].  Made by the Toom-Cook construction (Lavin and Gray, 1509.09308).
#pragma once

#include "compiler/ops/templates/templates.h"

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
inline constexpr int64_t kLargestWinogradTile = 4;
WinogradMatrices MakeWinograd(int64_t m);  // m in {2, 4}

// Row number `row` of matrix * values, of which `value` makes the one that column k takes. Where `row` is a loop
// variable, its loop is to be unrolled. Zeros are left out, and what the rows of opposite points share is written alike
// in both, so that it is computed once: sums over even and odd columns of the input's and the filter's matrix, sums and
// differences of two columns of the output's.
enum class Sharing { kEvenOdd, kPairs };
ir::Expr MatrixTimes(const Matrix& matrix, const ir::Expr& row, const std::function<ir::Expr(const ir::Expr& k)>& value,
                     Sharing sharing);

// The anchor is a channels-last convolution for which the algorithm is, with a constant filter, whose user allows it:
// winograd=0 forbids it. With `planes`, it may also read planes of volumes as UnfoldedPlanes says.
bool MayUseWinograd(const Workload& w, bool planes = false);

// Filters for F(m, 3) in panels of output channels, with zeros for channels past the last ones.
struct FilterPanels {
  int64_t m, panels, channels, columns;  // a panel has so many output channels
};
// By panel, channel, row and column (of the filter, or of the points it is transformed to), and column of the panel.
using FilterIndex = std::vector<ir::Expr>;
// From the workload's filter, the operand of number 1.
ir::Expr FilterTap(const ir::Tensor& filter, const Workload& w, const FilterPanels& p, const FilterIndex& i);
// U = G g G^T of the filters' taps, in steps "filter_lines" and `name`, whose shape and index the caller chooses: `at`
// makes a FilterIndex of it.
ir::Buffer TransformFilters(ir::ProgramBuilder& b, const FilterPanels& p, const std::string& name, Shape shape,
                            const std::function<ir::Expr(const FilterIndex&)>& tap,
                            const std::function<FilterIndex(const std::vector<ir::Expr>&)>& at);
// The program of a pack that transforms the workload's filters to "packed", of such a shape and index; and its schedule
// for a CPU, by the loops around "packed": those that it may run in parallel, along the points' rows and columns, and
// along the columns of panels, in vectors of `lanes`.
absl::StatusOr<ir::Func> TransformedFilters(const Workload& w, const FilterPanels& p, Shape shape,
                                            const std::function<FilterIndex(const std::vector<ir::Expr>&)>& at);
void ScheduleTransformedFilters(Schedule& s, const std::vector<Loop>& outer, const std::array<Loop, 2>& points,
                                const Loop& columns, int64_t lanes);

}  // namespace temper
