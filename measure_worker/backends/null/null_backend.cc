#include "measure_worker/backends/null/null_backend.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/hash.h"
#include "measure_worker/sandbox/process.h"

namespace temper::worker {
namespace {

// The value of "name=value" in a config's text; empty if there is none.
std::string Field(const std::string& config, std::string_view name) {
  for (absl::string_view part : absl::StrSplit(config, ',')) {
    const std::pair<std::string, std::string> field = absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (field.first == name) return field.second;
  }
  return "";
}

// Whoever handles the signal, a sanitizer's report included.
void Die(int number) {
  signal(number, SIG_DFL);
  raise(number);
}

[[noreturn]] void Hang() {
  signal(SIGTERM, SIG_IGN);
  for (;;) pause();
}

// Ends or spoils this process in the way `fault` names; returns if it names none of these.
void Misbehave(std::string_view fault) {
  if (fault == "segv") Die(SIGSEGV);
  if (fault == "ill") Die(SIGILL);
  if (fault == "abort") {
    std::fputs("free(): invalid pointer\n", stderr);
    Die(SIGABRT);
  }
  if (fault == "exit") _exit(3);
  if (fault == "hang") Hang();
  if (fault == "garbage") {
    const std::string bytes(64, '\xee');
    if (write(kChildFd, bytes.data(), bytes.size()) < 0) _exit(4);
    Hang();
  }
  if (fault == "chatter") {
    for (int i = 0; i < 10000; ++i) std::fprintf(stderr, "line %d of a great many that nobody will read\n", i);
    Die(SIGSEGV);
  }
}

class NullProgram : public Program {
 public:
  explicit NullProgram(const CandidateSpec& candidate) : fault_(Field(candidate.config, "fault")) {
    constexpr double kShortest = 1e-4;
    double ns = 0;
    const bool given = absl::SimpleAtod(Field(candidate.config, "cost_ns"), &ns);
    const uint64_t hash = StableHash(absl::StrCat(candidate.template_name, " ", candidate.config));
    cost_s_ = given ? ns * 1e-9 : kShortest * (1 + static_cast<double>(hash % 1000) / 100);
  }
  absl::StatusOr<double> Verify() override {
    Misbehave(fault_);
    if (fault_ == "wrong") return absl::DataLossError("relative error 0.5 in output 0");
    return cost_s_;
  }
  double Time(int64_t calls) override {
    if (fault_.starts_with("time_")) Misbehave(std::string_view(fault_).substr(5));
    return cost_s_ * static_cast<double>(calls);
  }
  absl::Status CheckAfterwards() override {
    if (fault_ == "scribble") return absl::DataLossError("input 0 was written");
    return absl::OkStatus();
  }

 private:
  std::string fault_;
  double cost_s_ = 0;
};

class NullBackend : public Backend {
 public:
  absl::Status Prepare(const BatchWork& work) override {
    if (work.workload == "crash") Die(SIGSEGV);
    if (work.workload == "refuse") return absl::InvalidArgumentError("no such workload");
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<Program>> Build(const CandidateSpec& candidate) override {
    const std::string fault = Field(candidate.config, "fault");
    if (fault == "illegal") return absl::InvalidArgumentError("register tile needs more than 32 registers");
    if (fault == "build") return absl::InternalError("cannot select instruction");
    if (fault.starts_with("build_")) Misbehave(std::string_view(fault).substr(6));
    return std::make_unique<NullProgram>(candidate);
  }
  absl::StatusOr<double> TimeCanary() override { return 1e-4; }
  int build_threads() const override { return 2; }
  std::vector<TrialResult> MeasureFinals(const FinalsWork& work, const std::function<void(Phase)>& begin) override {
    begin(Phase::kModelBuild);
    begin(Phase::kModelRun);
    if (work.model.target == "crash") Die(SIGSEGV);
    std::vector<TrialResult> results;
    for (const CandidateSpec& c : work.Candidates())
      results.push_back({kOk, "", std::vector<double>(work.model.rounds, NullProgram(c).Time(1))});
    return results;
  }
  ModelResult CheckModel(const ModelWork& work, const std::function<void(Phase)>& begin) override {
    begin(Phase::kModelBuild);
    if (work.target == "crash") Die(SIGSEGV);
    begin(Phase::kModelRun);
    if (work.target == "hang") Hang();
    constexpr double kUntuned = 2e-3, kTuned = 1e-3;
    return {kOk, "", std::vector<double>(work.rounds, kUntuned), std::vector<double>(work.rounds, kTuned), 0};
  }
};

}  // namespace

std::unique_ptr<Backend> NewNullBackend() { return std::make_unique<NullBackend>(); }

}  // namespace temper::worker
