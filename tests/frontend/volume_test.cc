// Convolutions and pools over three axes against plain loops.
#include <gmock/gmock.h>

#include <cmath>

#include "base/rng.h"
#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using ::testing::HasSubstr;
using testing::ModelBuilder;

using Ints = std::vector<int64_t>;

struct VolumeCase {
  Shape x;
  Ints kernel, strides, dilations, pads;
  int64_t out_channels = 1, group = 1;
};

std::vector<float> DrawnFloats(Rng& rng, const Shape& shape) {
  std::vector<float> data(static_cast<size_t>(NumElements(shape)));
  for (float& v : data) v = static_cast<float>(2 * rng.Uniform() - 1);
  return data;
}

NDArray AsArray(const Shape& shape, const std::vector<float>& data) {
  NDArray a(DType::kF32, shape);
  for (size_t i = 0; i < data.size(); ++i) a.Set(static_cast<int64_t>(i), data[i]);
  return a;
}

Shape OutputShape(const VolumeCase& v, int64_t channels) {
  Shape shape = {v.x[0], channels};
  for (size_t d = 0; d < 3; ++d) {
    const int64_t room = v.x[2 + d] + v.pads[d] + v.pads[3 + d] - (v.kernel[d] - 1) * v.dilations[d] - 1;
    shape.push_back(room / v.strides[d] + 1);
  }
  return shape;
}

// Calls f(tap, pixel, inside) for each tap of the window at output position (i, j, k): the tap's and the pixel's place
// in a filter and in one channel of the volume.
template <typename F>
void ForEachTap(const VolumeCase& v, const Ints& at, F f) {
  for (int64_t tap = 0; tap < NumElements(v.kernel); ++tap) {
    const Ints t = {tap / v.kernel[2] / v.kernel[1], tap / v.kernel[2] % v.kernel[1], tap % v.kernel[2]};
    int64_t pixel = 0;
    bool inside = true;
    for (size_t d = 0; d < 3; ++d) {
      const int64_t p = at[d] * v.strides[d] + t[d] * v.dilations[d] - v.pads[d];
      inside = inside && p >= 0 && p < v.x[2 + d];
      pixel = pixel * v.x[2 + d] + p;
    }
    f(tap, pixel, inside);
  }
}

// f(n, c, position) for each element of the result, in order.
template <typename F>
NDArray Make(const Shape& shape, F f) {
  NDArray y(DType::kF32, shape);
  const int64_t pixels = shape[2] * shape[3] * shape[4];
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t p = i % pixels;
    y.Set(i, f(i / pixels / shape[1], i / pixels % shape[1],
               Ints{p / shape[4] / shape[3], p / shape[4] % shape[3], p % shape[4]}));
  }
  return y;
}

void ExpectNear(const NDArray& got, const NDArray& want) {
  ASSERT_EQ(got.shape(), want.shape());
  for (int64_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got.At(i), want.At(i), 1e-4) << i;
}

void SetWindow(onnx::NodeProto& node, const VolumeCase& v) {
  ModelBuilder::SetInts(node, "strides", v.strides);
  ModelBuilder::SetInts(node, "dilations", v.dilations);
  ModelBuilder::SetInts(node, "pads", v.pads);
}

const VolumeCase kCases[] = {
    {{1, 1, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0, 0, 0, 0}},
    {{2, 4, 5, 6, 7}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1, 1, 1, 1}, 6, 2},
    {{1, 3, 9, 5, 6}, {2, 3, 1}, {2, 1, 3}, {3, 1, 1}, {1, 0, 0, 2, 1, 0}, 2, 1},
    {{2, 4, 4, 7, 5}, {2, 2, 3}, {3, 2, 2}, {1, 2, 1}, {0, 1, 1, 1, 1, 0}, 4, 4},
};

