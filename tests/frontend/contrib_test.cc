// Operators of com.microsoft, against their definitions written out.
#include <gmock/gmock.h>

#include <cmath>

#include "base/rng.h"
#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using testing::Array, testing::ExpectArray, testing::ModelBuilder, testing::Random;
using ::testing::HasSubstr;
using Doubles = std::vector<double>;

onnx::NodeProto& Contrib(ModelBuilder& m, const std::string& op, const std::vector<std::string>& inputs,
                         const std::vector<std::string>& outputs) {
  onnx::NodeProto& node = m.Node(op, inputs, outputs);
  node.set_domain("com.microsoft");
  for (const std::string& name : outputs) {
    if (!name.empty()) m.Output(name);
  }
  return node;
}

template <typename T>
void Tensor(ModelBuilder& m, const std::string& name, const Shape& shape, int type, const std::vector<T>& data) {
  onnx::TensorProto* t = m.model.mutable_graph()->add_initializer();
  t->set_name(name);
  t->set_data_type(type);
  for (int64_t d : shape) t->add_dims(d);
  t->set_raw_data(data.data(), data.size() * sizeof(T));
}

NDArray Numbers(DType dtype, Shape shape, const Doubles& values) {
  NDArray a(dtype, std::move(shape));
  for (size_t i = 0; i < values.size(); ++i) a.Set(static_cast<int64_t>(i), values[i]);
  return a;
}

