// What operators mean in each opset that Temper reads, on numbers worked out by hand.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using testing::Array;
using testing::ExpectArray;
using testing::ModelBuilder;

constexpr int kOpsets[] = {7, 9, 10, 11, 12, 13, 15, 17, 18, 21, 23, 25};

// One message in two parts is the same as the two merged: repeated fields go on, and of others the last one counts.
TEST(OnnxImport, WeightsAreReadWhereverTheFileHasThem) {
  const std::vector<float> wrong = {7, 7}, right = {2, 3};
  const auto raw = [](const std::vector<float>& v) {
    onnx::TensorProto t;
    t.set_raw_data(v.data(), v.size() * sizeof(float));
    return t.SerializeAsString();
  };
  onnx::TensorProto head;
  head.set_name("w");
  head.set_data_type(onnx::TensorProto::FLOAT);
  head.add_dims(2);
  const std::string tensors[] = {
      raw(right) + head.SerializeAsString(),
      head.SerializeAsString() + raw(wrong) + raw(right),
      head.SerializeAsString() + raw({}) + raw(right),
  };
  for (const std::string& tensor : tensors) {
    ModelBuilder first(13), second(13);
    first.Floats("typed", {2}, {10, 20});
    first.Ints("unused", {1, 2, 3});
    second.Input("x", {2});
    second.Node("Mul", {"x", "w"}, {"p"});
    second.Node("Add", {"p", "typed"}, {"y"});
    second.Output("y");
    onnx::ModelProto between;  // a graph of one initializer, encoded by hand
    between.mutable_graph()->mutable_unknown_fields()->AddLengthDelimited(5, tensor);
    absl::StatusOr<Graph> g =
        ImportOnnxBytes(first.Bytes() + between.SerializeAsString() + second.Bytes(), "parts", {});
    ASSERT_TRUE(g.ok()) << g.status();
    absl::StatusOr<std::vector<NDArray>> y = RunReference(*g, std::vector<NDArray>{Array({2}, {1, 1})});
    ASSERT_TRUE(y.ok()) << y.status();
    ExpectArray((*y)[0], {2}, {12, 23});
  }
  ModelBuilder m(13);
  m.Input("x", {2});
  m.Node("Add", {"x", "w"}, {"y"});
  m.Output("y");
  onnx::ModelProto none;
  none.mutable_graph()->mutable_unknown_fields()->AddLengthDelimited(5,
                                                                     head.SerializeAsString() + raw(right) + raw({}));
  EXPECT_FALSE(ImportOnnxBytes(none.SerializeAsString() + m.Bytes(), "no data", {}).ok());
}

TEST(OnnxImport, SqueezeAndUnsqueezeTakeAxesFromAttributesThenFromOperands) {
  for (int opset : kOpsets) {
    SCOPED_TRACE(opset);
    ModelBuilder m(opset);
    m.Input("x", {1, 2, 1, 3});
    if (opset < 13) {
      ModelBuilder::SetInts(m.Node("Squeeze", {"x"}, {"s"}), "axes", {0, -2});
      ModelBuilder::SetInts(m.Node("Unsqueeze", {"s"}, {"y"}), "axes", {1, 3});
    } else {
      m.Ints("a", {0, -2});
      m.Ints("b", {1, 3});
      m.Node("Squeeze", {"x", "a"}, {"s"});
      m.Node("Unsqueeze", {"s", "b"}, {"y"});
    }
    m.Output("s");
    m.Output("y");
    const auto out = m.Run({Array({1, 2, 1, 3}, {1, 2, 3, 4, 5, 6})});
    ASSERT_EQ(out.size(), 2u);
    EXPECT_EQ(out[0].shape(), (Shape{2, 3}));
    ExpectArray(out[1], {2, 1, 3, 1}, {1, 2, 3, 4, 5, 6});
  }
}

TEST(OnnxImport, ClipTakesItsBoundsFromAttributesThenFromOperands) {
  for (int opset : kOpsets) {
    SCOPED_TRACE(opset);
    ModelBuilder m(opset);
    m.Input("x", {4});
    if (opset < 11) {
      auto& node = m.Node("Clip", {"x"}, {"y"});
      ModelBuilder::SetFloat(node, "min", -1);
      ModelBuilder::SetFloat(node, "max", 2);
    } else {
      m.Floats("lo", {}, {-1});
      m.Floats("hi", {}, {2});
      m.Node("Clip", {"x", "lo", "hi"}, {"y"});
    }
    m.Output("y");
    ExpectArray(m.Run({Array({4}, {-5, -0.5, 1, 9})})[0], {4}, {-1, -0.5, 1, 2});
  }
}

