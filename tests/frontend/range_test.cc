// Models whose input has a range along an axis: at each length they give what they give where that length is known.
#include <gmock/gmock.h>

#include <cstring>
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
using testing::Permuted;
using testing::RangeChain;
using testing::ShapeLike;
using testing::TestName;
using testing::Weights;
using Ints = std::vector<int64_t>;

void Attention(ModelBuilder& m, bool causal) {
  Permuted(m, "x", "keys", {0, 2, 1});
  m.Node("MatMul", {"x", "keys"}, {"scores"});
  if (causal) {
    m.Floats("lowest", {1}, {-std::numeric_limits<float>::infinity()});
    m.Ints("above", {1});
    ShapeLike(m, "square", {-2, -2});
    m.Node("Expand", {"lowest", "square"}, {"full"});
    m.Node("Trilu", {"full", "above"}, {"hidden"});
    m.Node("Add", {"scores", "hidden"}, {"seen"});
  }
  Axis(m.Node("Softmax", {causal ? "seen" : "scores"}, {"shares"}), -1);
  m.Node("MatMul", {"shares", "x"}, {"y"});
}
void Convolution(ModelBuilder& m, const char* op, int64_t kernel, const Ints& pads, int64_t stride, int64_t dilation) {
  const bool conv = std::string_view(op) == "Conv";
  if (conv) Weights(m, "w", {5, 3, kernel});
  onnx::NodeProto& node = conv ? m.Node(op, {"x", "w"}, {"y"}) : m.Node(op, {"x"}, {"y"});
  if (!conv) ModelBuilder::SetInts(node, "kernel_shape", {kernel});
  ModelBuilder::SetInts(node, "pads", pads);
  ModelBuilder::SetInts(node, "strides", {stride});
  if (dilation != 1) ModelBuilder::SetInts(node, "dilations", {dilation});
  if (std::string_view(op) == "AveragePool") ModelBuilder::SetInt(node, "count_include_pad", 1);
}
void Recurrent(ModelBuilder& m, const char* op, int64_t gates, const char* direction, const char* lengths = "") {
  const int64_t directions = std::string_view(direction) == "bidirectional" ? 2 : 1;
  Weights(m, "w", {directions, gates * 5, 3});
  Weights(m, "r", {directions, gates * 5, 5});
  onnx::NodeProto& node = m.Node(op, {"x", "w", "r", "", lengths}, {"all", "last"});
  ModelBuilder::SetInt(node, "hidden_size", 5);
  ModelBuilder::SetString(node, "direction", direction);
  m.Ints("zero_and_last", {0});
  m.Node("ReduceSum", {"all", "zero_and_last"}, {"sum"});
  m.Node("Squeeze", {"sum", "zero_and_last"}, {"summed"});
  m.Node("Add", {"summed", "last"}, {"y"});
}

void Volumes(ModelBuilder& m) {
  Weights(m, "w", {4, 2, 3, 3, 3});
  onnx::NodeProto& conv = m.Node("Conv", {"x", "w"}, {"c"});
  ModelBuilder::SetInts(conv, "pads", {1, 1, 1, 1, 1, 1});
  ModelBuilder::SetInts(conv, "strides", {2, 1, 1});
  m.Node("Relu", {"c"}, {"r"});
  onnx::NodeProto& pool = m.Node("MaxPool", {"r"}, {"p"});
  ModelBuilder::SetInts(pool, "kernel_shape", {2, 2, 2});
  ModelBuilder::SetInts(pool, "strides", {1, 1, 1});
  Weights(m, "back", {4, 3, 3, 2, 2});
  onnx::NodeProto& up = m.Node("ConvTranspose", {"p", "back"}, {"y"});
  ModelBuilder::SetInts(up, "strides", {2, 2, 2});
  ModelBuilder::SetInts(up, "pads", {1, 0, 0, 0, 0, 0});
}

