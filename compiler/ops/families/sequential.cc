// Operators whose steps follow one another, or whose data says where they lead: first elements in their order, running
// sums, updates of places, lines of a length that data has. Their tensor expressions compare all with all, or divide
// for each element, which any device can; a template for CPUs goes through them step by step (templates/scan.cc,
// scatter.cc, top_k.cc, compact.cc).
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/division.h"
#include "compiler/ops/families/compute_util.h"
#include "compiler/ops/families/families.h"
#include "compiler/ops/families/infer_util.h"
#include "compiler/ops/families/sequential.h"

namespace temper::ops {
namespace {

using ir::Expr;
using ir::Tensor;
using Inputs = std::span<const Tensor>;
using Types = std::span<const TensorType>;

Index With(Index index, size_t at, const Expr& value) {
  index[at] = value;
  return index;
}

// --- top_k

absl::StatusOr<TensorType> InferTopK(const Attrs& attrs, Types in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"k", AttrKind::kInt}, {"largest", AttrKind::kInt}}));
  if (in[0].dtype == DType::kBool) return InvalidType("takes numbers");
  if (in[0].shape.empty()) return InvalidType("takes an axis");
  const int64_t k = attrs.Int("k", 1), count = in[0].shape.back();
  if (count > std::numeric_limits<int32_t>::max()) return InvalidType("an i32 does not hold every position");
  if (k < 1 || k > count) return InvalidType(absl::StrCat("k is a number from 1 to ", count));
  TensorType result{DType::kI32, in[0].shape, {}};
  result.shape.back() = k;
  return result;
}

// How many elements of a row are compared with each other, so that the fewest are compared in all: those of a part, and
// then the first `k` of each part. `count`: all of them.
int64_t PartOf(int64_t count, int64_t k) {
  constexpr int64_t kShortRow = 4096;
  const auto compared = [&](int64_t part) {
    const double left = static_cast<double>(CeilDiv(count, part) * k);
    return static_cast<double>(count) * static_cast<double>(part) + left * left;
  };
  int64_t best = count;
  double least = static_cast<double>(count) * static_cast<double>(count);
  for (int64_t part = 16; count > kShortRow && part < count; part *= 2) {
    if (part >= k && compared(part) < least) best = part, least = compared(part);
  }
  return best;
}

// Whether `a` comes before `b` where the largest elements come first, or the least. A NaN counts as the largest.
Expr ComesBefore(const Expr& a, const Expr& b, bool largest) {
  // Neither comparison holds of a NaN: the number that is left is asked whether it is one.
  const Expr before = ir::Not(largest ? a <= b : b <= a);
  if (!IsFloat(a->dtype)) return before;
  const Expr& late = largest ? b : a;
  return ir::And(before, ir::Eq(late, late));
}

// Of each element of rows, how many of its part of the row come before it; of those alone that `counts` holds of.
Tensor PlacesInParts(ir::ProgramBuilder& b, const std::string& name, const Tensor& x, int64_t part, bool largest,
                     const std::function<Expr(const Index&)>& counts) {
  const size_t last = x.shape().size() - 1;
  const int64_t count = x.shape().back();
  return ReduceStage(
      b, name, {DType::kI32, x.shape(), {}}, {part}, ir::Combiner::kSum, [=](const Index& i, const Index& r) {
        const Expr at = part == count ? r[0] : i[last] / Expr(part) * Expr(part) + r[0];
        const Index other = With(i, last, at);
        const Expr a = x(other), b = x(i);
        Expr before = ir::Or(ComesBefore(a, b, largest), ir::And(ir::Not(ComesBefore(b, a, largest)), at < i[last]));
        if (counts) before = ir::And(counts(other), before);
        const Expr one = ir::Int(1, DType::kI32), none = ir::Int(0, DType::kI32);
        if (count % part == 0) return ir::Select(before, one, none);
        return ir::Select(at < Expr(count), ir::Select(before, one, none), none);
      });
}

