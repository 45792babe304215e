// GridSample against its definition, pixel by pixel.
#include <gmock/gmock.h>

#include <algorithm>
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

ModelBuilder GridSample(const Shape& image, const Shape& grid, const Sampling& s,
                        int grid_type = onnx::TensorProto::FLOAT) {
  ModelBuilder m(20);
  m.Input("x", image);
  m.Input("grid", grid, grid_type);
  auto& node = m.Node("GridSample", {"x", "grid"}, {"y"});
  ModelBuilder::SetString(node, "mode", s.mode);
  ModelBuilder::SetString(node, "padding_mode", s.padding);
  ModelBuilder::SetInt(node, "align_corners", s.aligned ? 1 : 0);
  m.Output("y");
  return m;
}

NDArray DrawnWithin(Rng& rng, const Shape& shape, double range) {
  NDArray x(DType::kF32, shape);
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, range * (2 * rng.Uniform() - 1));
  return x;
}

double Reflected(double p, double low, double high) {
  if (high <= low) return low;
  while (p < low || p > high) p = p < low ? 2 * low - p : 2 * high - p;
  return p;
}

// One axis of the image.
struct SampledAxis {
  int64_t extent;
  const Sampling& s;
  double low() const { return s.aligned ? 0 : -0.5; }
  double high() const { return static_cast<double>(extent) - (s.aligned ? 1 : 0.5); }

  // What is beyond the edges comes back; of a cubic, pixel by pixel.
  double Position(double g) const {
    const double n = static_cast<double>(extent);
    double p = s.aligned ? (g + 1) / 2 * (n - 1) : ((g + 1) * n - 1) / 2;
    if (s.mode == "nearest") p = std::nearbyint(p);
    if (s.mode == "cubic" || (p >= low() && p <= high())) return p;
    if (s.padding == "border") return std::min(std::max(p, 0.0), n - 1);
    return s.padding == "reflection" ? Reflected(p, low(), high()) : p;
  }
  // Which pixel is there; -1: none.
  int64_t Pixel(double whole) const {
    if (s.padding == "border") whole = std::min(std::max(whole, 0.0), static_cast<double>(extent - 1));
    if (s.padding == "reflection") whole = Reflected(whole, low(), high());
    return whole >= 0 && whole < static_cast<double>(extent) ? static_cast<int64_t>(whole) : -1;
  }
};

