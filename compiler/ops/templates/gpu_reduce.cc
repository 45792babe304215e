// gpu.reduce: rows that are reduced along memory, and what is made of them: softmax, layer norm, sums and means over
// inner axes. The threads of a group share a few rows, so many lanes a row: each lane adds up its share in registers,
// a tree in shared memory adds up the lanes, and all see the result there. What other stages make of a row stays in
// shared memory, or is made again where it is read.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "compiler/ir/launch.h"
#include "compiler/ops/templates/gpu_template.h"
#include "compiler/ops/templates/stages.h"

namespace temper {
namespace {

using ir::Expr;
using ir::ForKind;
using ir::Scope;

constexpr int64_t kShortestRow = 8;  // one thread reduces shorter ones

// What there is to do in each row.
struct Rows {
  size_t shared = 0;          // so many outermost dimensions tell the row
  int64_t count = 1;          // rows
  int64_t length = 1;         // of the longest reduction, or stage
  int64_t reductions = 0;     // stages that reduce
  int64_t scalars = 0;        // stages before the last that make one element of a row
  std::vector<int64_t> kept;  // elements of a row that the others before the last make
  int64_t kept_elements() const { return std::accumulate(kept.begin(), kept.end(), int64_t{0}); }
};

bool IsReduction(const ir::Stmt& block) { return bool(block->block.init); }

// Of stages that all have the same rows, and reduce whole ones along memory; nullopt for others.
std::optional<Rows> RowsOf(const ir::Func& func) {
  std::vector<ir::Stmt> blocks;
  ir::VisitStmt(func.body, [&](const ir::Stmt& s) {
    if (s->kind == ir::StmtKind::kBlock) blocks.push_back(s);
  });
  Rows rows;
  rows.shared = SharedLoops(func, true);
  if (rows.shared == 0) return std::nullopt;
  const Shape& out = blocks.back()->buffer->shape;
  for (size_t d = 0; d < rows.shared; ++d) rows.count *= out[d];
  for (const ir::Stmt& block : blocks) {
    int64_t inner = 1, reduced = 1;
    for (size_t d = rows.shared; d < block->buffer->shape.size(); ++d) inner *= block->buffer->shape[d];
    size_t spatial = 0;
    for (const ir::IterVar& iter : block->block.iters) {
      if (iter.reduce) reduced *= iter.extent;
      spatial += iter.reduce ? 0 : 1;
    }
    rows.length = std::max({rows.length, inner, reduced});
    if (inner > 1 && block != blocks.back()) rows.kept.push_back(inner);
    if (inner == 1 && block != blocks.back()) ++rows.scalars;
    if (!IsReduction(block)) continue;
    if (inner != 1 || FusibleSuffix(block, spatial, false) == 0) return std::nullopt;
    ++rows.reductions;
  }
  if (rows.reductions == 0 || rows.length < kShortestRow) return std::nullopt;
  return rows;
}

std::optional<Rows> RowsOf(const Workload& w) {
  if (!HasTensorExpressions(w) || IsPacked(w.output().dtype) || FindOp(w.calls[w.anchor].op)->windows ||
      FindOp(w.calls[w.anchor].op)->pattern != OpPattern::kReduction)
    return std::nullopt;
  const absl::StatusOr<ir::Func> func = BuildStages(w);
  return func.ok() ? RowsOf(*func) : std::nullopt;
}

// What a config means.
struct Choice {
  int64_t lanes, rows, radix;
  bool keep;
  explicit Choice(const Config& c) : lanes(c["lanes"]), rows(c["rows"]), radix(c["radix"]), keep(c["keep"] != 0) {}
};

class RowScheduler {
 public:
  RowScheduler(Schedule& s, const Rows& rows, const Choice& choice) : s_(s), rows_(rows), choice_(choice) {}

  void Run() {
    if (!choice_.keep) InlineRows();
    const std::vector<std::string> stages = s_.Blocks();
    const std::vector<Loop> out = s_.Loops(stages.back());
    if (!s_.status().ok()) return;
    const Loop row = FuseAll(s_, {out.begin(), out.begin() + static_cast<std::ptrdiff_t>(rows_.shared)});
    for (size_t i = stages.size() - 1; i-- > 0;) {
      s_.SetScope(stages[i], Scope::kShared);
      s_.ComputeAt(stages[i], row);
    }
    for (const std::string& stage : stages) {
      if (!s_.status().ok()) return;
      const ir::Stmt block = BlockNamed(s_.func(), stage);
      const size_t inner = block->block.iters.size() - rows_.shared;
      if (IsReduction(block)) {
        Reduce(stage, inner - (block->buffer->shape.size() - rows_.shared));
      } else {
        Spread(stage, inner);
      }
      if (stage != stages.back()) FlattenRows(stage);
    }
    // Last of all, so that which row it is stays in plain sight of the other rewrites.
    auto [group, mine] = s_.Split(row, choice_.rows);
    s_.Bind(group, ForKind::kGroupX);
    s_.Bind(mine, ForKind::kThreadY);
  }

