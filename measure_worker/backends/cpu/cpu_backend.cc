#include "measure_worker/backends/cpu/cpu_backend.h"

#include <algorithm>
#include <limits>
#include <list>
#include <new>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "compiler/runtime/timing.h"
#include "measure_worker/backends/cpu/cpu_program.h"
#include "measure_worker/backends/cpu/memory.h"
#include "measure_worker/backends/cpu/model_check.h"
#include "measure_worker/backends/cpu/model_finals.h"
#include "measure_worker/sampling.h"
#include "measure_worker/sandbox/canary.h"

namespace temper::worker {
namespace {

// An eighth of the memory, within bounds: VGG's first dense layer alone has 800 MiB of operands and their copies.
int64_t MaxCachedBytes() { return std::clamp(MemoryLimit() / 8, int64_t{512} << 20, int64_t{2} << 30); }

// References are slow next to a trial, and jobs go round their tasks: the latest workloads are kept.
class StateCache {
 public:
  absl::StatusOr<std::shared_ptr<WorkloadState>> Get(const std::string& text) {
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      if (it->text != text) continue;
      entries_.splice(entries_.begin(), entries_, it);
      return it->state;
    }
    TEMPER_ASSIGN_OR_RETURN(const Workload workload, ParseWorkload(text));
    TEMPER_ASSIGN_OR_RETURN(auto state, MakeWorkloadState(workload, StableHash(text), spare_));
    entries_.push_front({text, state});
    while (Bytes() > most_bytes_ && entries_.size() > 1) entries_.pop_back();
    return state;
  }

  void Clear() {
    entries_.clear();
    spare_->Clear();
  }

 private:
  int64_t Bytes() const {
    return std::accumulate(entries_.begin(), entries_.end(), int64_t{0},
                           [](int64_t sum, const Entry& e) { return sum + e.state->bytes; });
  }