const RangeChain kRangeChains[] = {
    {"volumes", {-1, 2, 5, 4, 3}, Volumes},
    {"attention", {2, -1, 4}, [](ModelBuilder& m) { Attention(m, false); }},
    {"causal attention", {2, -1, 4}, [](ModelBuilder& m) { Attention(m, true); }},
    {"products of rows, along two axes",
     {-1, 3},
     [](ModelBuilder& m) {
       Permuted(m, "x", "columns", {1, 0});
       m.Node("MatMul", {"x", "columns"}, {"y"});
     }},
    {"products of columns",
     {2, -1, 4},
     [](ModelBuilder& m) {
       Permuted(m, "x", "rows", {0, 2, 1});
       m.Node("MatMul", {"rows", "x"}, {"y"});
     }},
    {"lines by batch and position",
     {3, -1, 4},
     [](ModelBuilder& m) {
       Weights(m, "w", {4, 5});
       m.Ints("lines", {-1, 4});
       m.Node("Reshape", {"x", "lines"}, {"flat"});
       m.Node("MatMul", {"flat", "w"}, {"product"});
       m.Ints("all", {0});
       m.Node("ReduceSum", {"product", "all"}, {"sum"});
       m.Node("Add", {"product", "sum"}, {"both"});
       ShapeLike(m, "back", {3, -2, 5});
       m.Node("Reshape", {"both", "back"}, {"y"});
     }},
    {"lines as the result", {3, -1, 4}, [](ModelBuilder& m) { Axis(m.Node("Flatten", {"x"}, {"y"}), 2); }},
    {"elements by their places in lines",
     {3, -1},
     [](ModelBuilder& m) {
       m.Ints("flat", {-1});
       m.Node("Reshape", {"x", "flat"}, {"line"});
       m.Ints("at", {0, 2, -1, -3});
       m.Node("Gather", {"line", "at"}, {"y"});
     }},
    {"lines behind one another",
     {3, -1},
     [](ModelBuilder& m) {
       m.Ints("flat", {-1});
       m.Node("Reshape", {"x", "flat"}, {"line"});
       m.Floats("more", {2}, {5, 6});
       Axis(m.Node("Concat", {"line", "more", "line"}, {"y"}), 0);
     }},
    {"heads in the batch",
     {5, -1, 4},
     [](ModelBuilder& m) {
       ShapeLike(m, "by_heads", {5, -2, 2, 2});
       m.Node("Reshape", {"x", "by_heads"}, {"heads"});
       Permuted(m, "heads", "first", {1, 2, 0, 3});
       Permuted(m, "heads", "keys", {1, 2, 3, 0});
       m.Node("MatMul", {"first", "keys"}, {"scores"});
       Axis(m.Node("Softmax", {"scores"}, {"shares"}), -1);
       m.Node("MatMul", {"shares", "first"}, {"seen"});
       Permuted(m, "seen", "steps", {2, 0, 1, 3});
       m.Ints("lines", {-1, 4});
       m.Node("Reshape", {"steps", "lines"}, {"flat"});
       Weights(m, "w", {4, 4});
       m.Node("MatMul", {"flat", "w"}, {"mixed"});
       ShapeLike(m, "back", {5, -2, 4});
       m.Node("Reshape", {"mixed", "back"}, {"y"});
     }},
    {"a mean",
     {2, -1, 4},
     [](ModelBuilder& m) {
       ModelBuilder::SetInts(m.Node("ReduceMean", {"x"}, {"mean"}), "axes", {1, 2});
       m.Node("Sub", {"x", "mean"}, {"y"});
     }},
    {"pixels normalised",
     {2, 3, -1},
     [](ModelBuilder& m) {
       m.Floats("scale", {3}, {1, 2, 3});
       m.Floats("bias", {3}, {0, 1, 2});
       m.Node("InstanceNormalization", {"x", "scale", "bias"}, {"y"});
     }},
    {"examples normalised",
     {-1, 3, 4},
     [](ModelBuilder& m) {
       m.Floats("scale", {3}, {1, 2, 3});
       m.Floats("bias", {3}, {0, 1, 2});
       m.Node("InstanceNormalization", {"x", "scale", "bias"}, {"y"});
     }},
    {"a convolution",
     {2, 3, -1},
     [](ModelBuilder& m) {
       Convolution(m, "Conv", 3, {1, 1}, 1, 1);
     }},
    {"a convolution by steps",
     {2, 3, -1},
     [](ModelBuilder& m) {
       Convolution(m, "Conv", 3, {1, 1}, 2, 1);
     }},
    {"a convolution with holes",
     {2, 3, -1},
     [](ModelBuilder& m) {
       Convolution(m, "Conv", 2, {0, 3}, 3, 2);
     }},
    {"a convolution of what was",
     {2, 3, -1},
     [](ModelBuilder& m) {
       Convolution(m, "Conv", 3, {2, 0}, 1, 1);
     }},
    {"a maximum of neighbours",
     {2, 3, -1},
     [](ModelBuilder& m) {
       Convolution(m, "MaxPool", 2, {1, 1}, 2, 1);
     }},
    {"an average of neighbours",
     {2, 3, -1},
     [](ModelBuilder& m) {
       Convolution(m, "AveragePool", 2, {1, 1}, 2, 1);
     }},
    {"two convolutions that meet",
     {2, 3, -1, 6},
     [](ModelBuilder& m) {
       Weights(m, "wide", {4, 3, 3, 3});
       Weights(m, "narrow", {4, 3, 1, 1});
       onnx::NodeProto& one = m.Node("Conv", {"x", "wide"}, {"one"});
       ModelBuilder::SetInts(one, "pads", {1, 1, 1, 1});
       ModelBuilder::SetInts(one, "strides", {2, 2});
       ModelBuilder::SetInts(m.Node("Conv", {"x", "narrow"}, {"other"}), "strides", {2, 2});
       m.Node("Add", {"one", "other"}, {"sum"});
       m.Node("GlobalAveragePool", {"sum"}, {"y"});
     }},
    {"pads",
     {2, -1, 3},
     [](ModelBuilder& m) {
       m.Ints("pads", {0, 2, 0, 0, 1, 1});
       m.Floats("value", {}, {9});
       m.Node("Pad", {"x", "pads", "value"}, {"y"});
     }},
    {"pads that take away",
     {2, -1, 3},
     [](ModelBuilder& m) {
       m.Ints("pads", {0, 1, 0, 0, -1, 0});
       m.Node("Pad", {"x", "pads"}, {"y"});
     }},
    {"steps of an LSTM", {-1, 2, 3}, [](ModelBuilder& m) { Recurrent(m, "LSTM", 4, "bidirectional"); }},
    {"sequences of an LSTM", {4, -1, 3}, [](ModelBuilder& m) { Recurrent(m, "LSTM", 4, "forward"); }},
    {"steps of a GRU", {-1, 2, 3}, [](ModelBuilder& m) { Recurrent(m, "GRU", 3, "reverse"); }},
    {"steps of sequences that end early",
     {-1, 2, 3},
     [](ModelBuilder& m) {
       ShapeLike(m, "steps", {-1, -1});
       m.Ints("least", {1, 3});
       m.Node("Min", {"steps", "least"}, {"fewer"});
       ModelBuilder::SetInt(m.Node("Cast", {"fewer"}, {"lengths"}), "to", onnx::TensorProto::INT32);
       Recurrent(m, "GRU", 3, "bidirectional", "lengths");
     }},
    {"sequences of an RNN", {4, -1, 3}, [](ModelBuilder& m) { Recurrent(m, "RNN", 1, "bidirectional"); }},
    {"a row again and again",
     {1, -1, 3},
     [](ModelBuilder& m) {
       m.Floats("row", {1, 1, 3}, {1, 2, 3});
       ShapeLike(m, "repeats", {1, -2, 1});
       m.Node("Tile", {"row", "repeats"}, {"rows"});
       m.Node("Mul", {"x", "rows"}, {"y"});
     }},
    {"elements beside elements",
     {2, -1},
     [](ModelBuilder& m) {
       m.Node("Shape", {"x"}, {"shape"});
       m.Ints("one", {1});
       m.Node("ConstantOfShape", {"shape"}, {"zeros"});
       ModelBuilder::SetInt(m.Node("Cast", {"zeros"}, {"first"}), "to", onnx::TensorProto::INT64);
       m.Node("Sub", {"first", "one"}, {"last"});
       Axis(m.Node("GatherElements", {"x", "last"}, {"y"}), 1);
     }},
    {"a part of a table for each",
     {1, -1, 3},
     [](ModelBuilder& m) {
       Weights(m, "table", {1, 9, 9});
       m.Ints("zeros", {0, 0});
       m.Ints("axes", {1, 2});
       ShapeLike(m, "ends", {-2, -2});
       m.Node("Slice", {"table", "zeros", "ends", "axes"}, {"part"});
       m.Node("MatMul", {"part", "x"}, {"y"});
     }},
    {"attention where all is hidden",
     {2, -1, 4},
     [](ModelBuilder& m) {
       Permuted(m, "x", "keys", {0, 2, 1});
       m.Node("MatMul", {"x", "keys"}, {"scores"});
       m.Floats("low", {}, {-100});
       m.Floats("lowest", {}, {-std::numeric_limits<float>::infinity()});
       m.Floats("zero", {}, {0});
       m.Node("Greater", {"scores", "low"}, {"hidden"});
       m.Node("Where", {"hidden", "lowest", "scores"}, {"seen"});
       Axis(m.Node("Softmax", {"seen"}, {"shares"}), -1);
       m.Node("Where", {"hidden", "zero", "shares"}, {"safe"});
       m.Node("MatMul", {"safe", "x"}, {"y"});
     }},
    {"all but the last and the first",
     {2, -1},
     [](ModelBuilder& m) {
       m.Ints("first", {1});
       m.Ints("zero", {0});
       m.Ints("last", {-1});
       m.Ints("end", {std::numeric_limits<int64_t>::max()});
       m.Node("Slice", {"x", "zero", "last", "first"}, {"before"});
       m.Node("Slice", {"x", "first", "end", "first"}, {"behind"});
       m.Node("Sub", {"behind", "before"}, {"y"});
     }},
    {"a convolution of what was, by pads",
     {2, 3, -1},
     [](ModelBuilder& m) {
       Weights(m, "w", {3, 3, 3});
       m.Ints("pads", {0, 0, 4, 0, 0, 0});
       m.Node("Pad", {"x", "pads"}, {"padded"});
       ModelBuilder::SetInts(m.Node("Conv", {"padded", "w"}, {"seen"}), "dilations", {2});
       m.Node("Add", {"x", "seen"}, {"y"});
     }},
    {"one more, and one less",
     {2, 3, -1},
     [](ModelBuilder& m) {
       Weights(m, "w", {3, 3, 4});
       ModelBuilder::SetInts(m.Node("Conv", {"x", "w"}, {"more"}), "pads", {2, 2});
       m.Ints("zero", {0});
       m.Ints("last", {-1});
       m.Ints("axis", {2});
       m.Node("Slice", {"more", "zero", "last", "axis"}, {"as_many"});
       m.Node("Add", {"x", "as_many"}, {"y"});
     }},
    {"positions behind what was there before",
     {1, -1, 3},
     [](ModelBuilder& m) {
       Weights(m, "next", {1, 2, 3});
       Axis(m.Node("Concat", {"x", "next"}, {"all"}), 1);
       m.Node("Shape", {"x"}, {"shape"});
       int64_t number = 0;
       for (const char* name : {"zero", "one", "two"}) {
         m.Ints(std::string(name) + "s", {number++});
         m.Node("Squeeze", {std::string(name) + "s"}, {name});
       }
       m.Node("Gather", {"shape", "one"}, {"past"});
       m.Node("Add", {"past", "two"}, {"total"});
       m.Node("Range", {"past", "total", "one"}, {"own"});   // two of them
       m.Node("Range", {"zero", "total", "one"}, {"seen"});  // as many as all
       m.Ints("last", {1});
       m.Node("Unsqueeze", {"own", "last"}, {"rows"});
       m.Node("LessOrEqual", {"seen", "rows"}, {"causal"});  // [2, total]
       ModelBuilder::SetInt(m.Node("Cast", {"causal"}, {"weights"}), "to", onnx::TensorProto::FLOAT);
       m.Node("MatMul", {"weights", "all"}, {"sums"});  // [1, 2, 3]
       m.Node("Sub", {"total", "past"}, {"new"});
       m.Ints("front", {0});
       m.Node("Unsqueeze", {"new", "front"}, {"count"});
       m.Node("Slice", {"sums", "front", "count", "last"}, {"part"});
       Axis(m.Node("Concat", {"x", "part"}, {"y"}), 1);
     }},
    {"a view as long as strided convolutions leave it",
     {1, 3, -1},
     [](ModelBuilder& m) {
       for (const auto& [from, to, w, channels] :
            {std::tuple{"x", "half", "w1", 3}, std::tuple{"half", "quarter", "w2", 5}}) {
         Weights(m, w, {5, channels, 3});
         onnx::NodeProto& conv = m.Node("Conv", {from, w}, {to});
         ModelBuilder::SetInts(conv, "pads", {1, 1});
         ModelBuilder::SetInts(conv, "strides", {2});
       }
       ShapeLike(m, "length", {-3});
       m.Ints("one", {1});
       m.Ints("two", {2});
       std::string last = "length";
       for (const char* step : {"first", "second"}) {  // (length - 1) / 2 + 1, twice
         const std::string name = step;
         m.Node("Sub", {last, "one"}, {name + "_less"});
         m.Node("Div", {name + "_less", "two"}, {name + "_half"});
         last = name + "_stops";
         m.Node("Add", {name + "_half", "one"}, {last});
       }
       m.Ints("five", {5});
       Axis(m.Node("Concat", {"one", "five", last}, {"shape"}), 0);
       m.Node("Reshape", {"quarter", "shape"}, {"y"});
     }},
    {"a part of a shape from before its beginning",
     {1, -1, 6},
     [](ModelBuilder& m) {
       m.Node("Shape", {"x"}, {"all"});
       m.Ints("lowest", {std::numeric_limits<int64_t>::min()});
       m.Ints("last", {-1});
       m.Ints("heads", {2, 3});
       m.Ints("front", {0});
       m.Node("Slice", {"all", "lowest", "last", "front"}, {"outer"});
       Axis(m.Node("Concat", {"outer", "heads"}, {"shape"}), 0);
       m.Node("Reshape", {"x", "shape"}, {"y"});
     }},
    {"an image that is resized, as many as there are",
     {-1, 2, 3, 3},
     [](ModelBuilder& m) {
       ShapeLike(m, "outer", {-1, -2});
       m.Ints("sizes", {6, 5});
       Axis(m.Node("Concat", {"outer", "sizes"}, {"shape"}), 0);
       onnx::NodeProto& resize = m.Node("Resize", {"x", "", "", "shape"}, {"y"});
       ModelBuilder::SetString(resize, "mode", "linear");
     }},
    {"positions along a fixed axis, by a shape of 32 bits",
     {-1, 4},
     [](ModelBuilder& m) {
       m.Node("Shape", {"x"}, {"shape"});
       ModelBuilder::SetInt(m.Node("Cast", {"shape"}, {"narrow"}), "to", onnx::TensorProto::INT32);
       int64_t number = 0;
       for (const char* name : {"zero", "one"}) {
         m.Ints(std::string(name) + "s", {number++});
         m.Node("Squeeze", {std::string(name) + "s"}, {name});
         ModelBuilder::SetInt(m.Node("Cast", {name}, {std::string(name) + "32"}), "to", onnx::TensorProto::INT32);
       }
       m.Node("Slice", {"narrow", "ones", "twos", "zeros"}, {"columns"});
       m.Ints("twos", {2});
       m.Node("Squeeze", {"columns"}, {"count"});
       m.Node("Range", {"zero32", "count", "one32"}, {"at"});
       ModelBuilder::SetInt(m.Node("Cast", {"at"}, {"offsets"}), "to", onnx::TensorProto::FLOAT);
       m.Node("Add", {"x", "offsets"}, {"y"});
     }},
    {"a slice that starts at nothing",
     {1, -1, 3},
     [](ModelBuilder& m) {
       Weights(m, "table", {1, 9, 3});
       ShapeLike(m, "end", {-2});
       m.Ints("axis", {1});
       m.Node("Sub", {"end", "end"}, {"start"});
       m.Node("Slice", {"table", "start", "end", "axis"}, {"part"});
       m.Node("Add", {"part", "x"}, {"y"});
     }},
};

