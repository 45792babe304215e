// The rewrites themselves, as functions from a scheduled function to another: Schedule adds the sticky status.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "compiler/schedule/nest.h"

namespace temper::rewrites {

using ir::Func;
using ir::Var;

// The rewritten function and the handles that the rewrite hands out.
template <typename T>
struct Result {
  Func func;
  T value;
};
using nest::LoopCopies;  // where a rewrite duplicates nests

inline absl::Status Refuse(const std::string& why) { return absl::FailedPreconditionError(why); }

// loops.cc
absl::StatusOr<Result<std::pair<Var, Var>>> Split(const Func& f, const Var& loop, int64_t factor);
absl::StatusOr<Result<Var>> Fuse(const Func& f, const Var& outer, const Var& inner);
absl::StatusOr<Result<Var>> AddLoop(const Func& f, const std::string& block);
absl::StatusOr<Func> Reorder(const Func& f, const std::vector<Var>& order);
absl::StatusOr<Func> Annotate(const Func& f, const Var& loop, ir::ForKind kind);

// partition.cc
absl::StatusOr<Result<LoopCopies>> Partition(const Func& f, const Var& loop);

// peel.cc
struct Peeled {
  std::array<Var, 3> parts;  // first, middle, last; null where there is none
  LoopCopies copies;
};
absl::StatusOr<Result<Peeled>> Peel(const Func& f, const Var& loop, int64_t first, int64_t last);

// blocks.cc
absl::StatusOr<Func> Inline(const Func& f, const std::string& block);
absl::StatusOr<Func> ComputeAt(const Func& f, const std::string& block, const Var& loop);
absl::StatusOr<Func> ReverseComputeAt(const Func& f, const std::string& block, const Var& loop);

// buffers.cc
absl::StatusOr<Result<std::string>> CacheRead(const Func& f, const std::string& block, const std::string& buffer,
                                              ir::Scope scope);
absl::StatusOr<Result<std::string>> CacheWrite(const Func& f, const std::string& block, ir::Scope scope);
absl::StatusOr<Func> SetScope(const Func& f, const std::string& block, ir::Scope scope);
absl::StatusOr<Func> TransformLayout(const Func& f, const std::string& block, const Shape& shape,
                                     const std::function<std::vector<ir::Expr>(const std::vector<ir::Expr>&)>& map);
absl::StatusOr<Func> Prefetch(const Func& f, const std::string& block, const std::string& buffer, const Var& loop,
                              std::vector<ir::VarBinding> at, const std::vector<Var>& each);

// double_buffer.cc
absl::StatusOr<Func> DoubleBuffer(const Func& f, const std::string& block, const Var& loop);
absl::StatusOr<Func> Pipeline(const Func& f, const std::vector<std::string>& blocks, const Var& loop, int depth);

// reductions.cc
absl::StatusOr<Result<std::string>> DecomposeReduction(const Func& f, const std::string& block, const Var& loop);
absl::StatusOr<Result<std::pair<std::string, std::string>>> Rfactor(const Func& f, const std::string& block,
                                                                    const Var& loop);

}  // namespace temper::rewrites
