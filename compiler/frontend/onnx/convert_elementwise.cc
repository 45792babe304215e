#include <limits>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/context.h"
#include "compiler/frontend/onnx/formula.h"
#include "compiler/frontend/onnx/tensor_data.h"

namespace temper::onnx_frontend {
namespace {

// ONNX operators that are one call of Temper's with the same operands and no attributes.
struct Plain {
  std::string_view onnx, temper;
};
constexpr Plain kPlain[] = {
    {"Relu", "relu"},
    {"Sigmoid", "sigmoid"},
    {"Tanh", "tanh"},
    {"Erf", "erf"},
    {"Exp", "exp"},
    {"Log", "log"},
    {"Sqrt", "sqrt"},
    {"Neg", "neg"},
    {"Abs", "abs"},
    {"Floor", "floor"},
    {"Ceil", "ceil"},
    {"Round", "round"},
    {"Sin", "sin"},
    {"Cos", "cos"},
    {"Reciprocal", "reciprocal"},
    {"Not", "not"},
    {"Softplus", "softplus"},
    {"HardSwish", "hard_swish"},
    {"Add", "add"},
    {"Sub", "sub"},
    {"Mul", "mul"},
    {"Div", "div"},
    {"Pow", "pow"},
    {"And", "and"},
    {"Or", "or"},
    {"Equal", "equal"},
    {"Less", "less"},
    {"LessOrEqual", "less_equal"},
    {"Greater", "greater"},
    {"GreaterOrEqual", "greater_equal"},
    {"Where", "where"},
};

absl::Status ConvertPlain(Context& c, const OnnxNode& n) {
  for (const Plain& p : kPlain) {
    if (p.onnx != n.proto.op_type()) continue;
    TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call(std::string(p.temper), {}, n.inputs));
    return c.Set(n, v);
  }
  return absl::InternalError("not a plain operator");
}

absl::Status CallWithFloats(Context& c, const OnnxNode& n, const char* op,
                            std::initializer_list<std::pair<const char*, double>> floats) {
  Attrs attrs;
  for (const auto& [name, otherwise] : floats) attrs.Set(name, n.Float(name, otherwise));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call(op, std::move(attrs), n.inputs));
  return c.Set(n, v);
}

absl::Status LeakyRelu(Context& c, const OnnxNode& n) { return CallWithFloats(c, n, "leaky_relu", {{"alpha", 0.01}}); }
absl::Status Elu(Context& c, const OnnxNode& n) { return CallWithFloats(c, n, "elu", {{"alpha", 1}}); }
absl::Status HardSigmoid(Context& c, const OnnxNode& n) {
  return CallWithFloats(c, n, "hard_sigmoid", {{"alpha", 0.2}, {"beta", 0.5}});
}

absl::Status PRelu(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("prelu", {}, n.inputs));
  return c.Set(n, v);
}

absl::Status Gelu(Context& c, const OnnxNode& n) {
  Attrs attrs;
  attrs.Set("approximate", n.String("approximate", "none"));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("gelu", std::move(attrs), n.inputs));
  return c.Set(n, v);
}

// x * tanh(softplus(x))
absl::Status Mish(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("softplus", {}, {n.Input(0)}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("tanh", {}, {v}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("mul", {}, {n.Input(0), v}));
  return c.Set(n, v);
}

absl::Status Selu(Context& c, const OnnxNode& n) {
  Attrs attrs;
  attrs.Set("alpha", n.Float("alpha", 1.67326319217681884765625));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("elu", std::move(attrs), n.inputs));
  const ValueId gamma = c.Scalar(c.TypeOf(v).dtype, n.Float("gamma", 1.05070102214813232421875));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("mul", {}, {v, gamma}));
  return c.Set(n, v);
}

// x / (1 + |x|)
absl::Status Softsign(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("abs", {}, n.inputs));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("add", {}, {v, c.Scalar(c.TypeOf(v).dtype, 1)}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("div", {}, {n.Input(0), v}));
  return c.Set(n, v);
}

// A number is equal to itself.
absl::StatusOr<ValueId> IsNumber(Context& c, ValueId x) { return c.Call("equal", {}, {x, x}); }

