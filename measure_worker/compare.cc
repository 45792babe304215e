#include "measure_worker/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"

namespace temper::worker {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Largest difference and largest wanted magnitude over finite pairs; false at a pair that can not be compared so. Lanes
// are independent, so that it runs in vectors.
bool FastError(const float* got, const float* want, int64_t n, double& worst, double& largest) {
  constexpr int64_t kLanes = 16;
  float off[kLanes] = {}, top[kLanes] = {};
  int32_t odd[kLanes] = {};
  const auto look = [&](int64_t i, int64_t lane) {
    const float difference = std::abs(got[i] - want[i]), wanted = std::abs(want[i]);
    // A NaN or an infinity on either side makes the difference one.
    odd[lane] |= !(difference <= std::numeric_limits<float>::max());
    off[lane] = off[lane] < difference ? difference : off[lane];
    top[lane] = top[lane] < wanted ? wanted : top[lane];
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) look(i + lane, lane);
  }
  for (; i < n; ++i) look(i, 0);
  worst = *std::max_element(off, off + kLanes);
  largest = *std::max_element(top, top + kLanes);
  return std::none_of(odd, odd + kLanes, [](int32_t o) { return o != 0; });
}

// Truth values as the bytes that they are: what a kernel left unwritten is not true.
NDArray Copy(const void* got, const NDArray& like) {
  NDArray a(like.dtype() == DType::kBool ? DType::kU8 : like.dtype(), like.shape());
  if (like.bytes() > 0) std::memcpy(a.MutableData(), got, static_cast<size_t>(like.bytes()));
  return a;
}

// Calls `look` for the elements whose bytes are not those of `want`, and for some beside them.
template <typename Look>
void ForEachOther(const void* got, const NDArray& want, const Look& look) {
  constexpr int64_t kAtOnce = 64;  // are whole bytes, of any type
  for (int64_t first = 0; first < want.size(); first += kAtOnce) {
    const int64_t end = std::min(want.size(), first + kAtOnce);
    const int64_t begin_byte = BytesOf(want.dtype(), first), end_byte = BytesOf(want.dtype(), end);
    if (std::memcmp(static_cast<const char*>(got) + begin_byte, static_cast<const char*>(want.data()) + begin_byte,
                    static_cast<size_t>(end_byte - begin_byte)) == 0)
      continue;
    for (int64_t i = first; i < end; ++i) look(i);
  }
}

// `most_off`: so many elements may be, if they are numbers.
absl::Status Check(const void* got, const NDArray& want, int64_t most_off, double tolerance) {
  const double error = OutputError(got, want);
  const double bound = IsFloat(want.dtype()) ? std::max(ErrorBound(want.dtype()), tolerance) : 0;
  if (error <= bound) return absl::OkStatus();
  const NDArray a = Copy(got, want);
  const double allowed = bound > 0 ? bound * LargestOf(want) : 0;
  int64_t first = -1, off = 0;
  bool lost = false;
  ForEachOther(got, want, [&](int64_t i) {
    const double x = a.At(i), y = want.At(i);
    if (x == y || (std::isnan(x) && std::isnan(y)) || std::abs(x - y) <= allowed) return;
    if (off++ == 0) first = i;
    lost |= !std::isfinite(x) && std::isfinite(y);
  });
  if (off == 0 || (off <= most_off && !lost)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("relative error ", error, " where ", bound, " is allowed; ", off, " of ",
                                          want.size(), " elements are off, the first at ", first, ": ", a.At(first),
                                          " for ", want.At(first)));
}

}  // namespace

double ErrorBound(DType dtype) { return Info(dtype).tolerance; }

double LargestOf(const NDArray& a) {
  double largest = 0;
  for (int64_t i = 0, size = a.size(); i < size; ++i) {
    if (std::isfinite(a.At(i))) largest = std::max(largest, std::abs(a.At(i)));
  }
  return largest;
}

double OutputError(const void* got, const NDArray& want) {
  if (want.dtype() == DType::kF32) {
    double worst = 0, largest = 0;
    if (FastError(static_cast<const float*>(got), static_cast<const float*>(want.data()), want.size(), worst,
                  largest)) {
      return worst == 0 ? 0 : worst / std::max(largest, 1e-12);
    }
  } else if (!IsFloat(want.dtype())) {
    return want.bytes() == 0 || std::memcmp(got, want.data(), static_cast<size_t>(want.bytes())) == 0 ? 0 : kInfinity;
  }
  const NDArray a = Copy(got, want);
  if (Info(want.dtype()).bits != 16) return RelativeError(a, want);
  const NDArray wide = want.ConvertedTo(DType::kF32);
  return OutputError(a.ConvertedTo(DType::kF32).data(), wide);
}

absl::Status CheckOutput(const void* got, const NDArray& want, double tolerance) {
  return Check(got, want, 0, tolerance);
}

bool IsBetween(const void* got, const NDArray& want, const NDArray& least, const NDArray& most, double tolerance) {
  const NDArray a = Copy(got, want);
  const double allowed = std::max(ErrorBound(want.dtype()), tolerance);
  const double slack = IsFloat(want.dtype()) ? allowed * std::max(LargestOf(least), LargestOf(most)) : 0;
  bool between = true;
  ForEachOther(got, want, [&](int64_t i) {
    const double x = a.At(i), low = least.At(i), high = most.At(i);
    between &= (std::isnan(x) && (std::isnan(low) || std::isnan(high))) || (x >= low - slack && x <= high + slack);
  });
  return between;
}

absl::Status CheckModelOutput(const void* got, const NDArray& want, double tolerance, bool quantises) {
  constexpr int64_t kOneInSoMany = 1000, kOneStepInSoMany = 100;
  const int64_t in_so_many = quantises ? kOneStepInSoMany : kOneInSoMany;
  return Check(got, want, IsFloat(want.dtype()) && !quantises ? 0 : want.size() / in_so_many, tolerance);
}

}  // namespace temper::worker
