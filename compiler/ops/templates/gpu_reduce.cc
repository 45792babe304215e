// gpu.reduce: rows that are reduced along memory, and what is made of them: softmax, layer norm, sums and means over
// inner axes. The threads of a group share a few rows, so many lanes a row: each lane adds up its share in registers.
// A tree in shared memory adds up the lanes, and all see the result there; or the lanes of a warp exchange their sums,
// those of several warps by way of shared memory, until each has the result in a register. What other stages make of a
// row stays in shared memory, or is made again where it is read.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <tuple>

#include "compiler/ir/launch.h"
#include "compiler/ops/templates/gpu_template.h"
#include "compiler/ops/templates/stages.h"

namespace temper {
namespace {

using ir::Expr;
using ir::ForKind;
using ir::Scope;

constexpr int64_t kShortestRow = 8;  // one thread reduces shorter ones

// Nominal times of an exchange with its sum, of the way to shared memory, of a sum of what came from there.
constexpr double kExchangeCycles = 28, kSharedCycles = 28, kStepCycles = 5;

// What there is to do in each row.
struct Rows {
  size_t shared = 0;   // so many outermost dimensions tell the row
  int64_t count = 1;   // rows
  int64_t length = 1;  // of the longest reduction, or stage
  // Bytes of a row that a stage makes: those that reduce, those before the last that make one element of it, the others
  // before the last.
  std::vector<int64_t> reduced, scalars, kept;
  int64_t reductions() const { return std::ssize(reduced); }
  int64_t kept_bytes() const { return std::accumulate(kept.begin(), kept.end(), int64_t{0}); }
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
    const int64_t bytes = SizeOf(block->buffer->dtype);
    for (size_t d = rows.shared; d < block->buffer->shape.size(); ++d) inner *= block->buffer->shape[d];
    size_t spatial = 0;
    for (const ir::IterVar& iter : block->block.iters) {
      if (iter.reduce) reduced *= iter.extent;
      spatial += iter.reduce ? 0 : 1;
    }
    rows.length = std::max({rows.length, inner, reduced});
    if (inner > 1 && block != blocks.back()) rows.kept.push_back(inner * bytes);
    if (inner == 1 && block != blocks.back()) rows.scalars.push_back(bytes);
    if (!IsReduction(block)) continue;
    if (inner != 1 || FusibleSuffix(block, spatial, false) == 0) return std::nullopt;
    rows.reduced.push_back(bytes);
  }
  if (rows.reduced.empty() || rows.length < kShortestRow) return std::nullopt;
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
  bool keep, shuffle;
  explicit Choice(const Config& c)
      : lanes(c["lanes"]), rows(c["rows"]), radix(c["radix"]), keep(c["keep"] != 0), shuffle(c["shuffle"] != 0) {}
  // Of a row's lanes, those that exchange, and how many times as many there are.
  int64_t across() const { return std::min(lanes, ir::kTensorWarp); }
  int64_t warps() const { return CeilDiv(lanes, ir::kTensorWarp); }
};

// Of a tree: what a thread adds up, level by level.
std::vector<int64_t> LevelsOf(const Choice& c) {
  std::vector<int64_t> levels;
  int64_t left = c.lanes;
  for (; left > c.radix; left = CeilDiv(left, c.radix)) levels.push_back(c.radix);
  levels.push_back(left);
  return levels;
}

// Whether lanes of a warp exchange sums. A schedule has warps of one width.
bool HasShuffles(const GpuTarget& t) { return t.shuffles && t.warp_width == ir::kTensorWarp; }

// Of a tree, for a thread on average: words that it asks of shared memory, and instructions. A warp takes its turn
// where any of its lanes adds up.
std::pair<double, double> TreeAccesses(const Choice& c) {
  constexpr double kLevelInstructions = 4;  // a barrier, whether there is something to do, and where
  const std::vector<int64_t> levels = LevelsOf(c);
  const double last = static_cast<double>(levels.back());
  double asked = 1 + last, instructions = kLevelInstructions + 2 * last;
  int64_t left = c.lanes;
  for (size_t i = 0; i + 1 < levels.size(); ++i) {
    left = CeilDiv(left, levels[i]);
    const double busy = std::min(
        1.0, static_cast<double>(std::max(left, std::min(c.lanes, ir::kTensorWarp))) / static_cast<double>(c.lanes));
    asked += busy * static_cast<double>(levels[i] + 1);
    instructions += kLevelInstructions + 2 * busy * static_cast<double>(levels[i]);
  }
  return {asked, instructions};
}

class RowScheduler {
 public:
  RowScheduler(Schedule& s, const Rows& rows, const Choice& choice) : s_(s), rows_(rows), choice_(choice) {}

