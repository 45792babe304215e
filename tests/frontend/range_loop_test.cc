// Loops that end where a condition says so, by a length that is in a range: at each length they give what they give
// where that length is known. And sequences that are reversed as far as they go.
#include <gmock/gmock.h>

#include <functional>
#include <limits>

#include "tests/frontend/range_chain.h"

namespace temper {
namespace {

using testing::Axis;
using testing::ExpectAsOfKnownLengths;
using ::testing::HasSubstr;
using testing::kMost;
using testing::ModelBuilder;
using testing::ModelOf;
using testing::Number;
using testing::RangeChain;
using testing::ShapeLike;
using testing::TestName;
using testing::Weights;

// A loop whose counter begins at `start`, and which compares it with `limit`, or the other way round, in numbers of a
// type.
struct While {
  int64_t start = 0;
  const char* op = "Less";
  const char* limit = "n";  // or "less", which is n - 1, or "five"
  int type = onnx::TensorProto::INT64;
  const char* turns = "";      // that it takes at the most
  bool once = false;           // at the least
  int64_t step = 1;            // of the counter
  bool reads = true;           // a row of x in each turn
  const char* gives = "each";  // what is left of each turn, or the "last" of them
};

// Whether the loop goes on with a counter.
void Compare(ModelBuilder& m, const While& loop, const std::string& counter, const std::string& result) {
  for (const std::string& of : {counter, std::string(loop.limit)})
    ModelBuilder::SetInt(m.Node("Cast", {of}, {of + " for " + result}), "to", loop.type);
  const std::string one = counter + " for " + result, other = std::string(loop.limit) + " for " + result;
  const bool swapped = std::string_view(loop.op).starts_with("Greater");
  m.Node(loop.op, swapped ? std::vector{other, one} : std::vector{one, other}, {result});
}

std::function<void(ModelBuilder&)> Of(const While& loop) {
  return [loop](ModelBuilder& m) {
    const bool each = std::string_view(loop.gives) == "each";
    m.Ints("front", {0});
    ShapeLike(m, "length", {-1});
    m.Node("Squeeze", {"length", "front"}, {"n"});
    Number(m, "start", loop.start);
    Number(m, "step", loop.step);
    Number(m, "one", 1);
    Number(m, "five", 5);
    m.Node("Sub", {"n", "one"}, {"less"});
    Weights(m, "first state", {3});
    if (!loop.once) Compare(m, loop, "start", "first");
    ModelBuilder body(17);
    for (const char* input : {"turn", "before", "counter", "state"})
      body.model.mutable_graph()->add_input()->set_name(input);
    body.Node("Add", {"counter", "step"}, {"next counter"});
    if (loop.reads) body.Node("Gather", {"x", "counter"}, {"row"});
    body.Node("Add", {"state", loop.reads ? "row" : "first state"}, {"sum"});
    body.Node("Tanh", {"sum"}, {"next"});
    Compare(body, loop, "next counter", "goes on");
    for (const char* output : {"goes on", "next counter", "next"}) body.Output(output);
    if (each) {
      body.Node("Identity", {"next"}, {"told"});
      body.Output("told");
    }
    std::vector<std::string> results = {"counted", "last"};
    if (each) results.push_back("each");
    onnx::NodeProto& node = m.Node("Loop", {loop.turns, loop.once ? "" : "first", "start", "first state"}, results);
    onnx::AttributeProto& attribute = ModelBuilder::Attr(node, "body");
    attribute.set_type(onnx::AttributeProto::GRAPH);
    *attribute.mutable_g() = body.model.graph();
    ModelBuilder::SetInt(m.Node("Cast", {"counted"}, {"number"}), "to", onnx::TensorProto::FLOAT);
    m.Node("Add", {"last", "number"}, {"sum of last"});
    m.Node("Add", {each ? "each" : "x", "sum of last"}, {"y"});
  };
}

// Steps along axis `time` of x, reversed as far as `lengths` says, which stand along the other one.
std::function<void(ModelBuilder&)> Reversed(int64_t time, const std::function<void(ModelBuilder&)>& lengths) {
  return [=](ModelBuilder& m) {
    lengths(m);
    onnx::NodeProto& node = m.Node("ReverseSequence", {"x", "lengths"}, {"y"});
    ModelBuilder::SetInt(node, "time_axis", time);
    ModelBuilder::SetInt(node, "batch_axis", 1 - time);
  };
}
void AllSteps(ModelBuilder& m, int64_t time) {
  ShapeLike(m, "steps", {-1 - time});
  ShapeLike(m, "lines", {-2 + time});
  m.Node("Expand", {"steps", "lines"}, {"lengths"});
}

const RangeChain kLoopChains[] = {
    {"a counter in floats", {-1, 3}, Of({.type = onnx::TensorProto::FLOAT})},
    {"a length that is more", {-1, 3}, Of({.op = "Greater", .type = onnx::TensorProto::INT32})},
    {"up to the last one", {-1, 3}, Of({.op = "LessOrEqual", .limit = "less"})},
    {"a last one that is not less", {-1, 3}, Of({.op = "GreaterOrEqual", .limit = "less"})},
    {"from behind the shortest", {-1, 3}, Of({.start = 3, .reads = false, .gives = "last"})},
    {"once at the least", {-1, 3}, Of({.once = true})},
    {"once at the least, from behind the shortest", {-1, 3}, Of({.start = 3, .once = true, .reads = false})},
    {"no more than five", {-1, 3}, Of({.turns = "five"})},
    {"by twos, no more than five", {-1, 3}, Of({.turns = "five", .step = 2, .reads = false, .gives = "last"})},
    {"no more than there are", {-1, 3}, Of({.turns = "n"})},
    {"steps in reverse", {2, -1, 3}, Reversed(1, [](ModelBuilder& m) { AllSteps(m, 1); })},
    {"steps of one line in reverse", {-1, 1}, Reversed(0, [](ModelBuilder& m) { AllSteps(m, 0); })},
    {"lines in reverse", {-1, 5}, Reversed(1, [](ModelBuilder& m) { AllSteps(m, 1); })},
    {"some first steps in reverse",
     {-1, 3},
     Reversed(0,
              [](ModelBuilder& m) {
                m.Ints("lengths", {1, 0, 2});
              })},
    {"a number of steps of each line in reverse",
     {4, -1},
     Reversed(0,
              [](ModelBuilder& m) {
                m.Ints("axis", {0});
                m.Node("ReduceMax", {"x"}, {"most"});
                ModelBuilder::SetInts(*m.model.mutable_graph()->mutable_node(0), "axes", {0});
                ModelBuilder::SetInt(*m.model.mutable_graph()->mutable_node(0), "keepdims", 0);
                m.Floats("eight", {}, {8});
                m.Node("Mul", {"most", "eight"}, {"more"});
                m.Node("Clip", {"more", "zero", "four"}, {"some"});
                m.Floats("zero", {}, {0});
                m.Floats("four", {}, {4});
                ModelBuilder::SetInt(m.Node("Cast", {"some"}, {"lengths"}), "to", onnx::TensorProto::INT64);
              })},
};

class RangeOfLoops : public ::testing::TestWithParam<RangeChain> {};

TEST_P(RangeOfLoops, GivesWhatItGivesOfAKnownLength) {
  ExpectAsOfKnownLengths(GetParam(), {2, kMost}, {7, 6, 5, 4, 3, 2});
}

INSTANTIATE_TEST_SUITE_P(Chains, RangeOfLoops, ::testing::ValuesIn(kLoopChains),
                         [](const auto& info) { return TestName(info.param.name); });

TEST(OnnxRangeLoop, EndsThatNobodyCountsAreRefused) {
  const auto refused = [](const While& loop, int64_t most = kMost) {
    const RangeChain chain = {"", {-1, 3}, Of(loop)};
    return std::string(ModelOf(chain).Import({.dims = {{"n", DimLength(2, most)}}}).status().message());
  };
  EXPECT_THAT(refused({.turns = "five", .step = 2}), HasSubstr("the shape of a result"));
  EXPECT_THAT(refused({.step = 2}), HasSubstr("and so does the number of turns")) << "the counter runs ahead";
  EXPECT_THAT(refused({.step = 0}), HasSubstr("more than 4096 turns are not supported"));
  EXPECT_THAT(refused({.limit = "less", .turns = "n"}), HasSubstr("and so does the number of turns"));
  EXPECT_THAT(refused({.reads = false}, 5000), HasSubstr("more than 4096 turns are not supported"));
}

TEST(OnnxRangeLoop, LengthsOfOtherLinesAreRefused) {
  const RangeChain chain = {"", {4, -1}, Reversed(0, [](ModelBuilder& m) {
                              m.Ints("lengths", {1, 2, 3, 4, 1, 2, 3});
                            })};
  EXPECT_THAT(std::string(ModelOf(chain).Import({.dims = {{"n", DimLength(2, kMost)}}}).status().message()),
              HasSubstr("which ReverseSequence must know"));
}

}  // namespace
}  // namespace temper
