// DeformConv against its definition, element by element.
#include <gmock/gmock.h>

#include <cmath>

#include "base/rng.h"
#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using ::testing::HasSubstr;
using testing::ModelBuilder;
using testing::Refusal;
using Ints = std::vector<int64_t>;

struct DeformCall {
  Shape x, weight, out;  // out: the result's spatial axes
  Ints strides, pads, dilations;
  int64_t groups = 1, of_offsets = 1;
  bool mask = false, bias = false;
  int type = onnx::TensorProto::FLOAT;

  int64_t taps() const { return NumElements(std::span(weight).subspan(2)); }
  Shape Beside(int64_t second) const {
    Shape shape = {x[0], second};
    shape.insert(shape.end(), out.begin(), out.end());
    return shape;
  }
  Shape offset() const { return Beside(of_offsets * taps() * std::ssize(out)); }
};

ModelBuilder ModelOf(const DeformCall& c) {
  ModelBuilder m(22);
  m.Input("x", c.x, c.type);
  m.Input("w", c.weight, c.type);
  m.Input("offset", c.offset(), c.type);
  if (c.bias) m.Input("b", {c.weight[0]}, c.type);
  if (c.mask) m.Input("mask", c.Beside(c.of_offsets * c.taps()), c.type);
  auto& node = m.Node("DeformConv", {"x", "w", "offset", c.bias ? "b" : "", c.mask ? "mask" : ""}, {"y"});
  ModelBuilder::SetInts(node, "strides", c.strides);
  ModelBuilder::SetInts(node, "pads", c.pads);
  ModelBuilder::SetInts(node, "dilations", c.dilations);
  ModelBuilder::SetInt(node, "group", c.groups);
  ModelBuilder::SetInt(node, "offset_group", c.of_offsets);
  m.Output("y");
  return m;
}

NDArray Drawn(Rng& rng, const Shape& shape, double range) {
  NDArray x(DType::kF32, shape);
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, range * (2 * rng.Uniform() - 1));
  return x;
}

// The plane's value at a position of its axes from `d` on: pixels outside are zero.
double Sample(const NDArray& x, int64_t at, const std::vector<double>& position, size_t d = 0) {
  if (d == position.size()) return x.At(at);
  const int64_t extent = x.shape()[d + 2];
  const double whole = std::floor(position[d]), share = position[d] - whole;
  double sum = 0;
  for (const auto& [pixel, weight] : {std::pair(whole, 1 - share), std::pair(whole + 1, share)}) {
    if (pixel < 0 || pixel >= static_cast<double>(extent)) continue;
    sum += weight * Sample(x, at * extent + static_cast<int64_t>(pixel), position, d + 1);
  }
  return sum;
}

Ints IndexOf(int64_t at, const Shape& shape) {
  Ints index(shape.size());
  for (size_t d = shape.size(); d-- > 0; at /= shape[d]) index[d] = at % shape[d];
  return index;
}

void Check(const DeformCall& c) {
  Rng rng(3);
  const NDArray x = Drawn(rng, c.x, 1), w = Drawn(rng, c.weight, 1), offset = Drawn(rng, c.offset(), 2.5);
  std::vector<NDArray> feeds = {x, w, offset};
  if (c.bias) feeds.push_back(Drawn(rng, {c.weight[0]}, 1));
  if (c.mask) feeds.push_back(Drawn(rng, c.Beside(c.of_offsets * c.taps()), 1));
  const NDArray y = ModelOf(c).Run(feeds)[0];
  ASSERT_EQ(y.shape(), c.Beside(c.weight[0]));
  const int64_t pixels = NumElements(c.out), axes = std::ssize(c.out), depth = c.weight[1], taps = c.taps();
  const Shape kernel(c.weight.begin() + 2, c.weight.end());
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t pixel = i % pixels, filter = i / pixels % c.weight[0], b = i / pixels / c.weight[0];
    const Ints out = IndexOf(pixel, c.out);
    double want = c.bias ? feeds[3].At(filter) : 0;
    for (int64_t k = 0; k < depth; ++k) {
      const int64_t channel = filter / (c.weight[0] / c.groups) * depth + k;
      const int64_t part = b * c.of_offsets + channel / (c.x[1] / c.of_offsets);
      for (int64_t tap = 0; tap < taps; ++tap) {
        const Ints of_tap = IndexOf(tap, kernel);
        std::vector<double> position;
        for (size_t d = 0; d < out.size(); ++d) {
          const int64_t row = (part * taps + tap) * axes + static_cast<int64_t>(d);
          position.push_back(static_cast<double>(out[d] * c.strides[d] + of_tap[d] * c.dilations[d] - c.pads[d]) +
                             offset.At(row * pixels + pixel));
        }
        const double factor = c.mask ? feeds.back().At((part * taps + tap) * pixels + pixel) : 1;
        want += factor * w.At((filter * depth + k) * taps + tap) * Sample(x, b * c.x[1] + channel, position);
      }
    }
    EXPECT_NEAR(y.At(i), want, 1e-4) << i;
  }
}

