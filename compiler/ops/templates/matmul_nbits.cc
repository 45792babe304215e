// matmul.nbits, matmul.nbits_cached, matmul.nbits_i8: products by a constant matrix that is kept as numbers of four or
// eight bits with a scale for each block of a column, as language models have them. The package has the numbers as they
// are, and so a product of few rows reads an eighth or a quarter of what floats would be. A tile makes the floats in
// registers; or a panel of them is made in cache, where many rows share it. Rows of bytes are multiplied by the numbers
// themselves.
#include "compiler/ops/templates/matmul_nbits.h"

#include <algorithm>
#include <numeric>

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

constexpr int64_t kMostInRegisters = 16;  // rows: of more, each number would be made too often
constexpr int64_t kBytesInWord = 4;
constexpr int64_t kFewestLanes = 4;  // that are worth adding up

int64_t DepthOf(const GemmView& v) { return ReductionLength(v) * v.ways; }
// Steps of the reduction whose numbers one packed element has.
int64_t StepsOfElement(const GemmView& v) { return v.numbers->per_byte * v.ways; }

// A packed i32 of numbers.
Expr Word(const NumbersOfB& b, const ir::Tensor& numbers, const Expr& word, const Expr& column) {
  const auto number = [&](int64_t step) {
    const Expr row = word * Expr(kBytesInWord) + Expr(step / b.per_byte);
    const Expr byte = ir::Cast(numbers({row, column}), DType::kI32), sixteen = ir::Int(16, DType::kI32);
    if (b.per_byte == 1) return byte;
    return step % 2 == 0 ? byte % sixteen : byte / sixteen;
  };
  const auto byte = [&](int64_t i) {
    const Expr low = number(i);
    return ir::Cast(b.per_byte == 1 ? low : low + number(kBytesInWord + i) * ir::Int(16, DType::kI32), DType::kU8);
  };
  return ir::Pair(ir::Pair(byte(0), byte(1)), ir::Pair(byte(2), byte(3)));
}

// Four numbers of a packed i32: those in its bytes' low or high halves.
Expr FourOf(const WorkloadProgram& program, const GemmView& v, const std::vector<Expr>& place, const Expr& half) {
  const Expr word = ir::Load(program.buffer(v.b_input), place);
  if (v.numbers->per_byte == 1) return word;
  const Expr shifted = ir::Select(ir::Eq(half, Expr(0)), word, word / ir::Int(16, DType::kI32));
  return ir::BitAnd(shifted, ir::Int(0x0f0f0f0f, DType::kI32));
}

// A number as it lies: in a row of a panel's bytes, and of two there the earlier or the later one.
Expr NumberAt(const WorkloadProgram& program, const GemmView& v, const std::vector<Expr>& place, const Expr& part) {
  const Expr byte = ir::Cast(ir::Load(program.buffer(v.b_input), place), DType::kI32),
             sixteen = ir::Int(16, DType::kI32);
  if (v.numbers->per_byte == 1) return ir::Cast(byte, kElement);
  return ir::Cast(ir::Select(ir::Eq(part, Expr(0)), byte % sixteen, byte / sixteen), kElement);
}

// The loop over a panel's rows of numbers. What few rows need of memory comes faster than the hardware's own fetches,
// which end with each page.
void UnrollAndFetch(Schedule& s, const GemmView& v, const GemmTile& tile) {
  constexpr int64_t kBytesAhead = 4096;
  const std::vector<Loop> loops = s.Loops("part");
  if (!s.status().ok()) return;
  const bool halves = v.numbers->per_byte > 1, unrolled = tile.unroll > 1;
  const size_t inside = 3 + (unrolled ? 1 : 0) + (halves ? 1 : 0);  // loops in that over rows of numbers
  const int64_t rows = tile.unroll / v.numbers->per_byte, row_bytes = tile.nr * (v.ways > 1 ? kBytesInWord : 1);
  Loop loop = loops[loops.size() - 1 - inside];
  std::vector<Loop> each;
  if (unrolled && !halves) each.push_back(loops[loops.size() - 4]);
  if (halves && rows > 1) {
    auto [rest, row] = s.Split(loop, rows);
    s.Unroll(row);
    loop = rest;
    each.push_back(row);
  }
  if (row_bytes > kLineBytes) each.push_back(loops[loops.size() - 2]);
  if (v.rows > kMostInRegisters) return;
  s.Prefetch("part", absl::StrCat("in", v.b_input), loop, std::max<int64_t>(kBytesAhead / (rows * row_bytes), 1),
             nullptr, each);
}

}  // namespace

