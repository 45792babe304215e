// Search over one task's candidates. A tuner knows nothing of RPC, storage or time; the same seed and the same
// observations give the same proposals. Not thread-safe.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compiler/ops/template.h"
#include "cost_model/cost_model.h"

namespace temper {

// A candidate as tuners see it, its config taken apart; it becomes a Candidate (trial/trial.h) once it is handed out.
struct Proposal {
  std::string template_name;
  Config config;
  bool operator==(const Proposal&) const = default;
};
struct Observation {
  Proposal proposal;
  bool ok;
  double cost_s;  // median; meaningless unless ok
};

// kInvalidArgument: ok, with a cost that is no finite positive number.
absl::Status CheckObservation(const Observation& o);

class Tuner {
 public:
  virtual ~Tuner() = default;
  // Up to n candidates, all legal, none proposed or observed before. Fewer, or none, when the space is exhausted.
  virtual absl::StatusOr<std::vector<Proposal>> Propose(int n) = 0;
  // Results, in any order, of proposed candidates or of others (records of earlier jobs).
  virtual absl::Status Observe(std::span<const Observation> observations) = 0;
};

class Experience;

struct TunerContext {
  Workload workload;
  Target target;
  uint64_t seed = 0;
  bool draft = true;  // false: as if closed forms said nothing of seconds; for studies
  // What other tasks taught, as it is when the tuner is first asked or told anything. Null: nothing.
  std::shared_ptr<const Experience> experience;
};
struct TunerDef {
  std::string_view name;  // "xgb", "ga", ...
  absl::StatusOr<std::unique_ptr<Tuner>> (*make)(const TunerContext&);
};
std::span<const TunerDef> AllTuners();  // registry.cc
const TunerDef* FindTuner(std::string_view name);
std::string TunerNames();  // of all: "xgb, ga, ..."

}  // namespace temper
