// Values of which only the run knows how many elements they have: what follows them gives what it gives of as many
// elements that are known.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "base/rng.h"
#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using testing::Array;
using testing::ExpectArray;
using ::testing::HasSubstr;
using testing::ModelBuilder;
using testing::Refusal;
using Ints = std::vector<int64_t>;

// The outputs as a caller sees them.
std::vector<NDArray> RunCut(const ModelBuilder& m, const std::vector<NDArray>& inputs) {
  const absl::StatusOr<Graph> g = m.Import();
  if (!g.ok()) {
    ADD_FAILURE() << g.status();
    return {};
  }
  absl::StatusOr<std::vector<NDArray>> all = RunReference(*g, inputs);
  if (!all.ok()) {
    ADD_FAILURE() << all.status();
    return {};
  }
  std::vector<NDArray> outputs(all->begin(), all->end() - g->hidden);
  for (const Extent& e : g->extents) {
    NDArray& whole = outputs[static_cast<size_t>(e.output)];
    Shape shape = whole.shape();
    shape[static_cast<size_t>(e.axis)] = (*all)[static_cast<size_t>(e.told_by)].as<int64_t>()[0];
    NDArray cut(whole.dtype(), shape);
    std::memcpy(cut.MutableData(), whole.data(), static_cast<size_t>(cut.bytes()));
    whole = cut;
  }
  return outputs;
}

void ExpectSame(const NDArray& got, const NDArray& want) {
  ASSERT_EQ(got.dtype(), want.dtype());
  std::vector<double> values;
  for (int64_t i = 0; i < want.size(); ++i) values.push_back(want.At(i));
  ExpectArray(got, want.shape(), values);
}

TEST(OnnxVarying, NonZeroHasAColumnForEach) {
  ModelBuilder m(13);
  m.Input("x", {2, 2, 2});
  m.Node("NonZero", {"x"}, {"y"});
  m.Node("Transpose", {"y"}, {"z"});
  m.Output("y");
  m.Output("z");
  const std::vector<NDArray> y = RunCut(m, {Array({2, 2, 2}, {0, 1, 0, 0, -2, 0, 3, std::nanf("")})});
  ExpectArray(y[0], {3, 4}, {0, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0, 1});
  ExpectArray(y[1], {4, 3}, {0, 0, 1, 1, 0, 0, 1, 1, 0, 1, 1, 1});
  EXPECT_EQ(RunCut(m, {NDArray(DType::kF32, {2, 2, 2})})[0].shape(), (Shape{3, 0}));
  // One count for both, which no caller sees.
  const absl::StatusOr<Graph> g = m.Import();
  ASSERT_TRUE(g.ok());
  EXPECT_EQ(g->outputs.size(), 3u);
  EXPECT_EQ(g->hidden, 1);
}

TEST(OnnxVarying, CompressTakesWhatTheConditionHas) {
  ModelBuilder m(13);
  m.Input("x", {2, 3});
  m.Input("c", {2}, onnx::TensorProto::BOOL);
  ModelBuilder::SetInt(m.Node("Compress", {"x", "c"}, {"y"}), "axis", 1);
  m.Output("y");
  NDArray condition(DType::kBool, {2});
  condition.Set(1, 1);
  ExpectArray(RunCut(m, {Array({2, 3}, {1, 2, 3, 4, 5, 6}), condition})[0], {2, 1}, {2, 5});
}

// Against the converter's own loops, which see what is known.
// As detectors part boxes by levels.
TEST(OnnxVarying, RowsThatArePartedAndJoinedAreAsManyAsTheShapeSays) {
  ModelBuilder m(13);
  m.Input("x", {3, 4});
  m.Input("c", {3}, onnx::TensorProto::BOOL);
  m.Node("Not", {"c"}, {"others"});
  ModelBuilder::SetInt(m.Node("Compress", {"x", "c"}, {"first"}), "axis", 0);
  ModelBuilder::SetInt(m.Node("Compress", {"x", "others"}, {"second"}), "axis", 0);
  ModelBuilder::SetInt(m.Node("Concat", {"first", "second"}, {"all"}), "axis", 0);
  m.Ints("shape", {3, -1, 2});
  m.Node("Reshape", {"all", "shape"}, {"y"});
  m.Output("y");
  NDArray c(DType::kBool, {3});
  c.Set(1, 1);
  const std::vector<NDArray> y = RunCut(m, {Array({3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}), c});
  ExpectArray(y[0], {3, 2, 2}, {5, 6, 7, 8, 1, 2, 3, 4, 9, 10, 11, 12});
}

