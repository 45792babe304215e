// What measurements of other tasks teach about one that is still to be searched: boosters, shipped or trained on them,
// and the configs that were best for the shapes nearest to its own.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cost_model/booster.h"
#include "tuner_server/search/task_space.h"

namespace temper {

using Boosters = std::shared_ptr<const std::vector<Booster>>;

// Of one target. Not thread-safe.
class Experience {
 public:
  // Of the shipped boosters those that fit the target and this build's templates.
  Experience(Target target, std::vector<Booster> shipped);

  // Results of one task: earlier jobs', or this one's as they come. What can not be learned from is passed over.
  void Add(const Workload& w, std::span<const Observation> observations);
  // Trains again where there is twice as much to learn from as the last time. Bounded: the newest samples count.
  absl::Status Refit();

  Boosters boosters() const { return boosters_; }  // in no particular order; several of one template add up
  // The best of the tasks nearest in shape to this one, nearest first, without its own.
  std::vector<Proposal> Seeds(const Workload& w) const;

 private:
  struct Known {
    Workload workload;
    int group = 0;
    Proposal best;
    double best_s = 0;  // infinite: nothing worked
  };
  const std::vector<Booster> shipped_;
  BoosterTrainer trainer_;
  std::map<std::string, Known> tasks_;   // by text
  size_t samples_ = 0, trained_on_ = 0;  // added ever, and when last trained
  Boosters boosters_;
};

// The drafts of a task's candidates as boosters correct them.
class Correction {
 public:
  Correction(const TaskSpace& task, Boosters boosters);
  bool empty() const { return empty_; }
  // Rows from `first` on, as the task appended them: their drafts are corrected.
  void Apply(Rows& rows, size_t first) const;
  double Seconds(const TaskSpace& task, const Point& p) const;  // of one

 private:
  struct Part {
    const Booster* booster;
    std::vector<int> columns;
  };
  const Boosters boosters_;  // keeps them alive
  const size_t space_column_;
  std::vector<std::vector<Part>> by_space_;
  bool empty_ = true;
};

}  // namespace temper