double Gelu(double x) { return x / 2 * std::erfc(-x * M_SQRT1_2); }
double GeluTanh(double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST(Contrib, Activations) {
  const std::vector<float> x = {-3, -0.5, 0, 0.25, 2, 4}, bias = {1, -1, 0.5};
  Doubles biased, fast, quick;
  for (size_t i = 0; i < x.size(); ++i) {
    biased.push_back(Gelu(x[i] + bias[i % 3]));
    fast.push_back(GeluTanh(x[i]));
    quick.push_back(x[i] * Sigmoid(1.702 * x[i]));
  }
  ModelBuilder m(17);
  m.Input("x", {2, 3});
  m.Floats("bias", {3}, bias);
  Contrib(m, "BiasGelu", {"x", "bias"}, {"a"});
  Contrib(m, "FastGelu", {"x"}, {"b"});
  Contrib(m, "QuickGelu", {"x"}, {"c"});
  const std::vector<NDArray> out = m.Run({Array({2, 3}, x)});
  ExpectArray(out[0], {2, 3}, biased);
  ExpectArray(out[1], {2, 3}, fast);
  ExpectArray(out[2], {2, 3}, quick);
}

// (x - mean) / sqrt(variance + epsilon) * gamma + beta of each row, or without the mean.
Doubles Norm(const Doubles& x, const std::vector<float>& gamma, const std::vector<float>& beta, double epsilon,
             bool simplified) {
  const size_t n = gamma.size();
  Doubles y;
  for (size_t row = 0; row < x.size() / n; ++row) {
    double mean = 0, square = 0;
    for (size_t i = 0; i < n && !simplified; ++i) mean += x[row * n + i] / static_cast<double>(n);
    for (size_t i = 0; i < n; ++i) square += std::pow(x[row * n + i] - mean, 2) / static_cast<double>(n);
    for (size_t i = 0; i < n; ++i)
      y.push_back((x[row * n + i] - mean) / std::sqrt(square + epsilon) * gamma[i] + (beta.empty() ? 0 : beta[i]));
  }
  return y;
}

TEST(Contrib, NormsOfSums) {
  const std::vector<float> x = Random(8, 1), skip = Random(8, 2), gamma = Random(4, 3), beta = Random(4, 4),
                           bias = Random(4, 5);
  Doubles sum, plain;
  for (size_t i = 0; i < 8; ++i) {
    sum.push_back(double{x[i]} + skip[i] + bias[i % 4]);
    plain.push_back(x[i]);
  }
  ModelBuilder m(17);
  m.Input("x", {1, 2, 4});
  m.Input("skip", {1, 2, 4});
  m.Floats("gamma", {4}, gamma);
  m.Floats("beta", {4}, beta);
  m.Floats("bias", {4}, bias);
  ModelBuilder::SetFloat(
      Contrib(m, "SkipLayerNormalization", {"x", "skip", "gamma", "beta", "bias"}, {"a", "", "", "sum"}), "epsilon",
      0.01F);
  ModelBuilder::SetFloat(Contrib(m, "SkipSimplifiedLayerNormalization", {"x", "skip", "gamma", "bias"}, {"b"}),
                         "epsilon", 0.01F);
  onnx::NodeProto& own = Contrib(m, "SimplifiedLayerNormalization", {"x", "gamma"}, {"c"});
  own.set_domain("");
  ModelBuilder::SetFloat(own, "epsilon", 0.01F);
  const std::vector<NDArray> out = m.Run({Array({1, 2, 4}, x), Array({1, 2, 4}, skip)});
  ExpectArray(out[0], {1, 2, 4}, Norm(sum, gamma, beta, 0.01, false));
  ExpectArray(out[1], {1, 2, 4}, sum);
  ExpectArray(out[2], {1, 2, 4}, Norm(sum, gamma, {}, 0.01, true));
  ExpectArray(out[3], {1, 2, 4}, Norm(plain, gamma, {}, 0.01, true));
}

TEST(Contrib, EmbeddingsAreAddedUp) {
  const std::vector<float> words = Random(5 * 4, 1), places = Random(6 * 4, 2), segments = Random(2 * 4, 3),
                           gamma = Random(4, 4), beta = Random(4, 5);
  ModelBuilder m(17);
  m.Input("ids", {1, 3}, onnx::TensorProto::INT32);
  m.Input("kinds", {1, 3}, onnx::TensorProto::INT32);
  m.Floats("words", {5, 4}, words);
  m.Floats("places", {6, 4}, places);
  m.Floats("segments", {2, 4}, segments);
  m.Floats("gamma", {4}, gamma);
  m.Floats("beta", {4}, beta);
  ModelBuilder::SetFloat(
      Contrib(m, "EmbedLayerNormalization", {"ids", "kinds", "words", "places", "segments", "gamma", "beta"}, {"y"}),
      "epsilon", 0.01F);
  const size_t ids[] = {4, 0, 2}, kinds[] = {0, 1, 1};
  Doubles sum;
  for (size_t s = 0; s < 3; ++s) {
    for (size_t i = 0; i < 4; ++i)
      sum.push_back(double{words[ids[s] * 4 + i]} + places[s * 4 + i] + segments[kinds[s] * 4 + i]);
  }
  ExpectArray(m.Run({Numbers(DType::kI32, {1, 3}, {4, 0, 2}), Numbers(DType::kI32, {1, 3}, {0, 1, 1})})[0], {1, 3, 4},
              Norm(sum, gamma, beta, 0.01, false));
}

// As ONNX Runtime counts them: the ones, wherever they lie.
TEST(Contrib, TheLengthsOfAMaskAreItsOnes) {
  for (const bool masked : {true, false}) {
    ModelBuilder m(17);
    m.Input("ids", {2, 3}, onnx::TensorProto::INT32);
    m.Input("mask", {2, 3}, onnx::TensorProto::INT32);
    m.Floats("words", {5, 4}, Random(20, 1));
    m.Floats("places", {6, 4}, Random(24, 2));
    m.Floats("gamma", {4}, Random(4, 4));
    Contrib(m, "EmbedLayerNormalization", {"ids", "", "words", "places", "", "gamma", "gamma", masked ? "mask" : ""},
            {"y", "lengths"});
    const NDArray ids = Numbers(DType::kI32, {2, 3}, {4, 0, 2, 1, 1, 1});
    const std::vector<NDArray> out = m.Run({ids, Numbers(DType::kI32, {2, 3}, {1, 1, 0, 0, 1, 2})});
    EXPECT_EQ(out[1].dtype(), DType::kI32);
    ExpectArray(out[1], {2}, masked ? Doubles{2, 1} : Doubles{0, 0});
  }
}

TEST(Contrib, ProductsOfWhatLiesAcross) {
  // a is [rows, batch, depth], b [batch, columns, depth].
  const std::vector<float> a = Random(2 * 3 * 4, 1), b = Random(3 * 5 * 4, 2);
  ModelBuilder m(17);
  m.Input("a", {2, 3, 4});
  m.Input("b", {3, 5, 4});
  onnx::NodeProto& node = Contrib(m, "FusedMatMul", {"a", "b"}, {"y"});
  ModelBuilder::SetInt(node, "transBatchA", 1);
  ModelBuilder::SetInt(node, "transB", 1);
  ModelBuilder::SetFloat(node, "alpha", 0.5F);
  Doubles want;
  for (size_t batch = 0; batch < 3; ++batch) {
    for (size_t row = 0; row < 2; ++row) {
      for (size_t column = 0; column < 5; ++column) {
        double sum = 0;
        for (size_t k = 0; k < 4; ++k) sum += double{a[(row * 3 + batch) * 4 + k]} * b[(batch * 5 + column) * 4 + k];
        want.push_back(sum / 2);
      }
    }
  }
  ExpectArray(m.Run({Array({2, 3, 4}, a), Array({3, 5, 4}, b)})[0], {3, 2, 5}, want);
}

// A vector by a matrix, with a bias; `accuracy_level` says whether the vector may be rounded to 8 bits.
TEST(Contrib, AVectorByWeightsOfFewBitsMayBeRounded) {
  Rng rng(1);
  std::vector<uint8_t> packed(5 * 2 * 8);
  for (uint8_t& byte : packed) byte = static_cast<uint8_t>(rng.Below(256));
  const std::vector<float> x = Random(32, 1), bias = Random(5, 2);
  Doubles want;
  for (size_t n = 0; n < 5; ++n) {
    double sum = bias[n];
    for (size_t k = 0; k < 32; ++k) sum += x[k] * 0.5 * ((packed[n * 16 + k / 2] >> (k % 2 * 4) & 15) - 8);
    want.push_back(sum);
  }
  for (const int64_t level : {0, 1, 4}) {
    ModelBuilder m(17);
    m.Input("x", {32});
    Tensor(m, "b", {5, 2, 8}, onnx::TensorProto::UINT8, packed);
    m.Floats("scales", {10}, std::vector<float>(10, 0.5F));
    m.Floats("bias", {5}, bias);
    onnx::NodeProto& node = Contrib(m, "MatMulNBits", {"x", "b", "scales", "", "", "bias"}, {"y"});
    ModelBuilder::SetInt(node, "K", 32);
    ModelBuilder::SetInt(node, "N", 5);
    ModelBuilder::SetInt(node, "block_size", 16);
    ModelBuilder::SetInt(node, "accuracy_level", level);
    ExpectArray(m.Run({Array({32}, x)})[0], {5}, want, 1e-5);
    const Graph g = *m.Import();
    const auto product = std::ranges::find(g.nodes, "matmul", &temper::Node::op);
    ASSERT_NE(product, g.nodes.end());
    EXPECT_EQ(product->attrs.Int("left_bits", 0), level == 4 ? 8 : 0);
  }
}

// Of 20 numbers in blocks of 16, each fifth one is in the second block: what g_idx says.
const std::vector<int32_t> kEachFifth = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0};

