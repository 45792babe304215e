// What is known of a graph's values behind the extent of an input.
#include "compiler/graph/behind.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "compiler/graph/pipeline.h"
#include "compiler/ops/template.h"
#include "tests/graph/builder.h"

namespace temper {
namespace {

using testing::Builder;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr int64_t kMost = 6, kWidth = 4;

class BehindTest : public ::testing::Test {
 protected:
  BehindTest() : x(b.Input({kMost, kWidth})), whole(b.Input({kMost, kWidth})), extent(b.Input({}, DType::kI64)) {
    b.g.input_extents = {{0, 0, 2, 1}};
    b.g.hidden_inputs = 1;
  }
  ValueId Inside() { return b.IsInside(kMost, extent); }
  // Of the only output of the optimised graph.
  std::vector<std::string> Known(ValueId v) {
    b.Output(v);
    EXPECT_TRUE(Optimize(b.g, Target{}).ok());
    const GraphBehind behind = BehindOf(b.g);
    std::vector<std::string> texts;
    for (const Behind& fact : behind.of[static_cast<size_t>(b.g.outputs[0])]) texts.push_back(Text(fact));
    return texts;
  }

  Builder b;
  ValueId x, whole, extent;
};

TEST_F(BehindTest, RowsGoThroughProductsAndWhatIsDoneToEach) {
  const ValueId product = b.Call("relu", {b.Call("matmul", {x, b.Random({kWidth, 3})})});
  EXPECT_THAT(Known(b.Call("softmax", {b.Transpose(product, {1, 0})}, Builder::Int("axis", 0))),
              ElementsAre("0:0:0:d1"));
}

TEST_F(BehindTest, SumsOverRowsAreRead) {
  EXPECT_THAT(Known(b.Call("reduce_sum", {x}, Builder::Ints("axes", {0}))), IsEmpty());
}

TEST_F(BehindTest, AValueOfTheFullLengthIsRead) { EXPECT_THAT(Known(b.Call("add", {x, whole})), IsEmpty()); }

TEST_F(BehindTest, AChoiceIsAValueBehindTheEnd) {
  EXPECT_THAT(Known(b.Call("where", {b.Reshape(Inside(), {kMost, 1}), x, b.Scalar(0)})), ElementsAre("1:0:0:d0"));
}

TEST_F(BehindTest, SharesOfWhatIsNotSeenAreZero) {
  const ValueId scores = b.Call("matmul", {x, b.Transpose(x, {1, 0})});
  const ValueId seen = b.Call("where", {Inside(), scores, b.Scalar(-std::numeric_limits<double>::infinity())});
  EXPECT_THAT(Known(b.Call("softmax", {seen}, Builder::Int("axis", 1))), UnorderedElementsAre("0:0:0:d0", "1:0:0:d1"));
}

// Steps of a loop read a row each, the last one first.
TEST_F(BehindTest, RowsThatStepsReadEndWithTheSteps) {
  const ValueId rows = b.Call("tanh", {b.Call("matmul", {whole, b.Random({kWidth, 3})})});
  const ValueId inside = Inside();
  const auto at = [&](ValueId v, int64_t i, Shape shape) {
    Attrs attrs = Builder::Ints("axes", {0});
    attrs.Set("starts", std::vector<int64_t>{i});
    attrs.Set("ends", std::vector<int64_t>{i + 1});
    attrs.Set("steps", std::vector<int64_t>{1});
    return b.Reshape(b.Call("slice", {v}, std::move(attrs)), std::move(shape));
  };
  ValueId state = b.Random({1, 3});
  for (int64_t i = kMost; i-- > 0;) {
    const ValueId next = b.Call("add", {b.Call("matmul", {state, b.Random({3, 3})}), at(rows, i, {1, 3})});
    state = b.Call("where", {at(inside, i, {1, 1}), next, state});
  }
  b.Output(state);
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  const auto made = std::ranges::find(b.g.nodes, std::string("tanh"), &Node::op);
  ASSERT_NE(made, b.g.nodes.end());
  const GraphBehind behind = BehindOf(b.g);
  std::vector<std::string> texts;
  for (const Behind& fact : behind.of[static_cast<size_t>(made->output)]) texts.push_back(Text(fact));
  EXPECT_THAT(texts, ElementsAre("0:0:0:d0"));
}

TEST_F(BehindTest, AnExtentThatMayBeZeroSaysAsMuch) {
  b.g.input_extents[0].least = 0;
  EXPECT_THAT(Known(b.Call("where", {b.Reshape(Inside(), {kMost, 1}), b.Call("relu", {x}), b.Scalar(0)})),
              ElementsAre("1:0:0:d0"));
}

TEST_F(BehindTest, ASumOfExtentsIsOneToo) {
  const ValueId y = b.Input({kMost, kWidth}), more = b.Input({}, DType::kI64);
  // Hidden inputs are the last ones.
  b.g.inputs = {x, whole, y, extent, more};
  b.g.input_extents = {{0, 0, 3, 1}, {2, 0, 4, 0}};
  b.g.hidden_inputs = 2;
  const ValueId early = b.Call("relu", {whole});
  const ValueId inside = b.Reshape(b.IsInside(kMost, b.Call("add", {extent, more})), {kMost, 1});
  b.Output(b.Call("where", {inside, b.Call("tanh", {b.Call("matmul", {early, b.Random({kWidth, 2})})}), b.Scalar(0)}));
  b.Output(b.Call("add", {x, y}));
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  const GraphBehind behind = BehindOf(b.g);
  ASSERT_EQ(behind.extents.size(), 3U);
  const std::optional<ExtentBound>& sum = behind.limits[static_cast<size_t>(behind.extents[2])];
  ASSERT_TRUE(sum.has_value());
  EXPECT_EQ(sum->least, 1);
  EXPECT_EQ(sum->most, 2 * kMost);
  const std::vector<Behind>& facts = behind.of[static_cast<size_t>(b.g.outputs[0])];
  ASSERT_EQ(facts.size(), 1U);
  EXPECT_EQ(Text(facts[0]), "1:0:2:d0");
  EXPECT_THAT(behind.of[static_cast<size_t>(early)], IsEmpty()) << "it is made before the sum";
}

// Where the largest of some numbers is, is a place, whatever they are.
TEST_F(BehindTest, PlacesAreWhatSaysWhereAnotherElementLies) {
  const ValueId rounded = b.Call("relu", {b.Call("matmul", {x, b.Random({kWidth, 1})})});
  const ValueId scores = b.Call("tanh", {b.Call("matmul", {x, b.Random({kWidth, 5})})});
  const ValueId table = b.Random({9, kWidth});
  const ValueId by_number = b.Call("gather", {table, b.Reshape(b.Cast(rounded, DType::kI64), {kMost})});
  Attrs attrs = Builder::Int("axis", 1);
  attrs.Set("keepdims", int64_t{0});
  b.Output(b.Call("add", {by_number, b.Call("gather", {table, b.Call("arg_max", {scores}, std::move(attrs))})}));
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  const GraphBehind behind = BehindOf(b.g);
  const auto is_place = [&](ValueId v) { return behind.places[static_cast<size_t>(v)]; };
  EXPECT_TRUE(is_place(rounded));
  EXPECT_FALSE(is_place(scores) || is_place(table));
}

// As pads that reflect an end, or repeat it, say where elements come from.
TEST_F(BehindTest, PlacesUpToTheLastOneReadNothingBehindIt) {
  const ValueId early = b.Call("relu", {b.Call("matmul", {whole, b.Random({kWidth, 3})})});
  NDArray from(DType::kI64, {kMost + 2});
  for (int64_t i = 0; i < from.size(); ++i) from.Set(i, static_cast<double>(i - 1));
  NDArray unit(DType::kI64, {});
  unit.Set(0, 1);
  const ValueId one = b.Constant(std::move(unit)), zero = b.Constant(NDArray(DType::kI64, {}));
  const ValueId last = b.Call("sub", {extent, one});
  const ValueId at = b.Call("min", {b.Call("max", {b.Constant(std::move(from)), zero}), last});
  b.Output(b.Call("gather", {early, at}));
  b.Output(b.Call("tanh", {x}));
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  const GraphBehind behind = BehindOf(b.g);
  const std::vector<Behind>& facts = behind.of[static_cast<size_t>(early)];
  ASSERT_EQ(facts.size(), 1U);
  EXPECT_EQ(Text(facts[0]), "0:0:0:d0");
}

// As where halves of channels go different ways.
TEST_F(BehindTest, SlicesReadAsFarAsWhatReadsThem) {
  const ValueId early = b.Call("softmax", {whole}, Builder::Int("axis", 1));
  const ValueId inside = b.Reshape(Inside(), {kMost, 1});
  for (const int64_t start : {0, 2}) {
    Attrs half = Builder::Ints("axes", {1});
    half.Set("starts", std::vector<int64_t>{start});
    half.Set("ends", std::vector<int64_t>{start + 2});
    const ValueId part = b.Call("matmul", {b.Call("slice", {early}, half), b.Random({2, 3})});
    b.Output(b.Call("where", {inside, part, b.Scalar(0)}));
  }
  b.Output(b.Call("tanh", {x}));
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  const GraphBehind behind = BehindOf(b.g);
  std::vector<std::string> texts;
  for (const Node& node : b.g.nodes) {
    if (node.op != "softmax") continue;
    for (const Behind& fact : behind.of[static_cast<size_t>(node.output)]) texts.push_back(Text(fact));
  }
  EXPECT_THAT(texts, ElementsAre("0:0:0:d0"));
}

// --- inputs of which nothing comes behind the end

class UnreadInputTest : public BehindTest {
 protected:
  // Of x, in the optimised graph that has `v` and the extent as outputs.
  bool IsUnread(ValueId v, bool told = true) {
    b.Output(v);
    b.Output(b.Call("identity", {extent}));
    if (told) b.g.extents = {{0, 0, 1}};
    b.g.hidden = 1;
    EXPECT_TRUE(Optimize(b.g, Target{}).ok());
    return BehindOf(b.g).unread_inputs[0];
  }
};

TEST_F(UnreadInputTest, RowsThatAnOutputDoesNotHaveAreUnread) {
  EXPECT_TRUE(IsUnread(b.Call("relu", {b.Call("matmul", {x, b.Random({kWidth, 3})})})));
}

TEST_F(UnreadInputTest, RowsThatAreAddedUpAreRead) {
  EXPECT_FALSE(IsUnread(b.Call("reduce_sum", {x}, Builder::Ints("axes", {0})), /*told=*/false));
}

TEST_F(UnreadInputTest, RowsThatAChoiceLeavesOutAreUnread) {
  const ValueId filled = b.Call("where", {b.Reshape(Inside(), {kMost, 1}), x, b.Scalar(0)});
  EXPECT_TRUE(IsUnread(b.Call("reduce_sum", {filled}, Builder::Ints("axes", {0})), /*told=*/false));
}

// Where nothing comes of what lies there, it has to lie somewhere still.
TEST_F(UnreadInputTest, WhatBecomesAPlaceIsRead) {
  EXPECT_FALSE(IsUnread(b.Call("gather", {b.Random({9, kWidth}), b.Cast(x, DType::kI64)})));
}

TEST_F(UnreadInputTest, RowsOfWholeNumbersAreUnread) {
  const ValueId bytes = b.Cast(x, DType::kU8);
  EXPECT_TRUE(IsUnread(b.Cast(b.Call("add", {bytes, bytes}), DType::kF32)));
}

TEST_F(UnreadInputTest, WhatAWholeNumberIsDividedByIsRead) {
  const ValueId numbers = b.Cast(x, DType::kI32);
  EXPECT_FALSE(IsUnread(b.Cast(b.Call("div", {b.Cast(whole, DType::kI32), numbers}), DType::kF32)));
}

TEST_F(UnreadInputTest, RowsOfWhichThereMayBeNoneAreUnread) {
  b.g.input_extents[0].least = 0;
  EXPECT_TRUE(IsUnread(b.Call("relu", {x})));
}

// --- what is left behind lines that are made dense

class LinesTest : public UnreadInputTest {
 protected:
  // Of lines up to the extent, when `read` of them and the extent are the outputs.
  bool EndsWithItsLines(const std::function<ValueId(ValueId)>& read, bool same_extent = true) {
    const ValueId other = b.Input({}, DType::kI64);
    const ValueId lines = b.Call("compact", {b.Reshape(x, {2, kMost / 2, kWidth}), extent}, Builder::Int("axis", 1));
    b.Output(read(lines));
    b.Output(b.Call("identity", {same_extent ? extent : other}));
    b.g.extents = {{0, 1, 1}};
    b.g.hidden = 1;
    const auto counts = [](const Node& node) { return FindOp(node.op)->counted; };
    return temper::EndsWithItsLines(b.g, *std::ranges::find_if(b.g.nodes, counts));
  }
};

TEST_F(LinesTest, AnOutputEndsWithItsLines) {
  EXPECT_TRUE(EndsWithItsLines([&](ValueId v) { return b.Reshape(v, {1, kMost / 2, 2, kWidth}); }));
}

// Columns of rows, of which the first lines are moved to the front after them.
TEST_F(LinesTest, AnOutputOfTwoExtentsEndsWithLinesOfLines) {
  for (const bool both : {true, false}) {
    Builder two;
    const ValueId image = two.Input({2, 6, 4}), rows = two.Input({}, DType::kI64), columns = two.Input({}, DType::kI64);
    const ValueId lines = two.Call("compact", {image, rows}, Builder::Int("axis", 1));
    const ValueId dense = two.Call("compact", {two.Reshape(lines, {12, 4}), columns}, Builder::Int("axis", 1));
    two.Output(two.Reshape(dense, {2, 6, 4}));
    two.Output(two.Call("identity", {rows}));
    two.Output(two.Call("identity", {columns}));
    two.g.extents = {{0, 2, 2}};
    if (both) two.g.extents.push_back({0, 1, 1});
    two.g.hidden = 2;
    EXPECT_EQ(temper::EndsWithItsLines(two.g, two.g.nodes[0]), both);
    EXPECT_TRUE(temper::EndsWithItsLines(two.g, two.g.nodes[2]));
  }
}

// Rows of an image whose columns are made dense: those behind the rows that the output has are not read.
TEST_F(LinesTest, LinesBehindThoseThatAnOutputHasAreUnread) {
  for (const bool told : {true, false}) {
    Builder two;
    const ValueId x = two.Input({kMost, 5, kWidth}), y = two.Input({kMost}), rows = two.Input({}, DType::kI64),
                  columns = two.Input({}, DType::kI64);
    two.g.input_extents = {{0, 1, 3, 1}, {1, 0, 2, 1}};
    two.g.hidden_inputs = 2;
    const ValueId all = two.Call("matmul", {x, two.Random({kWidth, 3})});
    const ValueId dense = two.Call("compact", {all, columns}, Builder::Int("axis", 1));
    two.Output(two.Reshape(dense, {1, kMost, 5, 3}));
    two.Output(two.Call("tanh", {y}));
    two.Output(two.Call("identity", {columns}));
    if (told) two.Output(two.Call("identity", {rows}));
    two.g.extents = {{0, 2, 2}};
    if (told) two.g.extents.insert(two.g.extents.begin(), {0, 1, 3});
    two.g.hidden = told ? 2 : 1;
    const absl::Status optimized = Optimize(two.g, Target{});
    ASSERT_TRUE(optimized.ok()) << optimized;
    const GraphBehind behind = BehindOf(two.g);
    const auto counts = [](const Node& node) { return FindOp(node.op)->counted; };
    const Node& counted = *std::ranges::find_if(two.g.nodes, counts);
    std::vector<std::string> texts;
    for (const Behind& fact : behind.of[static_cast<size_t>(counted.inputs[0])]) texts.push_back(Text(fact));
    EXPECT_EQ(std::ranges::count(texts, "0:0:0:d0"), told ? 1 : 0) << ::testing::PrintToString(texts);
  }
}

TEST_F(LinesTest, AnOutputOfAnotherExtentDoesNot) {
  EXPECT_FALSE(EndsWithItsLines([](ValueId v) { return v; }, /*same_extent=*/false));
}

TEST_F(LinesTest, WhatAnotherOperatorReadsHasZerosBehindIts) {
  EXPECT_FALSE(EndsWithItsLines([&](ValueId v) { return b.Call("relu", {v}); }));
}

// --- what nobody reads

class UnreadTest : public ::testing::Test {
 protected:
  static constexpr int64_t kMost = 16;
  UnreadTest() : x(b.Input({1, 4, kMost, 8})), extent(b.Input({}, DType::kI64)) {
    b.g.input_extents = {{0, 2, 1, 2}};
    b.g.hidden_inputs = 1;
  }
  ValueId Number(double n) { return b.Constant(testing::Numbers(DType::kI64, {}, {n})); }
  ValueId Filled(ValueId v, ValueId end) {
    const int64_t most = b.g.values[static_cast<size_t>(v)].type.shape[2];
    const ValueId inside = b.Reshape(b.IsInside(most, end), {most, 1});
    return b.Call("where", {inside, v, b.Scalar(0)});
  }
  ValueId Conv(ValueId v, int64_t stride, int64_t kernel = 3) {
    const int64_t pad = kernel / 2;
    Attrs attrs = Builder::Ints("strides", {stride, stride});
    attrs.Set("pads", std::vector<int64_t>{pad, pad, pad, pad});
    return b.Call("conv2d", {v, b.Random({4, 4, kernel, kernel})}, std::move(attrs));
  }
  // Of what the first convolution makes, in the optimised graph of which `v` and its end are the outputs.
  std::vector<std::string> OfFirstConv(ValueId v, ValueId end, bool by_loops = false) {
    b.Output(v);
    b.Output(b.Call("identity", {end}));
    const auto outputs = static_cast<int>(b.g.outputs.size());
    b.g.extents = {{outputs - 2, 2, outputs - 1}};
    b.g.hidden = 1;
    EXPECT_TRUE(Optimize(b.g, Target{}).ok());
    const GraphBehind behind = BehindOf(b.g, by_loops ? Schedules() : std::vector<ir::Func>());
    for (const Group& group : b.g.groups) {
      const Extracted kernel = *Extract(b.g, group);
      const bool convolves = kernel.workload.calls[static_cast<size_t>(kernel.workload.anchor)].op == "conv2d";
      if (!convolves) continue;
      std::vector<std::string> texts;
      for (const Behind& fact : behind.of[static_cast<size_t>(kernel.output)]) {
        if (fact.kind == Behind::kUnread) texts.push_back(Text(fact));
      }
      return texts;
    }
    return {"there is none"};
  }

