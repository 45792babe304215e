// Elements that a range moves to places of which the run knows alone where they are: parts, repeats, pads up to a
// multiple, shapes that keep no axis, and numbers that are drawn.
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

// "n", the length of x along the axis, as a vector.
void LengthOf(ModelBuilder& m, int64_t axis) { ShapeLike(m, "n", {-1 - axis}); }
// "half" of it, rounded down, and what is left, "rest".
void Halves(ModelBuilder& m, int64_t axis) {
  LengthOf(m, axis);
  m.Ints("two", {2});
  m.Node("Div", {"n", "two"}, {"half"});
  m.Node("Sub", {"n", "half"}, {"rest"});
}
void RunningSum(ModelBuilder& m, bool exclusive) {
  m.Ints("axes", {1});
  m.Node("Squeeze", {"axes"}, {"axis"});
  onnx::NodeProto& sum = m.Node("CumSum", {"x", "axis"}, {"y"});
  ModelBuilder::SetInt(sum, "reverse", 1);
  if (exclusive) ModelBuilder::SetInt(sum, "exclusive", 1);
}
// torch.nn.GroupNorm of 2 groups of 4 channels, as it is exported.
void NormOfGroups(ModelBuilder& m) {
  m.Ints("groups", {0, 2, -1});
  m.Node("Reshape", {"x", "groups"}, {"lines"});
  m.Floats("ones", {2}, {1, 1});
  m.Floats("zeros", {2}, {0, 0});
  m.Node("InstanceNormalization", {"lines", "ones", "zeros"}, {"even"});
  m.Node("Shape", {"x"}, {"shape"});
  m.Node("Reshape", {"even", "shape"}, {"y"});
}
// x with a pad of up to 3 elements behind its second axis.
void PadToFours(ModelBuilder& m) {
  LengthOf(m, 1);
  m.Ints("four", {4});
  m.Ints("none", {0});
  m.Node("Mod", {"n", "four"}, {"over"});
  m.Node("Sub", {"four", "over"}, {"missing"});
  m.Node("Mod", {"missing", "four"}, {"added"});
  Axis(m.Node("Concat", {"none", "none", "none", "added"}, {"pads"}), 0);
  m.Node("Pad", {"x", "pads"}, {"padded"});
  m.Ints("by fours", {2, -1, 4});
  m.Node("Reshape", {"padded", "by fours"}, {"fours"});
  m.Ints("last", {2});
  ModelBuilder::SetInt(m.Node("ReduceSum", {"fours", "last"}, {"y"}), "keepdims", 0);
}

// x with what its second axis lacks to a total behind it, or as often as the last of the pads' factors says; the total
// may be less.
void PadByFactors(ModelBuilder& m, int64_t total, const std::vector<int64_t>& factors) {
  LengthOf(m, 1);
  m.Ints("total", {total});
  m.Ints("factors", factors);
  m.Node("Sub", {"total", "n"}, {"missing"});
  m.Node("Mul", {"missing", "factors"}, {"pads"});
  m.Node("Pad", {"x", "pads"}, {"y"});
}

// The spectrum of each of the lines along an axis.
void Spectrum(ModelBuilder& m, int64_t axis) {
  onnx::NodeProto& node = Axis(m.Node("DFT", {"x"}, {"y"}), axis);
  ModelBuilder::SetInt(node, "onesided", 1);
}
// x without what it has more than `first` and a multiple of two, in pairs.
void WholePairs(ModelBuilder& m, int64_t first) {
  LengthOf(m, 1);
  m.Ints("first", {first});
  m.Ints("two", {2});
  m.Ints("front", {0});
  m.Ints("axis", {1});
  m.Ints("pairs", {0, -1, 2});
  m.Node("Sub", {"n", "first"}, {"steps"});
  m.Node("Mod", {"steps", "two"}, {"over"});
  m.Node("Sub", {"n", "over"}, {"end"});
  m.Node("Slice", {"x", first % 2 == 0 ? "front" : "axis", "end", "axis"}, {"even"});
  m.Node("Reshape", {"even", "pairs"}, {"y"});
}

