#include "compiler/ops/templates/gpu_tensor.h"

#include <algorithm>

#include "compiler/ir/launch.h"
#include "compiler/ops/templates/conv2d_shape.h"
#include "compiler/ops/templates/element.h"
#include "compiler/ops/templates/gpu_gemm.h"
#include "compiler/ops/templates/stages.h"
#include "compiler/ops/tf32.h"

namespace temper {

using ir::Expr;
using ir::ForKind;

GemmView TensorView(const Workload& w) { return IsGpuConv(w, ElementOf(w)) ? GpuConvView(w) : MatmulView(w); }

bool IsTensorProduct(const Workload& w, std::span<const DType> types) {
  const auto multiplies = [&](DType type) {
    return (type != DType::kF32 || AllowsTf32(w.calls[w.anchor].attrs)) && (IsMatmulOf(w, type) || IsGpuConv(w, type));
  };
  return std::ranges::any_of(types, multiplies) && GpuGemmFits(TensorView(w));
}

int64_t CopiedAtOnce(DType type, const Run& run) {
  int64_t lanes = ir::QuarterColumns(type);
  while (run.length % lanes != 0) lanes /= 2;
  return lanes;
}

Expr UnderOneCondition(Expr value) {
  std::vector<Expr> conditions;
  for (; value->kind == ir::ExprKind::kSelect; value = value->args[1]) {
    if (!ir::StructurallyEqual(value, ValueWhere({value->args[0]}, value->args[1]))) break;
    conditions.push_back(value->args[0]);
  }
  return ValueWhere(conditions, value);
}

void BindWarps(Schedule& s, const Loop& warp, const Loop& y, const Loop& x) {
  s.Bind(warp, ForKind::kThreadZ);
  s.Bind(y, ForKind::kThreadY);
  s.Bind(x, ForKind::kThreadX);
}

DealtRuns DealRuns(Schedule& s, const std::string& stage, int64_t threads, int64_t lanes) {
  const std::vector<Loop> loops = s.Loops(stage);
  if (!s.status().ok()) return {};
  const std::vector<Loop> inner = Innermost(loops, 3);
  auto [parts, lane] = s.Split(inner[2], lanes);
  auto [turn, thread] = s.Split(FuseAll(s, {inner[0], inner[1], parts}), threads);
  auto [rows, x] = s.Split(thread, kLaneColumns);
  auto [warp, y] = s.Split(rows, kLaneRows);
  s.Reorder({warp, y, x, turn, lane});
  BindWarps(s, warp, y, x);
  return {turn, lane};
}

void ScheduleCopies(Schedule& s, const std::string& stage, int64_t threads, int64_t lanes) {
  const auto [turn, lane] = DealRuns(s, stage, threads, lanes);
  s.Unroll(turn);
  s.Vectorize(lane);
}

}  // namespace temper