// Here the shape says nothing of how many rows there are.
TEST(OnnxVarying, RowsThatAreLaidOutAnewAreAllThere) {
  ModelBuilder m(13);
  m.Input("x", {6, 4});
  m.Input("c", {6}, onnx::TensorProto::BOOL);
  ModelBuilder::SetInt(m.Node("Compress", {"x", "c"}, {"rows"}), "axis", 0);
  m.Ints("shape", {1, -1, 4});
  m.Node("Reshape", {"rows", "shape"}, {"y"});
  m.Output("y");
  NDArray c(DType::kBool, {6}), x(DType::kF32, {6, 4});
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, static_cast<double>(i));
  for (const int64_t i : {1, 2, 5}) c.Set(i, 1);
  ExpectArray(RunCut(m, {x, c})[0], {1, 3, 4}, {4, 5, 6, 7, 8, 9, 10, 11, 20, 21, 22, 23});
}

TEST(OnnxVarying, UniqueIsThatOfKnownElements) {
  Rng rng(1);
  for (int i = 0; i < 40; ++i) {
    const int64_t count = 1 + rng.Below(12);
    std::vector<float> values;
    for (int64_t k = 0; k < count; ++k)
      values.push_back(rng.Below(8) == 0 ? std::nanf("") : static_cast<float>(rng.Below(5)));
    const auto model = [&](bool known) {
      ModelBuilder m(13);
      known ? m.Floats("x", {count}, values) : m.Input("x", {count});
      ModelBuilder::SetInt(m.Node("Unique", {"x"}, {"y", "first", "inverse", "counts"}), "sorted", i % 2);
      for (const char* output : {"y", "first", "inverse", "counts"}) m.Output(output);
      return m;
    };
    const std::vector<NDArray> want = RunCut(model(true), {}), got = RunCut(model(false), {Array({count}, values)});
    ASSERT_EQ(got.size(), 4u);
    for (size_t k = 1; k < 4; ++k) ExpectSame(got[k], want[k]);
    ASSERT_EQ(got[0].shape(), want[0].shape());
    for (int64_t k = 0; k < got[0].size(); ++k)
      EXPECT_TRUE(got[0].At(k) == want[0].At(k) || (std::isnan(got[0].At(k)) && std::isnan(want[0].At(k))));
  }
}

// What is made of `rows`, [n, 4], and `other`, as far as it goes.
using Chain = std::function<void(ModelBuilder&)>;
struct NamedChain {
  const char* name;
  Chain add;
};

void Of(ModelBuilder& m, const char* op, const std::vector<std::string>& inputs, const Ints& ints = {},
        const char* attribute = "axes") {
  auto& node = m.Node(op, inputs, {"y"});
  if (!ints.empty()) ModelBuilder::SetInts(node, attribute, ints);
}
void Along(ModelBuilder& m, const char* op, int64_t axis, const std::string& input = "rows") {
  ModelBuilder::SetInt(m.Node(op, {input}, {"y"}), "axis", axis);
}

// How many rows there are, as `n`, [1].
void Count(ModelBuilder& m, const std::string& rows) {
  m.Node("Shape", {rows}, {"shape"});
  m.Node("Slice", {"shape", "zero", "one"}, {"n"});
}

// The number of its row for each element, as `number`.
void Numbers(ModelBuilder& m) {
  m.Node("IsNaN", {"rows"}, {"none"});
  m.Node("Not", {"none"}, {"each"});
  ModelBuilder::SetInt(m.Node("Cast", {"each"}, {"counted"}), "to", onnx::TensorProto::INT64);
  m.Node("Squeeze", {"zero"}, {"axis"});
  m.Node("CumSum", {"counted", "axis"}, {"from_one"});
  m.Node("Sub", {"from_one", "one"}, {"number"});
}