absl::Status IsNan(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(ValueId v, IsNumber(c, n.Input(0)));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("not", {}, {v}));
  return c.Set(n, v);
}

absl::Status IsInf(Context& c, const OnnxNode& n) {
  const DType dtype = c.TypeOf(n.Input(0)).dtype;
  const double infinity = std::numeric_limits<double>::infinity();
  const bool positive = n.Int("detect_positive", 1) != 0, negative = n.Int("detect_negative", 1) != 0;
  // Where neither is asked for, of what is nowhere both.
  TEMPER_ASSIGN_OR_RETURN(ValueId v,
                          c.Call("equal", {}, {n.Input(0), c.Scalar(dtype, positive ? infinity : -infinity)}));
  if (positive == negative) {
    TEMPER_ASSIGN_OR_RETURN(ValueId other,
                            c.Call("equal", {}, {n.Input(0), c.Scalar(dtype, positive ? -infinity : infinity)}));
    TEMPER_ASSIGN_OR_RETURN(v, c.Call(positive ? "or" : "and", {}, {v, other}));
  }
  return c.Set(n, v);
}

// 1, 0 or -1; of what is no number, itself.
absl::Status Sign(Context& c, const OnnxNode& n) {
  const ValueId x = n.Input(0);
  const DType dtype = c.TypeOf(x).dtype;
  const ValueId zero = c.Scalar(dtype, 0);
  ValueId v = zero;
  if (!IsUnsigned(dtype)) {
    TEMPER_ASSIGN_OR_RETURN(ValueId below, c.Call("less", {}, {x, zero}));
    TEMPER_ASSIGN_OR_RETURN(v, c.Call("where", {}, {below, c.Scalar(dtype, -1), zero}));
  }
  TEMPER_ASSIGN_OR_RETURN(ValueId above, c.Call("greater", {}, {x, zero}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("where", {}, {above, c.Scalar(dtype, 1), v}));
  if (IsFloat(dtype)) {
    TEMPER_ASSIGN_OR_RETURN(ValueId number, IsNumber(c, x));
    TEMPER_ASSIGN_OR_RETURN(v, c.Call("where", {}, {number, v, x}));
  }
  return c.Set(n, v);
}

// alpha * elu(x / alpha)
absl::Status Celu(Context& c, const OnnxNode& n) {
  const ValueId x = n.Input(0), alpha = c.Scalar(c.TypeOf(x).dtype, n.Float("alpha", 1));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("div", {}, {x, alpha}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("elu", {}, {v}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("mul", {}, {v, alpha}));
  return c.Set(n, v);
}

absl::Status ThresholdedRelu(Context& c, const OnnxNode& n) {
  const ValueId x = n.Input(0);
  const DType dtype = c.TypeOf(x).dtype;
  TEMPER_ASSIGN_OR_RETURN(ValueId above, c.Call("greater", {}, {x, c.Scalar(dtype, n.Float("alpha", 1))}));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("where", {}, {above, x, c.Scalar(dtype, 0)}));
  return c.Set(n, v);
}

// What is further from zero than `lambd` comes nearer by `bias`, the rest is zero.
absl::Status Shrink(Context& c, const OnnxNode& n) {
  const ValueId x = n.Input(0);
  const DType dtype = c.TypeOf(x).dtype;
  const ValueId bias = c.Scalar(dtype, n.Float("bias", 0)), zero = c.Scalar(dtype, 0);
  const double bound = n.Float("lambd", 0.5);
  TEMPER_ASSIGN_OR_RETURN(ValueId less, c.Call("sub", {}, {x, bias}));
  TEMPER_ASSIGN_OR_RETURN(ValueId more, c.Call("add", {}, {x, bias}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId above, c.Call("greater", {}, {x, c.Scalar(dtype, bound)}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId below, c.Call("less", {}, {x, c.Scalar(dtype, -bound)}));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("where", {}, {below, more, zero}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("where", {}, {above, less, v}));
  return c.Set(n, v);
}

// x * sigmoid(alpha * x)
absl::Status Swish(Context& c, const OnnxNode& n) {
  const ValueId x = n.Input(0);
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("mul", {}, {x, c.Scalar(c.TypeOf(x).dtype, n.Float("alpha", 1))}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("sigmoid", {}, {v}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("mul", {}, {x, v}));
  return c.Set(n, v);
}

absl::Status SwiGlu(Context& c, const OnnxNode& n) {
  if (c.ShapeOf(n.Input(0)) != c.ShapeOf(n.Input(1))) return absl::InvalidArgumentError("A and B have one shape");
  Formula f(c, c.TypeOf(n.Input(0)).dtype);
  const ValueId share = f.Call("sigmoid", {f.Times(n.Input(0), n.Float("alpha", 1))});
  const ValueId v = f.Mul(f.Mul(n.Input(0), share), n.Input(1));
  TEMPER_RETURN_IF_ERROR(f.status());
  return c.Set(n, v);
}

absl::Status Tan(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(ValueId sine, c.Call("sin", {}, n.inputs));
  TEMPER_ASSIGN_OR_RETURN(ValueId cosine, c.Call("cos", {}, n.inputs));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("div", {}, {sine, cosine}));
  return c.Set(n, v);
}

absl::Status Xor(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("equal", {}, n.inputs));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("not", {}, {v}));
  return c.Set(n, v);
}

// Bounds are attributes up to opset 10 and operands after it; bounds that are not known become min and max.
absl::Status Clip(Context& c, const OnnxNode& n) {
  ValueId v = n.Input(0);
  Attrs attrs;
  for (size_t i = 1; i <= 2; ++i) {
    const char* name = i == 1 ? "min" : "max";
    const ValueId bound = n.Input(i);
    if (n.Has(name)) attrs.Set(name, n.Float(name, 0));
    if (bound == kNoValue) continue;
    if (const NDArray* known = c.Known(bound); known != nullptr && known->size() == 1) {
      attrs.Set(name, known->At(0));
      continue;
    }
    TEMPER_ASSIGN_OR_RETURN(v, c.Call(i == 1 ? "max" : "min", {}, {v, bound}));
  }
  if (!attrs.values().empty() || v == n.Input(0)) {
    TEMPER_ASSIGN_OR_RETURN(v, c.Call("clip", std::move(attrs), {v}));
  }
  return c.Set(n, v);
}

// The remainder has the dividend's sign with fmod, and otherwise the divisor's: of floats it is found from the former,
// which of what is finite over what is infinite is the dividend.
absl::Status Mod(Context& c, const OnnxNode& n) {
  const ValueId x = n.Input(0), y = n.Input(1);
  const DType dtype = c.TypeOf(x).dtype;
  const bool floats = IsFloat(dtype), turns = floats && n.Int("fmod", 0) == 0;
  Attrs attrs;
  attrs.Set("fmod", turns ? 1 : n.Int("fmod", 0));
  Formula f(c, dtype);
  ValueId v = f.Call("mod", {x, y}, std::move(attrs));
  if (floats) {
    const ValueId infinity = f.Number(std::numeric_limits<double>::infinity());
    const ValueId over = f.Call("equal", {f.Call("abs", {y}), infinity});
    const ValueId whole = f.Call("and", {over, f.Call("less", {f.Call("abs", {x}), infinity})});
    v = f.Call("where", {whole, x, v});
  }
  if (turns) {
    const ValueId zero = f.Number(0);
    const ValueId same = f.Call("equal", {f.Call("less", {v, zero}), f.Call("less", {y, zero})});
    const ValueId fits = f.Call("or", {same, f.Call("equal", {v, zero})});
    v = f.Call("where", {fits, v, f.Add(v, y)});
  }
  TEMPER_RETURN_IF_ERROR(f.status());
  return c.Set(n, v);
}

absl::Status Variadic(Context& c, const OnnxNode& n) {
  const std::string& type = n.proto.op_type();
  const char* op = type == "Min" ? "min" : type == "Max" ? "max" : "add";
  ValueId v = n.Input(0);
  for (size_t i = 1; i < n.inputs.size(); ++i) {
    TEMPER_ASSIGN_OR_RETURN(v, c.Call(op, {}, {v, n.inputs[i]}));
  }
  if (type == "Mean") {
    const ValueId count = c.Scalar(c.TypeOf(v).dtype, static_cast<double>(n.inputs.size()));
    TEMPER_ASSIGN_OR_RETURN(v, c.Call("div", {}, {v, count}));
  }
  return c.Set(n, v);
}

absl::Status CastTo(Context& c, const OnnxNode& n, DType to) {
  ValueId v = n.Input(0);
  if (c.TypeOf(v).dtype != to) {
    Attrs attrs;
    attrs.Set("to", std::string(Name(to)));
    if (HasCastMode(to) && n.Int("saturate", 1) != 0) attrs.Set("saturate", int64_t{1});
    if (to == DType::kF8E8M0) attrs.Set("rounding", n.String("round_mode", "up"));
    TEMPER_ASSIGN_OR_RETURN(v, c.Call("cast", std::move(attrs), {v}));
  }
  return c.Set(n, v);
}

absl::Status Cast(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(DType to, DTypeOf(static_cast<int>(n.Int("to", 0))));
  return CastTo(c, n, to);
}
absl::Status CastLike(Context& c, const OnnxNode& n) { return CastTo(c, n, c.TypeOf(n.Input(1)).dtype); }

absl::Status Same(Context& c, const OnnxNode& n) { return c.Set(n, n.Input(0)); }

// At inference a dropout drops nothing, and in training none of a share of 0. The second result says what stays.
absl::Status Dropout(Context& c, const OnnxNode& n) {
  constexpr int kFirstOfBools = 10;
  if (n.Input(2) != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(std::vector<int64_t> training, c.KnownInts(n.Input(2), "training_mode"));
    const NDArray* ratio = c.Known(n.Input(1));
    const bool drops_none = ratio != nullptr && ratio->size() == 1 && ratio->At(0) == 0;
    if (training.empty() || (training[0] != 0 && !drops_none))
      return absl::UnimplementedError("training_mode is not supported");
  }
  if (n.proto.output_size() > 1 && !n.proto.output(1).empty()) {
    const DType dtype = n.opset < kFirstOfBools ? c.TypeOf(n.Input(0)).dtype : DType::kBool;
    TEMPER_ASSIGN_OR_RETURN(ValueId stays, c.Expand(c.Scalar(dtype, 1), c.ShapeOf(n.Input(0))));
    TEMPER_ASSIGN_OR_RETURN(stays, WithVaryings(c, stays, c.VaryingsOf(n.Input(0))));
    TEMPER_RETURN_IF_ERROR(c.Set(n, stays, 1));
  }
  return c.Set(n, n.Input(0));
}

}  // namespace

