#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "compiler/graph/alias.h"
#include "compiler/graph/extract.h"
#include "compiler/graph/fill_constants.h"
#include "compiler/graph/graph_json.h"
#include "compiler/graph/memory_plan.h"
#include "compiler/graph/pipeline.h"
#include "tests/graph/builder.h"

namespace temper {
namespace {

using testing::Builder;
using testing::Evaluated;
using testing::Floats;
using ::testing::HasSubstr;
using testing::RandomInputs;

Graph SmallNet() {
  Builder b;
  const ValueId x = b.Input({1, 3, 6, 6});
  ValueId y = b.Call("relu", {b.Call("add", {b.Conv(x, b.Random({4, 3, 3, 3}), 1), b.Random({4, 1, 1})})});
  y = b.Call("matmul", {b.Reshape(y, {1, 144}), b.Random({144, 5})});
  b.Output(b.Call("softmax", {y}));
  return std::move(b.g);
}

TEST(GraphTest, VerifyAcceptsAWellFormedGraph) { EXPECT_TRUE(Verify(SmallNet()).ok()) << Verify(SmallNet()); }

TEST(GraphTest, VerifyFindsABrokenType) {
  Graph g = SmallNet();
  g.values[g.nodes[0].output].type.shape[1] = 5;
  EXPECT_THAT(std::string(Verify(g).message()), HasSubstr("inferred"));
}

TEST(GraphTest, VerifyFindsAReadBeforeTheWrite) {
  Graph g = SmallNet();
  std::swap(g.nodes[0], g.nodes[1]);
  EXPECT_THAT(std::string(Verify(g).message()), HasSubstr("not computed before"));
}

TEST(GraphTest, VerifyFindsABadPhysicalOrder) {
  Graph g = SmallNet();
  g.values[g.nodes[0].output].type.perm = {0, 2, 2, 1};
  EXPECT_FALSE(Verify(g).ok());
}

TEST(GraphTest, VerifyFindsAGroupThatRunsTooEarly) {
  Graph g = SmallNet();
  for (int i = static_cast<int>(g.nodes.size()); i-- > 0;) g.groups.push_back({{i}, 0});
  EXPECT_THAT(std::string(Verify(g).message()), HasSubstr("too early"));
}

TEST(GraphTest, AddNodeNamesTheNodeInItsError) {
  Builder b;
  const ValueId x = b.Input({2, 3});
  absl::StatusOr<ValueId> v = b.g.AddNode("matmul", {}, {x, x}, "layer7");
  EXPECT_THAT(std::string(v.status().message()), HasSubstr("layer7"));
}

TEST(GraphTest, TensorsHaveBounds) {
  Builder b;
  const ValueId x = b.Input({2});
  const auto why = [&](Shape shape) {
    return std::string(b.g.AddNode("expand", Builder::Ints("shape", std::move(shape)), {x}).status().message());
  };
  EXPECT_THAT(why(Shape(17, 2)), HasSubstr("expand: a tensor of 17 dimensions"));
  EXPECT_THAT(why({int64_t{1} << 36, 2}), HasSubstr("expand: a tensor of 68719476736x2 is too large"));
  Graph g = SmallNet();
  g.values[g.inputs[0]].type.shape = Shape(17, 1);
  EXPECT_THAT(std::string(Verify(g).message()), HasSubstr("a tensor of 17 dimensions"));
}

TEST(GraphTest, CompactDropsWhatNoOutputNeeds) {
  Builder b;
  const ValueId x = b.Input({4});
  b.Call("tanh", {b.Call("exp", {x})});
  b.Random({100});
  b.Output(b.Call("relu", {x}));
  b.g.Compact();
  EXPECT_EQ(b.g.nodes.size(), 1u);
  EXPECT_EQ(b.g.values.size(), 2u);
  EXPECT_TRUE(Verify(b.g).ok());
  EXPECT_EQ(b.g.values[b.g.outputs[0]].name, "out0");
}

TEST(GraphTest, RunReferenceChecksItsInputs) {
  const Graph g = SmallNet();
  EXPECT_FALSE(RunReference(g, {}).ok());
  const NDArray wrong(DType::kF32, {1, 3, 6, 7});
  EXPECT_THAT(std::string(RunReference(g, std::span(&wrong, 1)).status().message()), HasSubstr("in0"));
}

TEST(GraphJson, KeepsEverythingButLargeWeights) {
  Graph g = SmallNet();
  ASSERT_TRUE(Optimize(g, Target{}).ok());
  absl::StatusOr<Graph> back = GraphFromJson(ToJson(g));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(ToJson(*back), ToJson(g));
  ASSERT_EQ(back->groups.size(), g.groups.size());
  int without = 0;
  for (size_t i = 0; i < g.values.size(); ++i) {
    EXPECT_EQ(back->values[i].type, g.values[i].type);
    EXPECT_EQ(back->values[i].is_constant, g.values[i].is_constant);
    if (!g.values[i].is_constant) continue;
    const bool large = g.values[i].constant->size() > 64;
    EXPECT_EQ(back->values[i].constant.has_value(), !large);
    without += large ? 1 : 0;
  }
  EXPECT_EQ(without, 2);
}

TEST(GraphJson, KeepsIndicesAndNoQuantisedWeights) {
  Builder b;
  for (DType dtype : {DType::kI8, DType::kU8, DType::kI16, DType::kI64, DType::kI32, DType::kBool}) {
    b.g.outputs.push_back(b.Constant(NDArray(dtype, {65})));
    b.g.outputs.push_back(b.Constant(NDArray(dtype, {64})));
  }
  absl::StatusOr<Graph> back = GraphFromJson(ToJson(b.g));
  ASSERT_TRUE(back.ok()) << back.status();
  for (size_t i = 0; i < back->outputs.size(); ++i)
    EXPECT_EQ(back->values[back->outputs[i]].constant.has_value(), i % 2 == 1 || i >= 6) << i;
}

TEST(GraphJson, KeepsInfinitiesAndLongIntegers) {
  Builder b;
  const ValueId x = b.Input({2});
  NDArray big(DType::kI64, {1});
  big.as<int64_t>()[0] = (int64_t{1} << 62) + 1;
  b.Output(b.Call("add", {x, b.Constant(Floats({2}, {-std::numeric_limits<double>::infinity(), 0.1}))}));
  b.g.outputs.push_back(b.Constant(big));
  absl::StatusOr<Graph> back = GraphFromJson(ToJson(b.g));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->values[back->outputs[1]].constant->as<int64_t>()[0], (int64_t{1} << 62) + 1);
  const Value& c = back->values[back->nodes[0].inputs[1]];
  EXPECT_EQ(c.constant->At(0), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(c.constant->as<float>()[1], 0.1f);
}

// y = relu(x), of which as many elements count as an output says that callers do not see.
Graph OfVaryingExtent() {
  Builder b;
  const ValueId x = b.Input({6}), nothing = b.Scalar(0);
  b.Output(b.Call("relu", {x}));
  const ValueId counted = b.Cast(b.Call("greater", {x, nothing}), DType::kI64);
  b.Output(b.Call("reduce_sum", {counted}, Builder::Int("keepdims", 0)));
  b.g.extents = {{0, 0, 1}};
  b.g.hidden = 1;
  return std::move(b.g);
}

TEST(GraphTest, ExtentsAreOfOutputsAndToldByHiddenOnes) {
  Graph g = OfVaryingExtent();
  EXPECT_TRUE(Verify(g).ok()) << Verify(g);
  ASSERT_TRUE(Optimize(g, Target{}).ok());
  EXPECT_THAT(Text(g), HasSubstr(" along axis 0"));
  const auto refused = [&](Extent e, int hidden) {
    Graph wrong = g;
    wrong.extents = {e};
    wrong.hidden = hidden;
    return !Verify(wrong).ok() && !GraphFromJson(ToJson(wrong)).ok();
  };
  EXPECT_FALSE(refused({0, 0, 1}, 1));
  for (const Extent e : {Extent{-1, 0, 1}, {1, 0, 1}, {0, -1, 1}, {0, 1, 1}, {0, 0, 0}, {0, 0, 2}})
    EXPECT_TRUE(refused(e, 1));
  for (const int hidden : {-1, 0, 2, 3}) EXPECT_TRUE(refused({0, 0, 1}, hidden));
  g.extents.push_back(g.extents[0]);
  EXPECT_FALSE(Verify(g).ok()) << "along one axis twice";
}

TEST(GraphTest, OutputsAndInputsMayHaveAnExtentAlongEachAxis) {
  Builder b;
  const ValueId x = b.Input({4, 6}), rows = b.Input({}, DType::kI64), columns = b.Input({}, DType::kI64);
  b.Output(b.Call("relu", {x}));
  b.Output(b.Call("identity", {rows}));
  b.Output(b.Call("identity", {columns}));
  b.g.hidden = b.g.hidden_inputs = 2;
  const auto is_sound = [&b](std::vector<Extent> extents, std::vector<InputExtent> input_extents) {
    b.g.extents = std::move(extents);
    b.g.input_extents = std::move(input_extents);
    const bool sound = Verify(b.g).ok();
    const absl::StatusOr<Graph> back = GraphFromJson(ToJson(b.g));
    if (sound) {
      EXPECT_EQ(back.ok() ? back->extents.size() : 0, b.g.extents.size());
    }
    return sound;
  };
  EXPECT_TRUE(is_sound({{0, 0, 1}, {0, 1, 2}}, {{0, 0, 1, 1}, {0, 1, 2, 0}}));
  EXPECT_THAT(Text(b.g), HasSubstr(" along axis 1"));
  EXPECT_TRUE(is_sound({{0, 0, 1}, {0, 1, 1}}, {{0, 0, 1, 1}, {0, 1, 1, 1}})) << "of one number";
  EXPECT_FALSE(is_sound({{0, 1, 2}, {0, 0, 1}}, {})) << "out of order";
  EXPECT_FALSE(is_sound({}, {{0, 1, 2, 0}, {0, 0, 1, 1}})) << "out of order";
  EXPECT_FALSE(is_sound({}, {{0, 0, 1, 1}, {0, 0, 2, 1}})) << "along one axis twice";
}

TEST(GraphJson, KeepsExtents) {
  const Graph g = OfVaryingExtent();
  const absl::StatusOr<Graph> back = GraphFromJson(ToJson(g));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(ToJson(*back), ToJson(g));
  ASSERT_EQ(back->extents.size(), 1u);
  EXPECT_EQ(back->extents[0].told_by, 1);
  EXPECT_EQ(back->hidden, 1);
}

TEST(GraphJson, RefusesWhatIsNoGraph) {
  const std::string good = ToJson(SmallNet());
  EXPECT_FALSE(GraphFromJson("").ok());
  EXPECT_FALSE(GraphFromJson("[1,2").ok());
  EXPECT_FALSE(GraphFromJson("{}").ok());
  EXPECT_FALSE(GraphFromJson("null").ok());
  // Every field, replaced by something of another type, is refused and never a crash.
  for (const char* field :
       {"\"values\":[", "\"nodes\":[", "\"inputs\":[", "\"outputs\":[", "\"groups\":[", "\"shape\":["}) {
    std::string bad = good;
    const size_t at = bad.find(field);
    ASSERT_NE(at, std::string::npos) << field;
    bad.replace(at, std::string_view(field).size(),
                std::string(field).substr(0, std::string_view(field).size() - 1) + "[-9000000000,{},");
    EXPECT_FALSE(GraphFromJson(bad).ok()) << field;
  }
}

TEST(GraphJson, RefusesWhatTakesTooMuch) {
  const auto why = [](const std::string& text) { return std::string(GraphFromJson(text).status().message()); };
  EXPECT_THAT(why(std::string(1 << 20, '[')), HasSubstr("too deep"));
  std::string items = "[0";
  for (int i = 0; i < (4 << 20) + 1; ++i) items += ",0";
  EXPECT_THAT(why(items + "]"), HasSubstr("too many items"));
  // Brackets in texts are no lists.
  Graph named = SmallNet();
  named.name = std::string(100, '[') + "\\\"";
  EXPECT_TRUE(GraphFromJson(ToJson(named)).ok()) << GraphFromJson(ToJson(named)).status();
  const auto with = [](const std::string& value) {
    return "{\"format\":1,\"name\":\"\",\"inputs\":[],\"outputs\":[],\"groups\":[],\"alternatives\":[],\"nodes\":[],"
           "\"values\":[" +
           value + "]}";
  };
  EXPECT_TRUE(
      GraphFromJson(with("{\"name\":\"x\",\"dtype\":\"u8\",\"shape\":[1],\"constant\":true,\"data\":[255]}")).ok());
  EXPECT_FALSE(
      GraphFromJson(with("{\"name\":\"x\",\"dtype\":\"u8\",\"shape\":[1],\"constant\":true,\"data\":[256]}")).ok());
  EXPECT_FALSE(
      GraphFromJson(with("{\"name\":\"x\",\"dtype\":\"i8\",\"shape\":[1],\"constant\":true,\"data\":[1e300]}")).ok());
  EXPECT_FALSE(GraphFromJson(with("{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[8589934592,8589934592]}")).ok());
  EXPECT_THAT(why(with("{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}")),
              HasSubstr("a tensor of 17 dimensions"));
}

TEST(GraphJson, RefusesAnOperandThatHasToBeThere) {
  std::string json = ToJson(SmallNet());
  const size_t inputs = json.find("\"inputs\":[", json.find("\"nodes\""));
  ASSERT_NE(inputs, std::string::npos);
  const size_t begin = inputs + 10, end = json.find_first_of(",]", begin);
  json.replace(begin, end - begin, "-1");
  EXPECT_THAT(std::string(GraphFromJson(json).status().message()), HasSubstr("may not be absent"));
}

TEST(FillConstantsTest, IsSeededAndKeepsActivationsInRange) {
  Builder b;
  ValueId v = b.Input({1, 64, 8, 8});
  for (int layer = 0; layer < 30; ++layer) {
    v = b.Conv(v, b.Random({64, 64, 3, 3}), 1);
    v = b.Call("mul", {v, b.Random({64, 1, 1})});
    v = b.Call("relu", {b.Call("add", {v, b.Random({64, 1, 1})})});
  }
  b.Output(v);
  absl::StatusOr<Graph> one = GraphFromJson(ToJson(b.g)), two = GraphFromJson(ToJson(b.g)),
                        three = GraphFromJson(ToJson(b.g));
  ASSERT_TRUE(one.ok() && two.ok() && three.ok());
  FillConstants(*one, 1);
  FillConstants(*two, 1);
  FillConstants(*three, 2);
  const std::vector<NDArray> inputs = RandomInputs(b.g, 3);
  const NDArray a = Evaluated(*one, inputs)[0], c = Evaluated(*three, inputs)[0];
  EXPECT_EQ(RelativeError(a, Evaluated(*two, inputs)[0]), 0);
  EXPECT_GT(RelativeError(a, c), 1e-3);
  double largest = 0;
  for (int64_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a.At(i)));
  EXPECT_GT(largest, 1e-3);
  EXPECT_LT(largest, 1e3);
}

TEST(FillConstantsTest, IntegersAreNumbersOfEightBitsAroundTheMiddle) {
  Builder b;
  for (DType dtype : {DType::kI8, DType::kI16, DType::kU8, DType::kU16})
    b.g.outputs.push_back(b.Constant(NDArray(dtype, {100000})));
  absl::StatusOr<Graph> g = GraphFromJson(ToJson(b.g));
  ASSERT_TRUE(g.ok()) << g.status();
  FillConstants(*g, 1);
  for (size_t k = 0; k < g->outputs.size(); ++k) {
    const NDArray& data = *g->values[g->outputs[k]].constant;
    double least = 1e9, most = -1e9, sum = 0;
    for (int64_t i = 0; i < data.size(); ++i) {
      least = std::min(least, data.At(i)), most = std::max(most, data.At(i));
      sum += data.At(i);
    }
    const double middle = k < 2 ? 0 : 128;
    EXPECT_EQ(least, middle - 128);
    EXPECT_EQ(most, middle + 127);
    EXPECT_NEAR(sum / 100000, middle, 1);
  }
}

TEST(FillConstantsTest, DrawsTheSameWithAndWithoutThreads) {
  Builder b;
  ValueId v = b.Input({1, 2048});
  for (int layer = 0; layer < 3; ++layer) v = b.Call("matmul", {v, b.Random({2048, 2048})});
  b.Output(v);
  absl::StatusOr<Graph> at_once = GraphFromJson(ToJson(b.g));
  ASSERT_TRUE(at_once.ok());
  FillConstants(*at_once, 1);
  for (size_t id = 0; id < at_once->values.size(); ++id) {
    if (!at_once->values[id].is_constant) continue;
    Graph alone = *at_once;
    alone.values[id].constant.reset();
    FillConstants(alone, 1);
    EXPECT_EQ(RelativeError(*alone.values[id].constant, *at_once->values[id].constant), 0);
  }
}

TEST(AliasTest, ReshapeOfAChannelsLastImage) {
  const TensorType image{DType::kF32, {1, 8, 4, 5}, {0, 2, 3, 1}};
  EXPECT_EQ(ReshapeAliasPerm(image, {1, 8, 20}), (std::vector<int>{0, 2, 1}));
  EXPECT_EQ(ReshapeAliasPerm(image, {8, 20}), (std::vector<int>{1, 0}));
  EXPECT_EQ(ReshapeAliasPerm(image, {1, 2, 4, 4, 5}), (std::vector<int>{0, 3, 4, 1, 2}));
  EXPECT_EQ(ReshapeAliasPerm(image, {160}), std::nullopt);
  EXPECT_EQ(ReshapeAliasPerm({DType::kF32, {1, 8, 1, 1}, {0, 2, 3, 1}}, {1, 8}), std::vector<int>());
}

TEST(AliasTest, TransposeTakesTheOrderThatMovesNothing) {
  EXPECT_EQ(TransposeAliasPerm({DType::kF32, {2, 3, 4}, {}}, {1, 2, 0}), (std::vector<int>{2, 0, 1}));
  EXPECT_EQ(TransposeAliasPerm({DType::kF32, {2, 3, 4}, {0, 2, 1}}, {0, 2, 1}), std::vector<int>());
  EXPECT_EQ(TransposeAliasPerm({DType::kF32, {1, 3, 1}, {}}, {2, 1, 0}), std::vector<int>());
}

TEST(MemoryPlanTest, AChainNeedsTwoBuffers) {
  Builder b;
  ValueId v = b.Input({1024});
  for (int i = 0; i < 6; ++i) v = b.Call("softmax", {v});
  b.Output(v);
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  absl::StatusOr<BufferPlan> plan = PlanMemory(b.g);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->arena_bytes, 2 * 4096);
  EXPECT_EQ(plan->offset[b.g.outputs[0]], -1);
  EXPECT_EQ(plan->offset[b.g.inputs[0]], -1);
}