// Of each part of a row the positions of its first `taken` elements by their places: [rows, parts * taken]; -1 where
// the last part has fewer.
Tensor FirstOfParts(ir::ProgramBuilder& b, const std::string& name, const Tensor& places, int64_t part, int64_t taken) {
  const size_t last = places.shape().size() - 1;
  const int64_t count = places.shape().back();
  Shape shape = places.shape();
  shape.back() = CeilDiv(count, part) * taken;
  return ReduceStage(b, name, {DType::kI32, shape, {}}, {part}, ir::Combiner::kMax,
                     [=](const Index& i, const Index& r) {
                       const Expr at = i[last] / Expr(taken) * Expr(part) + r[0], none = ir::Int(-1, DType::kI32);
                       const Expr wanted = ir::Cast(i[last] % Expr(taken), DType::kI32);
                       const Expr place = places(With(i, last, at));
                       const Expr found = ir::Select(ir::Eq(place, wanted), ir::Cast(at, DType::kI32), none);
                       return count % part == 0 ? found : ir::Select(at < Expr(count), found, none);
                     });
}

absl::StatusOr<Tensor> ComputeTopK(ir::ProgramBuilder& b, const Attrs& attrs, Inputs in, const TensorType& output) {
  const bool largest = attrs.Int("largest", 1) != 0;
  const int64_t k = attrs.Int("k", 1), count = in[0].shape().back(), part = PartOf(count, k);
  const size_t last = output.shape.size() - 1;
  const Tensor x = in[0];
  const Tensor first = FirstOfParts(b, "first", PlacesInParts(b, "places", x, part, largest, nullptr), part, k);
  if (part == count) return first;
  const auto element = [=](const Index& i) { return ir::Cast(first(i), DType::kI64); };
  const auto counts = [=](const Index& i) { return Expr(0) <= element(i); };
  const Tensor left(x.dtype(), first.shape(),
                    [=](const Index& i) { return x(With(i, last, ir::Max(element(i), Expr(0)))); });
  const Tensor places = PlacesInParts(b, "places_left", left, first.shape().back(), largest, counts);
  return ReduceStage(b, "first_left", output, {first.shape().back()}, ir::Combiner::kMax,
                     [=](const Index& i, const Index& r) {
                       const Index at = With(i, last, r[0]);
                       const Expr here = ir::Eq(places(at), ir::Cast(i[last], DType::kI32));
                       return ir::Select(ir::And(counts(at), here), first(at), ir::Int(-1, DType::kI32));
                     });
}

// --- cum_sum

absl::StatusOr<TensorType> InferCumSum(const Attrs& attrs, Types in) {
  TEMPER_RETURN_IF_ERROR(
      CheckAttrs(attrs, {{"axis", AttrKind::kInt}, {"exclusive", AttrKind::kInt}, {"reverse", AttrKind::kInt}}));
  if (in[0].dtype == DType::kBool) return InvalidType("takes numbers");
  TEMPER_RETURN_IF_ERROR(NormalizeAxis(attrs.Int("axis", 0), Rank(in[0])).status());
  return TensorType{in[0].dtype, in[0].shape, {}};
}

absl::StatusOr<Tensor> ComputeCumSum(ir::ProgramBuilder& b, const Attrs& attrs, Inputs in, const TensorType& output) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis(attrs.Int("axis", 0), in[0].rank()));
  const size_t at = static_cast<size_t>(axis);
  const bool exclusive = attrs.Int("exclusive", 0) != 0, reverse = attrs.Int("reverse", 0) != 0;
  return ReduceStage(b, "cum_sum", output, {in[0].shape()[at]}, ir::Combiner::kSum,
                     [=, x = in[0]](const Index& i, const Index& r) {
                       const Expr &low = reverse ? i[at] : r[0], &high = reverse ? r[0] : i[at];
                       const Expr zero = ir::Const(0, x.dtype());
                       return ir::Select(exclusive ? low < high : low <= high, x(With(i, at, r[0])), zero);
                     });
}

// --- scatter

