// Extents that are sums of others, as of what a cache has and of what comes.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/frontend/onnx/extents.h"

namespace temper::onnx_frontend {
namespace {

using Terms = std::vector<ValueId>;

std::string Told(const Terms& terms) { return absl::StrCat("sum of extents ", absl::StrJoin(terms, ", ")); }

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

}  // namespace

absl::StatusOr<ValueId> SumOfExtents(Context& c, ValueId one, ValueId other) {
  const Context::Sum a = c.SumOf(one), b = c.SumOf(other);
  Terms terms = a.terms;
  terms.insert(terms.end(), b.terms.begin(), b.terms.end());
  std::ranges::sort(terms);
  TEMPER_ASSIGN_OR_RETURN(const ValueId sum, Added(c, std::move(terms)));
  return StopsOf(c, sum, a.number + b.number - 1, 1);
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

absl::StatusOr<std::optional<Dims>> DifferenceOf(Context& c, const Dims& all, const Dims& less) {
  if (all.most.size() != 1 || less.most.size() != 1 || all.varyings.empty()) return std::nullopt;
  Context::Sum left = c.SumOf(all.varyings[0].extent);
  Context::Sum gone{{}, less.most[0]};
  if (!less.varyings.empty()) gone = c.SumOf(less.varyings[0].extent);
  if (std::abs(gone.number) > kMostExtent || !std::ranges::includes(left.terms, gone.terms)) return std::nullopt;
  Terms terms;
  std::ranges::set_difference(left.terms, gone.terms, std::back_inserter(terms));
  const int64_t number = left.number - gone.number;
  if (terms.empty()) return Dims{{number}, {}};
  TEMPER_ASSIGN_OR_RETURN(const ValueId sum, Added(c, std::move(terms)));
  const int64_t most = c.MostOf(sum) + number;
  if (c.MostOf(sum) == 0 || most < 1 || c.LeastOf(sum) + number < 0) return std::nullopt;
  TEMPER_ASSIGN_OR_RETURN(const ValueId extent, StopsOf(c, sum, number - 1, 1));
  return Dims{{most}, {{0, extent}}};
}

}  // namespace temper::onnx_frontend
