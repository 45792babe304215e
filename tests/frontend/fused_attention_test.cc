// What com.microsoft's attention and the norms before it take and give beyond the plain: packed operands, masks of
// lengths with more behind them, scores and moments as results.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using testing::Array, testing::ExpectArray, testing::ModelBuilder, testing::Random, testing::Refusal;
using ::testing::HasSubstr;
using Doubles = std::vector<double>;

constexpr int64_t kBatch = 2, kSteps = 2, kKeys = 3, kHeads = 2, kSize = 3, kHidden = kHeads * kSize;

NDArray SmallInts(const Shape& shape, const std::vector<int>& values) {
  NDArray x(DType::kI32, shape);
  for (size_t i = 0; i < values.size(); ++i) x.Set(static_cast<int64_t>(i), values[i]);
  return x;
}

onnx::NodeProto& HeadsOf(ModelBuilder& m, const std::vector<std::string>& inputs,
                         const std::vector<std::string>& outputs) {
  onnx::NodeProto& node = m.Node("MultiHeadAttention", inputs, outputs);
  node.set_domain("com.microsoft");
  ModelBuilder::SetInt(node, "num_heads", kHeads);
  for (const std::string& output : outputs) {
    if (!output.empty()) m.Output(output);
  }
  return node;
}

void ExpectNear(const NDArray& got, const NDArray& want) {
  ASSERT_EQ(got.shape(), want.shape());
  for (int64_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got.At(i), want.At(i), 1e-6) << i;
}

// [batch, sequence, hidden] of each part as [batch, sequence, heads, parts, size].
NDArray Packed(const std::vector<NDArray>& parts) {
  const Shape shape = parts[0].shape();
  const int64_t count = std::ssize(parts);
  NDArray all(DType::kF32, {shape[0], shape[1], kHeads, count, kSize});
  for (int64_t i = 0; i < all.size(); ++i) {
    const int64_t head = i / kSize / count, part = i / kSize % count;
    all.Set(i, parts[static_cast<size_t>(part)].At(head * kSize + i % kSize));
  }
  return all;
}

TEST(FusedAttention, PackedOperandsAreTakenApart) {
  const Shape queries = {kBatch, kSteps, kHidden}, keys = {kBatch, kKeys, kHidden};
  const NDArray q = Array(queries, Random(NumElements(queries), 1)), k = Array(keys, Random(NumElements(keys), 2)),
                v = Array(keys, Random(NumElements(keys), 3));
  const auto apart = [](const NDArray& a, const NDArray& b, const NDArray& c) {
    ModelBuilder m(17);
    m.Input("q", a.shape());
    m.Input("k", b.shape());
    m.Input("v", c.shape());
    HeadsOf(m, {"q", "k", "v"}, {"y"});
    return m.Run({a, b, c})[0];
  };
  ModelBuilder all(17), pairs(17);
  all.Input("x", {kBatch, kKeys, kHeads, 3, kSize});
  HeadsOf(all, {"x"}, {"y"});
  ExpectNear(all.Run({Packed({v, k, v})})[0], apart(v, k, v));
  pairs.Input("q", queries);
  pairs.Input("x", {kBatch, kKeys, kHeads, 2, kSize});
  HeadsOf(pairs, {"q", "x"}, {"y"});
  ExpectNear(pairs.Run({q, Packed({k, v})})[0], apart(q, k, v));
  ModelBuilder wrong(17);
  wrong.Input("x", {kBatch, kKeys, kHeads, 2, kSize});
  HeadsOf(wrong, {"x"}, {"y"});
  EXPECT_THAT(Refusal(wrong), HasSubstr("what is packed is [batch, sequence, heads, 3, size]"));
}