TEST(OnnxImport, ClipWithOneBoundOnly) {
  ModelBuilder m(13);
  m.Input("x", {3});
  m.Floats("hi", {}, {2});
  m.Node("Clip", {"x", "", "hi"}, {"y"});
  m.Output("y");
  ExpectArray(m.Run({Array({3}, {-5, 1, 9})})[0], {3}, {-5, 1, 2});
}

TEST(OnnxImport, SoftmaxNormalisesAMatrixsRowsBeforeOpset13AndOneAxisSince) {
  for (int opset : {11, 13}) {
    SCOPED_TRACE(opset);
    ModelBuilder m(opset);
    m.Input("x", {1, 2, 2});
    ModelBuilder::SetInt(m.Node("Softmax", {"x"}, {"y"}), "axis", 1);
    m.Output("y");
    const std::vector<double> e = {std::exp(1), std::exp(2), std::exp(3), std::exp(4)};
    std::vector<double> want;
    for (size_t i = 0; i < 4; ++i)
      want.push_back(e[i] / (opset < 13 ? e[0] + e[1] + e[2] + e[3] : e[i % 2] + e[i % 2 + 2]));
    ExpectArray(m.Run({Array({1, 2, 2}, {1, 2, 3, 4})})[0], {1, 2, 2}, want);
  }
}

TEST(OnnxImport, SoftmaxDefaultAxisIsOneBeforeOpset13AndTheLastSince) {
  for (int opset : {9, 13}) {
    ModelBuilder m(opset);
    m.Input("x", {1, 2, 2});
    m.Node("Softmax", {"x"}, {"y"});
    m.Output("y");
    ExpectArray(m.Run({Array({1, 2, 2}, {0, 0, 0, 0})})[0], {1, 2, 2}, std::vector<double>(4, opset < 13 ? 0.25 : 0.5));
  }
}

TEST(OnnxImport, SliceTakesItsBoundsFromAttributesThenFromOperands) {
  for (int opset : kOpsets) {
    SCOPED_TRACE(opset);
    ModelBuilder m(opset);
    m.Input("x", {2, 4});
    if (opset < 10) {
      auto& node = m.Node("Slice", {"x"}, {"y"});
      ModelBuilder::SetInts(node, "starts", {1});
      ModelBuilder::SetInts(node, "ends", {INT64_MAX});
      ModelBuilder::SetInts(node, "axes", {1});
      m.Output("y");
      ExpectArray(m.Run({Array({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8})})[0], {2, 3}, {2, 3, 4, 6, 7, 8});
    } else {
      m.Ints("starts", {-1});
      m.Ints("ends", {INT64_MIN});
      m.Ints("axes", {1});
      m.Ints("steps", {-2});
      m.Node("Slice", {"x", "starts", "ends", "axes", "steps"}, {"y"});
      m.Output("y");
      ExpectArray(m.Run({Array({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8})})[0], {2, 2}, {4, 2, 8, 6});
    }
  }
}

TEST(OnnxImport, DropoutAndIdentityVanish) {
  for (int opset : kOpsets) {
    ModelBuilder m(opset);
    m.Input("x", {2});
    m.Node("Dropout", {"x"}, {"d", "mask"});
    m.Node("Identity", {"d"}, {"i"});
    m.Node("Relu", {"i"}, {"y"});
    m.Output("y");
    absl::StatusOr<Graph> g = m.Import();
    ASSERT_TRUE(g.ok()) << g.status();
    EXPECT_EQ(g->nodes.size(), 1u);
  }
}

// The second result says what stays: all, as booleans, or before opset 10 as ones. A share of 0 is no training.
TEST(OnnxImport, DropoutsThatDropNothingKeepAll) {
  for (const int opset : {9, 13}) {
    ModelBuilder m(opset);
    m.Input("x", {2});
    m.Floats("ratio", {}, {0});
    onnx::TensorProto& training = *m.model.mutable_graph()->add_initializer();
    training.set_name("training");
    training.set_data_type(onnx::TensorProto::BOOL);
    training.add_int32_data(1);
    m.Node("Dropout", {"x"}, {"y", "mask"});
    m.Node("Dropout", {"x", "ratio", "training"}, {"z", "all"});
    for (const char* name : {"mask", "all"}) m.Output(name);
    for (const NDArray& mask : m.Run({testing::Array({2}, {0, 3})})) {
      EXPECT_EQ(mask.dtype(), opset < 10 ? DType::kF32 : DType::kBool);
      testing::ExpectArray(mask, {2}, {1, 1});
    }
    m.Floats("half", {}, {0.5F});
    m.Node("Dropout", {"x", "half", "training"}, {"w"});
    EXPECT_THAT(testing::Refusal(m), ::testing::HasSubstr("training_mode is not supported"));
  }
}

