// Resize beyond what Temper's own operator does. Numbers are those of ONNX's node tests (1.19), whose names follow.
#include <cmath>
#include <map>

#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using testing::ModelBuilder;

struct ResizeCase {
  std::map<std::string, std::string> strings;
  std::map<std::string, float> floats;
  std::map<std::string, int64_t> ints;
  std::vector<float> scales = {}, roi = {};
  std::vector<int64_t> sizes = {}, axes = {};
};

ModelBuilder ModelOf(const ResizeCase& c, const Shape& shape, int type = onnx::TensorProto::FLOAT) {
  ModelBuilder m(19);
  m.Input("x", shape, type);
  m.Floats("roi", {static_cast<int64_t>(c.roi.size())}, c.roi);
  if (c.sizes.empty()) m.Floats("scales", {static_cast<int64_t>(c.scales.size())}, c.scales);
  if (!c.sizes.empty()) m.Ints("sizes", c.sizes);
  const std::vector<std::string> by_scales = {"x", "roi", "scales"}, by_sizes = {"x", "roi", "", "sizes"};
  onnx::NodeProto& node = m.Node("Resize", c.sizes.empty() ? by_scales : by_sizes, {"y"});
  for (const auto& [name, v] : c.strings) ModelBuilder::SetString(node, name, v);
  for (const auto& [name, v] : c.floats) ModelBuilder::SetFloat(node, name, v);
  for (const auto& [name, v] : c.ints) ModelBuilder::SetInt(node, name, v);
  if (!c.axes.empty()) ModelBuilder::SetInts(node, "axes", c.axes);
  m.Output("y");
  return m;
}

// Of 1, 2, 3, ... in that shape.
void Expect(const ResizeCase& c, const Shape& shape, const Shape& result, const std::vector<double>& begins_with) {
  NDArray x(DType::kF32, shape);
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, static_cast<double>(i + 1));
  const std::vector<NDArray> got = ModelOf(c, shape).Run({x});
  ASSERT_EQ(got.size(), 1u);
  ASSERT_EQ(got[0].shape(), result);
  for (size_t i = 0; i < begins_with.size(); ++i)
    EXPECT_NEAR(got[0].At(static_cast<int64_t>(i)), begins_with[i], 2e-6 * std::abs(begins_with[i])) << i;
}

const Shape kSmall = {1, 1, 4, 4}, kWide = {1, 1, 2, 4};

TEST(OnnxResize, Cubic) {
  Expect({.strings = {{"mode", "cubic"}}, .scales = {1, 1, 2, 2}}, kSmall, {1, 1, 8, 8},  // upsample_scales_cubic
         {0.47265625, 0.76953125, 1.24609375, 1.875, 2.28125, 2.91015625, 3.38671875, 3.68359375, 1.66015625});
  Expect({.strings = {{"mode", "cubic"}},  // upsample_scales_cubic_A_n0p5_exclude_outside
          .floats = {{"cubic_coeff_a", -0.5}},
          .ints = {{"exclude_outside", 1}},
          .scales = {1, 1, 2, 2}},
         kSmall, {1, 1, 8, 8}, {0.5588235, 0.81494206, 1.3569825, 1.8970588, 2.3970587, 2.9371352, 3.4791756});
}

TEST(OnnxResize, Antialiased) {
  const std::vector<float> scales = {1, 1, 0.6f, 0.6f};
  Expect({.strings = {{"mode", "linear"}}, .ints = {{"antialias", 1}}, .scales = scales}, kSmall, {1, 1, 2, 2},
         {2.875, 4.5, 9.375, 11});  // downsample_scales_linear_antialias
  Expect({.strings = {{"mode", "cubic"}}, .ints = {{"antialias", 1}}, .scales = scales}, kSmall, {1, 1, 2, 2},
         {2.5180721, 4.2858863, 9.589329, 11.357142});  // downsample_scales_cubic_antialias
}

TEST(OnnxResize, ScalesThatAreNoRatioOfSizes) {
  const std::vector<float> scales = {1, 1, 0.6f, 0.6f};
  Expect({.strings = {{"mode", "linear"}}, .scales = scales}, kWide, {1, 1, 1, 2}, {2.6666665, 4.333333});
  Expect({.strings = {{"mode", "nearest"}}, .scales = scales}, kWide, {1, 1, 1, 2}, {1, 3});
  Expect({.strings = {{"mode", "linear"}, {"coordinate_transformation_mode", "half_pixel_symmetric"}},
          .scales = {1, 1, 1, 0.6f}},
         {1, 1, 1, 4}, {1, 1, 1, 2}, {1.6666667, 3.3333333});
}

TEST(OnnxResize, AsTensorFlowsNearestNeighbours) {
  Expect({.strings = {{"mode", "nearest"},
                      {"nearest_mode", "floor"},
                      {"coordinate_transformation_mode", "tf_half_pixel_for_nn"}},
          .sizes = {1, 1, 3, 3}},
         kSmall, {1, 1, 3, 3}, {1, 3, 4, 9, 11, 12, 13, 15, 16});
}

