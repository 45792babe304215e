// A Gaussian process over points of a few coordinates: what is expected of a point, and how sure that is, from the
// values of others. Values are alike where coordinates are; how fast that fades is learned for each coordinate.
// Correlation falls as exp(-sum |x - y| / length), so steps and ridges are as likely as smooth slopes. Not thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace temper {

class GaussianProcess {
 public:
  explicit GaussianProcess(size_t coordinates);

  // Points are rows of coordinates, most between 0 and 1. Learns lengths and noise in `steps` steps from where the last
  // fit left them, as far as they make the values likelier.
  void Fit(std::vector<double> points, std::span<const double> values, int steps);

  size_t coordinates() const { return coordinates_; }
  size_t size() const { return values_.size(); }  // points fitted on

 private:
  friend class Forecast;

  // Decomposes the correlations by the present lengths and returns how likely the values are, as a logarithm up to a
  // constant. A gradient that is not empty is filled.
  double Likelihood(std::span<double> gradient);
  double Correlation(const double* a, const double* b) const;

  const size_t coordinates_;
  std::vector<double> logs_;            // of the lengths, and of the noise behind them
  std::vector<double> inverse_length_;  // by coordinate
  std::vector<double> points_, values_;
  double mean_ = 0, scale_ = 1;   // of the values as they came; values_ are without
  double amplitude_ = 1;          // variance of what is far from all points
  std::vector<double> lower_;     // Cholesky factor of the correlations with noise
  std::vector<double> whitened_;  // lower_ \ values_
};

// What a fitted process, which must outlive it and stay as it is, says of candidates. A candidate costs size() squared.
class Forecast {
 public:
  explicit Forecast(const GaussianProcess& process);

  void Add(std::span<const double> points);  // candidates, rows of coordinates
  // A point is taken as measured, with the value that is expected of it: what is near it becomes surer, no more.
  void Believe(std::span<const double> point);

  size_t size() const { return places_.size(); }  // candidates
  double Mean(size_t candidate) const;
  double Deviation(size_t candidate) const;

 private:
  // Candidates side by side, so that the same step is done for all of them at once.
  static constexpr size_t kLanes = 32;
  struct Block {
    std::vector<float> points;    // by coordinate, kLanes each
    std::vector<float> whitened;  // their correlations with the points known, those of one point behind another
    float mean[kLanes] = {}, variance[kLanes];  // as shares of the process's scale and amplitude
  };
  struct Known {
    std::vector<double> lower;  // its row of the factor
    double whitened;
  };
  void Extend(Block& block, size_t row) const;  // by what the known point `row` tells, after those before it

  const GaussianProcess& process_;
  std::vector<double> points_;  // known: the process's, and those believed
  std::vector<Known> known_;
  std::vector<Block> blocks_;
  std::vector<size_t> places_;  // by candidate: block * kLanes + lane
};

}  // namespace temper
