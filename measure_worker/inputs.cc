#include "measure_worker/inputs.h"

#include <algorithm>
#include <limits>
#include <span>

#include "base/rng.h"
#include "compiler/ops/op.h"

namespace temper::worker {
namespace {

constexpr int64_t kSmallInts = 8;
// Of a larger array the rest repeats the first so many, a prime: rows do not repeat with it. A table of words would
// take longer to draw than its gather to tune.
constexpr size_t kMostDrawn = 1048573;

// Inputs from which `arg` is computed.
void MarkSources(const Workload& w, int arg, std::vector<bool>& marked) {
  const int inputs = static_cast<int>(w.inputs.size());
  if (arg < 0) return;
  if (arg < inputs) {
    marked[arg] = true;
    return;
  }
  for (int a : w.calls[arg - inputs].args) MarkSources(w, a, marked);
}

std::vector<bool> PositiveInputs(const Workload& w) {
  std::vector<bool> positive(w.inputs.size(), false);
  for (const Workload::Call& call : w.calls) {
    const OpDef& op = *FindOp(call.op);
    for (size_t i = 0; i < call.args.size(); ++i) {
      if (op.NumbersOf(i) == Numbers::kPositive) MarkSources(w, call.args[i], positive);
    }
  }
  return positive;
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
  for (int64_t i = 0; i < a.size(); ++i) a.Set(i, static_cast<double>(low + rng.Below(high - low)));
}

}  // namespace

std::vector<NDArray> MakeInputs(const Workload& w, uint64_t seed) {
  const std::vector<bool> positive = PositiveInputs(w);
  const int64_t bound = PlaceBound(w);
  const bool gathers = bound != std::numeric_limits<int64_t>::max();
  Rng rng(seed);
  std::vector<NDArray> inputs;
  for (size_t i = 0; i < w.inputs.size(); ++i) {
    const TensorType& type = w.inputs[i].type;
    NDArray a(type.dtype, type.shape);
    if (IsFloat(type.dtype)) {
      FillFloats(a, rng, positive[i] ? 0.25 : -1.0, 1.0);
    } else if (type.dtype == DType::kBool) {
      FillInts(a, rng, 0, 2);
    } else if (gathers) {
      FillInts(a, rng, 0, bound);
    } else {
      const auto most = static_cast<int64_t>(std::min<double>(kSmallInts, Largest(type.dtype) + 1));
      FillInts(a, rng, positive[i] ? 1 : 0, most);
    }
    inputs.push_back(std::move(a));
  }
  return inputs;
}

NDArray MakeModelInput(DType dtype, const Shape& shape, uint64_t seed) {
  Rng rng(seed);
  NDArray a(dtype, shape);
  if (IsFloat(dtype))
    FillFloats(a, rng, -1.0, 1.0);
  else
    FillInts(a, rng, 0, 2);
  return a;
}

}  // namespace temper::worker
