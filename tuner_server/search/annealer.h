// Simulated annealing of many chains at once: AutoTVM's, with its defaults, but for its known faults. Scores are
// measured by their own spread before the temperature judges them (so their unit does not matter, and negative ones are
// kept), no point is scored twice, chains that can not move end the run, and the work of a run is bounded.
#pragma once

#include <functional>

#include "tuner_server/search/task_space.h"

namespace temper {

struct AnnealOptions {
  int chains = 128;
  int iterations = 500;    // the temperature falls from 1 to 0 over these, or over `evaluations`, whichever ends first
  int early_stop = 50;     // iterations without a change among the best
  int evaluations = 3000;  // points scored in a run
  int tries = 8;           // moves drawn for a chain, until one is legal
};

struct AnnealProblem {
  std::function<Point(const Point&, Rng&)> move;
  std::function<bool(const Point&)> legal;
  std::function<absl::StatusOr<std::vector<float>>(std::span<const Point>)> score;  // of legal points; higher is better
};

class Annealer {
 public:
  Annealer(AnnealOptions options, uint64_t seed) : options_(options), rng_(seed) {}

  // Chains that are missing begin at `starts`, in turn; the others go on from where the last run left them.
  // Returns the best `count` points met that are not in `without`, best first.
  absl::StatusOr<std::vector<ScoredPoint>> Run(const AnnealProblem& problem, std::span<const Point> starts, int count,
                                               const PointSet& without);
  // The first chains go on from these points instead, as many as there are of both.
  void Place(std::span<const Point> points);

 private:
  const AnnealOptions options_;
  Rng rng_;
  std::vector<Point> chains_;
};

}  // namespace temper
