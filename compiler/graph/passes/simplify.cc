#include "compiler/graph/passes/simplify.h"

#include "compiler/graph/passes/passes.h"

namespace temper::passes {

absl::StatusOr<NDArray> Evaluate(std::string_view op, const NDArray& a, const NDArray& b) {
  const OpDef* def = FindOp(op);
  const TensorType types[] = {{a.dtype(), a.shape(), {}}, {b.dtype(), b.shape(), {}}};
  TEMPER_ASSIGN_OR_RETURN(TensorType out, def->infer({}, types));
  const NDArray args[] = {a, b};
  return def->reference({}, args, out);
}

std::optional<double> Uniform(const NDArray* a) {
  if (a == nullptr || a->size() == 0) return std::nullopt;
  const double first = a->At(0);
  for (int64_t i = 1; i < a->size(); ++i) {
    if (a->At(i) != first) return std::nullopt;
  }
  return first;
}

absl::Status Simplify(Graph& g) {
  std::vector<Rewriter::Rule> rules;
  for (std::span<const Rewriter::Rule> family :
       {MoveRules(), OrderRules(), NormRules(), AffineRules(), BranchRules(), QuantisedRules()}) {
    rules.insert(rules.end(), family.begin(), family.end());
  }
  Rewriter rewriter(g);
  TEMPER_RETURN_IF_ERROR(rewriter.Run(rules).status());
  TEMPER_ASSIGN_OR_RETURN(bool split, SplitContractions(g));
  if (split) TEMPER_RETURN_IF_ERROR(rewriter.Run(rules).status());
  return rewriter.Run(FinalRules()).status();
}

}  // namespace temper::passes
