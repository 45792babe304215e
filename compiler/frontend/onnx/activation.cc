#include "compiler/frontend/onnx/activation.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace temper::onnx_frontend {

struct ActivationRule {
  std::string_view name;  // ONNX's, in small letters
  ValueId (*apply)(Formula& f, ValueId v, double alpha, double beta);
  double alpha = 0, beta = 0;  // by default
  int numbers = 0;             // 1: it has an alpha; 2: a beta too
};

namespace {

Attrs AlphaAndBeta(double alpha, std::optional<double> beta = std::nullopt) {
  Attrs attrs;
  attrs.Set("alpha", alpha);
  if (beta.has_value()) attrs.Set("beta", *beta);
  return attrs;
}

constexpr ActivationRule kActivations[] = {
    {"relu", [](Formula& f, ValueId v, double, double) { return f.Call("relu", {v}); }},
    {"tanh", [](Formula& f, ValueId v, double, double) { return f.Call("tanh", {v}); }},
    {"sigmoid", [](Formula& f, ValueId v, double, double) { return f.Call("sigmoid", {v}); }},
    {"softplus", [](Formula& f, ValueId v, double, double) { return f.Call("softplus", {v}); }},
    {"softsign", [](Formula& f, ValueId v, double, double) { return f.Div(v, f.Plus(f.Call("abs", {v}), 1)); }},
    {"affine", [](Formula& f, ValueId v, double alpha, double beta) { return f.Plus(f.Times(v, alpha), beta); }, 1, 0,
     2},
    {"leakyrelu",
     [](Formula& f, ValueId v, double alpha, double) { return f.Call("leaky_relu", {v}, AlphaAndBeta(alpha)); }, 0.01,
     0, 1},
    {"thresholdedrelu",
     [](Formula& f, ValueId v, double alpha, double) {
       return f.Call("where", {f.Call("less_equal", {f.Number(alpha), v}), v, f.Number(0)});
     },
     1, 0, 1},
    {"scaledtanh",
     [](Formula& f, ValueId v, double alpha, double beta) {
       return f.Times(f.Call("tanh", {f.Times(v, beta)}), alpha);
     },
     1, 1, 2},
    {"hardsigmoid",
     [](Formula& f, ValueId v, double alpha, double beta) {
       return f.Call("hard_sigmoid", {v}, AlphaAndBeta(alpha, beta));
     },
     0.2, 0.5, 2},
    {"elu", [](Formula& f, ValueId v, double alpha, double) { return f.Call("elu", {v}, AlphaAndBeta(alpha)); }, 1, 0,
     1},
};

absl::StatusOr<Activation> ActivationOf(std::string_view name) {
  const std::string small = absl::AsciiStrToLower(std::string(name));
  for (const ActivationRule& rule : kActivations) {
    if (rule.name == small) return Activation{&rule, rule.alpha, rule.beta};
  }
  return absl::InvalidArgumentError(absl::StrCat("there is no activation '", std::string(name), "'"));
}

// Numbers go to the functions that have one, in their order; where there is one for each function, to each its own.
absl::Status Take(const OnnxNode& n, const char* attribute, int least, double Activation::*number,
                  std::vector<Activation>& activations) {
  const onnx::AttributeProto* stated = n.Find(attribute);
  if (stated == nullptr) return absl::OkStatus();
  const bool one_each = stated->floats_size() == std::ssize(activations);
  int next = 0;
  for (Activation& a : activations) {
    const bool takes = a.rule->numbers >= least;
    if (takes && next < stated->floats_size()) a.*number = stated->floats(next);
    if (takes || one_each) ++next;
  }
  if (next < stated->floats_size())
    return absl::InvalidArgumentError(absl::StrCat(attribute, " has more numbers than the activations take"));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Activation>> ActivationsOf(const OnnxNode& n, std::span<const std::string_view> otherwise,
                                                      int64_t directions) {
  std::vector<std::string_view> names;
  for (int64_t i = 0; i < directions; ++i) names.insert(names.end(), otherwise.begin(), otherwise.end());
  if (const onnx::AttributeProto* stated = n.Find("activations")) {
    if (stated->strings_size() != std::ssize(names))
      return absl::InvalidArgumentError(absl::StrCat("there are ", names.size(), " activations"));
    names.assign(stated->strings().begin(), stated->strings().end());
  }
  std::vector<Activation> activations;
  for (const std::string_view name : names) {
    TEMPER_ASSIGN_OR_RETURN(activations.emplace_back(), ActivationOf(name));
  }
  TEMPER_RETURN_IF_ERROR(Take(n, "activation_alpha", 1, &Activation::alpha, activations));
  TEMPER_RETURN_IF_ERROR(Take(n, "activation_beta", 2, &Activation::beta, activations));
  return activations;
}

ValueId Activate(Formula& f, const Activation& activation, ValueId v) {
  return activation.rule->apply(f, v, activation.alpha, activation.beta);
}

}  // namespace temper::onnx_frontend