// Weights of few bits: 20 of a row in blocks of 16, so that the last block is padded.
TEST(Contrib, WeightsOfFewBits) {
  constexpr int64_t kRows = 3, kDepth = 20, kBlock = 16, kBlocks = 2;
  for (const int64_t bits : {2, 4, 8}) {
    for (const auto& [zeros, grouped] : {std::pair{false, false}, {true, false}, {true, true}}) {
      const int64_t in_byte = 8 / bits;
      Rng rng(static_cast<uint64_t>(bits));
      std::vector<uint8_t> packed(kRows * kBlocks * kBlock / in_byte),
          zero(kRows * ((kBlocks + in_byte - 1) / in_byte));
      for (uint8_t& byte : packed) byte = static_cast<uint8_t>(rng.Below(256));
      for (uint8_t& byte : zero) byte = static_cast<uint8_t>(rng.Below(256));
      const std::vector<float> scales = Random(kRows * kBlocks, 1), x = Random(2 * kDepth, 2);
      ModelBuilder m(17);
      m.Input("x", {2, kDepth});
      Tensor(m, "b", {kRows, kBlocks, kBlock / in_byte}, onnx::TensorProto::UINT8, packed);
      m.Floats("scales", {kRows * kBlocks}, scales);
      Tensor(m, "zero", {static_cast<int64_t>(zero.size())}, onnx::TensorProto::UINT8, zero);
      Tensor(m, "groups", {kDepth}, onnx::TensorProto::INT32, kEachFifth);
      onnx::NodeProto& node =
          Contrib(m, "MatMulNBits", {"x", "b", "scales", zeros ? "zero" : "", grouped ? "groups" : ""}, {"y"});
      ModelBuilder::SetInt(node, "K", kDepth);
      ModelBuilder::SetInt(node, "N", kRows);
      ModelBuilder::SetInt(node, "bits", bits);
      ModelBuilder::SetInt(node, "block_size", kBlock);
      const auto field = [&](const std::vector<uint8_t>& bytes, int64_t i) {
        return bytes[static_cast<size_t>(i / in_byte)] >> (i % in_byte * bits) & ((1 << bits) - 1);
      };
      const int64_t zeros_of_row = (kBlocks + in_byte - 1) / in_byte * in_byte;
      Doubles want;
      for (int64_t row = 0; row < 2; ++row) {
        for (int64_t n = 0; n < kRows; ++n) {
          double sum = 0;
          for (int64_t k = 0; k < kDepth; ++k) {
            const int64_t block = grouped ? kEachFifth[static_cast<size_t>(k)] : k / kBlock;
            const int from = zeros ? field(zero, n * zeros_of_row + block) : 1 << (bits - 1);
            sum += x[static_cast<size_t>(row * kDepth + k)] * double{scales[static_cast<size_t>(n * kBlocks + block)]} *
                   (field(packed, n * kBlocks * kBlock + k) - from);
          }
          want.push_back(sum);
        }
      }
      ExpectArray(m.Run({Array({2, kDepth}, x)})[0], {2, kRows}, want, 1e-4 * (1 << bits));
    }
  }
}

// 20 of a row in blocks of 16, with zero points between the numbers.
TEST(Contrib, WeightsOfFewBitsWithZeroPointsOfFloats) {
  Rng rng(1);
  std::vector<uint8_t> packed(3 * 2 * 8);
  for (uint8_t& byte : packed) byte = static_cast<uint8_t>(rng.Below(256));
  const std::vector<float> x = Random(2 * 20, 1), scales = Random(3 * 2, 2), zeros = {7.5F, 8, 0, 3.25F, 15, 9};
  ModelBuilder m(17);
  m.Input("x", {2, 20});
  Tensor(m, "b", {3, 2, 8}, onnx::TensorProto::UINT8, packed);
  m.Floats("scales", {3, 2}, scales);
  m.Floats("zeros", {3, 2}, zeros);
  Tensor(m, "groups", {20}, onnx::TensorProto::INT32, kEachFifth);
  onnx::NodeProto& node = Contrib(m, "MatMulNBits", {"x", "b", "scales", "zeros", "groups"}, {"y"});
  ModelBuilder::SetInt(node, "K", 20);
  ModelBuilder::SetInt(node, "N", 3);
  ModelBuilder::SetInt(node, "block_size", 16);
  Doubles want;
  for (size_t row = 0; row < 2; ++row) {
    for (size_t n = 0; n < 3; ++n) {
      double sum = 0;
      for (size_t k = 0; k < 20; ++k) {
        const size_t block = n * 2 + static_cast<size_t>(kEachFifth[k]);
        sum += x[row * 20 + k] * double{scales[block]} *
               ((packed[n * 16 + k / 2] >> (k % 2 * 4) & 15) - double{zeros[block]});
      }
      want.push_back(sum);
    }
  }
  ExpectArray(m.Run({Array({2, 20}, x)})[0], {2, 3}, want, 1e-4);
}

// Rows of 32 numbers in two blocks: two in a byte or one, with zero points or those that are half of the range.
TEST(Contrib, RowsOfATableOfFewBits) {
  constexpr int64_t kRows = 5, kWidth = 32, kBlock = 16, kBlocks = 2;
  for (const int64_t bits : {4, 8}) {
    for (const bool zeros : {false, true}) {
      const int64_t in_byte = 8 / bits;
      Rng rng(static_cast<uint64_t>(bits));
      std::vector<uint8_t> table(kRows * kWidth / in_byte), zero(kRows * kBlocks / in_byte);
      for (std::vector<uint8_t>* all : {&table, &zero}) {
        for (uint8_t& byte : *all) byte = static_cast<uint8_t>(rng.Below(256));
      }
      const std::vector<float> scales = Random(kRows * kBlocks, 1);
      ModelBuilder m(17);
      Tensor(m, "table", {kRows, kWidth / in_byte}, onnx::TensorProto::UINT8, table);
      Tensor(m, "zero", {kRows, kBlocks / in_byte}, onnx::TensorProto::UINT8, zero);
      m.Floats("scales", {kRows, kBlocks}, scales);
      m.Input("rows", {3}, onnx::TensorProto::INT64);
      onnx::NodeProto& node =
          Contrib(m, "GatherBlockQuantized", {"table", "rows", "scales", zeros ? "zero" : ""}, {"y"});
      ModelBuilder::SetInt(node, "bits", bits);
      ModelBuilder::SetInt(node, "block_size", kBlock);
      ModelBuilder::SetInt(node, "quantize_axis", 1);
      const auto field = [&](const std::vector<uint8_t>& bytes, int64_t i) {
        return bytes[static_cast<size_t>(i / in_byte)] >> (i % in_byte * bits) & ((1 << bits) - 1);
      };
      Doubles want;
      for (const int64_t row : {4, 0, 3}) {
        for (int64_t i = 0; i < kWidth; ++i) {
          const int64_t block = row * kBlocks + i / kBlock;
          want.push_back((field(table, row * kWidth + i) - (zeros ? field(zero, block) : 1 << (bits - 1))) *
                         double{scales[static_cast<size_t>(block)]});
        }
      }
      ExpectArray(m.Run({Numbers(DType::kI64, {3}, {4, 0, 3})})[0], {3, kWidth}, want, 1e-4);
    }
  }
}