const NamedChain kVaryingChains[] = {
    {"itself", [](ModelBuilder& m) { Of(m, "Identity", {"rows"}); }},
    {"relu", [](ModelBuilder& m) { Of(m, "Relu", {"rows"}); }},
    {"with a row",
     [](ModelBuilder& m) {
       Of(m, "Mul", {"rows", "four"});
     }},
    {"with itself",
     [](ModelBuilder& m) {
       m.Node("Exp", {"rows"}, {"e"});
       Of(m, "Add", {"rows", "e"});
     }},
    {"transposed",
     [](ModelBuilder& m) {
       Of(m, "Transpose", {"rows"}, {1, 0}, "perm");
     }},
    {"flat",
     [](ModelBuilder& m) {
       Of(m, "Reshape", {"rows", "flat"});
     }},
    {"in pairs",
     [](ModelBuilder& m) {
       m.Node("Reshape", {"rows", "pairs"}, {"p"});
       ModelBuilder::SetInts(m.Node("Transpose", {"p"}, {"t"}), "perm", {0, 2, 1});
       Of(m, "Reshape", {"t", "flat"});
     }},
    {"product",
     [](ModelBuilder& m) {
       Of(m, "MatMul", {"rows", "matrix"});
     }},
    {"product from the left",
     [](ModelBuilder& m) {
       m.Node("Transpose", {"rows"}, {"t"});
       Of(m, "MatMul", {"matrix_t", "t"});
     }},
    {"sum",
     [](ModelBuilder& m) {
       Of(m, "ReduceSum", {"rows", "zero"});
     }},
    {"sums",
     [](ModelBuilder& m) {
       Of(m, "ReduceSum", {"rows", "one"});
     }},
    {"mean", [](ModelBuilder& m) { Of(m, "ReduceMean", {"rows"}, {1}); }},
    {"largest", [](ModelBuilder& m) { Of(m, "ReduceMax", {"rows"}, {0}); }},
    {"least",
     [](ModelBuilder& m) {
       Of(m, "ReduceMin", {"rows"}, {0, 1});
     }},
    {"product of all", [](ModelBuilder& m) { Of(m, "ReduceProd", {"rows"}, {0}); }},
    {"place of the largest", [](ModelBuilder& m) { Along(m, "ArgMax", 0); }},
    {"place in the row", [](ModelBuilder& m) { Along(m, "ArgMin", 1); }},
    {"softmax", [](ModelBuilder& m) { Along(m, "Softmax", 0); }},
    {"softmax of rows", [](ModelBuilder& m) { Along(m, "Softmax", 1); }},
    {"log softmax", [](ModelBuilder& m) { Along(m, "LogSoftmax", -2); }},
    {"layer norm",
     [](ModelBuilder& m) {
       Of(m, "LayerNormalization", {"rows", "four"});
     }},
    {"gelu", [](ModelBuilder& m) { Of(m, "Gelu", {"rows"}); }},
    {"columns",
     [](ModelBuilder& m) {
       Of(m, "Slice", {"rows", "one", "three", "one"});
     }},
    {"first rows",
     [](ModelBuilder& m) {
       Of(m, "Slice", {"rows", "zero", "three", "zero"});
     }},
    {"later rows",
     [](ModelBuilder& m) {
       Of(m, "Slice", {"rows", "one", "three", "zero"});
     }},
    {"joined",
     [](ModelBuilder& m) {
       ModelBuilder::SetInt(m.Node("Concat", {"rows", "rows"}, {"y"}), "axis", 1);
     }},
    {"one behind the other",
     [](ModelBuilder& m) {
       ModelBuilder::SetInt(m.Node("Concat", {"rows", "matrix_t", "rows"}, {"y"}), "axis", 0);
     }},
    {"running sums",
     [](ModelBuilder& m) {
       m.Node("Squeeze", {"zero"}, {"axis"});
       Of(m, "CumSum", {"rows", "axis"});
     }},
    {"picked",
     [](ModelBuilder& m) {
       Of(m, "Gather", {"rows", "places"});
     }},
    {"picked columns",
     [](ModelBuilder& m) {
       ModelBuilder::SetInt(m.Node("Gather", {"rows", "one"}, {"y"}), "axis", 1);
     }},
    {"best rows",
     [](ModelBuilder& m) {
       ModelBuilder::SetInt(m.Node("TopK", {"rows", "one"}, {"values", "y"}), "axis", 0);
     }},
    {"as many as there are",
     [](ModelBuilder& m) {
       Count(m, "rows");
       m.Node("Min", {"n", "three"}, {"k"});
       auto& node = m.Node("TopK", {"rows", "k"}, {"y", "places_of_best"});
       ModelBuilder::SetInt(node, "axis", 0);
       ModelBuilder::SetInt(node, "largest", 0);
     }},
    {"shape", [](ModelBuilder& m) { Of(m, "Shape", {"rows"}); }},
    {"size", [](ModelBuilder& m) { Of(m, "Size", {"rows"}); }},
    {"as shapes say",
     [](ModelBuilder& m) {
       m.Node("Shape", {"rows"}, {"shape"});
       m.Node("Gather", {"shape", "zero"}, {"n"});
       ModelBuilder::SetInt(m.Node("Concat", {"n", "two_two"}, {"wanted"}), "axis", 0);
       m.Node("Reshape", {"rows", "wanted"}, {"r"});
       m.Node("Transpose", {"r"}, {"t"});
       m.Node("ConstantOfShape", {"n"}, {"zeros"});
       m.Node("Squeeze", {"n"}, {"end"});
       m.Node("Range", {"nought", "end", "unit"}, {"numbers"});
       ModelBuilder::SetInt(m.Node("Cast", {"numbers"}, {"floats"}), "to", onnx::TensorProto::FLOAT);
       m.Node("Expand", {"t", "shape_of_all"}, {"e"});
       m.Node("Add", {"e", "floats"}, {"a"});
       Of(m, "Add", {"a", "zeros"});
     }},
    {"expanded as exporters write it",
     [](ModelBuilder& m) {
       Count(m, "rows");
       ModelBuilder::SetInt(m.Node("Concat", {"n", "minus"}, {"wanted"}), "axis", 0);
       m.Node("Equal", {"wanted", "minus"}, {"open"});
       m.Node("Where", {"open", "ones", "wanted"}, {"target"});
       m.Node("Expand", {"line", "target"}, {"e"});
       Of(m, "Mul", {"e", "rows"});
     }},
    {"put into others",
     [](ModelBuilder& m) {
       Numbers(m);
       ModelBuilder::SetInt(m.Node("ScatterElements", {"others", "number", "rows"}, {"y"}), "axis", 0);
     }},
    {"put into others from their end",
     [](ModelBuilder& m) {
       Numbers(m);
       m.Node("Sub", {"minus", "number"}, {"from_end"});
       m.Node("ScatterElements", {"others", "from_end", "rows"}, {"y"});
     }},
    {"added to one row of others",
     [](ModelBuilder& m) {
       Numbers(m);
       m.Node("Mul", {"number", "zero"}, {"first"});
       ModelBuilder::SetString(m.Node("ScatterElements", {"others", "first", "rows"}, {"y"}), "reduction", "add");
     }},
    {"turned round among themselves",
     [](ModelBuilder& m) {
       Numbers(m);
       m.Node("Sub", {"minus", "number"}, {"from_end"});
       m.Node("ScatterElements", {"rows", "from_end", "rows"}, {"y"});
     }},
    {"moved in their rows",
     [](ModelBuilder& m) {
       Numbers(m);
       m.Node("Mul", {"number", "zero"}, {"first"});
       ModelBuilder::SetInt(m.Node("ScatterElements", {"rows", "first", "rows"}, {"y"}), "axis", 1);
     }},
    {"moved in the first rows of others",
     [](ModelBuilder& m) {
       Numbers(m);
       m.Node("Mul", {"number", "zero"}, {"first"});
       ModelBuilder::SetInt(m.Node("ScatterElements", {"others", "first", "rows"}, {"y"}), "axis", 1);
     }},
    {"whole rows of others",
     [](ModelBuilder& m) {
       Numbers(m);
       m.Node("Slice", {"number", "zero", "one", "one"}, {"places_of_rows"});
       Of(m, "ScatterND", {"others", "places_of_rows", "rows"});
     }},
    {"as many of others",
     [](ModelBuilder& m) {
       Count(m, "rows");
       m.Node("Add", {"zero", "n"}, {"end"});
       Of(m, "Slice", {"others", "zero", "end", "zero"});
     }},
    {"cut to the same end",
     [](ModelBuilder& m) {
       Count(m, "rows");
       m.Node("Slice", {"others", "zero", "n"}, {"s"});
       Of(m, "Add", {"s", "rows"});
     }},
    {"as many as they are",
     [](ModelBuilder& m) {
       Count(m, "rows");
       m.Node("Slice", {"rows", "zero", "n"}, {"s"});
       Of(m, "Add", {"s", "rows"});
     }},
    {"as many as those that are left",
     [](ModelBuilder& m) {
       m.Node("Slice", {"rows", "one", "end_of_all", "zero"}, {"later"});
       Count(m, "later");
       Of(m, "Slice", {"rows", "zero", "n"});
     }},
    {"padded",
     [](ModelBuilder& m) {
       Of(m, "Pad", {"rows", "beside"});
     }},
    {"resized",
     [](ModelBuilder& m) {
       m.Node("Reshape", {"rows", "images"}, {"image"});
       m.Node("Resize", {"image", "", "twice"}, {"y"});
     }},
    {"non-zero again", [](ModelBuilder& m) { Of(m, "NonZero", {"rows"}); }},
};