// Where lengths vary, what lies behind an end may be any numbers, which kernels of floats should not meet as floats.
TEST(MemoryPlanTest, WholeNumbersLieApartFromFloatsWhereLengthsVary) {
  for (const bool vary : {false, true}) {
    Builder b;
    ValueId v = b.Input({1024});
    for (int i = 0; i < 3; ++i) {
      const ValueId numbers = b.Cast(b.Call("softmax", {b.Call("softmax", {v})}), DType::kI32);
      v = b.Cast(b.Call("cum_sum", {numbers}, Builder::Int("axis", 0)), DType::kF32);
    }
    b.Output(b.Call("softmax", {v}));
    if (vary) {
      b.Input({}, DType::kI64);
      b.g.input_extents = {{0, 0, 1, 1}};
      b.g.hidden_inputs = 1;
    }
    ASSERT_TRUE(Optimize(b.g, Target{}).ok());
    const absl::StatusOr<BufferPlan> plan = PlanMemory(b.g);
    ASSERT_TRUE(plan.ok());
    std::set<int64_t> floats, numbers;  // where some begin; all are of one size
    for (size_t i = 0; i < b.g.values.size(); ++i) {
      if (plan->offset[i] >= 0) (IsFloat(b.g.values[i].type.dtype) ? floats : numbers).insert(plan->offset[i]);
    }
    ASSERT_FALSE(floats.empty() || numbers.empty());
    std::vector<int64_t> both;
    std::ranges::set_intersection(floats, numbers, std::back_inserter(both));
    EXPECT_EQ(both.empty(), vary);
  }
}

