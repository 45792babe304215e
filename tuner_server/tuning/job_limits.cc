// JobLoop: when a job's search ends, and what may be expected of it until then.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tuner_server/tuning/job_loop.h"

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

bool JobLoop::BudgetOver(absl::Duration now) const {
  return spec_.time_budget > absl::ZeroDuration() && now - started_ >= spec_.time_budget;
}

double JobLoop::KernelSeconds() const {
  double seconds = 0;
  for (const TaskSearch& task : tasks_) {
    if (!task.view().alternative) seconds += task.EstimatedSeconds();
  }
  return seconds;
}

bool JobLoop::GainIsKnown(size_t i) const {
  return tasks_[i].view().done || std::isfinite(tasks_[i].course().GainLeft());
}

double JobLoop::GainLeft(size_t i) const {
  const TaskSearch& task = tasks_[i];
  if (task.view().done) return 0;
  return GainIsKnown(i) ? task.view().weight * task.course().GainLeft() : kHoped * task.EstimatedSeconds();
}

double JobLoop::MayGain(size_t i) const {
  const TaskSearch& task = tasks_[i];
  if (task.view().done || task.course().trials() >= kLeastToGiveUp) return GainLeft(i);
  return std::max(GainLeft(i), kHoped * task.EstimatedSeconds());
}

// A task is allowed to leave its share of what the model may leave: half of that by its time, half as one of many, so
// that neither a large task is held to nothing nor a small one to its own small time.
double JobLoop::LeastGain(size_t i, double kernels_s) const {
  const double even = 1 / static_cast<double>(tasks_.size());
  const double by_time = kernels_s > 0 ? tasks_[i].EstimatedSeconds() / kernels_s : even;
  return spec_.min_gain * kernels_s * (by_time + even) / 2;
}

std::string JobLoop::WhyFinished(size_t i, double kernels_s) const {
  const TaskSearch& task = tasks_[i];
  if (task.failures_in_row() >= options_.most_failures_in_row) return "failures";
  if (spec_.early_stopping > 0 && task.since_better() >= spec_.early_stopping) return "early_stopping";
  if (spec_.trials_per_task > 0 && task.view().trials >= spec_.trials_per_task) return "trials";
  if (spec_.min_gain > 0 && MayGain(i) < LeastGain(i, kernels_s)) return "min_gain";
  return "";
}

void JobLoop::EndFinishedTasks() {
  const double kernels_s = KernelSeconds();
  for (size_t i = 0; i < tasks_.size(); ++i) {
    TaskSearch& task = tasks_[i];
    if (task.view().done || !task.prepared() || task.outstanding > 0) continue;
    std::string why = WhyFinished(i, kernels_s);
    if (why.empty()) continue;
    task.End(std::move(why));
    changed_.insert(i);
  }
}

std::string JobLoop::WhySearchIsOver(absl::Duration now) const {
  if (BudgetOver(now)) return "budget";
  if (spec_.trials > 0 && trials_ >= spec_.trials) return "trials";
  if (spec_.early_stopping_model > 0 && since_better_ >= spec_.early_stopping_model) return "early_stopping";
  if (!pending_.empty()) return "";
  double left_s = 0;
  bool all_done = true;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    left_s += MayGain(i);
    all_done = all_done && tasks_[i].view().done;
  }
  if (all_done) return "trials";
  return spec_.min_gain > 0 && left_s < spec_.min_gain * KernelSeconds() ? "min_gain" : "";
}

double JobLoop::TrialsExpected(absl::Duration now) const {
  double trials = kUnlimited;
  if (spec_.trials > 0) trials = spec_.trials - trials_;
  if (spec_.time_budget > absl::ZeroDuration() && seconds_per_item_ > 0) {
    const double left_s = absl::ToDoubleSeconds(spec_.time_budget - (now - started_));
    trials = std::min(trials, left_s / seconds_per_item_);
  }
  return std::max(0.0, trials);
}

double JobLoop::ExpectedGainSeconds(absl::Duration now) const {
  if (phase_ != Phase::kSearch) return 0;
  double total = 0, unknown_s = 0;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    total += GainLeft(i);
    if (!GainIsKnown(i)) unknown_s += tasks_[i].EstimatedSeconds();
  }
  if (unknown_s > kMostUnknown * KernelSeconds()) return kUnlimited;
  const double trials = TrialsExpected(now);
  if (total == 0 || !std::isfinite(trials)) return total;
  double gain = 0;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const double left = GainLeft(i);
    gain += left * tasks_[i].course().ShareWithin(trials * left / total);
  }
  return gain;
}

double JobLoop::EtaSeconds(absl::Duration now) const {
  if (phase_ != Phase::kSearch) return 0;
  double eta = kUnlimited;
  if (spec_.trials > 0 && trials_ > 0) {
    int attempts = 0;
    for (const auto& [outcome, count] : outcomes_) attempts += count;
    eta = (spec_.trials - trials_) * static_cast<double>(attempts) / trials_ * seconds_per_item_;
  }
  if (spec_.time_budget > absl::ZeroDuration()) {
    eta = std::min(eta, absl::ToDoubleSeconds(spec_.time_budget - (now - started_)));
  }
  if (spec_.min_gain > 0) {
    // What is left falls as 1/n, so all that still gain need so many times their trials.
    double left_s = 0, trials = 0;
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const double left = MayGain(i);
      left_s += left;
      if (left > 0) trials += tasks_[i].course().trials();
    }
    const double times = left_s / (spec_.min_gain * KernelSeconds());
    if (std::isfinite(ExpectedGainSeconds(now)))
      eta = std::min(eta, std::max(0.0, times - 1) * trials * seconds_per_item_);
  }
  return std::isfinite(eta) ? std::max(0.0, eta) : 0;
}

}  // namespace temper