// Of the pixels from floor(p) - 1 on, or from floor(p) on, or of the one at p.
std::vector<double> Weights(double p, const std::string& mode) {
  if (mode == "nearest") return {1};
  const double t = p - std::floor(p);
  if (mode != "cubic") return {1 - t, t};
  const double a = -0.75;
  const auto far = [&](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
  const auto near = [&](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
  return {far(t + 1), near(t), near(1 - t), far(2 - t)};
}

// The image's element at `plane` (a sample's channel) and the grid's `point`, axis by axis.
double Sample(const NDArray& x, int64_t plane, const NDArray& grid, int64_t point, const Sampling& s, size_t d = 2) {
  const size_t rank = x.shape().size();
  if (d == rank) return x.At(plane);
  const SampledAxis axis = {x.shape()[d], s};
  const double p = axis.Position(grid.At(point * static_cast<int64_t>(rank - 2) + static_cast<int64_t>(rank - 1 - d)));
  const std::vector<double> weights = Weights(p, s.mode);
  double sum = 0, whole = std::floor(p) - (weights.size() == 4 ? 1 : 0);
  for (const double weight : weights) {
    const int64_t pixel = axis.Pixel(whole++);
    if (pixel >= 0) sum += weight * Sample(x, plane * x.shape()[d] + pixel, grid, point, s, d + 1);
  }
  return sum;
}

void CheckSampling(const Shape& image, const Shape& grid, const Sampling& s) {
  SCOPED_TRACE(s.mode + " " + s.padding + (s.aligned ? " aligned " : " ") + ShapeText(image));
  Rng rng(5);
  const NDArray x = DrawnWithin(rng, image, 1), at = DrawnWithin(rng, grid, 3);
  const NDArray y = GridSample(image, grid, s).Run({x, at})[0];
  Shape shape(grid.begin(), grid.end() - 1);
  shape.insert(shape.begin() + 1, image[1]);
  ASSERT_EQ(y.shape(), shape);
  const int64_t points = NumElements(std::span(shape).subspan(2));
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t plane = i / points, point = plane / image[1] * points + i % points;
    EXPECT_NEAR(y.At(i), Sample(x, plane, at, point, s), 1e-4) << i;
  }
}

TEST(OnnxSample, AsTheDefinitionHasIt) {
  for (const char* padding : {"zeros", "border", "reflection"}) {
    for (const bool aligned : {false, true}) {
      for (const char* mode : {"linear", "bilinear", "nearest", "cubic"})
        CheckSampling({2, 3, 4, 5}, {2, 3, 7, 2}, {mode, padding, aligned});
      for (const char* mode : {"linear", "nearest"})
        CheckSampling({2, 2, 3, 4, 5}, {2, 2, 3, 4, 3}, {mode, padding, aligned});
      CheckSampling({1, 1, 1, 3}, {1, 4, 4, 2}, {"cubic", padding, aligned});
    }
  }
}

// A grid of doubles, as torch exports Deformable DETR: positions are computed in its type.
TEST(OnnxSample, AGridOfAnotherFloatType) {
  Rng rng(6);
  const Shape image = {1, 2, 5, 5}, grid = {1, 3, 3, 2};
  const Sampling s = {"linear", "zeros", false};
  const NDArray x = DrawnWithin(rng, image, 1), at = DrawnWithin(rng, grid, 1);
  NDArray doubles(DType::kF64, grid);
  for (int64_t i = 0; i < at.size(); ++i) doubles.Set(i, at.At(i));
  const NDArray y = GridSample(image, grid, s, onnx::TensorProto::DOUBLE).Run({x, doubles})[0];
  EXPECT_EQ(y.dtype(), DType::kF32);
  const NDArray want = GridSample(image, grid, s).Run({x, at})[0];
  for (int64_t i = 0; i < want.size(); ++i) EXPECT_NEAR(y.At(i), want.At(i), 1e-5) << i;
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
  EXPECT_THAT(error({1, 1, 2, 2}, {1, 2, 2, 2}, {"area", "zeros", false}), HasSubstr("'area' is not supported"));
  EXPECT_THAT(error({1, 1, 2, 2, 2}, {1, 2, 2, 2, 3}, {"cubic", "zeros", false}),
              HasSubstr("'cubic' is not supported"));
  EXPECT_THAT(error({1, 1, 2, 2}, {1, 2, 2, 2}, {"linear", "wrap", false}), HasSubstr("padding_mode is"));
  EXPECT_THAT(error({1, 1, 2, 2}, {1, 2, 2, 3}, {"linear", "zeros", false}), HasSubstr("the grid is"));
  EXPECT_THAT(error({2, 1, 2, 2}, {1, 2, 2, 2}, {"linear", "zeros", false}), HasSubstr("the grid is"));
  EXPECT_THAT(error({1, 1, 2}, {1, 2, 1}, {"linear", "zeros", false}), HasSubstr("rank 3"));
}

ModelBuilder AffineGrid(const Shape& theta, const std::vector<int64_t>& size, bool aligned) {
  ModelBuilder m(20);
  m.Input("theta", theta);
  m.Ints("size", size);
  ModelBuilder::SetInt(m.Node("AffineGrid", {"theta", "size"}, {"y"}), "align_corners", aligned ? 1 : 0);
  m.Output("y");
  return m;
}

// The middle of a pixel on an axis from -1 to 1.
double Middle(int64_t i, int64_t extent, bool aligned) {
  if (aligned) return extent == 1 ? 0 : -1 + 2 * static_cast<double>(i) / static_cast<double>(extent - 1);
  return -1 + (2 * static_cast<double>(i) + 1) / static_cast<double>(extent);
}

TEST(OnnxSample, AffineGridMovesEveryPixelByTheMatrix) {
  for (const std::vector<int64_t>& size : {Shape{2, 3, 4, 5}, Shape{2, 3, 1, 2}, Shape{2, 1, 3, 4, 2}}) {
    for (const bool aligned : {false, true}) {
      SCOPED_TRACE(ShapeText(size) + (aligned ? " aligned" : ""));
      const int64_t axes = std::ssize(size) - 2, pixels = NumElements(std::span(size).subspan(2));
      Rng rng(6);
      const NDArray theta = DrawnWithin(rng, {2, axes, axes + 1}, 1);
      const NDArray y = AffineGrid(theta.shape(), size, aligned).Run({theta})[0];
      Shape shape(size.begin() + 2, size.end());
      shape.insert(shape.begin(), 2);
      shape.push_back(axes);
      ASSERT_EQ(y.shape(), shape);
      for (int64_t i = 0; i < y.size(); ++i) {
        const int64_t row = i / axes / pixels * axes + i % axes;
        int64_t rest = i / axes % pixels;
        double want = theta.At(row * (axes + 1) + axes);
        for (int64_t k = 0; k < axes; ++k) {  // the last axis is x
          const int64_t extent = size[static_cast<size_t>(axes + 1 - k)];
          want += theta.At(row * (axes + 1) + k) * Middle(rest % extent, extent, aligned);
          rest /= extent;
        }
        EXPECT_NEAR(y.At(i), want, 1e-5) << i;
      }
    }
  }
}

TEST(OnnxSample, AffineGridWantsAMatrixForItsSize) {
  const auto error = [](const Shape& theta, const std::vector<int64_t>& size) {
    return std::string(AffineGrid(theta, size, false).Import().status().message());
  };
  EXPECT_EQ(error({2, 2, 3}, {2, 1, 3, 3}), "");
  EXPECT_THAT(error({2, 2, 3}, {2, 1, 3}), HasSubstr("size is"));
  EXPECT_THAT(error({2, 2, 3}, {1, 1, 3, 3}), HasSubstr("theta is"));
  EXPECT_THAT(error({2, 2, 3}, {2, 1, 3, 3, 3}), HasSubstr("theta is"));
  EXPECT_THAT(error({2, 2, 3}, {2, 1, 0, 3}), HasSubstr("theta is"));
  EXPECT_THAT(error({2, 2, 3}, {2, 1, int64_t{1} << 40, int64_t{1} << 40}), HasSubstr("more than"));
}

}  // namespace
}  // namespace temper
