// What the options say of a model's inputs, and inputs without elements.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>

#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using testing::Array, testing::ExpectArray, testing::ModelBuilder;

// A past of open length, and what is put behind it.
ModelBuilder Growing(int64_t past) {
  ModelBuilder m(17);
  m.Input("past", {1, past, 2});
  m.Input("x", {1, 3, 2});
  ModelBuilder::SetInt(m.Node("Concat", {"past", "x"}, {"all"}), "axis", 1);
  m.Node("Neg", {"all"}, {"y"});
  m.Output("y");
  return m;
}

void CheckEmptyPast(const absl::StatusOr<Graph>& g) {
  ASSERT_TRUE(g.ok()) << g.status();
  ASSERT_EQ(g->inputs.size(), 2u);
  EXPECT_EQ(g->values[g->inputs[0]].type.shape, (Shape{1, 0, 2}));
  ASSERT_EQ(g->nodes.size(), 1u);
  const std::vector<NDArray> inputs = {NDArray(DType::kF32, {1, 0, 2}), Array({1, 3, 2}, {1, 2, 3, 4, 5, 6})};
  const absl::StatusOr<std::vector<NDArray>> y = RunReference(*g, inputs);
  ASSERT_TRUE(y.ok()) << y.status();
  ExpectArray((*y)[0], {1, 3, 2}, {-1, -2, -3, -4, -5, -6});
}

TEST(OnnxInputs, AnEmptyPastAddsNothing) {
  CheckEmptyPast(Growing(0).Import());
  CheckEmptyPast(Growing(-1).Import({.shapes = {{"past", {1, 0, 2}}}}));
  CheckEmptyPast(Growing(-1).Import({.dims = {{"n", 0}}}));
  // Some tools write 0 for what is open.
  const absl::StatusOr<Graph> g = Growing(0).Import({.shapes = {{"past", {1, 4, 2}}}});
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(g->values[g->outputs[0]].type.shape, (Shape{1, 7, 2}));
}

// Keys and values of no earlier runs.
TEST(OnnxInputs, AttentionBehindAnEmptyPast) {
  std::vector<NDArray> results;
  for (const bool past : {false, true}) {
    ModelBuilder m(23);
    m.Input("x", {1, 2, 3, 4});
    if (past) m.Input("keys", {1, 2, 0, 4});
    if (past) m.Input("values", {1, 2, 0, 4});
    const std::string keys = past ? "keys" : "", values = past ? "values" : "";
    ModelBuilder::SetInt(m.Node("Attention", {"x", "x", "x", "", keys, values}, {"y", "k", "v"}), "is_causal", 1);
    m.Output("y");
    m.Output("k");
    NDArray x(DType::kF32, {1, 2, 3, 4});
    for (int64_t i = 0; i < x.size(); ++i) x.Set(i, static_cast<double>(i % 7) / 4);
    std::vector<NDArray> inputs = {x};
    inputs.resize(past ? 3 : 1, NDArray(DType::kF32, {1, 2, 0, 4}));
    for (NDArray& result : m.Run(inputs)) results.push_back(std::move(result));
  }
  ASSERT_EQ(results.size(), 4u);
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(results[i].shape(), results[i + 2].shape());
    for (int64_t k = 0; k < results[i].size(); ++k) EXPECT_EQ(results[i].At(k), results[i + 2].At(k));
  }
}

// Products over no keys, and a result that has no elements itself.
TEST(OnnxInputs, WhatIsComputedOfNothingIsKnown) {
  ModelBuilder m(17);
  m.Input("past", {2, 0});
  m.Input("x", {2, 3});
  m.Node("Transpose", {"x"}, {"t"});
  m.Node("MatMul", {"t", "past"}, {"y"});
  m.Node("Relu", {"past"}, {"z"});
  m.Output("y");
  m.Output("z");
  const std::vector<NDArray> y = m.Run({NDArray(DType::kF32, {2, 0}), Array({2, 3}, {1, 2, 3, 4, 5, 6})});
  ASSERT_EQ(y.size(), 2u);
  EXPECT_EQ(y[0].shape(), (Shape{3, 0}));
  EXPECT_EQ(y[1].shape(), (Shape{2, 0}));
  EXPECT_TRUE(m.Import()->nodes.empty());
}

