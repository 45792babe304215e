#include "cost_model/gaussian_process.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace temper {
namespace {

// What is believed before any value is seen, as logarithms: length (of a coordinate that spans 1), noise (a share of
// the variance), and how far from these they may well be.
constexpr double kUsualLength = 0.7, kLengthSpread = 1;
constexpr double kUsualNoise = -4.6, kNoiseSpread = 1;
constexpr double kLeastLength = -3.5, kMostLength = 4.6;
constexpr double kLeastNoise = -9, kMostNoise = 0;
constexpr double kUsualVariance = 4;  // counts as so many values of the variance that they have
constexpr double kJitter = 1e-6;      // keeps factors from breaking down where points are all but the same
constexpr double kImpossible = -std::numeric_limits<double>::infinity();

// In place, the lower triangle of n rows; false where the matrix is not positive definite.
bool Decompose(std::vector<double>& a, size_t n) {
  for (size_t j = 0; j < n; ++j) {
    double* const row_j = &a[j * n];
    double left = row_j[j];
    for (size_t k = 0; k < j; ++k) left -= row_j[k] * row_j[k];
    if (!(left > 1e-12)) return false;
    row_j[j] = std::sqrt(left);
    for (size_t i = j + 1; i < n; ++i) {
      double* const row_i = &a[i * n];
      double sum = row_i[j];
      for (size_t k = 0; k < j; ++k) sum -= row_i[k] * row_j[k];
      row_i[j] = sum / row_j[j];
    }
  }
  return true;
}

// lower^-T lower^-1, the lower triangle of it.
std::vector<double> InverseOf(const std::vector<double>& lower, size_t n) {
  std::vector<double> inverse(n * n), product(n * n);  // row i of `inverse`: column i of lower^-1's rows up to i
  for (size_t i = 0; i < n; ++i) {
    double* const row = &inverse[i * n];
    for (size_t k = 0; k < i; ++k) {
      const double factor = lower[i * n + k];
      const double* const other = &inverse[k * n];
      for (size_t j = 0; j <= k; ++j) row[j] -= factor * other[j];
    }
    for (size_t j = 0; j < i; ++j) row[j] /= lower[i * n + i];
    row[i] = 1 / lower[i * n + i];
  }
  for (size_t k = 0; k < n; ++k) {
    for (size_t i = 0; i <= k; ++i) {
      const double factor = inverse[k * n + i];
      for (size_t j = 0; j <= i; ++j) product[i * n + j] += factor * inverse[k * n + j];
    }
  }
  return product;
}

// Solves lower x = b.
std::vector<double> Whitened(const std::vector<double>& lower, std::span<const double> b) {
  const size_t n = b.size();
  std::vector<double> x(b.begin(), b.end());
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) x[i] -= lower[i * n + k] * x[k];
    x[i] /= lower[i * n + i];
  }
  return x;
}

// Steps of Rprop: each parameter by a stride of its own, which grows while its gradient keeps its sign.
class Climb {
 public:
  explicit Climb(size_t size) : stride_(size, 0.3), last_(size, 0) {}

  void Step(std::span<const double> gradient, std::vector<double>& at) {
    for (size_t i = 0; i < at.size(); ++i) {
      const double turn = gradient[i] * last_[i];
      if (turn > 0) stride_[i] = std::min(1.3 * stride_[i], 1.0);
      if (turn < 0) stride_[i] *= 0.5;
      last_[i] = gradient[i];
      if (gradient[i] != 0) at[i] += gradient[i] > 0 ? stride_[i] : -stride_[i];
    }
  }

 private:
  std::vector<double> stride_, last_;
};

}  // namespace

GaussianProcess::GaussianProcess(size_t coordinates)
    : coordinates_(coordinates), logs_(coordinates + 1, kUsualLength), inverse_length_(coordinates) {
  logs_.back() = kUsualNoise;
}