TEST(OnnxResize, ARegion) {
  ResizeCase c{.strings = {{"mode", "linear"}, {"coordinate_transformation_mode", "tf_crop_and_resize"}},
               .roi = {0, 0, 0.4f, 0.6f, 1, 1, 0.6f, 0.8f},
               .sizes = {1, 1, 3, 3}};
  Expect(c, kSmall, {1, 1, 3, 3}, {7.6, 7.9, 8.2, 8.8, 9.1, 9.4, 10, 10.3, 10.6});  // tf_crop_and_resize
  c.floats["extrapolation_value"] = 10;
  c.roi = {0, 0, 0.4f, 0.6f, 1, 1, 1.2f, 1.7f};
  Expect(c, kSmall, {1, 1, 3, 3}, {7.6, 10, 10, 12.4, 10, 10, 10, 10, 10});  // ..._extrapolation_value
  c.strings["mode"] = "nearest";
  Expect(c, kSmall, {1, 1, 3, 3}, {7, 10, 10, 11, 10, 10, 10, 10, 10});
}

TEST(OnnxResize, KeepsTheAspectRatioOfTheAxesThatAreGiven) {
  ResizeCase c{
      .strings = {{"mode", "nearest"}, {"keep_aspect_ratio_policy", "not_larger"}}, .sizes = {1, 3}, .axes = {2, 3}};
  Expect(c, kWide, {1, 1, 1, 2}, {1, 3});  // downsample_sizes_nearest_not_larger
  c.strings["keep_aspect_ratio_policy"] = "not_smaller";
  Expect(c, kWide, {1, 1, 2, 3}, {1, 2, 4});  // downsample_sizes_nearest_not_smaller
  c.sizes = {7, 8};
  Expect(c, kWide, {1, 1, 7, 14}, {1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4});
}

// As ONNX's reference has it: computed in floats, and rounded.
TEST(OnnxResize, IntegersOfEightBits) {
  for (const DType dtype : {DType::kU8, DType::kI8}) {
    NDArray x(dtype, {1, 1, 1, 2});
    const double low = dtype == DType::kU8 ? 0 : -128, high = dtype == DType::kU8 ? 255 : 127;
    x.Set(0, low);
    x.Set(1, high);
    const int type = dtype == DType::kU8 ? onnx::TensorProto::UINT8 : onnx::TensorProto::INT8;
    const NDArray y =
        ModelOf({.strings = {{"mode", "linear"}}, .scales = {1, 1, 1, 2}}, {1, 1, 1, 2}, type).Run({x})[0];
    EXPECT_EQ(y.dtype(), dtype);
    testing::ExpectArray(y, {1, 1, 1, 4}, {low, low + 64, low + 191, high});
    // What a cubic goes beyond the range is cut off.
    const NDArray cubic =
        ModelOf({.strings = {{"mode", "cubic"}}, .scales = {1, 1, 1, 2}}, {1, 1, 1, 2}, type).Run({x})[0];
    EXPECT_EQ(cubic.dtype(), dtype);
    EXPECT_EQ(cubic.At(0), low);
    EXPECT_EQ(cubic.At(3), high);
  }
}

TEST(OnnxResize, SaysWhatItDoesNotKnow) {
  const auto error = [](const ResizeCase& c, int type = onnx::TensorProto::FLOAT) {
    return std::string(ModelOf(c, kSmall, type).Import().status().message());
  };
  const std::vector<float> twice = {1, 1, 2, 2};
  EXPECT_NE(error({.strings = {{"mode", "lanczos"}}, .scales = twice}).find("mode"), std::string::npos);
  EXPECT_NE(error({.strings = {{"mode", "cubic"}, {"coordinate_transformation_mode", "polar"}}, .scales = twice})
                .find("'polar' is unknown"),
            std::string::npos);
  EXPECT_NE(error({.strings = {{"keep_aspect_ratio_policy", "any"}}, .sizes = {1, 1, 8, 8}}).find("'any' is unknown"),
            std::string::npos);
  EXPECT_NE(error({.strings = {{"mode", "cubic"}}, .scales = twice}, onnx::TensorProto::INT32).find("takes floats"),
            std::string::npos);
  EXPECT_NE(error({.strings = {{"mode", "cubic"}}, .scales = {1, 1, 2e6f, 2}}).find("is not supported"),
            std::string::npos);
  EXPECT_NE(error({.scales = {1, 1, std::nanf(""), 2}}).find("out of range"), std::string::npos);
  EXPECT_NE(error({.scales = {1, 1, 0, 2}}).find("out of range"), std::string::npos);
  EXPECT_NE(error({.sizes = {1, 1, -3, 8}}).find("out of range"), std::string::npos);
}

}  // namespace
}  // namespace temper
