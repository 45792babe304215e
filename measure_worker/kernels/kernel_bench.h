// The measuring protocol over any device: candidates of one workload are built, verified against its reference and
// timed.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "compiler/target/target.h"
#include "measure_worker/backend.h"
#include "measure_worker/kernels/cache_plan.h"
#include "measure_worker/kernels/code_cache.h"
#include "measure_worker/kernels/workload_state.h"
#include "measure_worker/sandbox/canary.h"

namespace temper::worker {

class DeviceKernels : public KernelBench {
 public:
  explicit DeviceKernels(std::unique_ptr<Device> device);

  absl::Status Prepare(const BatchWork& work) override;
  absl::StatusOr<std::unique_ptr<Program>> Build(const Candidate& candidate) override;
  absl::StatusOr<double> TimeCanary() override;
  int build_threads() const override;
  void MakeRoom() override;
  void Forget() override;
  bool lost() const override { return device_->lost(); }

  // Makes the device ready for kernels of the target, a canonical text; Prepare does so too. Errors: there is no such
  // target, or what Device::Use says.
  absl::Status Use(const std::string& target);
  // By the canary, against the fastest of its latest times. True where it can not be told. After Use.
  bool AsUsual();

 private:
  struct Entry {
    std::string text;
    std::shared_ptr<WorkloadState> state;
  };
  // References are slow next to a trial, and jobs go round their tasks: the latest workloads are kept.
  absl::StatusOr<std::shared_ptr<WorkloadState>> StateOf(const std::string& workload);
  absl::StatusOr<std::shared_ptr<WorkloadState>> MakeState(const std::string& workload);
  absl::StatusOr<std::shared_ptr<WorkloadState>> TryState(const Workload& workload, const std::string& text);
  absl::StatusOr<LoadedKernel> Load(const Kernel& kernel);
  absl::Status CheckScratchFits(const Code& code) const;
  absl::StatusOr<Kernel> BuildNest(const Candidate& candidate) const;
  absl::Status MakeCanary();
  absl::StatusOr<std::unique_ptr<Program>> CanaryProgram(int64_t side);

  const std::unique_ptr<Device> device_;
  CodeCache code_;
  std::string target_text_;  // empty: none is in use
  CachePlan cache_plan_;
  std::mutex room_;                       // who builds may want some
  std::list<Entry> states_;               // latest used first
  std::shared_ptr<WorkloadState> state_;  // of the latest Prepare
  std::unique_ptr<Program> canary_;       // made when it is first timed
  int64_t canary_calls_ = 1;
  Canary pace_;
};

}  // namespace temper::worker