 private:
  // Stages that make more than one element of a row go into their readers.
  void InlineRows() {
    const std::vector<std::string> stages = s_.Blocks();
    for (size_t i = 0; i + 1 < stages.size() && s_.status().ok(); ++i) {
      const ir::Stmt block = BlockNamed(s_.func(), stages[i]);
      const Shape& shape = block->buffer->shape;
      const bool row = NumElements(std::span(shape).subspan(std::min(rows_.shared, shape.size()))) > 1;
      if (row && !IsReduction(block)) s_.Inline(stages[i]);
    }
  }

  // The lanes take elements of the row in turn.
  void Spread(const std::string& stage, size_t inner) {
    if (inner == 0) return;
    const std::vector<Loop> loops = s_.Loops(stage);
    if (!s_.status().ok()) return;
    const Loop all = FuseAll(s_, Innermost(loops, inner));
    if (s_.Extent(all) == 1) return;
    auto [turn, lane] = s_.Split(all, choice_.lanes);
    s_.Reorder({lane, turn});
    s_.Bind(lane, ForKind::kThreadX);
  }

  void Reduce(const std::string& stage, size_t reductions) {
    const std::vector<Loop> loops = s_.Loops(stage);
    if (!s_.status().ok()) return;
    const Loop all = FuseAll(s_, Innermost(loops, reductions));
    auto [turn, lane] = s_.Split(all, choice_.lanes);
    const auto [share, whole] = s_.Rfactor(stage, lane);
    s_.SetScope(share, Scope::kRegister);
    s_.Reorder({lane, turn});
    s_.Bind(lane, ForKind::kThreadX);
    s_.DecomposeReduction(share, turn);
    if (!s_.status().ok()) return;
    const std::string lanes = s_.CacheRead(stage, BlockNamed(s_.func(), share)->buffer->name, Scope::kShared);
    const std::vector<Loop> copy = s_.Loops(lanes);
    if (!s_.status().ok()) return;
    s_.Bind(copy.back(), ForKind::kThreadX);
    FlattenRows(lanes);
    for (int64_t left = choice_.lanes; left > choice_.radix && s_.status().ok(); left = CeilDiv(left, choice_.radix)) {
      const std::vector<Loop> rest = s_.Loops(stage);
      auto [step, kept] = s_.Split(rest.back(), CeilDiv(left, choice_.radix));
      const auto [partial, last] = s_.Rfactor(stage, kept);
      s_.SetScope(partial, Scope::kShared);
      s_.Reorder({kept, step});
      s_.Bind(kept, ForKind::kThreadX);
      FlattenRows(partial);
    }
  }

  // The rows that a group has lie one behind another in the block's buffer.
  void FlattenRows(const std::string& block) {
    if (rows_.shared == 1 || !s_.status().ok()) return;
    const Shape from = BlockNamed(s_.func(), block)->buffer->shape;
    Shape to(from.begin() + static_cast<std::ptrdiff_t>(rows_.shared), from.end());
    to.insert(to.begin(), rows_.count);
    s_.TransformLayout(block, to, [&](const std::vector<Expr>& index) {
      Expr row(0);
      for (size_t d = 0; d < rows_.shared; ++d) row = row * Expr(from[d]) + index[d];
      std::vector<Expr> result = {row};
      result.insert(result.end(), index.begin() + static_cast<std::ptrdiff_t>(rows_.shared), index.end());
      return result;
    });
  }

  Schedule& s_;
  const Rows& rows_;
  const Choice& choice_;
};

absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const GpuTarget&) {
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, BuildStages(w));
  const std::optional<Rows> rows = RowsOf(func);
  if (!rows.has_value()) return absl::InternalError("gpu.reduce: the workload has no rows");
  Schedule s(std::move(func));
  const Choice choice(c);
  RowScheduler(s, *rows, choice).Run();
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.main, LowerSchedule(s));
  kernel.packs.resize(w.inputs.size());
  return kernel;
}

