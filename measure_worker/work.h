// What a worker is asked to do and what it answers, as values. service/ converts them from and to the wire; the
// sandbox carries them to the measuring child.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace temper::worker {

// How to measure.
struct SamplingPlan {
  int repeats = 3;              // samples of a contender
  int64_t min_sample_us = 200;  // a sample lasts at least this long
  double race_factor = 0;       // out early if this much behind the incumbent (sampling.cc); 0: never
  int64_t build_timeout_ms = 10000;
  int64_t run_timeout_ms = 10000;
  std::string cache_policy = "model";
};

struct CandidateSpec {
  int64_t candidate = 0;  // the server's id
  int attempt = 0;
  std::string template_name;
  int template_version = 0;  // 0: whatever this build has
  std::string config;
};

struct BatchWork {
  std::string workload, target;  // canonical texts
  double incumbent_s = 0;        // best median known; 0: none
  SamplingPlan plan;
  std::vector<CandidateSpec> candidates;
};

struct KernelPick {
  std::string workload, template_name, config;
  double seconds = 0;  // measured
};

struct ModelWork {
  std::string graph_json, target;
  uint64_t seed = 0;
  std::vector<KernelPick> picks;
  int rounds = 10;
  int64_t budget_ms = 0;  // building apart, stop after so long (but not before three rounds); 0: none
};

// The finalists of one workload, the default first.
struct FinalsTask {
  std::string workload;
  std::vector<CandidateSpec> candidates;
};
// What finalists take while the whole model runs. The model's picks are for workloads without finalists.
struct FinalsWork {
  ModelWork model;
  std::vector<FinalsTask> tasks;

  std::vector<CandidateSpec> Candidates() const {  // of all tasks, one after another
    std::vector<CandidateSpec> all;
    for (const FinalsTask& task : tasks) all.insert(all.end(), task.candidates.begin(), task.candidates.end());
    return all;
  }
};

// Classes of outcomes; the texts are storage's.
inline constexpr char kOk[] = "ok";
inline constexpr char kIllegalConfig[] = "illegal_config";
inline constexpr char kBuildFailed[] = "build_failed";
inline constexpr char kBuildTimeout[] = "build_timeout";
inline constexpr char kWrongAnswer[] = "wrong_answer";
inline constexpr char kRunCrashed[] = "run_crashed";
inline constexpr char kRunTimeout[] = "run_timeout";
inline constexpr char kRacedOut[] = "raced_out";
inline constexpr char kInfrastructure[] = "infrastructure";  // not the candidate's fault

// Beyond this many times as slow as usual, what is measured says little.
inline constexpr double kUsualDrift = 1.2;

struct TrialResult {
  std::string outcome = kInfrastructure;
  std::string error;            // first lines, at most 1 KiB; empty when ok
  std::vector<double> costs_s;  // raw samples, seconds a call
  int64_t build_ms = 0, run_ms = 0;
  double drift = 1;  // how many times as slow as usual the device was around it, by its canary; 1: as usual
};

struct ModelResult {
  std::string outcome = kInfrastructure;
  std::string error;
  std::vector<double> untuned_s, tuned_s;
  double relative_error = 0;  // tuned against untuned outputs
};

}  // namespace temper::worker
