// GridSample against its definition, pixel by pixel.
#include <gmock/gmock.h>

#include <cmath>

#include "base/rng.h"
#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using ::testing::HasSubstr;
using testing::ModelBuilder;

struct Sampling {
  std::string mode, padding;
  bool aligned;
};

ModelBuilder GridSample(const Shape& image, const Shape& grid, const Sampling& s) {
  ModelBuilder m(20);
  m.Input("x", image);
  m.Input("grid", grid);
  auto& node = m.Node("GridSample", {"x", "grid"}, {"y"});
  ModelBuilder::SetString(node, "mode", s.mode);
  ModelBuilder::SetString(node, "padding_mode", s.padding);
  ModelBuilder::SetInt(node, "align_corners", s.aligned ? 1 : 0);
  m.Output("y");
  return m;
}

NDArray Drawn(Rng& rng, const Shape& shape, double range) {
  NDArray x(DType::kF32, shape);
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, range * (2 * rng.Uniform() - 1));
  return x;
}

double Reflected(double p, double low, double high) {
  if (high <= low) return 0;
  while (p < low || p > high) p = p < low ? 2 * low - p : 2 * high - p;
  return p;
}

double Position(double g, int64_t extent, const Sampling& s) {
  const double n = static_cast<double>(extent);
  double p = s.aligned ? (g + 1) / 2 * (n - 1) : ((g + 1) * n - 1) / 2;
  if (s.padding == "reflection") p = s.aligned ? Reflected(p, 0, n - 1) : Reflected(p, -0.5, n - 0.5);
  return s.padding == "zeros" ? p : std::min(std::max(p, 0.0), n - 1);
}

double PixelOr0(const NDArray& x, int64_t plane, double row, double column) {
  const Shape& s = x.shape();
  const int64_t i = static_cast<int64_t>(row), j = static_cast<int64_t>(column);
  if (i < 0 || j < 0 || i >= s[2] || j >= s[3]) return 0;
  return x.At((plane * s[2] + i) * s[3] + j);
}

double Sample(const NDArray& x, int64_t plane, double row, double column, const std::string& mode) {
  if (mode == "nearest") return PixelOr0(x, plane, std::nearbyint(row), std::nearbyint(column));
  const double top = std::floor(row), left = std::floor(column), down = row - top, over = column - left;
  return (1 - down) * ((1 - over) * PixelOr0(x, plane, top, left) + over * PixelOr0(x, plane, top, left + 1)) +
         down * ((1 - over) * PixelOr0(x, plane, top + 1, left) + over * PixelOr0(x, plane, top + 1, left + 1));
}

TEST(OnnxSample, AsTheDefinitionHasIt) {
  const Shape image = {2, 3, 4, 5}, grid = {2, 3, 7, 2};
  for (const char* mode : {"linear", "bilinear", "nearest"}) {
    for (const char* padding : {"zeros", "border", "reflection"}) {
      for (const bool aligned : {false, true}) {
        SCOPED_TRACE(std::string(mode) + " " + padding + (aligned ? " aligned" : ""));
        const Sampling s = {mode, padding, aligned};
        Rng rng(5);
        const NDArray x = Drawn(rng, image, 1), at = Drawn(rng, grid, 3);
        const NDArray y = GridSample(image, grid, s).Run({x, at})[0];
        ASSERT_EQ(y.shape(), (Shape{2, 3, 3, 7}));
        for (int64_t i = 0; i < y.size(); ++i) {
          const int64_t pixel = i % 21, plane = i / 21, point = plane / 3 * 21 + pixel;
          const double column = Position(at.At(2 * point), 5, s), row = Position(at.At(2 * point + 1), 4, s);
          EXPECT_NEAR(y.At(i), Sample(x, plane, row, column, mode), 1e-4) << i;
        }
      }
    }
  }
}

// Whatever the grid says, what is read lies in the image.
TEST(OnnxSample, PositionsFarOutsideReadNothingElse) {
  const double odd[] = {1e30, -1e30, INFINITY, -INFINITY, NAN, 1e9};
  for (const char* padding : {"zeros", "border", "reflection"}) {
    NDArray x(DType::kF32, {1, 1, 2, 2}), at(DType::kF32, {1, 1, 6, 2});
    for (int64_t i = 0; i < x.size(); ++i) x.Set(i, 1);
    for (int64_t i = 0; i < at.size(); ++i) at.Set(i, odd[i % 6]);
    const NDArray y = GridSample({1, 1, 2, 2}, {1, 1, 6, 2}, {"nearest", padding, false}).Run({x, at})[0];
    for (int64_t i = 0; i < y.size(); ++i) EXPECT_TRUE(std::isnan(y.At(i)) || y.At(i) == 0 || y.At(i) == 1) << y.At(i);
  }
}

TEST(OnnxSample, WhatCanNotBeIsSaidInOneLine) {
  const auto error = [](const Shape& image, const Shape& grid, const Sampling& s) {
    return GridSample(image, grid, s).Import().status().ToString();
  };
  EXPECT_THAT(error({1, 1, 2, 2}, {1, 2, 2, 2}, {"cubic", "zeros", false}), HasSubstr("'cubic' is not supported"));
  EXPECT_THAT(error({1, 1, 2, 2}, {1, 2, 2, 2}, {"linear", "wrap", false}), HasSubstr("padding_mode is"));
  EXPECT_THAT(error({1, 1, 2, 2}, {1, 2, 2, 3}, {"linear", "zeros", false}), HasSubstr("the grid is"));
  EXPECT_THAT(error({2, 1, 2, 2}, {1, 2, 2, 2}, {"linear", "zeros", false}), HasSubstr("the grid is"));
  EXPECT_THAT(error({1, 1, 2, 2, 2}, {1, 2, 2, 2, 3}, {"linear", "zeros", false}), HasSubstr("rank 5"));
}

}  // namespace
}  // namespace temper
