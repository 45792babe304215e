#include "compiler/ops/templates/gpu_tensor_plan.h"

#include <algorithm>

#include "compiler/ops/templates/element.h"
#include "compiler/ops/templates/gpu_gemm.h"
#include "compiler/ops/templates/stages.h"
#include "compiler/ops/rounded_products.h"

namespace temper {
namespace {

using ir::Expr;

double Count(int64_t n) { return static_cast<double>(n); }

std::vector<Shape> Packed(const Workload& w, const GemmView& v, const TensorPlan& p) {
  return PackedShapes(w, v, p.tile.split * p.tiles.steps * p.tile.bk, p.tiles.columns * p.tile.bn());
}

}  // namespace

GemmView TensorView(const Workload& w) { return IsGpuConv(w, ElementOf(w)) ? GpuConvView(w) : MatmulView(w); }

bool IsTensorProduct(const Workload& w, std::span<const DType> types) {
  const auto multiplies = [&](DType type) {
    return (type != DType::kF32 || AllowsTf32(w.calls[w.anchor].attrs)) && (IsMatmulOf(w, type) || IsGpuConv(w, type));
  };
  return std::ranges::any_of(types, multiplies) && GpuGemmFits(TensorView(w));
}

TensorPlan::TensorPlan(const TensorTile& tile, const GemmView& v, const Run& of_a, const Run& of_b)
    : tile(tile), tiles(v, tile), a("a_shared", of_a, tile.bm(), tile), b("b_shared", of_b, tile.bn(), tile) {}

int64_t TensorPlan::copies_at_once() const {
  const auto of = [&](const TensorOperand& o) { return o.at_once() ? o.copies() / tile.threads() : 0; };
  return of(a) + of(b);
}

TensorPlans PlansOf(const Workload& w, const GemmView& v, int64_t warps) {
  return [type = ElementOf(w), warps, v, a = RunOfA(w, v), b = RunOfB(w, v)](const Config& c) {
    return TensorPlan(TensorTile(type, warps, c), v, a, b);
  };
}

void RequireTensorTiles(ConfigSpace& space, const GemmView& v, const TensorPlans& plan, const GpuTarget& t,
                        int64_t least_columns) {
  space.Require("threads of a group",
                [plan, most = t.group_threads](const Config& c) { return plan(c).tile.threads() <= most; });
  space.Require("the tile is much larger than the result",
                [plan, least_columns, rows = v.rows, columns = v.columns](const Config& c) {
                  const TensorTile tile = plan(c).tile;
                  return (tile.wm * tile.tm == 1 || tile.bm() < 2 * rows) &&
                         (tile.wn * tile.tn <= least_columns || tile.bn() < 2 * columns);
                });
  space.Require("a step is much longer than the reduction", [plan, k = ReductionLength(v)](const Config& c) {
    const TensorTile tile = plan(c).tile;
    return tile.bk == tile.depth() || tile.bk < 2 * k;
  });
  space.Require("too many groups along an axis", [plan](const Config& c) {
    const TensorTiles tiles = plan(c).tiles;
    return tiles.columns <= kMostOfAxis && tiles.slices <= kMostOfAxis;
  });
  space.Require("a part of the reduction has no step", [plan, k = ReductionLength(v)](const Config& c) {
    const TensorPlan p = plan(c);
    return (p.tile.split - 1) * p.tiles.steps * p.tile.bk < k;
  });
  space.Require("there are groups enough without more parts of the reduction",
                [plan, most = MostSplitGroups(t)](const Config& c) {
                  const TensorPlan p = plan(c);
                  return p.tile.split == 1 || p.tiles.slices * p.tiles.rows * p.tiles.columns <= most;
                });
  // Of copies at once none is ahead.
  space.Require("a stage for each of a few steps, and one stage for one alone", [plan](const Config& c) {
    const TensorPlan p = plan(c);
    return p.tile.stages <= p.tiles.steps &&
           (p.tile.stages == 1) == (p.tiles.steps == 1 || p.a.at_once() || p.b.at_once());
  });
  space.Require("a thread copies much at once",
                [plan](const Config& c) { return plan(c).copies_at_once() <= kMostAtOnce; });
  space.Require("a step is no whole round of the threads", [plan](const Config& c) {
    const TensorPlan p = plan(c);
    return p.a.copies() % p.tile.threads() == 0 && p.b.copies() % p.tile.threads() == 0;
  });
}

// Elements of the product. Where the reduction is split, the first launch makes the slices, "partial"; who asks for an
// element in the second one adds up its slices, "total".
static ProductElement Product(ir::ProgramBuilder& b, const GemmView& v, const TensorPlan& p, const ir::Buffer& sums) {
  const TensorTile& tile = p.tile;
  if (tile.split == 1) {
    return [sums, tile](const Expr& batch, const Expr& row, const Expr& column) {
      return TensorSumAt(sums, tile, batch, row, column);
    };
  }
  const ir::Buffer partial =
      b.Compute("partial", kElement, {p.tiles.slices, v.rows, v.columns},
                [&](const std::vector<Expr>& i) { return TensorSumAt(sums, tile, i[0], i[1], i[2]); });
  return SumOfSlices(b, v, tile.split, partial);
}

absl::StatusOr<ir::Func> TensorProgram(const std::string& name, const Workload& w, const GemmView& v,
                                       const TensorPlan& p) {
  const auto& [tile, tiles, a, b] = p;
  ir::ProgramBuilder builder(name);
  WorkloadProgram program(w, builder, Packed(w, v, p));
  const ir::Buffer of_a = a.Stage(builder, v.batch, tiles.rows, tiles.steps,
                                  PaddedA(program, builder, v, a.padded(tiles.rows, tiles.steps)));
  const ir::Buffer of_b = b.Stage(builder, v.b_batched ? v.batch : 1, tiles.columns, tiles.steps,
                                  PaddedB(w, program, v, b.padded(tiles.columns, tiles.steps)));
  const ir::Buffer sums =
      TensorSums(builder, "acc", tile, tiles,
                 [&](const std::vector<Expr>& i, const Expr& step, const Expr& row, const Expr& column, const Expr& k) {
                   const Expr slice_b = v.b_batched ? i[0] : i[0] % Expr(p.tile.split);
                   return std::pair(p.a.Element(of_a, {i[0], i[1], step}, row, k),
                                    p.b.Element(of_b, {slice_b, i[2], step}, column, k));
                 });
  const ProductElement product = Product(builder, v, p, sums);
  TEMPER_RETURN_IF_ERROR(MarkOut(w, v, program, builder, [&](const Expr& batch, const Expr& row, const Expr& column) {
    return ir::Cast(product(batch, row, column), p.tile.type);
  }));
  return builder.Finish();
}

SumLoops ScheduleTensorProgram(Schedule& s, const GemmView& v, const TensorPlan& p,
                               const std::function<void(const TensorOperand&)>& copied) {
  const bool whole = p.tile.split == 1;
  const char* stored = whole ? "out" : "partial";
  const std::vector<GemmAxis> axes =
      whole ? OutAxes(v) : std::vector<GemmAxis>{GemmAxis::kBatch, GemmAxis::kRow, GemmAxis::kColumn};
  const bool vectors = StoresRuns(s, stored, axes, v.columns, 2);
  const auto [batches, row, column] = LoopsByAxis(s.Loops(stored), axes);
  std::vector<Loop> order = batches;
  order.insert(order.end(), {row, column});
  s.Reorder(order);
  const TileLoops tiles = ScheduleTakers(s, p.tile, row, column, vectors);
  s.Reorder({tiles.column, tiles.row});
  BindGroups(s, batches, tiles.row, tiles.column);
  const SumLoops loops = ScheduleTensorSums(s, "acc", p.a.stage, p.b.stage, tiles.row);
  for (const TensorOperand* operand : {&p.a, &p.b}) {
    ScheduleCopies(s, operand->stage, p.tile.threads(), operand->lanes());
    copied(*operand);
  }
  if (p.tile.stages > 1) s.Pipeline({p.a.stage, p.b.stage}, loops.step, static_cast<int>(p.tile.stages));
  if (!whole) ScheduleSumOfSlices(s, v, p.tile.threads());
  return loops;
}

absl::StatusOr<std::vector<ir::Func>> TensorPacks(const Workload& w, const GemmView& v, const TensorPlan& p) {
  return PackB(w, v, Packed(w, v, p));
}

GpuFootprint TensorFootprint(const Workload& w, const GemmView& v, const TensorPlan& p, double registers,
                             double shared_bytes, const GpuTarget& t) {
  const TensorTile& tile = p.tile;
  const int64_t brought = tile.bytes() * (tile.bm() + tile.bn());  // of a group, for each step of the reduction
  GpuFootprint f;
  f.groups = Count(p.tiles.slices * p.tiles.rows * p.tiles.columns);
  f.group_threads = Count(tile.threads());
  f.reduction = Count(p.tiles.steps * tile.bk);
  f.flops = 2 * Count(v.batch * v.rows * v.columns * ReductionLength(v));
  f.padded_flops = 2 * f.groups * Count(tile.bm() * tile.bn()) * f.reduction;
  f.compulsory_bytes = CompulsoryBytes(w);
  f.vector_lanes = Count(std::min(p.a.lanes(), p.b.lanes()));
  f.accumulators = Count(tile.sums());
  f.registers = registers;
  f.shared_bytes = shared_bytes;
  f.shared_traffic = f.groups * f.reduction * Count(brought);
  f.barriers = Count(p.tiles.steps) * (tile.stages > 1 || p.tiles.steps == 1 ? 1 : 2);
  f.round_trips = Count(p.tiles.steps);
  f.trips_ahead = Count(tile.stages - 1);
  f.in_flight_bytes = Count(brought * tile.bk * std::max<int64_t>(tile.stages - 1, 1)) / f.group_threads;
  const double results = Count(tile.bytes() * v.batch * v.rows * v.columns);
  AddOperandTraffic(f, v, {p.tiles.slices, p.tiles.rows, p.tiles.columns, tile.bm(), tile.bn(), tile.bytes()},
                    f.compulsory_bytes - results, t);
  double written = results;
  if (tile.split > 1) {
    f.launches = 2;
    written += 2 * Count(kElementBytes * p.tiles.slices * v.rows * v.columns);  // slices, written and read
  }
  f.memory_traffic = std::max(f.memory_traffic + written, f.compulsory_bytes);
  f.cache_traffic += written;
  return f;
}

}  // namespace temper