TEST(MemoryPlanTest, AValueThatAnOutputRenamesIsWrittenToTheCaller) {
  Builder b;
  const ValueId made = b.Call("softmax", {b.Input({4, 8})});
  b.Output(b.Reshape(made, {32}));
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  absl::StatusOr<BufferPlan> plan = PlanMemory(b.g);
  ASSERT_TRUE(plan.ok());
  const ValueId out = b.g.outputs[0];
  EXPECT_EQ(plan->alias_of[b.g.nodes[0].output], out);
  EXPECT_EQ(plan->arena_bytes, 0);
  EXPECT_TRUE(Aliases(b.g).Have(b.g.groups[1]));
}

TEST(MemoryPlanTest, AReshapedInputAsOutputIsACopy) {
  Builder b;
  b.Output(b.Reshape(b.Input({4, 8}), {32}));
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  ASSERT_EQ(b.g.groups.size(), 1u);
  EXPECT_FALSE(Aliases(b.g).Have(b.g.groups[0]));
}

// Two convolutions and their concatenation over channels, as in SqueezeNet.
ValueId TwoBranches(Builder& b, ValueId x, int64_t left, int64_t right) {
  const int64_t channels = b.g.values[x].type.shape[1];
  return b.Call("concat",
                {b.Call("relu", {b.Conv(x, b.Random({left, channels, 1, 1}))}),
                 b.Call("relu", {b.Conv(x, b.Random({right, channels, 3, 3}), 1)})},
                Builder::Int("axis", 1));
}