double Clamped(double v, double low, double high) { return std::min(std::max(v, low), high); }

TEST(Contrib, QuantisedOperators) {
  const Doubles a = {0, 100, 200, 255}, b = {10, 20, 128, 250};
  ModelBuilder m(17);
  m.Input("a", {1, 1, 2, 2}, onnx::TensorProto::UINT8);
  m.Input("b", {1, 1, 2, 2}, onnx::TensorProto::UINT8);
  for (const auto& [name, scale] : {std::pair{"as", 0.1F}, {"bs", 0.05F}, {"ys", 0.2F}}) m.Floats(name, {}, {scale});
  for (const auto& [name, zero] : {std::pair{"az", 100}, {"bz", 128}, {"yz", 60}})
    Tensor<uint8_t>(m, name, {}, onnx::TensorProto::UINT8, {static_cast<uint8_t>(zero)});
  Contrib(m, "QLinearAdd", {"a", "as", "az", "b", "bs", "bz", "ys", "yz"}, {"sum"});
  Contrib(m, "QLinearMul", {"a", "as", "az", "b", "bs", "bz", "ys", "yz"}, {"product"});
  Contrib(m, "QLinearSigmoid", {"a", "as", "az", "ys", "yz"}, {"sigmoid"});
  Contrib(m, "QLinearGlobalAveragePool", {"a", "as", "az", "ys", "yz"}, {"mean"});
  ModelBuilder::SetInt(Contrib(m, "QLinearConcat", {"ys", "yz", "a", "as", "az", "b", "bs", "bz"}, {"both"}), "axis",
                       1);
  const auto number = [](double v) { return Clamped(std::nearbyint(v / double{0.2F}) + 60, 0, 255); };
  Doubles sum, product, sigmoid, both;
  double mean = 0;
  for (size_t i = 0; i < 4; ++i) {
    const double x = (a[i] - 100) * double{0.1F}, y = (b[i] - 128) * double{0.05F};
    sum.push_back(number(x + y));
    product.push_back(number(x * y));
    sigmoid.push_back(number(Sigmoid(x)));
    mean += x / 4;
    both.push_back(number(x));
  }
  for (double v : b) both.push_back(number((v - 128) * double{0.05F}));
  const std::vector<NDArray> out = m.Run({Numbers(DType::kU8, {1, 1, 2, 2}, a), Numbers(DType::kU8, {1, 1, 2, 2}, b)});
  ExpectArray(out[0], {1, 1, 2, 2}, sum);
  ExpectArray(out[1], {1, 1, 2, 2}, product);
  ExpectArray(out[2], {1, 1, 2, 2}, sigmoid);
  ExpectArray(out[3], {1, 1, 1, 1}, {number(mean)});
  ExpectArray(out[4], {1, 2, 2, 2}, both);
}

TEST(Contrib, ProductsOfIntegers) {
  const Doubles a = {0, 7, 255, 128, 3, 90}, b = {1, -2, 127, -128, 5, 6};  // [2, 3], [3, 2]
  const double a_scale = 0.5F, b_scale = 0.25F;
  Doubles sums;
  for (size_t i = 0; i < 2; ++i) {
    for (size_t j = 0; j < 2; ++j) {
      double sum = 0;
      for (size_t k = 0; k < 3; ++k) sum += (a[i * 3 + k] - 100) * (b[k * 2 + j] - 3);
      sums.push_back(sum * a_scale * b_scale);
    }
  }
  ModelBuilder m(17);
  m.Input("a", {2, 3}, onnx::TensorProto::UINT8);
  m.Input("x", {2, 3});
  m.Floats("as", {}, {0.5F});
  m.Floats("bs", {}, {0.25F});
  m.Floats("bias", {2}, {1, -1});
  Tensor<int8_t>(m, "b", {3, 2}, onnx::TensorProto::INT8, {1, -2, 127, -128, 5, 6});
  Tensor<uint8_t>(m, "az", {}, onnx::TensorProto::UINT8, {100});
  Tensor<int8_t>(m, "bz", {}, onnx::TensorProto::INT8, {3});
  Tensor<int32_t>(m, "c", {2}, onnx::TensorProto::INT32, {8, -8});
  Contrib(m, "MatMulIntegerToFloat", {"a", "b", "as", "bs", "az", "bz", "bias"}, {"floats"});
  Contrib(m, "QGemm", {"a", "as", "az", "b", "bs", "bz", "c"}, {"gemm"});
  Contrib(m, "DynamicQuantizeMatMul", {"x", "b", "bs", "bz", "bias"}, {"dynamic"});
  // Their range is 255 / 2, so that the scale is 0.5 and the zero point 100: these are the numbers of `a`.
  std::vector<float> x;
  for (double v : a) x.push_back(static_cast<float>((v - 100) / 2));
  const std::vector<NDArray> out = m.Run({Numbers(DType::kU8, {2, 3}, a), Array({2, 3}, x)});
  Doubles biased, gemm;
  for (size_t i = 0; i < 4; ++i) {
    biased.push_back(sums[i] + (i % 2 == 0 ? 1 : -1));
    gemm.push_back(sums[i] + (i % 2 == 0 ? 8 : -8) * a_scale * b_scale);
  }
  ExpectArray(out[0], {2, 2}, biased);
  ExpectArray(out[1], {2, 2}, gemm);
  ExpectArray(out[2], {2, 2}, biased, 1e-3);
}

// softmax(q k^T / sqrt(size) + mask) v of [batch = 1, sequence, heads * size].
Doubles AttentionOf(const Doubles& q, const Doubles& k, const Doubles& v, size_t heads, size_t size,
                    const Doubles& mask) {
  const size_t hidden = heads * size, queries = q.size() / hidden, keys = k.size() / hidden;
  Doubles y(q.size());
  for (size_t head = 0; head < heads; ++head) {
    for (size_t i = 0; i < queries; ++i) {
      Doubles weights;
      double total = 0;
      for (size_t j = 0; j < keys; ++j) {
        double score = mask[j];
        for (size_t d = 0; d < size; ++d)
          score += q[i * hidden + head * size + d] * k[j * hidden + head * size + d] / std::sqrt(double(size));
        weights.push_back(std::exp(score));
        total += weights.back();
      }
      for (size_t j = 0; j < keys; ++j) {
        for (size_t d = 0; d < size; ++d)
          y[i * hidden + head * size + d] += weights[j] / total * v[j * hidden + head * size + d];
      }
    }
  }
  return y;
}

