#include "compiler/graph/fill_constants.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <numbers>
#include <thread>

#include "base/rng.h"
#include "compiler/ops/integer_sums.h"

namespace temper {
namespace {

struct Draw {
  double mean = 0, deviation = 0.1;
  bool positive = false;
};

// Models have hundreds of millions of weights: after so many, which divide no dimension, a constant repeats itself.
constexpr int64_t kDrawn = 65521;
constexpr int64_t kWorthAThread = 1 << 22;  // elements

// Roughly normal: the sum of four uniforms, which is the same on every platform. One number's bits make all four.
double Normal(Rng& rng) {
  constexpr uint64_t kMask = 0xffff;
  const uint64_t bits = rng.Next();
  const uint64_t sum = (bits & kMask) + (bits >> 16 & kMask) + (bits >> 32 & kMask) + (bits >> 48);
  return (static_cast<double>(sum) * 0x1p-16 - 2) * std::numbers::sqrt3;
}

double TermsOf(const Graph& g, const Node& node) {
  std::vector<TensorType> inputs;
  for (ValueId v : node.inputs) inputs.push_back(v == kNoValue ? TensorType{} : g.values[v].type);
  return FindOp(node.op)->terms(node.attrs, inputs);
}

using Producers = std::vector<const Node*>;  // by value

// How many products of integers an element of `v` is the sum of, as floats; 0 if it is no such sum.
double TermsOfIntegers(const Graph& g, const Producers& producers, ValueId v) {
  const auto maker_of = [&](ValueId of) { return producers[of]; };
  const Node* sums = IntegerSumsIn(v, maker_of, &Node::inputs, [&](ValueId of) { return g.values[of].type.dtype; });
  return sums == nullptr ? 0 : TermsOf(g, *sums);
}

Draw HowToDraw(const Graph& g, const Producers& producers, const Node& node, size_t operand) {
  const OpDef& op = *FindOp(node.op);
  // A convolution is mostly followed by an activation that halves its square.
  if (op.terms) return {0, std::sqrt((op.windows ? 2 : 1) / TermsOf(g, node))};
  // Scales make sums of integers numbers of 8 bits again: activations mostly below 64, of weights as they are drawn.
  if (operand < 2 && op.NumbersOf(operand) == Numbers::kFactor && op.NumbersOf(1 - operand) == Numbers::kFactor) {
    const ValueId other = node.inputs[1 - operand];
    const double terms = other == kNoValue ? 0 : TermsOfIntegers(g, producers, other);
    const double scale = 1 / (64 * std::sqrt(terms));
    if (terms > 0) return {scale, 0.05 * scale, true};
  }
  switch (op.NumbersOf(operand)) {
    case Numbers::kFactor:
      return {1, 0.05, true};
    case Numbers::kPositive:
      return {1, 0.1, true};
    case Numbers::kAny:
    case Numbers::kPlace:
      break;
  }
  if (op.move == Move::kPicks) return {0, 0.5};
  return {};
}

// Weights that were quantised: numbers of 8 bits around the middle, whatever they are held in, a few at the ends.
std::function<double()> Integers(DType dtype, Rng& rng) {
  const double least = std::max(Lowest(dtype), Lowest(DType::kI8));
  const double most = std::min(Largest(dtype), Largest(IsUnsigned(dtype) ? DType::kU8 : DType::kI8));
  const double middle = std::ceil((least + most) / 2), deviation = (most - least + 1) / 6;
  return [=, &rng] { return std::clamp(std::round(middle + deviation * Normal(rng)), least, most); };
}

NDArray DrawArray(const TensorType& type, const Draw& draw, Rng rng) {
  std::function<double()> next = [&] {
    const double x = draw.mean + draw.deviation * Normal(rng);
    return draw.positive ? std::abs(x) : x;
  };
  if (!IsFloat(type.dtype)) next = Integers(type.dtype, rng);
  NDArray data(type.dtype, type.shape);
  const bool whole_bytes = Info(type.dtype).bits % 8 == 0;
  const int64_t drawn = whole_bytes ? std::min(data.size(), kDrawn) : data.size();
  for (int64_t i = 0; i < drawn; ++i) data.Set(i, next());
  const int64_t size = BytesOf(type.dtype, drawn);
  auto* bytes = static_cast<char*>(data.MutableData());
  for (int64_t at = size; at < data.bytes(); at += size)
    std::copy_n(bytes, std::min(size, data.bytes() - at), bytes + at);
  return data;
}

}  // namespace

void FillConstants(Graph& g, uint64_t seed) {
  std::vector<Draw> draws(g.values.size());
  Producers producers(g.values.size(), nullptr);
  for (const Node& node : g.nodes) producers[node.output] = &node;
  for (const Node& node : g.nodes) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != kNoValue) draws[node.inputs[i]] = HowToDraw(g, producers, node, i);
    }
  }
  std::vector<size_t> open;
  int64_t elements = 0;
  for (size_t id = 0; id < g.values.size(); ++id) {
    if (!g.values[id].is_constant || g.values[id].constant.has_value()) continue;
    open.push_back(id);
    elements += NumElements(g.values[id].type.shape);
  }
  std::atomic<size_t> next{0};
  const auto fill = [&] {
    for (size_t i; (i = next.fetch_add(1)) < open.size();) {
      Value& v = g.values[open[i]];
      // A stream for each value: who draws it when does not matter, and one more constant does not change the others.
      v.constant = DrawArray(v.type, draws[open[i]], Rng(seed * 0x9e3779b97f4a7c15ull + open[i]));
    }
  };
  std::vector<std::thread> helpers;
  const size_t threads = elements < kWorthAThread ? 1 : std::max(1u, std::thread::hardware_concurrency());
  for (size_t i = 1; i < std::min(threads, open.size()); ++i) helpers.emplace_back(fill);
  fill();
  for (std::thread& t : helpers) t.join();
}

}  // namespace temper