TEST(MemoryPlanTest, KernelsWriteTheirPartsOfAConcatenation) {
  Builder b;
  const ValueId joined = TwoBranches(b, b.Input({1, 4, 6, 6}), 8, 24);
  b.Output(b.Call("max_pool2d", {joined}, Builder::Ints("kernel", {2, 2})));
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  absl::StatusOr<BufferPlan> plan = PlanMemory(b.g);
  ASSERT_TRUE(plan.ok());
  std::vector<Part> parts;
  for (size_t v = 0; v < b.g.values.size(); ++v) {
    if (!plan->part[v].has_value()) continue;
    parts.push_back(*plan->part[v]);
    EXPECT_EQ(b.g.values[static_cast<size_t>(plan->alias_of[v])].type.shape, Shape({1, 32, 6, 6}));
  }
  EXPECT_THAT(parts, ::testing::UnorderedElementsAre(Part{8, 32, 0}, Part{24, 32, 8}));
  absl::StatusOr<std::vector<Task>> tasks = ExtractTasks(b.g);
  ASSERT_TRUE(tasks.ok());
  for (const Task& task : *tasks) EXPECT_NE(task.workload.calls[0].op, "concat");
}

TEST(MemoryPlanTest, WhatIsRenamedIsCopiedToItsPartOfAConcatenation) {
  Builder b;
  const auto renamed = [&b] { return b.Reshape(b.Input({2, 12}), {3, 8}); };
  b.Output(b.Call("concat", {b.Call("softmax", {b.Input({3, 8})}), renamed()}, Builder::Int("axis", 0)));
  b.Output(b.Call("concat", {renamed(), renamed()}, Builder::Int("axis", 0)));
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  absl::StatusOr<BufferPlan> plan = PlanMemory(b.g);
  ASSERT_TRUE(plan.ok());
  std::vector<Part> parts;
  for (const std::optional<Part>& part : plan->part) {
    if (part.has_value()) parts.push_back(*part);
  }
  EXPECT_THAT(parts, ::testing::ElementsAre(Part{24, 48, 0}, Part{24, 48, 24}));
  absl::StatusOr<std::vector<Task>> kernels = KernelsOf(b.g);
  ASSERT_TRUE(kernels.ok());
  std::vector<std::string> ops;
  for (const Task& kernel : *kernels) ops.push_back(kernel.workload.calls[0].op);
  EXPECT_THAT(ops, ::testing::UnorderedElementsAre("softmax", "reshape", "concat"));
}

