// ONNX operators that become several of Temper's: gathers and scatters, sums along an axis, einsum, on numbers worked
// out by hand.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using testing::Array;
using testing::ExpectArray;
using ::testing::HasSubstr;
using testing::ModelBuilder;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

// Whether the index is a constant or an input of the model.
class IndexedBy : public ::testing::TestWithParam<bool> {
 protected:
  void Indices(const std::vector<int64_t>& shape, const std::vector<int64_t>& at) {
    if (GetParam()) {
      m_.Ints("flat", at);
      m_.Ints("index_shape", shape);
      m_.Node("Reshape", {"flat", "index_shape"}, {"at"});
      return;
    }
    m_.Input("at", shape, onnx::TensorProto::INT64);
    NDArray data(DType::kI64, shape);
    std::copy(at.begin(), at.end(), data.as<int64_t>().begin());
    feeds_.push_back(std::move(data));
  }
  void X(const std::vector<int64_t>& shape) {
    m_.Input("x", shape);
    NDArray data(DType::kF32, shape);
    for (int64_t i = 0; i < data.size(); ++i) data.Set(i, static_cast<double>(i + 1));
    feeds_.push_back(std::move(data));
  }
  NDArray Y() {
    m_.Output("y");
    return m_.Run(feeds_)[0];
  }

  ModelBuilder m_{18};
  std::vector<NDArray> feeds_;
};
INSTANTIATE_TEST_SUITE_P(Composed, IndexedBy, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "AConstant" : "AnInput"; });

// y[i][j] = x[at[i][j]][j] along axis 0, x[i][at[i][j]] along axis 1.
TEST_P(IndexedBy, GatherElementsAlongTheFirstAxis) {
  X({3, 3});
  Indices({2, 3}, {2, 0, -1, 1, 2, 0});
  ModelBuilder::SetInt(m_.Node("GatherElements", {"x", "at"}, {"y"}), "axis", 0);
  ExpectArray(Y(), {2, 3}, {7, 2, 9, 4, 8, 3});
}
TEST_P(IndexedBy, GatherElementsAlongTheLastAxis) {
  X({3, 3});
  Indices({2, 3}, {2, 0, -1, 1, 2, 0});
  ModelBuilder::SetInt(m_.Node("GatherElements", {"x", "at"}, {"y"}), "axis", -1);
  ExpectArray(Y(), {2, 3}, {3, 1, 3, 5, 6, 4});
}
TEST_P(IndexedBy, GatherNdOfSlicesAndOfElements) {
  X({2, 2, 2});
  Indices({3, 1}, {1, 0, -1});
  m_.Node("GatherND", {"x", "at"}, {"y"});
  m_.Ints("corner", {1, -1, 0});
  m_.Node("GatherND", {"x", "corner"}, {"z"});
  m_.Output("z");
  m_.Output("y");
  const std::vector<NDArray> out = m_.Run(feeds_);
  ExpectArray(out[0], {}, {7});
  ExpectArray(out[1], {3, 2, 2}, {5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8});
}
TEST_P(IndexedBy, OneHotHasNothingOnForWhatIsOutside) {
  Indices({4}, {0, -1, 3, -4});
  m_.Ints("depth", {3});
  m_.Floats("values", {2}, {5, 7});
  ModelBuilder::SetInt(m_.Node("OneHot", {"at", "depth", "values"}, {"y"}), "axis", 0);
  m_.Input("unused", {1});
  feeds_.push_back(Array({1}, {0}));
  ExpectArray(Y(), {3, 4}, {7, 5, 5, 5, 5, 5, 5, 5, 5, 7, 5, 5});
}