// As ONNX Runtime 1.32 has it, of a mask of [3 * batch + 2] the ends of keys count.
TEST(FusedAttention, EndsOfKeysWithWherePackedRowsWouldBegin) {
  const Shape queries = {kBatch, kSteps, kHidden}, keys = {kBatch, kKeys, kHidden};
  const auto run = [&](const NDArray& mask) {
    ModelBuilder m(17);
    m.Input("q", queries);
    m.Input("k", keys);
    m.Input("mask", mask.shape(), onnx::TensorProto::INT32);
    HeadsOf(m, {"q", "k", "k", "", "mask"}, {"y"});
    return m.Run({Array(queries, Random(NumElements(queries), 1)), Array(keys, Random(NumElements(keys), 2)), mask})[0];
  };
  ExpectNear(run(SmallInts({8}, {1, 3, 0, 2, 4, 0, 3, 6})), run(SmallInts({2}, {1, 3})));
}

// The fourth result: what the softmax takes, with the masks in it.
TEST(FusedAttention, ScoresAreAResult) {
  const Shape queries = {kBatch, kSteps, kHidden}, keys = {kBatch, kKeys, kHidden};
  const std::vector<float> q = Random(NumElements(queries), 1), k = Random(NumElements(keys), 2),
                           bias = Random(kHeads * kSteps * kKeys, 3);
  ModelBuilder m(17);
  m.Input("q", queries);
  m.Input("k", keys);
  m.Input("mask", {kBatch, kKeys}, onnx::TensorProto::INT32);
  m.Floats("bias", {1, kHeads, kSteps, kKeys}, bias);
  ModelBuilder::SetFloat(HeadsOf(m, {"q", "k", "k", "", "mask", "bias"}, {"y", "", "", "scores"}), "mask_filter_value",
                         -100);
  const std::vector<int> counts = {1, 1, 0, 0, 1, 1};
  const NDArray scores = m.Run({Array(queries, q), Array(keys, k), SmallInts({kBatch, kKeys}, counts)})[1];
  Doubles want;
  for (int64_t i = 0; i < kBatch * kHeads * kSteps * kKeys; ++i) {
    const int64_t key = i % kKeys, step = i / kKeys % kSteps, head = i / kKeys / kSteps % kHeads,
                  b = i / kKeys / kSteps / kHeads;
    double score = 0;
    for (int64_t d = 0; d < kSize; ++d)
      score += double{q[static_cast<size_t>((b * kSteps + step) * kHidden + head * kSize + d)]} *
               k[static_cast<size_t>((b * kKeys + key) * kHidden + head * kSize + d)];
    want.push_back(score / std::sqrt(static_cast<double>(kSize)) +
                   bias[static_cast<size_t>((head * kSteps + step) * kKeys + key)] +
                   (counts[static_cast<size_t>(b * kKeys + key)] != 0 ? 0 : -100));
  }
  ExpectArray(scores, {kBatch, kHeads, kSteps, kKeys}, want, 1e-4);
}

// Of the sum's rows, (1, 5) and (-1, 0): the means, and one over the deviations.
TEST(FusedAttention, MomentsOfTheNormOfASum) {
  ModelBuilder m(17);
  m.Input("x", {1, 2, 2});
  m.Floats("skip", {2, 2}, {1, 1, 1, 1});
  m.Floats("gamma", {2}, {1, 1});
  onnx::NodeProto& node = m.Node("SkipLayerNormalization", {"x", "skip", "gamma"}, {"y", "mean", "deviation", "sum"});
  node.set_domain("com.microsoft");
  for (const char* name : {"y", "mean", "deviation", "sum"}) m.Output(name);
  const std::vector<NDArray> out = m.Run({Array({1, 2, 2}, {0, 4, -2, -1})});
  ExpectArray(out[0], {1, 2, 2}, {-1, 1, -1, 1});
  ExpectArray(out[1], {1, 2, 1}, {3, -0.5});
  ExpectArray(out[2], {1, 2, 1}, {0.5, 2});
  ExpectArray(out[3], {1, 2, 2}, {1, 5, -1, 0});
}

}  // namespace
}  // namespace temper
