#include "measure_worker/models/model_bench.h"

#include <utility>

#include "measure_worker/models/model_check.h"
#include "measure_worker/models/model_finals.h"

namespace temper::worker {
namespace {

class DeviceModels : public ModelBench {
 public:
  explicit DeviceModels(DeviceKernels& kernels) : kernels_(kernels) {}

  std::vector<TrialResult> MeasureFinals(const FinalsWork& work, const BeginFn& begin) override {
    kept_.reset();
    if (const absl::Status ready = Use(work.model.target, begin); !ready.ok()) {
      const TrialResult failed{Outcome::kInfrastructure, std::string(ready.message())};
      return std::vector<TrialResult>(work.Candidates().size(), failed);
    }
    std::vector<TrialResult> results = worker::MeasureFinals(work, begin, &kept_, [&] { return kernels_.AsUsual(); });
    if (kernels_.lost()) kept_.reset();
    return results;
  }

  ModelResult CheckModel(const ModelWork& work, const BeginFn& begin) override {
    std::optional<KeptModel> kept = std::exchange(kept_, std::nullopt);
    if (const absl::Status ready = Use(work.target, begin); !ready.ok())
      return {Outcome::kBuildFailed, std::string(ready.message())};
    ModelResult result = worker::CheckModel(work, begin, std::move(kept), [&] { return kernels_.AsUsual(); });
    // Runs that fail at once look fast.
    if (kernels_.lost() && result.outcome == Outcome::kOk)
      return {Outcome::kRunCrashed, "the device was lost while it was timed"};
    return result;
  }

  void Forget() override { kept_.reset(); }

 private:
  absl::Status Use(const std::string& target, const BeginFn& begin) {
    const absl::Status status = kernels_.Use(target);
    if (!status.ok()) begin(Phase::kModelBuild);  // it is where it failed
    return status;
  }

  DeviceKernels& kernels_;
  std::optional<KeptModel> kept_;  // between the finals of a model and its check
};

}  // namespace

std::unique_ptr<ModelBench> NewModelBench(DeviceKernels& kernels) { return std::make_unique<DeviceModels>(kernels); }

}  // namespace temper::worker
