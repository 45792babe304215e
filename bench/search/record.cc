#include "bench/search/record.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "bench/search/replay.h"
#include "compiler/timing/timing.h"
#include "measure_worker/backends/cpu/cpu_device.h"
#include "measure_worker/kernels/program.h"

namespace temper {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr size_t kChunk = 64;    // configs that take turns
constexpr int kSamples = 3;      // of a turn, behind a call that finds what others have left in the caches
constexpr int kTurns = 8;        // the fastest sample counts, since other work on the machine only ever adds
constexpr int kMostTurns = 100;  // where the machine is slow all the time
constexpr double kSlow = 1.03;   // a machine whose canary takes so many times what it took at best
constexpr int kTurnsOfAll = 3;   // as usual; what is then kBehind times as slow as the best has no more of them
constexpr double kBehind = 2;
constexpr int64_t kSampleUs = 100;

struct Recording {
  std::string workload, target;
  std::array<std::map<std::pair<std::string, std::string>, double>, kPasses> seconds;  // by template and config

  bool Holds(const Proposal& c, int pass) const { return seconds[pass].contains({c.template_name, Text(c.config)}); }
  bool Holds(const Proposal& c) const {
    for (int pass = 0; pass < kPasses; ++pass) {
      if (!Holds(c, pass)) return false;
    }
    return true;
  }
  double FastestSeconds(const Proposal& c) const {
    double fastest = kNever;
    for (const auto& pass : seconds) {
      const auto found = pass.find({c.template_name, Text(c.config)});
      if (found != pass.end()) fastest = std::min(fastest, found->second);
    }
    return fastest;
  }
};

// A recording that was killed may end within a line.
void DropPartialLine(const std::string& path) {
  std::ifstream in(path);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  std::error_code none;
  if (!text.empty() && text.back() != '\n') std::filesystem::resize_file(path, text.rfind('\n') + 1, none);
}

absl::StatusOr<Recording> BeginOrGoOn(const std::string& path, const std::string& workload) {
  DropPartialLine(path);
  std::ifstream in(path);
  std::string line;
  Recording recording;
  recording.target = Text(HostTarget());
  if (!std::getline(in, line)) {
    if (workload.empty()) return absl::InvalidArgumentError(absl::StrCat(path, " is to be made: name the workload"));
    TEMPER_ASSIGN_OR_RETURN(const Workload parsed, ParseWorkload(workload));
    recording.workload = Text(parsed);
    std::ofstream(path) << nlohmann::ordered_json{{"workload", recording.workload}, {"target", recording.target}}
                        << "\n";
    return recording;
  }
  const nlohmann::json header = nlohmann::json::parse(line);
  recording.workload = header.at("workload");
  if (header.at("target") != recording.target)
    return absl::FailedPreconditionError(absl::StrCat("recorded on ", std::string(header.at("target"))));
  while (std::getline(in, line)) {
    const nlohmann::json entry = nlohmann::json::parse(line);
    const nlohmann::json& cost = entry.at("cost_s");
    recording.seconds.at(entry.at("pass"))[{entry.at("template"), entry.at("config")}] =
        cost.is_null() ? kNever : cost.get<double>();
  }
  return recording;
}

// The configs of one workload, compiled once for all passes.
class Space {
 public:
  static absl::StatusOr<Space> Load(const Recording& recording) {
    Space s;
    TEMPER_ASSIGN_OR_RETURN(const Workload workload, ParseWorkload(recording.workload));
    TEMPER_ASSIGN_OR_RETURN(s.target_, ParseTarget(recording.target));
    TEMPER_RETURN_IF_ERROR(s.device_->Use(s.target_));
    TEMPER_ASSIGN_OR_RETURN(s.state_, worker::MakeWorkloadState(*s.device_, workload, StableHash(recording.workload)));
    TEMPER_ASSIGN_OR_RETURN(s.cache_, worker::MakeCachePlan("model", s.device_->caches()));
    TEMPER_ASSIGN_OR_RETURN(const Choice untuned, DefaultChoice(workload, s.target_));
    for (const TemplateDef* def : TemplatesFor(workload, s.target_)) {
      for (Config& config : def->space(workload, s.target_).Enumerate(1 << 20)) {
        if (def == untuned.def && config == untuned.config) s.untuned_ = s.candidates_.size();
        s.candidates_.push_back({std::string(def->name), std::move(config)});
      }
    }
    for (size_t i = 0; i < s.candidates_.size(); ++i) {
      const bool needed = i == s.untuned_ || !recording.Holds(s.candidates_[i]);
      s.code_.push_back(needed ? s.Compile(s.candidates_[i]) : absl::UnavailableError("recorded already"));
    }
    return s;
  }

  const std::vector<Proposal>& candidates() const { return candidates_; }
  // Null: it does not build, or gives a wrong answer.
  std::unique_ptr<worker::Program> MakeProgram(size_t i) const {
    if (!code_[i].ok()) return nullptr;
    auto program = worker::NewProgram(*code_[i], state_, cache_);
    return program->Verify().ok() ? std::move(program) : nullptr;
  }
  const Proposal& untuned() const { return candidates_[untuned_]; }  // the default
  std::unique_ptr<worker::Program> MakeCanary() const { return MakeProgram(untuned_); }