TEST(OnnxImport, OutputsKeepTheirNamesWhateverIdentitiesDo) {
  ModelBuilder m(13);
  m.Input("x", {2});
  m.Floats("w", {2}, {3, 4});
  m.Node("Relu", {"x"}, {"r"});
  m.Node("Identity", {"r"}, {"a"});
  m.Node("Identity", {"r"}, {"b"});
  m.Node("Identity", {"x"}, {"c"});
  m.Node("Identity", {"w"}, {"d"});
  for (const char* name : {"a", "b", "c", "d"}) m.Output(name);
  absl::StatusOr<Graph> g = m.Import();
  ASSERT_TRUE(g.ok()) << g.status();
  std::vector<std::string> names;
  for (ValueId v : g->outputs) names.push_back(g->values[v].name);
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b", "c", "d"}));
  EXPECT_EQ(g->values[g->inputs[0]].name, "x");
  const auto out = m.Run({Array({2}, {-1, 2})});
  ExpectArray(out[0], {2}, {0, 2});
  ExpectArray(out[1], {2}, {0, 2});
  ExpectArray(out[2], {2}, {-1, 2});
  ExpectArray(out[3], {2}, {3, 4});
}

TEST(OnnxImport, BatchNormalizationAsTheModelHasIt) {
  ModelBuilder m(7);
  m.Input("x", {1, 2, 1, 2});
  m.Floats("scale", {2}, {2, 1});
  m.Floats("bias", {2}, {1, 0});
  m.Floats("mean", {2}, {1, 2});
  m.Floats("var", {2}, {4, 1});
  auto& node = m.Node("BatchNormalization", {"x", "scale", "bias", "mean", "var"}, {"y"});
  ModelBuilder::SetFloat(node, "epsilon", 0);
  m.Output("y");
  ExpectArray(m.Run({Array({1, 2, 1, 2}, {1, 3, 2, 5})})[0], {1, 2, 1, 2}, {1, 3, 0, 3});
}

TEST(OnnxImport, ConvolutionWithBiasAndAutoPad) {
  for (const char* mode : {"SAME_UPPER", "SAME_LOWER", "VALID"}) {
    SCOPED_TRACE(mode);
    ModelBuilder m(11);
    m.Input("x", {1, 1, 1, 4});
    m.Floats("w", {1, 1, 1, 2}, {1, 10});
    m.Floats("b", {1}, {100});
    auto& node = m.Node("Conv", {"x", "w", "b"}, {"y"});
    ModelBuilder::SetString(node, "auto_pad", mode);
    m.Output("y");
    const NDArray y = m.Run({Array({1, 1, 1, 4}, {1, 2, 3, 4})})[0];
    if (std::string(mode) == "SAME_UPPER")
      ExpectArray(y, {1, 1, 1, 4}, {121, 132, 143, 104});
    else if (std::string(mode) == "SAME_LOWER")
      ExpectArray(y, {1, 1, 1, 4}, {110, 121, 132, 143});
    else
      ExpectArray(y, {1, 1, 1, 3}, {121, 132, 143});
  }
}

TEST(OnnxImport, OneDimensionalConvolutionAndPooling) {
  ModelBuilder m(13);
  m.Input("x", {1, 1, 4});
  m.Floats("w", {1, 1, 3}, {1, 10, 100});
  auto& conv = m.Node("Conv", {"x", "w"}, {"c"});
  ModelBuilder::SetInts(conv, "pads", {1, 1});
  auto& pool = m.Node("MaxPool", {"c"}, {"y"});
  ModelBuilder::SetInts(pool, "kernel_shape", {2});
  ModelBuilder::SetInts(pool, "strides", {2});
  m.Output("y");
  ExpectArray(m.Run({Array({1, 1, 4}, {1, 2, 3, 4})})[0], {1, 1, 2}, {321, 432});
}