  // Of the kernels that are defaults, but that convolutions go row by row.
  std::vector<ir::Func> Schedules() {
    std::vector<ir::Func> schedules;
    for (const Group& group : b.g.groups) {
      const Workload w = Extract(b.g, group)->workload;
      const TemplateDef* rows = FindTemplate("conv2d.rows");
      Choice choice = *DefaultChoice(w, Target{});
      if (rows->matches(w, Target{})) choice = {rows, rows->space(w, Target{}).Enumerate(1).at(0)};
      schedules.push_back(BuildKernel(w, choice.def->name, choice.config, Target{})->scheduled);
    }
    return schedules;
  }

  Builder b;
  ValueId x, extent;
};

TEST_F(UnreadTest, AnOutputIsReadToItsEnd) {
  EXPECT_THAT(OfFirstConv(Conv(Filled(x, extent), 1), extent), IsEmpty()) << "it has several lines, which lie apart";
}

TEST_F(UnreadTest, LinesThatAreMadeDenseAreReadToTheirEnd) {
  const ValueId lines = b.Reshape(Conv(Filled(x, extent), 1), {4, kMost, 8});
  const ValueId dense = b.Call("compact", {lines, extent}, Builder::Int("axis", 1));
  EXPECT_THAT(OfFirstConv(b.Reshape(dense, {1, 4, kMost, 8}), extent), ElementsAre("0:0:0:d1"));
}

// Lines that are moved to the front end where they did.
TEST_F(UnreadTest, LinesOfLinesAreReadToTheEndOfBoth) {
  const ValueId wide = b.Input({}, DType::kI64);
  b.g.input_extents.push_back({0, 3, 2, 2});
  ++b.g.hidden_inputs;
  ValueId v = b.Reshape(Conv(Filled(x, extent), 1), {4, kMost, 8});
  v = b.Reshape(b.Call("compact", {v, extent}, Builder::Int("axis", 1)), {4 * kMost, 8});
  v = b.Call("compact", {v, wide}, Builder::Int("axis", 1));
  EXPECT_THAT(OfFirstConv(b.Reshape(v, {1, 4, kMost, 8}), extent), UnorderedElementsAre("0:0:0:d1", "0:0:1:d2"));
}

// Windows that stop at every other place, of which kernels make up to four neighbours together.
TEST_F(UnreadTest, AValueIsReadAsFarAsTheLastWindowSees) {
  const ValueId v = Conv(Filled(x, extent), 1);
  const ValueId end = b.Call("div", {b.Call("add", {extent, Number(1)}), Number(2)});
  const ValueId lines = b.Reshape(Conv(Filled(v, extent), 2), {4, kMost / 2, 4});
  const ValueId dense = b.Call("compact", {lines, end}, Builder::Int("axis", 1));
  EXPECT_THAT(OfFirstConv(b.Reshape(dense, {1, 4, kMost / 2, 4}), end), ElementsAre("0:0:0:(d1 - 3)/2*2"));
}

// A kernel that makes one line at a time reads no further than its last window sees.
TEST_F(UnreadTest, AValueIsReadAsFarAsLoopsGo) {
  const ValueId lines = b.Reshape(Conv(Filled(Conv(Filled(x, extent), 1), extent), 1), {4, kMost, 8});
  const ValueId dense = b.Call("compact", {lines, extent}, Builder::Int("axis", 1));
  EXPECT_THAT(OfFirstConv(b.Reshape(dense, {1, 4, kMost, 8}), extent, true), ElementsAre("0:0:0:d1 - 1"));
}

TEST_F(UnreadTest, WhatIsSummedUpIsRead) {
  const ValueId v = Conv(Filled(x, extent), 1);
  b.Output(b.Call("reduce_sum", {v}, Builder::Ints("axes", {2, 3})));
  const ValueId lines = b.Reshape(v, {4, kMost, 8});
  const ValueId dense = b.Call("compact", {lines, extent}, Builder::Int("axis", 1));
  EXPECT_THAT(OfFirstConv(b.Reshape(dense, {1, 4, kMost, 8}), extent), IsEmpty());
}

// Expressions share their nodes: a value that is read twice, again and again, is looked at once.
TEST_F(BehindTest, ValuesThatAreReadTwiceTakeNoLonger) {
  ValueId v = x;
  for (int i = 0; i < 60; ++i) v = b.Call("mul", {v, v});
  EXPECT_THAT(Known(v), ElementsAre("0:0:0:d0"));
}

}  // namespace
}  // namespace temper