TEST(OnnxVolume, Convolutions) {
  for (const VolumeCase& v : kCases) {
    Rng rng(3);
    const int64_t each = v.x[1] / v.group, outs = v.out_channels / v.group;
    const Shape filter = {v.out_channels, each, v.kernel[0], v.kernel[1], v.kernel[2]};
    const std::vector<float> x = DrawnFloats(rng, v.x), w = DrawnFloats(rng, filter),
                             bias = DrawnFloats(rng, {v.out_channels});
    ModelBuilder m(13);
    m.Input("x", v.x);
    m.Floats("w", filter, w);
    m.Floats("b", {v.out_channels}, bias);
    auto& node = m.Node("Conv", {"x", "w", "b"}, {"y"});
    SetWindow(node, v);
    ModelBuilder::SetInt(node, "group", v.group);
    m.Output("y");
    const int64_t taps = NumElements(v.kernel), volume = v.x[2] * v.x[3] * v.x[4];
    const NDArray want = Make(OutputShape(v, v.out_channels), [&](int64_t n, int64_t o, const Ints& at) {
      double sum = bias[static_cast<size_t>(o)];
      for (int64_t c = 0; c < each; ++c) {
        const int64_t channel = n * v.x[1] + o / outs * each + c;
        ForEachTap(v, at, [&](int64_t tap, int64_t pixel, bool inside) {
          if (inside)
            sum +=
                x[static_cast<size_t>(channel * volume + pixel)] * w[static_cast<size_t>((o * each + c) * taps + tap)];
        });
      }
      return sum;
    });
    ExpectNear(m.Run({AsArray(v.x, x)})[0], want);
  }
}

TEST(OnnxVolume, Pools) {
  for (const VolumeCase& v : kCases) {
    for (const int64_t mode : {0, 1, 2}) {                     // the largest, the mean, the mean with padding
      if (mode > 0 && v.dilations != Ints{1, 1, 1}) continue;  // averages have no dilations before opset 19
      Rng rng(4);
      const std::vector<float> x = DrawnFloats(rng, v.x);
      ModelBuilder m(19);
      m.Input("x", v.x);
      auto& node = m.Node(mode == 0 ? "MaxPool" : "AveragePool", {"x"}, {"y"});
      SetWindow(node, v);
      ModelBuilder::SetInts(node, "kernel_shape", v.kernel);
      if (mode == 2) ModelBuilder::SetInt(node, "count_include_pad", 1);
      m.Output("y");
      const int64_t volume = v.x[2] * v.x[3] * v.x[4];
      const NDArray want = Make(OutputShape(v, v.x[1]), [&](int64_t n, int64_t c, const Ints& at) {
        double most = -INFINITY, sum = 0, count = 0;
        ForEachTap(v, at, [&](int64_t, int64_t pixel, bool inside) {
          count += inside || mode == 2 ? 1 : 0;
          if (!inside) return;
          const double value = x[static_cast<size_t>((n * v.x[1] + c) * volume + pixel)];
          most = std::max(most, value);
          sum += value;
        });
        return mode == 0 ? most : sum / count;
      });
      ExpectNear(m.Run({AsArray(v.x, x)})[0], want);
    }
  }
}

// A transposed convolution of 4 channels in two groups to 6.
struct Transposed {
  Shape image, filter;
  Ints strides, pads, dilations = {1, 1, 1}, extra = {0, 0, 0};
  Shape result() const {
    Shape shape = {image[0], 6};
    for (size_t d = 0; d < 3; ++d)
      shape.push_back((image[d + 2] - 1) * strides[d] + (filter[d + 2] - 1) * dilations[d] + 1 + extra[d] - pads[d] -
                      pads[d + 3]);
    return shape;
  }
};
Ints Along(int64_t at, const Shape& shape) {
  return {at / shape[4] / shape[3] % shape[2], at / shape[4] % shape[3], at % shape[4]};
}

