// Values of narrow floats on CPUs: which of them become f32, where casts stay, and that answers are no worse.
#include <gmock/gmock.h>

#include "compiler/graph/fill_constants.h"
#include "compiler/graph/passes/passes.h"
#include "compiler/graph/pipeline.h"
#include "compiler/ops/template.h"
#include "tests/graph/builder.h"

namespace temper {
namespace {

using testing::Builder;
using testing::CountOps;
using testing::Evaluated;
using testing::RandomInputs;

class Widen : public ::testing::TestWithParam<DType> {
 protected:
  DType type() const { return GetParam(); }
  ValueId Input(Shape shape) { return b.Input(std::move(shape), type()); }
  NDArray Data(Shape shape) { return testing::RandomArray(b.rng, std::move(shape), -1, 1, type()); }
  ValueId Known(Shape shape) { return b.Constant(Data(std::move(shape))); }
  ValueId Cast(ValueId v, DType to) { return b.Cast(v, to); }

  // Runs the pass; results are those of before, up to what they were rounded on their way.
  void Run(const char* target = "llvm:haswell") {
    ASSERT_TRUE(Verify(b.g).ok()) << Verify(b.g);
    const std::vector<NDArray> inputs = RandomInputs(b.g, 3), want = Evaluated(b.g, inputs);
    const std::vector<std::string> names = NamesOfOutputs();
    const absl::Status status = passes::WidenFloats(b.g, *ParseTarget(target));
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(Verify(b.g).ok()) << Verify(b.g) << Text(b.g);
    testing::ExpectClose(Evaluated(b.g, inputs), want, 8 * Info(type()).tolerance);
    EXPECT_EQ(NamesOfOutputs(), names);
  }
  std::vector<std::string> NamesOfOutputs() const {
    std::vector<std::string> names;
    for (const ValueId v : b.g.outputs) names.push_back(b.g.values[v].name);
    return names;
  }
  // "operator type", in order.
  std::vector<std::string> Calls() const {
    std::vector<std::string> calls;
    for (const Node& node : b.g.nodes)
      calls.push_back(node.op + " " + std::string(Name(b.g.values[node.output].type.dtype)));
    return calls;
  }
  std::string Of(const char* op) const { return std::string(op) + " " + std::string(Name(type())); }
  int NarrowConstants() const {
    return static_cast<int>(
        std::ranges::count_if(b.g.values, [&](const Value& v) { return v.is_constant && v.type.dtype == type(); }));
  }