Packing PackingOf(const Workload& w, const GemmView& v, const GemmTile& tile) {
  const NumbersOfB& b = *v.numbers;
  const int64_t depth = DepthOf(v);
  Packing packing{std::vector<Shape>(w.inputs.size()), std::vector<DType>(w.inputs.size(), kElement)};
  const size_t numbers = static_cast<size_t>(v.b_input);
  packing.shapes[numbers] = PanelsOf(tile, depth / StepsOfElement(v));
  packing.types[numbers] = v.ways > 1 ? DType::kI32 : DType::kU8;
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
    const bool words = packing.types[i] == DType::kI32;
    const auto element = [&](const ir::Tensor& x, const std::vector<Expr>& index) {
      return InColumn(v, tile, index, [&](const Expr& column) {
        return words ? Word(*v.numbers, x, index[2], column) : x({index[2], column});
      });
    };
    TEMPER_ASSIGN_OR_RETURN(packs[i], BuildPack("pack", w.inputs[i], packing.shapes[i], element, t));
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

namespace {

// The scale of a block of A's row.
Expr ScaleOfA(const WorkloadProgram& program, const GemmView& v, const Expr& row, const Expr& block) {
  const ir::Tensor scales = program.value(v.numbers->scales_of_a);
  std::vector<Expr> index = Unflatten(row, std::span(scales.shape()).first(scales.shape().size() - 1));
  index.push_back(block);
  return scales(index);
}

}  // namespace

ir::Buffer SumOfBlocks(ir::ProgramBuilder& builder, const WorkloadProgram& program, const GemmView& v,
                       const GemmTile& tile, const GemmView::AElement& a) {
  const NumbersOfB& b = *v.numbers;
  const bool bytes = v.ways > 1;
  const int64_t runs = DepthOf(v) / b.run, columns = tile.panels * tile.nr, factors = b.run / v.ways;
  std::vector<int64_t> steps = {b.run / StepsOfElement(v)};
  if (b.per_byte > 1) steps.push_back(b.per_byte);
  const auto panel_of = [&](const Expr& column) { return column / Expr(tile.nr); };
  const auto in_panel = [&](const Expr& column) { return column % Expr(tile.nr); };
  const ir::Buffer part = builder.Reduce(
      "part", FactorType(v), {v.batch, runs, v.rows, columns}, steps, ir::Combiner::kSum,
      [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
        const Expr row = i[1] * Expr(steps[0]) + r[0], half = b.per_byte == 1 ? Expr(0) : r[1];
        const std::vector<Expr> place = {Expr(0), panel_of(i[3]), row, in_panel(i[3])};
        const Expr factor = a(i[0], i[2], {row * Expr(b.per_byte) + half});
        return bytes ? ir::Dot8(FourOf(program, v, place, half), factor) : factor * NumberAt(program, v, place, half);
      });
  // What zero points or offsets are multiplied with.
  ir::Buffer shares;
  const auto of_block = [&](const Expr& run) { return run / Expr(b.block / b.run); };
  if (b.offsets >= 0 || b.zero != 0) {
    const ir::Buffer sums =
        builder.Reduce("sums_of_a", FactorType(v), {v.batch, v.rows, runs}, {factors}, ir::Combiner::kSum,
                       [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                         const Expr factor = a(i[0], i[1], {i[2] * Expr(factors) + r[0]});
                         return bytes ? ir::Dot8(ir::Int(0x01010101, DType::kI32), factor) : factor;
                       });
    shares = builder.Compute("shares", kElement, {v.batch, v.rows, runs}, [&](const std::vector<Expr>& i) {
      Expr sum = ir::Cast(ir::Load(sums, i), kElement);
      if (b.offsets < 0) sum = sum * ir::Const(-b.zero, kElement);
      return bytes ? sum * ScaleOfA(program, v, i[1], of_block(i[2])) : sum;
    });
  }
  return builder.Reduce("acc", kElement, {v.batch, v.rows, columns}, {runs}, ir::Combiner::kSum,
                        [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                          const std::vector<Expr> place = {Expr(0), panel_of(i[2]), of_block(r[0]), in_panel(i[2])};
                          const Expr scale = ir::Load(program.buffer(b.scales), place);
                          Expr sum = ir::Cast(ir::Load(part, {i[0], r[0], i[1], i[2]}), kElement);
                          if (bytes) sum = sum * ScaleOfA(program, v, i[1], of_block(r[0]));
                          if (!shares) return sum * scale;
                          const Expr share = ir::Load(shares, {i[0], i[1], r[0]});
                          return b.offsets < 0 ? (sum + share) * scale
                                               : sum * scale + share * ir::Load(program.buffer(b.offsets), place);
                        });
}

void ScheduleBlocks(Schedule& s, const GemmView& v, const GemmTile& tile, const Loop& chunk, const Loop& row_tile) {
  TileAccumulators(s, "acc", row_tile, 1, tile.lanes, 1);
  const std::vector<Loop> loops = s.Loops("acc");
  if (!s.status().ok()) return;
  const bool halves = v.numbers->per_byte > 1;
  TileAccumulators(s, "part", loops[loops.size() - 4], halves ? 2 : 1, tile.lanes, halves ? 2 : tile.unroll);
  UnrollAndFetch(s, v, tile);
  if (v.numbers->offsets < 0 && v.numbers->zero == 0) return;
  s.ComputeAt("shares", chunk);
  s.ComputeAt("sums_of_a", chunk);
  const std::vector<Loop> shared = s.Loops("shares"), summed = s.Loops("sums_of_a");
  if (!s.status().ok()) return;
  const auto lanes_of = [&](int64_t extent) { return std::gcd(extent, tile.lanes); };
  if (const int64_t lanes = lanes_of(s.Extent(shared.back())); lanes >= kFewestLanes)
    s.Vectorize(s.Split(shared.back(), lanes).second);
  if (const int64_t lanes = lanes_of(s.Extent(summed.back())); lanes >= kFewestLanes) {
    auto [rest, lane] = s.Split(summed.back(), lanes);
    s.DecomposeReduction("sums_of_a", rest);
    s.Vectorize(lane);
  }
}

}  // namespace nbits