class VaryingChain : public ::testing::TestWithParam<NamedChain> {
 protected:
  // `known`: of so many rows; -1: those of x that begin with a number above 0.
  static ModelBuilder Model(const NamedChain& chain, int64_t known) {
    ModelBuilder m(20);
    m.Floats("four", {4}, {1, -2, 3, 0.5});
    m.Floats("matrix", {4, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, -1, -2, -3});
    m.Floats("matrix_t", {3, 4}, {1, 4, 7, -1, 2, 5, 8, -2, 3, 6, 9, -3});
    m.Ints("zero", {0});
    m.Ints("one", {1});
    m.Ints("three", {3});
    m.Ints("flat", {-1});
    m.Ints("pairs", {-1, 2, 2});
    m.Ints("two_two", {2, 2});
    m.Ints("minus", {-1});
    m.Ints("ones", {1, 1});
    m.Floats("line", {1, 4}, {1, 2, 3, 4});
    m.Ints("places", {0, -1});
    m.Ints("end_of_all", {1000});
    m.Ints("beside", {0, 1, 0, 2});
    m.Ints("images", {-1, 1, 2, 2});
    m.Floats("twice", {4}, {1, 1, 2, 2});
    std::vector<float> others(36);
    std::iota(others.begin(), others.end(), 100.0F);
    m.Floats("others", {9, 4}, others);
    m.Ints("shape_of_all", {1, 1, 1});
    m.Ints("numbers_of_range", {0, 1});
    m.Node("Squeeze", {"zero"}, {"nought"});
    m.Node("Squeeze", {"one"}, {"unit"});
    if (known >= 0) {
      m.Input("rows", {known, 4});
    } else {
      m.Input("x", {7, 4});
      m.Node("Slice", {"x", "zero", "one", "one"}, {"scores"});
      m.Node("Squeeze", {"scores", "one"}, {"flat_scores"});
      m.Floats("nothing", {}, {0});
      m.Node("Greater", {"flat_scores", "nothing"}, {"good"});
      m.Node("NonZero", {"good"}, {"found"});
      m.Node("Squeeze", {"found", "zero"}, {"at"});
      m.Node("Gather", {"x", "at"}, {"rows"});
    }
    chain.add(m);
    m.Output("y");
    return m;
  }
};