TEST(Contrib, Attention) {
  const std::vector<float> x = Random(3 * 4, 1), w = Random(4 * 12, 2), bias = Random(12, 3);
  std::array<Doubles, 3> qkv;
  for (size_t s = 0; s < 3; ++s) {
    for (size_t column = 0; column < 12; ++column) {
      double sum = bias[column];
      for (size_t k = 0; k < 4; ++k) sum += double{x[s * 4 + k]} * w[k * 12 + column];
      qkv[column / 4].push_back(sum);
    }
  }
  const Doubles want = AttentionOf(qkv[0], qkv[1], qkv[2], 2, 2, {0, 0, -10000});
  ModelBuilder m(17);
  m.Input("x", {1, 3, 4});
  m.Input("mask", {1, 3}, onnx::TensorProto::INT32);
  m.Floats("w", {4, 12}, w);
  m.Floats("bias", {12}, bias);
  ModelBuilder::SetInt(Contrib(m, "Attention", {"x", "w", "bias", "mask"}, {"y"}), "num_heads", 2);
  ExpectArray(m.Run({Array({1, 3, 4}, x), Numbers(DType::kI32, {1, 3}, {1, 1, 0})})[0], {1, 3, 4}, want);
  ModelBuilder lengths(17);
  lengths.Input("x", {1, 3, 4});
  lengths.Input("count", {1}, onnx::TensorProto::INT32);
  lengths.Floats("w", {4, 12}, w);
  lengths.Floats("bias", {12}, bias);
  ModelBuilder::SetInt(Contrib(lengths, "Attention", {"x", "w", "bias", "count"}, {"y"}), "num_heads", 2);
  ExpectArray(lengths.Run({Array({1, 3, 4}, x), Numbers(DType::kI32, {1}, {2})})[0], {1, 3, 4}, want);
}

// Three steps at once are two steps and then one behind their keys and values.
TEST(Contrib, AttentionGoesOnFromItsSecondResult) {
  const std::vector<float> x = Random(3 * 4, 1), w = Random(4 * 12, 2);
  const auto run = [&](int64_t steps, const std::vector<float>& rows, const NDArray* past) {
    ModelBuilder m(17);
    std::vector<NDArray> feeds = {Array({1, steps, 4}, rows)};
    m.Input("x", {1, steps, 4});
    m.Floats("w", {4, 12}, w);
    if (past != nullptr) m.Input("past", past->shape());
    if (past != nullptr) feeds.push_back(*past);
    onnx::NodeProto& node = Contrib(m, "Attention", {"x", "w", "", "", past != nullptr ? "past" : ""}, {"y", "all"});
    ModelBuilder::SetInt(node, "num_heads", 2);
    ModelBuilder::SetInt(node, "unidirectional", 1);
    return m.Run(feeds);
  };
  const auto whole = run(3, x, nullptr), two = run(2, {x.begin(), x.begin() + 8}, nullptr);
  EXPECT_EQ(two[1].shape(), (Shape{2, 1, 2, 2, 2}));
  const auto one = run(1, {x.begin() + 8, x.end()}, &two[1]);
  for (int64_t i = 0; i < 8; ++i) EXPECT_NEAR(whole[0].At(i), two[0].At(i), 1e-6);
  for (int64_t i = 0; i < 4; ++i) EXPECT_NEAR(whole[0].At(8 + i), one[0].At(i), 1e-6);
  ASSERT_EQ(one[1].shape(), (Shape{2, 1, 2, 3, 2}));
  for (int64_t i = 0; i < one[1].size(); ++i) EXPECT_NEAR(whole[1].At(i), one[1].At(i), 1e-6);
}

// The numbers are ONNX Runtime's, version 1.32.
TEST(Contrib, AttentionOfBytes) {
  const Doubles keys_and_values = {0,        0.25,     -0.498125, -0.48,  1.666875,  -2.23125,  0.5,      0.75,
                                   1.384375, 1.545,    -0.865625, -0.645, 1,         1.25,      0.481875, 0.08906251,
                                   0.661875, 3.362813, 1.5,       0,      -2.054375, -1.064375, 1.160625, -1.240625};
  for (const bool unidirectional : {false, true}) {
    ModelBuilder m(17);
    m.Input("x", {1, 2, 4}, onnx::TensorProto::UINT8);
    m.Input("mask", {1, 3}, onnx::TensorProto::INT32);
    m.Input("past", {2, 1, 2, 1, 2});
    std::vector<int8_t> weights;
    for (int i = 0; i < 4 * 12; ++i) weights.push_back(static_cast<int8_t>(i * 11 % 61 - 30));
    std::vector<float> bias, scales;
    for (int i = 0; i < 12; ++i)
      bias.push_back(static_cast<float>(i % 5) / 4), scales.push_back(static_cast<float>(i % 3 + 1) / 64);
    Tensor(m, "w", {4, 12}, onnx::TensorProto::INT8, weights);
    m.Floats("bias", {12}, bias);
    m.Floats("w_scale", {12}, scales);
    m.Floats("x_scale", {}, {0.02F});
    Tensor<uint8_t>(m, "x_zero", {}, onnx::TensorProto::UINT8, {100});
    Tensor(m, "w_zero", {12}, onnx::TensorProto::INT8, std::vector<int8_t>(12));
    onnx::NodeProto& node = Contrib(
        m, "QAttention", {"x", "w", "bias", "x_scale", "w_scale", "mask", "x_zero", "w_zero", "past"}, {"y", "all"});
    ModelBuilder::SetInt(node, "num_heads", 2);
    ModelBuilder::SetInt(node, "unidirectional", unidirectional ? 1 : 0);
    Doubles x, past;
    for (int i = 0; i < 8; ++i) x.push_back(i * 37 % 256), past.push_back(static_cast<double>(i % 7) / 4);
    const auto out = m.Run({Numbers(DType::kU8, {1, 2, 4}, x), Numbers(DType::kI32, {1, 3}, {1, 0, 1}),
                            Numbers(DType::kF32, {2, 1, 2, 1, 2}, past)});
    const Doubles first =
        unidirectional ? Doubles{1, 1.25, 1.5, 0} : Doubles{0.9424019, 1.609909, 1.418087, -0.2994431};
    Doubles y = first;
    y.insert(y.end(), {0.7644984, 2.721558, 1.474482, -0.0932847});
    ExpectArray(out[0], {1, 2, 4}, y);
    ExpectArray(out[1], {2, 1, 2, 3, 2}, keys_and_values);
  }
}