TEST(MemoryPlanTest, AConcatenationOfWhatOthersReadIsAKernel) {
  Builder b;
  const ValueId x = b.Input({1, 4, 6, 6});
  const ValueId left = b.Call("relu", {b.Conv(x, b.Random({8, 4, 1, 1}))}),
                right = b.Call("relu", {b.Conv(x, b.Random({8, 4, 1, 1}))});
  const ValueId joined = b.Call("concat", {left, right}, Builder::Int("axis", 1));
  b.Output(b.Call("max_pool2d", {joined}, Builder::Ints("kernel", {2, 2})));
  b.Output(b.Call("reduce_mean", {right}, Builder::Ints("axes", {2, 3})));
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  for (const std::optional<Part>& part : PartsOfConcats(b.g)) EXPECT_FALSE(part.has_value());
}

TEST(MemoryPlanTest, ScratchLiesWhereNothingIsAlive) {
  Builder b;
  ValueId v = b.Input({1024});
  for (int i = 0; i < 6; ++i) v = b.Call("softmax", {v});
  b.Output(v);
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  // Of six groups the first and the last have one operand outside the arena, those between two in it.
  absl::StatusOr<BufferPlan> plan = PlanMemory(b.g, {{4096, 0, 64, 0, 0, 4096}, {}});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->arena_bytes, 2 * 4096 + 64);
  EXPECT_EQ(plan->scratch[1], -1);
  EXPECT_NE(plan->scratch[0], plan->offset[b.g.nodes[0].output]);
  EXPECT_EQ(plan->scratch[2], 2 * 4096);
  EXPECT_NE(plan->scratch[5], plan->offset[b.g.nodes[4].output]);
}

