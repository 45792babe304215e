// How a job ends: finals in the model, then the whole model, tuned beside untuned. It says what to measure and decides
// by what comes back. Not thread-safe.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tuner_server/tuning/job_spec.h"

namespace temper {

class JobClosing {
 public:
  // All outlive it.
  JobClosing(const JobSpec& spec, const JobLoopOptions& options, std::vector<TaskSearch>& tasks)
      : spec_(spec), options_(options), tasks_(tasks) {}

  // The default and the contenders of every task. Empty: nothing was measured.
  std::vector<WorkItem> Finalists() const;
  // What is measured with them, and in the model's check.
  ModelWork FinalsModel(const std::string& target) const { return Model(target, options_.final_rounds); }
  ModelWork CheckedModel(const std::string& target);

  // They decide together, or not at all. Returns the tasks that they were about.
  std::vector<size_t> DecideFinals(std::span<const std::pair<WorkItem, TrialResult>> finals);
  void Settle();  // finals are over, held or not
  void DecideModel(const ModelResult& result);

  double untuned_s() const { return untuned_s_; }  // end to end, medians; 0: not measured
  double tuned_s() const { return tuned_s_; }
  bool kept_default() const { return kept_default_; }
  std::vector<std::string> TakeWarnings() { return std::exchange(warnings_, {}); }

 private:
  ModelWork Model(const std::string& target, int rounds) const;
  int MostContenders() const;
  int ContendersOf(size_t task) const;

  const JobSpec& spec_;
  const JobLoopOptions& options_;
  std::vector<TaskSearch>& tasks_;
  double untuned_s_ = 0, tuned_s_ = 0;
  bool kept_default_ = false, finals_held_ = false;
  size_t picks_ = 0;  // that may change the package
  std::vector<std::string> warnings_;
};

}  // namespace temper
