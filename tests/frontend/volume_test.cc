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

std::vector<float> Drawn(Rng& rng, const Shape& shape) {
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
    const std::vector<float> x = Drawn(rng, v.x), w = Drawn(rng, filter), bias = Drawn(rng, {v.out_channels});
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
      const std::vector<float> x = Drawn(rng, v.x);
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

TEST(OnnxVolume, TransposedConvolutionsWhosePlanesDoNotOverlap) {
  const Shape image = {2, 4, 2, 3, 2}, filter = {4, 3, 2, 3, 2}, result = {2, 6, 4, 6, 5};
  const Ints strides = {2, 2, 3}, pads = {0, 1, 0, 0, 0, 0};
  Rng rng(6);
  const std::vector<float> x = Drawn(rng, image), w = Drawn(rng, filter), bias = Drawn(rng, {6});
  ModelBuilder m(13);
  m.Input("x", image);
  m.Floats("w", filter, w);
  m.Floats("b", {6}, bias);
  auto& node = m.Node("ConvTranspose", {"x", "w", "b"}, {"y"});
  ModelBuilder::SetInts(node, "strides", strides);
  ModelBuilder::SetInts(node, "pads", pads);
  ModelBuilder::SetInt(node, "group", 2);
  m.Output("y");
  NDArray want = Make(result, [&](int64_t, int64_t c, const Ints&) { return bias[static_cast<size_t>(c)]; });
  for (int64_t i = 0; i < NumElements(image); ++i) {
    for (int64_t tap = 0; tap < 12; ++tap) {
      const Ints from = {i / 6 % 2, i / 2 % 3, i % 2}, t = {tap / 6, tap / 2 % 3, tap % 2};
      Ints to;
      bool inside = true;
      for (size_t d = 0; d < 3; ++d) {
        to.push_back(from[d] * strides[d] + t[d] - pads[d]);
        inside = inside && to[d] >= 0 && to[d] < result[2 + d];
      }
      const int64_t channel = i / 12 % 4, image_at = i / 48;
      for (int64_t o = 0; inside && o < 3; ++o) {
        const int64_t at = (((image_at * 6 + channel / 2 * 3 + o) * 4 + to[0]) * 6 + to[1]) * 5 + to[2];
        want.Set(at, want.At(at) + x[static_cast<size_t>(i)] * w[static_cast<size_t>((channel * 3 + o) * 12 + tap)]);
      }
    }
  }
  ExpectNear(m.Run({AsArray(image, x)})[0], want);
  ModelBuilder overlaps(13);
  overlaps.Input("x", image);
  overlaps.Floats("w", filter, w);
  overlaps.Node("ConvTranspose", {"x", "w"}, {"y"});
  overlaps.Output("y");
  EXPECT_THAT(overlaps.Import().status().ToString(), HasSubstr("do not overlap along the first"));
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
