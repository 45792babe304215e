// Which workers are to be trusted with no more work for a while, by what became of what they had. A workload that fails
// at several workers is to blame itself, and so is a candidate that takes its workers along. Not thread-safe.
#pragma once

#include <map>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "tuner_server/dispatch/work.h"

namespace temper {

struct SuspectOptions {
  int most_failures = 3;  // distinct workloads in a row that a worker could not measure for its own reasons
  // Leases in a row that a worker lost without a result. One candidate that takes its workers along can cause three.
  int most_losses = 4;
  absl::Duration drained_for = absl::Minutes(10);
};

class Suspects {
 public:
  explicit Suspects(const SuspectOptions& options) : options_(options) {}

  // What a worker did. Returns why it should be drained; empty: it should not.
  std::string OnFailure(const WorkerInfo& worker, const std::string& workload, const std::string& error,
                        absl::Duration now);
  std::string OnLoss(const WorkerInfo& worker, const std::string& why, absl::Duration now);
  void OnSuccess(const WorkerInfo& worker);
  // A person trusts it again.
  void Forgive(const WorkerInfo& worker);
  // Why a worker that registers now should be drained from the start; empty: it should not.
  std::string Sentence(const WorkerInfo& worker, absl::Duration now) const;
  void Forget(absl::Duration now);  // what is long ago

  size_t size() const { return machines_.size() + failed_at_.size(); }

 private:
  struct Machine {
    std::set<std::string> failures;  // workloads
    int losses = 0;
    std::string sentence;
    absl::Duration until, last;
  };
  Machine& At(const WorkerInfo& worker, absl::Duration now);
  std::string Sentenced(Machine& machine, std::string why, absl::Duration now) const;

  SuspectOptions options_;
  std::map<std::string, Machine> machines_;
  struct Workload {
    std::set<std::string> machines;
    absl::Duration last;
  };
  std::map<std::string, Workload> failed_at_;
};

}  // namespace temper