absl::StatusOr<TensorType> InferScatter(const Attrs& attrs, Types in) {
  const TensorType &data = in[0], &at = in[1], &updates = in[2];
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis(attrs.Int("axis", 0), Rank(data)));
  if (at.dtype != DType::kI64 && at.dtype != DType::kI32) return InvalidType("places are i64 or i32");
  if (updates.dtype != data.dtype) return InvalidType("updates are of the data's type");
  Shape lines(data.shape.begin(), data.shape.begin() + axis), slices = data.shape;
  if (at.shape.empty()) return InvalidType("places have an axis");
  lines.push_back(at.shape.back());
  slices[static_cast<size_t>(axis)] = at.shape.back();
  if (at.shape != lines) return InvalidType("places have the data's axes before `axis`, and one for themselves");
  if (updates.shape != slices) return InvalidType("updates have the data's shape, but for `axis`");
  if (at.shape.back() < 1 || at.shape.back() > std::numeric_limits<int32_t>::max())
    return InvalidType("there is an update, and no more than an i32 numbers");
  return TensorType{data.dtype, data.shape, {}};
}

absl::StatusOr<TensorType> InferReplace(const Attrs& attrs, Types in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"axis", AttrKind::kInt}}));
  return InferScatter(attrs, in);
}

absl::StatusOr<TensorType> InferScatterReduce(const Attrs& attrs, Types in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"axis", AttrKind::kInt}, {"reduction", AttrKind::kString}}));
  if (in[0].dtype == DType::kBool) return InvalidType("takes numbers");
  if (!ScatterCombiner(attrs).has_value()) return InvalidType("reduction is 'sum', 'product', 'least' or 'largest'");
  return InferScatter(attrs, in);
}

// Whether the update of that number is of the place.
Expr IsUpdated(const Tensor& at, size_t axis, const Index& i, const Expr& number) {
  Index update(i.begin(), i.begin() + static_cast<std::ptrdiff_t>(axis));
  update.push_back(number);
  return ir::Eq(ir::Cast(at(update), DType::kI64), i[axis]);
}

absl::StatusOr<Tensor> ComputeScatter(ir::ProgramBuilder& b, const Attrs& attrs, Inputs in, const TensorType& output) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t along, NormalizeAxis(attrs.Int("axis", 0), in[0].rank()));
  const size_t axis = static_cast<size_t>(along);
  const Tensor data = in[0], at = in[1], updates = in[2];
  const TensorType places{DType::kI32, Shape(data.shape().begin(), data.shape().begin() + along + 1), {}};
  const Tensor last = ReduceStage(
      b, "last_update", places, {at.shape().back()}, ir::Combiner::kMax, [=](const Index& i, const Index& r) {
        return ir::Select(IsUpdated(at, axis, i, r[0]), ir::Cast(r[0], DType::kI32), ir::Int(-1, DType::kI32));
      });
  return Tensor(output.dtype, output.shape, [=](const Index& i) {
    const Expr update = last(Index(i.begin(), i.begin() + along + 1));
    return ir::Select(update < ir::Int(0, DType::kI32), data(i), updates(With(i, axis, ir::Cast(update, DType::kI64))));
  });
}

absl::StatusOr<Tensor> ComputeScatterReduce(ir::ProgramBuilder& b, const Attrs& attrs, Inputs in,
                                            const TensorType& output) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t along, NormalizeAxis(attrs.Int("axis", 0), in[0].rank()));
  const size_t axis = static_cast<size_t>(along);
  const ir::Combiner combiner = *ScatterCombiner(attrs);
  const Tensor data = in[0], at = in[1], updates = in[2];
  const Expr nothing = ir::Identity(combiner, data.dtype());
  const Tensor combined =
      ReduceStage(b, "updates", output, {at.shape().back()}, combiner, [=](const Index& i, const Index& r) {
        return ir::Select(IsUpdated(at, axis, i, r[0]), updates(With(i, axis, r[0])), nothing);
      });
  return Tensor(output.dtype, output.shape,
                [=](const Index& i) { return ir::Combine(combiner, data(i), combined(i)); });
}

// --- compact