namespace {

// Sums of numbers from zero on grow with their count, and what is left of them without the zero point's share does not:
// longer ones would round it away.
constexpr int64_t kLongestRun = 128;
int64_t RunOf(int64_t block, int64_t multiple) {
  for (int64_t run = kLongestRun; run >= 16; run -= multiple) {
    if (block % run == 0) return run;
  }
  return block;
}

// Where the operands of matmul_nbits and matmul_nbits_i8 are.
bool OfBytes(const Workload& w) { return w.calls[w.anchor].op == "matmul_nbits_i8"; }
size_t OffsetsAt(const Workload& w) { return OfBytes(w) ? 4 : 3; }
constexpr size_t kScalesOfA = 3;  // of bytes

// An operand of rank 0 stands for none.
bool HasOffsets(const Workload& w) {
  const std::vector<int>& args = w.calls[w.anchor].args;
  const size_t at = OffsetsAt(w);
  return args.size() > at && args[at] >= 0 && !w.TypeOf(args[at]).shape.empty();
}

bool Matches(const Workload& w, bool of_bytes) {
  const Workload::Call& call = w.calls[w.anchor];
  if (call.op != (of_bytes ? "matmul_nbits_i8" : "matmul_nbits") || w.anchor != 0 || !AnchorReadsElementwise(w))
    return false;
  const int inputs = static_cast<int>(w.inputs.size());
  for (size_t i = 1; i < call.args.size(); ++i) {
    const int arg = call.args[i];
    if (arg >= inputs || std::count(call.args.begin(), call.args.end(), arg) > 1) return false;
    const bool constant = !of_bytes || i != kScalesOfA;
    if (arg >= 0 && (w.inputs[arg].constant != constant || !w.inputs[arg].type.perm.empty())) return false;
  }
  const int64_t depth = w.TypeOf(call.args[0]).shape.back(), blocks = w.TypeOf(call.args[2]).shape[0];
  const int64_t of_element = of_bytes ? 4 * depth / w.TypeOf(call.args[1]).shape[0] : 2;  // a block has whole ones
  return depth / blocks % of_element == 0 && w.TypeOf(call.args[0]).perm.empty() && w.output().perm.empty();
}

GemmView ViewOf(const Workload& w, bool to_cache) {
  const Workload::Call& call = w.calls[w.anchor];
  GemmView v = MatmulView(w);
  const int64_t depth = w.TypeOf(call.args[0]).shape.back();
  v.reduction = {depth};
  NumbersOfB b;
  b.per_byte = depth / w.TypeOf(call.args[1]).shape[0];
  b.block = depth / w.TypeOf(call.args[2]).shape[0];
  b.scales = call.args[2], b.offsets = HasOffsets(w) ? call.args[OffsetsAt(w)] : -1;
  b.scales_of_a = OfBytes(w) ? call.args[kScalesOfA] : -1;
  b.run = RunOf(b.block, OfBytes(w) ? 4 * b.per_byte : 2);
  b.zero = static_cast<double>(call.attrs.Int("zero", 0));
  b.to_cache = to_cache;
  if (OfBytes(w)) v = OfIntegers(std::move(v), 4, /*in_place=*/true);
  v.numbers = b;
  return v;
}

CpuTemplate Template(std::string_view name, bool to_cache, std::function<bool(const Workload& w)> matches) {
  return {
      name,
      2,
      std::move(matches),
      [=](const Workload& w, const CpuTarget& t) { return GemmSpace(w, ViewOf(w, to_cache), t); },
      [=](const Workload& w, const Config& c, const CpuTarget& t) { return BuildGemm(w, ViewOf(w, to_cache), c, t); },
      [=](const Workload& w, const Config& c, const CpuTarget& t) {
        return GemmFootprint(w, ViewOf(w, to_cache), c, t);
      }};
}

}  // namespace

CpuTemplate MatmulNBits() {
  return Template("matmul.nbits", false, [](const Workload& w) {
    return Matches(w, false) && ViewOf(w, false).rows <= nbits::kMostInRegisters;
  });
}
CpuTemplate MatmulNBitsCached() {
  return Template("matmul.nbits_cached", true, [](const Workload& w) { return Matches(w, false); });
}
CpuTemplate MatmulNBitsI8() {
  return Template("matmul.nbits_i8", false, [](const Workload& w) { return Matches(w, true); });
}

}  // namespace temper