void NameDims(ModelBuilder& m, int input, const std::vector<std::string>& names) {
  auto* type = m.model.mutable_graph()->mutable_input(input)->mutable_type()->mutable_tensor_type();
  for (size_t i = 0; i < names.size(); ++i)
    type->mutable_shape()->mutable_dim(static_cast<int>(i))->set_dim_param(names[i]);
}

ModelBuilder Named(const std::string& sum = "past + new + 1") {
  ModelBuilder m(17);
  m.Input("ids", {-1, -1});
  m.Input("mask", {-1, -1});
  NameDims(m, 0, {"batch", "new"});
  NameDims(m, 1, {"batch", sum});
  m.Node("Neg", {"ids"}, {"y"});
  m.Node("Neg", {"mask"}, {"z"});
  m.Output("y");
  m.Output("z");
  return m;
}

std::string Refused(const ModelBuilder& m, const ImportOptions& options) {
  return std::string(m.Import(options).status().message());
}

TEST(OnnxInputs, DimensionsByTheirNamesAndSumsOfThem) {
  const absl::StatusOr<Graph> g = Named().Import({.dims = {{"batch", 2}, {"new", 3}, {"past", 0}}});
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(g->values[g->inputs[0]].type.shape, (Shape{2, 3}));
  EXPECT_EQ(g->values[g->inputs[1]].type.shape, (Shape{2, 4}));
  // The whole name counts before the sum, and --shape says the same or fixes what is open.
  EXPECT_TRUE(Named().Import({.dims = {{"batch", 2}, {"new", 3}, {"past + new + 1", 9}}}).ok());
  EXPECT_TRUE(Named().Import({.shapes = {{"mask", {2, 9}}}, .dims = {{"batch", 2}, {"new", 3}}}).ok());
}

TEST(OnnxInputs, ARangeIsAnInputBehindTheModelsOwn) {
  ModelBuilder m(17);
  m.Input("x", {-1, 6});
  m.Input("scale", {-1, 1});
  NameDims(m, 0, {"batch"});
  NameDims(m, 1, {"batch"});
  m.Node("Mul", {"x", "scale"}, {"y"});
  m.Node("ReduceMax", {"y"}, {"largest"});
  m.Output("y");
  m.Output("largest");
  const absl::StatusOr<Graph> g = m.Import({.dims = {{"batch", DimLength(1, 4)}}});
  ASSERT_TRUE(g.ok()) << g.status();
  ASSERT_EQ(g->inputs.size(), 3u);
  EXPECT_EQ(g->hidden_inputs, 1);
  ASSERT_EQ(g->input_extents.size(), 2u);
  EXPECT_EQ(g->input_extents[1].told_by, 2);
  EXPECT_EQ(g->input_extents[1].least, 1);
  EXPECT_EQ(g->extents.size(), 1u) << "y has the extent, and its maximum none";
  // Behind the end is what changes no maximum.
  NDArray x(DType::kF32, {4, 6}), scale(DType::kF32, {4, 1}), count(DType::kI64, {});
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, i < 12 ? -2 : 0);
  for (int64_t i = 0; i < 4; ++i) scale.Set(i, i < 2 ? 1.5 : 0);
  count.Set(0, 2);
  const auto results = RunReference(*g, std::vector<NDArray>{x, scale, count});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ((*results)[1].At(0), -3);
  EXPECT_EQ((*results)[2].At(0), 2);
  // One that is no range is none.
  EXPECT_EQ(m.Import({.dims = {{"batch", DimLength(4, 4)}}})->hidden_inputs, 0);
}

