// A workload that is one product by NVIDIA's tensor cores: what gpu.mma and gpu.wgmma share.
#pragma once

#include <span>

#include "compiler/ops/templates/gpu_tensor.h"

namespace temper {

// Dense and batched matmul and convolutions of one of the types; of f32 where it may be rounded to TF32.
bool IsTensorProduct(const Workload& w, std::span<const DType> types);
GemmView TensorView(const Workload& w);

struct TensorPlan {
  TensorTile tile;
  TensorTiles tiles;
  TensorOperand a, b;

  TensorPlan(const TensorTile& tile, const GemmView& v, const Run& of_a, const Run& of_b);
  int64_t copies() const { return (a.copies() + b.copies()) / tile.threads(); }  // of a thread, in a step
  int64_t copies_at_once() const;                                                // of these, those through registers
};
using TensorPlans = std::function<TensorPlan(const Config&)>;
TensorPlans PlansOf(const Workload& w, const GemmView& v, int64_t warps);  // `warps` of a team

// What is required of a config whoever multiplies, beside shared memory and registers. Tiles of up to `least_columns`
// matrices beside each other are never too large.
void RequireTensorTiles(ConfigSpace& space, const GemmView& v, const TensorPlans& plan, const GpuTarget& t,
                        int64_t least_columns);

// The stages "a_shared", "b_shared", "acc" and "out".
absl::StatusOr<ir::Func> TensorProgram(const std::string& name, const Workload& w, const GemmView& v,
                                       const TensorPlan& p);
// All of them but the instructions: `copied` may lay out a stage whose copies are scheduled.
SumLoops ScheduleTensorProgram(Schedule& s, const GemmView& v, const TensorPlan& p,
                               const std::function<void(const TensorOperand&)>& copied);
absl::StatusOr<std::vector<ir::Func>> TensorPacks(const Workload& w, const GemmView& v, const TensorPlan& p);

// All but instructions, and the rates of those that multiply. Its shared traffic is what is written: who multiplies
// adds what it reads.
GpuFootprint TensorFootprint(const Workload& w, const GemmView& v, const TensorPlan& p, double registers,
                             double shared_bytes, const GpuTarget& t);

}  // namespace temper
