// Models whose input has a range along an axis, and what they must give.
#pragma once

#include <algorithm>
#include <cctype>
#include <functional>
#include <limits>

#include "base/hash.h"
#include "base/rng.h"
#include "base/strides.h"
#include "tests/frontend/model_builder.h"

namespace temper::testing {

constexpr int64_t kMost = 7;

// From "x" to "y".
struct RangeChain {
  const char* name;
  std::vector<int64_t> shape;  // of x; -1: the range
  std::function<void(ModelBuilder&)> add;
};

inline void Weights(ModelBuilder& m, const char* name, const std::vector<int64_t>& shape) {
  Rng rng(StableHash(name));  // others under another name
  std::vector<float> data(static_cast<size_t>(NumElements(shape)));
  for (float& v : data) v = static_cast<float>(rng.Uniform() - 0.5);
  m.Floats(name, shape, data);
}
inline onnx::NodeProto& Axis(onnx::NodeProto& node, int64_t axis) {
  ModelBuilder::SetInt(node, "axis", axis);
  return node;
}
// A whole number without axes.
inline void Number(ModelBuilder& m, const std::string& name, int64_t value) {
  m.Ints(name + " in a vector", {value});
  m.Ints(name + " has no axes", {0});
  m.Node("Squeeze", {name + " in a vector", name + " has no axes"}, {name});
}
inline void Permuted(ModelBuilder& m, const char* from, const char* to, const std::vector<int64_t>& perm) {
  ModelBuilder::SetInts(m.Node("Transpose", {from}, {to}), "perm", perm);
}
// "shape" of "x" by its elements: numbers, or -1 - i for the extent of x along axis i.
inline void ShapeLike(ModelBuilder& m, const char* name, const std::vector<int64_t>& elements) {
  m.Node("Shape", {"x"}, {std::string(name) + "_of_x"});
  std::vector<std::string> parts;
  for (size_t i = 0; i < elements.size(); ++i) {
    const std::string part = std::string(name) + std::to_string(i);
    parts.push_back(part);
    m.Ints(elements[i] < 0 ? part + "_at" : part, {elements[i] < 0 ? -1 - elements[i] : elements[i]});
    if (elements[i] < 0) m.Node("Gather", {std::string(name) + "_of_x", part + "_at"}, {part});
  }
  Axis(m.Node("Concat", parts, {name}), 0);
}
inline std::ostream& operator<<(std::ostream& out, const RangeChain& chain) { return out << chain.name; }

inline ModelBuilder ModelOf(const RangeChain& chain) {
  ModelBuilder m(17);
  m.Input("x", chain.shape);
  auto* dims = m.model.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
  for (int i = 0; i < dims->dim_size(); ++i) {
    if (chain.shape[static_cast<size_t>(i)] < 0) dims->mutable_dim(i)->set_dim_param("n");
  }
  chain.add(m);
  m.Output("y");
  return m;
}

inline Shape WithLength(Shape shape, int64_t length) {
  std::ranges::replace(shape, int64_t{-1}, length);
  return shape;
}

// The elements of `x` at the front along the axis, with what is no number behind them.
inline NDArray Behind(const NDArray& x, int64_t axis, int64_t most) {
  Shape shape = x.shape();
  const int64_t length = shape[static_cast<size_t>(axis)];
  shape[static_cast<size_t>(axis)] = most;
  NDArray all(x.dtype(), shape);
  const int64_t inner = NumElements(std::span(shape).subspan(static_cast<size_t>(axis) + 1));
  for (int64_t i = 0; i < all.size(); ++i) {
    const int64_t at = i / inner % most, from = i / inner / most * length + at;
    all.Set(i, at < length ? x.At(from * inner + i % inner) : std::numeric_limits<double>::quiet_NaN());
  }
  return all;
}

// At each length the model of a range, the least and the most, gives what it gives of a known length.
inline void ExpectAsOfKnownLengths(const RangeChain& chain, std::pair<int64_t, int64_t> range_of = {2, kMost},
                                   const std::vector<int64_t>& lengths = {kMost, kMost - 1, 5, 4, 2}) {
  const int64_t axis = std::ranges::find(chain.shape, -1) - chain.shape.begin();
  const ModelBuilder m = ModelOf(chain);
  const absl::StatusOr<Graph> range = m.Import({.dims = {{"n", DimLength(range_of.first, range_of.second)}}});
  ASSERT_TRUE(range.ok()) << range.status();
  Rng rng(5);
  for (const int64_t length : lengths) {
    SCOPED_TRACE(length);
    const absl::StatusOr<Graph> known = m.Import({.dims = {{"n", length}}});
    ASSERT_TRUE(known.ok()) << known.status();
    NDArray x(DType::kF32, WithLength(chain.shape, length)), count(DType::kI64, {});
    for (int64_t i = 0; i < x.size(); ++i) x.Set(i, rng.Uniform() - 0.5);
    count.Set(0, static_cast<double>(length));
    const auto want = RunReference(*known, std::vector<NDArray>{x});
    const auto got = RunReference(*range, std::vector<NDArray>{Behind(x, axis, range_of.second), count});
    ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
    Shape shape = (*got)[0].shape();
    for (const Extent& e : range->extents)
      shape[static_cast<size_t>(e.axis)] = (*got)[static_cast<size_t>(e.told_by)].as<int64_t>()[0];
    ASSERT_EQ(shape, (*want)[0].shape());
    for (int64_t i = 0; i < NumElements(shape); ++i) ASSERT_NEAR((*got)[0].At(i), (*want)[0].At(i), 1e-5) << i;
  }
}

}  // namespace temper::testing