class Range : public ::testing::TestWithParam<RangeChain> {};

TEST_P(Range, GivesWhatItGivesOfAKnownLength) { ExpectAsOfKnownLengths(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Chains, Range, ::testing::ValuesIn(kRangeChains),
                         [](const auto& info) { return TestName(info.param.name); });

// A kernel may transform what no window sees with what one does, as Winograd's do.
TEST(OnnxRange, ConvolutionsFindZerosBehindTheEnd) {
  const RangeChain chain = {"", {2, 3, -1}, [](ModelBuilder& m) { Convolution(m, "Conv", 3, {0, 0}, 1, 1); }};
  const absl::StatusOr<Graph> g = ModelOf(chain).Import({.dims = {{"n", DimLength(3, kMost)}}});
  ASSERT_TRUE(g.ok()) << g.status();
  const auto conv = std::ranges::find(g->nodes, "conv2d", &Node::op);
  ASSERT_NE(conv, g->nodes.end());
  const auto image = std::ranges::find(g->nodes, conv->inputs[0], &Node::output);
  ASSERT_NE(image, g->nodes.end());
  EXPECT_EQ(image->op, "where");
}

// ONNX Runtime takes such a list, too.
TEST(OnnxRange, AListSaysNothingOfWhatIsNotThere) {
  ModelBuilder m(17);
  m.Input("x", {-1});
  m.model.mutable_graph()
      ->mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->mutable_dim(0)
      ->set_dim_param("n");
  m.Input("list", {4}, onnx::TensorProto::BOOL);
  Axis(m.Node("Compress", {"x", "list"}, {"y"}), 0);
  m.Output("y");
  const absl::StatusOr<Graph> g = m.Import({.dims = {{"n", DimLength(1, 4)}}});
  ASSERT_TRUE(g.ok()) << g.status();
  NDArray x(DType::kF32, {4}), list(DType::kBool, {4}), count(DType::kI64, {});
  for (const int64_t i : {0, 2, 3}) list.Set(i, 1);
  count.Set(0, 3);
  const auto results = RunReference(*g, std::vector<NDArray>{x, list, count});
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(g->extents.size(), 1u);
  EXPECT_EQ((*results)[static_cast<size_t>(g->extents[0].told_by)].At(0), 2);
}

TEST(OnnxRange, NoExtentIsCountedWithTheLongestNumbers) {
  using Limits = std::numeric_limits<int64_t>;
  for (const char* op : {"Add", "Sub", "Mul", "Div"}) {
    for (const int64_t number : {Limits::max(), Limits::min(), Limits::max() - 1, Limits::min() + 1}) {
      const RangeChain chain = {"a shape from a long number", {1, -1, 2}, [&](ModelBuilder& m) {
                                  ShapeLike(m, "length", {-2});
                                  m.Ints("number", {number});
                                  m.Node(op, {"length", "number"}, {"counted"});
                                  m.Ints("rest", {-1});
                                  Axis(m.Node("Concat", {"counted", "rest"}, {"shape"}), 0);
                                  m.Node("Reshape", {"x", "shape"}, {"y"});
                                }};
      const absl::Status status = ModelOf(chain).Import({.dims = {{"n", DimLength(2, kMost)}}}).status();
      EXPECT_THAT(std::string(status.message()), HasSubstr("depends on the model's inputs")) << op << " " << number;
    }
  }
}

TEST(OnnxRange, WhatDependsOnWhereTheEndIs) {
  const RangeChain refused[] = {
      {"channels",
       {1, -1, 6},
       [](ModelBuilder& m) {
         Weights(m, "w", {2, kMost, 1});
         m.Node("Conv", {"x", "w"}, {"y"});
       }},
      {"a scale by the size of heads",
       {1, 2, 3, -1},
       [](ModelBuilder& m) {
         m.Node("Attention", {"x", "x", "x"}, {"y"});
       }},
      {"positions by the image's size",
       {1, 1, -1, 4},
       [](ModelBuilder& m) {
         Weights(m, "grid", {1, 2, 2, 2});
         m.Node("GridSample", {"x", "grid"}, {"y"});
       }},
      {"positions of maxima",
       {1, 2, -1},
       [](ModelBuilder& m) {
         ModelBuilder::SetInts(m.Node("MaxPool", {"x"}, {"y", "positions"}), "kernel_shape", {2});
         m.Output("positions");
       }},
      {"a window that may not fit",
       {1, 2, -1},
       [](ModelBuilder& m) { ModelBuilder::SetInts(m.Node("MaxPool", {"x"}, {"y"}), "kernel_shape", {3}); }},
      {"pairs of several lines",
       {2, -1},
       [](ModelBuilder& m) {
         m.Ints("pairs", {-1, kMost});
         m.Node("Reshape", {"x", "pairs"}, {"y"});
       }},
      {"extents that are one at the most",
       {1, 1, -1},
       [](ModelBuilder& m) {
         onnx::NodeProto& half = m.Node("MaxPool", {"x"}, {"half"});
         ModelBuilder::SetInts(half, "kernel_shape", {2});
         ModelBuilder::SetInts(half, "strides", {2});
         m.Ints("from", {4});
         m.Ints("to", {kMost});
         m.Ints("axis", {2});
         m.Node("Slice", {"x", "from", "to", "axis"}, {"later"});
         m.Node("Shape", {"later"}, {"shape"});
         m.Node("Gather", {"shape", "axis"}, {"length"});
         m.Ints("rest", {-1});
         Axis(m.Node("Concat", {"length", "rest"}, {"told"}), 0);
         m.Node("Reshape", {"half", "told"}, {"y"});
       }},
  };
  for (const RangeChain& chain : refused) {
    ModelBuilder m = ModelOf(chain);
    m.model.mutable_opset_import(0)->set_version(23);
    const absl::Status status = m.Import({.dims = {{"n", DimLength(2, kMost)}}}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << chain.name << ": " << status;
    EXPECT_TRUE(m.Import({.dims = {{"n", kMost}}}).ok()) << chain.name << m.Import({.dims = {{"n", kMost}}}).status();
  }
}

}  // namespace
}  // namespace temper
