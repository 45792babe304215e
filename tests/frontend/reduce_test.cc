// Determinants and norms against their definitions.
#include <gmock/gmock.h>

#include <cmath>

#include "base/rng.h"
#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using testing::Array;
using testing::ExpectArray;
using ::testing::HasSubstr;
using testing::ModelBuilder;

ModelBuilder Det(const Shape& shape) {
  ModelBuilder m(11);
  m.Input("x", shape);
  m.Node("Det", {"x"}, {"y"});
  m.Output("y");
  return m;
}

// By elimination.
double Determinant(std::vector<std::vector<double>> m) {
  double det = 1;
  for (size_t i = 0; i < m.size(); ++i) {
    size_t pivot = i;
    for (size_t j = i; j < m.size(); ++j) {
      if (std::fabs(m[j][i]) > std::fabs(m[pivot][i])) pivot = j;
    }
    if (m[pivot][i] == 0) return 0;
    std::swap(m[i], m[pivot]);
    det *= pivot == i ? m[i][i] : -m[i][i];
    for (size_t j = i + 1; j < m.size(); ++j) {
      const double factor = m[j][i] / m[i][i];
      for (size_t k = i; k < m.size(); ++k) m[j][k] -= factor * m[i][k];
    }
  }
  return det;
}

TEST(OnnxReduce, DeterminantsOfUpToFourRows) {
  for (const int64_t rows : {1, 2, 3, 4}) {
    SCOPED_TRACE(rows);
    Rng rng(8);
    NDArray x(DType::kF32, {2, 5, rows, rows});
    for (int64_t i = 0; i < x.size(); ++i) x.Set(i, 4 * rng.Uniform() - 2);
    std::vector<double> want;
    for (int64_t i = 0; i < 10; ++i) {
      std::vector<std::vector<double>> m(static_cast<size_t>(rows));
      for (int64_t j = 0; j < rows * rows; ++j) m[static_cast<size_t>(j / rows)].push_back(x.At(i * rows * rows + j));
      want.push_back(Determinant(m));
    }
    ExpectArray(Det(x.shape()).Run({x})[0], {2, 5}, want, 1e-4);
  }
  ExpectArray(Det({2, 2}).Run({Array({2, 2}, {3, 5, 7, 11})})[0], {}, {-2});
}

TEST(OnnxReduce, NoDeterminantIsSaidInOneLine) {
  EXPECT_THAT(Det({2, 3}).Import().status().ToString(), HasSubstr("takes square matrices of floats"));
  EXPECT_THAT(Det({4}).Import().status().ToString(), HasSubstr("takes square matrices of floats"));
  EXPECT_THAT(Det({5, 5}).Import().status().ToString(), HasSubstr("1 to 4 rows are supported, not of 5"));
}

// Computed as f64 and rounded towards zero, as ONNX Runtime has it.
TEST(OnnxReduce, RootsAndLogarithmsOfIntegers) {
  NDArray x(DType::kI32, {2, 2});
  const double values[] = {3, 4, 20, -1};
  for (int64_t i = 0; i < 4; ++i) x.Set(i, values[i]);
  const auto reduced = [&](const char* op) {
    ModelBuilder m(13);
    m.Input("x", {2, 2}, onnx::TensorProto::INT32);
    auto& node = m.Node(op, {"x"}, {"y"});
    ModelBuilder::SetInts(node, "axes", {1});
    ModelBuilder::SetInt(node, "keepdims", 0);
    m.Output("y");
    const NDArray y = m.Run({x})[0];
    EXPECT_EQ(y.dtype(), DType::kI32);
    return y;
  };
  ExpectArray(reduced("ReduceL2"), {2}, {5, 20});
  ExpectArray(reduced("ReduceLogSum"), {2}, {1, 2});      // of 7 and 19
  ExpectArray(reduced("ReduceLogSumExp"), {2}, {4, 20});  // of exp(4) and exp(20), and a little more
}

TEST(OnnxReduce, LargestAndSmallestOfBooleans) {
  NDArray x(DType::kBool, {2, 3});
  for (const int64_t i : {1, 3, 4, 5}) x.Set(i, 1);
  for (const bool largest : {true, false}) {
    ModelBuilder m(20);
    m.Input("x", {2, 3}, onnx::TensorProto::BOOL);
    m.Ints("axes", {1});
    m.Node(largest ? "ReduceMax" : "ReduceMin", {"x", "axes"}, {"y"});
    m.Output("y");
    const NDArray y = m.Run({x})[0];
    EXPECT_EQ(y.dtype(), DType::kBool);
    ExpectArray(y, {2, 1}, {largest ? 1.0 : 0.0, 1});
  }
}

TEST(OnnxReduce, LpNormalizationDividesByTheSumOfMagnitudesOrByTheRoot) {
  for (const int64_t p : {1, 2}) {
    ModelBuilder m(11);
    m.Input("x", {3, 2});
    auto& node = m.Node("LpNormalization", {"x"}, {"y"});
    ModelBuilder::SetInt(node, "p", p);
    ModelBuilder::SetInt(node, "axis", 0);
    m.Output("y");
    const double norm = p == 1 ? 7 : 5;
    ExpectArray(m.Run({Array({3, 2}, {3, 0, -4, 0, 0, 0})})[0], {3, 2}, {3 / norm, 0, -4 / norm, 0, 0, 0});
  }
  ModelBuilder m(11);
  m.Input("x", {3, 2});
  ModelBuilder::SetInt(m.Node("LpNormalization", {"x"}, {"y"}), "p", 3);
  m.Output("y");
  EXPECT_THAT(m.Import().status().ToString(), HasSubstr("p is 1 or 2"));
}

// Moments are the batch's own, and the running ones take a share of them.
TEST(OnnxReduce, BatchNormalizationInTraining) {
  ModelBuilder m(15);
  m.Input("x", {2, 2, 2});
  m.Floats("scale", {2}, {1, 3});
  m.Floats("bias", {2}, {0, 1});
  m.Floats("mean", {2}, {10, 20});
  m.Floats("variance", {2}, {1, 2});
  onnx::NodeProto& node =
      m.Node("BatchNormalization", {"x", "scale", "bias", "mean", "variance"}, {"y", "next_mean", "next_variance"});
  ModelBuilder::SetInt(node, "training_mode", 1);
  ModelBuilder::SetFloat(node, "momentum", 0.75F);
  ModelBuilder::SetFloat(node, "epsilon", 0);
  for (const char* name : {"y", "next_mean", "next_variance"}) m.Output(name);
  // Of the first channel the mean is 4 and the variance 5, of the second -1 and 4.
  const std::vector<NDArray> out = m.Run({Array({2, 2, 2}, {1, 3, -3, 1, 5, 7, -3, 1})});
  const double root = std::sqrt(5.0);
  ExpectArray(out[0], {2, 2, 2}, {-3 / root, -1 / root, -2, 4, 1 / root, 3 / root, -2, 4});
  ExpectArray(out[1], {2}, {0.75 * 10 + 0.25 * 4, 0.75 * 20 - 0.25});
  ExpectArray(out[2], {2}, {0.75 + 0.25 * 5, 0.75 * 2 + 0.25 * 4});
}

}  // namespace
}  // namespace temper
