// What is handed to workers and what comes back, as values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace temper {

struct SamplingPlan {
  int repeats = 3;  // samples for a contender
  int min_sample_us = 200;
  double race_factor = 1.3;  // out early if this much behind the incumbent (sampling.cc); 0: never
  int build_timeout_ms = 10'000;
  int run_timeout_ms = 5'000;
  std::string cache_policy = "model";
};

// A candidate as workers see it. `id` is given by the dispatcher and never used again, not even after a restart.
struct WorkItem {
  int64_t id = 0;
  std::string template_name;
  int template_version = 1;
  std::string config;            // canonical text
  bool again = false;            // measured before while the device was slow: what comes now counts, however it is
  std::string workload, anchor;  // of a finalist
};

struct KernelPick {
  std::string workload, template_name, config;
  double seconds = 0;  // measured
};

enum class WorkKind { kBatch, kFinals, kModel };

// One lease's worth. Finals have the finalists of all tasks, those of a workload one after another, its default first.
// A kModel has one item, whose template and config are empty: it stands for the whole model.
struct Work {
  int64_t job = 0;
  WorkKind kind = WorkKind::kBatch;
  // Only a worker of this key, target and codegen id may have it.
  std::string device_key, target, codegen_id;
  std::vector<WorkItem> items;

  std::string tuner;

  // kBatch
  std::string workload, anchor;
  double incumbent_s = 0;  // best median known; 0: none
  SamplingPlan plan;

  // kFinals and kModel
  bool revalidate = false;  // of what was known before, see the records' purpose
  std::shared_ptr<const std::string> graph_json;
  uint64_t seed = 0;
  std::vector<KernelPick> picks;
  int rounds = 0;
  int budget_ms = 0;
};

// How one execution of an item went. `costs_s` of a kModel are the tuned rounds.
struct ItemResult {
  int64_t lease = 0;
  int64_t item = 0;     // 0 for a model: the lease tells
  int attempt = 0;      // 0 for a model
  std::string outcome;  // text of an Outcome
  std::string error;
  std::vector<double> costs_s;
  std::vector<double> untuned_s;  // kModel: the default's rounds
  double relative_error = 0;      // kModel: tuned outputs against untuned ones
  double drift = 0;               // how many times as slow as usual the device was around it; 0: not known

  bool operator==(const ItemResult&) const = default;
};

// The device was so much slower around this trial of a search that its time says little: it is kept as such, and
// measured again where that may matter.
inline constexpr double kMostDrift = 1.2;
inline bool MeasuredInNoise(WorkKind kind, const WorkItem& item, const ItemResult& result) {
  const bool measured = result.outcome == "ok" || result.outcome == "raced_out";
  return kind == WorkKind::kBatch && measured && !item.again && result.drift > kMostDrift;
}

struct WorkerInfo {
  std::string device_key, fingerprint, target, codegen_id;
  std::string name;  // for people
  int threads = 1;
  int slots = 1;
  bool shares_server_cores = false;
};

}  // namespace temper