TEST_P(VaryingChain, GivesWhatItGivesOfKnownRows) {
  Rng rng(3);
  for (const int64_t count : {7, 4, 3, 2}) {
    std::vector<float> x, rows;
    for (int64_t row = 0; row < 7; ++row) {
      // Rows 0, 2, 4, ... first, so that the others lie between them.
      const bool found = row * 4 % 7 < count;
      for (int k = 0; k < 4; ++k) {
        const float value = static_cast<float>(rng.Uniform() + (k == 0 ? 0.1 : -0.5)) * (found || k > 0 ? 1 : -1);
        x.push_back(value);
        if (found) rows.push_back(value);
      }
    }
    const std::vector<NDArray> want = RunCut(Model(GetParam(), count), {Array({count, 4}, rows)});
    const std::vector<NDArray> got = RunCut(Model(GetParam(), -1), {Array({7, 4}, x)});
    ASSERT_EQ(got.size(), 1u);
    ASSERT_EQ(want.size(), 1u);
    SCOPED_TRACE(count);
    ExpectSame(got[0], want[0]);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Chains, VaryingChain, ::testing::ValuesIn(kVaryingChains),
                         [](const auto& info) { return testing::TestName(info.param.name); });

// Behind the end of what is not zero there are zeros, which are no divisors and no extremes.
TEST(OnnxVarying, IntegersBehindTheEndHarmNothing) {
  ModelBuilder m(18);
  m.Input("x", {6}, onnx::TensorProto::INT32);
  m.Ints("axis", {0});
  m.Ints("last", {-1});
  m.Node("NonZero", {"x"}, {"found"});
  m.Node("Squeeze", {"found", "axis"}, {"at"});
  m.Node("Gather", {"x", "at"}, {"v"});
  m.Node("Mul", {"v", "v"}, {"squares"});
  m.Node("Div", {"squares", "v"}, {"quotients"});
  m.Node("ReduceMin", {"v"}, {"least"});
  m.Node("ReduceMax", {"v"}, {"most"});
  m.Node("Gather", {"v", "last"}, {"end"});
  for (const char* output : {"quotients", "least", "most", "end"}) m.Output(output);
  for (const double sign : {1.0, -1.0}) {
    NDArray x(DType::kI32, {6});
    x.Set(1, 3 * sign);
    x.Set(4, 5 * sign);
    const std::vector<NDArray> y = RunCut(m, {x});
    ASSERT_EQ(y.size(), 4u);
    ExpectArray(y[0], {2}, {3 * sign, 5 * sign});
    ExpectArray(y[1], {1}, {sign > 0 ? 3.0 : -5.0});
    ExpectArray(y[2], {1}, {sign > 0 ? 5.0 : -3.0});
    ExpectArray(y[3], {1}, {5 * sign});
  }
}

// As exporters write masks: what is not zero is looked for again for each use, parts are joined one by one, and where
// nothing was found another branch gives nothing.
TEST(OnnxVarying, TheSameMaskGivesTheSameNumberAndBranchesMayDiffer) {
  ModelBuilder m(18);
  m.Input("x", {6});
  m.Ints("axis", {0});
  m.Floats("none", {0}, {});
  m.Floats("limit", {}, {7});
  for (const char* name : {"a", "b"}) {
    const std::string n = name;
    m.Node("NonZero", {"x"}, {"found_" + n});
    m.Node("Squeeze", {"found_" + n, "axis"}, {"at_" + n});
    m.Node("Gather", {"x", "at_" + n}, {n});
    ModelBuilder::SetInt(m.Node("Concat", {n, n, "x"}, {"all_" + n}), "axis", 0);
  }
  m.Node("Add", {"a", "b"}, {"twice"});
  m.Node("Mul", {"all_a", "all_b"}, {"squares"});
  m.Node("ReduceSum", {"a"}, {"sum"});
  m.Node("Less", {"sum", "limit"}, {"few"});
  onnx::NodeProto& node = m.Node("If", {"few"}, {"chosen"});
  for (const auto& [branch, value] : {std::pair("then_branch", "none"), std::pair("else_branch", "twice")}) {
    ModelBuilder body(18);
    body.Node("Identity", {value}, {"result"});
    body.Output("result");
    onnx::AttributeProto& a = ModelBuilder::Attr(node, branch);
    a.set_type(onnx::AttributeProto::GRAPH);
    *a.mutable_g() = body.model.graph();
  }
  for (const char* output : {"twice", "squares", "chosen"}) m.Output(output);
  std::vector<NDArray> y = RunCut(m, {Array({6}, {0, 3, 0, 5, 0, 0})});
  ASSERT_EQ(y.size(), 3u);
  ExpectArray(y[0], {2}, {6, 10});
  ExpectArray(y[1], {10}, {9, 25, 9, 25, 0, 9, 0, 25, 0, 0});
  ExpectArray(y[2], {2}, {6, 10});
  y = RunCut(m, {Array({6}, {0, 0, 0, 0, 6, 0})});
  ASSERT_EQ(y.size(), 3u);
  ExpectArray(y[0], {1}, {12});
  ExpectArray(y[1], {8}, {36, 36, 0, 0, 0, 0, 36, 0});
  EXPECT_EQ(y[2].shape(), Shape{0});
}

// Operators that have to know how many there are say so.
TEST(OnnxVarying, WhatHasToKnowTheExtentIsRefused) {
  const auto refusal = [](const std::function<void(ModelBuilder&)>& add) {
    ModelBuilder m(20);
    m.Input("x", {7});
    m.Floats("seven", {7}, {1, 2, 3, 4, 5, 6, 7});
    m.Floats("eye", {7, 7}, std::vector<float>(49, 1));
    m.Ints("seven_long", {7});
    m.Ints("two_lines", {7, -1});
    m.Ints("column", {-1, 1});
    m.Ints("nothing", {});
    m.Node("Compress", {"x", "c"}, {"v"});
    m.Input("c", {7}, onnx::TensorProto::BOOL);
    add(m);
    m.Output("y");
    return Refusal(m);
  };
  for (const std::vector<std::string>& node : {std::vector<std::string>{"Add", "v", "seven"},
                                               {"MatMul", "v", "eye"},
                                               {"CenterCropPad", "v", "seven_long"},
                                               {"Unique", "v"},
                                               {"Reshape", "v", "two_lines"},
                                               {"Hardmax", "v"},
                                               {"SplitToSequence", "v"}}) {
    const std::string line = refusal([&](ModelBuilder& m) { Of(m, node[0].c_str(), {node.begin() + 1, node.end()}); });
    EXPECT_THAT(line, HasSubstr("as only the run knows")) << node[0];
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 0);
  }
  EXPECT_EQ(refusal([](ModelBuilder& m) { Of(m, "Relu", {"v"}); }), "");
  EXPECT_EQ(refusal([](ModelBuilder& m) { Of(m, "Reshape", {"v", "column"}); }), "");
  // Of shapes that are read from such a value, too.
  const auto shaped = [](ModelBuilder& m, const std::vector<std::string>& slice) {
    m.Node("Shape", {"v"}, {"shape"});
    std::vector<std::string> operands = {"shape"};
    operands.insert(operands.end(), slice.begin(), slice.end());
    m.Node("Slice", operands, {"part"});
    Of(m, "ConstantOfShape", {"part"});
  };
  EXPECT_NE(refusal([&](ModelBuilder& m) { shaped(m, {"nothing", "nothing", "nothing"}); }), "");
  const std::string known = refusal([](ModelBuilder& m) {
    m.Node("Shape", {"v"}, {"shape"});
    Of(m, "Expand", {"seven", "shape"});
  });
  EXPECT_THAT(known, HasSubstr("only the run knows"));
  // A shape that is made of itself again and again is not read without end.
  const std::string doubled = refusal([](ModelBuilder& m) {
    m.Ints("one", {1});
    m.Ints("two", {2});
    m.Node("Shape", {"v"}, {"s0"});
    for (int i = 0; i < 40; ++i) {
      const std::string last = "s" + std::to_string(i), next = "s" + std::to_string(i + 1),
                        part = "p" + std::to_string(i);
      ModelBuilder::SetInt(m.Node("Concat", {last, last}, {part}), "axis", 0);
      m.Node("Slice", {part, "one", "two"}, {next});
    }
    Of(m, "ConstantOfShape", {"s40"});
  });
  EXPECT_THAT(doubled, HasSubstr("depends on the model's inputs"));
}

