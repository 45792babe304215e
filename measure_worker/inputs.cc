#include "measure_worker/inputs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/rng.h"
#include "compiler/ops/integer_sums.h"
#include "compiler/ops/op.h"

namespace temper::worker {
namespace {

// Of a larger array the rest repeats the first so many, a prime: rows do not repeat with it. A table of words would
// take longer to draw than its gather to tune.
constexpr size_t kMostDrawn = 1048573;

// Least and greatest, both met.
struct Bounds {
  double low = 0, high = 0;
  double mean() const { return (low + high) / 2; }
  double mean_square() const { return (low * low + low * high + high * high) / 3; }
};

// An operand of a call, as its operator has it.
struct Operand {
  const OpDef& op;
  size_t index;
  DType dtype, result;
};

// By input, whether operands that are `wanted` are computed from it; `behind_sums`: also by way of contractions.
template <typename Wanted>
std::vector<bool> SourcesOf(const Workload& w, bool behind_sums, const Wanted& wanted) {
  std::vector<bool> marked(w.inputs.size() + w.calls.size(), false);
  for (size_t call = w.calls.size(); call-- > 0;) {
    const Workload::Call& c = w.calls[call];
    const OpDef& op = *FindOp(c.op);
    const bool of_wanted = marked[w.inputs.size() + call] && (behind_sums || op.terms == nullptr);
    for (size_t i = 0; i < c.args.size(); ++i) {
      if (c.args[i] < 0) continue;
      if (of_wanted || wanted(Operand{op, i, w.TypeOf(c.args[i]).dtype, c.type.dtype})) marked[c.args[i]] = true;
    }
  }
  marked.resize(w.inputs.size());
  return marked;
}

// Integers below this are valid positions wherever the workload has an operand of them.
int64_t PlaceBound(const Workload& w) {
  int64_t bound = std::numeric_limits<int64_t>::max();
  for (const Workload::Call& call : w.calls) {
    const OpDef& op = *FindOp(call.op);
    for (size_t i = 1; i < call.args.size(); ++i) {
      if (op.NumbersOf(i) != Numbers::kPlace || call.args[0] < 0) continue;
      const Shape& data = w.TypeOf(call.args[0]).shape;
      const auto rank = static_cast<int64_t>(data.size());
      if (rank > 0) bound = std::min(bound, data[(call.attrs.Int("axis", 0) % rank + rank) % rank]);
    }
  }
  return std::max<int64_t>(bound, 1);
}

template <class T>
void FillFloats(std::span<T> a, Rng& rng, double low, double high) {
  const double width = high - low;
  const size_t drawn = std::min(a.size(), kMostDrawn);
  for (T& x : a.first(drawn)) x = static_cast<T>(low + width * rng.Uniform());
  for (size_t i = drawn; i < a.size(); i += drawn) {
    std::copy_n(a.begin(), std::min(drawn, a.size() - i), a.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void FillFloats(NDArray& a, Rng& rng, double low, double high) {
  if (a.dtype() == DType::kF32) return FillFloats(a.as<float>(), rng, low, high);
  if (a.dtype() == DType::kF64) return FillFloats(a.as<double>(), rng, low, high);
  NDArray wide(DType::kF32, a.shape());
  FillFloats(wide, rng, low, high);
  a = wide.ConvertedTo(a.dtype());
}

void FillInts(NDArray& a, Rng& rng, int64_t low, int64_t high) {
  for (int64_t i = 0, size = a.size(); i < size; ++i) a.Set(i, static_cast<double>(low + rng.Below(high - low + 1)));
}

constexpr double kSmall = 7;

// Of integers that are no positions. Narrow ones are what was quantised: all that there are, or a kernel that sums them
// in too few bits would seem right. Wider ones may be counts.
Bounds BoundsOf(DType dtype) {
  constexpr double kOf16Bits = 1000, kUnsignedOf16Bits = 255;
  const int bits = Info(dtype).bits;
  if (dtype == DType::kBool) return {0, 1};
  if (bits <= 8) return {Lowest(dtype), Largest(dtype)};
  if (bits == 16) return IsUnsigned(dtype) ? Bounds{0, kUnsignedOf16Bits} : Bounds{-kOf16Bits, kOf16Bits};
  return {0, kSmall};
}

// By input, whether its integers are small: they are divided or raised to powers, become floats as they are, or floats
// of 16 bits in any way.
std::vector<bool> AreSmall(const Workload& w) {
  std::vector<bool> small = SourcesOf(w, true, [](const Operand& o) {
    const bool divides = std::ranges::find(o.op.numbers, Numbers::kPositive) != o.op.numbers.end();
    return !IsFloat(o.dtype) && (divides || (IsFloat(o.result) && Info(o.result).bits <= 16));
  });
  const std::vector<bool> become_floats =
      SourcesOf(w, false, [](const Operand& o) { return !IsFloat(o.dtype) && IsFloat(o.result); });
  for (size_t i = 0; i < small.size(); ++i) small[i] = small[i] || become_floats[i];
  return small;
}

std::vector<Bounds> BoundsOfInputs(const Workload& w) {
  const std::vector<bool> positive =
      SourcesOf(w, true, [](const Operand& o) { return o.op.NumbersOf(o.index) == Numbers::kPositive; });
  const std::vector<bool> small = AreSmall(w);
  const int64_t places = PlaceBound(w);
  std::vector<Bounds> bounds;
  for (size_t i = 0; i < w.inputs.size(); ++i) {
    const DType dtype = w.inputs[i].type.dtype;
    if (IsFloat(dtype)) {
      bounds.push_back({positive[i] ? 0.25 : -1.0, 1});
      continue;
    }
    Bounds b = BoundsOf(dtype);
    if (dtype != DType::kBool && places != std::numeric_limits<int64_t>::max())
      b = {0, static_cast<double>(places - 1)};
    else if (small[i])
      b = {0, std::min(kSmall, b.high)};
    if (positive[i]) b.low = std::min(std::max(b.low, 1.0), b.high);
    bounds.push_back(b);
  }
  return bounds;
}

// Of any value of integers, about: `calls` back they are told by the inputs, and by the type before.
Bounds BoundsOf(const Workload& w, const std::vector<Bounds>& bounds, int v, int calls = 4) {
  const auto inputs = static_cast<int>(w.inputs.size());
  if (v < inputs) return bounds[v];
  const Workload::Call& call = w.calls[v - inputs];
  const auto is_integer = [&](int arg) { return arg >= 0 && !IsFloat(w.TypeOf(arg).dtype); };
  if (calls == 0 || call.args.empty() || !std::ranges::all_of(call.args, is_integer)) return BoundsOf(call.type.dtype);
  const Bounds first = BoundsOf(w, bounds, call.args[0], calls - 1);
  if (call.args.size() != 2 || FindOp(call.op)->pattern != OpPattern::kElementwise) return first;
  const Bounds second = BoundsOf(w, bounds, call.args[1], calls - 1);  // a zero point
  return {first.low - second.high, first.high - second.low};
}

// How large sums of integers are in which value `v` is computed; 0 if it is no such sum.
double SizeOfIntegerSums(const Workload& w, const std::vector<Bounds>& bounds, int v) {
  const auto inputs = static_cast<int>(w.inputs.size());
  const auto maker_of = [&](int of) { return of < inputs ? nullptr : &w.calls[of - inputs]; };
  const Workload::Call* sums =
      IntegerSumsIn(v, maker_of, &Workload::Call::args, [&](int of) { return w.TypeOf(of).dtype; });
  if (sums == nullptr) return 0;
  std::vector<TensorType> types;
  for (int arg : sums->args) types.push_back(arg < 0 ? TensorType{} : w.TypeOf(arg));
  const double terms = FindOp(sums->op)->terms(sums->attrs, types);
  const Bounds a = BoundsOf(w, bounds, sums->args[0]), b = BoundsOf(w, bounds, sums->args[1]);
  return std::sqrt(terms * a.mean_square() * b.mean_square()) + terms * std::abs(a.mean() * b.mean());
}

// Scales make numbers of 8 bits of sums of integers: few are cut to their bounds, and none lose their sign or size to
// another scale behind.
void ScaleIntegerSums(const Workload& w, std::vector<Bounds>& bounds) {
  constexpr double kOf8Bits = 64;
  std::vector<double> size(bounds.size(), 0);  // of what it scales
  std::vector<bool> scales(bounds.size(), false);
  for (const Workload::Call& call : w.calls) {
    const OpDef& op = *FindOp(call.op);
    if (call.args.size() != 2 || op.NumbersOf(0) != Numbers::kFactor) continue;
    for (size_t i = 0; i < 2; ++i) {
      const int scale = call.args[i], other = call.args[1 - i];
      const bool divides = i == 1 && op.NumbersOf(1) == Numbers::kPositive;
      if ((!divides && op.NumbersOf(i) != Numbers::kFactor) || scale < 0 || other < 0) continue;
      if (scale >= std::ssize(w.inputs) || !IsFloat(w.TypeOf(scale).dtype)) continue;
      scales[scale] = true;
      const double sums = SizeOfIntegerSums(w, bounds, other);
      if (sums > 0) size[scale] = divides ? kOf8Bits * kOf8Bits / sums : sums;
    }
  }
  if (std::ranges::none_of(size, [](double s) { return s > 0; })) return;
  for (size_t i = 0; i < bounds.size(); ++i) {
    if (scales[i]) bounds[i] = size[i] > 0 ? Bounds{kOf8Bits / 2 / size[i], kOf8Bits / size[i]} : Bounds{0.5, 1};
  }
}

}  // namespace

std::vector<NDArray> MakeInputs(const Workload& w, uint64_t seed) {
  std::vector<Bounds> bounds = BoundsOfInputs(w);
  ScaleIntegerSums(w, bounds);
  Rng rng(seed);
  std::vector<NDArray> inputs;
  for (size_t i = 0; i < w.inputs.size(); ++i) {
    NDArray& a = inputs.emplace_back(w.inputs[i].type.dtype, w.inputs[i].type.shape);
    if (IsFloat(a.dtype()))
      FillFloats(a, rng, bounds[i].low, bounds[i].high);
    else
      FillInts(a, rng, static_cast<int64_t>(bounds[i].low), static_cast<int64_t>(bounds[i].high));
  }
  return inputs;
}

NDArray MakeModelInput(DType dtype, const Shape& shape, uint64_t seed) {
  Rng rng(seed);
  NDArray a(dtype, shape);
  if (IsFloat(dtype))
    FillFloats(a, rng, -1.0, 1.0);
  else
    FillInts(a, rng, 0, 1);
  return a;
}

}  // namespace temper::worker
