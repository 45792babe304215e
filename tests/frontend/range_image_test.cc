// Images and signals of which only the run knows how long they are along an axis: operators that look beyond the end,
// or make more or fewer elements.
#include <gmock/gmock.h>

#include "compiler/graph/behind.h"
#include "compiler/graph/extract.h"
#include "compiler/graph/pipeline.h"
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

// With an attribute of the last node set.
std::function<void(ModelBuilder&)> With(const char* attribute, const std::function<void(ModelBuilder&)>& add) {
  return [=](ModelBuilder& m) {
    add(m);
    auto& nodes = *m.model.mutable_graph()->mutable_node();
    ModelBuilder::SetInt(nodes[nodes.size() - 1], attribute, 1);
  };
}

std::function<void(ModelBuilder&)> Pooled(const char* op, const Ints& kernel, const Ints& strides, const Ints& pads,
                                          bool ceil = false) {
  return [=](ModelBuilder& m) {
    onnx::NodeProto& node = m.Node(op, {"x"}, {"y"});
    ModelBuilder::SetInts(node, "kernel_shape", kernel);
    ModelBuilder::SetInts(node, "strides", strides);
    ModelBuilder::SetInts(node, "pads", pads);
    if (ceil) ModelBuilder::SetInt(node, "ceil_mode", 1);
  };
}
std::function<void(ModelBuilder&)> Same(const char* op, int64_t kernel, const char* pads, int64_t stride = 2) {
  return [=](ModelBuilder& m) {
    const bool conv = std::string_view(op) == "Conv";
    if (conv) Weights(m, "w", {3, 2, kernel});
    onnx::NodeProto& node =
        m.Node(op, conv ? std::vector<std::string>{"x", "w"} : std::vector<std::string>{"x"}, {"y"});
    ModelBuilder::SetInts(node, "kernel_shape", {kernel});
    ModelBuilder::SetInts(node, "strides", {stride});
    ModelBuilder::SetString(node, "auto_pad", pads);
  };
}
std::function<void(ModelBuilder&)> Spread(const Ints& kernel, int64_t stride, int64_t pad, int64_t extra) {
  return [=](ModelBuilder& m) {
    Ints filter = {2, 3};
    filter.insert(filter.end(), kernel.begin(), kernel.end());
    Weights(m, "w", filter);
    onnx::NodeProto& node = m.Node("ConvTranspose", {"x", "w"}, {"y"});
    ModelBuilder::SetInts(node, "strides", Ints(kernel.size(), stride));
    ModelBuilder::SetInts(node, "pads", Ints(2 * kernel.size(), pad));
    ModelBuilder::SetInts(node, "output_padding", Ints(kernel.size(), extra));
  };
}
std::function<void(ModelBuilder&)> Counted(const Ints& kernel, const Ints& strides, const Ints& pads) {
  return [=](ModelBuilder& m) {
    Pooled("AveragePool", kernel, strides, pads, true)(m);
    ModelBuilder::SetInt(*m.model.mutable_graph()->mutable_node(0), "count_include_pad", 1);
  };
}
std::function<void(ModelBuilder&)> ConvOfVolume(const Ints& kernel, int64_t stride, int64_t pad) {
  return [=](ModelBuilder& m) {
    Ints filter = {3, 2};
    filter.insert(filter.end(), kernel.begin(), kernel.end());
    Weights(m, "w", filter);
    Weights(m, "bias", {3});
    onnx::NodeProto& node = m.Node("Conv", {"x", "w", "bias"}, {"y"});
    ModelBuilder::SetInts(node, "strides", Ints(3, stride));
    ModelBuilder::SetInts(node, "pads", Ints(6, pad));
  };
}
std::function<void(ModelBuilder&)> Padded(const Ints& pads, const char* mode) {
  return [=](ModelBuilder& m) {
    m.Ints("pads", pads);
    ModelBuilder::SetString(m.Node("Pad", {"x", "pads"}, {"y"}), "mode", mode);
  };
}
void Sliced(ModelBuilder& m, const char* to, int64_t start, int64_t end, int64_t axis, int64_t step = 1) {
  const std::string name = to;
  m.Ints(name + "_start", {start});
  m.Ints(name + "_end", {end});
  m.Ints(name + "_axis", {axis});
  m.Ints(name + "_step", {step});
  m.Node("Slice", {"x", name + "_start", name + "_end", name + "_axis", name + "_step"}, {to});
}
constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
// As torch.roll is exported.
std::function<void(ModelBuilder&)> Rolled(int64_t by) {
  return [=](ModelBuilder& m) {
    Sliced(m, "behind", -by, kEnd, 1);
    Sliced(m, "before", 0, -by, 1);
    Axis(m.Node("Concat", {"behind", "before"}, {"rolled"}), 1);
    m.Node("Sub", {"x", "rolled"}, {"y"});
  };
}
std::function<void(ModelBuilder&)> Blocks(const char* op, const char* mode) {
  return [=](ModelBuilder& m) {
    onnx::NodeProto& node = m.Node(op, {"x"}, {"y"});
    ModelBuilder::SetInt(node, "blocksize", 2);
    if (mode != nullptr) ModelBuilder::SetString(node, "mode", mode);
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
    {"to one size, between four", {1, 2, -1, 3}, ToSize({1, 2, 5, 3}, {"cubic", "half_pixel"})},
    {"back to a size, between four", {1, 2, -1, 6}, BackToTheSizeOfX({1, 0, 0, 0}, {"cubic", "align_corners"})},
    {"to one element", {1, 2, -1, 3}, ToSize({1, 2, 1, 3}, {"linear", "pytorch_half_pixel"})},
    {"to one element of corners", {1, 2, -1, 3}, ToSize({1, 2, 1, 3}, {"linear", "align_corners"})},
    {"less than half as many, the nearest", {1, 2, -1}, Scaled({1, 1, 0.7f}, {"nearest", "asymmetric", "floor"})},
    {"half as many more, or less", {1, 2, -1, 3}, Scaled({1, 1, 1.3f, 2.1f}, {"linear", "half_pixel"})},
    {"a third more, between four", {1, 2, -1}, Scaled({1, 1, 1.3333334f}, {"cubic", "half_pixel"})},
    {"to one size by a wide filter", {1, 2, -1, 3}, With("antialias", ToSize({1, 2, 3, 2}, {"linear", "half_pixel"}))},
    {"to one size by a wide filter between four",
     {1, 2, 3, -1},
     With("antialias", ToSize({1, 2, 3, 4}, {"cubic", "half_pixel"}))},
    {"by a wide filter without what is outside",
     {1, 2, -1, 3},
     With("antialias", With("exclude_outside", ToSize({1, 2, 3, 3}, {"cubic", "pytorch_half_pixel"})))},
    {"by a scale and a wide filter", {1, 2, -1}, With("antialias", Scaled({1, 1, 0.6f}, {"linear", "half_pixel"}))},
    {"a half by a wide filter", {1, 2, -1, 4}, With("antialias", Scaled({1, 1, 0.5, 0.5}, {"cubic", "half_pixel"}))},
    {"back to a size by a wide filter",
     {2, 2, -1, 6},
     With("antialias", BackToTheSizeOfX({0, 0, 0, 0}, {"linear", "half_pixel"}))},
    {"twice as many without what is outside",
     {1, 2, -1, 3},
     With("exclude_outside", Scaled({1, 1, 2, 2}, {"cubic", "half_pixel"}))},
    {"a table as long as the image",
     {1, 2, -1, 3},
     [](ModelBuilder& m) {
       Weights(m, "table", {1, 2, 4, 4});
       ShapeLike(m, "sizes", {1, 2, -3, -4});
       Resized(m, {"table", "", "", "sizes"}, {"linear", "half_pixel"});
     }},
    {"channels as pixels", {1, 8, -1, 3}, Blocks("DepthToSpace", "CRD")},
    {"channels as pixels of columns", {2, 8, 3, -1}, Blocks("DepthToSpace", "DCR")},
    {"channels as pixels, as many as there are", {-1, 8, 3, 2}, Blocks("DepthToSpace", "DCR")},
    {"elements around, as many as there are", {-1, 2, 4}, Padded({0, 0, 2, 0, 0, 1}, "reflect")},
    {"reflected ends", {1, 2, -1, 4}, Padded({0, 0, 1, 2, 0, 0, 1, 1}, "reflect")},
    {"repeated ends", {1, -1, 4}, Padded({0, 3, 2, 0, 9, 0}, "edge")},
    {"one of the ends repeated, the other cut", {1, -1, 4}, Padded({0, -1, 0, 0, 2, 0}, "edge")},
    {"a kernel spread by its steps", {1, 2, -1, 3}, Spread({2, 2}, 2, 0, 0)},
    {"a kernel spread farther than its steps", {1, 2, -1, 3}, Spread({4, 4}, 2, 1, 0)},
    {"a kernel spread, and one more", {1, 2, -1}, Spread({3}, 2, 1, 1)},
    {"a kernel spread with gaps", {2, 2, -1}, Spread({2}, 3, 0, 0)},
    {"an average to the end", {1, 2, -1, 3}, Pooled("AveragePool", {3, 3}, {2, 1}, {1, 1, 1, 1})},
    {"an average of a signal to the end", {2, 2, -1}, Pooled("AveragePool", {4}, {1}, {0, 3})},
    {"an average that reaches out", {2, 2, -1}, Pooled("AveragePool", {2}, {2}, {0, 0}, true)},
    {"a maximum that reaches out", {2, 2, -1}, Pooled("MaxPool", {2}, {2}, {0, 0}, true)},
    {"a maximum that begins at the end", {2, 2, -1}, Pooled("MaxPool", {2}, {2}, {0, 1}, true)},
    {"a maximum of single ones", {2, 2, -1}, Pooled("MaxPool", {1}, {3}, {0, 0}, true)},
    {"a maximum with pads before by the extent", {2, 2, -1}, Same("MaxPool", 3, "SAME_LOWER")},
    {"an average with pads behind by the extent", {2, 2, -1}, Same("AveragePool", 4, "SAME_UPPER")},
    {"a convolution with pads by the extent", {2, 2, -1}, Same("Conv", 3, "SAME_UPPER")},
    {"a convolution by long steps", {2, 2, -1}, Same("Conv", 2, "SAME_LOWER", 3)},
    {"a convolution by longer steps", {2, 2, -1}, Same("Conv", 2, "SAME_UPPER", 3)},
    {"a convolution with one pad before it, whatever comes behind", {2, 2, -1}, Same("Conv", 4, "SAME_UPPER")},
    {"a maximum with a pad behind by the extent", {2, 2, -1}, Same("MaxPool", 2, "SAME_UPPER")},
    {"an average with a pad before by the extent", {2, 2, -1}, Same("AveragePool", 2, "SAME_LOWER")},
    {"an average with a pad behind by the extent", {2, 2, -1}, Same("AveragePool", 2, "SAME_UPPER")},
    {"an average of pads that count and reaches out", {2, 2, -1}, Counted({4}, {3}, {1, 1})},
    {"an average that counts before it reaches out", {2, 2, -1, 5}, Counted({2, 3}, {2, 2}, {1, 0, 0, 1})},
    {"an average by long steps to pads that count", {2, 2, -1}, Counted({3}, {4}, {0, 2})},
    {"planes of a volume", {1, 2, -1, 3, 4}, ConvOfVolume({3, 2, 2}, 2, 1)},
    {"rows of a volume", {2, 2, 3, -1, 4}, ConvOfVolume({2, 3, 1}, 1, 1)},
    {"columns of a volume", {1, 2, 3, 4, -1}, ConvOfVolume({1, 2, 2}, 2, 0)},
    {"a maximum of planes", {1, 2, -1, 3, 4}, Pooled("MaxPool", {2, 2, 2}, {2, 1, 1}, {1, 0, 0, 0, 1, 1}, true)},
    {"a maximum of columns", {1, 2, 3, 3, -1}, Pooled("MaxPool", {2, 3, 2}, {1, 1, 2}, {0, 1, 0, 1, 0, 1})},
    {"an average of planes", {2, 2, -1, 3, 4}, Pooled("AveragePool", {3, 2, 2}, {2, 1, 1}, {1, 0, 0, 1, 1, 0})},
    {"an average of rows to the end", {1, 2, 3, -1, 4}, Pooled("AveragePool", {2, 2, 1}, {1, 2, 1}, Ints(6), true)},
    {"an average of planes and their pads", {1, 2, -1, 3, 3}, Counted({2, 2, 2}, {2, 2, 2}, {1, 0, 1, 0, 1, 0})},
    {"planes spread by their steps", {1, 2, -1, 2, 3}, Spread({2, 2, 2}, 2, 0, 0)},
    {"planes spread farther than their steps", {2, 2, -1, 2, 2}, Spread({3, 2, 3}, 2, 1, 1)},
    {"rows of planes that are spread", {1, 2, 2, -1, 3}, Spread({2, 3, 2}, 2, 0, 1)},
    {"rolled on", {2, -1, 3}, Rolled(1)},
    {"rolled back", {2, -1, 3}, Rolled(-2)},
    {"the last ones", {2, -1, 3}, [](ModelBuilder& m) { Sliced(m, "y", -2, kEnd, 1); }},
    {"the last ones of few", {2, -1, 3}, [](ModelBuilder& m) { Sliced(m, "y", -5, -1, 1); }},
    {"from before the first one", {2, -1, 3}, [](ModelBuilder& m) { Sliced(m, "y", -100, 3, 1); }},
    {"the first ones of few", {2, -1, 3}, [](ModelBuilder& m) { Sliced(m, "y", 1, 5, 1); }},
    {"in reverse", {2, -1, 3}, [](ModelBuilder& m) { Sliced(m, "y", -1, -kEnd, 1, -1); }},
    {"back from what is always there", {2, -1, 3}, [](ModelBuilder& m) { Sliced(m, "y", 1, -kEnd, 1, -1); }},
    {"back by twos", {-1, 3}, [](ModelBuilder& m) { Sliced(m, "y", 1, -kEnd, 0, -2); }},
    {"back from what may be there", {2, -1, 3}, [](ModelBuilder& m) { Sliced(m, "y", 3, -kEnd, 1, -1); }},
    {"back from behind all", {2, -1}, [](ModelBuilder& m) { Sliced(m, "y", 100, 0, 1, -1); }},
    {"back to before the second", {2, -1, 3}, [](ModelBuilder& m) { Sliced(m, "y", 4, 1, 1, -1); }},
    {"every second one", {2, -1, 3}, [](ModelBuilder& m) { Sliced(m, "y", 1, kEnd, 1, 2); }},
    {"every second one of few", {2, -1, 3}, [](ModelBuilder& m) { Sliced(m, "y", 0, 5, 1, 2); }},
    {"every third one before the last", {2, -1, 3}, [](ModelBuilder& m) { Sliced(m, "y", 0, -1, 1, 3); }},
    {"behind what is known",
     {2, -1, 3},
     [](ModelBuilder& m) {
       Weights(m, "first", {2, 1, 3});
       Axis(m.Node("Concat", {"first", "x"}, {"all"}), 1);
       Sliced(m, "some", 0, 2, 1);
       Axis(m.Node("Concat", {"some", "all"}, {"y"}), 1);
     }},
};

// What a convolution makes behind the end is not read by what resizes it.
TEST(OnnxImages, ResizedImagesAreReadToTheirEnd) {
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    const RangeChain chain = {"", {1, 2, -1, 8}, [&](ModelBuilder& m) {
                                Weights(m, "w", {4, 2, 3, 3});
                                ModelBuilder::SetInts(m.Node("Conv", {"x", "w"}, {"made"}), "pads", {1, 1, 1, 1});
                                m.Ints("sizes", {1, 4, 9, 8});
                                Resized(m, {"made", "", "", "sizes"}, {mode, "half_pixel"});
                              }};
    absl::StatusOr<Graph> g = ModelOf(chain).Import({.dims = {{"n", DimLength(2, kMost)}}});
    ASSERT_TRUE(g.ok()) << g.status();
    ASSERT_TRUE(Optimize(*g, Target{}).ok());
    const GraphBehind behind = BehindOf(*g);
    for (const Group& group : g->groups) {
      const Extracted kernel = *Extract(*g, group);
      if (kernel.workload.calls[static_cast<size_t>(kernel.workload.anchor)].op != "conv2d") continue;
      const std::vector<Behind>& facts = behind.of[static_cast<size_t>(kernel.output)];
      EXPECT_EQ(std::ranges::count(facts, Behind::kUnread, &Behind::kind), 1) << mode;
    }
  }
}