// As models flatten images: the rest of a shape is numbers, also where its first one is a range.
TEST(OnnxInputs, PartsOfAShapeThatAreKnownAreComputedWith) {
  ModelBuilder m(17);
  m.Input("x", {-1, 6, 4});
  NameDims(m, 0, {"batch"});
  m.Ints("zero", {0});
  m.Ints("two", {2});
  m.Ints("minus", {-1});
  ModelBuilder::SetInt(m.Node("Shape", {"x"}, {"shape"}), "start", 0);
  m.Node("Gather", {"shape", "zero"}, {"batch"});
  m.Node("Gather", {"shape", "two"}, {"last"});
  m.Node("Div", {"last", "two"}, {"half"});
  m.Node("Concat", {"batch", "minus", "half"}, {"flat"}).add_attribute()->CopyFrom([] {
    onnx::AttributeProto axis;
    axis.set_name("axis");
    axis.set_type(onnx::AttributeProto::INT);
    return axis;
  }());
  m.Node("Reshape", {"x", "flat"}, {"y"});
  m.Output("y");
  const absl::StatusOr<Graph> g = m.Import({.dims = {{"batch", DimLength(1, 4)}}});
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(g->values[g->outputs[0]].type.shape, (Shape{4, 12, 2}));
  EXPECT_EQ(g->extents.size(), 1u);
}

// As attention folds its heads into the batch.
TEST(OnnxInputs, ARangeTimesANumberIsAnExtent) {
  ModelBuilder m(17);
  m.Input("x", {-1, 6, 8});
  NameDims(m, 0, {"batch"});
  m.Ints("zero", {0});
  m.Ints("heads", {2});
  m.Ints("rest", {6, 4});
  m.Node("Shape", {"x"}, {"shape"});
  m.Node("Gather", {"shape", "zero"}, {"batch"});
  m.Node("Mul", {"batch", "heads"}, {"folded"});
  ModelBuilder::SetInt(m.Node("Concat", {"folded", "rest"}, {"first"}), "axis", 0);
  m.Node("Reshape", {"x", "first"}, {"y"});
  m.Output("y");
  m.Output("folded");
  const absl::StatusOr<Graph> g = m.Import({.dims = {{"batch", DimLength(1, 4)}}});
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(g->values[g->outputs[0]].type.shape, (Shape{8, 6, 4}));
  ASSERT_EQ(g->extents.size(), 1u);
  NDArray x(DType::kF32, {4, 6, 8}), count(DType::kI64, {});
  count.Set(0, 3);
  const auto results = RunReference(*g, std::vector<NDArray>{x, count});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ((*results)[1].At(0), 6);
  EXPECT_EQ((*results)[static_cast<size_t>(g->extents[0].told_by)].At(0), 6);
}

// What a hostile reader found: each gave other numbers or another shape for some length.
TEST(OnnxInputs, ReshapesOfARangeKeepItsAxisOrAreRefused) {
  const auto reshaped = [](const std::vector<int64_t>& shape, int axis, const std::vector<int64_t>& to) {
    ModelBuilder m(17);
    m.Input("x", shape);
    auto* dims = m.model.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
    dims->mutable_dim(axis)->set_dim_param("n");
    m.Ints("to", to);
    m.Node("Reshape", {"x", "to"}, {"y"});
    m.Output("y");
    const absl::StatusOr<Graph> g = m.Import({.dims = {{"n", DimLength(1, 8)}}});
    return g.ok() && !g->extents.empty() ? g->extents[0].axis : -1;
  };
  EXPECT_EQ(reshaped({1, -1, 8}, 1, {0, 0, 2, 4}), 1);
  EXPECT_EQ(reshaped({1, -1, 8}, 1, {0, 0, 2, -1}), 1);
  EXPECT_EQ(reshaped({1, -1, 8}, 1, {0, -1}), 1);
  EXPECT_EQ(reshaped({1, -1, 8}, 1, {1, -1, 2, 4}), 1);
  EXPECT_EQ(reshaped({-1, 6}, 0, {-1, 2, 3}), 0);
  EXPECT_EQ(reshaped({-1, 6}, 0, {8, 6}), -1);
  EXPECT_EQ(reshaped({4, -1}, 1, {-1}), 0);
  EXPECT_EQ(reshaped({4, -1}, 1, {32}), -1) << "it would have as many elements at each length";
}

