// Models whose input has ranges along two axes: for each choice of lengths they give what they give where both are
// known.
#include <gmock/gmock.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <limits>

#include "base/rng.h"
#include "base/strides.h"
#include "tests/frontend/range_chain.h"

namespace temper {
namespace {

using testing::Axis;
using ::testing::HasSubstr;
using testing::ModelBuilder;
using testing::Permuted;
using testing::RangeChain;
using testing::TestName;
using testing::Weights;
using Ints = std::vector<int64_t>;

constexpr int64_t kMostN = 3, kMostM = 6;
constexpr int64_t kN = -1, kM = -2;  // lengths of x that are ranges

// "n" and "m" of x, whose axes they are, as vectors of one element.
void BothLengths(ModelBuilder& m, int64_t n_axis, int64_t m_axis) {
  m.Node("Shape", {"x"}, {"shape of x"});
  m.Ints("n axis", {n_axis});
  m.Ints("m axis", {m_axis});
  m.Node("Gather", {"shape of x", "n axis"}, {"n"});
  m.Node("Gather", {"shape of x", "m axis"}, {"m"});
}
void Reshaped(ModelBuilder& m, const char* from, const char* to, const std::vector<std::string>& dims) {
  std::vector<std::string> parts;
  for (const std::string& dim : dims) {
    parts.push_back(dim);
    if (dim == "n" || dim == "m" || dim == "nm" || dim == "2n") continue;
    parts.back() = std::string(to) + " has " + dim + " at " + std::to_string(parts.size());
    m.Ints(parts.back(), {std::stoll(dim)});
  }
  const std::string shape = std::string("shape of ") + to;
  Axis(m.Node("Concat", parts, {shape}), 0);
  m.Node("Reshape", {from, shape}, {to});
}

void Attention(ModelBuilder& m) {
  BothLengths(m, 0, 1);
  Reshaped(m, "x", "heads", {"n", "m", "2", "4"});
  Permuted(m, "heads", "rows", {0, 2, 1, 3});
  Permuted(m, "heads", "keys", {0, 2, 3, 1});
  m.Node("MatMul", {"rows", "keys"}, {"scores"});
  Axis(m.Node("Softmax", {"scores"}, {"shares"}), -1);
  m.Node("MatMul", {"shares", "rows"}, {"seen"});
  Permuted(m, "seen", "steps", {0, 2, 1, 3});
  Reshaped(m, "steps", "y", {"n", "m", "8"});
}

void Recurrent(ModelBuilder& m) {
  Weights(m, "w", {2, 20, 3});
  Weights(m, "r", {2, 20, 5});
  onnx::NodeProto& node = m.Node("LSTM", {"x", "w", "r"}, {"all", "last"});
  ModelBuilder::SetInt(node, "hidden_size", 5);
  ModelBuilder::SetString(node, "direction", "bidirectional");
  m.Node("Add", {"all", "last"}, {"y"});
}

void Image(ModelBuilder& m, bool pooled) {
  Weights(m, "w", {4, 2, 3, 3});
  Weights(m, "v", {4, 2, 1, 1});
  onnx::NodeProto& wide = m.Node("Conv", {"x", "w"}, {"wide"});
  ModelBuilder::SetInts(wide, "pads", {1, 1, 1, 1});
  ModelBuilder::SetInts(wide, "strides", {2, 1});
  ModelBuilder::SetInts(m.Node("Conv", {"x", "v"}, {"narrow"}), "strides", {2, 1});
  m.Node("Add", {"wide", "narrow"}, {"sum"});
  onnx::NodeProto& pool = m.Node("MaxPool", {"sum"}, {pooled ? "most" : "y"});
  ModelBuilder::SetInts(pool, "kernel_shape", {2, 2});
  ModelBuilder::SetInts(pool, "pads", {1, 0, 0, 1});
  if (pooled) m.Node("GlobalAveragePool", {"most"}, {"y"});
}

// The middles of an image's pixels, and each's stride, as detectors take them from the image's own shape.
void Middles(ModelBuilder& m, const std::string& image, float stride) {
  const auto named = [&image](const char* what) { return image + " " + what; };
  m.Node("Shape", {image}, {named("shape")});
  for (const auto& [side, at, alone] : {std::tuple("y", "rows", "columns alone"), {"x", "columns", "rows alone"}}) {
    m.Node("Gather", {named("shape"), std::string("axis of ") + at}, {named(at)});
    ModelBuilder::SetInt(m.Node("Cast", {named(at)}, {named(at) + " in floats"}), "to", onnx::TensorProto::FLOAT);
    m.Node("Range", {"nought", named(at) + " in floats", "unit"}, {named(side) + " from 0"});
    m.Node("Add", {named(side) + " from 0", "half of it"}, {named(side)});
    m.Node("Shape", {named(side)}, {named(side) + " count"});
    m.Node("Reshape", {named(side), alone}, {named(side) + " lies"});
  }
  Axis(m.Node("Concat", {named("y count"), named("x count")}, {named("sides")}), 0);
  for (const char* side : {"x", "y"}) {
    m.Node("Expand", {named(side) + " lies", named("sides")}, {named(side) + " of all"});
    m.Node("Unsqueeze", {named(side) + " of all", "last"}, {named(side) + " alone"});
  }
  Axis(m.Node("Concat", {named("x alone"), named("y alone")}, {named("pairs")}), -1);
  m.Node("Reshape", {named("pairs"), "two each"}, {named("middles")});
  m.Node("Mul", {named("rows"), named("columns")}, {named("pixels")});
  m.Node("Unsqueeze", {named("pixels"), "first"}, {named("count")});
  Axis(m.Node("Concat", {named("count"), "one"}, {named("column")}), 0);
  m.Node("ConstantOfShape", {named("column")}, {named("zeros")});
  m.Floats(named("stride"), {}, {stride});
  m.Node("Add", {named("zeros"), named("stride")}, {named("strides")});
}

// Boxes of all pixels of an image and of a smaller one.
void Boxes(ModelBuilder& m) {
  m.Floats("nought", {}, {0});
  m.Floats("unit", {}, {1});
  m.Floats("half of it", {}, {0.5});
  for (const auto& [name, at] : {std::pair("axis of rows", 2), {"axis of columns", 3}}) {
    m.Ints(std::string(name) + " in a vector", {at});
    m.Node("Squeeze", {std::string(name) + " in a vector"}, {name});
  }
  m.Ints("columns alone", {-1, 1});
  m.Ints("rows alone", {1, -1});
  m.Ints("two each", {-1, 2});
  m.Ints("last", {-1});
  m.Ints("first", {0});
  m.Ints("one", {1});
  m.Ints("two channels", {1, 2, -1});
  onnx::NodeProto& pool = m.Node("MaxPool", {"x"}, {"small"});
  ModelBuilder::SetInts(pool, "kernel_shape", {1, 1});
  ModelBuilder::SetInts(pool, "strides", {2, 2});
  for (const auto& [image, stride] : {std::pair("x", 8.0f), {"small", 16.0f}}) {
    Middles(m, image, stride);
    m.Node("Reshape", {image, "two channels"}, {std::string(image) + " boxes"});
  }
  Axis(m.Node("Concat", {"x boxes", "small boxes"}, {"boxes"}), 2);
  Axis(m.Node("Concat", {"x middles", "small middles"}, {"middles"}), 0);
  Axis(m.Node("Concat", {"x strides", "small strides"}, {"strides"}), 0);
  Permuted(m, "middles", "places", {1, 0});
  Permuted(m, "strides", "scales", {1, 0});
  m.Node("Sub", {"places", "boxes"}, {"corners"});
  m.Node("Mul", {"corners", "scales"}, {"y"});
}

const RangeChain kTwoRangeChains[] = {
    {"the largest of each row replaced",
     {kN, kM, 3},
     [](ModelBuilder& m) {
       Axis(m.Node("ArgMax", {"x"}, {"at"}), 1);
       ModelBuilder::SetInts(m.Node("ReduceMax", {"x"}, {"largest"}), "axes", {1});
       m.Node("Neg", {"largest"}, {"updates"});
       Axis(m.Node("ScatterElements", {"x", "at", "updates"}, {"y"}), 1);
     }},
    {"boxes of pixels of two sizes", {1, 2, kN, kM}, Boxes},
    {"axes that change places",
     {kN, kM, 4},
     [](ModelBuilder& m) {
       BothLengths(m, 0, 1);
       Reshaped(m, "x", "y", {"m", "n", "4"});
     }},
    {"rows of all examples, and the other way round",
     {kN, kM, 4},
     [](ModelBuilder& m) {
       BothLengths(m, 0, 1);
       m.Node("Mul", {"n", "m"}, {"nm"});
       Reshaped(m, "x", "rows", {"nm", "4"});
       Reshaped(m, "rows", "y", {"m", "n", "4"});
     }},
    {"groups of channels",
     {2, 4, kN, kM},
     [](ModelBuilder& m) {
       m.Ints("groups", {0, 2, -1});
       m.Node("Reshape", {"x", "groups"}, {"lines"});
       m.Floats("ones", {2}, {1, 1});
       m.Floats("zeros", {2}, {0, 0});
       m.Node("InstanceNormalization", {"lines", "ones", "zeros"}, {"even"});
       m.Node("Shape", {"x"}, {"shape"});
       m.Node("Reshape", {"even", "shape"}, {"y"});
     }},
    {"relative positions",
     {2, kN, kM},
     [](ModelBuilder& m) {
       BothLengths(m, 1, 2);
       m.Ints("pads", {0, 0, 1, 0, 0, 0});
       m.Ints("one", {1});
       m.Ints("all", {1 << 20});
       m.Node("Pad", {"x", "pads"}, {"padded"});
       m.Node("Add", {"m", "one"}, {"more"});
       m.Ints("two", {2});
       Axis(m.Node("Concat", {"two", "more", "n"}, {"turned"}), 0);
       m.Node("Reshape", {"padded", "turned"}, {"shifted"});
       m.Node("Slice", {"shifted", "one", "all", "one"}, {"rest"});
       m.Node("Shape", {"x"}, {"shape"});
       m.Node("Reshape", {"rest", "shape"}, {"y"});
     }},
    {"a diagonal",
     {kM, kM},
     [](ModelBuilder& m) {
       ModelBuilder::SetInt(m.Node("EyeLike", {"x"}, {"ones"}), "k", 1);
       m.Node("Mul", {"x", "ones"}, {"y"});
     }},
    {"attention", {kN, kM, 8}, Attention},
    {"steps and sequences of an LSTM", {kM, kN, 3}, Recurrent},
    {"an image", {2, 2, kM, kN}, [](ModelBuilder& m) { Image(m, false); }},
    {"an image to numbers", {2, 2, kM, kN}, [](ModelBuilder& m) { Image(m, true); }},
    {"the outer axis behind the inner one",
     {kN, 2, kM},
     [](ModelBuilder& m) {
       Permuted(m, "x", "y", {2, 1, 0});
     }},
    {"products of rows",
     {kM, kN},
     [](ModelBuilder& m) {
       Permuted(m, "x", "columns", {1, 0});
       m.Node("MatMul", {"x", "columns"}, {"y"});
     }},
    {"one range twice", {kM, 2, kM}, [](ModelBuilder& m) { Axis(m.Node("Softmax", {"x"}, {"y"}), 0); }},
    {"a mean of all",
     {kN, kM, 3},
     [](ModelBuilder& m) {
       m.Node("ReduceMean", {"x"}, {"mean"});
       m.Node("Sub", {"x", "mean"}, {"y"});
     }},
    {"rows of all examples",
     {kN, kM, 4},
     [](ModelBuilder& m) {
       BothLengths(m, 0, 1);
       Reshaped(m, "x", "rows", {"-1", "4"});
       Weights(m, "w", {4, 6});
       m.Node("MatMul", {"rows", "w"}, {"product"});
       m.Node("ReduceMean", {"product"}, {"mean"});
       m.Node("Sub", {"product", "mean"}, {"centered"});
       Reshaped(m, "centered", "heads", {"n", "m", "2", "3"});
       Permuted(m, "heads", "first", {2, 1, 0, 3});
       Reshaped(m, "first", "y", {"2", "-1", "3"});
     }},
    {"rows of all examples, by their number",
     {kM, kN, 4},
     [](ModelBuilder& m) {
       BothLengths(m, 1, 0);
       m.Node("Mul", {"m", "n"}, {"nm"});
       Reshaped(m, "x", "rows", {"nm", "2", "2"});
       Reshaped(m, "rows", "halves", {"0", "4"});
       Axis(m.Node("Softmax", {"halves"}, {"shares"}), 0);
       Reshaped(m, "shares", "y", {"m", "-1", "4"});
     }},
    {"rows by their number, and the rest",
     {kN, kM, 4},
     [](ModelBuilder& m) {
       BothLengths(m, 0, 1);
       m.Node("Mul", {"m", "n"}, {"nm"});
       Reshaped(m, "x", "rows", {"nm", "-1"});
       Axis(m.Node("Softmax", {"rows"}, {"shares"}), 0);
       m.Ints("four", {4});
       m.Node("Mul", {"nm", "four"}, {"all"});
       m.Node("Reshape", {"shares", "all"}, {"y"});
     }},
    {"rows that are the result", {kN, kM, 4}, [](ModelBuilder& m) { Axis(m.Node("Flatten", {"x"}, {"y"}), 2); }},
    {"pixels that are the result",
     {2, kN, kM, 3},
     [](ModelBuilder& m) {
       m.Ints("pixels", {2, -1, 3});
       m.Node("Reshape", {"x", "pixels"}, {"y"});
     }},
    {"heads among examples",
     {kM, kN, 4},
     [](ModelBuilder& m) {
       BothLengths(m, 1, 0);
       m.Ints("two", {2});
       m.Node("Mul", {"n", "two"}, {"2n"});
       Reshaped(m, "x", "heads", {"m", "2n", "2"});
       Axis(m.Node("Softmax", {"heads"}, {"shares"}), 0);
       m.Node("Mul", {"m", "n"}, {"nm"});
       Reshaped(m, "shares", "rows", {"nm", "4"});
       Weights(m, "w", {4, 4});
       m.Node("MatMul", {"rows", "w"}, {"product"});
       Reshaped(m, "product", "y", {"m", "n", "4"});
     }},
    {"rows by their places",
     {kN, kM},
     [](ModelBuilder& m) {
       m.Ints("flat", {-1});
       m.Node("Reshape", {"x", "flat"}, {"line"});
       m.Ints("at", {0, 1, -1, -2});
       m.Node("Gather", {"line", "at"}, {"y"});
     }},
    {"rows behind one another",
     {kN, kM},
     [](ModelBuilder& m) {
       m.Ints("flat", {-1});
       m.Node("Reshape", {"x", "flat"}, {"line"});
       m.Floats("more", {2}, {5, 6});
       Axis(m.Node("Concat", {"line", "more", "line"}, {"y"}), 0);
     }},
    {"pixels of an image",
     {kN, 2, kM, 3},
     [](ModelBuilder& m) {
       BothLengths(m, 0, 2);
       Reshaped(m, "x", "pixels", {"n", "2", "-1"});
       Permuted(m, "pixels", "turned", {0, 2, 1});
       Reshaped(m, "turned", "rows", {"-1", "2"});
       Reshaped(m, "rows", "y", {"n", "m", "3", "2"});
     }},
    {"channels among rows",
     {kN, 2, kM, 3},
     [](ModelBuilder& m) {
       BothLengths(m, 0, 2);
       Reshaped(m, "x", "rows", {"-1", "3"});
       Axis(m.Node("Softmax", {"rows"}, {"shares"}), 0);
       Reshaped(m, "shares", "y", {"n", "2", "m", "3"});
     }},
    {"a mean of steps",
     {kN, kM, 3},
     [](ModelBuilder& m) { ModelBuilder::SetInts(m.Node("ReduceMean", {"x"}, {"y"}), "axes", {1}); }},
};

ModelBuilder ModelOfTwo(const RangeChain& chain) {
  ModelBuilder m(17);
  Ints shape = chain.shape;
  for (int64_t& d : shape) d = std::max<int64_t>(d, -1);
  m.Input("x", shape);
  auto* dims = m.model.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
  for (int i = 0; i < dims->dim_size(); ++i) {
    const int64_t length = chain.shape[static_cast<size_t>(i)];
    if (length < 0) dims->mutable_dim(i)->set_dim_param(length == kN ? "n" : "m");
  }
  chain.add(m);
  m.Output("y");
  return m;
}

Shape WithLengths(Shape shape, int64_t n, int64_t m) {
  std::ranges::replace(shape, kN, n);
  std::ranges::replace(shape, kM, m);
  return shape;
}

// The elements of `x` at the front along each axis of a larger array, with what is no number behind them.
NDArray Behind(const NDArray& x, const Shape& most) {
  NDArray all(x.dtype(), most);
  for (int64_t i = 0, from = 0; i < all.size(); ++i) {
    bool there = true;
    int64_t rest = i;
    for (size_t d = most.size(); d-- > 0; rest /= most[d]) there = there && rest % most[d] < x.shape()[d];
    all.Set(i, there ? x.At(from++) : std::numeric_limits<double>::quiet_NaN());
  }
  return all;
}

class TwoRanges : public ::testing::TestWithParam<RangeChain> {};

TEST_P(TwoRanges, GiveWhatKnownLengthsGive) {
  const RangeChain& chain = GetParam();
  const ModelBuilder m = ModelOfTwo(chain);
  const bool both = std::ranges::count(chain.shape, kN) > 0;
  const auto dims = [&](DimLength n, DimLength length) {
    return both ? std::map<std::string, DimLength>{{"n", n}, {"m", length}}
                : std::map<std::string, DimLength>{{"m", length}};
  };
  const absl::StatusOr<Graph> range = m.Import({.dims = dims(DimLength(1, kMostN), DimLength(2, kMostM))});
  ASSERT_TRUE(range.ok()) << range.status();
  ASSERT_EQ(range->input_extents.size(), 2u);
  Rng rng(5);
  for (int64_t n = kMostN; n >= 1; --n) {
    for (const int64_t length : {kMostM, kMostM - 1, int64_t{3}, int64_t{2}}) {
      SCOPED_TRACE(::testing::Message() << n << " and " << length);
      const absl::StatusOr<Graph> known = m.Import({.dims = dims(n, length)});
      ASSERT_TRUE(known.ok()) << known.status();
      NDArray x(DType::kF32, WithLengths(chain.shape, n, length));
      for (int64_t i = 0; i < x.size(); ++i) x.Set(i, rng.Uniform() - 0.5);
      std::vector<NDArray> inputs = {Behind(x, WithLengths(chain.shape, kMostN, kMostM))};
      for (size_t i = 1; i < range->inputs.size(); ++i) {
        const bool is_n = range->values[static_cast<size_t>(range->inputs[i])].name == "length of n";
        inputs.emplace_back(DType::kI64, Shape{});
        inputs.back().Set(0, static_cast<double>(is_n ? n : length));
      }
      const auto want = RunReference(*known, std::vector<NDArray>{x});
      const auto got = RunReference(*range, inputs);
      ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
      Shape shape = (*got)[0].shape();
      for (const Extent& e : range->extents)
        shape[static_cast<size_t>(e.axis)] = (*got)[static_cast<size_t>(e.told_by)].as<int64_t>()[0];
      ASSERT_EQ(shape, (*want)[0].shape());
      for (int64_t i = 0; i < NumElements(shape); ++i) ASSERT_NEAR((*got)[0].At(i), (*want)[0].At(i), 1e-5) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Chains, TwoRanges, ::testing::ValuesIn(kTwoRangeChains),
                         [](const auto& info) { return TestName(info.param.name); });

// Each would give other numbers, or another shape, for some lengths.
TEST(OnnxTwoRanges, ReshapesThatDoNotSayWhereLengthsGoAreRefused) {
  const auto refused = [](const Ints& shape, const std::vector<std::vector<std::string>>& reshapes) {
    const RangeChain chain = {"", shape, [&](ModelBuilder& m) {
                                BothLengths(m, std::ranges::find(shape, kN) - shape.begin(),
                                            std::ranges::find(shape, kM) - shape.begin());
                                m.Node("Mul", {"m", "n"}, {"nm"});
                                std::string from = "x";
                                for (const std::vector<std::string>& dims : reshapes) {
                                  const std::string to = &dims == &reshapes.back() ? "y" : from + "'";
                                  Reshaped(m, from.c_str(), to.c_str(), dims);
                                  from = to;
                                }
                              }};
    return std::string(ModelOfTwo(chain)
                           .Import({.dims = {{"n", DimLength(1, kMostN)}, {"m", DimLength(1, kMostM)}}})
                           .status()
                           .message());
  };
  const auto must_know = HasSubstr("as only the run knows, which Reshape must know");
  EXPECT_THAT(refused({kN, kM, 4}, {{"18", "4"}}), must_know) << "a number of rows";
  EXPECT_THAT(refused({kN, kM, 4}, {{"n", "18"}}), ::testing::Not(::testing::IsEmpty()));
  EXPECT_THAT(refused({kN, kM, 6}, {{"-1", "4"}}), must_know) << "rows within two examples";
  EXPECT_THAT(refused({kN, kM, 4}, {{"-1", "4"}, {"9", "2", "4"}}), ::testing::Not(::testing::IsEmpty()));
  EXPECT_THAT(refused({kN, kM, 4}, {{"-1", "4"}, {"n", "6", "4"}}), must_know) << "a number of steps";
  EXPECT_THAT(refused({kN, kM, 4}, {{"-1", "4"}, {"nm", "2", "2"}, {"n", "m", "4"}}), ::testing::IsEmpty());
}

// Numbers of what is not there are not those of what is there: a run says that lengths differ that have names of their
// own.
TEST(OnnxTwoRanges, LengthsDisagreeWithOthers) {
  const auto imported = [](const char* dim) {
    ModelBuilder m(17);
    m.Input("x", {-1, -1, 4});
    m.Input("b", {-1, 4});
    auto& graph = *m.model.mutable_graph();
    for (const auto& [input, axis, name] : {std::tuple{0, 0, "n"}, {0, 1, "m"}, {1, 0, dim}})
      graph.mutable_input(input)
          ->mutable_type()
          ->mutable_tensor_type()
          ->mutable_shape()
          ->mutable_dim(axis)
          ->set_dim_param(name);
    m.Node("Add", {"x", "b"}, {"y"});
    m.Output("y");
    return m.Import({.dims = {{"n", DimLength(1, 4)}, {"m", DimLength(1, 4)}}});
  };
  for (const char* dim : {"m", "n"}) {
    const absl::StatusOr<Graph> g = imported(dim);
    ASSERT_TRUE(g.ok()) << g.status();
    for (const int64_t n : {3, 4}) {
      std::vector<NDArray> inputs;
      for (const ValueId id : g->inputs) {
        const Value& v = g->values[static_cast<size_t>(id)];
        inputs.emplace_back(v.type.dtype, v.type.shape);
        if (v.name.starts_with("length of ")) inputs.back().Set(0, v.name == "length of n" ? n : 3);
      }
      const auto outputs = RunReference(*g, inputs);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      const bool differ = outputs->back().dtype() == DType::kI64 &&
                          outputs->back().as<int64_t>()[0] == std::numeric_limits<int64_t>::min();
      EXPECT_EQ(differ, std::string_view(dim) == "n" && n != 3) << dim << " " << n;
    }
  }
}

}  // namespace
}  // namespace temper
