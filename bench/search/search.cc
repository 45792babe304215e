// Studies of the search on recorded spaces.
//   bench_search record FILE [WORKLOAD]    measures every config in three passes, on the CPUs of the affinity mask, and
//                                          goes on where an interrupted recording stopped
//   bench_search replay [--seeds N] [--trials N] [--tuners NAME,...] [--boosters DIR] [--told] FILE...
//                                          with boosters: xgb that begins at them too, where the draft is on;
//                                          with --told: regret of what tuners are told, not of the third pass, where
//                                          it is against the choice of who tries everything
// A recording is of one machine and of this build's templates: replaying it elsewhere is fine, on other templates not.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/search/record.h"
#include "bench/search/replay.h"
#include "cost_model/shipped.h"
#include "tuner_server/search/experience.h"

namespace temper {
namespace {

constexpr std::string_view kBoosted = "xgb boosted";

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

struct Study {
  std::vector<std::string> paths;
  std::vector<const TunerDef*> tuners;
  std::vector<Booster> boosters;
  ReplayOptions options;
};

// Regrets over tasks and seeds.
using AllRegrets = std::map<std::string_view, std::vector<double>>;

absl::Status ReplayOn(const RecordedSpace& space, const Study& study, const ReplayOptions& options, AllRegrets& all) {
  const auto add = [&](std::string_view name, const TunerDef& tuner, const ReplayOptions& with) -> absl::Status {
    TEMPER_ASSIGN_OR_RETURN(const std::vector<double> regrets, Regrets(space, tuner, with));
    PrintRegrets(name, regrets);
    all[name].insert(all[name].end(), regrets.begin(), regrets.end());
    return absl::OkStatus();
  };
  for (const TunerDef* tuner : study.tuners) TEMPER_RETURN_IF_ERROR(add(tuner->name, *tuner, options));
  if (!options.draft || study.boosters.empty()) return absl::OkStatus();
  ReplayOptions boosted = options;
  boosted.experience = std::make_shared<Experience>(space.target, study.boosters);
  return add(kBoosted, *FindTuner("xgb"), boosted);
}

void PrintComparison(const AllRegrets& all, bool told) {
  const auto xgb = all.find("xgb"), ga = all.find("ga"), random = all.find("random");
  if (xgb == all.end()) return;
  for (const auto& other : {ga, random}) {
    if (other == all.end()) continue;
    const PairedResult d = PairedDifference(xgb->second, other->second);
    std::printf(" xgb less %s: %.2f +- %.2f points\n", std::string(other->first).c_str(), 100 * d.mean,
                100 * d.half_width);
  }
  if (told && random != all.end())
    std::printf(" xgb's median is %.3f of random's\n", Quantile(xgb->second, 0.5) / Quantile(random->second, 0.5));
}

absl::Status Replay(const Study& study) {
  std::vector<RecordedSpace> spaces;
  for (const std::string& path : study.paths) {
    std::ifstream in(path);
    TEMPER_ASSIGN_OR_RETURN(spaces.emplace_back(), ParseSpace(in));
  }
  ReplayOptions options = study.options;
  for (const bool draft : {true, false}) {
    options.draft = draft;
    AllRegrets all;
    std::printf("draft %s: regret in %% after %d trials, quantiles 10 25 50 75 90 over %d seeds\n",
                draft ? "on" : "off", options.trials, options.seeds);
    for (size_t i = 0; i < spaces.size(); ++i) {
      std::printf(" %s, %zu configs; who tries all is behind the fastest by %.2f\n", study.paths[i].c_str(),
                  spaces[i].costs.size(), options.told ? 0.0 : 100 * RegretOfAll(spaces[i]));
      TEMPER_RETURN_IF_ERROR(ReplayOn(spaces[i], study, options, all));
    }
    std::printf(" all tasks\n");
    for (const auto& [name, regrets] : all) PrintRegrets(name, regrets);
    PrintComparison(all, options.told);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<const TunerDef*>> TunersOf(const std::string& names) {
  std::vector<const TunerDef*> tuners;
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(names, ','))) {
    tuners.push_back(FindTuner(name));
    if (tuners.back() == nullptr) return absl::InvalidArgumentError(absl::StrCat("no tuner '", name, "'"));
  }
  return tuners;
}

absl::Status Main(const std::vector<std::string>& args) {
  const absl::Status usage = absl::InvalidArgumentError(
      "usage: bench_search record FILE [WORKLOAD] | "
      "replay [--seeds N] [--trials N] [--tuners NAME,...] [--boosters DIR] [--told] FILE...");
  if (args.size() < 2) return usage;
  if (args[0] == "record") return RecordSpace(args[1], args.size() > 2 ? args[2] : "");
  if (args[0] != "replay") return usage;
  Study study;
  for (const TunerDef& tuner : AllTuners()) study.tuners.push_back(&tuner);
  for (size_t i = 1; i < args.size(); ++i) {
    const std::string& option = args[i];
    if (!option.starts_with("--")) {
      study.paths.push_back(option);
      continue;
    }
    if (option == "--told") {
      study.options.told = true;
      continue;
    }
    if (++i == args.size()) return usage;
    if (option == "--boosters") {
      study.boosters = ReadBoosters(args[i]);
    } else if (option == "--tuners") {
      TEMPER_ASSIGN_OR_RETURN(study.tuners, TunersOf(args[i]));
    } else if (option == "--seeds" || option == "--trials") {
      (option == "--seeds" ? study.options.seeds : study.options.trials) = std::atoi(args[i].c_str());
    } else {
      return usage;
    }
  }
  return Replay(study);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  const absl::Status status = temper::Main({argv + 1, argv + argc});
  if (status.ok()) return 0;
  std::fprintf(stderr, "bench_search: %s\n", std::string(status.message()).c_str());
  return 1;
}