TEST(OnnxInputs, WhatWouldMeetWhatIsBehindTheEndIsRefused) {
  const auto refused = [](const std::function<void(ModelBuilder&)>& make) {
    ModelBuilder m(19);
    m.Input("x", {-1, 6});
    NameDims(m, 0, {"n"});
    make(m);
    m.Output("y");
    return Refused(m, {.dims = {{"n", DimLength(1, 8)}}});
  };
  const std::string knows = "only the run knows";
  EXPECT_THAT(refused([](ModelBuilder& m) { m.Node("Squeeze", {"x"}, {"y"}); }), ::testing::HasSubstr(knows));
  EXPECT_THAT(refused([](ModelBuilder& m) {
                m.Ints("to", {8, 6});
                m.Node("Expand", {"x", "to"}, {"y"});
              }),
              ::testing::HasSubstr(knows));
  EXPECT_THAT(refused([](ModelBuilder& m) {
                m.Ints("pads", {1, 0, 1, 0});
                ModelBuilder::SetString(m.Node("Pad", {"x", "pads"}, {"y"}), "mode", "wrap");
              }),
              ::testing::HasSubstr(knows));
  EXPECT_THAT(refused([](ModelBuilder& m) {
                onnx::NodeProto& node = m.Node("ArgMax", {"x"}, {"y"});
                ModelBuilder::SetInt(node, "axis", 0);
                ModelBuilder::SetInt(node, "select_last_index", 1);
              }),
              ::testing::HasSubstr(knows));
  EXPECT_THAT(refused([](ModelBuilder& m) {
                m.Floats("scale", {6}, std::vector<float>(6, 1));
                ModelBuilder::SetInt(m.Node("LayerNormalization", {"x", "scale"}, {"y"}), "axis", 0);
              }),
              ::testing::HasSubstr(knows));
}

TEST(OnnxInputs, ASumOfRangesIsARangeOfItsOwn) {
  const auto imported = [](const DimLength& past) {
    const absl::StatusOr<Graph> g = Named().Import({.dims = {{"batch", 2}, {"new", DimLength(1, 3)}, {"past", past}}});
    EXPECT_TRUE(g.ok()) << g.status();
    return g.value_or(Graph());
  };
  // Nothing but the sum tells what the past has.
  const Graph apart = imported(DimLength(2, 5));
  ASSERT_EQ(apart.input_extents.size(), 2u);
  EXPECT_EQ(apart.values[apart.inputs[1]].type.shape, (Shape{2, 9}));
  EXPECT_EQ(apart.input_extents[1].least, 4);
  EXPECT_EQ(apart.values[apart.inputs[3]].name, "length of past + new + 1");
  EXPECT_EQ(apart.hidden, 2) << "both outputs have a length of their own";
  // Where all else is known, one length tells the other, and a run says whether both fit.
  const Graph related = imported(4);
  ASSERT_EQ(related.input_extents.size(), 2u);
  EXPECT_EQ(related.values[related.inputs[1]].type.shape, (Shape{2, 8}));
  EXPECT_EQ(related.input_extents[1].least, 6);
  EXPECT_EQ(related.hidden, 3);
  // A sum of nothing else is the range itself.
  const auto same = Named("past + new").Import({.dims = {{"batch", 2}, {"new", DimLength(1, 3)}, {"past", 0}}});
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->hidden_inputs, 1);
  EXPECT_EQ(same->hidden, 1);
}

// Of nothing there may be as many lines as only the run knows.
TEST(OnnxInputs, AnEmptyPastOfARangeOfExamples) {
  const auto imported = [](const char* output) {
    ModelBuilder m(17);
    m.Input("past", {-1, 0, 2});
    m.Input("x", {-1, 3, 2});
    for (const int input : {0, 1}) NameDims(m, input, {"batch"});
    ModelBuilder::SetInt(m.Node("Concat", {"past", "x"}, {"all"}), "axis", 1);
    m.Node("Shape", {"past"}, {"shape of past"});
    m.Ints("first", {0});
    m.Node("Gather", {"shape of past", "first"}, {"batch"});
    m.Ints("six", {6});
    ModelBuilder::SetInt(m.Node("Concat", {"batch", "six"}, {"lines"}), "axis", 0);
    m.Node("Reshape", {"all", "lines"}, {"y"});
    m.Node("Identity", {"past"}, {"nothing"});
    m.Output(output);
    return m.Import({.dims = {{"batch", DimLength(1, 2)}}});
  };
  const absl::StatusOr<Graph> g = imported("y");
  ASSERT_TRUE(g.ok()) << g.status();
  ASSERT_EQ(g->input_extents.size(), 2u);
  ASSERT_EQ(g->extents.size(), 1u);
  NDArray x(DType::kF32, {2, 3, 2}), batch(DType::kI64, {});
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, static_cast<double>(i));
  batch.Set(0, 1);
  const auto y = RunReference(*g, std::vector<NDArray>{NDArray(DType::kF32, {2, 0, 2}), x, batch});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ((*y)[0].At(5), 5);
  EXPECT_EQ((*y)[static_cast<size_t>(g->extents[0].told_by)].as<int64_t>()[0], 1);
  EXPECT_EQ(std::string(imported("nothing").status().message()),
            "test: graph output 'nothing' has no elements, but an extent that only the run knows");
}

