#include "compiler/frontend/onnx/bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace temper::onnx_frontend {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Bounds kAny = {-kInfinity, kInfinity};

// Of sums of up to so many elements, and of none.
Bounds Summed(const Bounds& b, double count) { return {std::min(b.least * count, 0.0), std::max(b.most * count, 0.0)}; }

// Of f(a, b), which is largest and least where both are.
template <typename F>
Bounds AtCorners(const Bounds& a, const Bounds& b, F f) {
  const double all[] = {f(a.least, b.least), f(a.least, b.most), f(a.most, b.least), f(a.most, b.most)};
  if (std::ranges::any_of(all, [](double x) { return std::isnan(x); })) return kAny;
  return {*std::ranges::min_element(all), *std::ranges::max_element(all)};
}

class Reader {
 public:
  explicit Reader(const Context& c) : c_(c) {}

  Bounds Of(ValueId v) {
    constexpr int kMostReads = 256, kMostElements = 1 << 16;
    if (++reads_ > kMostReads) return kAny;
    if (c_.TypeOf(v).dtype == DType::kBool) return {0, 1};
    if (const NDArray* known = c_.Known(v)) return known->size() <= kMostElements ? OfAll(*known) : kAny;
    const std::optional<Node> made = c_.MakerOf(v);
    return made.has_value() ? OfResult(*made) : kAny;
  }

 private:
  static Bounds OfAll(const NDArray& known) {
    Bounds b = {kInfinity, -kInfinity};
    for (int64_t i = 0; i < known.size(); ++i) {
      const double x = known.At(i);
      if (std::isnan(x)) return kAny;
      b = {std::min(b.least, x), std::max(b.most, x)};
    }
    return known.size() > 0 ? b : kAny;
  }

  Bounds OfResult(const Node& n) {
    const OpDef& op = *FindOp(n.op);
    const auto in = [&](size_t i) { return Of(n.inputs[i]); };
    if (n.op == "sigmoid" || n.op == "softmax") return {0, 1};
    if (n.op == "clip") {
      const Bounds b = in(0), within = {n.attrs.Float("min", -kInfinity), n.attrs.Float("max", kInfinity)};
      return {std::clamp(b.least, within.least, std::max(within.least, within.most)),
              std::clamp(b.most, within.least, std::max(within.least, within.most))};
    }
    if (n.op == "round" || n.op == "floor" || n.op == "ceil") return {std::floor(in(0).least), std::ceil(in(0).most)};
    if (n.op == "exp") return {std::exp(in(0).least), std::exp(in(0).most)};
    if (n.op == "relu") return {std::max(in(0).least, 0.0), std::max(in(0).most, 0.0)};
    if (n.op == "cast") return OfWhole(n);
    if (n.op == "where") return {std::min(in(1).least, in(2).least), std::max(in(1).most, in(2).most)};
    if (n.op == "min" || n.op == "max") {
      return AtCorners(in(0), in(1),
                       [&](double a, double b) { return n.op == "min" ? std::min(a, b) : std::max(a, b); });
    }
    if (n.op == "add") return AtCorners(in(0), in(1), [](double a, double b) { return a + b; });
    if (n.op == "sub") return AtCorners(in(0), in(1), [](double a, double b) { return a - b; });
    if (n.op == "mul") return AtCorners(in(0), in(1), [](double a, double b) { return a * b; });
    if (n.op == "div" && in(1).least > 0) return AtCorners(in(0), in(1), [](double a, double b) { return a / b; });
    if (n.op == "reduce_sum" || n.op == "cum_sum") return Summed(in(0), SummedOf(n));
    const bool moves = op.types == OpTypes::kMoves && op.move != Move::kConcatenates && n.op != "pad";
    return moves || n.op == "identity" ? in(0) : kAny;
  }

  // What a number becomes that an integer does not hold is not known. The run rounds numbers that are counted with as
  // they are here.
  Bounds OfWhole(const Node& cast) {
    const DType from = c_.TypeOf(cast.inputs[0]).dtype, to = c_.TypeOf(cast.output).dtype;
    const Bounds b = Of(cast.inputs[0]);
    if (IsFloat(to)) return b;
    if (!(b.least >= Lowest(to) && b.most <= Largest(to))) return kAny;
    const auto rounding = [](double x) { return 1e-3 * std::max(1.0, std::abs(x)); };
    return IsFloat(from) ? Bounds{std::ceil(b.least - rounding(b.least)), std::floor(b.most + rounding(b.most))} : b;
  }

  // How many elements are added up, at the most.
  double SummedOf(const Node& n) const {
    const Shape &from = c_.ShapeOf(n.inputs[0]), &to = c_.ShapeOf(n.output);
    const int64_t axis = n.attrs.Int("axis", 0), rank = std::ssize(from);
    if (n.op == "cum_sum") return static_cast<double>(from[static_cast<size_t>(axis < 0 ? axis + rank : axis)]);
    return static_cast<double>(NumElements(from)) / static_cast<double>(std::max<int64_t>(NumElements(to), 1));
  }

  const Context& c_;
  int reads_ = 0;  // a file may ask for more than it has nodes
};

}  // namespace

Bounds BoundsOf(const Context& c, ValueId v) { return Reader(c).Of(v); }

}  // namespace temper::onnx_frontend