  void Run() {
    if (!choice_.keep) InlineRows();
    // All lanes have a result in registers, and one of them writes it.
    if (choice_.shuffle && IsReduction(BlockNamed(s_.func(), s_.Blocks().back())))
      s_.CacheWrite(s_.Blocks().back(), Scope::kRegister);
    const std::vector<std::string> stages = s_.Blocks();
    const std::vector<Loop> out = s_.Loops(stages.back());
    if (!s_.status().ok()) return;
    const Loop row = FuseAll(s_, {out.begin(), out.begin() + static_cast<std::ptrdiff_t>(rows_.shared)});
    for (size_t i = stages.size() - 1; i-- > 0;) {
      s_.SetScope(stages[i], choice_.shuffle && !MakesRow(stages[i]) ? Scope::kRegister : Scope::kShared);
      s_.ComputeAt(stages[i], row);
    }
    for (const std::string& stage : stages) {
      if (!s_.status().ok()) return;
      const ir::Stmt block = BlockNamed(s_.func(), stage);
      const size_t inner = block->block.iters.size() - rows_.shared;
      const size_t reductions = inner - (block->buffer->shape.size() - rows_.shared);
      if (IsReduction(block) && choice_.shuffle) {
        Exchange(stage, reductions);
      } else if (IsReduction(block)) {
        Reduce(stage, reductions);
      } else {
        Spread(stage, inner);
      }
      if (stage != stages.back()) FlattenRows(stage);
    }
    // Last of all, so that which row it is stays in plain sight of the other rewrites.
    auto [group, mine] = s_.Split(row, choice_.rows);
    s_.Bind(group, ForKind::kGroupX);
    s_.Bind(mine, choice_.shuffle ? ForKind::kThreadZ : ForKind::kThreadY);
  }

 private:
  bool MakesRow(const std::string& stage) const {
    const Shape& shape = BlockNamed(s_.func(), stage)->buffer->shape;
    return NumElements(std::span(shape).subspan(std::min(rows_.shared, shape.size()))) > 1;
  }