TEST(MemoryPlanTest, WhatAKernelReadsBesidesIsAliveThen) {
  Builder b;
  const ValueId told = b.Call("softmax", {b.Input({16})});
  ValueId v = b.Call("softmax", {told});
  for (int i = 0; i < 4; ++i) v = b.Call("softmax", {v});
  b.Output(v);
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  KernelNeeds needs;
  const absl::StatusOr<BufferPlan> without = PlanMemory(b.g, needs);
  needs.also_read.assign(b.g.groups.size(), {});
  needs.also_read.back() = {told};
  const absl::StatusOr<BufferPlan> with = PlanMemory(b.g, needs);
  ASSERT_TRUE(without.ok() && with.ok());
  const auto as_told = [&](const BufferPlan& plan) {
    return std::ranges::count(plan.offset, plan.offset[static_cast<size_t>(told)]);
  };
  EXPECT_GT(as_told(*without), 1) << "others lie there later";
  EXPECT_EQ(as_told(*with), 1);
}

TEST(MemoryPlanTest, ScratchLiesWhereMemoryWasTouchedLast) {
  Builder b;
  const ValueId large = b.Call("softmax", {b.Input({1, 1024})});
  ValueId v = b.Call("reduce_mean", {large}, Builder::Ints("axes", {1}));
  for (int i = 0; i < 2; ++i) v = b.Call("softmax", {v});
  b.Output(v);
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  absl::StatusOr<BufferPlan> plan = PlanMemory(b.g, {{8192, 0, 4096, 0}, {}});
  ASSERT_TRUE(plan.ok());
  // The first scratch lies elsewhere and is larger, but the large value was read after it.
  EXPECT_EQ(plan->arena_bytes, 8192 + 4096);
  EXPECT_EQ(plan->scratch[2], plan->offset[b.g.nodes[0].output]);
}