// Keys and values by heads are what rows of all heads become; queries alone have a bias then.
TEST(Contrib, KeysAndValuesByHeads) {
  const std::vector<float> x = Random(2 * 4, 1), k = Random(3 * 4, 2), bias = Random(12, 3);
  std::vector<NDArray> results;
  for (const bool by_heads : {false, true}) {
    ModelBuilder m(17);
    m.Input("x", {1, 2, 4});
    m.Input("k", {1, 3, 4});
    m.Floats("bias", {12}, bias);
    m.Floats("bias_of_queries", {4}, {bias.begin(), bias.begin() + 4});
    m.Ints("by_heads", {1, 3, 2, 2});
    m.Node("Add", {"x", "bias_of_queries"}, {"q"});
    m.Node("Reshape", {"k", "by_heads"}, {"split"});
    ModelBuilder::SetInts(m.Node("Transpose", {"split"}, {"heads"}), "perm", {0, 2, 1, 3});
    onnx::NodeProto& node = by_heads ? Contrib(m, "MultiHeadAttention", {"x", "heads", "heads", "bias"}, {"y", "keys"})
                                     : Contrib(m, "MultiHeadAttention", {"q", "k", "k"}, {"y", "keys"});
    ModelBuilder::SetInt(node, "num_heads", 2);
    for (NDArray& result : m.Run({Array({1, 2, 4}, x), Array({1, 3, 4}, k)})) results.push_back(std::move(result));
  }
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(results[i].shape(), results[i + 2].shape());
    for (int64_t at = 0; at < results[i].size(); ++at) EXPECT_NEAR(results[i].At(at), results[i + 2].At(at), 1e-6);
  }
}

// Masks of [batch, queries, keys], and where rows end and begin. A row of queries here sees one key at least.
TEST(Contrib, MasksOfFusedAttention) {
  const std::vector<float> x = Random(2 * 3 * 4, 1), w = Random(4 * 12, 2);
  const auto run = [&](const Shape& shape, const Doubles& mask) {
    ModelBuilder m(17);
    m.Input("x", {2, 3, 4});
    m.Input("mask", shape, onnx::TensorProto::INT32);
    m.Floats("w", {4, 12}, w);
    ModelBuilder::SetInt(Contrib(m, "Attention", {"x", "w", "", "mask"}, {"y"}), "num_heads", 2);
    return m.Run({Array({2, 3, 4}, x), Numbers(DType::kI32, shape, mask)})[0];
  };
  const auto same = [](const NDArray& a, const NDArray& b) {
    for (int64_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a.At(i), b.At(i), 1e-6) << i;
  };
  const NDArray by_keys = run({2, 3}, {1, 1, 0, 0, 1, 1});
  same(run({4}, {2, 3, 0, 1}), by_keys);
  same(run({2, 3, 3}, {1, 1, 0, 1, 1, 0, 1, 1, 0, 0, 1, 1, 0, 1, 1, 0, 1, 1}), by_keys);
  // Each query sees one key alone: its values.
  const NDArray one = run({2, 3, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 1, 0, 0});
  const int64_t seen[] = {0, 1, 2, 4, 5, 3};
  for (int64_t row = 0; row < 6; ++row) {
    for (int64_t i = 0; i < 4; ++i) {
      double want = 0;
      for (int64_t k = 0; k < 4; ++k)
        want += double{x[static_cast<size_t>(seen[row] * 4 + k)]} * w[static_cast<size_t>(k * 12 + 8 + i)];
      EXPECT_NEAR(one.At(row * 4 + i), want, 1e-5) << row << " " << i;
    }
  }
}

// Also where what is not seen counts for more than f16 has.
TEST(Contrib, MasksOfFusedAttentionInHalves) {
  std::vector<NDArray> results;
  for (const int type : {onnx::TensorProto::FLOAT, onnx::TensorProto::FLOAT16}) {
    ModelBuilder m(17);
    m.Input("x", {1, 3, 12}, type);
    m.Input("mask", {1, 3}, onnx::TensorProto::INT32);
    onnx::NodeProto& node = Contrib(m, "MultiHeadAttention", {"x", "x", "x", "", "mask"}, {"y"});
    ModelBuilder::SetInt(node, "num_heads", 2);
    ModelBuilder::SetFloat(node, "mask_filter_value", -3e38F);
    NDArray x(type == onnx::TensorProto::FLOAT ? DType::kF32 : DType::kF16, {1, 3, 12});
    for (int64_t i = 0; i < x.size(); ++i) x.Set(i, static_cast<double>(i % 7) / 4);
    results.push_back(m.Run({x, Numbers(DType::kI32, {1, 3}, {1, 0, 1})})[0]);
  }
  EXPECT_EQ(results[1].dtype(), DType::kF16);
  for (int64_t i = 0; i < results[0].size(); ++i) EXPECT_NEAR(results[0].At(i), results[1].At(i), 1e-2) << i;
}