TEST(OnnxComposed, KnownIndicesOutsideAreRefused) {
  const auto import_of = [](const char* op, const std::vector<int64_t>& shape, const std::vector<int64_t>& at) {
    ModelBuilder m(13);
    m.Input("x", shape);
    m.Ints("at", at);
    m.Node(op, {"x", "at"}, {"y"});
    m.Output("y");
    return m.Import().status().code();
  };
  EXPECT_EQ(import_of("GatherElements", {3}, {2, -3, 0, 1}), absl::StatusCode::kOk);
  EXPECT_EQ(import_of("GatherElements", {3}, {3}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(import_of("GatherElements", {3}, {-4}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(import_of("GatherElements", {3, 3}, {1}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(import_of("GatherND", {3, 3}, {1, 3}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(import_of("GatherND", {3, 3}, {1, 1, 1}), absl::StatusCode::kInvalidArgument);
}

TEST(OnnxComposed, ScattersPutUpdatesWhereTheIndicesSay) {
  ModelBuilder m(18);
  m.Input("x", {2, 3});
  m.Input("updates", {2});
  m.Input("row", {1, 3});
  m.Ints("flat", {0, 1, 1, -1});
  m.Ints("two_two", {2, 2});
  m.Ints("last", {1, -1});
  m.Ints("one_three", {1, 3});
  m.Ints("rows", {1, 0, 1});
  m.Ints("back", {-1});
  m.Ints("one_one", {1, 1});
  m.Node("Reshape", {"flat", "two_two"}, {"pairs"});
  m.Node("ScatterND", {"x", "pairs", "updates"}, {"a"});
  m.Node("Reshape", {"rows", "one_three"}, {"at"});
  ModelBuilder::SetInt(m.Node("ScatterElements", {"x", "at", "row"}, {"b"}), "axis", 0);
  m.Node("Reshape", {"back", "one_one"}, {"slice"});
  m.Node("ScatterND", {"x", "slice", "row"}, {"c"});
  for (const char* y : {"a", "b", "c"}) m.Output(y);
  const auto out = m.Run({Array({2, 3}, {1, 2, 3, 4, 5, 6}), Array({2}, {10, 20}), Array({1, 3}, {70, 80, 90})});
  ExpectArray(out[0], {2, 3}, {1, 10, 3, 4, 5, 20});
  ExpectArray(out[1], {2, 3}, {1, 80, 3, 70, 5, 90});
  ExpectArray(out[2], {2, 3}, {1, 2, 3, 70, 80, 90});
}

// Sums or products along the last axis.
NDArray SoFar(const char* op, const NDArray& x, int64_t exclusive, int64_t reverse) {
  ModelBuilder m(26);
  m.Input("x", x.shape());
  m.Ints("axis", {-1});
  auto& node = m.Node(op, {"x", "axis"}, {"y"});
  ModelBuilder::SetInt(node, "exclusive", exclusive);
  ModelBuilder::SetInt(node, "reverse", reverse);
  m.Output("y");
  return m.Run({x})[0];
}

TEST(OnnxComposed, CumSumInBothDirectionsWithAndWithoutItself) {
  const auto sum = [](int64_t exclusive, int64_t reverse) {
    return SoFar("CumSum", Array({2, 5}, {1, 2, 3, 4, 5, 1, 1, 1, 1, 1}), exclusive, reverse);
  };
  ExpectArray(sum(0, 0), {2, 5}, {1, 3, 6, 10, 15, 1, 2, 3, 4, 5});
  ExpectArray(sum(1, 0), {2, 5}, {0, 1, 3, 6, 10, 0, 1, 2, 3, 4});
  ExpectArray(sum(0, 1), {2, 5}, {15, 14, 12, 9, 5, 5, 4, 3, 2, 1});
  ExpectArray(sum(1, 1), {2, 5}, {14, 12, 9, 5, 0, 4, 3, 2, 1, 0});
}

TEST(OnnxComposed, CumProdInBothDirectionsWithAndWithoutItself) {
  const auto product = [](int64_t exclusive, int64_t reverse) {
    return SoFar("CumProd", Array({2, 5}, {1, 2, 3, 4, 5, 2, 2, 0, 2, -1}), exclusive, reverse);
  };
  ExpectArray(product(0, 0), {2, 5}, {1, 2, 6, 24, 120, 2, 4, 0, 0, 0});
  ExpectArray(product(1, 0), {2, 5}, {1, 1, 2, 6, 24, 1, 2, 4, 0, 0});
  ExpectArray(product(0, 1), {2, 5}, {120, 120, 60, 20, 5, 0, 0, 0, -2, -1});
  ExpectArray(product(1, 1), {2, 5}, {120, 60, 20, 5, 1, 0, 0, -2, -1, 1});
  ExpectArray(SoFar("CumProd", Array({1, 1}, {7}), 1, 0), {1, 1}, {1});
}

NDArray Einsum(const std::string& equation, const std::vector<NDArray>& operands) {
  ModelBuilder m(13);
  std::vector<std::string> names;
  for (const NDArray& x : operands) {
    names.push_back("x" + std::to_string(names.size()));
    m.Input(names.back(), x.shape());
  }
  ModelBuilder::SetString(m.Node("Einsum", names, {"y"}), "equation", equation);
  m.Output("y");
  return m.Run(operands)[0];
}

TEST(OnnxComposed, EinsumSumsOverWhatTheResultDoesNotName) {
  const NDArray a = Array({2, 2}, {1, 2, 3, 4}), b = Array({2, 2}, {5, 6, 7, 8}), v = Array({2}, {10, 1});
  ExpectArray(Einsum("ij,jk->ik", {a, b}), {2, 2}, {19, 22, 43, 50});
  ExpectArray(Einsum("ij,jk", {a, b}), {2, 2}, {19, 22, 43, 50});
  ExpectArray(Einsum(" i j , j k -> k i ", {a, b}), {2, 2}, {19, 43, 22, 50});
  ExpectArray(Einsum("ij->ji", {a}), {2, 2}, {1, 3, 2, 4});
  ExpectArray(Einsum("ij->", {a}), {}, {10});
  ExpectArray(Einsum("ij,j->i", {a, v}), {2}, {12, 34});
  ExpectArray(Einsum("i,j->ij", {v, v}), {2, 2}, {100, 10, 10, 1});
  ExpectArray(Einsum("ij,kl->", {a, b}), {}, {260});
  ExpectArray(Einsum("ij,jk,k->i", {a, b, v}), {2}, {212, 480});
  ExpectArray(Einsum("...j,j->...", {a, v}), {2}, {12, 34});
  ExpectArray(Einsum("ij,ij->ij", {a, Array({1, 2}, {10, 100})}), {2, 2}, {10, 200, 30, 400});
}

TEST(OnnxComposed, EinsumTakesTheDiagonalOfANameThatIsThereTwice) {
  const NDArray a = Array({2, 2}, {1, 2, 3, 4});
  ExpectArray(Einsum("ii->i", {a}), {2}, {1, 4});
  ExpectArray(Einsum("ii", {a}), {}, {5});
  ExpectArray(Einsum("ii,ij->j", {a, Array({2, 2}, {5, 6, 7, 8})}), {2}, {5 + 4 * 7, 6 + 4 * 8});
  NDArray x(DType::kF32, {2, 3, 2, 3, 2});  // one digit an axis
  for (int64_t i = 0; i < x.size(); ++i)
    x.Set(i, static_cast<double>(i / 36 * 10000 + i / 12 % 3 * 1000 + i / 6 % 2 * 100 + i / 2 % 3 * 10 + i % 2));
  ExpectArray(Einsum("ijiji->ji", {x}), {3, 2}, {0, 10101, 1010, 11111, 2020, 12121});
}

TEST(OnnxComposed, EinsumRefusesEquationsThatDoNotFit) {
  const auto import_of = [](const std::string& equation) {
    ModelBuilder m(13);
    m.Input("a", {2, 3});
    m.Input("b", {3, 2});
    ModelBuilder::SetString(m.Node("Einsum", {"a", "b"}, {"y"}), "equation", equation);
    m.Output("y");
    return m.Import().status().code();
  };
  EXPECT_EQ(import_of("ij,jk->ik"), absl::StatusCode::kOk);
  for (const char* wrong : {"", "ij", "ij,jk,kl->il", "ijk,jk->ik", "i,jk->ik", "ij,kj->ik", "ij,jk->iz", "ij->jk->ik",
                            "ii,jk->ik", "ij,jk->ii", "i1,1k->ik", "i..,jk->ik"})
    EXPECT_EQ(import_of(wrong), absl::StatusCode::kInvalidArgument) << wrong;
}

TEST(OnnxComposed, WhatIsNoNumberIsTold) {
  ModelBuilder m(20);
  m.Input("x", {5});
  m.Node("IsNaN", {"x"}, {"nan"});
  m.Node("IsInf", {"x"}, {"inf"});
  ModelBuilder::SetInt(m.Node("IsInf", {"x"}, {"below"}), "detect_positive", 0);
  m.Node("Sign", {"x"}, {"sign"});
  for (const char* y : {"nan", "inf", "below", "sign"}) m.Output(y);
  const auto out = m.Run({Array({5}, {kNan, -kInfinity, kInfinity, 0, 2})});
  ExpectArray(out[0], {5}, {1, 0, 0, 0, 0});
  ExpectArray(out[1], {5}, {0, 1, 1, 0, 0});
  ExpectArray(out[2], {5}, {0, 1, 0, 0, 0});
  EXPECT_TRUE(std::isnan(out[3].At(0)));
  EXPECT_EQ(out[3].At(1), -1);
  EXPECT_EQ(out[3].At(2), 1);
  EXPECT_EQ(out[3].At(3), 0);
}

TEST(OnnxComposed, LogSumExpDoesNotOverflow) {
  ModelBuilder m(18);
  m.Input("x", {2, 2});
  m.Ints("axes", {1});
  m.Node("ReduceLogSumExp", {"x", "axes"}, {"kept"});
  ModelBuilder::SetInt(m.Node("ReduceLogSumExp", {"x"}, {"all"}), "keepdims", 0);
  m.Output("kept");
  m.Output("all");
  const auto out = m.Run({Array({2, 2}, {100, 100, -100, -100})});
  ExpectArray(out[0], {2, 1}, {100 + std::log(2), -100 + std::log(2)});
  ExpectArray(out[1], {}, {100 + std::log(2)});
}

// Three channels of one pixel, two neighbours: each sees itself and the one behind it.
TEST(OnnxComposed, LrnDividesByNeighbouringChannels) {
  ModelBuilder m(13);
  m.Input("x", {1, 3, 1});
  auto& node = m.Node("LRN", {"x"}, {"y"});
  ModelBuilder::SetInt(node, "size", 2);
  ModelBuilder::SetFloat(node, "alpha", 2);
  ModelBuilder::SetFloat(node, "beta", 1);
  ModelBuilder::SetFloat(node, "bias", 1);
  m.Output("y");
  ExpectArray(m.Run({Array({1, 3, 1}, {1, 2, 3})})[0], {1, 3, 1}, {1.0 / 6, 2.0 / 14, 3.0 / 10});
}

// One head; scores are 0 and log 3 of the first query, twice that of the second one.
NDArray Attention(bool causal, const NDArray* mask) {
  ModelBuilder m(23);
  m.Input("q", {1, 1, 2, 1});
  m.Input("k", {1, 1, 2, 1});
  m.Input("v", {1, 1, 2, 1});
  std::vector<NDArray> feeds = {Array({1, 1, 2, 1}, {1, 2}), Array({1, 1, 2, 1}, {0, std::log(3.0F)}),
                                Array({1, 1, 2, 1}, {10, 20})};
  std::vector<std::string> names = {"q", "k", "v"};
  if (mask != nullptr) {
    m.Input("mask", mask->shape(), mask->dtype() == DType::kBool ? onnx::TensorProto::BOOL : onnx::TensorProto::FLOAT);
    feeds.push_back(*mask);
    names.push_back("mask");
  }
  ModelBuilder::SetInt(m.Node("Attention", names, {"y"}), "is_causal", causal ? 1 : 0);
  m.Output("y");
  return m.Run(feeds)[0];
}

TEST(OnnxComposed, AttentionWeighsWhatItSees) {
  ExpectArray(Attention(false, nullptr), {1, 1, 2, 1}, {17.5, 19});  // shares 1 : 3 and 1 : 9
  ExpectArray(Attention(true, nullptr), {1, 1, 2, 1}, {10, 19});
  NDArray none_of_the_first(DType::kBool, {2, 2});
  none_of_the_first.Set(2, 1);
  ExpectArray(Attention(false, &none_of_the_first), {1, 1, 2, 1}, {0, 10});
  const NDArray added = Array({2, 2}, {std::log(3.0F), 0, 0, 0});
  ExpectArray(Attention(false, &added), {1, 1, 2, 1}, {15, 19});
}

TEST(OnnxComposed, QueriesShareHeadsOfKeys) {
  ModelBuilder m(24);
  m.Input("q", {1, 1, 4});
  m.Input("kv", {1, 1, 2});
  auto& node = m.Node("Attention", {"q", "kv", "kv"}, {"y"});
  ModelBuilder::SetInt(node, "q_num_heads", 4);
  ModelBuilder::SetInt(node, "kv_num_heads", 2);
  m.Output("y");
  ExpectArray(m.Run({Array({1, 1, 4}, {1, 1, 1, 1}), Array({1, 1, 2}, {5, 6})})[0], {1, 1, 4}, {5, 5, 6, 6});
}

// Two keys of earlier runs, two of this one; query i sees the earlier ones and those up to the i-th of this run. What
// is shown of the scores: their product, under a cap, masked, as weights.
TEST(OnnxComposed, AttentionGoesOnFromEarlierRuns) {
  const std::vector<float> q = {1, -2}, k = {0.5F, 1.5F}, v = {3, 4}, past_k = {-1, 2}, past_v = {7, -5};
  const double keys[] = {-1, 2, 0.5, 1.5}, values[] = {7, -5, 3, 4}, kNever = -std::numeric_limits<double>::infinity();
  for (const double cap : {0.0, 3.0}) {
    for (int64_t mode = 0; mode < 4; ++mode) {
      ModelBuilder m(23);
      for (const char* name : {"q", "k", "v", "past_k", "past_v"}) m.Input(name, {1, 1, 2, 1});
      auto& node = m.Node("Attention", {"q", "k", "v", "", "past_k", "past_v"}, {"y", "all_k", "all_v", "scores"});
      ModelBuilder::SetInt(node, "is_causal", 1);
      ModelBuilder::SetInt(node, "qk_matmul_output_mode", mode);
      ModelBuilder::SetFloat(node, "softcap", static_cast<float>(cap));
      for (const char* name : {"y", "all_k", "all_v", "scores"}) m.Output(name);
      const Shape shape = {1, 1, 2, 1};
      const auto out =
          m.Run({Array(shape, q), Array(shape, k), Array(shape, v), Array(shape, past_k), Array(shape, past_v)});
      std::vector<double> y, scores;
      for (int i = 0; i < 2; ++i) {
        double total = 0, sum = 0, weights[4];
        for (int j = 0; j < 4; ++j) {
          const double product = q[static_cast<size_t>(i)] * keys[j];
          const double capped = cap > 0 ? cap * std::tanh(product / cap) : product;
          const double masked = j <= i + 2 ? capped : kNever;
          weights[j] = std::exp(masked);
          total += weights[j];
          sum += weights[j] * values[j];
          if (mode < 3) scores.push_back(mode == 0 ? product : mode == 1 ? capped : masked);
        }
        y.push_back(sum / total);
        for (double w : weights) {
          if (mode == 3) scores.push_back(w / total);
        }
      }
      ExpectArray(out[0], shape, y);
      ExpectArray(out[1], {1, 1, 4, 1}, {keys, keys + 4});
      ExpectArray(out[2], {1, 1, 4, 1}, {values, values + 4});
      ASSERT_EQ(out[3].shape(), (Shape{1, 1, 2, 4}));
      for (int64_t i = 0; i < 8; ++i) {
        const double want = scores[static_cast<size_t>(i)], got = out[3].At(i);
        if (std::isinf(want)) {
          EXPECT_LT(got, -1e4) << "element " << i << " of mode " << mode;
        } else {
          EXPECT_NEAR(got, want, 1e-5) << "element " << i << " of mode " << mode;
        }
      }
    }
  }
}

// Scores are all alike: each query gives the mean of the keys that it sees. Values are 1, 10, 100 and 1000.
struct Reaching {
  int64_t queries = 4, left = -1, right = -1, past = 0, length = -1;
  bool causal = false;
};
NDArray MeansOfSeen(const Reaching& r, ModelBuilder* refused = nullptr) {
  ModelBuilder m(25);
  std::vector<NDArray> feeds;
  const auto input = [&](const char* name, Shape shape, std::vector<float> values) {
    m.Input(name, shape);
    feeds.push_back(Array(std::move(shape), values));
  };
  const std::vector<float> all = {1, 10, 100, 1000};
  const int64_t past = std::max<int64_t>(r.past, 0), keys = 4 - past;
  input("q", {1, 1, r.queries, 1}, std::vector<float>(static_cast<size_t>(r.queries)));
  input("k", {1, 1, keys, 1}, std::vector<float>(static_cast<size_t>(keys)));
  input("v", {1, 1, keys, 1}, {all.begin() + past, all.end()});
  if (past > 0) input("past_k", {1, 1, past, 1}, std::vector<float>(static_cast<size_t>(past)));
  if (past > 0) input("past_v", {1, 1, past, 1}, {all.begin(), all.begin() + past});
  if (r.length >= 0) {
    m.Input("lengths", {1}, onnx::TensorProto::INT64);
    feeds.emplace_back(DType::kI64, Shape{1});
    feeds.back().Set(0, static_cast<double>(r.length));
  }
  auto& node = m.Node(
      "Attention",
      {"q", "k", "v", "", past > 0 ? "past_k" : "", past > 0 ? "past_v" : "", r.length >= 0 ? "lengths" : ""}, {"y"});
  ModelBuilder::SetInt(node, "left_window_size", r.left);
  ModelBuilder::SetInt(node, "right_window_size", r.right);
  ModelBuilder::SetInt(node, "is_causal", r.causal ? 1 : 0);
  m.Output("y");
  if (refused == nullptr) return m.Run(feeds)[0];
  *refused = m;
  return NDArray();
}

TEST(OnnxComposed, AttentionReachesSoFar) {
  const Shape four = {1, 1, 4, 1}, two = {1, 1, 2, 1};
  ExpectArray(MeansOfSeen({.left = 1, .right = 0}), four, {1, 5.5, 55, 550}, 1e-3);
  ExpectArray(MeansOfSeen({.left = 1, .right = -1}), four, {277.75, 277.75, 370, 550}, 1e-3);
  ExpectArray(MeansOfSeen({.left = 0, .right = 1}), four, {5.5, 55, 550, 1000}, 1e-3);
  ExpectArray(MeansOfSeen({.right = 1}), four, {5.5, 37, 277.75, 277.75}, 1e-3);
  ExpectArray(MeansOfSeen({.right = 1, .causal = true}), four, {1, 5.5, 37, 277.75}, 1e-3);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  ExpectArray(MeansOfSeen({.left = kMost, .right = kMost}), four, {277.75, 277.75, 277.75, 277.75}, 1e-3);
  ExpectArray(MeansOfSeen({.queries = 2, .left = 1, .past = 2, .causal = true}), two, {55, 550}, 1e-3);
}

// Queries stand at the end of so many keys. Those before the first key see nothing, which gives zeros.
TEST(OnnxComposed, AttentionReachesFromTheEndOfLengths) {
  const Shape four = {1, 1, 4, 1}, two = {1, 1, 2, 1};
  ExpectArray(MeansOfSeen({.queries = 2, .length = 3, .causal = true}), two, {5.5, 37}, 1e-3);
  ExpectArray(MeansOfSeen({.length = 2, .causal = true}), four, {0, 0, 1, 5.5}, 1e-3);
  ExpectArray(MeansOfSeen({.queries = 2, .left = 1, .right = 0, .length = 4}), two, {55, 550}, 1e-3);
  ExpectArray(MeansOfSeen({.queries = 2, .left = 0, .right = 1, .length = 3}), two, {55, 100}, 1e-3);
  ExpectArray(MeansOfSeen({.queries = 2, .left = 0, .length = 3}), two, {55, 100}, 1e-3);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  ExpectArray(MeansOfSeen({.queries = 2, .left = kMost, .right = kMost, .length = 2}), two, {5.5, 5.5}, 1e-3);
  ExpectArray(MeansOfSeen({.queries = 2, .length = 0}), two, {0, 0}, 1e-3);
}

TEST(OnnxComposed, AttentionThatCanNotBeIsRefused) {
  ModelBuilder m(25);
  for (const Reaching& r : {Reaching{.left = -2}, Reaching{.right = -3}}) {
    MeansOfSeen(r, &m);
    EXPECT_THAT(testing::Refusal(m), HasSubstr("left_window_size and right_window_size are -1 or at least 0"));
  }
  MeansOfSeen({.past = 1, .length = 2}, &m);
  EXPECT_THAT(testing::Refusal(m), HasSubstr("lengths of keys come without keys of earlier runs"));
  for (const char* name : {"scale", "softcap"}) {
    MeansOfSeen({}, &m);
    ModelBuilder::SetFloat(*m.model.mutable_graph()->mutable_node(0), name, std::numeric_limits<float>::quiet_NaN());
    EXPECT_THAT(testing::Refusal(m), HasSubstr(std::string(name) + " is finite"));
  }
}

// As ONNX Runtime has it: a row to which -inf alone is added gives zeros, one of the least floats the mean.
TEST(OnnxComposed, AttentionToNothingGivesZeros) {
  const float never = -std::numeric_limits<float>::infinity(), least = std::numeric_limits<float>::lowest();
  for (const float other : {never, least}) {
    const NDArray mask = Array({2, 2}, {other, other, never, 0});
    ExpectArray(Attention(false, &mask), {1, 1, 2, 1}, {other == never ? 0.0 : 15.0, 20});
  }
}

// A mask of fewer keys than there are sees none of the others, and lengths of keys end each batch element's.
TEST(OnnxComposed, AttentionMasksMayEndEarly) {
  ModelBuilder m(24);
  m.Input("q", {2, 1, 1, 1});
  m.Input("k", {2, 1, 3, 1});
  m.Input("mask", {1, 2});
  m.Input("lengths", {2}, onnx::TensorProto::INT64);
  m.Node("Attention", {"q", "k", "k", "mask"}, {"masked"});
  m.Node("Attention", {"q", "k", "k", "", "", "", "lengths"}, {"ended"});
  ModelBuilder::SetInt(m.Node("Attention", {"q", "k", "k", "mask", "", "", "lengths"}, {"both"}), "is_causal", 1);
  for (const char* name : {"masked", "ended", "both"}) m.Output(name);
  NDArray lengths(DType::kI64, {2});
  lengths.Set(0, 1);
  lengths.Set(1, 3);
  const auto out = m.Run({Array({2, 1, 1, 1}, {0, 0}), Array({2, 1, 3, 1}, {1, 2, 6, 10, 20, 60}),
                          Array({1, 2}, {0, std::log(3.0F)}), lengths});
  ExpectArray(out[0], {2, 1, 1, 1}, {1.75, 17.5});
  ExpectArray(out[1], {2, 1, 1, 1}, {1, 30});
  ExpectArray(out[2], {2, 1, 1, 1}, {1, 17.5});
}

TEST(OnnxComposed, EarlierKeysComeWithTheirValues) {
  ModelBuilder m(23);
  m.Input("x", {1, 1, 2, 4});
  m.Node("Attention", {"x", "x", "x", "", "x"}, {"y"});
  m.Output("y");
  EXPECT_EQ(m.Import().status().message(),
            "test: Attention 'Attention_1': keys of earlier runs come with their values");
}

TEST(OnnxComposed, SwiGluIsASwishTimesAnother) {
  ModelBuilder m(28);
  m.Input("a", {2});
  m.Input("b", {2});
  m.Input("wide", {1, 2});
  ModelBuilder::SetFloat(m.Node("SwiGLU", {"a", "b"}, {"y"}), "alpha", 2);
  m.Output("y");
  const auto inputs = {Array({2}, {1, -2}), Array({2}, {10, 3}), Array({1, 2}, {0, 0})};
  ExpectArray(m.Run(inputs)[0], {2}, {10 / (1 + std::exp(-2.0)), -6 / (1 + std::exp(4.0))});
  m.model.mutable_graph()->mutable_node(0)->set_input(1, "wide");
  EXPECT_THAT(testing::Refusal(m), HasSubstr("A and B have one shape"));
}

TEST(OnnxComposed, RmsNormalizationAndSwish) {
  ModelBuilder m(24);
  m.Input("x", {2, 2});
  m.Floats("scale", {2}, {1, 10});
  ModelBuilder::SetFloat(m.Node("RMSNormalization", {"x", "scale"}, {"rms"}), "epsilon", 0);
  ModelBuilder::SetFloat(m.Node("Swish", {"x"}, {"swish"}), "alpha", 2);
  m.Output("rms");
  m.Output("swish");
  const auto out = m.Run({Array({2, 2}, {1, 7, -2, 2})});
  ExpectArray(out[0], {2, 2}, {0.2, 14, -1, 10});
  const auto swish = [](double x) { return x / (1 + std::exp(-2 * x)); };
  ExpectArray(out[1], {2, 2}, {swish(1), swish(7), swish(-2), swish(2)});
}

// Two positions, turned by no angle and by a right one; the last element of each head stays.
TEST(OnnxComposed, RotaryEmbeddingTurnsPairs) {
  for (const bool interleaved : {false, true}) {
    for (const bool heads_first : {false, true}) {
      ModelBuilder m(23);
      m.Input("x", heads_first ? Shape{1, 2, 2, 5} : Shape{1, 2, 10});
      m.Floats("cosines", {3, 2}, {1, 1, 9, 9, 0, 0});
      m.Floats("sines", {3, 2}, {0, 0, 9, 9, 1, 1});
      m.Ints("flat", {0, 2});
      m.Ints("places", {1, 2});
      m.Node("Reshape", {"flat", "places"}, {"positions"});
      auto& node = m.Node("RotaryEmbedding", {"x", "cosines", "sines", "positions"}, {"y"});
      ModelBuilder::SetInt(node, "interleaved", interleaved ? 1 : 0);
      ModelBuilder::SetInt(node, "rotary_embedding_dim", 4);
      if (!heads_first) ModelBuilder::SetInt(node, "num_heads", 2);
      m.Output("y");
      std::vector<float> x(20);
      std::iota(x.begin(), x.end(), 1);
      std::vector<double> wanted(x.begin(), x.end());
      for (const size_t head : heads_first ? std::vector<size_t>{5, 15} : std::vector<size_t>{10, 15}) {
        for (const size_t i : {0, 1}) {
          const size_t first = head + (interleaved ? 2 * i : i), second = interleaved ? first + 1 : first + 2;
          wanted[first] = -x[second];
          wanted[second] = x[first];
        }
      }
      const Shape shape = heads_first ? Shape{1, 2, 2, 5} : Shape{1, 2, 10};
      ExpectArray(m.Run({Array(shape, x)})[0], shape, wanted);
    }
  }
  ModelBuilder odd(23);
  odd.Input("x", {1, 1, 1, 4});
  odd.Floats("angles", {1, 1, 3}, {1, 1, 1});
  odd.Node("RotaryEmbedding", {"x", "angles", "angles"}, {"y"});
  odd.Output("y");
  EXPECT_THAT(std::string(odd.Import().status().message()), ::testing::HasSubstr("each of 2 pairs"));
}

TEST(OnnxComposed, LayerNormalizationTellsItsMoments) {
  ModelBuilder m(17);
  m.Input("x", {2, 2});
  m.Floats("scale", {2}, {1, 1});
  ModelBuilder::SetFloat(m.Node("LayerNormalization", {"x", "scale"}, {"y", "mean", "deviation"}), "epsilon", 0);
  for (const char* y : {"y", "mean", "deviation"}) m.Output(y);
  const auto out = m.Run({Array({2, 2}, {1, 5, -1, 0})});
  ExpectArray(out[0], {2, 2}, {-1, 1, -1, 1});
  ExpectArray(out[1], {2, 1}, {3, -0.5});
  ExpectArray(out[2], {2, 1}, {0.5, 2});
}

TEST(OnnxComposed, NormalizationByMeanAndVarianceAndTheHardSoftmax) {
  ModelBuilder m(13);
  m.Input("x", {2, 3});
  ModelBuilder::SetInts(m.Node("MeanVarianceNormalization", {"x"}, {"normal"}), "axes", {0});
  m.Node("Hardmax", {"x"}, {"hard"});
  ModelBuilder::SetInt(m.Node("Hardmax", {"x"}, {"first"}), "axis", 0);
  for (const char* y : {"normal", "hard", "first"}) m.Output(y);
  const auto out = m.Run({Array({2, 3}, {1, 4, 4, 3, 4, 2})});
  ExpectArray(out[0], {2, 3}, {-1, 0, 1, 1, 0, -1});
  ExpectArray(out[1], {2, 3}, {0, 1, 0, 0, 1, 0});
  ExpectArray(out[2], {2, 3}, {0, 1, 1, 1, 0, 0});
}

// From that axis on, all are one line.
TEST(OnnxComposed, TheHardSoftmaxFlattensBeforeOpset13) {
  for (const int64_t axis : {0, 1, 2}) {
    ModelBuilder m(11);
    m.Input("x", {2, 2, 2});
    ModelBuilder::SetInt(m.Node("Hardmax", {"x"}, {"y"}), "axis", axis);
    m.Output("y");
    const std::vector<double> want[] = {{0, 0, 0, 0, 0, 1, 0, 0}, {0, 0, 1, 0, 0, 1, 0, 0}, {0, 1, 1, 0, 0, 1, 1, 0}};
    ExpectArray(m.Run({Array({2, 2, 2}, {1, 2, 4, 3, 5, 9, 8, 7})})[0], {2, 2, 2}, want[axis]);
  }
}

TEST(OnnxComposed, ShrinkBringsWhatIsFarNearer) {
  ModelBuilder m(13);
  m.Input("x", {5});
  auto& node = m.Node("Shrink", {"x"}, {"y"});
  ModelBuilder::SetFloat(node, "lambd", 1.5f);
  ModelBuilder::SetFloat(node, "bias", 1);
  m.Output("y");
  ExpectArray(m.Run({Array({5}, {-2, -1.5f, 0, 1, 4})})[0], {5}, {-1, 0, 0, 0, 3});
}

TEST(OnnxComposed, ActivationsMadeOfOthers) {
  ModelBuilder m(13);
  m.Input("x", {3});
  ModelBuilder::SetFloat(m.Node("Celu", {"x"}, {"celu"}), "alpha", 2);
  ModelBuilder::SetFloat(m.Node("ThresholdedRelu", {"x"}, {"threshold"}), "alpha", 1);
  m.Node("Tan", {"x"}, {"tan"});
  for (const char* y : {"celu", "threshold", "tan"}) m.Output(y);
  const auto out = m.Run({Array({3}, {-2, 1, 1.5})});
  ExpectArray(out[0], {3}, {2 * (std::exp(-1) - 1), 1, 1.5});
  ExpectArray(out[1], {3}, {0, 0, 1.5});
  ExpectArray(out[2], {3}, {std::tan(-2), std::tan(1), std::tan(1.5)});
}

}  // namespace
}  // namespace temper
