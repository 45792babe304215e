// What is handed to who measures, and what comes back: one type for each thing, on the server, on the worker and in its
// measuring child. proto/convert_trial.h has the only conversions to and from the wire.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trial/outcome.h"

namespace temper {

inline constexpr int kMostSlots = 64;  // leases that a worker may hold at once

// How to measure.
struct SamplingPlan {
  int repeats = 3;              // samples of a contender
  int64_t min_sample_us = 200;  // a sample lasts at least this long
  double race_factor = 1.3;     // out early if this much behind the incumbent; 0: never
  int64_t build_timeout_ms = 10'000;
  int64_t run_timeout_ms = 5'000;
  std::string cache_policy = "model";  // "model", "warm", "flushed"
  int64_t constant_bytes = 0;          // of the whole model, which share the caches; 0: not known
  bool operator==(const SamplingPlan&) const = default;
};

// A candidate travels as data, never as code. (id, attempt) names one execution of it, and is never used again.
struct Candidate {
  int64_t id = 0;  // given by the server
  int attempt = 0;
  std::string template_name;
  int template_version = 0;  // 0: whatever this build has
  std::string config;        // canonical text
  bool operator==(const Candidate&) const = default;
};

// The choice of one kernel of a model.
struct KernelPick {
  std::string workload, template_name, config;
  double seconds = 0;  // measured; alternatives are chosen by it
  bool operator==(const KernelPick&) const = default;
};

// Candidates of one workload, each measured by itself.
struct BatchWork {
  std::string workload, target;  // canonical texts
  double incumbent_s = 0;        // best median known; 0: none
  SamplingPlan plan;
  std::vector<Candidate> candidates;
};

// The whole model, untuned and tuned.
struct ModelWork {
  std::shared_ptr<const std::string> graph_json;  // optimised, without weights: who measures fills them from `seed`
  std::string target;
  uint64_t seed = 0;
  std::vector<KernelPick> picks;  // workloads not named use the default
  int rounds = 10;                // up to three times as many where they disagree
  int64_t budget_ms = 0;          // building apart, stop after so long (but not before three rounds); 0: none
};

// The finalists of one workload, the default first.
struct FinalsTask {
  std::string workload;
  std::vector<Candidate> candidates;
};
// What finalists take while the whole model runs. The model's picks are for workloads without finalists.
struct FinalsWork {
  ModelWork model;
  std::vector<FinalsTask> tasks;

  std::vector<Candidate> Candidates() const {  // of all tasks, one after another
    std::vector<Candidate> all;
    for (const FinalsTask& task : tasks) all.insert(all.end(), task.candidates.begin(), task.candidates.end());
    return all;
  }
};

// How one execution of a candidate went.
struct TrialResult {
  Outcome outcome = Outcome::kInfrastructure;
  std::string error;            // the first lines, UTF-8, at most 1 KiB; empty when measured
  std::vector<double> costs_s;  // raw samples, seconds a call; none unless measured
  int64_t build_ms = 0, run_ms = 0;
  // How many times as slow as usual the device was around it, by its canary; 1: as usual, 0: not known.
  double drift = 1;
  bool operator==(const TrialResult&) const = default;
};

struct ModelResult {
  Outcome outcome = Outcome::kInfrastructure;
  std::string error;
  std::vector<double> untuned_s, tuned_s;  // seconds of each round
  double relative_error = 0;               // tuned against untuned outputs
  bool operator==(const ModelResult&) const = default;
};

}  // namespace temper