TEST(MemoryPlanTest, ASmallerValueLiesAroundTheMiddleOfTheLargerOneThatWasReadLast) {
  Builder b;
  const ValueId large = b.Call("softmax", {b.Input({64, 64})});
  const ValueId small = b.Call("reduce_mean", {large}, Builder::Ints("axes", {1}));
  const ValueId after = b.Call("softmax", {small}, Builder::Int("axis", 0));
  b.Output(b.Call("softmax", {after}, Builder::Int("axis", 0)));
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  absl::StatusOr<BufferPlan> plan = PlanMemory(b.g);
  ASSERT_TRUE(plan.ok());
  // The first half of each is written by the same threads, and the second half by others.
  constexpr int64_t kLarge = 64 * 64 * 4, kSmall = 64 * 4;
  EXPECT_EQ(plan->arena_bytes, kLarge + kSmall);
  EXPECT_EQ(plan->offset[b.g.nodes[2].output], plan->offset[b.g.nodes[0].output] + (kLarge - kSmall) / 2 / 64 * 64);
}

TEST(MemoryPlanTest, ASmallerValueLiesAroundTheMiddleOfTheLargerOneThatComesAfterIt) {
  Builder b;
  const ValueId small = b.Call("softmax", {b.Input({1, 4, 16, 16})}), next = b.Call("softmax", {small});
  const ValueId large = b.Call("softmax", {b.Conv(next, b.Random({64, 4, 1, 1}))});
  b.Output(b.Call("reduce_mean", {large}, Builder::Ints("axes", {1, 2, 3})));
  ASSERT_TRUE(Optimize(b.g, Target{}, {.disabled = {"layout"}}).ok());
  absl::StatusOr<BufferPlan> plan = PlanMemory(b.g);
  ASSERT_TRUE(plan.ok());
  constexpr int64_t kSmall = 4 * 16 * 16 * 4, kLarge = 16 * kSmall;
  const auto at = [&](ValueId v) { return plan->offset[v]; };
  ASSERT_EQ(plan->arena_bytes, 2 * kLarge);
  const ValueId wide = b.g.nodes[2].output;
  EXPECT_EQ(at(small), at(wide) + (kLarge - kSmall) / 2);
}

// The first and the second value take 64 channels. In no more the fourth would end where the third has to begin.
TEST(MemoryPlanTest, TheArenaGrowsALittleSoThatMiddlesMeet) {
  Builder b;
  const std::vector<int64_t> channels = {8, 48, 16, 32, 32, 16, 8};
  ValueId v = b.Input({1, channels[0], 16, 16});
  for (size_t i = 1; i < channels.size(); ++i) v = b.Conv(v, b.Random({channels[i], channels[i - 1], 1, 1}));
  b.Output(v);
  ASSERT_TRUE(Optimize(b.g, Target{}, {.disabled = {"layout"}}).ok());
  absl::StatusOr<BufferPlan> plan = PlanMemory(b.g);
  ASSERT_TRUE(plan.ok());
  constexpr int64_t kChannel = 16 * 16 * 4;
  const auto middle = [&](size_t node) {
    return plan->offset[b.g.nodes[node].output] / kChannel + channels[node + 1] / 2;
  };
  EXPECT_EQ(middle(2), middle(0));
  EXPECT_EQ(middle(4), middle(2));
  EXPECT_EQ(plan->arena_bytes, 72 * kChannel);
}

TEST(MemoryPlanTest, AGateIsMultipliedInPlace) {
  Builder b;
  const ValueId x = b.Call("softmax", {b.Input({4, 64})}), gate = b.Call("reduce_max", {x}, Builder::Ints("axes", {1}));
  const ValueId gated = b.Call("mul", {x, gate});
  b.Output(b.Call("softmax", {gated}, Builder::Int("axis", 0)));
  ASSERT_TRUE(Optimize(b.g, Target{}, {.disabled = {"fuse"}}).ok());
  const std::vector<ValueId> in_place = InPlaceOperands(b.g);
  ASSERT_EQ(in_place.size(), 4u);
  const Node& mul = b.g.nodes[2];
  EXPECT_THAT(in_place, ::testing::ElementsAre(kNoValue, kNoValue, mul.inputs[0], kNoValue));
  absl::StatusOr<BufferPlan> plan = PlanMemory(b.g, {{}, in_place});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->alias_of[mul.output], mul.inputs[0]);
  EXPECT_EQ(plan->arena_bytes, 1024 + 64);
  EXPECT_EQ(PlanMemory(b.g)->arena_bytes, 2 * 1024 + 64);
}

