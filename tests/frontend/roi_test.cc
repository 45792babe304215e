// RoiAlign against its definition, sample by sample.
#include <gmock/gmock.h>

#include <cmath>

#include "base/rng.h"
#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using testing::Array;
using testing::ExpectArray;
using ::testing::HasSubstr;
using testing::ModelBuilder;

struct Align {
  std::string mode = "avg", shift = "half_pixel";
  int64_t ratio = 2;
  float scale = 0.5;
  int64_t height = 3, width = 2;
};

ModelBuilder RoiAlign(const Shape& image, int64_t regions, const Align& a, int opset = 16) {
  ModelBuilder m(opset);
  m.Input("x", image);
  m.Input("regions", {regions, 4});
  m.Input("batch", {regions}, onnx::TensorProto::INT64);
  auto& node = m.Node("RoiAlign", {"x", "regions", "batch"}, {"y"});
  ModelBuilder::SetString(node, "mode", a.mode);
  if (opset >= 16) ModelBuilder::SetString(node, "coordinate_transformation_mode", a.shift);
  ModelBuilder::SetInt(node, "sampling_ratio", a.ratio);
  ModelBuilder::SetFloat(node, "spatial_scale", a.scale);
  ModelBuilder::SetInt(node, "output_height", a.height);
  ModelBuilder::SetInt(node, "output_width", a.width);
  m.Output("y");
  return m;
}

// The four pixels around a place, times their weights.
std::vector<double> Corners(const NDArray& x, int64_t plane, double row, double column) {
  const int64_t height = x.shape()[2], width = x.shape()[3];
  if (row < -1 || row > static_cast<double>(height) || column < -1 || column > static_cast<double>(width))
    return {0, 0, 0, 0};
  const auto split = [](double at, int64_t extent, int64_t* low, int64_t* high) {
    at = std::max(at, 0.0);
    *low = *high = static_cast<int64_t>(at);
    if (*low >= extent - 1) {
      *low = *high = extent - 1;
      return 0.0;
    }
    ++*high;
    return at - static_cast<double>(*low);
  };
  int64_t top = 0, bottom = 0, left = 0, right = 0;
  const double down = split(row, height, &top, &bottom), over = split(column, width, &left, &right);
  const auto pixel = [&](int64_t i, int64_t j) { return x.At((plane * height + i) * width + j); };
  return {(1 - down) * (1 - over) * pixel(top, left), (1 - down) * over * pixel(top, right),
          down * (1 - over) * pixel(bottom, left), down * over * pixel(bottom, right)};
}

// One bin of one region.
double Bin(const NDArray& x, int64_t plane, const std::vector<double>& region, int64_t i, int64_t j, const Align& a) {
  const double shift = a.shift == "half_pixel" ? 0.5 : 0;
  const double left = region[0] * a.scale - shift, top = region[1] * a.scale - shift;
  double width = region[2] * a.scale - shift - left, height = region[3] * a.scale - shift - top;
  if (shift == 0) {
    width = std::max(width, 1.0);
    height = std::max(height, 1.0);
  }
  height /= static_cast<double>(a.height);
  width /= static_cast<double>(a.width);
  const int64_t rows = a.ratio > 0 ? a.ratio : static_cast<int64_t>(std::ceil(height));
  const int64_t columns = a.ratio > 0 ? a.ratio : static_cast<int64_t>(std::ceil(width));
  double sum = 0, most = -INFINITY;
  for (int64_t k = 0; k < rows; ++k) {
    for (int64_t l = 0; l < columns; ++l) {
      const auto part = [](int64_t bin, int64_t sample, int64_t of) {
        return static_cast<double>(bin) + (static_cast<double>(sample) + 0.5) / static_cast<double>(of);
      };
      for (const double v : Corners(x, plane, top + part(i, k, rows) * height, left + part(j, l, columns) * width)) {
        sum += v;
        most = std::max(most, v);
      }
    }
  }
  if (a.mode == "max") return rows * columns > 0 ? most : 0;
  return sum / static_cast<double>(std::max<int64_t>(rows * columns, 1));
}

