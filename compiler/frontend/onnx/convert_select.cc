// Operators whose result has as many elements as values say. Those values are known, as every shape is.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/context.h"

namespace temper::onnx_frontend {
namespace {

using Ints = std::vector<int64_t>;

constexpr std::string_view kItsShape = "the shape of its result";

absl::StatusOr<ValueId> GatherAt(Context& c, ValueId x, const Ints& at, int64_t axis) {
  if (c.ShapeOf(x)[static_cast<size_t>(axis)] == 0) return x;  // there is nothing to take
  return c.Gather(x, c.IntVector(at), axis);
}

absl::Status Compress(Context& c, const OnnxNode& n) {
  ValueId x = n.Input(0);
  int64_t axis = 0;
  if (n.Has("axis")) {
    TEMPER_ASSIGN_OR_RETURN(axis, Axis(n.Int("axis", 0), c.Rank(x)));
  } else {
    TEMPER_ASSIGN_OR_RETURN(x, c.Reshape(x, {NumElements(c.ShapeOf(x))}));
  }
  TEMPER_ASSIGN_OR_RETURN(const Ints condition, c.KnownInts(n.Input(1), kItsShape));
  if (std::ssize(condition) > c.ShapeOf(x)[static_cast<size_t>(axis)])
    return absl::InvalidArgumentError("the condition is longer than the axis");
  Ints taken;
  for (size_t i = 0; i < condition.size(); ++i) {
    if (condition[i] != 0) taken.push_back(static_cast<int64_t>(i));
  }
  TEMPER_ASSIGN_OR_RETURN(ValueId v, GatherAt(c, x, taken, axis));
  return c.Set(n, v);
}

// The indices of what is not zero, a column each, in the order of the elements.
absl::Status NonZero(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<double> x, c.KnownFloats(n.Input(0), kItsShape));
  const Shape& shape = c.ShapeOf(n.Input(0));
  const int64_t count = std::ssize(x) - std::count(x.begin(), x.end(), 0);
  NDArray indices(DType::kI64, {std::ssize(shape), count});
  const std::span<int64_t> all = indices.as<int64_t>();
  size_t column = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] == 0) continue;
    int64_t rest = static_cast<int64_t>(i);
    for (size_t d = shape.size(); d-- > 0; rest /= shape[d])
      all[d * static_cast<size_t>(count) + column] = rest % shape[d];
    ++column;
  }
  return c.Set(n, c.Constant(std::move(indices)));
}

// The order of two elements: negative, 0 or positive. NaN is the largest, and alike.
int Compared(const NDArray& x, int64_t a, int64_t b) {
  const auto order = [](auto p, auto q) { return (p > q) - (p < q); };
  const size_t i = static_cast<size_t>(a), j = static_cast<size_t>(b);
  if (x.dtype() == DType::kI64) return order(x.as<int64_t>()[i], x.as<int64_t>()[j]);
  if (x.dtype() == DType::kU64) return order(x.as<uint64_t>()[i], x.as<uint64_t>()[j]);
  const double p = x.At(a), q = x.At(b);
  if (std::isnan(p) || std::isnan(q)) return order(std::isnan(p), std::isnan(q));
  return order(p, q);
}

// Slices of `x` along an axis: [outer, extent, inner].
struct Slices {
  const NDArray& x;
  int64_t outer, extent, inner;

  int Compared(int64_t a, int64_t b) const {
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i) {
        const int64_t start = o * extent * inner + i;
        if (const int order = onnx_frontend::Compared(x, start + a * inner, start + b * inner)) return order;
      }
    }
    return 0;
  }
};

struct Distinct {
  Ints first, inverse, counts;  // where each stands first; which one each slice is; how often each is there
};
Distinct DistinctOf(const Slices& slices, bool sorted) {
  Ints order(static_cast<size_t>(slices.extent));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return slices.Compared(a, b) < 0; });
  std::vector<Ints> groups;
  for (const int64_t i : order) {
    if (groups.empty() || slices.Compared(groups.back()[0], i) != 0) groups.emplace_back();
    groups.back().push_back(i);
  }
  if (!sorted) std::sort(groups.begin(), groups.end());  // by where they stand first
  Distinct d{.inverse = Ints(order.size())};
  for (size_t g = 0; g < groups.size(); ++g) {
    d.first.push_back(groups[g][0]);
    d.counts.push_back(std::ssize(groups[g]));
    for (const int64_t i : groups[g]) d.inverse[static_cast<size_t>(i)] = static_cast<int64_t>(g);
  }
  return d;
}

absl::Status Unique(Context& c, const OnnxNode& n) {
  ValueId x = n.Input(0);
  if (c.Known(x) == nullptr)
    return absl::UnimplementedError(absl::StrCat(std::string(kItsShape), " depends on the model's inputs"));
  int64_t axis = 0;
  if (n.Has("axis")) {
    TEMPER_ASSIGN_OR_RETURN(axis, Axis(n.Int("axis", 0), c.Rank(x)));
  } else {
    TEMPER_ASSIGN_OR_RETURN(x, c.Reshape(x, {NumElements(c.ShapeOf(x))}));
  }
  const Shape shape = c.ShapeOf(x);
  const size_t along = static_cast<size_t>(axis);
  const Slices slices{*c.Known(n.Input(0)), NumElements(std::span(shape).first(along)), shape[along],
                      NumElements(std::span(shape).subspan(along + 1))};
  const Distinct d = DistinctOf(slices, n.Int("sorted", 1) != 0);
  TEMPER_ASSIGN_OR_RETURN(ValueId v, GatherAt(c, x, d.first, axis));
  TEMPER_RETURN_IF_ERROR(c.Set(n, v));
  TEMPER_RETURN_IF_ERROR(c.Set(n, c.IntVector(d.first), 1));
  TEMPER_RETURN_IF_ERROR(c.Set(n, c.IntVector(d.inverse), 2));
  return c.Set(n, c.IntVector(d.counts), 3);
}

}  // namespace

std::span<const TableEntry> SelectTable() {
  static constexpr TableEntry kTable[] = {{"Compress", Compress, 2}, {"NonZero", NonZero}, {"Unique", Unique}};
  return kTable;
}

}  // namespace temper::onnx_frontend