TEST(OnnxImport, TransposedConvolutionWithOutputShape) {
  ModelBuilder m(11);
  m.Input("x", {1, 1, 1, 2});
  m.Floats("w", {1, 1, 1, 2}, {1, 10});
  auto& node = m.Node("ConvTranspose", {"x", "w"}, {"y"});
  ModelBuilder::SetInts(node, "strides", {1, 2});
  m.Output("y");
  ExpectArray(m.Run({Array({1, 1, 1, 2}, {1, 2})})[0], {1, 1, 1, 4}, {1, 10, 2, 20});
}

TEST(OnnxImport, PoolsCountPaddingOnlyWhereAsked) {
  for (int64_t include : {0, 1}) {
    ModelBuilder m(11);
    m.Input("x", {1, 1, 1, 2});
    auto& node = m.Node("AveragePool", {"x"}, {"y"});
    ModelBuilder::SetInts(node, "kernel_shape", {1, 2});
    ModelBuilder::SetInts(node, "pads", {0, 1, 0, 0});
    ModelBuilder::SetInt(node, "count_include_pad", include);
    m.Output("y");
    ExpectArray(m.Run({Array({1, 1, 1, 2}, {2, 4})})[0], {1, 1, 1, 2}, {include != 0 ? 1.0 : 2.0, 3});
  }
}

TEST(OnnxImport, EmptyPartsOfAConcatenationAddNothing) {
  ModelBuilder m(13);
  m.Floats("none", {0, 2}, {});
  m.Input("x", {1, 2});
  ModelBuilder::SetInt(m.Node("Concat", {"none", "x", "none"}, {"y"}), "axis", 0);
  m.Output("y");
  ExpectArray(m.Run({Array({1, 2}, {3, 4})})[0], {1, 2}, {3, 4});
}

TEST(OnnxImport, GlobalPools) {
  ModelBuilder m(7);
  m.Input("x", {1, 2, 1, 2});
  m.Node("GlobalAveragePool", {"x"}, {"a"});
  m.Node("GlobalMaxPool", {"x"}, {"b"});
  m.Output("a");
  m.Output("b");
  const auto out = m.Run({Array({1, 2, 1, 2}, {1, 3, 5, 6})});
  ExpectArray(out[0], {1, 2, 1, 1}, {2, 5.5});
  ExpectArray(out[1], {1, 2, 1, 1}, {3, 6});
}

TEST(OnnxImport, GemmHasFactorsTransposesAndAnOptionalTerm) {
  ModelBuilder m(13);
  m.Input("x", {2, 1});
  m.Floats("w", {2, 2}, {1, 2, 3, 4});
  m.Floats("c", {2}, {10, 20});
  auto& node = m.Node("Gemm", {"x", "w", "c"}, {"y"});
  ModelBuilder::SetInt(node, "transA", 1);
  ModelBuilder::SetInt(node, "transB", 1);
  ModelBuilder::SetFloat(node, "alpha", 2);
  ModelBuilder::SetFloat(node, "beta", 0.5);
  auto& plain = m.Node("Gemm", {"x", "w"}, {"z"});
  ModelBuilder::SetInt(plain, "transA", 1);
  m.Output("y");
  m.Output("z");
  const auto out = m.Run({Array({2, 1}, {1, 2})});
  ExpectArray(out[0], {1, 2}, {2 * 5 + 5, 2 * 11 + 10});
  ExpectArray(out[1], {1, 2}, {7, 10});
}

TEST(OnnxImport, MatMulOfVectors) {
  ModelBuilder m(13);
  m.Input("x", {2});
  m.Floats("w", {2, 3}, {1, 2, 3, 4, 5, 6});
  m.Node("MatMul", {"x", "w"}, {"y"});
  m.Node("MatMul", {"x", "x"}, {"z"});
  m.Output("y");
  m.Output("z");
  const auto out = m.Run({Array({2}, {1, 10})});
  ExpectArray(out[0], {3}, {41, 52, 63});
  ExpectArray(out[1], {}, {101});
}

