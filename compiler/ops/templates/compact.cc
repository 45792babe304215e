// compact: lines are copied one after another, each where the one before it ends, in pieces as far as there are
// elements. Behind all are zeros, where somebody reads them.
#include "compiler/ops/templates/statements.h"
#include "compiler/ops/templates/templates.h"

namespace temper {
namespace {

using ir::Expr;
using ir::ForKind;
using ir::Stmt;

constexpr int64_t kAtOnce = 256;      // elements that are cleared
constexpr int64_t kShared = 1 << 18;  // bytes from which on threads share the lines

bool Matches(const Workload& w) { return IsRowMajorCall(w, "compact") && !IsPacked(w.output().dtype); }

// Of pieces of so many elements that there are copied `length` at a time, the first `end`.
Stmt Pieces(int64_t count, int64_t length, const Expr& end, const LoopBody& body) {
  return LoopOver("piece", count / length, ForKind::kSerial,
                  [&](const Expr& piece) { return ir::If(piece < end, body(piece * Expr(length))); });
}

// Lines that keep `count` elements each, no less than `length`, which are copied at once. The last ones of a line are
// some that were copied before, so that nothing is written behind it: the next line may be there already.
Stmt CopyLines(const ir::Buffer& to, const ir::Buffer& from, const AroundAxis& x, const Expr& count, int64_t length,
               int64_t lanes) {
  const int64_t line = x.extent * x.slice;
  const bool shared = BytesOf(to->dtype, x.lines * line) >= kShared;
  return LoopOver("line", x.lines, shared ? ForKind::kParallel : ForKind::kSerial, [&](const Expr& i) {
    const auto copy = [&](const Expr& first) {
      return CopyElements(to, i * count + first, from, i * Expr(line) + first, length, lanes);
    };
    const Stmt pieces = Pieces(line, length, count / Expr(length), copy);
    return length == 1 ? pieces : ir::Seq({pieces, copy(count - Expr(length))});
  });
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config&, const CpuTarget& t) {
  const Attrs& attrs = w.calls[0].attrs;
  const AroundAxis x(w.output().shape, attrs.Int("axis", 0));
  const int64_t line = x.extent * x.slice, all = x.lines * line, lanes = t.lanes();
  return KernelOf(w, {{all}, {1}, {all}}, [&](const std::vector<ir::Buffer>& p) {
    const ir::Buffer &from = p[0], &to = p[2];
    const Expr extent = ir::Min(ir::Max(ir::Load(p[1], {0}), Expr(0)), Expr(x.extent));
    const Expr count = extent * Expr(x.slice);  // elements that a line keeps
    // Short lines are copied in small pieces, long ones in large ones.
    Stmt lines;
    for (int64_t length = 1; length <= std::min(4 * lanes, line); length *= 4) {
      Stmt here = CopyLines(to, from, x, count, length, lanes);
      lines = lines ? ir::If(count < Expr(length), std::move(lines), std::move(here)) : std::move(here);
    }
    if (attrs.Int("open", 0) != 0) return lines;
    const Expr end = count * Expr(x.lines);
    const auto clear = [&](const Expr& first, int64_t length) {
      const Stmt cleared = VectorLoop("element", length, lanes, [&](const Expr& i) {
        const Expr at = first + i;
        return ir::Store(to, {at}, ir::Select(at < end, ir::Load(to, {at}), ir::Const(0, to->dtype)));
      });
      return ir::If(end < first + Expr(length), cleared);
    };
    std::vector<Stmt> stmts = {lines};
    if (all >= kAtOnce) {
      stmts.push_back(LoopOver("piece", all / kAtOnce, ForKind::kSerial,
                               [&](const Expr& piece) { return clear(piece * Expr(kAtOnce), kAtOnce); }));
    }
    if (all % kAtOnce > 0) stmts.push_back(clear(all / kAtOnce * kAtOnce, all % kAtOnce));
    return ir::Seq(std::move(stmts));
  });
}

CpuFootprint FootprintOf(const Workload& w, const Config&, const CpuTarget& t) { return FootprintOfPasses(w, 1, 1, t); }

}  // namespace

CpuTemplate CompactTemplate() { return {"compact", 1, Matches, NoKnobs, Build, FootprintOf}; }

}  // namespace temper