TEST(Contrib, MultiHeadAttention) {
  const std::vector<float> q = Random(2 * 4, 1), k = Random(3 * 4, 2), v = Random(3 * 4, 3), bias = Random(12, 4);
  std::array<Doubles, 3> biased;
  const std::vector<float>* given[] = {&q, &k, &v};
  for (size_t part = 0; part < 3; ++part) {
    for (size_t i = 0; i < given[part]->size(); ++i)
      biased[part].push_back(double{(*given[part])[i]} + bias[part * 4 + i % 4]);
  }
  ModelBuilder m(17);
  m.Input("q", {1, 2, 4});
  m.Input("k", {1, 3, 4});
  m.Input("v", {1, 3, 4});
  m.Floats("bias", {12}, bias);
  onnx::NodeProto& node = Contrib(m, "MultiHeadAttention", {"q", "k", "v", "bias"}, {"y", "keys"});
  ModelBuilder::SetInt(node, "num_heads", 2);
  const std::vector<NDArray> out = m.Run({Array({1, 2, 4}, q), Array({1, 3, 4}, k), Array({1, 3, 4}, v)});
  ExpectArray(out[0], {1, 2, 4}, AttentionOf(biased[0], biased[1], biased[2], 2, 2, {0, 0, 0}));
  Doubles by_head;
  for (size_t head = 0; head < 2; ++head) {
    for (size_t s = 0; s < 3; ++s) {
      for (size_t d = 0; d < 2; ++d) by_head.push_back(biased[1][s * 4 + head * 2 + d]);
    }
  }
  ExpectArray(out[1], {1, 2, 3, 2}, by_head);
}

TEST(Contrib, RotaryEmbedding) {
  const std::vector<float> x = Random(2 * 4, 1);
  std::vector<float> cosine, sine;
  for (int p = 0; p < 5; ++p) {
    for (const double rate : {1.0, 0.1}) {
      cosine.push_back(static_cast<float>(std::cos(p * rate)));
      sine.push_back(static_cast<float>(std::sin(p * rate)));
    }
  }
  ModelBuilder m(17);
  m.Input("x", {1, 1, 2, 4});
  m.Input("first", {1}, onnx::TensorProto::INT64);
  m.Floats("cosine", {5, 2}, cosine);
  m.Floats("sine", {5, 2}, sine);
  Contrib(m, "RotaryEmbedding", {"x", "first", "cosine", "sine"}, {"y"});
  Doubles want;
  for (size_t s = 0; s < 2; ++s) {
    const auto at = [&](size_t i) { return double{x[s * 4 + i]}; };
    const auto turn = [&](size_t i) {
      return std::pair(double{cosine[(2 + s) * 2 + i]}, double{sine[(2 + s) * 2 + i]});
    };
    for (size_t i = 0; i < 2; ++i) want.push_back(turn(i).first * at(i) - turn(i).second * at(i + 2));
    for (size_t i = 0; i < 2; ++i) want.push_back(turn(i).second * at(i) + turn(i).first * at(i + 2));
  }
  ExpectArray(m.Run({Array({1, 1, 2, 4}, x), Numbers(DType::kI64, {1}, {2})})[0], {1, 1, 2, 4}, want);
}

TEST(Contrib, WhatIsNotThereIsToldWithItsDomain) {
  ModelBuilder m(17);
  m.Input("x", {2});
  Contrib(m, "Strange", {"x"}, {"y"});
  EXPECT_EQ(m.Import().status().message(), "test: unsupported operators: com.microsoft.Strange (Strange_1)");
  ModelBuilder standard(17);
  standard.Input("x", {2});
  Contrib(standard, "Relu", {"x"}, {"y"});
  EXPECT_EQ(standard.Import().status().message(), "test: unsupported operators: com.microsoft.Relu (Relu_1)");
}

// A node over inputs "0", "1", ... of these types and shapes; none for "" of another number.
struct Operand {
  int type;
  Shape shape;
};
std::string Refusal(const std::string& op, const std::vector<Operand>& operands, const std::vector<std::string>& names,
                    const std::vector<std::pair<std::string, int64_t>>& ints = {}) {
  ModelBuilder m(17);
  m.Input("spare", {1});
  for (size_t i = 0; i < operands.size(); ++i) m.Input(std::to_string(i), operands[i].shape, operands[i].type);
  onnx::NodeProto& node = Contrib(m, op, names, {"y"});
  for (const auto& [name, value] : ints) ModelBuilder::SetInt(node, name, value);
  return std::string(m.Import().status().message());
}
constexpr int kFloat = onnx::TensorProto::FLOAT, kByte = onnx::TensorProto::UINT8, kSigned = onnx::TensorProto::INT8;

TEST(Contrib, WhatCanNotBeIsSaidInOneLine) {
  EXPECT_THAT(Refusal("EmbedLayerNormalization", {{onnx::TensorProto::INT32, {2, 3}}}, {"0"}),
              HasSubstr("operand 2 is missing"));
  const Operand sequence{kFloat, {2, 4, 6}};
  EXPECT_THAT(Refusal("MultiHeadAttention", {sequence, {kFloat, {2}}}, {"0", "0", "0", "", "", "", "1", "1"},
                      {{"num_heads", 2}}),
              HasSubstr("earlier keys are [batch, heads, sequence, size]"));
  EXPECT_THAT(Refusal("MultiHeadAttention", {sequence, {kFloat, {13}}}, {"0", "0", "0", "1"}, {{"num_heads", 2}}),
              HasSubstr("one number for each of 18 columns"));
  EXPECT_THAT(Refusal("MultiHeadAttention", {sequence, {kFloat, {2, 5, 6}}}, {"0", "1", "1"},
                      {{"num_heads", 2}, {"unidirectional", 1}}),
              HasSubstr("as many keys as queries"));
  EXPECT_THAT(Refusal("MultiHeadAttention", {sequence, {kFloat, {2, 3, 4, 2}}}, {"0", "1", "1"}, {{"num_heads", 2}}),
              HasSubstr("keys and values like them or of [batch, heads, sequence, size]"));
  EXPECT_THAT(Refusal("Attention", {sequence, {kFloat, {6, 18}}, {kFloat, {1, 2, 2, 3, 3}}}, {"0", "1", "", "", "2"},
                      {{"num_heads", 2}}),
              HasSubstr("earlier keys and values are [2, batch, heads, sequence, size]"));
  EXPECT_THAT(Refusal("Attention", {sequence, {kFloat, {6, 18}}}, {"0", "1"}, {{"num_heads", 2}, {"do_rotary", 1}}),
              HasSubstr("rotary embeddings and a shared cache are not supported"));
  const Operand scale{kFloat, {}}, zero{kByte, {}}, part{kByte, {2, 3}};
  EXPECT_THAT(Refusal("QLinearConcat", {scale, zero, part}, {"0", "1", "2", "0", "1", "2", "0"}, {{"axis", 1}}),
              HasSubstr("a part has numbers, their scale and their zero point"));
  EXPECT_THAT(Refusal("QLinearSoftmax", {scale, zero, part}, {"2", "0", "1", "0", "1"}, {{"axis", 0}, {"opset", 12}}),
              HasSubstr("before opset 13 only the last axis"));
  EXPECT_THAT(Refusal("MatMulNBits", {{kFloat, {2, 16}}, {kByte, {1}}, {kFloat, {1}}}, {"0", "1", "2"},
                      {{"K", 16}, {"N", int64_t{1} << 60}, {"block_size", 16}}),
              HasSubstr("too large"));
  EXPECT_THAT(Refusal("GatherBlockQuantized", {{kByte, {4, 16}}, {kFloat, {4, 2}}}, {"0", "0", "1"}),
              HasSubstr("the table depends on the model's inputs"));
}

