// The rules of the simplify pass, by family; each file's list is applied in order to every node.
#pragma once

#include <optional>

#include "compiler/graph/passes/rewriter.h"

namespace temper::passes {

std::span<const Rewriter::Rule> AffineRules();  // simplify_affine.cc: multiplications and additions of constants
std::span<const Rewriter::Rule> NormRules();    // simplify_norm.cc: norms written out
std::span<const Rewriter::Rule> BranchRules();  // simplify_branches.cc: sums of convolutions of one image
std::span<const Rewriter::Rule> MoveRules();    // simplify_move.cc: reshapes, transposes, pads
std::span<const Rewriter::Rule> OrderRules();   // simplify_order.cc: what may come before moves
// simplify_quantised.cc: what is rounded to integers and read back
std::span<const Rewriter::Rule> QuantisedRules();

std::span<const Rewriter::Rule> FinalRules();      // simplify_final.cc: what would hide from the other rules, so last
absl::StatusOr<bool> SplitContractions(Graph& g);  // whether it changed anything

// `op` of two known arrays, by its reference.
absl::StatusOr<NDArray> Evaluate(std::string_view op, const NDArray& a, const NDArray& b);
// clip(round(x)) or clip(round(x) + shift), of a constant.
struct RoundedClip {
  const Node *add, *round;  // add: null where there is none
  double low, high, shift = 0;
};
std::optional<RoundedClip> RoundedClipAt(const Rewriter& r, ValueId v);

// The constant's only distinct value; nullopt if it has several.
std::optional<double> Uniform(const NDArray* a);

}  // namespace temper::passes
