// What jobs hand to the dispatcher and what comes back, as values: trial/trial.h with what only the server knows of it.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trial/trial.h"

namespace temper {

// Its `id` is given by the dispatcher and never used again, not even after a restart; its `attempt` with each grant.
struct WorkItem : Candidate {
  bool again = false;            // measured before while the device was slow: what comes now counts, however it is
  std::string workload, anchor;  // of a finalist
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
  std::string owner;  // whose job it is; owners take turns
  int priority = 0;   // higher goes first

  // kBatch
  std::string workload, anchor;
  double incumbent_s = 0;  // best median known; 0: none
  SamplingPlan plan;

  // kFinals and kModel
  bool revalidate = false;  // of what was known before, see the records' purpose
  ModelWork model;
};

// How one execution of an item went.
struct ItemResult {
  int64_t lease = 0;
  std::string instance;              // of the worker that hands it in
  std::string holder;                // likewise: WorkerInfo's
  int64_t item = 0;                  // 0 for a model: the lease tells
  int attempt = 0;                   // 0 for a model
  TrialResult trial;                 // of a candidate
  std::optional<ModelResult> model;  // of a kModel, which has no trial

  Outcome outcome() const { return model ? model->outcome : trial.outcome; }
  const std::string& error() const { return model ? model->error : trial.error; }
};

// The device was so much slower around this trial of a search that its time says little: it is kept as such, and
// measured again where that may matter.
inline constexpr double kMostDrift = 1.2;
inline bool MeasuredInNoise(WorkKind kind, const WorkItem& item, const TrialResult& result) {
  return kind == WorkKind::kBatch && IsMeasured(result.outcome) && !item.again && result.drift > kMostDrift;
}

// Devices of one kind: what one of them measures holds for all, and they take each other's work. Empty: any.
struct DeviceKind {
  std::string key, target, codegen_id;
  auto operator<=>(const DeviceKind&) const = default;
};

struct WorkerInfo {
  std::string device_key, fingerprint, target, codegen_id;
  std::string name;      // for people
  std::string instance;  // tells one life of a worker, and its restarts over the same spool, from all others
  std::string sandbox;   // what confines its measuring child
  std::string holder;    // what it proved to have when it registered: its session is for who proves the same
  int wire_version = 0;
  int threads = 1;
  int slots = 1;
  bool shares_server_cores = false;
};

}  // namespace temper
