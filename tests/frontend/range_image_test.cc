// Images and signals of which only the run knows how long they are along an axis: operators that look beyond the end,
// or make more or fewer elements.
#include <gmock/gmock.h>

#include "tests/frontend/range_chain.h"

namespace temper {
namespace {

using testing::Axis;
using testing::ExpectAsOfKnownLengths;
using ::testing::HasSubstr;
using testing::kMost;
using testing::ModelBuilder;
using testing::ModelOf;
using testing::RangeChain;
using testing::ShapeLike;
using testing::TestName;
using testing::Weights;
using Ints = std::vector<int64_t>;

struct Filter {
  const char *mode, *coordinates, *nearest = nullptr;
};
void Resized(ModelBuilder& m, const std::vector<std::string>& inputs, const Filter& filter) {
  onnx::NodeProto& node = m.Node("Resize", inputs, {"y"});
  ModelBuilder::SetString(node, "mode", filter.mode);
  ModelBuilder::SetString(node, "coordinate_transformation_mode", filter.coordinates);
  if (filter.nearest != nullptr) ModelBuilder::SetString(node, "nearest_mode", filter.nearest);
}
std::function<void(ModelBuilder&)> Scaled(const std::vector<float>& scales, const Filter& filter) {
  return [=](ModelBuilder& m) {
    m.Floats("scales", {static_cast<int64_t>(scales.size())}, scales);
    Resized(m, {"x", "", "scales"}, filter);
  };
}
// What a window by steps of two leaves, as long as the image was.
std::function<void(ModelBuilder&)> BackToTheSizeOfX(const Ints& pads, const Filter& filter) {
  return [=](ModelBuilder& m) {
    onnx::NodeProto& half = m.Node("MaxPool", {"x"}, {"half"});
    ModelBuilder::SetInts(half, "kernel_shape", {2, 2});
    ModelBuilder::SetInts(half, "strides", {2, 2});
    ModelBuilder::SetInts(half, "pads", pads);
    ShapeLike(m, "sizes", {-1, -2, -3, -4});
    Resized(m, {"half", "", "", "sizes"}, filter);
  };
}
std::function<void(ModelBuilder&)> ToSize(const Ints& sizes, const Filter& filter) {
  return [=](ModelBuilder& m) {
    m.Ints("sizes", sizes);
    Resized(m, {"x", "", "", "sizes"}, filter);
  };
}

const RangeChain kImageChains[] = {
    {"each element twice", {1, 2, -1, 3}, Scaled({1, 1, 2, 2}, {"nearest", "asymmetric", "floor"})},
    {"the nearest one, rounded up", {1, 2, -1}, Scaled({1, 1, 2}, {"nearest", "half_pixel", "ceil"})},
    {"twice as many, between two", {1, 2, -1, 3}, Scaled({1, 1, 2, 2}, {"linear", "half_pixel"})},
    {"twice as many of a signal", {1, 2, -1}, Scaled({1, 1, 2}, {"linear", "pytorch_half_pixel"})},
    {"half as many more", {2, -1}, Scaled({1, 1.5}, {"linear", "asymmetric"})},
    {"half as many", {1, 2, -1, 4}, Scaled({1, 1, 0.5, 0.5}, {"linear", "half_pixel"})},
    {"half as many, one of two alone", {1, 2, -1, 4}, Scaled({1, 1, 0.5, 0.5}, {"linear", "pytorch_half_pixel"})},
    {"between four", {1, 2, -1, 3}, Scaled({1, 1, 2, 2}, {"cubic", "half_pixel"})},
    {"corner to corner", {1, 2, -1, 3}, Scaled({1, 1, 2, 2}, {"linear", "align_corners"})},
    {"other axes alone", {1, 2, -1, 3}, Scaled({1, 1, 1, 2}, {"linear", "half_pixel"})},
    {"middles of what is repeated", {1, 1, -1, 3}, Scaled({1, 1, 3, 1}, {"nearest", "half_pixel_symmetric"})},
    {"back to a size, between two", {1, 2, -1, 6}, BackToTheSizeOfX({0, 0, 0, 0}, {"linear", "pytorch_half_pixel"})},
    {"back to a size, the nearest", {1, 2, -1, 6}, BackToTheSizeOfX({1, 0, 0, 0}, {"nearest", "asymmetric", "floor"})},
    {"back to a size, the nearest middle",
     {1, 2, -1, 6},
     BackToTheSizeOfX({1, 0, 0, 0}, {"nearest", "half_pixel", "round_prefer_ceil"})},
    {"back to a size, corner to corner", {1, 2, -1, 6}, BackToTheSizeOfX({1, 0, 0, 0}, {"linear", "align_corners"})},
    {"to one size", {1, 2, -1, 3}, ToSize({1, 2, 5, 3}, {"linear", "half_pixel"})},
    {"to one element", {1, 2, -1, 3}, ToSize({1, 2, 1, 3}, {"linear", "pytorch_half_pixel"})},
    {"to one element of corners", {1, 2, -1, 3}, ToSize({1, 2, 1, 3}, {"linear", "align_corners"})},
    {"a table as long as the image",
     {1, 2, -1, 3},
     [](ModelBuilder& m) {
       Weights(m, "table", {1, 2, 4, 4});
       ShapeLike(m, "sizes", {1, 2, -3, -4});
       Resized(m, {"table", "", "", "sizes"}, {"linear", "half_pixel"});
     }},
};

class RangeOfImages : public ::testing::TestWithParam<RangeChain> {};

TEST_P(RangeOfImages, GivesWhatItGivesOfAKnownLength) { ExpectAsOfKnownLengths(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Chains, RangeOfImages, ::testing::ValuesIn(kImageChains),
                         [](const auto& info) { return TestName(info.param); });

TEST(OnnxRange, ResizesThatAnEndDecides) {
  const auto cubic = ToSize({1, 2, 5}, {"cubic", "half_pixel"});
  const std::pair<RangeChain, const char*> refused[] = {
      {{"a filter of four to a size", {1, 2, -1}, cubic}, "depend on extents"},
      {{"a third", {1, 2, -1}, Scaled({1, 1, 0.3f}, {"nearest", "asymmetric", "floor"})}, "a scale of"},
      {{"nothing", {1, 2, -1}, Scaled({1, 1, 0.25}, {"nearest", "asymmetric", "floor"})}, "may leave nothing"},
  };
  for (const auto& [chain, why] : refused) {
    const absl::Status status = ModelOf(chain).Import({.dims = {{"n", DimLength(2, kMost)}}}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << chain.name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why)) << chain.name;
  }
}

}  // namespace
}  // namespace temper
