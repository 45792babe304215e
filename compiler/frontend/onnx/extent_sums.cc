// Extents that are sums of others, as of what a cache has and of what comes.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/frontend/onnx/extents.h"

namespace temper::onnx_frontend {
namespace {

using Terms = std::vector<ValueId>;

std::string Told(const Terms& terms, const Terms& less = {}) {
  return absl::StrCat("sum of extents ", absl::StrJoin(terms, ", "), less.empty() ? "" : " without ",
                      absl::StrJoin(less, ", "));
}

Terms Together(Terms one, const Terms& other) {
  one.insert(one.end(), other.begin(), other.end());
  std::ranges::sort(one);
  return one;
}

// all - gone, with the numbers left to the caller.
Context::Sum Without(const Context::Sum& all, const Context::Sum& gone) {
  const Terms terms = Together(all.terms, gone.less), less = Together(all.less, gone.terms);
  Context::Sum left;
  std::ranges::set_difference(terms, less, std::back_inserter(left.terms));
  std::ranges::set_difference(less, terms, std::back_inserter(left.less));
  left.number = all.number - gone.number;
  return left;
}

// Of terms in order: one value, however it was added up.
absl::StatusOr<ValueId> Added(Context& c, Terms terms) {
  constexpr size_t kMostTerms = 64;
  if (terms.size() == 1) return terms[0];
  if (terms.size() > kMostTerms) return absl::UnimplementedError("a sum of too many extents that only the run knows");
  const std::string what = Told(terms);
  if (const ValueId known = c.Made(what); known != kNoValue) return known;
  ValueId sum = terms[0];
  int64_t least = c.LeastOf(sum), most = c.MostOf(sum);
  for (size_t i = 1; i < terms.size(); ++i) {
    TEMPER_ASSIGN_OR_RETURN(sum, c.Call("add", {}, {sum, terms[i]}));
    const int64_t more = c.MostOf(terms[i]);
    least += c.LeastOf(terms[i]);
    most = most > 0 && more > 0 && most <= kMostExtent ? most + more : 0;  // 0: nobody knows
  }
  c.SetLeast(sum, least);
  if (most > 0) c.SetMost(sum, most);
  c.SetTerms(sum, std::move(terms));
  c.KeepMade(what, sum);
  return sum;
}

// What is left of a sum without others, of ranges. Lengths at which it were less than nothing are none that the model
// takes. kNoValue: it is never more than nothing, or nobody knows.
absl::StatusOr<ValueId> Left(Context& c, const Context::Sum& sum) {
  if (sum.terms.empty()) return kNoValue;
  TEMPER_ASSIGN_OR_RETURN(const ValueId all, Added(c, sum.terms));
  if (sum.less.empty()) return all;
  TEMPER_ASSIGN_OR_RETURN(const ValueId gone, Added(c, sum.less));
  const int64_t most = c.MostOf(all) - c.LeastOf(gone), least = c.LeastOf(all) - c.MostOf(gone);
  if (c.MostOf(all) == 0 || c.MostOf(gone) == 0 || most < 1) return kNoValue;
  const std::string what = Told(sum.terms, sum.less), there = absl::StrCat(what, ", or nothing");
  ValueId left = c.Made(what);
  if (left == kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(left, c.Call("sub", {}, {all, gone}));
    TEMPER_ASSIGN_OR_RETURN(const ValueId or_nothing, c.Call("max", {}, {left, c.Scalar(DType::kI64, 0)}));
    c.SetLeast(left, std::max<int64_t>(least, 0));
    c.SetMost(left, most);
    c.SetTerms(left, sum.terms, sum.less);
    c.KeepMade(what, left);
    c.KeepMade(there, or_nothing);
  }
  if (least < 0) c.MustAgree(left, c.Made(there));
  return left;
}

}  // namespace

absl::StatusOr<ValueId> SumOfExtents(Context& c, ValueId one, ValueId other) {
  const Context::Sum b = c.SumOf(other);
  const Context::Sum sum = Without(c.SumOf(one), {b.less, b.terms, -b.number});
  TEMPER_ASSIGN_OR_RETURN(const ValueId all, Left(c, sum));
  if (all == kNoValue) return absl::UnimplementedError("a sum of extents that is not known to be any");
  return StopsOf(c, all, sum.number - 1, 1);
}

absl::Status MakeSumOf(Context& c, ValueId extent, const Terms& terms, int64_t number) {
  Terms ordered = terms;
  std::ranges::sort(ordered);
  TEMPER_ASSIGN_OR_RETURN(const ValueId base, Added(c, ordered));
  TEMPER_ASSIGN_OR_RETURN(const ValueId sum, StopsOf(c, base, number - 1, 1));
  c.MustAgree(sum, extent);
  if (number == 0) {
    c.SetTerms(extent, ordered);
    c.KeepMade(Told(ordered), extent);
  } else {
    c.SetStops(extent, {base, number - 1, 1});
    c.KeepMade(StopsTold(base, number - 1, 1), extent);
  }
  return absl::OkStatus();
}

std::optional<Context::Sum> SumLeft(const Context& c, const Dims& all, const Dims& less) {
  if (all.most.size() != 1 || less.most.size() != 1) return std::nullopt;
  const auto sum_of = [&c](const Dims& dims) {
    return dims.varyings.empty() ? Context::Sum{{}, {}, dims.most[0]} : c.SumOf(dims.varyings[0].extent);
  };
  const auto counts = [](int64_t n) { return n >= -kMostExtent && n <= kMostExtent; };
  const Context::Sum from = sum_of(all), taken = sum_of(less);
  if (!counts(from.number) || !counts(taken.number)) return std::nullopt;
  return Without(from, taken);
}

namespace {

absl::StatusOr<std::optional<Dims>> Difference(Context& c, const Dims& all, const Dims& less, bool of_any) {
  const std::optional<Context::Sum> difference = SumLeft(c, all, less);
  if (!difference.has_value() || all.varyings.empty()) return std::nullopt;
  const Context::Sum& left = *difference;
  if (!left.less.empty() && (!of_any || left.number != 0)) return std::nullopt;
  if (left.terms.empty() && left.less.empty()) return Dims{{left.number}, {}};
  TEMPER_ASSIGN_OR_RETURN(const ValueId sum, Left(c, left));
  if (sum == kNoValue) return std::nullopt;
  const int64_t most = c.MostOf(sum) + left.number;
  if (c.MostOf(sum) == 0 || most < 1 || c.LeastOf(sum) + left.number < 0) return std::nullopt;
  TEMPER_ASSIGN_OR_RETURN(const ValueId extent, StopsOf(c, sum, left.number - 1, 1));
  return Dims{{most}, {{0, extent}}};
}

}  // namespace

absl::StatusOr<std::optional<Dims>> DifferenceOf(Context& c, const Dims& all, const Dims& less) {
  return Difference(c, all, less, false);
}

absl::StatusOr<std::optional<Dims>> DistanceOf(Context& c, const Dims& all, const Dims& less) {
  for (const Dims* dims : {&all, &less}) {
    for (const Varying& v : dims->varyings) {
      if (!IsOfRanges(c, v.extent)) return Difference(c, all, less, false);
    }
  }
  return Difference(c, all, less, true);
}

namespace {

// How much the one sum of extents is more than the other, no less than 0: a value that is the same for the same ones.
absl::StatusOr<ValueId> Excess(Context& c, const Terms& terms, const Terms& less, int64_t number) {
  const std::string what = absl::StrCat(Told(terms, less), " and ", number, ", or nothing");
  if (const ValueId known = c.Made(what); known != kNoValue) return known;
  ValueId v = c.Scalar(DType::kI64, static_cast<double>(number));
  int64_t least = number, most = number;
  for (const auto& [sum, sign] : {std::pair(&terms, 1), {&less, -1}}) {
    if (sum->empty()) continue;
    TEMPER_ASSIGN_OR_RETURN(const ValueId part, Added(c, *sum));
    if (c.MostOf(part) == 0 || c.MostOf(part) > kMostExtent) return kNoValue;
    TEMPER_ASSIGN_OR_RETURN(v, c.Call(sign > 0 ? "add" : "sub", {}, {v, part}));
    least += sign > 0 ? c.LeastOf(part) : -c.MostOf(part);
    most += sign > 0 ? c.MostOf(part) : -c.LeastOf(part);
  }
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("max", {}, {v, c.Scalar(DType::kI64, 0)}));
  c.SetLeast(v, std::max<int64_t>(least, 0));
  if (most > 0) c.SetMost(v, most);
  c.KeepMade(what, v);
  return v;
}

}  // namespace

