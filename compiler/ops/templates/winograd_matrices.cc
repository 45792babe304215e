#include <cmath>

#include "compiler/ops/templates/winograd.h"

namespace temper {
namespace {

using ir::Expr;
using Polynomial = std::vector<double>;  // coefficients, lowest power first

Polynomial TimesRoot(const Polynomial& p, double root) {  // p(x) * (x - root)
  Polynomial result(p.size() + 1, 0);
  for (size_t i = 0; i < p.size(); ++i) {
    result[i + 1] += p[i];
    result[i] -= root * p[i];
  }
  return result;
}

// A sum under construction: the terms come with their signs, so that no factor of -1 is ever multiplied.
void AddTo(Expr& sum, double factor, const Expr& e) {
  const double size = std::abs(factor);
  const Expr term = size == 1 ? e : ir::Float(size) * e;
  if (!sum) {
    sum = factor < 0 ? ir::Float(factor) * e : term;
  } else {
    sum = factor < 0 ? sum - term : sum + term;
  }
}

Expr EvenOdd(const std::vector<double>& row, const std::vector<Expr>& values) {
  Expr sum;
  for (size_t parity : {0, 1}) {
    Expr half;
    double factor = 0;  // the highest coefficient: what is left after it is the same for opposite points
    for (size_t k = row.size(); k-- > 0;) {
      if (k % 2 != parity || row[k] == 0) continue;
      if (factor == 0) factor = row[k];
      AddTo(half, row[k] / factor, values[k]);
    }
    if (half) AddTo(sum, factor, half);
  }
  return sum;
}

Expr Pairs(const std::vector<double>& row, const std::vector<Expr>& values) {
  Expr sum;
  for (size_t k = 0; k + 2 < row.size(); k += 2) {  // points p and -p
    AddTo(sum, row[k], row[k] == row[k + 1] ? values[k] + values[k + 1] : values[k] - values[k + 1]);
  }
  for (size_t k : {row.size() - 2, row.size() - 1}) {  // zero and infinity
    if (row[k] != 0) AddTo(sum, row[k], values[k]);
  }
  return sum;
}

}  // namespace

WinogradMatrices MakeWinograd(int64_t m) {
  // Small points keep the errors small. Opposite ones are side by side, zero and infinity come last.
  std::vector<double> points;
  for (int64_t p = 1; p <= m / 2; ++p) points.insert(points.end(), {static_cast<double>(p), -static_cast<double>(p)});
  points.push_back(0);
  const size_t n = points.size();
  WinogradMatrices w;
  for (size_t k = 0; k < n; ++k) {
    const double p = points[k];
    Polynomial others = {1};
    double scale = 1;
    for (size_t l = 0; l < n; ++l) {
      if (l == k) continue;
      others = TimesRoot(others, points[l]);
      scale *= p - points[l];
    }
    others.push_back(0);
    w.input.push_back(others);
    w.filter.push_back({1 / scale, p / scale, p * p / scale});
  }
  Polynomial all = {1};
  for (size_t l = 0; l < n; ++l) all = TimesRoot(all, points[l]);
  w.input.push_back(all);
  w.filter.push_back({0, 0, 1});
  for (int64_t i = 0; i < m; ++i) {
    std::vector<double> row;
    for (size_t k = 0; k < n; ++k) row.push_back(std::pow(points[k], static_cast<double>(i)));
    row.push_back(i == m - 1 ? 1 : 0);
    w.output.push_back(row);
  }
  return w;
}

Expr MatrixTimes(const Matrix& matrix, const Expr& row, const std::function<Expr(const Expr& k)>& value,
                 Sharing sharing) {
  std::vector<Expr> values;
  for (size_t k = 0; k < matrix.front().size(); ++k) values.push_back(value(Expr(static_cast<int64_t>(k))));
  auto times = [&](size_t i) {
    return sharing == Sharing::kPairs ? Pairs(matrix[i], values) : EvenOdd(matrix[i], values);
  };
  Expr result = times(matrix.size() - 1);
  for (size_t i = matrix.size() - 1; i-- > 0;) {
    result = ir::Select(Eq(row, Expr(static_cast<int64_t>(i))), times(i), result);
  }
  return result;
}

}  // namespace temper
