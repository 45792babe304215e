// Inverse trigonometric and hyperbolic functions, as formulas of what the graph has. They keep their relative accuracy
// near zero, where the textbook's formulas cancel, and do not overflow before their results do.
#include <cmath>
#include <numbers>

#include "compiler/frontend/onnx/context.h"

namespace temper::onnx_frontend {
namespace {

// Calls on values of one float type. The first error stays, and the calls after it do nothing.
class Formula {
 public:
  Formula(Context& c, ValueId x) : c_(c), dtype_(c.TypeOf(x).dtype) {}

  ValueId Call(const char* op, std::vector<ValueId> inputs) {
    if (!status_.ok()) return inputs[0];
    const absl::StatusOr<ValueId> v = c_.Call(op, {}, inputs);
    status_ = v.status();
    return v.ok() ? *v : inputs[0];
  }
  ValueId Number(double value) { return c_.Scalar(dtype_, value); }
  ValueId Add(ValueId a, ValueId b) { return Call("add", {a, b}); }
  ValueId Sub(ValueId a, ValueId b) { return Call("sub", {a, b}); }
  ValueId Mul(ValueId a, ValueId b) { return Call("mul", {a, b}); }
  ValueId Div(ValueId a, ValueId b) { return Call("div", {a, b}); }
  ValueId Sqrt(ValueId a) { return Call("sqrt", {a}); }
  ValueId Log(ValueId a) { return Call("log", {a}); }
  ValueId Exp(ValueId a) { return Call("exp", {a}); }
  ValueId Abs(ValueId a) { return Call("abs", {a}); }
  ValueId Plus(ValueId a, double b) { return Add(a, Number(b)); }
  ValueId Times(ValueId a, double b) { return Mul(a, Number(b)); }
  // `yes` where x is greater than the bound, else `no`; which of them is no number does not matter where it is not
  // taken.
  ValueId WhereAbove(ValueId x, double bound, ValueId yes, ValueId no) {
    return Call("where", {Call("greater", {x, Number(bound)}), yes, no});
  }
  // x * (factors[0] + factors[1] x^2 + factors[2] x^4 + ...)
  ValueId OddSeries(ValueId x, const std::vector<double>& factors) {
    const ValueId square = Mul(x, x);
    ValueId sum = Number(factors.back());
    for (size_t i = factors.size() - 1; i-- > 0;) sum = Plus(Mul(sum, square), factors[i]);
    return Mul(x, sum);
  }
  // `magnitude` with the sign of x
  ValueId WithSignOf(ValueId x, ValueId magnitude) {
    return Call("where", {Call("less", {x, Number(0)}), Call("neg", {magnitude}), magnitude});
  }
  // log(1 + x): what rounding takes from x it takes from both factors of the quotient (Kahan).
  ValueId Log1p(ValueId x) {
    const ValueId sum = Plus(x, 1), log = Log(sum);
    const ValueId exact = Div(Mul(x, log), Plus(sum, -1));
    const ValueId small = Call("where", {Call("equal", {sum, Number(1)}), x, exact});
    return WhereAbove(x, 1, log, small);
  }

  absl::Status status() const { return status_; }

 private:
  Context& c_;
  DType dtype_;
  absl::Status status_;
};

// An angle of [0, pi / 2] by its tangent: halved twice, where the series is short.
ValueId AngleOf(Formula& f, ValueId tangent) {
  const ValueId one = f.Number(1);
  ValueId t = f.Div(f.Call("min", {tangent, one}), f.Call("max", {tangent, one}));
  for (int i = 0; i < 2; ++i) t = f.Div(t, f.Plus(f.Sqrt(f.Plus(f.Mul(t, t), 1)), 1));
  std::vector<double> series;
  for (int i = 0; i < 12; ++i) series.push_back((i % 2 == 0 ? 4.0 : -4.0) / (2 * i + 1));
  const ValueId angle = f.OddSeries(t, series);
  return f.WhereAbove(tangent, 1, f.Sub(f.Number(std::numbers::pi / 2), angle), angle);
}

ValueId Atan(Formula& f, ValueId x) { return f.WithSignOf(x, AngleOf(f, f.Abs(x))); }

ValueId Asin(Formula& f, ValueId x) {
  const ValueId one = f.Number(1), cosine = f.Sqrt(f.Mul(f.Sub(one, x), f.Add(one, x)));
  return f.WithSignOf(x, AngleOf(f, f.Div(f.Abs(x), cosine)));
}

ValueId Acos(Formula& f, ValueId x) {
  const ValueId one = f.Number(1);
  return f.Times(AngleOf(f, f.Sqrt(f.Div(f.Sub(one, x), f.Add(one, x)))), 2);
}

ValueId Sinh(Formula& f, ValueId x) {
  std::vector<double> series;
  for (int i = 0; i < 9; ++i) series.push_back(1 / std::tgamma(2 * i + 2));
  const ValueId e = f.Exp(f.Abs(x)), large = f.WithSignOf(x, f.Times(f.Sub(e, f.Div(f.Number(1), e)), 0.5));
  return f.WhereAbove(f.Abs(x), 1, large, f.OddSeries(x, series));
}

ValueId Cosh(Formula& f, ValueId x) {
  const ValueId e = f.Exp(f.Abs(x));
  return f.Times(f.Add(e, f.Div(f.Number(1), e)), 0.5);
}

ValueId Asinh(Formula& f, ValueId x) {
  constexpr double kSquareOverflows = 1 << 28;  // far below it; above it one is nothing beside the square
  const ValueId a = f.Abs(x), square = f.Mul(a, a);
  const ValueId more = f.Div(square, f.Plus(f.Sqrt(f.Plus(square, 1)), 1));
  const ValueId large = f.Plus(f.Log(a), std::numbers::ln2);
  return f.WithSignOf(x, f.WhereAbove(a, kSquareOverflows, large, f.Log1p(f.Add(a, more))));
}

ValueId Acosh(Formula& f, ValueId x) {
  const ValueId t = f.Plus(x, -1);
  return f.Log1p(f.Add(t, f.Mul(f.Sqrt(t), f.Sqrt(f.Plus(t, 2)))));
}

ValueId Atanh(Formula& f, ValueId x) {
  const ValueId a = f.Abs(x);
  return f.WithSignOf(x, f.Times(f.Log1p(f.Div(f.Times(a, 2), f.Sub(f.Number(1), a))), 0.5));
}

// Narrow floats are computed in f32.
template <ValueId function(Formula&, ValueId)>
absl::Status Convert(Context& c, const OnnxNode& n) {
  const DType dtype = c.TypeOf(n.Input(0)).dtype;
  if (!IsFloat(dtype)) return absl::InvalidArgumentError("its operand has to be of a float type");
  TEMPER_ASSIGN_OR_RETURN(const ValueId x, c.Cast(n.Input(0), dtype == DType::kF64 ? dtype : DType::kF32));
  Formula f(c, x);
  const ValueId result = function(f, x);
  TEMPER_RETURN_IF_ERROR(f.status());
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, c.Cast(result, dtype));
  return c.Set(n, v);
}

}  // namespace

std::span<const TableEntry> MathTable() {
  static constexpr TableEntry kTable[] = {
      {"Atan", Convert<Atan>}, {"Asin", Convert<Asin>},   {"Acos", Convert<Acos>},   {"Sinh", Convert<Sinh>},
      {"Cosh", Convert<Cosh>}, {"Asinh", Convert<Asinh>}, {"Acosh", Convert<Acosh>}, {"Atanh", Convert<Atanh>}};
  return kTable;
}

}  // namespace temper::onnx_frontend
