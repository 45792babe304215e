// matmul.nbits, matmul.nbits_cached: products by a constant matrix that is kept as numbers of four or eight bits with a
// scale for each block of a column, as language models have them. The package has the numbers as they are, and so a
// product of few rows reads an eighth or a quarter of what floats would be. A tile makes the floats in registers; or a
// panel of them is made in cache, where many rows share it.
#include "compiler/ops/templates/matmul_nbits.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/ops/templates/register_tile.h"

namespace temper {

using ir::Expr;

namespace nbits {
namespace {

Shape PanelsOf(const GemmTile& tile, int64_t rows) { return {1, tile.panels, rows, tile.nr}; }

// Zero past the last column.
Expr InColumn(const GemmView& v, const GemmTile& tile, const std::vector<Expr>& index,
              const std::function<Expr(const Expr& column)>& element) {
  const Expr column = index[1] * Expr(tile.nr) + index.back();
  const Expr e = element(column);
  return tile.panels * tile.nr == v.columns ? e : ir::Select(column < Expr(v.columns), e, ir::Const(0, e->dtype));
}

// A number as it lies: in a row of a panel's bytes, and of two there the earlier or the later one.
Expr NumberAt(const WorkloadProgram& program, const GemmView& v, const std::vector<Expr>& place, const Expr& part) {
  const Expr byte = ir::Cast(ir::Load(program.buffer(v.b_input), place), DType::kI32),
             sixteen = ir::Int(16, DType::kI32);
  if (v.numbers->per_byte == 1) return ir::Cast(byte, kElement);
  return ir::Cast(ir::Select(ir::Eq(part, Expr(0)), byte % sixteen, byte / sixteen), kElement);
}

// What tiles of few rows need of memory comes faster than the hardware's own fetches, which end with each page.
void FetchPanel(Schedule& s, const GemmView& v, const GemmTile& tile) {
  constexpr int64_t kBytesAhead = 4096;
  const std::vector<Loop> loops = s.Loops("part");
  if (!s.status().ok()) return;
  const bool halves = v.numbers->per_byte > 1, unrolled = tile.unroll > 1;
  const size_t inside = 3 + (unrolled ? 1 : 0) + (halves ? 1 : 0);  // loops in that over rows of bytes
  const int64_t bytes = tile.nr * (halves ? 1 : tile.unroll);
  std::vector<Loop> each;
  if (unrolled && !halves) each.push_back(loops[loops.size() - 4]);
  s.Prefetch("part", absl::StrCat("in", v.b_input), loops[loops.size() - 1 - inside],
             std::max<int64_t>(kBytesAhead / bytes, 1), nullptr, each);
}

}  // namespace

Packing PackingOf(const Workload& w, const GemmView& v, const GemmTile& tile) {
  const NumbersOfB& b = *v.numbers;
  const int64_t depth = ReductionLength(v);
  Packing packing{std::vector<Shape>(w.inputs.size()), std::vector<DType>(w.inputs.size(), kElement)};
  const size_t numbers = static_cast<size_t>(v.b_input);
  packing.shapes[numbers] = PanelsOf(tile, depth / b.per_byte), packing.types[numbers] = DType::kU8;
  for (const int i : {b.scales, b.offsets}) {
    if (i >= 0) packing.shapes[static_cast<size_t>(i)] = PanelsOf(tile, depth / b.block);
  }
  return packing;
}

absl::StatusOr<std::vector<ir::Func>> Packs(const Workload& w, const GemmView& v, const GemmTile& tile,
                                            const CpuTarget& t) {
  const Packing packing = PackingOf(w, v, tile);
  std::vector<ir::Func> packs(w.inputs.size());
  for (size_t i = 0; i < packs.size(); ++i) {
    if (packing.shapes[i].empty()) continue;
    TEMPER_ASSIGN_OR_RETURN(
        packs[i], BuildPack(
                      "pack", w.inputs[i], packing.shapes[i],
                      [&](const ir::Tensor& x, const std::vector<Expr>& index) {
                        return InColumn(v, tile, index, [&](const Expr& column) { return x({index[2], column}); });
                      },
                      t));
  }
  return packs;
}

Expr Element(const WorkloadProgram& program, const GemmView& v, const Expr& panel, const Expr& step,
             const Expr& column) {
  const NumbersOfB& b = *v.numbers;
  const Expr number = NumberAt(program, v, {Expr(0), panel, step / Expr(b.per_byte), column}, step % Expr(b.per_byte));
  const std::vector<Expr> of_block = {Expr(0), panel, step / Expr(b.block), column};
  const Expr scale = ir::Load(program.buffer(b.scales), of_block);
  if (b.offsets >= 0) return number * scale + ir::Load(program.buffer(b.offsets), of_block);
  return b.zero == 0 ? number * scale : number * scale + scale * ir::Const(-b.zero, kElement);
}

void ScheduleToCache(Schedule& s, const std::string& block, const Loop& panel, const GemmView& v,
                     const GemmTile& tile) {
  s.ComputeAt(block, panel);
  const std::vector<Loop> loops = s.Loops(block);
  if (!s.status().ok()) return;
  auto [of_block, step] = s.Split(loops[loops.size() - 2], v.numbers->block);
  auto [row, part] = s.Split(step, v.numbers->per_byte);
  auto [vector, lane] = s.Split(loops.back(), tile.lanes);
  s.Reorder({of_block, vector, row, part, lane});
  s.Unroll(part);
  s.Vectorize(lane);
}

ir::Buffer SumOfBlocks(ir::ProgramBuilder& builder, const WorkloadProgram& program, const GemmView& v,
                       const GemmTile& tile, const GemmView::AElement& a) {
  const NumbersOfB& b = *v.numbers;
  const int64_t runs = ReductionLength(v) / b.run, columns = tile.panels * tile.nr;
  std::vector<int64_t> steps = {b.run / b.per_byte};
  if (b.per_byte > 1) steps.push_back(b.per_byte);
  const auto panel_of = [&](const Expr& column) { return column / Expr(tile.nr); };
  const auto in_panel = [&](const Expr& column) { return column % Expr(tile.nr); };
  const ir::Buffer part =
      builder.Reduce("part", kElement, {v.batch, runs, v.rows, columns}, steps, ir::Combiner::kSum,
                     [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                       const Expr row = i[1] * Expr(steps[0]) + r[0], half = b.per_byte == 1 ? Expr(0) : r[1];
                       return a(i[0], i[2], {row * Expr(b.per_byte) + half}) *
                              NumberAt(program, v, {Expr(0), panel_of(i[3]), row, in_panel(i[3])}, half);
                     });
  const bool offset = b.offsets >= 0 || b.zero != 0;
  ir::Buffer sums_of_a;
  if (offset) {
    sums_of_a = builder.Reduce("sums_of_a", kElement, {v.batch, v.rows, runs}, {b.run}, ir::Combiner::kSum,
                               [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                                 return a(i[0], i[1], {i[2] * Expr(b.run) + r[0]});
                               });
  }
  return builder.Reduce(
      "acc", kElement, {v.batch, v.rows, columns}, {runs}, ir::Combiner::kSum,
      [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
        const std::vector<Expr> of_block = {Expr(0), panel_of(i[2]), r[0] / Expr(b.block / b.run), in_panel(i[2])};
        const Expr scale = ir::Load(program.buffer(b.scales), of_block);
        const Expr sum = ir::Load(part, {i[0], r[0], i[1], i[2]});
        if (!offset) return sum * scale;
        const Expr sum_of_a = ir::Load(sums_of_a, {i[0], i[1], r[0]});
        return b.offsets < 0 ? (sum + sum_of_a * ir::Const(-b.zero, kElement)) * scale
                             : sum * scale + sum_of_a * ir::Load(program.buffer(b.offsets), of_block);
      });
}

void ScheduleBlocks(Schedule& s, const GemmView& v, const GemmTile& tile, const Loop& chunk, const Loop& row_tile) {
  TileAccumulators(s, "acc", row_tile, 1, tile.lanes, 1);
  const std::vector<Loop> loops = s.Loops("acc");
  if (!s.status().ok()) return;
  TileAccumulators(s, "part", loops[loops.size() - 4], v.numbers->per_byte > 1 ? 2 : 1, tile.lanes, tile.unroll);
  FetchPanel(s, v, tile);
  if (v.numbers->offsets < 0 && v.numbers->zero == 0) return;
  s.ComputeAt("sums_of_a", chunk);
  const std::vector<Loop> summed = s.Loops("sums_of_a");
  if (!s.status().ok() || v.numbers->run % tile.lanes != 0) return;
  auto [rest, lane] = s.Split(summed.back(), tile.lanes);
  s.DecomposeReduction("sums_of_a", rest);
  s.Vectorize(lane);
}

}  // namespace nbits

namespace {

// Sums of numbers from zero on grow with their count, and what is left of them without the zero point's share does not:
// longer ones would round it away.
constexpr int64_t kLongestRun = 128;
int64_t RunOf(int64_t block) {
  for (int64_t run = kLongestRun; run >= 16; run -= 2) {
    if (block % run == 0) return run;
  }
  return block;
}

constexpr int64_t kMostInRegisters = 16;  // rows: of more, each number would be made too often

// An operand of rank 0 stands for none.
bool HasOffsets(const Workload& w) {
  const std::vector<int>& args = w.calls[w.anchor].args;
  return args.size() > 3 && args[3] >= 0 && !w.TypeOf(args[3]).shape.empty();
}

bool Matches(const Workload& w) {
  const Workload::Call& call = w.calls[w.anchor];
  if (call.op != "matmul_nbits" || w.anchor != 0 || !AnchorReadsElementwise(w)) return false;
  const int inputs = static_cast<int>(w.inputs.size());
  for (size_t i = 1; i < call.args.size(); ++i) {
    const int arg = call.args[i];
    if (arg >= inputs || std::count(call.args.begin(), call.args.end(), arg) > 1) return false;
    if (arg >= 0 && (!w.inputs[arg].constant || !w.inputs[arg].type.perm.empty())) return false;
  }
  const int64_t depth = w.TypeOf(call.args[0]).shape.back(), blocks = w.TypeOf(call.args[2]).shape[0];
  return depth / blocks % 2 == 0 && w.TypeOf(call.args[0]).perm.empty() && w.output().perm.empty();
}

GemmView ViewOf(const Workload& w, bool to_cache) {
  const Workload::Call& call = w.calls[w.anchor];
  GemmView v = MatmulView(w);
  const int64_t depth = w.TypeOf(call.args[0]).shape.back();
  v.reduction = {depth};
  NumbersOfB b;
  b.per_byte = depth / w.TypeOf(call.args[1]).shape[0];
  b.block = depth / w.TypeOf(call.args[2]).shape[0];
  b.run = RunOf(b.block);
  b.scales = call.args[2], b.offsets = HasOffsets(w) ? call.args[3] : -1;
  b.zero = static_cast<double>(call.attrs.Int("zero", 0));
  b.to_cache = to_cache;
  v.numbers = b;
  return v;
}

CpuTemplate Template(std::string_view name, bool to_cache) {
  return {
      name,
      1,
      [=](const Workload& w) { return Matches(w) && (to_cache || ViewOf(w, false).rows <= kMostInRegisters); },
      [=](const Workload& w, const CpuTarget& t) { return GemmSpace(w, ViewOf(w, to_cache), t); },
      [=](const Workload& w, const Config& c, const CpuTarget& t) { return BuildGemm(w, ViewOf(w, to_cache), c, t); },
      [=](const Workload& w, const Config& c, const CpuTarget& t) {
        return GemmFootprint(w, ViewOf(w, to_cache), c, t);
      }};
}

}  // namespace

CpuTemplate MatmulNBits() { return Template("matmul.nbits", false); }
CpuTemplate MatmulNBitsCached() { return Template("matmul.nbits_cached", true); }

}  // namespace temper