void CheckTransposed(const Transposed& t) {
  const Shape result = t.result();
  SCOPED_TRACE(ShapeText(result));
  Rng rng(6);
  const std::vector<float> x = DrawnFloats(rng, t.image), w = DrawnFloats(rng, t.filter), bias = DrawnFloats(rng, {6});
  ModelBuilder m(13);
  m.Input("x", t.image);
  m.Floats("w", t.filter, w);
  m.Floats("b", {6}, bias);
  auto& node = m.Node("ConvTranspose", {"x", "w", "b"}, {"y"});
  ModelBuilder::SetInts(node, "strides", t.strides);
  ModelBuilder::SetInts(node, "pads", t.pads);
  ModelBuilder::SetInts(node, "dilations", t.dilations);
  ModelBuilder::SetInts(node, "output_padding", t.extra);
  ModelBuilder::SetInt(node, "group", 2);
  m.Output("y");
  NDArray want = Make(result, [&](int64_t, int64_t c, const Ints&) { return bias[static_cast<size_t>(c)]; });
  const int64_t pixels = NumElements(std::span(t.image).subspan(2)), taps = NumElements(std::span(t.filter).subspan(2));
  for (int64_t i = 0; i < NumElements(t.image); ++i) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      const Ints from = Along(i, t.image), of_tap = Along(tap, t.filter);
      Ints to;
      bool inside = true;
      for (size_t d = 0; d < 3; ++d) {
        to.push_back(from[d] * t.strides[d] + of_tap[d] * t.dilations[d] - t.pads[d]);
        inside = inside && to[d] >= 0 && to[d] < result[2 + d];
      }
      const int64_t channel = i / pixels % 4, image_at = i / pixels / 4;
      for (int64_t o = 0; inside && o < 3; ++o) {
        const int64_t plane = image_at * 6 + channel / 2 * 3 + o;
        const int64_t at = ((plane * result[2] + to[0]) * result[3] + to[1]) * result[4] + to[2];
        want.Set(at, want.At(at) + x[static_cast<size_t>(i)] * w[static_cast<size_t>((channel * 3 + o) * taps + tap)]);
      }
    }
  }
  ExpectNear(m.Run({AsArray(t.image, x)})[0], want);
}

TEST(OnnxVolume, TransposedConvolutionsWhosePlanesDoNotOverlap) {
  CheckTransposed({{2, 4, 2, 3, 2}, {4, 3, 2, 3, 2}, {2, 2, 3}, {0, 1, 0, 0, 0, 0}});
}

TEST(OnnxVolume, TransposedConvolutionsWhosePlanesOverlap) {
  const Shape image = {2, 4, 3, 3, 2};
  CheckTransposed({image, {4, 3, 3, 3, 2}, {1, 2, 2}, {0, 0, 0, 0, 0, 0}});
  CheckTransposed({image, {4, 3, 3, 3, 3}, {2, 2, 2}, {1, 1, 1, 1, 1, 1}, {1, 1, 1}, {1, 1, 1}});
  CheckTransposed({image, {4, 3, 4, 2, 2}, {2, 1, 1}, {1, 0, 0, 2, 0, 0}});
  CheckTransposed({image, {4, 3, 2, 2, 2}, {3, 1, 1}, {0, 0, 0, 1, 0, 0}, {2, 1, 1}});
  CheckTransposed({image, {4, 3, 1, 1, 1}, {2, 1, 1}, {0, 0, 0, 0, 0, 0}, {1, 1, 1}, {1, 0, 0}});
}

TEST(OnnxVolume, TransposedConvolutionsToAStatedSize) {
  const auto model = [](const Ints& shape, const char* pads) {
    ModelBuilder m(13);
    m.Input("x", {1, 1, 3, 3, 3});
    m.Floats("w", {1, 1, 3, 1, 1}, {1, 10, 100});
    auto& node = m.Node("ConvTranspose", {"x", "w"}, {"y"});
    ModelBuilder::SetInts(node, "strides", {2, 1, 1});
    if (pads != nullptr) ModelBuilder::SetString(node, "auto_pad", pads);
    if (!shape.empty()) ModelBuilder::SetInts(node, "output_shape", shape);
    m.Output("y");
    return m;
  };
  const NDArray x = AsArray({1, 1, 3, 3, 3}, std::vector<float>(27, 1));
  const auto first = [](const NDArray& y) {
    std::vector<double> planes;
    for (int64_t d = 0; d < y.shape()[2]; ++d) planes.push_back(y.At(9 * d));
    return planes;
  };
  // All seven planes: 1, 10, 101, 10, 101, 10, 100.
  EXPECT_EQ(first(model({}, "SAME_UPPER").Run({x})[0]), (std::vector<double>{1, 10, 101, 10, 101, 10}));
  EXPECT_EQ(first(model({}, "SAME_LOWER").Run({x})[0]), (std::vector<double>{10, 101, 10, 101, 10, 100}));
  EXPECT_EQ(first(model({8, 3, 3}, nullptr).Run({x})[0]), (std::vector<double>{1, 10, 101, 10, 101, 10, 100, 0}));
  EXPECT_THAT(model({9, 3, 3}, nullptr).Import().status().ToString(), HasSubstr("larger than the kernel reaches"));
  EXPECT_THAT(model({8, 3}, nullptr).Import().status().ToString(), HasSubstr("one element a spatial axis"));
}

