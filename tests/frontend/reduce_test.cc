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

}  // namespace
}  // namespace temper