TEST(OnnxDeform, ConvolutionsSeePixelsBesideTheirOwn) {
  Check({{1, 1, 3, 3}, {1, 1, 2, 2}, {2, 2}, {1, 1}, {0, 0, 0, 0}, {1, 1}});
  Check({{2, 4, 5, 6}, {6, 4, 3, 3}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}, 1, 1, true, true});
  Check({{1, 4, 6, 5}, {2, 4, 3, 2}, {4, 6}, {1, 1}, {1, 1, 1, 1}, {2, 1}, 1, 2, true});
  Check({{2, 4, 5, 5}, {6, 2, 2, 2}, {4, 4}, {1, 1}, {0, 0, 0, 0}, {1, 1}, 2, 1, false, true});
  Check({{1, 8, 5, 5}, {4, 2, 2, 2}, {4, 4}, {1, 1}, {0, 0, 0, 0}, {1, 1}, 4, 2, true, true});
}

TEST(OnnxDeform, Volumes) {
  Check({{1, 2, 3, 4, 3}, {3, 2, 2, 2, 1}, {2, 3, 3}, {1, 1, 1}, {0, 0, 0, 0, 0, 0}, {1, 1, 1}, 1, 2, true, true});
}

// Positions are not rounded to the type of the image: in halves there is no pixel 2049.
TEST(OnnxDeform, PositionsInHalvesAreNotRounded) {
  const DeformCall c{
      {1, 1, 1, 2060},           {1, 1, 1, 1}, {1, 2060}, {1, 1}, {0, 0, 0, 0}, {1, 1}, 1, 1, false, false,
      onnx::TensorProto::FLOAT16};
  NDArray x(DType::kF16, c.x), w(DType::kF16, c.weight), offset(DType::kF16, c.offset());
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, static_cast<double>(i % 32));
  w.Set(0, 1);
  const NDArray y = ModelOf(c).Run({x, w, offset})[0];
  for (int64_t i = 2040; i < y.size(); ++i) EXPECT_EQ(y.At(i), static_cast<double>(i % 32)) << i;
}

TEST(OnnxDeform, WhatDoesNotFitIsSaidInOneLine) {
  const DeformCall fine{{1, 4, 5, 5}, {2, 4, 3, 3}, {3, 3}, {1, 1}, {0, 0, 0, 0}, {1, 1}};
  EXPECT_EQ(Refusal(ModelOf(fine)), "");
  const auto with = [&](auto change) {
    DeformCall c = fine;
    change(c);
    return Refusal(ModelOf(c));
  };
  EXPECT_THAT(with([](DeformCall& c) { c.groups = 2; }), HasSubstr("group does not fit the channels"));
  EXPECT_THAT(with([](DeformCall& c) { c.of_offsets = 3; }), HasSubstr("offset_group divides the channels"));
  EXPECT_THAT(with([](DeformCall& c) { c.out = {3, 2}; }), HasSubstr("the offsets are"));
  EXPECT_THAT(with([](DeformCall& c) { c.weight[2] = 6; }), HasSubstr("smaller than the kernel"));
  EXPECT_THAT(with([](DeformCall& c) { c.weight.pop_back(); }), HasSubstr("rank 4 is not supported"));
  ModelBuilder other = ModelOf(fine);
  ModelBuilder::SetInts(*other.model.mutable_graph()->mutable_node(0), "kernel_shape", {3, 2});
  EXPECT_THAT(Refusal(other), HasSubstr("kernel_shape is not that of the weight"));
}

}  // namespace
}  // namespace temper