TEST(OnnxInputs, RangesThatDoNotFit) {
  EXPECT_EQ(
      Refused(Named(), {.dims = {{"batch", DimLength(1, 2)}, {"new", 3}, {"past", 0}}, .values = {{"mask", {"1"}}}}),
      "test: --value mask: its dimension batch has a range");
  ModelBuilder m(17);
  m.Input("x", {-1, 6});
  NameDims(m, 0, {"batch"});
  m.Floats("one", {4, 6}, std::vector<float>(24, 1));
  m.Node("Add", {"x", "one"}, {"y"});
  m.Output("y");
  EXPECT_THAT(Refused(m, {.dims = {{"batch", DimLength(1, 4)}}}), ::testing::HasSubstr("which add must know"));
}

ModelBuilder Unnamed() {
  ModelBuilder m(17);
  m.Input("x", {-1, 6});
  m.Input("scale", {-1, 1});
  m.model.mutable_graph()->mutable_input(1)->mutable_type()->mutable_tensor_type()->clear_shape();
  m.Node("Mul", {"x", "scale"}, {"y"});
  m.Output("y");
  return m;
}

TEST(OnnxInputs, AShapeNamesDimensions) {
  const std::map<std::string, std::vector<InputDim>> shapes = {{"x", {"n", 6}}, {"scale", {"n", 1}}};
  const absl::StatusOr<Graph> fixed = Unnamed().Import({.shapes = shapes, .dims = {{"n", 4}}});
  ASSERT_TRUE(fixed.ok()) << fixed.status();
  EXPECT_EQ(fixed->values[fixed->inputs[0]].type.shape, (Shape{4, 6}));
  EXPECT_EQ(fixed->values[fixed->inputs[1]].type.shape, (Shape{4, 1}));
  const absl::StatusOr<Graph> g = Unnamed().Import({.shapes = shapes, .dims = {{"n", DimLength(1, 4)}}});
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(g->hidden_inputs, 1) << "inputs that have one name have one length";
  ASSERT_EQ(g->input_extents.size(), 2u);
  EXPECT_EQ(g->input_extents[0].told_by, g->input_extents[1].told_by);
  // A name may replace the model's, be a sum, or stand for what the model fixes.
  const absl::StatusOr<Graph> sum =
      Named().Import({.shapes = {{"ids", {"batch", "all"}}, {"mask", {"batch", "all + 1"}}},
                      .dims = {{"batch", 2}, {"all", DimLength(1, 8)}}});
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(sum->values[sum->inputs[1]].type.shape, (Shape{2, 9}));
  EXPECT_TRUE(Unnamed().Import({.shapes = {{"x", {4, "c"}}, {"scale", {4, 1}}}, .dims = {{"c", 6}}}).ok());
}

