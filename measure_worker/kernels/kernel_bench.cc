#include "measure_worker/kernels/kernel_bench.h"

#include <algorithm>
#include <new>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/statistics.h"
#include "compiler/runtime/thread_pool.h"
#include "compiler/timing/timing.h"
#include "measure_worker/kernels/program.h"
#include "measure_worker/memory.h"
#include "measure_worker/sampling.h"

namespace temper::worker {
namespace {

// Of the workloads that are kept: an eighth of the memory, within bounds. VGG's first dense layer alone has 800 MiB of
// operands and their copies.
int64_t MostKeptBytes(const Device& device) {
  return std::clamp(device.memory_bytes() / 8, int64_t{512} << 20, int64_t{2} << 30);
}

// What the device is watched by, a product of two square matrices: fits the first caches, and is enough for several
// threads. A device that takes too long for it is watched by a smaller one.
constexpr int64_t kCanarySides[] = {128, 16};
constexpr double kLongCanaryS = 0.02;
constexpr int kCanarySamples = 3;
constexpr int64_t kCanarySampleUs = 200;

absl::StatusOr<Workload> CanaryOf(int64_t side) {
  const std::string square = absl::StrCat("f32[", side, ",", side, "]");
  return ParseWorkload(absl::StrCat("(", square, ", const ", square, ") matmul(0,1) -> ", square, "; anchor=0"));
}

absl::Status NotTrusted(const absl::Status& why) {
  return absl::Status(why.code(), absl::StrCat("the canary kernel failed: ", why.message()));
}

}  // namespace

DeviceKernels::DeviceKernels(std::unique_ptr<Device> device) : device_(std::move(device)), code_(*device_) {}

absl::Status DeviceKernels::Use(const std::string& target) {
  if (target == target_text_) return absl::OkStatus();
  TEMPER_ASSIGN_OR_RETURN(const Target parsed, ParseTarget(target));
  TEMPER_RETURN_IF_ERROR(device_->Use(parsed));
  target_text_ = target;
  canary_.reset();  // of another target, it is another kernel
  pace_ = Canary();
  return absl::OkStatus();
}

absl::Status DeviceKernels::Prepare(const BatchWork& work) {
  TEMPER_RETURN_IF_ERROR(Use(work.target));
  TEMPER_ASSIGN_OR_RETURN(cache_plan_,
                          MakeCachePlan(work.plan.cache_policy, device_->caches(), work.plan.constant_bytes));
  if (state_ != nullptr && states_.front().text != work.workload) {
    state_->ForgetConstants();
    state_.reset();
  }
  TEMPER_ASSIGN_OR_RETURN(state_, StateOf(work.workload));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Program>> DeviceKernels::Build(const Candidate& candidate) {
  TEMPER_ASSIGN_OR_RETURN(const Kernel kernel, BuildNest(candidate));
  TEMPER_ASSIGN_OR_RETURN(LoadedKernel code, Load(kernel));
  TEMPER_RETURN_IF_ERROR(CheckScratchFits(*code.main));
  return NewProgram(std::move(code), state_, cache_plan_);
}

absl::StatusOr<LoadedKernel> DeviceKernels::Load(const Kernel& kernel) {
  auto code = code_.Load(kernel);
  if (absl::IsResourceExhausted(code.status())) {
    MakeRoom();
    code = code_.Load(kernel);
  }
  if (code.ok() || absl::IsResourceExhausted(code.status())) return code;
  return absl::InternalError(code.status().message());  // whatever it is called, here it is a build that failed
}

// Where it is checked and where it is timed, in place of what the state has.
absl::Status DeviceKernels::CheckScratchFits(const Code& code) const {
  const int64_t held = state_->scratch == nullptr ? 0 : state_->scratch->bytes(0);
  const int64_t room = std::max<int64_t>(0, device_->memory_bytes() - state_->bytes + held) / 2;
  if (code.scratch_bytes <= room) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("its scratch takes ", code.scratch_bytes >> 20,
                                                 " MiB, and the device has no more than ", room >> 20, " for it"));
}

absl::StatusOr<double> DeviceKernels::TimeCanary() {
  if (canary_ == nullptr) TEMPER_RETURN_IF_ERROR(MakeCanary());
  std::vector<double> samples;
  while (samples.size() < kCanarySamples) samples.push_back(canary_->Time(canary_calls_));
  if (absl::Status status = canary_->CheckAfterwards(); !status.ok()) {
    canary_.reset();
    return NotTrusted(status);
  }
  const double seconds = Median(samples) / static_cast<double>(canary_calls_);
  pace_.Look(seconds, MonotonicNs());
  return seconds;
}

// Compilers run on the cores, whatever the device is.
int DeviceKernels::build_threads() const { return std::max(1, temper_pool_resolve_threads(0)); }

void DeviceKernels::MakeRoom() {
  std::lock_guard lock(room_);
  std::erase_if(states_, [&](const Entry& e) { return e.state != state_; });
  if (state_ != nullptr) state_->ForgetConstants();
  device_->Trim();
}

void DeviceKernels::Forget() {
  state_.reset();
  states_.clear();
  device_->Trim();
}

bool DeviceKernels::AsUsual() { return !TimeCanary().ok() || pace_.drift() <= kUsualDrift; }

absl::StatusOr<std::shared_ptr<WorkloadState>> DeviceKernels::StateOf(const std::string& workload) {
  for (auto it = states_.begin(); it != states_.end(); ++it) {
    if (it->text != workload) continue;
    states_.splice(states_.begin(), states_, it);
    return it->state;
  }
  TEMPER_ASSIGN_OR_RETURN(std::shared_ptr<WorkloadState> made, MakeState(workload));
  states_.push_front({workload, made});
  const auto kept_bytes = [&] {
    return std::accumulate(states_.begin(), states_.end(), int64_t{0},
                           [](int64_t sum, const Entry& e) { return sum + e.state->bytes; });
  };
  while (states_.size() > 1 && kept_bytes() > MostKeptBytes(*device_)) states_.pop_back();
  return made;
}

absl::StatusOr<std::shared_ptr<WorkloadState>> DeviceKernels::MakeState(const std::string& text) {
  TEMPER_ASSIGN_OR_RETURN(const Workload workload, ParseWorkload(text));
  TEMPER_RETURN_IF_ERROR(CheckFits(workload, device_->memory_bytes()));
  auto made = TryState(workload, text);
  if (!absl::IsResourceExhausted(made.status())) return made;
  MakeRoom();
  made = TryState(workload, text);
  // Somebody else has the memory: what fits the device is not unfit for that.
  if (absl::IsResourceExhausted(made.status()) && device_->shares_memory())
    return absl::UnavailableError(made.status().message());
  return made;
}

absl::StatusOr<std::shared_ptr<WorkloadState>> DeviceKernels::TryState(const Workload& workload,
                                                                       const std::string& text) {
  try {
    return MakeWorkloadState(*device_, workload, StableHash(text));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("there is no memory for its operands and its reference result");
  }
}

absl::StatusOr<Kernel> DeviceKernels::BuildNest(const Candidate& candidate) const {
  const TemplateDef* def = FindTemplate(candidate.template_name);
  if (def == nullptr) return absl::InvalidArgumentError(absl::StrCat("no template '", candidate.template_name, "'"));
  if (candidate.template_version != 0 && candidate.template_version != def->version) {
    return absl::InvalidArgumentError(absl::StrCat("template ", candidate.template_name, " is version ", def->version,
                                                   " here, not ", candidate.template_version));
  }
  auto config = ParseConfig(candidate.config);
  if (!config.ok()) return absl::InvalidArgumentError(config.status().message());
  auto kernel = BuildKernel(state_->workload, candidate.template_name, *config, device_->target());
  if (!kernel.ok()) return absl::InvalidArgumentError(kernel.status().message());
  return kernel;
}

absl::Status DeviceKernels::MakeCanary() {
  for (const int64_t side : kCanarySides) {
    TEMPER_ASSIGN_OR_RETURN(canary_, CanaryProgram(side));
    if (canary_->Time(1) <= kLongCanaryS) break;
  }
  canary_calls_ = FindCalls([&](int64_t calls) { return canary_->Time(calls); }, kCanarySampleUs);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Program>> DeviceKernels::CanaryProgram(int64_t side) {
  TEMPER_ASSIGN_OR_RETURN(const Workload workload, CanaryOf(side));
  TEMPER_ASSIGN_OR_RETURN(const Choice choice, DefaultChoice(workload, device_->target()));
  TEMPER_ASSIGN_OR_RETURN(const Kernel kernel,
                          BuildKernel(workload, choice.def->name, choice.config, device_->target()));
  TEMPER_ASSIGN_OR_RETURN(LoadedKernel code, code_.Load(kernel));
  TEMPER_ASSIGN_OR_RETURN(auto state, MakeWorkloadState(*device_, workload, Hash(workload)));
  auto program = NewProgram(std::move(code), std::move(state), CachePlan{.policy = CachePlan::Policy::kWarm});
  if (absl::Status status = program->Verify().status(); !status.ok()) return NotTrusted(status);
  return program;
}

}  // namespace temper::worker
