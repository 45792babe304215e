// scan: running sums, an addition an element. Threads share the lines and, of few of them, the columns of the slices.
#include <algorithm>

#include "base/division.h"
#include "compiler/ops/templates/statements.h"
#include "compiler/ops/templates/templates.h"

namespace temper {
namespace {

using ir::Expr;
using ir::ForKind;
using ir::Stmt;

struct Scan {
  AroundAxis x;
  bool exclusive, reverse;
  int64_t width;  // columns of a slice that a thread goes through at once: so many that their last sums stay in L1
  Scan(const Workload& w, const CpuTarget& t)
      : x(w.output().shape, w.calls[0].attrs.Int("axis", 0)),
        exclusive(w.calls[0].attrs.Int("exclusive", 0) != 0),
        reverse(w.calls[0].attrs.Int("reverse", 0) != 0) {
    constexpr int64_t kMostColumns = 2048;
    width = std::min(ColumnsOfThread(x, t), kMostColumns);
  }
  // The position of a step along the axis.
  Expr At(const Expr& step) const { return reverse ? Expr(x.extent - 1) - step : step; }
};

bool Matches(const Workload& w) { return IsRowMajorCall(w, "cum_sum") && IsNative(w.output().dtype); }

// A line whose elements lie beside each other: its sum stays in a register.
Stmt Line(const Scan& scan, const ir::Buffer& in, const ir::Buffer& out, const Expr& line) {
  const Cell sum("sum", out->dtype);
  const auto step = [&](const Expr& i) {
    const std::vector<Expr> index = {line, scan.At(i), 0};
    const Stmt add = sum.Set(sum.Get() + ir::Load(in, index)), put = ir::Store(out, index, sum.Get());
    return ir::Seq(scan.exclusive ? std::vector{put, add} : std::vector{add, put});
  };
  return sum.Within(
      ir::Seq({sum.Set(ir::Const(0, out->dtype)), LoopOver("step", scan.x.extent, ForKind::kSerial, step)}));
}

// Columns [first, first + width) of a line's slices, one slice after another.
Stmt Columns(const Scan& scan, const ir::Buffer& in, const ir::Buffer& out, const Expr& line, const Expr& first,
             int64_t width, int64_t lanes) {
  const auto index = [&](const Expr& step, const Expr& i) { return std::vector<Expr>{line, scan.At(step), first + i}; };
  const Stmt begin = VectorLoop("first", width, lanes, [&](const Expr& i) {
    return ir::Store(out, index(0, i), scan.exclusive ? ir::Const(0, out->dtype) : ir::Load(in, index(0, i)));
  });
  if (scan.x.extent == 1) return begin;
  const Stmt rest = LoopOver("step", scan.x.extent - 1, ForKind::kSerial, [&](const Expr& before) {
    const Expr step = before + Expr(1);
    return VectorLoop("column", width, lanes, [&](const Expr& i) {
      return ir::Store(out, index(step, i),
                       ir::Load(out, index(before, i)) + ir::Load(in, index(scan.exclusive ? before : step, i)));
    });
  });
  return ir::Seq({begin, rest});
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config&, const CpuTarget& t) {
  const Scan scan(w, t);
  return KernelOf(w, {scan.x.AsShape(), scan.x.AsShape()}, [&](const std::vector<ir::Buffer>& p) {
    if (scan.x.slice == 1) {
      return LoopOver("line", scan.x.lines, ForKind::kParallel,
                      [&](const Expr& line) { return Line(scan, p[0], p[1], line); });
    }
    return ParallelColumns(scan.x, scan.width, [&](const Expr& line, const Expr& first, int64_t width) {
      return Columns(scan, p[0], p[1], line, first, width, t.lanes());
    });
  });
}

CpuFootprint FootprintOf(const Workload& w, const Config&, const CpuTarget& t) {
  const Scan scan(w, t);
  return FootprintOfPasses(w, 1, static_cast<double>(scan.x.lines * CeilDiv(scan.x.slice, scan.width)), t);
}

}  // namespace

CpuTemplate ScanTemplate() { return {"scan", 1, Matches, NoKnobs, Build, FootprintOf}; }

}  // namespace temper
