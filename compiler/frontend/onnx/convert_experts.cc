// com.microsoft's mixture of experts: each token goes through the few networks that its router scores highest.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/formula.h"
#include "compiler/frontend/onnx/places.h"
#include "compiler/frontend/onnx/language.h"

namespace temper::onnx_frontend {
namespace {

enum ExpertOperand : size_t { kInput, kRouter, kFirst, kFirstBias, kSecond, kSecondBias, kThird, kThirdBias };

struct Experts {
  int64_t tokens = 0, hidden = 0, inner = 0, count = 0, chosen = 0;
  // Whether the weights of the chosen are gathered, token by token. All experts work for all tokens where that is less.
  bool gathers = false;
  ValueId places = kNoValue;  // [tokens * chosen], in i32
};

struct ExpertActivation {
  std::string type;
  int64_t fusion = 0;  // how gate and value lie in one product: apart (0), by turns (1), one behind the other (2)
  bool is_gated() const { return type == "swiglu" || type == "geglu"; }
};

absl::StatusOr<ExpertActivation> ExpertActivationOf(const OnnxNode& n) {
  constexpr std::string_view kTypes[] = {"relu", "relu2", "gelu", "silu", "identity", "swiglu", "geglu"};
  const ExpertActivation a{n.String("activation_type", "relu"), n.Int("swiglu_fusion", 0)};
  if (std::ranges::count(kTypes, a.type) == 0)
    return absl::UnimplementedError(absl::StrCat("activation_type '", a.type, "' is not supported"));
  if (a.fusion < 0 || a.fusion > 2) return absl::InvalidArgumentError("swiglu_fusion is 0, 1 or 2");
  if (a.is_gated() && (n.Input(kThird) == kNoValue) != (a.fusion != 0))
    return absl::InvalidArgumentError("a gated activation has a third weight, or a fused first one");
  for (const char* name : {"use_sparse_mixer", "swiglu_limit_after_activation"}) {
    if (n.Int(name, 0) != 0) return absl::UnimplementedError(absl::StrCat(name, " is not supported"));
  }
  return a;
}

absl::StatusOr<Experts> ExpertsOf(Context& c, const OnnxNode& n, const ExpertActivation& a) {
  if (n.Input(kSecond) == kNoValue) return absl::InvalidArgumentError("operand 4 is missing");
  const Shape x = c.ShapeOf(n.Input(kInput)), router = c.ShapeOf(n.Input(kRouter));
  const Shape first = c.ShapeOf(n.Input(kFirst)), second = c.ShapeOf(n.Input(kSecond));
  if ((x.size() != 2 && x.size() != 3) || NumElements(x) < 1 || router.size() != 2 || second.size() != 3)
    return absl::InvalidArgumentError("takes tokens of [tokens, hidden], and a score for each token and expert");
  Experts e{NumElements(x) / x.back(), x.back(), second[2], router[1], n.Int("k", 1), false, kNoValue};
  const int64_t rows = e.inner * (a.is_gated() && a.fusion != 0 ? 2 : 1);
  if (router[0] != e.tokens || e.chosen < 1 || e.chosen > e.count)
    return absl::InvalidArgumentError("there is a score for each token and expert, and k is at most the experts");
  const std::pair<size_t, Shape> wanted[] = {
      {kFirst, {e.count, rows, e.hidden}},     {kFirstBias, {e.count, rows}},
      {kSecond, {e.count, e.hidden, e.inner}}, {kSecondBias, {e.count, e.hidden}},
      {kThird, {e.count, e.inner, e.hidden}},  {kThirdBias, {e.count, e.inner}},
  };
  for (const auto& [operand, shape] : wanted) {
    if (n.Input(operand) != kNoValue && c.ShapeOf(n.Input(operand)) != shape)
      return absl::InvalidArgumentError(absl::StrCat("operand ", operand, " is [", ShapeText(shape), "]"));
  }
  e.gathers = e.tokens * e.chosen < e.count;
  return e;
}

// The shares of the chosen experts, [tokens, chosen, 1, 1], or of all, [count, tokens, 1], with nothing for the others.
absl::StatusOr<ValueId> Shares(Context& c, const OnnxNode& n, Experts& e) {
  const DType dtype = c.TypeOf(n.Input(kRouter)).dtype;
  Formula f(c, dtype);
  Attrs last, first;
  last.Set("axis", int64_t{1});
  first.Set("k", e.chosen);
  first.Set("largest", int64_t{1});
  const ValueId all = f.Call("softmax", {n.Input(kRouter)}, std::move(last));
  const ValueId chosen = f.Call("top_k", {n.Input(kRouter)}, std::move(first));
  TEMPER_RETURN_IF_ERROR(f.status());
  TEMPER_ASSIGN_OR_RETURN(ValueId share, GatherInLines(c, all, chosen));
  if (n.Int("normalize_routing_weights", 0) != 0) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId sum, c.Reduce("reduce_sum", share, {1}, true));
    share = f.Div(share, sum);
  }
  TEMPER_RETURN_IF_ERROR(f.status());
  TEMPER_ASSIGN_OR_RETURN(e.places, c.Reshape(chosen, {e.tokens * e.chosen}));
  if (e.gathers) return c.Reshape(share, {e.tokens, e.chosen, 1, 1});
  TEMPER_ASSIGN_OR_RETURN(share, c.Reshape(share, {1, e.tokens, e.chosen}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId places, c.Reshape(e.places, {1, e.tokens, e.chosen}));
  const ValueId there = f.Call("equal", {places, Counting(c, c.TypeOf(places).dtype, {e.count, 1, 1})});
  share = f.Call("where", {there, share, f.Number(0)});
  TEMPER_RETURN_IF_ERROR(f.status());
  return c.Reduce("reduce_sum", share, {2}, true);
}

// The products of tokens with an operand's matrices: [tokens, chosen, 1, rows], or [count, tokens, rows] of all
// experts.
absl::StatusOr<ValueId> ProductOfExperts(Context& c, const OnnxNode& n, const Experts& e, ValueId x,
                                         ExpertOperand weight, ExpertOperand bias) {
  ValueId matrices = n.Input(weight), added = n.Input(bias);
  const Shape shape = c.ShapeOf(matrices);
  if (e.gathers) {
    TEMPER_ASSIGN_OR_RETURN(matrices, c.Gather(matrices, e.places, 0));
    TEMPER_ASSIGN_OR_RETURN(matrices, c.Reshape(matrices, {e.tokens, e.chosen, shape[1], shape[2]}));
  }
  Attrs across;
  across.Set("trans_b", int64_t{1});
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, c.Call("matmul", std::move(across), {x, matrices}));
  if (added == kNoValue) return v;
  if (e.gathers) {
    TEMPER_ASSIGN_OR_RETURN(added, c.Gather(added, e.places, 0));
    TEMPER_ASSIGN_OR_RETURN(added, c.Reshape(added, {e.tokens, e.chosen, 1, shape[1]}));
  } else {
    TEMPER_ASSIGN_OR_RETURN(added, c.NewAxis(added, 1));
  }
  return c.Call("add", {}, {v, added});
}