double GaussianProcess::Correlation(const double* a, const double* b) const {
  double distance = 0;
  for (size_t d = 0; d < coordinates_; ++d) distance += std::abs(a[d] - b[d]) * inverse_length_[d];
  return std::exp(-distance);
}

double GaussianProcess::Likelihood(std::span<double> gradient) {
  const size_t n = size();
  const double noise = std::exp(logs_.back());
  for (size_t d = 0; d < coordinates_; ++d) inverse_length_[d] = std::exp(-logs_[d]);
  std::vector<double> correlations(n * n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j)
      correlations[i * n + j] = Correlation(&points_[i * coordinates_], &points_[j * coordinates_]);
  }
  lower_ = correlations;
  for (size_t i = 0; i < n; ++i) lower_[i * n + i] += noise + kJitter;
  if (!Decompose(lower_, n)) return kImpossible;
  whitened_ = Whitened(lower_, values_);
  double squares = 0, likelihood = 0;
  for (const double w : whitened_) squares += w * w;
  amplitude_ = (squares + kUsualVariance) / (static_cast<double>(n) + kUsualVariance);
  likelihood -= 0.5 * (static_cast<double>(n) + kUsualVariance) * std::log(amplitude_);
  for (size_t i = 0; i < n; ++i) likelihood -= std::log(lower_[i * n + i]);
  const auto usual = [&](size_t i) { return i < coordinates_ ? kUsualLength : kUsualNoise; };
  const auto spread = [&](size_t i) { return i < coordinates_ ? kLengthSpread : kNoiseSpread; };
  for (size_t i = 0; i <= coordinates_; ++i) likelihood -= 0.5 * std::pow((logs_[i] - usual(i)) / spread(i), 2);
  if (gradient.empty()) return likelihood;

  const std::vector<double> inverse = InverseOf(lower_, n);
  std::vector<double> solved(n);  // inverse * values_
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) solved[i] += inverse[std::max(i, j) * n + std::min(i, j)] * values_[j];
  }
  std::ranges::fill(gradient, 0);
  for (size_t i = 0; i < n; ++i) {
    gradient.back() += 0.5 * noise * (solved[i] * solved[i] / amplitude_ - inverse[i * n + i]);
    for (size_t j = 0; j < i; ++j) {
      const double pull = (solved[i] * solved[j] / amplitude_ - inverse[i * n + j]) * correlations[i * n + j];
      const double *const a = &points_[i * coordinates_], *const b = &points_[j * coordinates_];
      for (size_t d = 0; d < coordinates_; ++d) gradient[d] += pull * std::abs(a[d] - b[d]) * inverse_length_[d];
    }
  }
  for (size_t i = 0; i <= coordinates_; ++i) gradient[i] -= (logs_[i] - usual(i)) / (spread(i) * spread(i));
  return likelihood;
}

void GaussianProcess::Fit(std::vector<double> points, std::span<const double> values, int steps) {
  points_ = std::move(points);
  const double n = static_cast<double>(values.size());
  mean_ = scale_ = 0;
  for (const double v : values) mean_ += v / n;
  for (const double v : values) scale_ += (v - mean_) * (v - mean_) / n;
  scale_ = std::sqrt(std::max(scale_, 1e-8));
  values_.clear();
  for (const double v : values) values_.push_back((v - mean_) / scale_);

  std::vector<double> gradient(logs_.size()), best = logs_;
  double likeliest = kImpossible;
  Climb climb(logs_.size());
  for (int step = 0; step < steps; ++step) {
    const double likelihood = Likelihood(gradient);
    if (likelihood == kImpossible) break;
    if (likelihood > likeliest) {
      likeliest = likelihood;
      best = logs_;
    }
    climb.Step(gradient, logs_);
    for (size_t d = 0; d < coordinates_; ++d) logs_[d] = std::clamp(logs_[d], kLeastLength, kMostLength);
    logs_.back() = std::clamp(logs_.back(), kLeastNoise, kMostNoise);
  }
  if (Likelihood({}) >= likeliest) return;
  logs_ = best;
  Likelihood({});
}