std::span<const TableEntry> ElementwiseTable() {
  static const std::vector<TableEntry> table = [] {
    std::vector<TableEntry> t = {{"LeakyRelu", LeakyRelu},
                                 {"Elu", Elu},
                                 {"HardSigmoid", HardSigmoid},
                                 {"PRelu", PRelu, 2},
                                 {"Gelu", Gelu},
                                 {"Mish", Mish},
                                 {"Selu", Selu},
                                 {"Softsign", Softsign},
                                 {"IsNaN", IsNan},
                                 {"IsInf", IsInf},
                                 {"Sign", Sign},
                                 {"Celu", Celu},
                                 {"ThresholdedRelu", ThresholdedRelu},
                                 {"Shrink", Shrink},
                                 {"Swish", Swish},
                                 {"SwiGLU", SwiGlu, 2},
                                 {"Tan", Tan},
                                 {"Xor", Xor, 2},
                                 {"Clip", Clip},
                                 {"Mod", Mod, 2},
                                 {"Min", Variadic},
                                 {"Max", Variadic},
                                 {"Sum", Variadic},
                                 {"Mean", Variadic},
                                 {"Cast", Cast},
                                 {"CastLike", CastLike, 2},
                                 {"Identity", Same},
                                 {"Dropout", Dropout}};
    for (const Plain& p : kPlain)
      t.push_back({p.onnx, ConvertPlain, static_cast<size_t>(FindOp(p.temper)->min_inputs)});
    for (TableEntry& entry : t) entry.extents = Extents::kAlongAnyAxis;
    return t;
  }();
  return table;
}

}  // namespace temper::onnx_frontend
