// What the products by NVIDIA's tensor cores share, whoever of a group's threads gives the instruction: which workloads
// they are for, and how all threads of a group copy operands to shared memory.
#pragma once

#include <span>

#include "compiler/ops/templates/gpu_contraction.h"

namespace temper {

inline constexpr int64_t kLaneRows = 8, kLaneColumns = 4;  // a warp's lanes along y and x
inline constexpr int64_t kLeastAsyncCopy = 4;              // bytes

// Dense and batched matmul and convolutions of one of the types; of f32 where it may be rounded to TF32.
bool IsTensorProduct(const Workload& w, std::span<const DType> types);
GemmView TensorView(const Workload& w);

// Elements of the widest copies that a run divides into.
int64_t CopiedAtOnce(DType type, const Run& run);
// A value under several conditions, each of them with zero for else, under one for all: what a copy takes.
ir::Expr UnderOneCondition(ir::Expr value);

void BindWarps(Schedule& s, const Loop& warp, const Loop& y, const Loop& x);
// What all threads of a group bring for `stage`, whose last three dimensions are rows, their runs and elements of
// these, `lanes` at a time: neighbouring threads neighbouring runs. The loops of what a thread brings in turn, and of
// what it brings at once.
struct DealtRuns {
  Loop turn, lane;
};
DealtRuns DealRuns(Schedule& s, const std::string& stage, int64_t threads, int64_t lanes);
void ScheduleCopies(Schedule& s, const std::string& stage, int64_t threads, int64_t lanes);  // that are copies

}  // namespace temper