class RangeOfImages : public ::testing::TestWithParam<RangeChain> {};

TEST_P(RangeOfImages, GivesWhatItGivesOfAKnownLength) { ExpectAsOfKnownLengths(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Chains, RangeOfImages, ::testing::ValuesIn(kImageChains),
                         [](const auto& info) { return TestName(info.param.name); });

// At even lengths, which are those that the models mean something of.
const RangeChain kEvenChains[] = {
    {"pixels as channels", {1, 2, -1, 4}, Blocks("SpaceToDepth", "DCR")},
    {"pixels as channels by shapes",
     {1, 2, -1, 4},
     [](ModelBuilder& m) {
       m.Ints("two", {2});
       for (const auto& [length, half] : {std::pair(-3, "rows"), {-4, "columns"}}) {
         const std::string name = half;
         ShapeLike(m, (name + "_all").c_str(), {length});
         m.Node("Div", {name + "_all", "two"}, {half});
       }
       m.Ints("outer", {1, 2});
       m.Ints("channels", {1, 8});
       Axis(m.Node("Concat", {"outer", "rows", "two", "columns", "two"}, {"blocks"}), 0);
       Axis(m.Node("Concat", {"channels", "rows", "columns"}, {"shape"}), 0);
       ShapeLike(m, "back", {1, -2, -3, -4});
       m.Node("Reshape", {"x", "blocks"}, {"cut"});
       testing::Permuted(m, "cut", "apart", {0, 1, 3, 5, 2, 4});
       m.Node("Reshape", {"apart", "shape"}, {"deep"});
       m.Node("Relu", {"deep"}, {"positive"});
       m.Ints("pixels", {1, 2, 2, 2});
       Axis(m.Node("Concat", {"pixels", "rows", "columns"}, {"parts"}), 0);
       m.Node("Reshape", {"positive", "parts"}, {"again"});
       testing::Permuted(m, "again", "beside", {0, 1, 4, 2, 5, 3});
       m.Node("Reshape", {"beside", "back"}, {"y"});
     }},
    {"halves made whole beside what they were",
     {1, 2, -1, 4},
     [](ModelBuilder& m) {
       Pooled("MaxPool", {2, 2}, {2, 2}, {0, 0, 0, 0})(m);
       m.model.mutable_graph()->mutable_node(0)->set_output(0, "half");
       m.Floats("scales", {4}, {1, 1, 2, 2});
       m.Node("Resize", {"half", "", "scales"}, {"twice"});
       Axis(m.Node("Concat", {"twice", "x"}, {"both"}), 1);
       Axis(m.Node("Concat", {"x", "x"}, {"own"}), 1);
       m.Node("Add", {"both", "own"}, {"y"});
     }},
};

TEST(OnnxRange, LengthsThatAModelMeansSomethingOf) {
  for (const RangeChain& chain : kEvenChains) {
    SCOPED_TRACE(chain.name);
    ExpectAsOfKnownLengths(chain, {4, 8}, {8, 6, 4});
  }
}

TEST(OnnxRange, PadsThatReachFurtherThanThereMayBe) {
  const std::pair<RangeChain, const char*> refused[] = {
      {{"a reflection", {1, 2, -1}, Padded({0, 0, 2, 0, 0, 0}, "reflect")}, "may have as few as 2"},
      {{"a cut", {1, 2, -1}, Padded({0, 0, -2, 0, 0, -1}, "edge")}, "more than there may be"},
      {{"pads of a spread kernel", {1, 2, -1}, Spread({2}, 1, 2, 0)}, "may leave nothing"},
      {{"steps back", {1, -1}, [](ModelBuilder& m) { Sliced(m, "y", 4, -kEnd, 1, -2); }}, "may be behind the end"},
      {{"back to near the end", {1, -1}, [](ModelBuilder& m) { Sliced(m, "y", 4, -2, 1, -1); }}, "only the run knows"},
      {{"nothing back", {1, -1}, [](ModelBuilder& m) { Sliced(m, "y", 1, 3, 1, -1); }}, "without elements"},
      {{"steps from the end", {1, -1}, [](ModelBuilder& m) { Sliced(m, "y", -4, kEnd, 1, 2); }}, "only the run knows"},
      {{"pads that count, by the extent",
        {1, 2, -1},
        [](ModelBuilder& m) {
          Same("AveragePool", 3, "SAME_UPPER")(m);
          ModelBuilder::SetInt(*m.model.mutable_graph()->mutable_node(0), "count_include_pad", 1);
          ModelBuilder::SetInt(*m.model.mutable_graph()->mutable_node(0), "ceil_mode", 1);
        }},
       "only the run knows"},
      {{"a volume of too few planes", {1, 2, -1, 3, 3}, ConvOfVolume({4, 2, 2}, 1, 0)}, "may have as few as 2"},
      {{"pads of a spread volume", {1, 2, 5, 5, -1}, Spread({2, 2, 2}, 1, 2, 0)}, "may leave nothing"},
  };
  for (const auto& [chain, why] : refused) {
    const absl::Status status = ModelOf(chain).Import({.dims = {{"n", DimLength(2, kMost)}}}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << chain.name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why)) << chain.name;
  }
}

TEST(OnnxRange, ResizesThatAnEndDecides) {
  const std::pair<RangeChain, const char*> refused[] = {
      {{"a middle of the whole", {1, 2, -1}, Scaled({1, 1, 0.7f}, {"nearest", "half_pixel_symmetric", "floor"})},
       "depend on extents"},
      {{"a third", {1, 2, -1}, Scaled({1, 1, 0.3f}, {"nearest", "asymmetric", "floor"})}, "may leave nothing"},
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