  Builder b;
};

INSTANTIATE_TEST_SUITE_P(Types, Widen, ::testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST_P(Widen, WhatIsComputedIsOfF32BetweenCasts) {
  const ValueId c = b.Call("add", {b.Conv(Input({1, 4, 5, 5}), Known({8, 4, 3, 3}), 1), Known({8, 1, 1})});
  b.Output(b.Call("relu", {c}));
  b.Output(b.Call("softmax", {c}));
  Run();
  EXPECT_THAT(Calls(), ::testing::ElementsAre("cast f32", "conv2d f32", "add f32", "relu f32", Of("cast"),
                                              "softmax f32", Of("cast")));
  EXPECT_EQ(NarrowConstants(), 0);
}

TEST_P(Widen, ResultsAreNearerToTheExactOnes) {
  ValueId v = Input({4, 256});
  for (int i = 0; i < 3; ++i) v = b.Call("tanh", {b.Call("matmul", {v, Known({256, 256})})});
  b.Output(v);
  const std::vector<NDArray> inputs = RandomInputs(b.g, 3);
  Graph exact = b.g;
  for (Value& value : exact.values) {
    value.type.dtype = DType::kF64;
    if (value.constant.has_value()) value.constant = value.constant->ConvertedTo(DType::kF64);
  }
  const NDArray want = Evaluated(exact, {inputs[0].ConvertedTo(DType::kF64)})[0];
  const double before = RelativeError(Evaluated(b.g, inputs)[0], want);
  ASSERT_TRUE(passes::WidenFloats(b.g, *ParseTarget("llvm:haswell")).ok());
  EXPECT_LT(RelativeError(Evaluated(b.g, inputs)[0], want), before / 2);
}

TEST_P(Widen, AConstantOfSeveralReadersIsConvertedOnce) {
  const ValueId w = Known({16, 16});
  b.Output(b.Call("matmul", {b.Call("matmul", {Input({2, 16}), w}), w}));
  Run();
  int constants = 0;
  for (const Value& v : b.g.values) constants += v.is_constant ? 1 : 0;
  EXPECT_EQ(constants, 1);
  EXPECT_EQ(NarrowConstants(), 0);
}

TEST_P(Widen, ConstantsWithoutDataBecomeOthersWithoutData) {
  const ValueId w = b.g.AddValue({"w", {type(), {16, 8}, {}}, std::nullopt, true});
  const ValueId x = Input({2, 16});
  b.Output(b.Call("matmul", {x, w}));
  ASSERT_TRUE(Optimize(b.g, *ParseTarget("llvm:haswell")).ok());
  EXPECT_THAT(Calls(), ::testing::ElementsAre("cast f32", "matmul f32", Of("cast")));
  const auto found = std::ranges::find(b.g.values, "w", &Value::name);
  ASSERT_NE(found, b.g.values.end());
  EXPECT_EQ(found->type.dtype, DType::kF32);
  EXPECT_FALSE(found->constant.has_value());
  FillConstants(b.g, 1);
  EXPECT_EQ(Evaluated(b.g, RandomInputs(b.g, 3))[0].dtype(), type());
}

TEST_P(Widen, CastsToNarrowTypesBecomeCastsToF32) {
  const ValueId x = b.Input({4}), i = b.Input({4}, DType::kI32);
  const ValueId sum = b.Call("add", {Cast(x, type()), Cast(i, type())});
  b.Output(Cast(sum, DType::kF32));
  b.Output(b.Call("exp", {Cast(sum, DType::kF32)}));
  b.Output(Cast(sum, DType::kI32));
  Run();
  // One of nothing makes an output of f32: others remove it.
  EXPECT_THAT(Calls(), ::testing::ElementsAre("cast f32", "add f32", "cast f32", "exp f32", "cast i32"));
}

TEST_P(Widen, CastsOfWhatComesNarrowAreTheSameCast) {
  const ValueId x = Input({4});
  b.Output(b.Call("exp", {Cast(Cast(x, DType::kF32), type())}));
  b.Output(Cast(x, DType::kF32));
  Run();
  ASSERT_TRUE(passes::Simplify(b.g).ok());
  EXPECT_EQ(CountOps(b.g, "cast"), 2);
}

TEST_P(Widen, WhatIsRoundedToBytesStaysSo) {
  const ValueId scaled = b.Call("mul", {Input({4, 8}), b.Constant(testing::Numbers(type(), {}, {16}))});
  const ValueId q = Cast(b.Call("clip", {b.Call("round", {scaled})},
                                [] {
                                  Attrs attrs;
                                  attrs.Set("min", -128.0);
                                  attrs.Set("max", 127.0);
                                  return attrs;
                                }()),
                         DType::kI8);
  b.Output(b.Call("mul", {Cast(q, type()), b.Constant(testing::Numbers(type(), {}, {1.0 / 16}))}));
  Run();
  EXPECT_THAT(Calls(), ::testing::ElementsAre("cast f32", "mul f32", "round f32", "clip f32", "cast i8", "cast f32",
                                              "mul f32", Of("cast")));
}

TEST_P(Widen, ComparisonsAndPositionsAreOfF32) {
  const ValueId x = Input({4, 8}), y = Input({4, 8});
  const ValueId less = b.Call("less", {x, y});
  b.Output(b.Call("where", {less, x, b.Call("exp", {y})}));
  b.Output(b.Call("arg_max", {b.Call("exp", {x})}, Builder::Int("axis", 1)));
  Run();
  for (const std::string& call : Calls()) EXPECT_NE(call, Of("exp"));
}

TEST_P(Widen, WhatIsMovedAloneStaysAsItIs) {
  const ValueId x = Input({2, 3, 4});
  b.Output(b.Transpose(b.Reshape(x, {6, 4}), {1, 0}));
  b.Output(b.Call("concat", {x, Known({2, 1, 4})}, Builder::Int("axis", 1)));
  const std::string before = Text(b.g);
  Run();
  EXPECT_EQ(Text(b.g), before);
}

TEST_P(Widen, OutputsThatAreInputsOrConstantsStay) {
  const ValueId x = Input({4}), c = Known({4});
  b.g.outputs = {x, c};
  b.Output(b.Call("add", {x, c}));
  Run();
  EXPECT_EQ(b.g.outputs[0], b.g.inputs[0]);
  EXPECT_TRUE(b.g.values[b.g.outputs[1]].is_constant);
  EXPECT_EQ(b.g.values[b.g.outputs[1]].type.dtype, type());
  EXPECT_THAT(Calls(), ::testing::ElementsAre("cast f32", "add f32", Of("cast")));
}

TEST_P(Widen, AnOutputThatIsReadOnAndGivenTwiceIsCastOnce) {
  const ValueId y = b.Call("exp", {Input({4})});
  b.Output(y);
  b.Output(b.Call("exp", {y}));
  b.g.outputs.push_back(y);
  Run();
  EXPECT_THAT(Calls(), ::testing::ElementsAre("cast f32", "exp f32", Of("cast"), "exp f32", Of("cast")));
}

TEST_P(Widen, RowsArePickedOfANarrowTable) {
  const ValueId rows = b.Constant(testing::Numbers(DType::kI64, {2}, {5, 3}));
  const ValueId table = Known({16, 8});
  const ValueId x = b.Call("gather", {table, rows}, Builder::Int("axis", 0));
  b.Output(b.Call("matmul", {x, b.Transpose(table, {1, 0})}));
  Run();
  EXPECT_THAT(Calls(), ::testing::ElementsAre(Of("gather"), "transpose f32", "cast f32", "matmul f32", Of("cast")));
  EXPECT_EQ(NarrowConstants(), 1);  // the table, which is also there in f32
}

// New keys join those of earlier steps in their type; the few queries of a step read them as they lie, many read a
// cast.
TEST_P(Widen, ACacheIsNotCastForAFewRows) {
  for (const int64_t steps : {int64_t{1}, int64_t{64}}) {
    b = Builder();
    const ValueId x = Input({2, steps, 8}), past = Input({2, 100, 8});
    const ValueId fresh = b.Call("matmul", {x, Known({8, 8})});
    const ValueId present = b.Call("concat", {past, fresh}, Builder::Int("axis", 1));
    b.Output(present);
    b.Output(b.Call("exp", {b.Call("matmul", {x, b.Transpose(present, {0, 2, 1})})}));
    Run();
    if (steps == 1) {
      EXPECT_THAT(Calls(), ::testing::ElementsAre("cast f32", "matmul f32", Of("cast"), Of("concat"), Of("transpose"),
                                                  "matmul f32", "exp f32", Of("cast")));
      continue;
    }
    EXPECT_THAT(Calls(), ::testing::ElementsAre("cast f32", "matmul f32", Of("cast"), Of("concat"), "cast f32",
                                                "transpose f32", "matmul f32", "exp f32", Of("cast")));
  }
}

// However few the rows are, weights are packed for them.
TEST_P(Widen, ConstantsAreNoCache) {
  const ValueId table = Known({100, 8}), part = b.Call("slice", {table}, [] {
    Attrs attrs = Builder::Ints("axes", {0});
    attrs.Set("starts", std::vector<int64_t>{10});
    attrs.Set("ends", std::vector<int64_t>{40});
    attrs.Set("steps", std::vector<int64_t>{1});
    return attrs;
  }());
  b.Output(b.Call("matmul", {Input({1, 8}), table}, Builder::Int("trans_b", 1)));
  b.Output(b.Call("matmul", {Input({1, 8}), part}, Builder::Int("trans_b", 1)));
  b.Output(b.Call("matmul", {Input({1, 8}), b.Transpose(table, {1, 0})}));
  Run();
  for (const Node& node : b.g.nodes) EXPECT_FALSE(node.op == "matmul" && node.attrs.Has("result")) << Text(b.g);
}

TEST_P(Widen, WhatHasToHaveItsTypeKeepsItBetweenCasts) {
  OpDef op{"of_narrow_floats", OpPattern::kOpaque, 1, 1};
  op.infer = [](const Attrs&, std::span<const TensorType> in) -> absl::StatusOr<TensorType> {
    if (!IsNarrowFloat(in[0].dtype)) return absl::InvalidArgumentError("takes narrow floats");
    return in[0];
  };
  op.reference = [](const Attrs&, std::span<const NDArray> in, const TensorType&) -> absl::StatusOr<NDArray> {
    return in[0];
  };
  if (FindOp(op.name) == nullptr) RegisterOp(std::move(op));
  const ValueId x = Input({2, 4});
  const ValueId y = b.Call("of_narrow_floats", {b.Call("exp", {b.Call("of_narrow_floats", {x})})});
  b.Output(b.Call("add", {y, b.Call("of_narrow_floats", {Known({4})})}));
  b.Output(y);
  Run();
  EXPECT_THAT(Calls(),
              ::testing::ElementsAre(Of("of_narrow_floats"), "cast f32", "exp f32", Of("cast"), Of("of_narrow_floats"),
                                     Of("of_narrow_floats"), "cast f32", "cast f32", "add f32", Of("cast")));
  EXPECT_EQ(NarrowConstants(), 1);
}

// What has an attribute that names a result is what it was: sums of narrow floats in f32.
TEST_P(Widen, SumsOfF32AreOfF32) {
  Attrs sums = Builder::String("result", "f32");
  b.Output(b.Call("exp", {b.Call("matmul", {b.Call("exp", {Input({2, 4})}), Known({4, 4})}, std::move(sums))}));
  Run();
  EXPECT_THAT(Calls(), ::testing::ElementsAre("cast f32", "exp f32", "matmul f32", "exp f32"));
}

TEST_P(Widen, OtherDevicesComputeAsTheModelSays) {
  b.Output(b.Call("exp", {b.Call("matmul", {Input({2, 4}), Known({4, 4})})}));
  const std::string before = Text(b.g);
  for (const char* target : {"cuda:sm_80", "opencl"}) Run(target);
  EXPECT_EQ(Text(b.g), before);
  Run("interpreter");
  EXPECT_NE(Text(b.g), before);
}

TEST_P(Widen, FloatsOfEightBitsStay) {
  const ValueId x = b.Input({4}, DType::kF8E4M3FN);
  b.Output(b.Call("exp", {Cast(x, type())}));
  b.Output(b.Call("exp", {x}));
  Run();
  EXPECT_THAT(Calls(), ::testing::ElementsAre("cast f32", "exp f32", Of("cast"), "exp f8e4m3fn"));
}

}  // namespace
}  // namespace temper