TEST(MemoryPlanTest, WhatIsReadLaterOrInAnotherShapeStays) {
  Builder b;
  const ValueId x = b.Call("softmax", {b.Input({8, 8})});
  const ValueId y = b.Call("mul", {x, b.Reshape(b.Reshape(x, {64, 1}), {8, 8})});
  const ValueId z = b.Call("mul", {y, b.Call("reduce_max", {y}, Builder::Ints("axes", {1}))});
  b.Output(b.Call("softmax", {b.Call("add", {z, y})}));
  ASSERT_TRUE(Optimize(b.g, Target{}, {.disabled = {"fuse", "simplify"}}).ok());
  const std::vector<ValueId> in_place = InPlaceOperands(b.g);
  for (size_t i = 0; i < b.g.groups.size(); ++i) {
    const Node& node = b.g.nodes[b.g.groups[i].nodes[0]];
    if (node.op == "mul") {
      EXPECT_EQ(in_place[i], kNoValue);
    }
    if (node.op == "add") {
      EXPECT_NE(in_place[i], kNoValue);
    }
  }
}

TEST(MemoryPlanTest, AsksForGroups) {
  EXPECT_EQ(PlanMemory(SmallNet()).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ExtractTest, EqualLayersAreOneTask) {
  Builder b;
  ValueId v = b.Input({1, 8, 6, 6});
  for (int i = 0; i < 3; ++i) v = b.Call("relu", {b.Conv(v, b.Random({8, 8, 3, 3}), 1)});
  b.Output(b.Call("reduce_mean", {v}, Builder::Ints("axes", {2, 3})));
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  absl::StatusOr<std::vector<Task>> tasks = ExtractTasks(b.g);
  ASSERT_TRUE(tasks.ok());
  int convs = 0;
  for (const Task& task : *tasks) {
    if (task.workload.calls[task.workload.anchor].op != "conv2d") continue;
    ++convs;
    EXPECT_EQ(task.count, 3);
    EXPECT_EQ(task.workload.anchor, 0);
    EXPECT_TRUE(task.workload.inputs[1].constant);
  }
  EXPECT_EQ(convs, 1);
}

TEST(ExtractTest, AModelsHashIsThatOfItsTasksInAnyOrder) {
  const auto tasks_of = [](int convs, int channels) {
    Builder b;
    ValueId v = b.Input({1, channels, 6, 6});
    for (int i = 0; i < convs; ++i) v = b.Call("relu", {b.Conv(v, b.Random({channels, channels, 3, 3}), 1)});
    b.Output(b.Call("reduce_mean", {v}, Builder::Ints("axes", {2, 3})));
    EXPECT_TRUE(Optimize(b.g, Target{}).ok());
    return *ExtractTasks(b.g);
  };
  std::vector<Task> tasks = tasks_of(3, 4);
  ASSERT_GT(tasks.size(), 1u);
  const std::string hash = ModelHash(tasks);
  EXPECT_EQ(ModelHash(tasks_of(3, 4)), hash);
  EXPECT_NE(ModelHash(tasks_of(2, 4)), hash) << "how often counts";
  EXPECT_NE(ModelHash(tasks_of(3, 8)), hash);
  std::reverse(tasks.begin(), tasks.end());
  EXPECT_EQ(ModelHash(tasks), hash);
  EXPECT_EQ(ConstantBytes(tasks), 3 * 4 * 4 * 4 * 9);
  tasks[0].alternative = tasks[1].alternative = true;
  EXPECT_LT(ConstantBytes(tasks), 3 * 4 * 4 * 4 * 9);
}

TEST(PipelineTest, PrintsTheGraphAndRefusesUnknownPasses) {
  std::ostringstream out;
  Graph g = SmallNet();
  ASSERT_TRUE(Optimize(g, Target{}, {{}, &out}).ok());
  EXPECT_THAT(out.str(), HasSubstr("== before passes"));
  EXPECT_THAT(out.str(), HasSubstr("== after layout"));
  EXPECT_THAT(std::string(Optimize(g, Target{}, {{"inline"}, nullptr}).message()), HasSubstr("'inline'"));
}

}  // namespace
}  // namespace temper