 private:
  absl::StatusOr<worker::LoadedKernel> Compile(const Proposal& candidate) {
    TEMPER_ASSIGN_OR_RETURN(const Kernel kernel,
                            BuildKernel(state_->workload, candidate.template_name, candidate.config, target_));
    return compiled_->Load(kernel);
  }

  Target target_;
  std::unique_ptr<worker::CpuDevice> device_ = std::make_unique<worker::CpuDevice>();
  std::unique_ptr<worker::CodeCache> compiled_ = std::make_unique<worker::CodeCache>(*device_);
  std::shared_ptr<worker::WorkloadState> state_;
  worker::CachePlan cache_;
  std::vector<Proposal> candidates_;
  std::vector<absl::StatusOr<worker::LoadedKernel>> code_;
  size_t untuned_ = 0;
};

// Times programs in turns, until enough turns met the machine as it usually is.
class Timer {
 public:
  // `usual_s`: what the canary is known to take at best.
  Timer(worker::Program& canary, double usual_s) : canary_(canary), usual_s_(usual_s) {}

  // Infinite where there is no program.
  std::vector<double> Seconds(const std::vector<std::unique_ptr<worker::Program>>& programs) {
    std::vector<double> fastest(programs.size(), kNever);
    for (int turn = 0, usual = 0; usual < kTurns && turn < kMostTurns; ++turn) {
      usual += AsUsual();
      for (size_t i = 0; i < programs.size(); ++i) {
        if (programs[i] == nullptr || (usual > kTurnsOfAll && fastest[i] > kBehind * best_s_)) continue;
        fastest[i] = std::min(fastest[i], Turn(*programs[i]));
        best_s_ = std::min(best_s_, fastest[i]);
      }
    }
    return fastest;
  }

 private:
  static double Turn(worker::Program& program) {
    const int64_t calls = CallsForSample(program.Time(1), kSampleUs);
    double fastest = kNever;
    for (int i = 0; i < kSamples; ++i) fastest = std::min(fastest, program.Time(calls) / static_cast<double>(calls));
    return fastest;
  }

  bool AsUsual() {
    const double now_s = Turn(canary_);
    usual_s_ = std::min(usual_s_, now_s);
    return now_s <= kSlow * usual_s_;
  }

  worker::Program& canary_;
  double usual_s_;
  double best_s_ = kNever;  // of all
};

// Another order each pass, so that no config always meets the machine in the same mood.
std::vector<size_t> Order(size_t count, int pass) {
  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = i;
  Rng rng(static_cast<uint64_t>(pass));
  for (size_t i = count; i > 1; --i) std::swap(order[i - 1], order[rng.Below(static_cast<int64_t>(i))]);
  return order;
}

void RecordPass(const std::string& path, const Recording& recording, int pass, const Space& space, Timer& timer) {
  std::vector<size_t> left = Order(space.candidates().size(), pass);
  std::erase_if(left, [&](size_t i) { return recording.Holds(space.candidates()[i], pass); });
  for (size_t first = 0; first < left.size(); first += kChunk) {
    const size_t count = std::min(kChunk, left.size() - first);
    std::vector<std::unique_ptr<worker::Program>> programs;
    for (size_t k = 0; k < count; ++k) programs.push_back(space.MakeProgram(left[first + k]));
    const std::vector<double> seconds = timer.Seconds(programs);
    std::ostringstream lines;
    for (size_t k = 0; k < count; ++k) {
      const Proposal& c = space.candidates()[left[first + k]];
      nlohmann::ordered_json line = {
          {"pass", pass}, {"template", c.template_name}, {"config", Text(c.config)}, {"cost_s", nullptr}};
      if (std::isfinite(seconds[k])) line["cost_s"] = seconds[k];
      lines << line << "\n";
    }
    std::ofstream(path, std::ios::app) << lines.str();
  }
}

absl::Status RecordAll(const std::string& path, const std::string& workload) {
  TEMPER_ASSIGN_OR_RETURN(const Recording recording, BeginOrGoOn(path, workload));
  TEMPER_ASSIGN_OR_RETURN(const Space space, Space::Load(recording));
  std::printf("%s: %zu configs\n", path.c_str(), space.candidates().size());
  const std::unique_ptr<worker::Program> canary = space.MakeCanary();
  if (canary == nullptr) return absl::InternalError("the default config does not work");
  Timer timer(*canary, recording.FastestSeconds(space.untuned()));
  for (int pass = 0; pass < kPasses; ++pass) {
    RecordPass(path, recording, pass, space, timer);
    std::printf("%s: pass %d of %d\n", path.c_str(), pass + 1, kPasses);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RecordSpace(const std::string& path, const std::string& workload) {
  try {
    return RecordAll(path, workload);
  } catch (const nlohmann::json::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is no recording: ", e.what()));
  }
}

}  // namespace temper
