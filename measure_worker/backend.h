// A kind of device: how candidates are built, verified and timed on it. Backends live in the measuring child, where a
// crash or a hang costs nothing but the child.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "base/status.h"
#include "trial/trial.h"

namespace temper::worker {

// One candidate, built. It may crash, hang or lie.
class Program {
 public:
  virtual ~Program() = default;
  // Runs once on poisoned outputs and scratch and compares with the reference: the seconds that the run took, where
  // caches hold less of its data than where it is timed. kDataLoss: the answer is wrong, and how.
  virtual absl::StatusOr<double> Verify() = 0;
  // Seconds that `calls` calls take one after another under the cache policy. Only after Verify.
  virtual double Time(int64_t calls) = 0;
  // That timing left the inputs alone and the latest outputs right. kDataLoss as above.
  virtual absl::Status CheckAfterwards() = 0;
};

enum class Phase : uint8_t { kPrepare, kBuild, kVerify, kTime, kModelBuild, kModelRun };

class Backend {
 public:
  virtual ~Backend() = default;
  // Makes ready for candidates of one workload: inputs, reference result. Not thread-safe. kResourceExhausted: the
  // workload does not fit this device.
  virtual absl::Status Prepare(const BatchWork& work) = 0;
  // A candidate of the workload prepared last. Thread-safe. kInvalidArgument: the template refuses the config.
  virtual absl::StatusOr<std::unique_ptr<Program>> Build(const Candidate& candidate) = 0;
  // Seconds that a small kernel takes, the same one each time, after Prepare. An error: the device is not to be
  // trusted.
  virtual absl::StatusOr<double> TimeCanary() = 0;
  // How many candidates may be built at once while nothing is measured.
  virtual int build_threads() const = 0;
  // What each finalist takes in the model: a result for each of `work.Candidates()`. `begin` is told when a phase
  // begins.
  virtual std::vector<TrialResult> MeasureFinals(const FinalsWork& work, const std::function<void(Phase)>& begin) = 0;
  // The whole model, untuned and tuned.
  virtual ModelResult CheckModel(const ModelWork& work, const std::function<void(Phase)>& begin) = 0;
};

struct BackendDef {
  std::string_view name;               // "cpu", "null"
  std::unique_ptr<Backend> (*make)();  // runs on the CPUs of the process's affinity mask
  bool simulated = false;              // its times do not pass
};
std::span<const BackendDef> AllBackends();  // registry.cc
const BackendDef* FindBackend(std::string_view name);

}  // namespace temper::worker
