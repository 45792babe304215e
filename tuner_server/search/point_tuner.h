// What all tuners share: candidates become points and back, none is proposed that was proposed or observed, results
// come in an order that does not depend on theirs, and where a tuner has nothing to say a random walk goes on until the
// space is used up. A tuner is then one function, or two.
#pragma once

#include <optional>
#include <vector>

#include "tuner_server/search/walk.h"

namespace temper {

// What is known of a point.
struct Trial {
  Point point;
  double cost_s = 0;  // infinite for a failure
};

class PointTuner : public Tuner {
 public:
  PointTuner(std::shared_ptr<const TaskSpace> task, uint64_t seed)
      : task_(task), rng_(seed), walk_(std::move(task), rng_.Next()) {}
  absl::StatusOr<std::vector<Proposal>> Propose(int n) final;
  absl::Status Observe(std::span<const Observation> observations) final;

 protected:
  // A legal point that is Open; nullopt leaves the choice to chance.
  virtual absl::StatusOr<std::optional<Point>> Next() { return std::nullopt; }
  // Legal points observed for the first time, in the order of points.
  virtual absl::Status Learn(std::span<const Trial> trials) { return absl::OkStatus(); }

  bool Open(const Point& p) const { return !seen_.contains(p); }
  const TaskSpace& task() const { return *task_; }
  const PointSet& seen() const { return seen_; }
  int64_t proposed() const { return proposed_; }
  Rng& rng() { return rng_; }

 private:
  const std::shared_ptr<const TaskSpace> task_;
  Rng rng_;
  Walk walk_;
  PointSet seen_, awaited_;  // proposed or observed; proposed and not observed
  int64_t proposed_ = 0;
};

}  // namespace temper