TEST(OnnxImport, ReductionsTakeAxesFromAttributesThenFromOperands) {
  for (int opset : {7, 13, 18}) {
    SCOPED_TRACE(opset);
    ModelBuilder m(opset);
    m.Input("x", {2, 2});
    m.Ints("axes", {1});
    auto& sum = opset < 13 ? m.Node("ReduceSum", {"x"}, {"s"}) : m.Node("ReduceSum", {"x", "axes"}, {"s"});
    if (opset < 13) ModelBuilder::SetInts(sum, "axes", {1});
    ModelBuilder::SetInt(sum, "keepdims", 0);
    auto& mean = opset < 18 ? m.Node("ReduceMean", {"x"}, {"m"}) : m.Node("ReduceMean", {"x", "axes"}, {"m"});
    if (opset < 18) ModelBuilder::SetInts(mean, "axes", {-1});
    m.Node("ReduceL1", {"x"}, {"a"});
    for (const char* name : {"s", "m", "a"}) m.Output(name);
    const auto out = m.Run({Array({2, 2}, {1, -3, 5, 7})});
    ExpectArray(out[0], {2}, {-2, 12});
    ExpectArray(out[1], {2, 1}, {-1, 6});
    ExpectArray(out[2], {1, 1}, {16});
  }
}

TEST(OnnxImport, ReductionWithoutAxesThatIsToDoNothing) {
  ModelBuilder m(13);
  m.Input("x", {2});
  ModelBuilder::SetInt(m.Node("ReduceSum", {"x"}, {"y"}), "noop_with_empty_axes", 1);
  m.Output("y");
  ExpectArray(m.Run({Array({2}, {1, 2})})[0], {2}, {1, 2});
}

TEST(OnnxImport, ArgMaxAndArgMinTakeAnAxisFromTheEndAndTheFirstUnlessToldTheLast) {
  ModelBuilder m(13);
  m.Input("x", {2, 3});
  m.Node("ArgMax", {"x"}, {"rows"});
  ModelBuilder::SetInt(m.Node("ArgMax", {"x"}, {"first"}), "axis", -1);
  for (const char* op : {"ArgMax", "ArgMin"}) {
    auto& node = m.Node(op, {"x"}, {std::string("last") + op});
    ModelBuilder::SetInt(node, "axis", 1);
    ModelBuilder::SetInt(node, "keepdims", 0);
    ModelBuilder::SetInt(node, "select_last_index", 1);
  }
  for (const char* name : {"rows", "first", "lastArgMax", "lastArgMin"}) m.Output(name);
  const auto out = m.Run({Array({2, 3}, {1, 7, 7, 2, 2, 3})});
  ExpectArray(out[0], {1, 3}, {1, 0, 0});
  ExpectArray(out[1], {2, 1}, {1, 2});
  ExpectArray(out[2], {2}, {2, 2});
  ExpectArray(out[3], {2}, {0, 1});
}

// Bytes have no negative numbers.
TEST(OnnxImport, ArgMinOfBytes) {
  ModelBuilder m(13);
  m.Input("x", {3}, onnx::TensorProto::UINT8);
  m.Node("ArgMin", {"x"}, {"y"});
  m.Output("y");
  ExpectArray(m.Run({Array({3}, {3, 200, 0}).ConvertedTo(DType::kU8)})[0], {1}, {2});
}

TEST(OnnxImport, SplitByAttributeByOperandAndEvenly) {
  for (int opset : {11, 13, 18}) {
    SCOPED_TRACE(opset);
    ModelBuilder m(opset);
    m.Input("x", {5});
    m.Ints("lengths", {2, 3});
    auto& node = opset < 13 ? m.Node("Split", {"x"}, {"a", "b"}) : m.Node("Split", {"x", "lengths"}, {"a", "b"});
    if (opset < 13) ModelBuilder::SetInts(node, "split", {2, 3});
    auto& even = m.Node("Split", {"b"}, {"c", "d"});
    if (opset >= 18) ModelBuilder::SetInt(even, "num_outputs", 2);
    for (const char* name : {"a", "c", "d"}) m.Output(name);
    const auto out = m.Run({Array({5}, {1, 2, 3, 4, 5})});
    ExpectArray(out[0], {2}, {1, 2});
    ExpectArray(out[1], {2}, {3, 4});
    ExpectArray(out[2], {1}, {5});
  }
}