onnx::NodeProto& Within(onnx::GraphProto& body, const char* op, const std::vector<std::string>& inputs,
                        const char* output) {
  onnx::NodeProto& node = *body.add_node();
  node.set_op_type(op);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(output);
  return node;
}
// A state to which each row of x is added, and what it was after each.
void TurnByTurn(ModelBuilder& m, bool scans) {
  Weights(m, "first state", {3});
  LengthOf(m, 0);
  m.Ints("front", {0});
  m.Node("Squeeze", {"n", "front"}, {"turns"});
  onnx::NodeProto& loop = scans ? m.Node("Scan", {"first state", "x"}, {"last", "all"})
                                : m.Node("Loop", {"turns", "", "first state"}, {"last", "all"});
  onnx::AttributeProto& attribute = ModelBuilder::Attr(loop, "body");
  attribute.set_type(onnx::AttributeProto::GRAPH);
  onnx::GraphProto& body = *attribute.mutable_g();
  body.set_name("body");
  if (scans) ModelBuilder::SetInt(loop, "num_scan_inputs", 1);
  const std::vector<const char*> inputs = scans ? std::vector{"state", "row"} : std::vector{"turn", "before", "state"};
  for (const char* input : inputs) body.add_input()->set_name(input);
  if (!scans) Within(body, "Gather", {"x", "turn"}, "row");
  Within(body, "Add", {"state", "row"}, "sum");
  Within(body, "Tanh", {"sum"}, "next");
  Within(body, "Identity", {"next"}, "told");
  if (!scans) Within(body, "Identity", {"before"}, "goes on");
  for (const char* output : {"goes on", "next", "told"}) {
    if (!scans || std::string_view(output) != "goes on") body.add_output()->set_name(output);
  }
  m.Node("Add", {"all", "last"}, {"y"});
}