absl::StatusOr<std::optional<Dims>> MoreThanNothing(Context& c, const Context::Sum& sum) {
  if (sum.terms.empty() && sum.less.empty()) return Dims{{std::max<int64_t>(sum.number, 0)}, {}};
  ValueId extent = kNoValue;
  if (sum.less.empty()) {
    TEMPER_ASSIGN_OR_RETURN(extent, Added(c, sum.terms));
    if (c.MostOf(extent) == 0) return std::nullopt;
    TEMPER_ASSIGN_OR_RETURN(extent, StopsOf(c, extent, sum.number - 1, 1));
  } else {
    TEMPER_ASSIGN_OR_RETURN(extent, Excess(c, sum.terms, sum.less, sum.number));
    if (extent == kNoValue) return std::nullopt;
  }
  const int64_t most = c.MostOf(extent);
  return most > 0 ? Dims{{most}, {{0, extent}}} : Dims{{0}, {}};
}

absl::StatusOr<std::optional<Dims>> StepsBetween(Context& c, const Dims& start, const Dims& end, int64_t step) {
  if (step == 0 || step < -kMostExtent || step > kMostExtent) return std::nullopt;
  const std::optional<Context::Sum> left = step > 0 ? SumLeft(c, end, start) : SumLeft(c, start, end);
  if (!left.has_value()) return std::nullopt;
  TEMPER_ASSIGN_OR_RETURN(std::optional<Dims> count, MoreThanNothing(c, *left));
  const int64_t stride = std::abs(step);
  if (!count.has_value() || stride == 1) return count;
  count->most[0] = (count->most[0] + stride - 1) / stride;
  if (!count->varyings.empty()) {
    ValueId& extent = count->varyings[0].extent;
    TEMPER_ASSIGN_OR_RETURN(extent, StopsOf(c, extent, -1, stride));
  }
  return count;
}

}  // namespace temper::onnx_frontend
