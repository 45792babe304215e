// compact: lines are copied one after another, each where the one before it ends, in pieces as far as there are
// elements. What a last piece has too much the next line overwrites, or zeros do.
#include "base/division.h"
#include "compiler/ops/templates/statements.h"
#include "compiler/ops/templates/templates.h"

namespace temper {
namespace {

using ir::Expr;
using ir::ForKind;
using ir::Stmt;

constexpr int64_t kAtOnce = 256;  // elements

bool Matches(const Workload& w) { return IsRowMajorCall(w, "compact") && !IsPacked(w.output().dtype); }

// `body` of pieces of [0, count), of `kAtOnce` elements each but for the last.
Stmt Pieces(int64_t count, const std::function<Stmt(const Expr& first, int64_t length)>& body) {
  const int64_t whole = count / kAtOnce, left = count % kAtOnce;
  std::vector<Stmt> stmts;
  if (whole > 0) {
    stmts.push_back(LoopOver("piece", whole, ForKind::kSerial,
                             [&](const Expr& piece) { return body(piece * Expr(kAtOnce), kAtOnce); }));
  }
  if (left > 0) stmts.push_back(body(whole * kAtOnce, left));
  return ir::Seq(std::move(stmts));
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config&, const CpuTarget& t) {
  const AroundAxis x(w.output().shape, w.calls[0].attrs.Int("axis", 0));
  const int64_t line = x.extent * x.slice, all = x.lines * line, lanes = t.lanes();
  return KernelOf(w, {{all}, {1}, {all}}, [&](const std::vector<ir::Buffer>& p) {
    const ir::Buffer &from = p[0], &to = p[2];
    const Cell count("count", DType::kI64);  // elements that a line keeps
    const Stmt lines = LoopOver("line", x.lines, ForKind::kSerial, [&](const Expr& i) {
      return Pieces(line, [&](const Expr& first, int64_t length) {
        const Stmt copy = CopyElements(to, i * count.Get() + first, from, i * Expr(line) + first, length, lanes);
        return ir::If(first < count.Get(), copy);
      });
    });
    const Stmt zeros = Pieces(all, [&](const Expr& first, int64_t length) {
      const Expr end = count.Get() * Expr(x.lines);
      const Stmt clear = VectorLoop("element", length, lanes, [&](const Expr& i) {
        const Expr at = first + i;
        return ir::Store(to, {at}, ir::Select(at < end, ir::Load(to, {at}), ir::Const(0, to->dtype)));
      });
      return ir::If(end < first + Expr(length), clear);
    });
    const Expr extent = ir::Min(ir::Max(ir::Load(p[1], {0}), Expr(0)), Expr(x.extent));
    return count.Within(ir::Seq({count.Set(extent * Expr(x.slice)), lines, zeros}));
  });
}

CpuFootprint FootprintOf(const Workload& w, const Config&, const CpuTarget& t) { return FootprintOfPasses(w, 1, 1, t); }

}  // namespace

CpuTemplate CompactTemplate() { return {"compact", 1, Matches, NoKnobs, Build, FootprintOf}; }

}  // namespace temper
