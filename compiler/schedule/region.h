// What part of a buffer a nest touches: one range a dimension, from a start written over the loops around the nest.
#pragma once

#include <optional>
#include <vector>

#include "compiler/schedule/nest.h"

namespace temper::nest {

struct Range {
  Expr min;
  int64_t extent;
};
using Region = std::vector<Range>;

// The range of `index` while the variables `inner` take all their values and the other variables stand still. nullopt
// if it can not be told: the index is not affine, or is gathered through a load. `simplifier` knows the ranges of all
// variables.
std::optional<Range> RangeOf(const Expr& index, const ir::Simplifier& simplifier, const VarSet& inner);
// The least range that covers both; nullopt if the difference of their starts is not a constant.
std::optional<Range> Union(const Range& a, const Range& b, const ir::Simplifier& simplifier);
// The range cut to [0, dim) if its start is a constant. The whole of it if nothing is known or the range is no smaller.
Range Clip(const std::optional<Range>& range, int64_t dim);
bool IsWhole(const Range& range, int64_t dim);
bool SameStart(const Range& a, const Range& b, const ir::Simplifier& simplifier);

// The loops whose iterations the values of `bindings` do not tell apart, at points where `predicate` holds (an empty
// one always does). Of the other loops it is shown that two iterations never give the same values. A loop of one
// iteration is always told. `simplifier` knows the ranges of the loops.
std::vector<Stmt> UntoldLoops(const std::vector<Expr>& bindings, const Expr& predicate, const std::vector<Stmt>& loops,
                              const ir::Simplifier& simplifier);
// Whether no two such points of `loops` give the same values.
bool IsInjective(const std::vector<Expr>& bindings, const Expr& predicate, const std::vector<Stmt>& loops,
                 const ir::Simplifier& simplifier);

// Whether every block that touches the buffer is below the loop, so that each iteration may have a buffer of its own.
bool UsedOnlyIn(const Stmt& loop, const Func& f, const Buffer& buffer);

// Parallel, group and thread loops whose iterations write what no other iteration writes, or scratch of their own: any
// of a parallel loop, what is not in memory of a group loop, registers of a thread loop. The error names the loop.
absl::Status CheckRaces(const Func& f);

// Collects accesses to one buffer into the region that covers them all, unclipped.
class RegionUnion {
 public:
  RegionUnion(const ir::Simplifier& simplifier, const VarSet& inner) : simplifier_(simplifier), inner_(inner) {}
  void Add(const std::vector<Expr>& indices) { Add(indices, simplifier_); }
  // `within` knows more of the loops: what holds where the access is.
  void Add(const std::vector<Expr>& indices, const ir::Simplifier& within);
  bool empty() const { return !started_; }
  // One a dimension; nullopt where it is not known.
  const std::vector<std::optional<Range>>& ranges() const { return ranges_; }

 private:
  const ir::Simplifier& simplifier_;
  const VarSet& inner_;
  bool started_ = false;
  std::vector<std::optional<Range>> ranges_;
};

}  // namespace temper::nest
