#include "bench/search/replay.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace temper {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

double ToldIfItWorks(const RecordedSpace::Costs& costs) { return std::isinf(costs.scored_s) ? kNever : costs.told_s; }

absl::StatusOr<RecordedSpace> Parse(std::istream& in) {
  std::string line;
  if (!std::getline(in, line)) return absl::InvalidArgumentError("an empty recording");
  const nlohmann::json header = nlohmann::json::parse(line);
  RecordedSpace space;
  TEMPER_ASSIGN_OR_RETURN(space.workload, ParseWorkload(header.at("workload").get<std::string>()));
  TEMPER_ASSIGN_OR_RETURN(space.target, ParseTarget(header.at("target").get<std::string>()));
  std::map<std::pair<std::string, std::string>, std::vector<double>> passes;
  while (std::getline(in, line)) {
    const nlohmann::json entry = nlohmann::json::parse(line);
    const size_t pass = entry.at("pass").get<size_t>();
    std::vector<double>& costs = passes[{entry.at("template"), entry.at("config")}];
    if (pass >= kPasses) return absl::InvalidArgumentError(absl::StrCat("a pass ", pass));
    costs.resize(kPasses);
    costs[pass] = entry.at("cost_s").is_null() ? kNever : entry.at("cost_s").get<double>();
  }
  space.best_s = space.best_told_s = kNever;
  for (const auto& [key, costs] : passes) {
    if (std::find(costs.begin(), costs.end(), 0.0) != costs.end())
      return absl::InvalidArgumentError(absl::StrCat(key.first, " ", key.second, " lacks a pass"));
    space.costs[key] = {(costs[0] + costs[1]) / 2, costs[2]};
    space.best_s = std::min(space.best_s, costs[2]);
    space.best_told_s = std::min(space.best_told_s, space.costs[key].told_s);
  }
  const auto chosen = std::min_element(space.costs.begin(), space.costs.end(), [](const auto& a, const auto& b) {
    return ToldIfItWorks(a.second) < ToldIfItWorks(b.second);
  });
  space.all_s = chosen == space.costs.end() ? kNever : chosen->second.scored_s;
  if (std::isinf(space.all_s)) return absl::InvalidArgumentError("a recording in which nothing works");
  return space;
}

std::unique_ptr<Tuner> FirstBatchTuner(const TunerContext& context) {
  auto tuner = FindTuner(context.draft ? "xgb" : "random")->make(context);
  return tuner.ok() ? *std::move(tuner) : nullptr;
}

absl::StatusOr<double> Regret(const RecordedSpace& space, const TunerDef& def, const ReplayOptions& options, int seed) {
  const TunerContext context{space.workload, space.target, static_cast<uint64_t>(seed), options.draft,
                             options.experience};
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<Tuner> tuner, def.make(context));
  const std::unique_ptr<Tuner> first = FirstBatchTuner(context);
  if (first == nullptr) return absl::InternalError("no first batch");
  RecordedSpace::Costs chosen{kNever, kNever};
  for (int trials = 0; trials < options.trials;) {
    Tuner& proposer = trials == 0 ? *first : *tuner;
    TEMPER_ASSIGN_OR_RETURN(const std::vector<Proposal> batch,
                            proposer.Propose(std::min(options.batch, options.trials - trials)));
    if (batch.empty()) break;
    std::vector<Observation> results;
    for (const Proposal& candidate : batch) {
      const auto found = space.costs.find({candidate.template_name, Text(candidate.config)});
      if (found == space.costs.end())
        return absl::NotFoundError(
            absl::StrCat("not recorded: ", candidate.template_name, " ", Text(candidate.config)));
      results.push_back({candidate, std::isfinite(found->second.told_s), found->second.told_s});
      if (found->second.told_s < chosen.told_s) chosen = found->second;
    }
    TEMPER_RETURN_IF_ERROR(tuner->Observe(results));
    trials += static_cast<int>(batch.size());
  }
  return options.told ? chosen.told_s / space.best_told_s - 1 : chosen.scored_s / space.all_s - 1;
}

}  // namespace

absl::StatusOr<RecordedSpace> ParseSpace(std::istream& in) {
  try {
    return Parse(in);
  } catch (const nlohmann::json::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat("not a recording: ", e.what()));
  }
}

absl::StatusOr<std::vector<double>> Regrets(const RecordedSpace& space, const TunerDef& tuner,
                                            const ReplayOptions& options) {
  std::vector<double> regrets;
  for (int seed = 0; seed < options.seeds; ++seed) {
    TEMPER_ASSIGN_OR_RETURN(const double regret, Regret(space, tuner, options, seed));
    regrets.push_back(regret);
  }
  return regrets;
}

double RegretOfAll(const RecordedSpace& space) { return space.all_s / space.best_s - 1; }

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const size_t below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

PairedResult PairedDifference(const std::vector<double>& a, const std::vector<double>& b) {
  const double n = static_cast<double>(a.size());
  PairedResult d;
  for (size_t i = 0; i < a.size(); ++i) d.mean += (a[i] - b[i]) / n;
  double square = 0;
  for (size_t i = 0; i < a.size(); ++i) square += (a[i] - b[i] - d.mean) * (a[i] - b[i] - d.mean);
  if (n > 1) d.half_width = 1.96 * std::sqrt(square / (n - 1) / n);
  return d;
}

}  // namespace temper
