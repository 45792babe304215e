// Kernels that are written down statement by statement, because no rewrite of a schedule leads to them.
#pragma once

#include <functional>

#include "compiler/ir/stmt.h"
#include "compiler/ops/templates/cpu_template.h"

namespace temper {

using LoopBody = std::function<ir::Stmt(const ir::Expr& index)>;
// One iteration has no loop.
ir::Stmt LoopOver(const std::string& name, int64_t extent, ir::ForKind kind, const LoopBody& body);
// Some vectors of `lanes` at a time, then one, then what is left one by one. Iterations do not depend on each other.
ir::Stmt VectorLoop(const std::string& name, int64_t extent, int64_t lanes, const LoopBody& body);

// `body` if the condition holds of any of so many, a multiple of `lanes`.
ir::Stmt IfAny(int64_t count, int64_t lanes, const std::function<ir::Expr(const ir::Expr& i)>& condition,
               ir::Stmt body);

// Elements of which it is asked at once whether the condition holds of any, and of those that it does of one of, again.
constexpr int64_t kChunk = 64, kPiece = 16;
// `collect` of the pieces of the chunk that begins there of which the condition holds of any element. `lanes` divide a
// piece.
ir::Stmt FilterChunk(const ir::Expr& begin, int64_t lanes, const std::function<ir::Expr(const ir::Expr& i)>& condition,
                     const std::function<ir::Stmt(const ir::Expr& begin, int64_t count)>& collect);

// `count` elements of one buffer to another, both of one dimension.
ir::Stmt CopyElements(const ir::Buffer& to, const ir::Expr& to_begin, const ir::Buffer& from,
                      const ir::Expr& from_begin, int64_t count, int64_t lanes);

// A number that changes, held in a register.
class Cell {
 public:
  Cell(const std::string& name, DType dtype) : buffer_(ir::MakeBuffer(name, dtype, {1}, ir::Scope::kRegister)) {}
  ir::Expr Get() const { return ir::Load(buffer_, {0}); }
  ir::Stmt Set(const ir::Expr& value) const { return ir::Store(buffer_, {0}, value); }
  ir::Stmt Within(ir::Stmt body) const { return ir::Alloc(buffer_, std::move(body)); }

 private:
  ir::Buffer buffer_;
};

// A workload of one call of the operator, all of whose operands and result lie in row-major order.
bool IsRowMajorCall(const Workload& w, std::string_view op);
// Its kernel: `body` of the operands and, last, the result. `shapes` and `types`: those that they have there, of as
// many bytes.
using KernelBody = std::function<ir::Stmt(const std::vector<ir::Buffer>&)>;
absl::StatusOr<Kernel> KernelOf(const Workload& w, const std::vector<Shape>& shapes, const std::vector<DType>& types,
                                const KernelBody& body);
absl::StatusOr<Kernel> KernelOf(const Workload& w, const std::vector<Shape>& shapes, const KernelBody& body);
// Its operand's shape around an axis: [lines, extent, slice].
struct AroundAxis {
  int64_t lines = 1, extent = 1, slice = 1;
  AroundAxis(const Shape& shape, int64_t axis);  // from the front or, if negative, from the back
  Shape AsShape() const { return {lines, extent, slice}; }
};
// Columns of a slice that a thread takes, so that all have some: where lines are few, threads share the slices, and
// write to no line of the cache in common, nearly.
int64_t ColumnsOfThread(const AroundAxis& x, const CpuTarget& t);
// `body` of every line's columns [first, first + width) in parallel; the last ones are fewer where they do not fill it.
ir::Stmt ParallelColumns(
    const AroundAxis& x, int64_t width,
    const std::function<ir::Stmt(const ir::Expr& line, const ir::Expr& first, int64_t width)>& body);
inline ConfigSpace NoKnobs(const Workload&, const CpuTarget&) { return {}; }
// A footprint of so many passes over operands and result that leave this many independent shares.
CpuFootprint FootprintOfPasses(const Workload& w, double passes, double shares, const CpuTarget& t);

}  // namespace temper