TEST(OnnxImport, PadTakesItsPadsFromAttributesThenFromOperandsThenForSomeAxes) {
  for (int opset : {7, 11, 18}) {
    SCOPED_TRACE(opset);
    ModelBuilder m(opset);
    m.Input("x", {1, 2});
    m.Ints("pads", opset < 18 ? std::vector<int64_t>{0, 1, 0, 2} : std::vector<int64_t>{1, 2});
    m.Ints("axes", {-1});
    m.Floats("value", {}, {9});
    if (opset < 11) {
      auto& node = m.Node("Pad", {"x"}, {"y"});
      ModelBuilder::SetInts(node, "pads", {0, 1, 0, 2});
      ModelBuilder::SetFloat(node, "value", 9);
    } else if (opset < 18) {
      m.Node("Pad", {"x", "pads", "value"}, {"y"});
    } else {
      m.Node("Pad", {"x", "pads", "value", "axes"}, {"y"});
    }
    m.Output("y");
    ExpectArray(m.Run({Array({1, 2}, {1, 2})})[0], {1, 5}, {9, 1, 2, 9, 9});
  }
}

TEST(OnnxImport, UpsampleAndResizeAgreeOnWholeScales) {
  for (int opset : {7, 9, 10, 11, 13}) {
    SCOPED_TRACE(opset);
    ModelBuilder m(opset);
    m.Input("x", {1, 1, 1, 2});
    m.Floats("scales", {4}, {1, 1, 2, 2});
    if (opset == 7) {
      auto& a = ModelBuilder::Attr(m.Node("Upsample", {"x"}, {"y"}), "scales");
      a.set_type(onnx::AttributeProto::FLOATS);
      for (float s : {1.f, 1.f, 2.f, 2.f}) a.add_floats(s);
    } else if (opset < 11) {
      m.Node(opset == 9 ? "Upsample" : "Resize", {"x", "scales"}, {"y"});
    } else {
      m.Node("Resize", {"x", "", "scales"}, {"y"});
    }
    m.Output("y");
    ExpectArray(m.Run({Array({1, 1, 1, 2}, {1, 2})})[0], {1, 1, 2, 4}, {1, 1, 2, 2, 1, 1, 2, 2});
  }
}

TEST(OnnxImport, ShapeArithmeticIsGoneAfterImport) {
  // reshape(x, concat(shape(x)[0], [-1])), as exporters write a flatten.
  ModelBuilder m(13);
  m.Input("x", {2, 3, 4});
  m.Ints("zero", {0});
  m.Ints("rest", {-1});
  m.Node("Shape", {"x"}, {"shape"});
  ModelBuilder::SetInt(m.Node("Gather", {"shape", "zero"}, {"batch"}), "axis", 0);
  ModelBuilder::SetInt(m.Node("Concat", {"batch", "rest"}, {"target"}), "axis", 0);
  m.Node("Reshape", {"x", "target"}, {"y"});
  m.Output("y");
  absl::StatusOr<Graph> g = m.Import();
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(g->nodes.size(), 1u);
  EXPECT_EQ(g->values[g->outputs[0]].type.shape, (Shape{2, 12}));
}

TEST(OnnxImport, KnownOperators) {
  ModelBuilder m(15);
  m.Input("x", {2, 3});
  m.Ints("shape", {2, 3});
  auto& fill = ModelBuilder::Attr(m.Node("ConstantOfShape", {"shape"}, {"five"}), "value");
  fill.set_type(onnx::AttributeProto::TENSOR);
  fill.mutable_t()->set_data_type(onnx::TensorProto::FLOAT);
  fill.mutable_t()->add_dims(1);
  fill.mutable_t()->add_float_data(5);
  m.Node("EyeLike", {"x"}, {"eye"});
  ModelBuilder::SetInt(m.Node("Trilu", {"x"}, {"low"}), "upper", 0);
  m.Node("Sum", {"five", "eye", "low"}, {"y"});
  auto& dims = m.Node("Shape", {"x"}, {"dims"});
  ModelBuilder::SetInt(dims, "start", 1);
  m.Output("y");
  m.Output("dims");
  const auto out = m.Run({Array({2, 3}, {1, 2, 3, 4, 5, 6})});
  ExpectArray(out[0], {2, 3}, {7, 5, 5, 9, 11, 5});
  ExpectArray(out[1], {1}, {3});
}