TEST(OnnxInputs, NamesThatDoNotFit) {
  EXPECT_EQ(Refused(Unnamed(), {.shapes = {{"x", {"n", 6}}, {"scale", {"n", 1}}}}), "test: give --dim NAME=N for n");
  EXPECT_EQ(Refused(Unnamed(), {.shapes = {{"x", {2, "c"}}, {"scale", {2, 1}}}, .dims = {{"c", 5}}}),
            "test: --shape x: dimension 1 is 6 in the model, not 5");
  EXPECT_EQ(Refused(Unnamed(), {.shapes = {{"x", {2, "c"}}, {"scale", {2, 1}}}, .dims = {{"c", DimLength(1, 6)}}}),
            "test: --shape x: dimension 1 is 6 in the model, no range");
  EXPECT_EQ(Refused(Unnamed(), {.shapes = {{"x", {"n", 6}}, {"scale", {4, 1}}}, .dims = {{"m", 4}}}),
            "test: --dim m: the model has no such dimension, only n");
}

TEST(OnnxInputs, DimensionsThatDoNotFit) {
  EXPECT_EQ(
      Refused(Named(), {.dims = {{"new", 3}}}),
      "test: input 'ids' has open dimensions: give --shape ids=D0,3 with numbers in place of D0, D1, ..., or with "
      "names that --dim gives lengths; "
      "input 'mask' has open dimensions: give --shape mask=D0,D1 with numbers in place of D0, D1, ..., or with "
      "names that --dim gives lengths; "
      "or give --dim NAME=N for batch, past");
  EXPECT_EQ(Refused(Named(), {.dims = {{"Batch", 3}}}),
            "test: --dim Batch: the model has no such dimension, only batch, new, past");
  EXPECT_EQ(Refused(Named(), {.shapes = {{"ids", {1, 2}}}, .dims = {{"new", 3}}}),
            "test: --shape ids: dimension 1 is 3 by --dim new, not 2");
}

ModelBuilder Scaled(const std::vector<int64_t>& shape, int type) {
  ModelBuilder m(17);
  m.Input("x", {2});
  m.Input("by", shape, type);
  ModelBuilder::SetInt(m.Node("Cast", {"by"}, {"float"}), "to", onnx::TensorProto::FLOAT);
  m.Node("Mul", {"x", "float"}, {"y"});
  m.Output("y");
  return m;
}

void CheckScaled(const ModelBuilder& m, const std::vector<std::string>& value, const std::vector<double>& want) {
  const absl::StatusOr<Graph> g = m.Import({.values = {{"by", value}}});
  ASSERT_TRUE(g.ok()) << g.status();
  ASSERT_EQ(g->inputs.size(), 1u) << "the other one is a constant";
  const absl::StatusOr<std::vector<NDArray>> y = RunReference(*g, std::vector<NDArray>{Array({2}, {3, 5})});
  ASSERT_TRUE(y.ok()) << y.status();
  ExpectArray((*y)[0], {2}, want);
}

TEST(OnnxInputs, AnInputThatIsAConstant) {
  CheckScaled(Scaled({}, onnx::TensorProto::INT64), {"-2"}, {-6, -10});
  CheckScaled(Scaled({1}, onnx::TensorProto::BOOL), {"true"}, {3, 5});
  CheckScaled(Scaled({1}, onnx::TensorProto::BOOL), {"0"}, {0, 0});
  CheckScaled(Scaled({2}, onnx::TensorProto::FLOAT), {"0.5", "1e1"}, {1.5, 50});
  CheckScaled(Scaled({-1}, onnx::TensorProto::UINT8), {"7", "255"}, {21, 1275});
}

TEST(OnnxInputs, ValuesThatDoNotFit) {
  const ModelBuilder m = Scaled({2}, onnx::TensorProto::UINT8);
  EXPECT_EQ(Refused(m, {.values = {{"by", {"1", "256"}}}}), "test: --value by: '256' is no u8");
  EXPECT_EQ(Refused(m, {.values = {{"by", {"1", "much"}}}}), "test: --value by: 'much' is no u8");
  EXPECT_EQ(Refused(m, {.values = {{"by", {"1"}}}}), "test: --value by gives 1 number for an input of another size");
  EXPECT_EQ(Refused(m, {.values = {{"no", {"1"}}}}), "test: --value no: the model has no such input, only x, by");
  const ModelBuilder wide = Scaled({-1, -1}, onnx::TensorProto::UINT8);
  EXPECT_EQ(Refused(wide, {.values = {{"by", {"1", "2"}}}}),
            "test: --value by gives 2 numbers for an input of another size");
}

}  // namespace
}  // namespace temper
