// Small graphs for tests, with as little writing as possible: errors end the test.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "compiler/graph/graph.h"

namespace temper::testing {

inline NDArray RandomArray(Rng& rng, Shape shape, double low = -1, double high = 1, DType dtype = DType::kF32) {
  NDArray a(dtype, std::move(shape));
  for (int64_t i = 0; i < a.size(); ++i) a.Set(i, low + (high - low) * rng.Uniform());
  return a;
}

inline NDArray Numbers(DType dtype, Shape shape, const std::vector<double>& values) {
  NDArray a(dtype, std::move(shape));
  for (size_t i = 0; i < values.size(); ++i) a.Set(static_cast<int64_t>(i), values[i]);
  return a;
}
inline NDArray Floats(Shape shape, const std::vector<double>& values) {
  return Numbers(DType::kF32, std::move(shape), values);
}

class Builder {
 public:
  explicit Builder(uint64_t seed = 1) : rng(seed) {}

  ValueId Input(Shape shape, DType dtype = DType::kF32) {
    const ValueId v =
        g.AddValue({"in" + std::to_string(g.inputs.size()), {dtype, std::move(shape), {}}, std::nullopt, false});
    g.inputs.push_back(v);
    return v;
  }
  ValueId Constant(NDArray data) {
    Value v{"c" + std::to_string(g.values.size()), {data.dtype(), data.shape(), {}}, std::nullopt, true};
    v.constant = std::move(data);
    return g.AddValue(std::move(v));
  }
  ValueId Random(Shape shape, double low = -1, double high = 1) {
    return Constant(RandomArray(rng, std::move(shape), low, high));
  }
  ValueId Scalar(double x) { return Constant(Floats({}, {x})); }
  NDArray Integers(DType dtype, Shape shape, double low, double high) {
    NDArray a(dtype, std::move(shape));
    for (int64_t i = 0; i < a.size(); ++i) a.Set(i, std::floor(low + (high - low + 1) * rng.Uniform()));
    return a;
  }
  // Of each of `count` places whether a run has it, whose extent is told.
  ValueId IsInside(int64_t count, ValueId extent) {
    NDArray places(DType::kI64, {count});
    for (int64_t i = 0; i < count; ++i) places.Set(i, static_cast<double>(i));
    return Call("less", {Constant(std::move(places)), extent});
  }
  ValueId Cast(ValueId v, DType to) { return Call("cast", {v}, String("to", std::string(Name(to)))); }
  ValueId Call(std::string op, std::vector<ValueId> inputs, Attrs attrs = {}) {
    absl::StatusOr<ValueId> v = g.AddNode(std::move(op), std::move(attrs), std::move(inputs));
    if (!v.ok()) ADD_FAILURE() << v.status();
    return v.ok() ? *v : 0;
  }
  ValueId Reshape(ValueId v, Shape shape) { return Call("reshape", {v}, Ints("shape", std::move(shape))); }
  ValueId Transpose(ValueId v, std::vector<int64_t> perm) {
    return Call("transpose", {v}, Ints("perm", std::move(perm)));
  }
  ValueId Conv(ValueId x, ValueId w, int64_t pad = 0, int64_t group = 1) {
    Attrs attrs = Ints("pads", {pad, pad, pad, pad});
    attrs.Set("group", group);
    return Call("conv2d", {x, w}, std::move(attrs));
  }
  void Output(ValueId v) {
    g.values[v].name = "out" + std::to_string(g.outputs.size());
    g.outputs.push_back(v);
  }
  static Attrs Ints(const char* name, std::vector<int64_t> values) {
    Attrs attrs;
    attrs.Set(name, std::move(values));
    return attrs;
  }
  static Attrs String(const char* name, std::string value) {
    Attrs attrs;
    attrs.Set(name, std::move(value));
    return attrs;
  }
  static Attrs Int(const char* name, int64_t value) {
    Attrs attrs;
    attrs.Set(name, value);
    return attrs;
  }

  Graph g;
  Rng rng;
};

inline std::vector<NDArray> RandomInputs(const Graph& g, uint64_t seed) {
  Rng rng(seed);
  std::vector<NDArray> inputs;
  for (ValueId v : g.inputs) inputs.push_back(RandomArray(rng, g.values[v].type.shape, -1, 1, g.values[v].type.dtype));
  return inputs;
}

// Equal up to rounding: errors are measured against the largest magnitude, and against 1 where all are small.
inline void ExpectClose(const std::vector<NDArray>& got, const std::vector<NDArray>& want, double bound = 1e-4) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t k = 0; k < got.size(); ++k) {
    ASSERT_EQ(ShapeText(got[k].shape()), ShapeText(want[k].shape())) << "output " << k;
    ASSERT_EQ(got[k].dtype(), want[k].dtype()) << "output " << k;
    double largest = 1, worst = 0;
    for (int64_t i = 0; i < want[k].size(); ++i) largest = std::max(largest, std::abs(want[k].At(i)));
    for (int64_t i = 0; i < want[k].size(); ++i) {
      const double error = std::abs(got[k].At(i) - want[k].At(i));
      worst = std::isfinite(error) ? std::max(worst, error) : std::numeric_limits<double>::infinity();
    }
    ASSERT_LE(worst, bound * largest) << "output " << k;
  }
}

inline std::vector<NDArray> Evaluated(const Graph& g, const std::vector<NDArray>& inputs) {
  absl::StatusOr<std::vector<NDArray>> outputs = RunReference(g, inputs);
  if (!outputs.ok()) ADD_FAILURE() << outputs.status() << "\n" << Text(g);
  return outputs.ok() ? *outputs : std::vector<NDArray>();
}

inline int CountOps(const Graph& g, std::string_view op) {
  int count = 0;
  for (const Node& node : g.nodes) count += node.op == op ? 1 : 0;
  return count;
}

}  // namespace temper::testing