// What of each line lies before `extent` along the axis, one line behind another from the first element on; zeros
// behind all. An extent that is none, or larger than the axis, is the nearest that is one. `open`: kernels may leave
// any number behind all.
absl::StatusOr<TensorType> InferCompact(const Attrs& attrs, Types in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"axis", AttrKind::kInt}, {"open", AttrKind::kInt}}));
  TEMPER_RETURN_IF_ERROR(NormalizeAxis(attrs.Int("axis", 0), Rank(in[0])).status());
  if (in[1].dtype != DType::kI64 || !in[1].shape.empty()) return InvalidType("the extent is one i64");
  if (Elements(in[0]) == 0) return InvalidType("there is an element");
  return TensorType{in[0].dtype, in[0].shape, {}};
}

absl::StatusOr<Tensor> ComputeCompact(ir::ProgramBuilder&, const Attrs& attrs, Inputs in, const TensorType& output) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis(attrs.Int("axis", 0), in[0].rank()));
  const Shape shape = output.shape;
  int64_t lines = 1, slice = 1;
  for (int64_t d = 0; d < std::ssize(shape); ++d)
    (d < axis ? lines : slice) *= d == axis ? 1 : shape[static_cast<size_t>(d)];
  const int64_t most = shape[static_cast<size_t>(axis)];
  return Tensor(output.dtype, shape, [=, x = in[0], extent = in[1]](const Index& i) {
    const Expr count = ir::Min(ir::Max(extent({}), Expr(0)), Expr(most)) * Expr(slice);
    const Expr length = ir::Max(count, Expr(1));
    Expr to = 0;
    for (size_t d = 0; d < shape.size(); ++d) to = to * Expr(shape[d]) + i[d];
    // Behind the lines any element is as good: it is not taken.
    Expr from = ir::Min(to / length, Expr(lines - 1)) * Expr(most * slice) + to % length;
    Index source(shape.size());
    for (size_t d = shape.size(); d-- > 0;) {
      source[d] = d == 0 ? from : from % Expr(shape[d]);
      from = from / Expr(shape[d]);
    }
    return ir::Select(to < count * Expr(lines), x(source), ir::Const(0, output.dtype));
  });
}

double FlopsOfFirst(const Attrs&, Types in, const TensorType&) { return Elements(in[0]); }
double FlopsOfUpdates(const Attrs&, Types in, const TensorType&) { return Elements(in[2]); }
double NoFlops(const Attrs&, Types, const TensorType&) { return 0; }

}  // namespace

std::optional<ir::Combiner> ScatterCombiner(const Attrs& attrs) {
  const std::string reduction = attrs.String("reduction", "");
  if (reduction == "sum") return ir::Combiner::kSum;
  if (reduction == "product") return ir::Combiner::kProd;
  if (reduction == "least") return ir::Combiner::kMin;
  if (reduction == "largest") return ir::Combiner::kMax;
  return std::nullopt;
}

std::vector<OpDef> SequentialOps() {
  OpDef top_k{"top_k", OpPattern::kSequential, 1, 1, InferTopK, ComputeTopK, FlopsOfFirst};
  OpDef cum_sum{"cum_sum", OpPattern::kSequential, 1, 1, InferCumSum, ComputeCumSum, FlopsOfFirst};
  OpDef scatter{"scatter", OpPattern::kSequential, 3, 3, InferReplace, ComputeScatter, NoFlops, OpTypes::kMoves};
  OpDef reduce{"scatter_reduce",     OpPattern::kSequential, 3, 3, InferScatterReduce,
               ComputeScatterReduce, FlopsOfUpdates};
  OpDef compact{"compact", OpPattern::kSequential, 2, 2, InferCompact, ComputeCompact, NoFlops, OpTypes::kMoves};
  compact.numbers = {Numbers::kAny, Numbers::kPlace};
  compact.counted = true;
  scatter.numbers = reduce.numbers = {Numbers::kAny, Numbers::kPlace, Numbers::kAny};
  return {top_k, cum_sum, scatter, reduce, compact};
}

}  // namespace temper::ops