Forecast::Forecast(const GaussianProcess& process) : process_(process), points_(process.points_) {
  const size_t n = process.size();
  for (size_t i = 0; i < n; ++i) {
    const auto row = process.lower_.begin() + static_cast<std::ptrdiff_t>(i * n);
    known_.push_back({std::vector<double>(row, row + static_cast<std::ptrdiff_t>(i + 1)), process.whitened_[i]});
  }
}

void Forecast::Add(std::span<const double> points) {
  const size_t width = process_.coordinates(), count = points.size() / width;
  for (size_t first = 0; first < count; first += kLanes) {
    Block& block = blocks_.emplace_back();
    block.points.resize(width * kLanes);
    std::fill_n(block.variance, kLanes, 1.0f);
    for (size_t lane = 0; lane < kLanes && first + lane < count; ++lane) {
      places_.push_back((blocks_.size() - 1) * kLanes + lane);
      for (size_t d = 0; d < width; ++d)
        block.points[d * kLanes + lane] = static_cast<float>(points[(first + lane) * width + d]);
    }
    for (size_t row = 0; row < known_.size(); ++row) Extend(block, row);
  }
}

void Forecast::Extend(Block& block, size_t row) const {
  const size_t width = process_.coordinates();
  float now[kLanes] = {};
  for (size_t d = 0; d < width; ++d) {
    const float at = static_cast<float>(points_[row * width + d]);
    const float inverse = static_cast<float>(process_.inverse_length_[d]);
    const float* const own = &block.points[d * kLanes];
    for (size_t lane = 0; lane < kLanes; ++lane) now[lane] += std::abs(own[lane] - at) * inverse;
  }
  for (float& value : now) value = std::exp(-value);
  const std::vector<double>& lower = known_[row].lower;
  for (size_t k = 0; k < row; ++k) {
    const float factor = static_cast<float>(lower[k]);
    const float* const before = &block.whitened[k * kLanes];
    for (size_t lane = 0; lane < kLanes; ++lane) now[lane] -= factor * before[lane];
  }
  const float inverse = static_cast<float>(1 / lower[row]), tells = static_cast<float>(known_[row].whitened);
  for (size_t lane = 0; lane < kLanes; ++lane) {
    now[lane] *= inverse;
    block.mean[lane] += now[lane] * tells;
    block.variance[lane] -= now[lane] * now[lane];
  }
  block.whitened.insert(block.whitened.end(), now, now + kLanes);
}

void Forecast::Believe(std::span<const double> point) {
  const size_t width = process_.coordinates();
  Known known{{}, 0};
  double left = 1 + std::exp(process_.logs_.back()) + kJitter;
  for (size_t i = 0; i < known_.size(); ++i) {
    double value = process_.Correlation(&points_[i * width], point.data());
    for (size_t k = 0; k < i; ++k) value -= known_[i].lower[k] * known.lower[k];
    known.lower.push_back(value / known_[i].lower[i]);
    left -= known.lower[i] * known.lower[i];
  }
  known.lower.push_back(std::sqrt(std::max(left, kJitter)));
  points_.insert(points_.end(), point.begin(), point.end());
  known_.push_back(std::move(known));
  for (Block& block : blocks_) Extend(block, known_.size() - 1);
}

double Forecast::Mean(size_t candidate) const {
  const size_t place = places_[candidate];
  return process_.mean_ + process_.scale_ * blocks_[place / kLanes].mean[place % kLanes];
}

double Forecast::Deviation(size_t candidate) const {
  const size_t place = places_[candidate];
  const double variance = std::max(blocks_[place / kLanes].variance[place % kLanes], 1e-9f);
  return process_.scale_ * std::sqrt(process_.amplitude_ * variance);
}

}  // namespace temper