const Shape kImage = {2, 3, 6, 8};
// Inside, reaching over the edges, all outside, thinner than a pixel, and of no size.
const std::vector<float> kRegions = {2,  2,  11, 9,  -3, -2, 9, 10, 6,    4,  17, 14.5, 0, 0,
                                     16, 12, 40, 40, 44, 48, 3, 3,  3.5f, 10, 5,  5,    5, 5};

NDArray DrawnPixels() {
  Rng rng(4);
  NDArray x(DType::kF32, kImage);
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, 4 * rng.Uniform() - 2);
  return x;
}

void ExpectAligned(const ModelBuilder& m, const Align& a) {
  const NDArray x = DrawnPixels();
  const int64_t regions = std::ssize(kRegions) / 4;
  NDArray batch(DType::kI64, {regions});
  std::vector<double> want;
  for (int64_t r = 0; r < regions; ++r) {
    batch.Set(r, static_cast<double>(r % 2));
    const std::vector<double> region(kRegions.begin() + r * 4, kRegions.begin() + r * 4 + 4);
    for (int64_t c = 0; c < kImage[1]; ++c) {
      for (int64_t i = 0; i < a.height * a.width; ++i)
        want.push_back(Bin(x, r % 2 * kImage[1] + c, region, i / a.width, i % a.width, a));
    }
  }
  ExpectArray(m.Run({x, Array({regions, 4}, kRegions), batch})[0], {regions, kImage[1], a.height, a.width}, want);
}

TEST(OnnxRoi, EveryBinOfEveryRegion) {
  for (const char* mode : {"avg", "max"}) {
    for (const char* shift : {"half_pixel", "output_half_pixel"}) {
      for (const int64_t ratio : {0, 1, 3}) {
        SCOPED_TRACE(std::string(mode) + " " + shift + " " + std::to_string(ratio));
        const Align a{mode, shift, ratio};
        ExpectAligned(RoiAlign(kImage, std::ssize(kRegions) / 4, a), a);
      }
    }
  }
}

TEST(OnnxRoi, BeforeOpset16PixelsAreNotShifted) {
  const Align a{"avg", "output_half_pixel", 2};
  ExpectAligned(RoiAlign(kImage, std::ssize(kRegions) / 4, a, 10), a);
}

TEST(OnnxRoi, WhatCanNotBeIsSaidInOneLine) {
  const auto error = [](const Shape& image, const Align& a) {
    return RoiAlign(image, 2, a).Import().status().ToString();
  };
  EXPECT_THAT(error(kImage, {"sum"}), HasSubstr("mode is 'avg' or 'max'"));
  EXPECT_THAT(error(kImage, {"avg", "shifted"}), HasSubstr("'half_pixel' or 'output_half_pixel'"));
  EXPECT_THAT(error(kImage, {"avg", "half_pixel", -1}), HasSubstr("sampling_ratio is not negative"));
  EXPECT_THAT(error({2, 3, 6}, {}), HasSubstr("the image is [n, c, h, w]"));
  EXPECT_THAT(error({1, 1, 300, 300}, {"avg", "half_pixel", 0}), HasSubstr("100 x 150 samples a bin"));
}

TEST(OnnxRoi, NumbersOutOfRangeAreRefused) {
  const auto error = [](int64_t height, int64_t ratio, int64_t batch) {
    ModelBuilder m(16);
    m.Input("x", {1, 1, 4, 4});
    m.Input("regions", {1, 4});
    m.Ints("batch", {batch});
    onnx::NodeProto& node = m.Node("RoiAlign", {"x", "regions", "batch"}, {"y"});
    ModelBuilder::SetInt(node, "output_height", height);
    ModelBuilder::SetInt(node, "sampling_ratio", ratio);
    m.Output("y");
    return std::string(m.Import().status().message());
  };
  EXPECT_EQ(error(2, 2, 0), "");
  EXPECT_THAT(error(int64_t{1} << 40, 0, 0), HasSubstr("bins are not supported"));
  EXPECT_THAT(error(1, int64_t{1} << 32, 0), HasSubstr("1 bins of 4294967296 samples"));
  EXPECT_THAT(error(2, 2, 1), HasSubstr("a batch index names no image"));
}

}  // namespace
}  // namespace temper