// --- NonMaxSuppression

ModelBuilder Suppression(const Shape& boxes, int64_t classes, int64_t most, float overlap, float least,
                         int64_t by_center = 0) {
  ModelBuilder m(11);
  m.Input("boxes", boxes);
  m.Input("scores", {boxes[0], classes, boxes[1]});
  m.Ints("most", {most});
  m.Floats("overlap", {1}, {overlap});
  m.Floats("least", {1}, {least});
  auto& node = m.Node("NonMaxSuppression", {"boxes", "scores", "most", "overlap", "least"}, {"y"});
  ModelBuilder::SetInt(node, "center_point_box", by_center);
  m.Output("y");
  return m;
}

// Boxes one wide and high: three at 0 (0.1 beside each other), two at 10, one at 100.
const std::vector<float> kCorners = {0, 0,  1, 1,  0, 0.1F,  1, 1.1F,  0, -0.1F, 1, 0.9F,
                                     0, 10, 1, 11, 0, 10.1F, 1, 11.1F, 0, 100,   1, 101};
const std::vector<float> kScores = {0.9F, 0.75F, 0.6F, 0.95F, 0.5F, 0.3F};

TEST(OnnxVarying, BoxesThatOverlapABetterOneAreGone) {
  const NDArray boxes = Array({1, 6, 4}, kCorners), scores = Array({1, 1, 6}, kScores);
  ExpectArray(RunCut(Suppression({1, 6, 4}, 1, 3, 0.5F, 0), {boxes, scores})[0], {3, 3}, {0, 0, 3, 0, 0, 0, 0, 0, 5});
  ExpectArray(RunCut(Suppression({1, 6, 4}, 1, 2, 0.5F, 0), {boxes, scores})[0], {2, 3}, {0, 0, 3, 0, 0, 0});
  ExpectArray(RunCut(Suppression({1, 6, 4}, 1, 30, 0.5F, 0.4F), {boxes, scores})[0], {2, 3}, {0, 0, 3, 0, 0, 0});
  ExpectArray(RunCut(Suppression({1, 6, 4}, 1, 30, 0.9F, 0.65F), {boxes, scores})[0], {3, 3},
              {0, 0, 3, 0, 0, 0, 0, 0, 1});
  EXPECT_EQ(RunCut(Suppression({1, 6, 4}, 1, 3, 0.5F, 2), {boxes, scores})[0].shape(), (Shape{0, 3}));
  EXPECT_EQ(RunCut(Suppression({1, 6, 4}, 1, 0, 0.5F, 0), {boxes, scores})[0].shape(), (Shape{0, 3}));
}