  struct Entry {
    std::string text;
    std::shared_ptr<WorkloadState> state;
  };
  std::list<Entry> entries_;  // latest used first
  const std::shared_ptr<SpareBuffers> spare_ = std::make_shared<SpareBuffers>(kMostSpareBytes);
  const int64_t most_bytes_ = MaxCachedBytes();
};

// What the device is watched by: fits the first caches, and is enough for several threads.
constexpr char kCanary[] = "(f32[128,128], const f32[128,128]) matmul(0,1) -> f32[128,128]; anchor=0";
constexpr int kCanarySamples = 3;
constexpr int64_t kCanarySampleUs = 200;

class CpuBackend : public Backend {
 public:
  absl::Status Prepare(const BatchWork& work) override {
    kept_.reset();
    TEMPER_RETURN_IF_ERROR(PrepareDevice(work.target));
    TEMPER_ASSIGN_OR_RETURN(cache_plan_, MakeCachePlan(work.plan.cache_policy, *target_.cpu()));
    const std::shared_ptr<WorkloadState> before = state_;
    TEMPER_ASSIGN_OR_RETURN(state_, MakeState(work.workload));
    if (before != nullptr && before != state_) before->constants.clear();
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<Program>> Build(const Candidate& candidate) override {
    TEMPER_ASSIGN_OR_RETURN(const Kernel kernel, BuildNest(candidate));
    auto code = Load(kernel, target_);
    // Whatever the compiler calls it, here it is a build that failed.
    if (!code.ok()) return absl::InternalError(code.status().message());
    return NewCpuProgram(*std::move(code), state_, cache_plan_, pool_);
  }

  absl::StatusOr<double> TimeCanary() override {
    if (canary_ == nullptr) TEMPER_RETURN_IF_ERROR(MakeCanary());
    std::vector<double> samples;
    while (samples.size() < kCanarySamples) samples.push_back(canary_->Time(canary_calls_));
    if (absl::Status status = canary_->CheckAfterwards(); !status.ok()) return NotTrusted(status);
    const double seconds = Median(samples) / static_cast<double>(canary_calls_);
    fastest_canary_s_ = std::min(fastest_canary_s_, seconds);
    return seconds;
  }

  int build_threads() const override { return std::max(1, temper_pool_resolve_threads(0)); }

  std::vector<TrialResult> MeasureFinals(const FinalsWork& work, const std::function<void(Phase)>& begin) override {
    MakeRoom();
    kept_.reset();
    return worker::MeasureFinals(work, begin, &kept_, [&] { return AsUsual(work.model.target); });
  }

  ModelResult CheckModel(const ModelWork& work, const std::function<void(Phase)>& begin) override {
    MakeRoom();
    return worker::CheckModel(work, begin, std::exchange(kept_, std::nullopt), [&] { return AsUsual(work.target); });
  }

 private:
  absl::StatusOr<std::shared_ptr<WorkloadState>> MakeState(const std::string& workload) {
    try {
      return states_.Get(workload);
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError("there is no memory for its operands and its reference result");
    }
  }

  absl::Status PrepareDevice(const std::string& target) {
    if (target != target_text_) {
      TEMPER_ASSIGN_OR_RETURN(target_, ParseTarget(target));
      TEMPER_RETURN_IF_ERROR(CheckRunsHere(target_));
      target_text_ = target;
      canary_.reset();
    }
    if (!pool_ || temper_pool_launcher(pool_.get())->threads != target_.threads()) {
      canary_.reset();
      pool_.reset(temper_pool_create(target_.threads()), temper_pool_destroy);
      if (!pool_) return absl::UnavailableError(absl::StrCat("cannot start ", target_.threads(), " threads"));
    }
    return absl::OkStatus();
  }

  // By the canary, against its fastest so far. True where it can not be told.
  bool AsUsual(const std::string& target) {
    if (!PrepareDevice(target).ok()) return true;
    const absl::StatusOr<double> now_s = TimeCanary();
    return !now_s.ok() || *now_s <= kUsualDrift * fastest_canary_s_;
  }

  // For the weights of the model and of its packages.
  void MakeRoom() {
    state_.reset();
    states_.Clear();
  }

  absl::StatusOr<Kernel> BuildNest(const Candidate& candidate) const {
    const TemplateDef* def = FindTemplate(candidate.template_name);
    if (def == nullptr) return absl::InvalidArgumentError(absl::StrCat("no template '", candidate.template_name, "'"));
    if (candidate.template_version != 0 && candidate.template_version != def->version) {
      return absl::InvalidArgumentError(absl::StrCat("template ", candidate.template_name, " is version ", def->version,
                                                     " here, not ", candidate.template_version));
    }
    auto config = ParseConfig(candidate.config);
    if (!config.ok()) return absl::InvalidArgumentError(config.status().message());
    auto kernel = BuildKernel(state_->workload, candidate.template_name, *config, target_);
    if (!kernel.ok()) return absl::InvalidArgumentError(kernel.status().message());
    return kernel;
  }

  static absl::Status NotTrusted(const absl::Status& why) {
    return absl::Status(why.code(), absl::StrCat("the canary kernel failed: ", why.message()));
  }

  absl::Status MakeCanary() {
    fastest_canary_s_ = std::numeric_limits<double>::infinity();  // of another target, it was another kernel
    TEMPER_ASSIGN_OR_RETURN(const Workload workload, ParseWorkload(kCanary));
    TEMPER_ASSIGN_OR_RETURN(const Choice choice, DefaultChoice(workload, target_));
    TEMPER_ASSIGN_OR_RETURN(const Kernel kernel, BuildKernel(workload, choice.def->name, choice.config, target_));
    TEMPER_ASSIGN_OR_RETURN(LoadedKernel code, Load(kernel, target_));
    TEMPER_ASSIGN_OR_RETURN(auto state, MakeWorkloadState(workload, StableHash(kCanary)));
    auto program =
        NewCpuProgram(std::move(code), std::move(state), CachePlan{.policy = CachePlan::Policy::kWarm}, pool_);
    if (absl::Status status = program->Verify().status(); !status.ok()) return NotTrusted(status);
    canary_calls_ = FindCalls([&](int64_t calls) { return program->Time(calls); }, kCanarySampleUs);
    canary_ = std::move(program);
    return absl::OkStatus();
  }

  std::string target_text_;
  Target target_;
  CachePlan cache_plan_;
  StateCache states_;
  std::shared_ptr<WorkloadState> state_;  // of the latest Prepare
  double fastest_canary_s_ = std::numeric_limits<double>::infinity();
  std::optional<KeptModel> kept_;  // between the finals of a model and its check
  std::shared_ptr<temper_pool> pool_;
  std::unique_ptr<Program> canary_;  // made when it is first timed
  int64_t canary_calls_ = 1;
};

}  // namespace

std::unique_ptr<Backend> NewCpuBackend() { return std::make_unique<CpuBackend>(); }

}  // namespace temper::worker