TEST(Contrib, TablesAndWeightsThatDoNotFitAreRefused) {
  const auto gathered = [](const Shape& scales, const Shape& zeros, int type, int64_t axis) {
    ModelBuilder m(17);
    Tensor(m, "table", {4, 32}, type, std::vector<uint8_t>(type == kFloat ? 512 : 128));
    m.Input("rows", {3}, onnx::TensorProto::INT64);
    m.Input("scales", scales);
    Tensor(m, "zero", zeros, kByte, std::vector<uint8_t>(static_cast<size_t>(NumElements(zeros))));
    onnx::NodeProto& node = Contrib(m, "GatherBlockQuantized", {"table", "rows", "scales", "zero"}, {"y"});
    ModelBuilder::SetInt(node, "block_size", 16);
    ModelBuilder::SetInt(node, "quantize_axis", axis);
    return std::string(m.Import().status().message());
  };
  EXPECT_EQ(gathered({4, 4}, {4, 2}, kByte, -1), "");
  EXPECT_THAT(gathered({8, 4}, {4, 2}, kByte, 1), HasSubstr("scales are [4x4], one for each block"));
  EXPECT_THAT(gathered({4, 4}, {4, 4}, kByte, 1), HasSubstr("zero points are [4x2]"));
  EXPECT_THAT(gathered({4, 4}, {4, 2}, kFloat, 1), HasSubstr("a table of f32 and 4 bits"));
  EXPECT_THAT(gathered({4, 4}, {4, 2}, kByte, 0), HasSubstr("only rows of a matrix"));
  const auto product = [](const Shape& scales, const Shape& bias, const std::vector<int32_t>& groups = {}) {
    ModelBuilder m(17);
    m.Input("x", {1, 32});
    Tensor(m, "b", {5, 2, 8}, kByte, std::vector<uint8_t>(80));
    m.Input("scales", scales);
    m.Input("bias", bias);
    Tensor(m, "groups", {std::ssize(groups)}, onnx::TensorProto::INT32, groups);
    onnx::NodeProto& node =
        Contrib(m, "MatMulNBits", {"x", "b", "scales", "", groups.empty() ? "" : "groups", "bias"}, {"y"});
    ModelBuilder::SetInt(node, "K", 32);
    ModelBuilder::SetInt(node, "N", 5);
    ModelBuilder::SetInt(node, "block_size", 16);
    return std::string(m.Import().status().message());
  };
  EXPECT_EQ(product({5, 2}, {5}), "");
  std::vector<int32_t> groups(32);
  EXPECT_THAT(product({5, 2}, {5}, groups), HasSubstr("each of its groups is a block in size"));
  std::ranges::fill(groups.begin(), groups.begin() + 16, -1);
  EXPECT_THAT(product({5, 2}, {5}, groups), HasSubstr("each of its groups is a block in size"));
  groups.resize(16);
  EXPECT_THAT(product({5, 2}, {5}, groups), HasSubstr("g_idx has 32 numbers"));
  EXPECT_THAT(product({2, 5}, {5}), HasSubstr("one scale for each block"));
  EXPECT_THAT(product({10}, {1}), HasSubstr("the bias has 5 numbers"));
}

TEST(Contrib, WithoutAZeroPointTheResultIsOfTheOperandsType) {
  for (const int type : {kByte, kSigned}) {
    ModelBuilder m(17);
    m.Input("a", {2}, type);
    Tensor<float>(m, "scale", {}, kFloat, {0.5F});
    Tensor<int8_t>(m, "zero", {}, type, {0});
    Contrib(m, "QLinearAdd", {"a", "scale", "zero", "a", "scale", "zero", "scale"}, {"y"});
    const DType dtype = type == kSigned ? DType::kI8 : DType::kU8;
    const NDArray y = m.Run({Numbers(dtype, {2}, {3, 100})})[0];
    EXPECT_EQ(y.dtype(), dtype);
    ExpectArray(y, {2}, {6, type == kSigned ? 127.0 : 200.0});
  }
}

TEST(Contrib, RotaryHeadsAreAsLongAsTheCachesSay) {
  const std::vector<float> x = Random(2 * 8, 3), cosine = Random(4 * 2, 5), sine = Random(4 * 2, 6);
  std::vector<NDArray> results;
  for (const int64_t heads : {0, 2}) {
    ModelBuilder m(17);
    m.Input("x", {1, 2, 8});
    m.Ints("at", {1});
    m.Floats("cosine", {4, 2}, cosine);
    m.Floats("sine", {4, 2}, sine);
    onnx::NodeProto& node = Contrib(m, "RotaryEmbedding", {"x", "at", "cosine", "sine"}, {"y"});
    if (heads != 0) ModelBuilder::SetInt(node, "num_heads", heads);
    results.push_back(m.Run({Array({1, 2, 8}, x)})[0]);
  }
  Doubles want;
  for (int64_t i = 0; i < results[1].size(); ++i) want.push_back(results[1].At(i));
  ExpectArray(results[0], {1, 2, 8}, want);
}

}  // namespace
}  // namespace temper
