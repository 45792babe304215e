// Studies of the search on recorded spaces.
//   bench_search record FILE [WORKLOAD]    measures every config once more, on the CPUs of the affinity mask; the first
//                                          of three passes makes FILE and names the workload
//   bench_search replay [--seeds N] [--trials N] [--boosters DIR] FILE...
//                                          with boosters: xgb that begins at them too, where the draft is on
// A recording is of one machine and of this build's templates: replaying it elsewhere is fine, on other templates not.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "bench/search/replay.h"
#include "compiler/runtime/timing.h"
#include "cost_model/shipped.h"
#include "measure_worker/backend.h"
#include "tuner_server/search/experience.h"

namespace temper {
namespace {

constexpr std::string_view kBoosted = "xgb boosted";
constexpr int kSamples = 5;  // the fastest counts: other work on the machine only ever adds

struct Header {
  std::string workload, target;
  int passes = 0;  // complete ones
};

absl::StatusOr<Header> ReadHeader(const std::string& path, const char* workload) {
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line)) {
    if (workload == nullptr) return absl::InvalidArgumentError(absl::StrCat(path, " is to be made: name the workload"));
    TEMPER_ASSIGN_OR_RETURN(const Workload parsed, ParseWorkload(workload));
    return Header{Text(parsed), Text(HostTarget())};
  }
  const nlohmann::json header = nlohmann::json::parse(line);
  Header result{header.at("workload"), header.at("target")};
  while (std::getline(in, line)) result.passes = nlohmann::json::parse(line).at("pass").get<int>() + 1;
  if (result.target != Text(HostTarget())) return absl::FailedPreconditionError("recorded on " + result.target);
  return result;
}

// Infinite for a failure.
double MeasuredSeconds(worker::Backend& backend, const Candidate& candidate) {
  constexpr int64_t kSampleUs = 200;
  worker::CandidateSpec spec;
  spec.template_name = candidate.template_name;
  spec.config = Text(candidate.config);
  auto program = backend.Build(spec);
  if (!program.ok() || !(*program)->Verify().ok()) return std::numeric_limits<double>::infinity();
  const int64_t calls = CallsForSample((*program)->Time(1), kSampleUs);
  double fastest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kSamples; ++i) fastest = std::min(fastest, (*program)->Time(calls) / static_cast<double>(calls));
  return fastest;
}

absl::Status Record(const std::string& path, const char* workload_text) {
  TEMPER_ASSIGN_OR_RETURN(const Header header, ReadHeader(path, workload_text));
  if (header.passes >= kPasses) return absl::FailedPreconditionError(path + " is complete");
  TEMPER_ASSIGN_OR_RETURN(const Workload workload, ParseWorkload(header.workload));
  TEMPER_ASSIGN_OR_RETURN(const Target target, ParseTarget(header.target));
  std::vector<Candidate> candidates;
  for (const TemplateDef* def : TemplatesFor(workload)) {
    for (Config& config : def->space(workload, target).Enumerate(1 << 20))
      candidates.push_back({std::string(def->name), std::move(config)});
  }
  // Another order each pass, so that no config always meets the machine in the same mood.
  Rng rng(static_cast<uint64_t>(header.passes));
  for (size_t i = candidates.size(); i > 1; --i)
    std::swap(candidates[i - 1], candidates[static_cast<size_t>(rng.Below(static_cast<int64_t>(i)))]);

  const std::unique_ptr<worker::Backend> backend(worker::FindBackend("cpu")->make());
  worker::BatchWork work;
  work.workload = header.workload;
  work.target = header.target;
  TEMPER_RETURN_IF_ERROR(backend->Prepare(work));
  std::ostringstream lines;  // written when the pass is complete
  if (header.passes == 0)
    lines << nlohmann::ordered_json{{"workload", header.workload}, {"target", header.target}} << "\n";
  for (const Candidate& candidate : candidates) {
    const double cost_s = MeasuredSeconds(*backend, candidate);
    nlohmann::ordered_json line = {{"pass", header.passes},
                                   {"template", candidate.template_name},
                                   {"config", Text(candidate.config)},
                                   {"cost_s", nullptr}};
    if (std::isfinite(cost_s)) line["cost_s"] = cost_s;
    lines << line << "\n";
  }
  std::ofstream(path, std::ios::app) << lines.str();
  std::printf("%s: pass %d of %d, %zu configs\n", path.c_str(), header.passes + 1, kPasses, candidates.size());
  return absl::OkStatus();
}

