// Tuners on spaces that others measured, by knobs alone.
//   bench_spaces [--tuners NAME,...] [--seeds N] [--budgets N,...] [--json FILE] SPACE...
// Prints found / best after each budget: the median over seeds and the quartiles. Appends to FILE a line for each
// space, tuner, budget and seed, as bench/search/kernel_tuner_spaces.py does for its optimisers; its --table prints
// both.
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "bench/search/measured_space.h"
#include "bench/search/replay.h"

namespace temper {
namespace {

constexpr int kBatch = 8;

struct Study {
  std::vector<std::string> paths;
  std::vector<const TunerDef*> tuners = {FindTuner("gp"), FindTuner("xgb"), FindTuner("random")};
  int seeds = 20;
  std::vector<int> budgets = {64, 128, 256};
  std::string json;
};

// Medians by budget.
absl::StatusOr<std::vector<double>> RunTuner(const MeasuredSpace& space, const TunerDef& tuner, TunerContext context,
                                             const Study& study) {
  std::vector<std::vector<double>> by_budget(study.budgets.size());
  std::ofstream json;
  if (!study.json.empty()) json.open(study.json, std::ios::app);
  for (int seed = 0; seed < study.seeds; ++seed) {
    context.seed = static_cast<uint64_t>(seed);
    TEMPER_ASSIGN_OR_RETURN(const std::vector<double> ratios,
                            SearchMeasuredSpace(space, tuner, context, study.budgets, kBatch));
    for (size_t i = 0; i < ratios.size(); ++i) {
      by_budget[i].push_back(ratios[i]);
      nlohmann::ordered_json run = {{"space", space.name},
                                    {"tuner", tuner.name},
                                    {"budget", study.budgets[i]},
                                    {"seed", seed},
                                    {"ratio", nullptr}};
      if (std::isfinite(ratios[i])) run["ratio"] = ratios[i];
      if (json.is_open()) json << run << std::endl;
    }
  }
  std::vector<double> medians;
  std::printf("  %-10s", std::string(tuner.name).c_str());
  for (const std::vector<double>& ratios : by_budget) {
    medians.push_back(Quantile(ratios, 0.5));
    std::printf("  %.3f (%.3f to %.3f)", medians.back(), Quantile(ratios, 0.25), Quantile(ratios, 0.75));
  }
  std::printf("\n");
  std::fflush(stdout);
  return medians;
}

absl::Status Run(const Study& study) {
  std::vector<std::pair<std::shared_ptr<const MeasuredSpace>, TunerContext>> spaces;
  for (const std::string& path : study.paths) {
    TEMPER_ASSIGN_OR_RETURN(MeasuredSpace space, ReadMeasuredSpace(path));
    spaces.emplace_back(std::make_shared<MeasuredSpace>(std::move(space)), TunerContext());
    spaces.back().second = RegisterMeasuredSpace(spaces.back().first);
  }
  std::vector<std::vector<double>> means(study.tuners.size(), std::vector<double>(study.budgets.size()));
  std::printf("found / best after %s measurements: median (quartiles) over %d seeds\n",
              absl::StrJoin(study.budgets, ", ").c_str(), study.seeds);
  for (const auto& [space, context] : spaces) {
    std::printf("%s, %zu configs\n", space->name.c_str(), space->cost_s.size());
    for (size_t t = 0; t < study.tuners.size(); ++t) {
      TEMPER_ASSIGN_OR_RETURN(const std::vector<double> medians, RunTuner(*space, *study.tuners[t], context, study));
      for (size_t i = 0; i < medians.size(); ++i) means[t][i] += medians[i] / static_cast<double>(spaces.size());
    }
  }
  std::printf("mean of the spaces' medians\n");
  for (size_t t = 0; t < study.tuners.size(); ++t) {
    std::printf("  %-10s", std::string(study.tuners[t]->name).c_str());
    for (const double mean : means[t]) std::printf("  %.3f", mean);
    std::printf("\n");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int>> Numbers(const std::string& text) {
  std::vector<int> numbers;
  for (const std::string& item : std::vector<std::string>(absl::StrSplit(text, ','))) {
    if (!absl::SimpleAtoi(item, &numbers.emplace_back()) || numbers.back() < 1)
      return absl::InvalidArgumentError(absl::StrCat("'", item, "' is no positive number"));
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

absl::StatusOr<Study> StudyOf(const std::vector<std::string>& args) {
  Study study;
  const absl::Status usage = absl::InvalidArgumentError(
      "usage: bench_spaces [--tuners NAME,...] [--seeds N] [--budgets N,...] [--json FILE] SPACE...");
  for (size_t i = 0; i < args.size(); ++i) {
    if (!args[i].starts_with("--")) {
      study.paths.push_back(args[i]);
      continue;
    }
    const std::string& option = args[i];
    if (++i == args.size()) return usage;
    if (option == "--json") {
      study.json = args[i];
    } else if (option == "--budgets") {
      TEMPER_ASSIGN_OR_RETURN(study.budgets, Numbers(args[i]));
    } else if (option == "--seeds") {
      TEMPER_ASSIGN_OR_RETURN(const std::vector<int> seeds, Numbers(args[i]));
      study.seeds = seeds[0];
    } else if (option == "--tuners") {
      study.tuners.clear();
      for (const std::string& name : std::vector<std::string>(absl::StrSplit(args[i], ','))) {
        study.tuners.push_back(FindTuner(name));
        if (study.tuners.back() == nullptr) return absl::InvalidArgumentError(absl::StrCat("no tuner '", name, "'"));
      }
    } else {
      return usage;
    }
  }
  if (study.paths.empty()) return usage;
  return study;
}

absl::Status Main(const std::vector<std::string>& args) {
  TEMPER_ASSIGN_OR_RETURN(const Study study, StudyOf(args));
  return Run(study);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  const absl::Status status = temper::Main({argv + 1, argv + argc});
  if (status.ok()) return 0;
  std::fprintf(stderr, "bench_spaces: %s\n", std::string(status.message()).c_str());
  return 1;
}
