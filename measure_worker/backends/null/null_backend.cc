#include "measure_worker/backends/null/null_backend.h"

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "compiler/timing/timing.h"
#include "measure_worker/backends/null/faults.h"

namespace temper::worker {
namespace {

class NullProgram : public Program {
 public:
  explicit NullProgram(const Candidate& candidate)
      : config_(candidate.config), fault_(Field(config_, "fault")), passes_(!Field(config_, "real").empty()) {
    constexpr double kShortest = 1e-4;
    double ns = 0;
    const bool given = absl::SimpleAtod(Field(candidate.config, "cost_ns"), &ns);
    const uint64_t hash = StableHash(absl::StrCat(candidate.template_name, " ", candidate.config));
    cost_s_ = given ? ns * 1e-9 : kShortest * (1 + static_cast<double>(hash % 1000) / 100);
  }
  absl::StatusOr<double> Verify() override {
    Misbehave(fault_, config_);
    if (const std::string escaped = Escape(config_); !escaped.empty()) return absl::DataLossError(escaped);
    if (fault_ == "wrong") return absl::DataLossError("relative error 0.5 in output 0");
    return cost_s_;
  }
  double Time(int64_t calls) override {
    if (fault_.starts_with("time_")) Misbehave(std::string_view(fault_).substr(5), config_);
    const double seconds = cost_s_ * static_cast<double>(calls);
    const int64_t end_ns = MonotonicNs() + static_cast<int64_t>(seconds * 1e9);
    while (passes_ && MonotonicNs() < end_ns) {
    }
    return seconds;
  }
  absl::Status CheckAfterwards() override {
    if (fault_ == "scribble") return absl::DataLossError("input 0 was written");
    return absl::OkStatus();
  }

 private:
  const std::string config_, fault_;
  const bool passes_;  // the time that it says it takes
  double cost_s_ = 0;
};

class NullKernels : public KernelBench {
 public:
  absl::Status Prepare(const BatchWork& work) override {
    Misbehave(Field(work.workload, "fault"), work.workload);
    if (work.workload == "refuse") return absl::InvalidArgumentError("no such workload");
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<Program>> Build(const Candidate& candidate) override {
    const std::string fault = Field(candidate.config, "fault");
    if (fault == "illegal") return absl::InvalidArgumentError("register tile needs more than 32 registers");
    if (fault == "build") return absl::InternalError("cannot select instruction");
    if (fault.starts_with("build_")) Misbehave(std::string_view(fault).substr(6), candidate.config);
    return std::make_unique<NullProgram>(candidate);
  }
  absl::StatusOr<double> TimeCanary() override { return 1e-4; }
  int build_threads() const override { return 2; }
  void Forget() override {}
};

class NullModels : public ModelBench {
 public:
  std::vector<TrialResult> MeasureFinals(const FinalsWork& work, const BeginFn& begin) override {
    Begin(begin, Phase::kModelBuild, work.model.target);
    Begin(begin, Phase::kModelRun, work.model.target);
    std::vector<TrialResult> results;
    for (const Candidate& c : work.Candidates())
      results.push_back({Outcome::kOk, "", std::vector<double>(work.model.rounds, NullProgram(c).Time(1))});
    return results;
  }
  ModelResult CheckModel(const ModelWork& work, const BeginFn& begin) override {
    Begin(begin, Phase::kModelBuild, work.target);
    Begin(begin, Phase::kModelRun, work.target);
    constexpr double kUntuned = 2e-3, kTuned = 1e-3;
    return {Outcome::kOk, "", std::vector<double>(work.rounds, kUntuned), std::vector<double>(work.rounds, kTuned), 0};
  }
  void Forget() override {}

 private:
  // A model misbehaves as its target's text says: "build_fault=segv", "run_fault=hang".
  static void Begin(const BeginFn& begin, Phase phase, const std::string& target) {
    begin(phase);
    Misbehave(Field(target, phase == Phase::kModelBuild ? "build_fault" : "run_fault"), target);
  }
};

}  // namespace

Backend NewNullBackend() { return {std::make_unique<NullKernels>(), std::make_unique<NullModels>()}; }

}  // namespace temper::worker