struct Gate {
  ValueId gate, value;
};
// The two halves of what one product gives, along its last axis.
absl::StatusOr<Gate> Halves(Context& c, ValueId v, int64_t inner, bool by_turns) {
  Shape shape = c.ShapeOf(v);
  const int64_t last = std::ssize(shape) - 1;
  shape.back() = by_turns ? inner : 2;
  shape.push_back(by_turns ? 2 : inner);
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, std::move(shape)));
  const int64_t axis = by_turns ? last + 1 : last;
  Gate g{};
  TEMPER_ASSIGN_OR_RETURN(g.gate, c.Element(v, axis, 0));
  TEMPER_ASSIGN_OR_RETURN(g.value, c.Element(v, axis, 1));
  return g;
}

ValueId Activated(Context& c, Formula& f, const OnnxNode& n, const std::string& type, Gate g) {
  Attrs tanh;
  tanh.Set("approximate", std::string("tanh"));
  if (type == "swiglu") {
    if (n.Has("swiglu_limit")) {
      const double limit = n.Float("swiglu_limit", 0);
      g.gate = f.Call("min", {g.gate, f.Number(limit)});
      g.value = f.Clip(g.value, -limit, limit);
    }
    const ValueId share = f.Call("sigmoid", {f.Times(g.gate, n.Float("activation_alpha", 1))});
    return f.Mul(f.Mul(g.gate, share), f.Plus(g.value, n.Float("activation_beta", 0)));
  }
  ValueId v = g.gate;
  if (type == "relu" || type == "relu2") v = f.Call("relu", {v});
  if (type == "relu2") v = f.Mul(v, v);
  if (type == "silu") v = f.Mul(v, f.Call("sigmoid", {v}));
  if (type == "gelu" || type == "geglu") v = f.Call("gelu", {v}, std::move(tanh));
  return g.value == kNoValue ? v : f.Mul(v, g.value);
}

}  // namespace

absl::Status MixtureOfExperts(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const ExpertActivation a, ExpertActivationOf(n));
  TEMPER_ASSIGN_OR_RETURN(Experts e, ExpertsOf(c, n, a));
  TEMPER_ASSIGN_OR_RETURN(const ValueId share, Shares(c, n, e));
  const DType dtype = c.TypeOf(n.Input(kInput)).dtype;
  const Shape given = c.ShapeOf(n.Input(kInput));
  Formula f(c, dtype);
  ValueId x = n.Input(kInput);
  if (e.gathers) {
    TEMPER_ASSIGN_OR_RETURN(x, c.Reshape(x, {e.tokens, 1, 1, e.hidden}));
  } else {
    TEMPER_ASSIGN_OR_RETURN(x, c.Reshape(x, {1, e.tokens, e.hidden}));
  }
  Gate g{kNoValue, kNoValue};
  TEMPER_ASSIGN_OR_RETURN(g.gate, ProductOfExperts(c, n, e, x, kFirst, kFirstBias));
  if (n.Input(kThird) != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(g.value, ProductOfExperts(c, n, e, x, kThird, kThirdBias));
  } else if (a.is_gated()) {
    TEMPER_ASSIGN_OR_RETURN(g, Halves(c, g.gate, e.inner, a.fusion == 1));
  }
  const ValueId inner = Activated(c, f, n, a.type, g);
  TEMPER_RETURN_IF_ERROR(f.status());
  TEMPER_ASSIGN_OR_RETURN(ValueId v, ProductOfExperts(c, n, e, inner, kSecond, kSecondBias));
  TEMPER_ASSIGN_OR_RETURN(const ValueId factor, c.Cast(share, dtype));
  v = f.Mul(v, factor);
  TEMPER_RETURN_IF_ERROR(f.status());
  TEMPER_ASSIGN_OR_RETURN(v, c.Reduce("reduce_sum", v, {e.gathers ? 1 : 0}, false));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, given));
  return c.Set(n, v);
}

}  // namespace temper::onnx_frontend