const RangeChain kPlaceChains[] = {
    {"elements again and again",
     {2, -1},
     [](ModelBuilder& m) {
       m.Ints("repeats", {2, 3});
       m.Node("Tile", {"x", "repeats"}, {"y"});
     }},
    {"rows as often as there are elements",
     {2, -1},
     [](ModelBuilder& m) {
       Weights(m, "rows", {2, 3});
       ShapeLike(m, "repeats", {-2, 1});
       m.Node("Tile", {"rows", "repeats"}, {"y"});
     }},
    {"elements as often as there are elements",
     {-1, 2},
     [](ModelBuilder& m) {
       ShapeLike(m, "repeats", {-1, 1});
       m.Node("Tile", {"x", "repeats"}, {"y"});
     }},
    {"sums from the end", {2, -1, 3}, [](ModelBuilder& m) { RunningSum(m, false); }},
    {"sums of what comes later", {2, -1, 3}, [](ModelBuilder& m) { RunningSum(m, true); }},
    {"two parts",
     {2, -1, 3},
     [](ModelBuilder& m) {
       Halves(m, 1);
       Axis(m.Node("Concat", {"half", "rest"}, {"parts"}), 0);
       Axis(m.Node("Split", {"x", "parts"}, {"first", "second"}), 1);
       m.Ints("middle", {1});
       m.Node("ReduceSum", {"first", "middle"}, {"sum"});
       m.Node("Add", {"second", "sum"}, {"y"});
     }},
    {"two slices that change places",
     {2, -1, 3},
     [](ModelBuilder& m) {
       Halves(m, 1);
       m.Ints("none", {0});
       m.Ints("all", {1 << 20});
       m.Ints("middle", {1});
       m.Node("Slice", {"x", "none", "half", "middle"}, {"first"});
       m.Node("Slice", {"x", "half", "all", "middle"}, {"second"});
       Axis(m.Node("Concat", {"second", "first"}, {"y"}), 1);
     }},
    {"a slice that starts anywhere",
     {1, -1},
     [](ModelBuilder& m) {
       Weights(m, "table", {9});
       m.Ints("end", {9});
       LengthOf(m, 1);
       m.Node("Slice", {"table", "n", "end"}, {"y"});
     }},
    {"a slice between places that elements say",
     {2, -1},
     [](ModelBuilder& m) {
       m.Node("ReduceMax", {"x"}, {"most"});
       m.Floats("four", {1}, {4});
       m.Node("Mul", {"most", "four"}, {"more"});
       ModelBuilder::SetInt(m.Node("Cast", {"more"}, {"number"}), "to", onnx::TensorProto::INT64);
       m.Ints("one", {1});
       m.Node("Reshape", {"number", "one"}, {"start"});
       m.Ints("end", {-1});
       m.Node("Slice", {"x", "start", "end", "one"}, {"some"});
       m.Node("ReduceSum", {"some", "one"}, {"y"});
     }},
    {"pads up to a multiple", {2, -1}, PadToFours},
    {"spectra of lines", {-1, 6, 1}, [](ModelBuilder& m) { Spectrum(m, 1); }},
    {"spectra of frames", {2, -1, 6, 1}, [](ModelBuilder& m) { Spectrum(m, 2); }},
    {"spectra of columns", {2, 6, -1, 1}, [](ModelBuilder& m) { Spectrum(m, 1); }},
    {"whole pairs", {2, -1}, [](ModelBuilder& m) { WholePairs(m, 2); }},
    {"whole pairs behind one", {2, -1}, [](ModelBuilder& m) { WholePairs(m, 1); }},
    {"pads by factors",
     {2, -1},
     [](ModelBuilder& m) {
       PadByFactors(m, 9, {0, 0, 0, 1});
     }},
    {"no pads for the longest",
     {2, -1, 3},
     [](ModelBuilder& m) {
       PadByFactors(m, kMost, {0, 0, 0, 0, 1, 0});
     }},
    {"pads that cut",
     {2, -1},
     [](ModelBuilder& m) {
       PadByFactors(m, 4, {0, 0, 0, 1});
     }},
    {"pads twice as long",
     {2, -1},
     [](ModelBuilder& m) {
       PadByFactors(m, 9, {0, 0, 0, 2});
     }},
    {"what a dropout leaves",
     {2, -1},
     [](ModelBuilder& m) {
       m.Node("Dropout", {"x"}, {"kept", "stays"});
       m.Node("Not", {"stays"}, {"gone"});
       ModelBuilder::SetInt(m.Node("Cast", {"gone"}, {"number"}), "to", onnx::TensorProto::FLOAT);
       m.Node("Add", {"kept", "number"}, {"y"});
     }},
    {"random numbers",
     {2, -1},
     [](ModelBuilder& m) {
       m.Node("RandomNormalLike", {"x"}, {"normal"});
       m.Node("RandomUniformLike", {"x"}, {"even"});
       m.Node("Bernoulli", {"even"}, {"either"});
       m.Floats("none", {1}, {0});
       m.Node("Add", {"normal", "either"}, {"all"});
       m.Node("Mul", {"all", "none"}, {"nothing"});
       m.Node("Add", {"x", "nothing"}, {"y"});
     }},
    {"pixels at positions",
     {1, -1, 3, 2},
     [](ModelBuilder& m) {
       Weights(m, "image", {1, 2, 4, 5});
       m.Node("GridSample", {"image", "x"}, {"y"});
     }},
    {"an axis that is never one",
     {-1, 2},
     [](ModelBuilder& m) {
       LengthOf(m, 0);
       m.Ints("one", {1});
       m.Node("Equal", {"n", "one"}, {"is one"});
       onnx::NodeProto& choice = m.Node("If", {"is one"}, {"y"});
       for (const auto& [branch, op] : {std::pair("then_branch", "Squeeze"), {"else_branch", "Neg"}}) {
         onnx::AttributeProto& body = ModelBuilder::Attr(choice, branch);
         body.set_type(onnx::AttributeProto::GRAPH);
         body.mutable_g()->set_name(branch);
         onnx::NodeProto* node = body.mutable_g()->add_node();
         node->set_op_type(op);
         node->add_input("x");
         if (std::string_view(op) == "Squeeze") node->add_input("half axes");
         node->add_output("chosen");
         body.mutable_g()->add_output()->set_name("chosen");
       }
       m.Ints("half axes", {0});
     }},
    {"groups of channels", {2, 4, -1}, NormOfGroups},
    {"a turn for each row", {-1, 3}, [](ModelBuilder& m) { TurnByTurn(m, false); }},
    {"a scan of rows", {-1, 3}, [](ModelBuilder& m) { TurnByTurn(m, true); }},
    {"groups of several lines",
     {4, -1},
     [](ModelBuilder& m) {
       m.Ints("groups", {2, -1, 2});
       m.Node("Reshape", {"x", "groups"}, {"y"});
     }},
};