TEST(OnnxVarying, BoxesByCornersInAnyOrderAndByTheirCenter) {
  std::vector<float> turned = kCorners, centers;
  for (size_t i = 0; i < turned.size(); i += 8) std::swap(turned[i], turned[i + 2]);
  for (size_t i = 4; i < turned.size(); i += 8) std::swap(turned[i + 1], turned[i + 3]);
  for (size_t i = 0; i < kCorners.size(); i += 4) {
    const float* c = &kCorners[i];
    centers.insert(centers.end(), {(c[1] + c[3]) / 2, (c[0] + c[2]) / 2, c[3] - c[1], c[2] - c[0]});
  }
  const NDArray scores = Array({1, 1, 6}, kScores);
  const std::vector<double> want = {0, 0, 3, 0, 0, 0, 0, 0, 5};
  ExpectArray(RunCut(Suppression({1, 6, 4}, 1, 3, 0.5F, 0), {Array({1, 6, 4}, turned), scores})[0], {3, 3}, want);
  ExpectArray(RunCut(Suppression({1, 6, 4}, 1, 3, 0.5F, 0, 1), {Array({1, 6, 4}, centers), scores})[0], {3, 3}, want);
}

TEST(OnnxVarying, ImagesAndClassesAreApart) {
  std::vector<float> boxes = kCorners, scores = kScores;
  boxes.insert(boxes.end(), kCorners.begin(), kCorners.end());
  for (int line = 1; line < 4; ++line) scores.insert(scores.end(), kScores.rbegin(), kScores.rend());
  const NDArray y =
      RunCut(Suppression({2, 6, 4}, 2, 2, 0.5F, 0), {Array({2, 6, 4}, boxes), Array({2, 2, 6}, scores)})[0];
  ExpectArray(y, {8, 3}, {0, 0, 3, 0, 0, 0, 0, 1, 2, 0, 1, 5, 1, 0, 2, 1, 0, 5, 1, 1, 2, 1, 1, 5});
}

TEST(OnnxVarying, SuppressionWantsBoxesAndTheirScores) {
  ModelBuilder m = Suppression({1, 6, 3}, 1, 3, 0.5F, 0);
  EXPECT_THAT(Refusal(m), HasSubstr("takes boxes [images, boxes, 4]"));
  EXPECT_THAT(Refusal(Suppression({1, 1 << 20, 4}, 64, 1 << 20, 0.5F, 0)), HasSubstr("more than 16777216 boxes"));
}

}  // namespace
}  // namespace temper
