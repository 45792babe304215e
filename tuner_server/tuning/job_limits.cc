#include "tuner_server/tuning/job_limits.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace temper {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();
// Of a task that too few trials tell of, so much of its time may be gained for all that is known. What few trials tell
// is worth saying, but no reason to give up.
constexpr double kHoped = 0.5;
constexpr int kLeastToGiveUp = 32;
// While so much of the model is not known better, nothing is expected.
constexpr double kMostUnknown = 0.1;

}  // namespace

double KernelSeconds(std::span<const TaskSearch> tasks) {
  double seconds = 0;
  for (const TaskSearch& task : tasks) {
    if (!task.view().alternative) seconds += task.EstimatedSeconds();
  }
  return seconds;
}

bool JobLimits::BudgetOver(absl::Duration now) const {
  return spec_.time_budget > absl::ZeroDuration() && now - started_ >= spec_.time_budget;
}

double JobLimits::SecondsLeft(absl::Duration now) const {
  return absl::ToDoubleSeconds(spec_.time_budget - (now - started_));
}

bool JobLimits::GainIsKnown(size_t i) const {
  return tasks_[i].view().done || std::isfinite(tasks_[i].course().GainLeft());
}

double JobLimits::GainLeft(size_t i) const {
  const TaskSearch& task = tasks_[i];
  if (task.view().done) return 0;
  return GainIsKnown(i) ? task.view().weight * task.course().GainLeft() : kHoped * task.EstimatedSeconds();
}

double JobLimits::MayGain(size_t i) const {
  const TaskSearch& task = tasks_[i];
  if (task.view().done || task.course().trials() >= kLeastToGiveUp) return GainLeft(i);
  return std::max(GainLeft(i), kHoped * task.EstimatedSeconds());
}

// A task is allowed to leave its share of what the model may leave: half of that by its time, half as one of many, so
// that neither a large task is held to nothing nor a small one to its own small time.
double JobLimits::LeastGain(size_t i, double kernels_s) const {
  const double even = 1 / static_cast<double>(tasks_.size());
  const double by_time = kernels_s > 0 ? tasks_[i].EstimatedSeconds() / kernels_s : even;
  return spec_.min_gain * kernels_s * (by_time + even) / 2;
}

std::string JobLimits::WhyFinished(size_t i, double kernels_s) const {
  const TaskSearch& task = tasks_[i];
  if (task.failures_in_row() >= options_.most_failures_in_row) return "failures";
  if (spec_.early_stopping > 0 && task.since_better() >= spec_.early_stopping) return "early_stopping";
  if (spec_.trials_per_task > 0 && task.view().trials >= spec_.trials_per_task) return "trials";
  if (spec_.min_gain > 0 && MayGain(i) < LeastGain(i, kernels_s)) return "min_gain";
  return "";
}

std::string JobLimits::WhyOver(const SearchCounts& counts, absl::Duration now) const {
  if (BudgetOver(now)) return "budget";
  if (spec_.trials > 0 && counts.trials >= spec_.trials) return "trials";
  if (spec_.early_stopping_model > 0 && counts.since_better >= spec_.early_stopping_model) return "early_stopping";
  double left_s = 0;
  bool all_done = true;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    left_s += MayGain(i);
    all_done = all_done && tasks_[i].view().done;
  }
  if (all_done && counts.idle) return "trials";
  return spec_.min_gain > 0 && left_s < spec_.min_gain * KernelSeconds(tasks_) ? "min_gain" : "";
}

double JobLimits::TrialsExpected(const SearchCounts& counts, absl::Duration now) const {
  double trials = kUnlimited;
  if (spec_.trials > 0) trials = spec_.trials - counts.trials;
  if (spec_.time_budget > absl::ZeroDuration() && counts.seconds_per_item > 0) {
    trials = std::min(trials, SecondsLeft(now) / counts.seconds_per_item);
  }
  return std::max(0.0, trials);
}

double JobLimits::ExpectedGainSeconds(const SearchCounts& counts, absl::Duration now) const {
  double total = 0, unknown_s = 0;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    total += GainLeft(i);
    if (!GainIsKnown(i)) unknown_s += tasks_[i].EstimatedSeconds();
  }
  if (unknown_s > kMostUnknown * KernelSeconds(tasks_)) return kUnlimited;
  const double trials = TrialsExpected(counts, now);
  if (total == 0 || !std::isfinite(trials)) return total;
  double gain = 0;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const double left = GainLeft(i);
    gain += left * tasks_[i].course().ShareWithin(trials * left / total);
  }
  return gain;
}

double JobLimits::EtaSeconds(const SearchCounts& counts, absl::Duration now) const {
  double eta = kUnlimited;
  if (spec_.trials > 0 && counts.trials > 0) {
    const double attempts_a_trial = static_cast<double>(counts.attempts) / counts.trials;
    eta = (spec_.trials - counts.trials) * attempts_a_trial * counts.seconds_per_item;
  }
  if (spec_.time_budget > absl::ZeroDuration()) {
    eta = std::min(eta, SecondsLeft(now));
  }
  if (spec_.min_gain > 0) {
    // What is left falls as 1/n, so all that still gain need so many times their trials.
    double left_s = 0, trials = 0;
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const double left = MayGain(i);
      left_s += left;
      if (left > 0) trials += tasks_[i].course().trials();
    }
    const double times = left_s / (spec_.min_gain * KernelSeconds(tasks_));
    if (std::isfinite(ExpectedGainSeconds(counts, now)))
      eta = std::min(eta, std::max(0.0, times - 1) * trials * counts.seconds_per_item);
  }
  return std::isfinite(eta) ? std::max(0.0, eta) : 0;
}

}  // namespace temper
