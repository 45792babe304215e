// A workload as stages, one after another, each a block under a naive nest; and what templates ask of blocks before
// they lay out loops.
#pragma once

#include <optional>
#include <span>

#include "compiler/ir/simplify.h"
#include "compiler/ops/templates/templates.h"

namespace temper {

bool HasTensorExpressions(const Workload& w);  // all its calls
// The last stage is "out", in the physical order of the workload's result.
absl::StatusOr<ir::Func> BuildStages(const Workload& w);

// Whether the anchor, which comes first, is the sum or mean of each channel of an operand with channels last, of one of
// the types, over at least `fewest` pixels; what follows is elementwise.
bool SumsPixels(const Workload& w, std::span<const DType> types, int64_t fewest);

// The block's statement in the function.
ir::Stmt BlockNamed(const ir::Func& func, const std::string& name);
// Every access of a block as a flat element index over its iterators; a reduction's own accumulator is left out.
std::vector<ir::Expr> Accesses(const ir::Stmt& block, bool with_store);
// Coefficient of `v` in `e`; nullopt if not linear.
std::optional<int64_t> Stride(const ir::Expr& e, const ir::Var& v, const ir::Simplifier& simplifier);
// How many of the block's innermost iterators, of one kind and from `first` on at most, can be fused into one that
// walks all accesses with stride 0 or 1, or `any_stride`; none if not even the last does.
size_t FusibleSuffix(const ir::Stmt& block, size_t first, bool with_store, bool any_stride = false);

// Whether the innermost iterator that does not reduce walks all that the block touches with stride 0 or 1.
bool RunsAlongMemory(const ir::Stmt& block);

// How many of the outermost loops all stages share: their results have these dimensions of the output, and a stage
// reads another's only at the very point of them that it writes. `any_one`: a dimension of one element has one point,
// however it is written.
size_t SharedLoops(const ir::Func& func, bool any_one = false);

// Units of work for each thread that leave none without any for long.
inline constexpr int64_t kChunksEach = 16;
// How many of the loops, outermost first, give threads enough to share: all, if they are too few.
size_t LoopsToShare(Schedule& s, const std::vector<Loop>& loops, const CpuTarget& t);
// Of loops directly inside one another, outermost first.
Loop FuseAll(Schedule& s, const std::vector<Loop>& loops);
std::vector<Loop> Innermost(const std::vector<Loop>& loops, size_t count);  // the last `count` of them
// Steps on the way to a stage, the last one first, are made in registers under `loop`.
void InRegisters(Schedule& s, const std::vector<std::string>& steps, const Loop& loop);

}  // namespace temper