void PrintRegrets(std::string_view tuner, const std::vector<double>& regrets) {
  std::printf("  %-12s", std::string(tuner).c_str());
  for (double q : {0.1, 0.25, 0.5, 0.75, 0.9}) std::printf(" %8.2f", 100 * Quantile(regrets, q));
  std::printf("\n");
}

std::vector<Booster> ReadBoosters(const std::string& folder) {
  std::vector<std::string> texts;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream in(entry.path());
    if (entry.path().extension() == ".booster")
      texts.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  std::vector<std::pair<std::string_view, std::string_view>> files;
  for (const std::string& text : texts) files.emplace_back(folder, text);
  return UsableBoosters(files);
}

absl::Status Replay(const std::vector<std::string>& paths, const std::vector<Booster>& boosters,
                    ReplayOptions options) {
  std::vector<RecordedSpace> spaces;
  for (const std::string& path : paths) {
    std::ifstream in(path);
    TEMPER_ASSIGN_OR_RETURN(spaces.emplace_back(), ParseSpace(in));
  }
  for (const bool draft : {true, false}) {
    options.draft = draft;
    std::map<std::string_view, std::vector<double>> all;  // tasks and seeds
    std::printf("draft %s: regret in %% after %d trials, quantiles 10 25 50 75 90 over %d seeds\n",
                draft ? "on" : "off", options.trials, options.seeds);
    for (size_t i = 0; i < spaces.size(); ++i) {
      std::printf(" %s, %zu configs; of who tries all: %.2f\n", paths[i].c_str(), spaces[i].costs.size(),
                  100 * RegretOfAll(spaces[i]));
      for (const TunerDef& tuner : AllTuners()) {
        TEMPER_ASSIGN_OR_RETURN(const std::vector<double> regrets, Regrets(spaces[i], tuner, options));
        PrintRegrets(tuner.name, regrets);
        all[tuner.name].insert(all[tuner.name].end(), regrets.begin(), regrets.end());
      }
      if (!draft || boosters.empty()) continue;
      ReplayOptions boosted = options;
      boosted.experience = std::make_shared<Experience>(spaces[i].target, boosters);
      TEMPER_ASSIGN_OR_RETURN(const std::vector<double> regrets, Regrets(spaces[i], *FindTuner("xgb"), boosted));
      PrintRegrets(kBoosted, regrets);
      all[kBoosted].insert(all[kBoosted].end(), regrets.begin(), regrets.end());
    }
    std::printf(" all tasks\n");
    for (const TunerDef& tuner : AllTuners()) PrintRegrets(tuner.name, all[tuner.name]);
    if (!all[kBoosted].empty()) PrintRegrets(kBoosted, all[kBoosted]);
    const Difference d = PairedDifference(all["xgb"], all["ga"]);
    std::printf(" xgb less ga: %.2f +- %.2f points; xgb's median is %.3f of random's\n", 100 * d.mean,
                100 * d.half_width, Quantile(all["xgb"], 0.5) / Quantile(all["random"], 0.5));
  }
  return absl::OkStatus();
}

absl::Status Main(std::vector<std::string> args) {
  const absl::Status usage = absl::InvalidArgumentError(
      "usage: bench_search record FILE [WORKLOAD] | replay [--seeds N] [--trials N] [--boosters DIR] FILE...");
  if (args.size() < 2) return usage;
  if (args[0] == "record") return Record(args[1], args.size() > 2 ? args[2].c_str() : nullptr);
  if (args[0] != "replay") return usage;
  ReplayOptions options;
  std::vector<std::string> paths;
  std::vector<Booster> boosters;
  for (size_t i = 1; i < args.size(); ++i) {
    const bool seeds = args[i] == "--seeds", trials = args[i] == "--trials", folder = args[i] == "--boosters";
    if (!seeds && !trials && !folder) {
      paths.push_back(args[i]);
      continue;
    }
    if (++i == args.size()) return usage;
    if (folder)
      boosters = ReadBoosters(args[i]);
    else
      (seeds ? options.seeds : options.trials) = std::atoi(args[i].c_str());
  }
  return Replay(paths, boosters, options);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  const absl::Status status = temper::Main({argv + 1, argv + argc});
  if (status.ok()) return 0;
  std::fprintf(stderr, "bench_search: %s\n", std::string(status.message()).c_str());
  return 1;
}