  // Stages that make more than one element of a row go into their readers.
  void InlineRows() {
    const std::vector<std::string> stages = s_.Blocks();
    for (size_t i = 0; i + 1 < stages.size() && s_.status().ok(); ++i) {
      if (MakesRow(stages[i]) && !IsReduction(BlockNamed(s_.func(), stages[i]))) s_.Inline(stages[i]);
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
    BindLanes(lane);
  }

  void BindLanes(const Loop& lanes) {
    if (!choice_.shuffle || choice_.warps() == 1) return s_.Bind(lanes, ForKind::kThreadX);
    auto [warp, lane] = s_.Split(lanes, ir::kTensorWarp);
    s_.Bind(warp, ForKind::kThreadY);
    s_.Bind(lane, ForKind::kThreadX);
  }

  void Exchange(const std::string& stage, size_t reductions) {
    const std::vector<Loop> loops = s_.Loops(stage);
    if (!s_.status().ok()) return;
    auto [turn, lanes] = s_.Split(FuseAll(s_, Innermost(loops, reductions)), choice_.lanes);
    const std::string share = s_.Rfactor(stage, lanes).first;
    s_.SetScope(share, Scope::kRegister);
    s_.Reorder({lanes, turn});
    BindLanes(lanes);
    s_.DecomposeReduction(share, turn);
    const std::vector<Loop> all = s_.Loops(stage);
    if (!s_.status().ok()) return;
    if (choice_.warps() == 1) return s_.ReduceAcrossLanes(all.back());
    // What each warp exchanged lies in shared memory, and every lane adds it up.
    const Loop warp = s_.Split(all.back(), ir::kTensorWarp).first;
    const std::string of_warp = s_.Rfactor(stage, warp).first;
    s_.SetScope(of_warp, Scope::kRegister);
    s_.Bind(warp, ForKind::kThreadY);
    const std::vector<Loop> exchanging = s_.Loops(of_warp);
    if (!s_.status().ok()) return;
    s_.ReduceAcrossLanes(exchanging.back());
    const std::string seen = s_.CacheRead(stage, BlockNamed(s_.func(), of_warp)->buffer->name, Scope::kShared);
    const std::vector<Loop> copy = s_.Loops(seen);
    if (!s_.status().ok()) return;
    s_.Bind(copy.back(), ForKind::kThreadY);
    FlattenRows(seen);
    const std::vector<Loop> warps = s_.Loops(stage);
    if (s_.status().ok()) s_.Unroll(warps.back());
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

int64_t SharedBytes(const Rows& rows, const Choice& c) {
  const auto array = [&](int64_t bytes_of_row) {
    return ir::SharedAligned(std::min(c.rows, rows.count) * bytes_of_row);
  };
  int64_t total = 0;
  for (const int64_t bytes : rows.kept) total += c.keep ? array(bytes) : 0;
  if (c.shuffle) {
    for (const int64_t bytes : rows.reduced) total += c.warps() > 1 ? array(c.warps() * bytes) : 0;
    return total;
  }
  for (const int64_t bytes : rows.reduced) {
    total += array(c.lanes * bytes);
    for (int64_t left = c.lanes; left > c.radix; left = CeilDiv(left, c.radix))
      total += array(CeilDiv(left, c.radix) * bytes);
  }
  for (const int64_t bytes : rows.scalars) total += array(bytes);
  return total;
}

// Fitted to what ptxas said of hundreds of configs: it loads ahead what a long tree's last step adds up, and what a
// lane reduces, more of it where it reads that for several reductions; but no more than keeps other groups away.
double Registers(const Workload& w, const Rows& rows, const Choice& c, const GpuTarget& t) {
  constexpr int64_t kMostAhead = 20, kLongTree = 16;
  const int64_t steps = CeilDiv(rows.length, c.lanes);
  const int64_t last = c.shuffle ? 1 : LevelsOf(c).back();
  const double needed =
      static_cast<double>(9 + 4 * rows.reductions() + std::ssize(w.inputs) - 1) + (last > kLongTree ? 6 : 0);
  const double seen = static_cast<double>(std::min(steps, kMostAhead));
  double ahead = 1.45 * seen;
  if (NumElements(w.output().shape) > rows.count) {  // the row is read once more, for what is made of it
    ahead = (seen - 1) * (c.keep ? 1.1 : 1.8 + 0.9 * static_cast<double>(w.inputs.size()));
  } else if (rows.length % c.lanes != 0) {  // a condition for each keeps it from more
    ahead = std::min(7.0, 1 + 0.8 * seen) / static_cast<double>(rows.reductions());
  }
  return std::min(needed + ahead, std::max(needed, FreeRegisters(c.lanes * c.rows, t)));
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
  space.Add("shuffle", HasShuffles(t) ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0});
  space.Require("lanes that exchange are of whole warps", [](const Config& c) {
    return c["shuffle"] == 0 || (c["lanes"] > 1 && c["lanes"] * c["rows"] % ir::kTensorWarp == 0);
  });
  space.Require("lanes that exchange have no tree",
                [](const Config& c) { return c["shuffle"] == 0 || c["radix"] == 2; });
  space.Require("threads of a group",
                [most = t.group_threads](const Config& c) { return c["lanes"] * c["rows"] <= most; });
  space.Require("a group has more rows than there are",
                [count = rows.count](const Config& c) { return c["rows"] == 1 || c["rows"] < 2 * count; });
  space.Require("lanes have nothing to do",
                [length = rows.length](const Config& c) { return c["lanes"] == 1 || c["lanes"] < 2 * length; });
  space.Require("the tree's radix is more than the lanes",
                [](const Config& c) { return c["radix"] == 2 || c["radix"] <= c["lanes"]; });
  space.Require("shared memory",
                [rows, most = t.shared_bytes](const Config& c) { return SharedBytes(rows, Choice(c)) <= most; });
  return space;
}

GpuFootprint FootprintOf(const Workload& w, const Config& c, const GpuTarget& t) {
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
  const double again = choice.keep ? 0 : static_cast<double>(rows.reductions());
  f.memory_traffic = f.compulsory_bytes * (1 + again / 4);
  f.cache_traffic = f.compulsory_bytes * (1 + again);
  const double element = static_cast<double>(SizeOf(w.calls[w.anchor].type.dtype));
  // Few lanes of a row leave most of what comes with it to other accesses.
  f.coalescing = std::min(1.0, std::max(lanes, 4.0) * element / 32);
  f.reduction = std::ceil(length / lanes);
  f.registers = Registers(w, rows, choice, t);
  f.shared_bytes = static_cast<double>(SharedBytes(rows, choice));
  // Exchanges take the same way, and what warps leave for each other is read by fours.
  const double across = std::log2(static_cast<double>(choice.across())), warps = static_cast<double>(choice.warps());
  const double reductions = static_cast<double>(rows.reductions());
  double asked = across + (warps > 1 ? std::ceil(warps / 4) : 0), instructions = 2 * asked;
  if (!choice.shuffle) std::tie(asked, instructions) = TreeAccesses(choice);
  f.shared_traffic = f.groups * f.group_threads * element * asked * reductions;
  f.instructions = f.groups * f.group_threads * (instructions * reductions + 2 * f.reduction * (1 + again));
  if (choice.keep) f.shared_traffic += static_cast<double>(rows.count * rows.kept_bytes()) * 2;
  if (choice.shuffle) {
    f.barriers = (warps > 1 ? reductions : 0) + (choice.keep ? static_cast<double>(rows.kept.size()) : 0);
    f.wait_cycles = reductions * (across * kExchangeCycles + (warps > 1 ? kSharedCycles + warps * kStepCycles : 0));
  } else {
    const std::vector<int64_t> levels = LevelsOf(choice);
    f.barriers = reductions * static_cast<double>(levels.size() + 1);
    for (const int64_t steps : levels)
      f.wait_cycles += reductions * (kSharedCycles + static_cast<double>(steps) * kStepCycles);
  }
  f.in_flight_bytes = element;
  return f;
}

}  // namespace

GpuTemplate GpuReduce() {
  return {"gpu.reduce", 2, [](const Workload& w) { return RowsOf(w).has_value(); }, Space, Build, FootprintOf};
}

}  // namespace temper