TEST(OnnxVolume, TransposedConvolutionsThatCanNotBe) {
  const auto error = [](const Ints& pads, const Ints& extra, int64_t planes = 3) {
    ModelBuilder m(13);
    m.Input("x", {1, 1, 2, 2, 2});
    m.Input("w", {1, 1, planes, 1, 1});
    auto& node = m.Node("ConvTranspose", {"x", "w"}, {"y"});
    ModelBuilder::SetInts(node, "pads", pads);
    ModelBuilder::SetInts(node, "output_padding", extra);
    m.Output("y");
    return m.Import().status().ToString();
  };
  const Ints none(6, 0), no_extra(3, 0);
  EXPECT_THAT(error({2, 0, 0, 2, 0, 0}, no_extra), HasSubstr("leave something of the result"));
  EXPECT_THAT(error({-1, 0, 0, 0, 0, 0}, no_extra), HasSubstr("the pads are not negative"));
  EXPECT_THAT(error(none, {1, 0, 0}), HasSubstr("output_padding is less than a stride"));
  EXPECT_THAT(error(none, {1, 0}), HasSubstr("output_padding has one element"));
  EXPECT_THAT(error(none, no_extra, 65), HasSubstr("1 to 64 planes are supported"));
}

TEST(OnnxVolume, PadsThatKeepTheSize) {
  ModelBuilder m(13);
  m.Input("x", {1, 1, 4, 3, 3});
  m.Floats("w", {1, 1, 2, 1, 1}, {1, 10});
  ModelBuilder::SetString(m.Node("Conv", {"x", "w"}, {"y"}), "auto_pad", "SAME_UPPER");
  m.Output("y");
  const NDArray y = m.Run({AsArray({1, 1, 4, 3, 3}, std::vector<float>(36, 1))})[0];
  EXPECT_EQ(y.shape(), (Shape{1, 1, 4, 3, 3}));
  EXPECT_EQ(y.At(0), 11);
  EXPECT_EQ(y.At(35), 1);
}

TEST(OnnxVolume, WhatCanNotBeIsSaidInOneLine) {
  struct Bad {
    Shape x, filter;
    Ints pads;
    int64_t group;
    const char* says;
  };
  const Ints none(6, 0);
  const Bad bad[] = {{{1, 2, 4, 4, 4}, {2, 2, 5, 1, 1}, none, 1, "larger than the padded input"},
                     {{1, 2, 4, 4, 4}, {2, 2, 1, 5, 1}, none, 1, "larger than the padded input"},
                     {{1, 2, 4, 4, 4}, {2, 2, 1, 1}, none, 1, "differ in rank"},
                     {{1, 2, 4, 4, 4}, {2, 2, 65, 1, 1}, none, 1, "planes are supported"},
                     {{1, 2, 4, 4, 4}, {2, 2, 1, 1, 1}, {-1, 0, 0, 0, 0, 0}, 1, "not negative"},
                     {{1, 2, 4, 4, 4}, {2, 2, 1, 1, 1}, {0, 0, 0, 0}, 1, "one element a spatial axis"},
                     {{1, 2, 4, 4, 4}, {2, 2, 1, 1, 1}, none, 0, "group"},
                     {{1, 2, 4, 4, 4}, {2, 1, 1, 1, 1}, none, 1, "channels"}};
  for (const Bad& b : bad) {
    ModelBuilder m(13);
    m.Input("x", b.x);
    m.Floats("w", b.filter, std::vector<float>(static_cast<size_t>(NumElements(b.filter)), 1));
    auto& node = m.Node("Conv", {"x", "w"}, {"y"});
    ModelBuilder::SetInts(node, "pads", b.pads);
    ModelBuilder::SetInt(node, "group", b.group);
    m.Output("y");
    EXPECT_THAT(m.Import().status().ToString(), HasSubstr(b.says));
  }
}

}  // namespace
}  // namespace temper
