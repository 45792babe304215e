// Inverse trigonometric and hyperbolic functions, as formulas of what the graph has. They keep their relative accuracy
// near zero, where the textbook's formulas cancel, and do not overflow before their results do.
#include <cmath>
#include <numbers>

#include "compiler/frontend/onnx/formula.h"

namespace temper::onnx_frontend {
namespace {

ValueId Sqrt(Formula& f, ValueId a) { return f.Call("sqrt", {a}); }
ValueId Log(Formula& f, ValueId a) { return f.Call("log", {a}); }
ValueId Abs(Formula& f, ValueId a) { return f.Call("abs", {a}); }

// `yes` where x is greater than the bound, else `no`: whatever the other one is there.
ValueId WhereAbove(Formula& f, ValueId x, double bound, ValueId yes, ValueId no) {
  return f.Call("where", {f.Call("greater", {x, f.Number(bound)}), yes, no});
}

// `magnitude` with the sign of x
ValueId WithSignOf(Formula& f, ValueId x, ValueId magnitude) {
  return f.Call("where", {f.Call("less", {x, f.Number(0)}), f.Call("neg", {magnitude}), magnitude});
}

// x * (factors[0] + factors[1] x^2 + factors[2] x^4 + ...)
ValueId OddSeries(Formula& f, ValueId x, const std::vector<double>& factors) {
  const ValueId square = f.Mul(x, x);
  ValueId sum = f.Number(factors.back());
  for (size_t i = factors.size() - 1; i-- > 0;) sum = f.Plus(f.Mul(sum, square), factors[i]);
  return f.Mul(x, sum);
}

// log(1 + x): what rounding takes from x it takes from both parts of the quotient (Kahan).
ValueId Log1p(Formula& f, ValueId x) {
  const ValueId sum = f.Plus(x, 1), log = Log(f, sum), quotient = f.Div(f.Mul(x, log), f.Plus(sum, -1));
  const ValueId small = f.Call("where", {f.Call("equal", {sum, f.Number(1)}), x, quotient});
  return WhereAbove(f, x, 1, log, small);
}

// An angle of [0, pi / 2] by its tangent: halved twice, where the series is short.
ValueId AngleOf(Formula& f, ValueId tangent) {
  const ValueId one = f.Number(1);
  ValueId t = f.Div(f.Call("min", {tangent, one}), f.Call("max", {tangent, one}));
  for (int i = 0; i < 2; ++i) t = f.Div(t, f.Plus(Sqrt(f, f.Plus(f.Mul(t, t), 1)), 1));
  std::vector<double> series;
  for (int i = 0; i < 12; ++i) series.push_back((i % 2 == 0 ? 4.0 : -4.0) / (2 * i + 1));
  const ValueId angle = OddSeries(f, t, series);
  return WhereAbove(f, tangent, 1, f.Minus(std::numbers::pi / 2, angle), angle);
}

ValueId Atan(Formula& f, ValueId x) { return WithSignOf(f, x, AngleOf(f, Abs(f, x))); }

ValueId Asin(Formula& f, ValueId x) {
  const ValueId one = f.Number(1), cosine = Sqrt(f, f.Mul(f.Sub(one, x), f.Add(one, x)));
  return WithSignOf(f, x, AngleOf(f, f.Div(Abs(f, x), cosine)));
}

ValueId Acos(Formula& f, ValueId x) {
  const ValueId one = f.Number(1);
  return f.Times(AngleOf(f, Sqrt(f, f.Div(f.Sub(one, x), f.Add(one, x)))), 2);
}

ValueId Sinh(Formula& f, ValueId x) {
  std::vector<double> series;
  for (int i = 0; i < 9; ++i) series.push_back(1 / std::tgamma(2 * i + 2));
  const ValueId e = f.Call("exp", {Abs(f, x)}), large = WithSignOf(f, x, f.Times(f.Sub(e, f.Div(f.Number(1), e)), 0.5));
  return WhereAbove(f, Abs(f, x), 1, large, OddSeries(f, x, series));
}

ValueId Cosh(Formula& f, ValueId x) {
  const ValueId e = f.Call("exp", {Abs(f, x)});
  return f.Times(f.Add(e, f.Div(f.Number(1), e)), 0.5);
}

ValueId Asinh(Formula& f, ValueId x) {
  constexpr double kSquareOverflows = 1 << 28;  // far below it; above it one is nothing beside the square
  const ValueId a = Abs(f, x), square = f.Mul(a, a);
  const ValueId more = f.Div(square, f.Plus(Sqrt(f, f.Plus(square, 1)), 1));
  const ValueId large = f.Plus(Log(f, a), std::numbers::ln2);
  return WithSignOf(f, x, WhereAbove(f, a, kSquareOverflows, large, Log1p(f, f.Add(a, more))));
}

ValueId Acosh(Formula& f, ValueId x) {
  const ValueId t = f.Plus(x, -1);
  return Log1p(f, f.Add(t, f.Mul(Sqrt(f, t), Sqrt(f, f.Plus(t, 2)))));
}

ValueId Atanh(Formula& f, ValueId x) {
  const ValueId a = Abs(f, x);
  return WithSignOf(f, x, f.Times(Log1p(f, f.Div(f.Times(a, 2), f.Minus(1, a))), 0.5));
}

// Narrow floats are computed in f32.
template <ValueId function(Formula&, ValueId)>
absl::Status Convert(Context& c, const OnnxNode& n) {
  const DType dtype = c.TypeOf(n.Input(0)).dtype;
  if (!IsFloat(dtype)) return absl::InvalidArgumentError("its operand has to be of a float type");
  TEMPER_ASSIGN_OR_RETURN(const ValueId x, c.Cast(n.Input(0), dtype == DType::kF64 ? dtype : DType::kF32));
  Formula f(c, c.TypeOf(x).dtype);
  const ValueId result = function(f, x);
  TEMPER_RETURN_IF_ERROR(f.status());
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, c.Cast(result, dtype));
  return c.Set(n, v);
}

}  // namespace

std::span<const TableEntry> MathTable() {
  static constexpr TableEntry kTable[] = {
      {"Atan", Convert<Atan>, 1, Extents::kAlongAnyAxis},   {"Asin", Convert<Asin>, 1, Extents::kAlongAnyAxis},
      {"Acos", Convert<Acos>, 1, Extents::kAlongAnyAxis},   {"Sinh", Convert<Sinh>, 1, Extents::kAlongAnyAxis},
      {"Cosh", Convert<Cosh>, 1, Extents::kAlongAnyAxis},   {"Asinh", Convert<Asinh>, 1, Extents::kAlongAnyAxis},
      {"Acosh", Convert<Acosh>, 1, Extents::kAlongAnyAxis}, {"Atanh", Convert<Atanh>, 1, Extents::kAlongAnyAxis}};
  return kTable;
}

}  // namespace temper::onnx_frontend
