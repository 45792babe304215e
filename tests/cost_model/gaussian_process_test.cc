// What a Gaussian process expects of points, and how sure it is of that.
#include "cost_model/gaussian_process.h"

#include <cmath>

#include "base/rng.h"
#include "gtest/gtest.h"

namespace temper {
namespace {

// Points of three coordinates, of which the first two matter.
struct DrawnPoints {
  std::vector<double> points, values;
};
DrawnPoints Draw(int count, uint64_t seed) {
  Rng rng(seed);
  DrawnPoints s;
  for (int i = 0; i < count; ++i) {
    const double x = rng.Uniform(), y = rng.Uniform();
    s.points.insert(s.points.end(), {x, y, rng.Uniform()});
    s.values.push_back(3 * x + std::abs(y - 0.4));
  }
  return s;
}
std::span<const double> Row(const DrawnPoints& s, size_t i) { return std::span(s.points).subspan(3 * i, 3); }

TEST(GaussianProcess, KnowsWhatItWasTold) {
  const DrawnPoints s = Draw(40, 1);
  GaussianProcess process(3);
  process.Fit(s.points, s.values, 20);
  Forecast forecast(process);
  forecast.Add(s.points);
  ASSERT_EQ(forecast.size(), 40u);
  for (size_t i = 0; i < 40; ++i) {
    EXPECT_NEAR(forecast.Mean(i), s.values[i], 0.1);
    EXPECT_LT(forecast.Deviation(i), 0.2);
  }
}

TEST(GaussianProcess, ExpectsNewPointsWithinItsOwnDoubt) {
  const DrawnPoints s = Draw(80, 1), other = Draw(200, 2);
  GaussianProcess process(3);
  process.Fit(s.points, s.values, 30);
  Forecast forecast(process);
  forecast.Add(other.points);
  double squares = 0;
  int within = 0;
  for (size_t i = 0; i < 200; ++i) {
    const double error = forecast.Mean(i) - other.values[i];
    squares += error * error / 200;
    within += std::abs(error) < 2 * forecast.Deviation(i);
  }
  EXPECT_LT(std::sqrt(squares), 0.15) << "values spread by about 0.9";
  EXPECT_GT(within, 180);
}

TEST(GaussianProcess, DoubtGrowsWithDistance) {
  GaussianProcess process(1);
  process.Fit({0.1, 0.2, 0.3}, std::vector<double>{1, 3, 2}, 0);
  Forecast forecast(process);
  forecast.Add(std::vector<double>{0.2, 0.4, 0.9});
  EXPECT_LT(forecast.Deviation(0), forecast.Deviation(1));
  EXPECT_LT(forecast.Deviation(1), forecast.Deviation(2));
}

TEST(GaussianProcess, BelievingMovesNoMeanAndMakesSurer) {
  const DrawnPoints s = Draw(20, 1), other = Draw(70, 2);  // more than two blocks of candidates
  GaussianProcess process(3);
  process.Fit(s.points, s.values, 10);
  Forecast before(process), after(process);
  before.Add(other.points);
  after.Add(other.points);
  after.Believe(Row(other, 65));
  for (size_t i = 0; i < 70; ++i) {
    EXPECT_EQ(after.Mean(i), before.Mean(i));
    EXPECT_LE(after.Deviation(i), before.Deviation(i));
  }
  EXPECT_LT(after.Deviation(65), 0.5 * before.Deviation(65));
}

TEST(GaussianProcess, TheOrderOfAddingAndBelievingDoesNotMatter) {
  const DrawnPoints s = Draw(20, 1), other = Draw(5, 2);
  GaussianProcess process(3);
  process.Fit(s.points, s.values, 10);
  Forecast one(process), two(process);
  one.Add(other.points);
  one.Believe(Row(other, 0));
  two.Believe(Row(other, 0));
  two.Add(Row(other, 0));  // one by one
  for (size_t i = 1; i < 5; ++i) two.Add(Row(other, i));
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(one.Mean(i), two.Mean(i));
    EXPECT_EQ(one.Deviation(i), two.Deviation(i));
  }
}

TEST(GaussianProcess, ValuesThatAreAllAlikeAreFine) {
  GaussianProcess process(1);
  process.Fit({0.5, 0.5, 0.5}, std::vector<double>{2, 2, 2}, 10);
  Forecast forecast(process);
  forecast.Add(std::vector<double>{0.5, 0.9});
  EXPECT_NEAR(forecast.Mean(0), 2, 1e-3);
  EXPECT_TRUE(std::isfinite(forecast.Deviation(1)));
}

}  // namespace
}  // namespace temper