TEST(OnnxImport, SpaceToDepthUndoesDepthToSpace) {
  ModelBuilder m(13);
  m.Input("x", {1, 4, 1, 2});
  ModelBuilder::SetInt(m.Node("DepthToSpace", {"x"}, {"d"}), "blocksize", 2);
  ModelBuilder::SetInt(m.Node("SpaceToDepth", {"d"}, {"y"}), "blocksize", 2);
  m.Output("d");
  m.Output("y");
  const auto out = m.Run({Array({1, 4, 1, 2}, {1, 2, 3, 4, 5, 6, 7, 8})});
  ExpectArray(out[0], {1, 1, 2, 4}, {1, 3, 2, 4, 5, 7, 6, 8});
  ExpectArray(out[1], {1, 4, 1, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
}

// test_spacetodepth_crd_mode_example of ONNX, its first pixel row and block.
TEST(OnnxImport, SpaceToDepthInEitherOrder) {
  const std::vector<double> dcr = {0, 4, 1, 5, 2, 6, 3, 7}, crd = {0, 1, 2, 3, 4, 5, 6, 7};
  for (const std::string mode : {"DCR", "CRD"}) {
    SCOPED_TRACE(mode);
    ModelBuilder m(13);
    m.Input("x", {1, 2, 2, 2});
    auto& node = m.Node("SpaceToDepth", {"x"}, {"y"});
    ModelBuilder::SetInt(node, "blocksize", 2);
    ModelBuilder::SetString(node, "mode", mode);
    m.Output("y");
    ExpectArray(m.Run({Array({1, 2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7})})[0], {1, 8, 1, 1}, mode == "DCR" ? dcr : crd);
  }
  ModelBuilder odd(13);
  odd.Input("x", {1, 2, 2, 2});
  auto& node = odd.Node("SpaceToDepth", {"x"}, {"y"});
  ModelBuilder::SetInt(node, "blocksize", 2);
  ModelBuilder::SetString(node, "mode", "RCD");
  odd.Output("y");
  EXPECT_THAT(odd.Import().status().ToString(), ::testing::HasSubstr("mode 'RCD'"));
}

// test_l2normalization_axis_0 of ONNX: a row without length stays zero.
TEST(OnnxImport, LpNormalizationOfNothingIsNothing) {
  ModelBuilder m(13);
  m.Input("x", {2, 3});
  ModelBuilder::SetInt(m.Node("LpNormalization", {"x"}, {"y"}), "axis", 0);
  m.Output("y");
  ExpectArray(m.Run({Array({2, 3}, {0, 3, 1, 0, 4, 0})})[0], {2, 3}, {0, 0.6, 1, 0, 0.8, 0});
}

// test_convtranspose_output_shape of ONNX: 9x7 is what the kernel reaches, the rest is zero.
TEST(OnnxImport, ConvTransposeReachesTheShapeThatIsAskedFor) {
  ModelBuilder m(11);
  m.Input("x", {1, 1, 3, 3});
  m.Floats("w", {1, 2, 3, 3}, std::vector<float>(18, 1));
  auto& node = m.Node("ConvTranspose", {"x", "w"}, {"y"});
  ModelBuilder::SetInts(node, "strides", {3, 2});
  ModelBuilder::SetInts(node, "output_shape", {10, 8});
  m.Output("y");
  const std::vector<double> top = {0, 0, 1, 1, 3, 2, 2, 0}, middle = {3, 3, 7, 4, 9, 5, 5, 0},
                            bottom = {6, 6, 13, 7, 15, 8, 8, 0}, none(8, 0);
  std::vector<double> want;
  for (int channel = 0; channel < 2; ++channel) {
    for (const auto* row : {&top, &top, &top, &middle, &middle, &middle, &bottom, &bottom, &bottom, &none})
      want.insert(want.end(), row->begin(), row->end());
  }
  ExpectArray(m.Run({Array({1, 1, 3, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8})})[0], {1, 2, 10, 8}, want);

  ModelBuilder far(11);
  far.Input("x", {1, 1, 3, 3});
  far.Floats("w", {1, 2, 3, 3}, std::vector<float>(18, 1));
  auto& large = far.Node("ConvTranspose", {"x", "w"}, {"y"});
  ModelBuilder::SetInts(large, "output_shape", {10, 8});
  far.Output("y");
  EXPECT_THAT(far.Import().status().ToString(), ::testing::HasSubstr("output_shape is larger"));
}

TEST(OnnxImport, GroupNormalizationByGroupThenByChannel) {
  for (int opset : {18, 21}) {
    SCOPED_TRACE(opset);
    ModelBuilder m(opset);
    m.Input("x", {1, 2, 2});
    if (opset < 21)
      m.Floats("scale", {1}, {2});
    else
      m.Floats("scale", {2}, {2, 2});
    m.Floats("bias", {opset < 21 ? 1 : 2}, opset < 21 ? std::vector<float>{1} : std::vector<float>{1, 1});
    auto& node = m.Node("GroupNormalization", {"x", "scale", "bias"}, {"y"});
    ModelBuilder::SetInt(node, "num_groups", 1);
    ModelBuilder::SetFloat(node, "epsilon", 0);
    m.Output("y");
    ExpectArray(m.Run({Array({1, 2, 2}, {1, 1, 3, 3})})[0], {1, 2, 2}, {-1, -1, 3, 3});
  }
}

// Each of ONNX's fields for elements, packed ones too.
TEST(OnnxImport, WeightsOfEveryType) {
  struct Case {
    int type;
    std::vector<int> data;
    std::vector<double> want;
  };
  constexpr int kBf16 = 16, kE5M2 = 19, kU4 = 21, kI4 = 22, kF4 = 23, kE8M0 = 24, kI2 = 26;
  const Case cases[] = {{onnx::TensorProto::FLOAT16, {0x3c00, 0xc100, 0x0001}, {1, -2.5, std::ldexp(1, -24)}},
                        {kBf16, {0x3f80, 0xc020, 0x0001}, {1, -2.5, std::ldexp(1, -133)}},
                        {kE5M2, {0x3c, 0xc1, 0x01}, {1, -2.5, std::ldexp(1, -16)}},
                        {kE8M0, {0x7f, 0x80, 0x7e}, {1, 2, 0.5}},
                        {onnx::TensorProto::INT16, {1, -2, 300}, {1, -2, 300}},
                        {onnx::TensorProto::UINT16, {1, 2, 65535}, {1, 2, 65535}},
                        {kU4, {0xf1, 0x07}, {1, 15, 7}},
                        {kI4, {0xf1, 0x07}, {1, -1, 7}},
                        {kF4, {0x92, 0x07}, {1, -0.5, 6}},
                        {kI2, {0x2d}, {1, -1, -2}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.type);
    ModelBuilder m(13);
    m.Input("x", {3});
    auto* t = m.model.mutable_graph()->add_initializer();
    t->set_name("w");
    t->set_data_type(c.type);
    t->add_dims(3);
    for (int bits : c.data) t->add_int32_data(bits);
    ModelBuilder::SetInt(m.Node("Cast", {"w"}, {"f"}), "to", onnx::TensorProto::FLOAT);
    m.Node("Add", {"x", "f"}, {"y"});
    m.Output("y");
    ExpectArray(m.Run({Array({3}, {0, 0, 0})})[0], {3}, c.want, 1e-45);
    t->add_int32_data(0);
    EXPECT_THAT(m.Import().status().ToString(), ::testing::HasSubstr("more or less data"));
  }
}

// Saturation is what Cast does unless it is told not to; e8m0 rounds up.
TEST(OnnxImport, CastTakesItsMode) {
  struct Case {
    int to, saturate;
    const char* rounding;
    double want;
  };
  constexpr int kE4M3 = 17, kE8M0 = 24;
  const double nan = std::nan("");
  for (const Case& c : {Case{kE4M3, 1, "", 448},
                        {kE4M3, 0, "", nan},
                        {kE8M0, 1, "", 1024},
                        {kE8M0, 1, "down", 512},
                        {kE8M0, 1, "nearest", 1024}}) {
    ModelBuilder m(13);
    m.Input("x", {1});
    auto& cast = m.Node("Cast", {"x"}, {"c"});
    ModelBuilder::SetInt(cast, "to", c.to);
    if (c.saturate == 0) ModelBuilder::SetInt(cast, "saturate", 0);
    if (*c.rounding != 0) ModelBuilder::SetString(cast, "round_mode", c.rounding);
    ModelBuilder::SetInt(m.Node("Cast", {"c"}, {"y"}), "to", onnx::TensorProto::FLOAT);
    m.Output("y");
    EXPECT_THAT(m.Run({Array({1}, {1000})})[0].At(0), ::testing::NanSensitiveDoubleEq(c.want));
  }
}

TEST(OnnxImport, WeightsMayBeInputsToo) {
  ModelBuilder m(7);
  m.Input("x", {2});
  m.Input("w", {2});
  m.Floats("w", {2}, {5, 6});
  m.Node("Mul", {"x", "w"}, {"y"});
  m.Output("y");
  absl::StatusOr<Graph> g = m.Import();
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(g->inputs.size(), 1u);
}

}  // namespace
}  // namespace temper