class RangeOfPlaces : public ::testing::TestWithParam<RangeChain> {};

TEST_P(RangeOfPlaces, GivesWhatItGivesOfAKnownLength) {
  // Opset 17 has every operator of the chains in the form in which it is written here.
  ExpectAsOfKnownLengths(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Chains, RangeOfPlaces, ::testing::ValuesIn(kPlaceChains),
                         [](const auto& info) { return TestName(info.param.name); });

TEST(OnnxPlaces, PadsByOtherFactorsAreRefused) {
  const auto refused = [](const std::vector<int64_t>& factors) {
    const RangeChain chain = {"", {2, -1}, [&](ModelBuilder& m) { PadByFactors(m, 9, factors); }};
    return std::string(ModelOf(chain).Import({.dims = {{"n", DimLength(2, kMost)}}}).status().message());
  };
  EXPECT_THAT(refused({0, 1, 0, 0}), HasSubstr("as many pads as only the run knows")) << "before the first";
  EXPECT_THAT(refused({0, 0, 0, -1}), HasSubstr("pads depends on the model's inputs"));
  for (const int64_t factor : {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()})
    EXPECT_THAT(refused({0, 0, 0, factor}), HasSubstr("pads depends on the model's inputs"));
}

TEST(OnnxPlaces, FramesOfASignal) {
  const RangeChain chain = {"", {2, -1}, [](ModelBuilder& m) {
                              m.Ints("steps", {2});
                              m.Ints("none", {0});
                              m.Node("Squeeze", {"steps"}, {"step"});
                              Weights(m, "window", {4});
                              m.Node("STFT", {"x", "step", "window"}, {"y"});
                            }};
  ExpectAsOfKnownLengths(chain, {4, 7}, {7, 6, 5, 4});
}

TEST(OnnxPlaces, EvenParts) {
  const RangeChain chain = {"", {-1, 3}, [](ModelBuilder& m) {
                              Axis(m.Node("Split", {"x"}, {"first", "second"}), 0);
                              m.Node("Sub", {"first", "second"}, {"y"});
                            }};
  ExpectAsOfKnownLengths(chain, {2, 6}, {6, 4, 2});
}

TEST(OnnxPlaces, RandomNumbersHaveTheirDistribution) {
  ModelBuilder m(17);
  m.Input("x", {1});
  for (const auto& [op, result] : {std::pair("RandomNormal", "normal"), {"RandomUniform", "even"}}) {
    onnx::NodeProto& node = m.Node(op, {}, {result});
    ModelBuilder::SetInts(node, "shape", {200, 100});
    ModelBuilder::SetFloat(node, "seed", 3);
  }
  m.Node("RandomNormal", {}, {"other"});
  ModelBuilder::SetInts(*m.model.mutable_graph()->mutable_node(2), "shape", {200, 100});
  for (const char* output : {"normal", "even", "other"}) m.Output(output);
  const std::vector<NDArray> out = m.Run({testing::Array({1}, {0})});
  ASSERT_EQ(out.size(), 3u);
  const double means[] = {0, 0.5, 0}, squares[] = {1, 1.0 / 3, 1};
  for (size_t i = 0; i < 3; ++i) {
    double mean = 0, square = 0;
    for (int64_t k = 0; k < out[i].size(); ++k) {
      mean += out[i].At(k) / static_cast<double>(out[i].size());
      square += out[i].At(k) * out[i].At(k) / static_cast<double>(out[i].size());
    }
    EXPECT_NEAR(mean, means[i], 0.03) << i;
    EXPECT_NEAR(square, squares[i], 0.05) << i;
  }
  EXPECT_NE(out[0].At(0), out[2].At(0));
}

}  // namespace
}  // namespace temper