int64_t SharedBytes(const Workload& w, const Rows& rows, const Choice& c) {
  const auto array = [&, bytes = SizeOf(w.calls[w.anchor].type.dtype)](int64_t elements) {
    return CeilDiv(std::min(c.rows, rows.count) * elements * bytes, ir::kSharedAlignment) * ir::kSharedAlignment;
  };
  int64_t tree = array(c.lanes);
  for (int64_t left = c.lanes; left > c.radix; left = CeilDiv(left, c.radix)) tree += array(CeilDiv(left, c.radix));
  int64_t total = rows.reductions * tree + rows.scalars * array(1);
  for (int64_t elements : rows.kept) total += c.keep ? array(elements) : 0;
  return total;
}

// Fitted to what ptxas said: it loads ahead what a long tree's last step adds up, and of more than a few steps what
// several reductions read, unless it is kept.
double Registers(const Workload& w, const Rows& rows, const Choice& c) {
  constexpr int64_t kFewSteps = 3, kMostAhead = 22, kLongTree = 16;
  const int64_t steps = CeilDiv(rows.length, c.lanes);
  int64_t last = c.lanes;
  while (last > c.radix) last = CeilDiv(last, c.radix);
  const bool ahead = rows.reductions > 1 && !c.keep && steps > kFewSteps;
  return static_cast<double>(10 + 5 * rows.reductions + 2 * (std::ssize(w.inputs) - 1) + (last > kLongTree ? 6 : 0) +
                             (ahead ? 2 * std::min(steps, kMostAhead) : 0));
}

ConfigSpace Space(const Workload& w, const GpuTarget& t) {
  const Rows rows = *RowsOf(w);
  ConfigSpace space;
  std::vector<int64_t> lanes = {1, 2, 4, 8, 16};
  for (int64_t n : GroupThreads(t)) {
    if (n > 16) lanes.push_back(n);
  }
  space.Add("lanes", lanes);
  space.Add("rows", {1, 2, 4, 8, 16, 32});
  space.Add("radix", {2, 4, 8, 32});
  space.Add("keep", !rows.kept.empty() ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0});
  space.Require("threads of a group",
                [most = t.group_threads](const Config& c) { return c["lanes"] * c["rows"] <= most; });
  space.Require("a group has more rows than there are",
                [count = rows.count](const Config& c) { return c["rows"] == 1 || c["rows"] < 2 * count; });
  space.Require("lanes have nothing to do",
                [length = rows.length](const Config& c) { return c["lanes"] == 1 || c["lanes"] < 2 * length; });
  space.Require("the tree's radix is more than the lanes",
                [](const Config& c) { return c["radix"] == 2 || c["radix"] <= c["lanes"]; });
  space.Require("shared memory",
                [w, rows, most = t.shared_bytes](const Config& c) { return SharedBytes(w, rows, Choice(c)) <= most; });
  return space;
}

GpuFootprint FootprintOf(const Workload& w, const Config& c, const GpuTarget&) {
  const Rows rows = *RowsOf(w);
  const Choice choice(c);
  const double lanes = static_cast<double>(choice.lanes), length = static_cast<double>(rows.length);
  GpuFootprint f;
  f.group_threads = lanes * static_cast<double>(choice.rows);
  f.groups = std::ceil(static_cast<double>(rows.count) / static_cast<double>(choice.rows));
  f.flops = std::max(1.0, Flops(w));
  f.padded_flops = f.flops * std::ceil(length / lanes) * lanes / length * f.groups * static_cast<double>(choice.rows) /
                   static_cast<double>(rows.count);
  f.compulsory_bytes = CompulsoryBytes(w);
  // What is made again is read again, most of it from the cache.
  const double again = choice.keep ? 0 : static_cast<double>(rows.reductions);
  f.memory_traffic = f.compulsory_bytes * (1 + again / 4);
  const double element = static_cast<double>(SizeOf(w.calls[w.anchor].type.dtype));
  // Few lanes of a row leave most of what comes with it to other accesses.
  f.coalescing = std::min(1.0, std::max(lanes, 4.0) * element / 32);
  f.reduction = std::ceil(length / lanes);
  f.registers = Registers(w, rows, choice);
  f.shared_bytes = static_cast<double>(SharedBytes(w, rows, choice));
  f.shared_traffic = f.groups * f.group_threads * element * 4 * static_cast<double>(rows.reductions);
  if (choice.keep) f.shared_traffic += static_cast<double>(rows.count * rows.kept_elements()) * element * 2;
  const double levels =
      choice.lanes == 1 ? 1 : std::ceil(std::log(lanes) / std::log(static_cast<double>(choice.radix)));
  f.barriers = static_cast<double>(rows.reductions) * (levels + 1);
  f.in_flight_bytes = element;
  return f;
}

}  // namespace

GpuTemplate GpuReduce() {
  return {"gpu.reduce", 1, [](const Workload& w) { return RowsOf(w).has_value(); }, Space, Build, FootprintOf};
}

}  // namespace temper
