// scatter: the data is copied, then each update goes to its place, one after another. Threads share the lines or, of
// few of them, the elements to copy and the columns of the slices.
#include "base/division.h"
#include "compiler/ops/families/sequential.h"
#include "compiler/ops/templates/statements.h"
#include "compiler/ops/templates/templates.h"

namespace temper {
namespace {

using ir::Expr;
using ir::ForKind;
using ir::Stmt;

constexpr int64_t kWorthAThread = 8192;  // elements that are copied

struct Scatter {
  AroundAxis data;
  int64_t updates;  // of a line
  std::optional<ir::Combiner> combiner;
  bool by_lines;  // a thread copies lines and updates them at once
  int64_t width;  // columns of a slice that a thread updates

  Scatter(const Workload& w, const CpuTarget& t)
      : data(w.output().shape, w.calls[0].attrs.Int("axis", 0)),
        updates(w.TypeOf(w.calls[0].args[1]).shape.back()),
        combiner(ops::ScatterCombiner(w.calls[0].attrs)),
        by_lines(data.lines >= t.threads),
        width(ColumnsOfThread(data, t)) {}
  int64_t line_elements() const { return data.extent * data.slice; }
};

bool Matches(const Workload& w) {
  return (IsRowMajorCall(w, "scatter") && !IsPacked(w.output().dtype)) ||
         (IsRowMajorCall(w, "scatter_reduce") && IsNative(w.output().dtype));
}

// All buffers have one dimension.
class Statements {
 public:
  Statements(const Scatter& s, const std::vector<ir::Buffer>& p, int64_t lanes)
      : s_(s), data_(p[0]), at_(p[1]), updates_(p[2]), out_(p[3]), lanes_(lanes) {}

  Stmt All() const {
    if (s_.by_lines) {
      return LoopOver("line", s_.data.lines, ForKind::kParallel, [&](const Expr& line) {
        return ir::Seq({Copy(line * Expr(s_.line_elements()), s_.line_elements()), Update(line, 0, s_.data.slice)});
      });
    }
    const int64_t elements = s_.data.lines * s_.line_elements(), shares = elements / kWorthAThread,
                  copied = shares * kWorthAThread;
    std::vector<Stmt> stmts;
    if (shares > 0) {
      stmts.push_back(LoopOver("share", shares, ForKind::kParallel,
                               [&](const Expr& share) { return Copy(share * Expr(kWorthAThread), kWorthAThread); }));
    }
    if (copied < elements) stmts.push_back(Copy(copied, elements - copied));
    stmts.push_back(ParallelColumns(s_.data, s_.width, [&](const Expr& line, const Expr& first, int64_t width) {
      return Update(line, first, width);
    }));
    return ir::Seq(std::move(stmts));
  }

 private:
  Stmt Copy(const Expr& begin, int64_t count) const { return CopyElements(out_, begin, data_, begin, count, lanes_); }
  // Columns [first, first + width) of all updates of a line.
  Stmt Update(const Expr& line, const Expr& first, int64_t width) const {
    return LoopOver("update", s_.updates, ForKind::kSerial, [&](const Expr& number) {
      const Expr update = line * Expr(s_.updates) + number;
      const Expr place = ir::Cast(ir::Load(at_, {update}), DType::kI64);
      const Expr from = update * Expr(s_.data.slice) + first;
      const Expr to = (line * Expr(s_.data.extent) + place) * Expr(s_.data.slice) + first;
      const Stmt apply = VectorLoop("element", width, lanes_, [&](const Expr& i) {
        const Expr fresh = ir::Load(updates_, {from + i});
        return ir::Store(out_, {to + i},
                         s_.combiner ? ir::Combine(*s_.combiner, ir::Load(out_, {to + i}), fresh) : fresh);
      });
      return ir::If(ir::And(Expr(0) <= place, place < Expr(s_.data.extent)), apply);
    });
  }

  const Scatter& s_;
  ir::Buffer data_, at_, updates_, out_;
  int64_t lanes_;
};

absl::StatusOr<Kernel> Build(const Workload& w, const Config&, const CpuTarget& t) {
  const Scatter s(w, t);
  const int64_t elements = s.data.lines * s.line_elements(), updates = s.data.lines * s.updates;
  return KernelOf(w, {{elements}, {updates}, {updates * s.data.slice}, {elements}},
                  [&](const std::vector<ir::Buffer>& p) { return Statements(s, p, t.lanes()).All(); });
}

CpuFootprint FootprintOf(const Workload& w, const Config&, const CpuTarget& t) {
  const Scatter s(w, t);
  return FootprintOfPasses(w, 2, static_cast<double>(s.data.lines * CeilDiv(s.data.slice, s.width)), t);
}

}  // namespace

CpuTemplate ScatterTemplate() { return {"scatter", 1, Matches, NoKnobs, Build, FootprintOf}; }

}  // namespace temper
