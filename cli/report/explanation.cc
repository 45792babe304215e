#include "cli/report/explanation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/statistics.h"
#include "compiler/codegen/codegen.h"
#include "compiler/graph/alias.h"
#include "compiler/graph/extract.h"
#include "compiler/ops/describe.h"
#include "compiler/ops/legal_configs.h"
#include "compiler/ops/shape_distance.h"
#include "compiler/target/threads.h"
#include "storage/best.h"

namespace temper {
namespace {

// A longer time between two trials is a pause: another model's turn, or a night.
constexpr int64_t kPauseMs = 30'000;

// --- what the database holds ---

// Those of this code generator before others, then as Store::Best prefers them. Less is better.
std::pair<bool, Rank> Preference(const Record& r, const std::string& codegen_id) {
  return {r.codegen_id != codegen_id, RankOf(r)};
}

// `own`: of the model's workloads on the target. `best`: of each workload, target and device, the model's among them.
struct Digest {
  std::map<std::string, std::vector<Record>> own;
  std::map<std::tuple<std::string, std::string, std::string>, Record> best;
  std::set<std::string> devices, targets;  // of all records
  FailureGroups failures;
};

absl::StatusOr<Digest> Read(Records& records, const std::vector<Task>& tasks, const std::string& target) {
  Digest digest;
  std::set<std::string> wanted;
  for (const Task& task : tasks) wanted.insert(Text(task.workload));
  const absl::Status scanned = records.Scan([&](const Record& r) {
    digest.devices.insert(r.device_key);
    digest.targets.insert(r.target);
    const bool ours = wanted.contains(r.workload) && r.target == target;
    if (ours) {
      digest.own[r.workload].push_back(r);
      digest.failures.Add(r);
    }
    if (!MayBeBest(r)) return;
    const auto [it, first] = digest.best.try_emplace({r.workload, r.target, r.device_key}, r);
    if (!first && Preference(r, it->second.codegen_id) < Preference(it->second, it->second.codegen_id)) it->second = r;
  });
  TEMPER_RETURN_IF_ERROR(scanned);
  return digest;
}

// --- configs ---

// What is reported of a config; nullopt: it is not legal in this build.
std::optional<ConfigReport> Look(LegalConfigs& legal, const Workload& w, const Target& t,
                                 const std::string& template_name, const std::string& config) {
  absl::StatusOr<Config> read = legal.Read(template_name, config);
  if (!read.ok()) return std::nullopt;
  ConfigReport report;
  report.template_name = template_name;
  report.config = *std::move(read);
  report.footprint = legal.Find(template_name)->footprint(w, report.config, t);
  report.draft_s = report.footprint.draft_s;
  return report;
}

bool IsThisBuilds(const Record& r) { return IsOfThisBuild(r.template_name, r.template_version); }

// --- the nearest record ---

std::optional<Nearest> FindNearest(const Workload& w, const Target& target, const Digest& digest) {
  static constexpr const char* kHow[] = {"the same on another device", "the same operator, other epilogue",
                                         "the nearest shape"};
  const std::string text = Text(w), anchor = AnchorText(w), target_text = Text(target);
  std::optional<Nearest> nearest;
  std::tuple<int, bool, double> least;  // what kin, of another target, how far
  for (const auto& [key, record] : digest.best) {
    const absl::StatusOr<Workload> other = ParseWorkload(record.workload);
    if (!other.ok()) continue;
    const int kin = record.workload == text ? 0 : record.anchor == anchor ? 1 : 2;
    const std::tuple<int, bool, double> rank = {kin, record.target != target_text, ShapeDistance(w, *other)};
    if (!std::isfinite(std::get<2>(rank)) || (nearest && least <= rank)) continue;
    nearest = Nearest{kHow[kin], std::get<2>(rank), 0, record, Describe(*other)};
    least = rank;
    if (record.target != target_text) continue;
    LegalConfigs legal(*other, target);
    const auto known = Look(legal, *other, target, record.template_name, record.config);
    if (known.has_value() && IsThisBuilds(record)) nearest->scale = MedianCost(record) / known->draft_s;
  }
  return nearest;
}

// --- one operator ---

std::vector<Difference> KnobDifferences(const ConfigReport& before, const ConfigReport& after) {
  std::vector<Difference> differences;
  if (before.template_name != after.template_name)
    differences.push_back({"template", before.template_name, after.template_name});
  const auto value = [](const Config& c, const std::string& knob) {
    return c.Has(knob) ? absl::StrCat(c[knob]) : std::string("-");
  };
  std::vector<std::string> knobs;
  for (const Config* config : {&before.config, &after.config}) {
    for (const auto& [knob, ignored] : config->values()) {
      if (std::find(knobs.begin(), knobs.end(), knob) == knobs.end()) knobs.push_back(knob);
    }
  }
  for (const std::string& knob : knobs) {
    const std::string was = value(before.config, knob), is = value(after.config, knob);
    if (was != is) differences.push_back({knob, was, is});
  }
  return differences;
}

void SetMeasured(ConfigReport* report, const Record& r) {
  report->seconds = MedianCost(r);
  report->measured = true;
  report->record = r.id;
}

// The default's own record: of the same code generator and job as the best one where there is one, since times of two
// jobs' finals do not compare; finals first.
void FindDefaultRecord(const std::vector<Record>& own, const LegalConfigs& legal, const std::string& codegen_id,
                       int64_t job, ConfigReport* untuned) {
  const auto preference = [&](const Record& r) {
    return std::tuple(r.codegen_id != codegen_id, r.job != job, RankOf(r));
  };
  const std::string config = Text(untuned->config);
  const Record* found = nullptr;
  for (const Record& r : own) {
    if (!MayBeBest(r) || r.template_name != untuned->template_name || r.config != config || !IsThisBuilds(r)) continue;
    if (found == nullptr || preference(r) < preference(*found)) found = &r;
  }
  if (found != nullptr) SetMeasured(untuned, *found);
}

absl::StatusOr<OperatorReport> Report(const Task& task, const Target& target, Records& records, const Digest& digest,
                                      int64_t now_unix_ms) {
  OperatorReport report;
  report.workload = Text(task.workload);
  report.what = Describe(task.workload);
  report.count = task.count;
  LegalConfigs legal(task.workload, target);
  const auto look = [&](const std::string& template_name, const std::string& config) {
    return Look(legal, task.workload, target, template_name, config);
  };
  TEMPER_ASSIGN_OR_RETURN(const Choice choice, DefaultChoice(task.workload, target));
  const std::optional<ConfigReport> untuned = look(std::string(choice.def->name), Text(choice.config));
  if (!untuned.has_value()) return absl::InternalError(absl::StrCat("the default is not legal: ", report.workload));
  report.untuned = report.tuned = *untuned;

  TEMPER_ASSIGN_OR_RETURN(const std::optional<BestAnswer> best, records.Best(task.workload, target));
  std::string codegen_id = CodegenId(target);
  if (best.has_value()) {
    if (const auto known = look(best->record.template_name, best->record.config); known.has_value()) {
      report.tuned = *known;
      report.level = best->level;
      report.purpose = best->record.purpose;
      report.age_s = static_cast<double>(now_unix_ms - best->record.time_unix_ms) * 1e-3;
      report.stale = best->record.codegen_id != codegen_id;
      report.tuned.record = best->record.id;
      if (report.tuned_itself()) SetMeasured(&report.tuned, best->record);
      codegen_id = best->record.codegen_id;
    }
  }
  if (const auto own = digest.own.find(report.workload); own != digest.own.end()) {
    FindDefaultRecord(own->second, legal, codegen_id, best.has_value() ? best->record.job : 0, &report.untuned);
    if (report.tuned_itself()) {
      report.gap = FindSearchGap(own->second, best->record, report.untuned.template_name, Text(report.untuned.config));
    }
    for (const Record& r : own->second) {
      PlottedTrial trial{.id = r.id, .time_unix_ms = r.time_unix_ms};
      if (r.ok()) trial.measured_s = MedianCost(r);
      trial.may_be_best = MayBeBest(r);
      if (const auto known = look(r.template_name, r.config); known.has_value() && IsThisBuilds(r))
        trial.draft_s = known->draft_s;
      report.failures += r.ok() ? 0 : 1;
      report.trials.push_back(trial);
    }
  }
  report.knobs = KnobDifferences(report.untuned, report.tuned);
  report.effects = FootprintDifferences(report.untuned.footprint, report.tuned.footprint, target);
  if (!report.tuned_itself()) report.nearest = FindNearest(task.workload, target, digest);
  return report;
}

// --- the whole model ---

// What was not measured: by its draft, and how far the draft was off for the operator's other config, else for the
// nearest record, else for the model at large.
void EstimateTheRest(std::vector<OperatorReport>* operators) {
  std::vector<double> ratios;
  for (const OperatorReport& op : *operators) {
    for (const ConfigReport* config : {&op.untuned, &op.tuned}) {
      if (config->measured) ratios.push_back(config->seconds / config->draft_s);
    }
  }
  const double of_model = ratios.empty() ? 1 : Median(ratios);
  for (OperatorReport& op : *operators) {
    const double scale = op.tuned.measured                     ? op.tuned.seconds / op.tuned.draft_s
                         : op.untuned.measured                 ? op.untuned.seconds / op.untuned.draft_s
                         : op.nearest && op.nearest->scale > 0 ? op.nearest->scale
                                                               : of_model;
    for (ConfigReport* config : {&op.untuned, &op.tuned}) {
      if (!config->measured) config->seconds = scale * config->draft_s;
    }
  }
}

// The time that tuning the model had taken when each trial was done.
void SetTuningClock(std::vector<OperatorReport>* operators) {
  std::vector<PlottedTrial*> trials;
  for (OperatorReport& op : *operators) {
    for (PlottedTrial& trial : op.trials) trials.push_back(&trial);
  }
  std::sort(trials.begin(), trials.end(), [](const PlottedTrial* a, const PlottedTrial* b) {
    return std::tie(a->time_unix_ms, a->id) < std::tie(b->time_unix_ms, b->id);
  });
  int64_t clock_ms = 0;
  for (size_t i = 0; i < trials.size(); ++i) {
    const int64_t gap = i == 0 ? 0 : trials[i]->time_unix_ms - trials[i - 1]->time_unix_ms;
    if (gap <= kPauseMs) clock_ms += gap;
    trials[i]->at_s = static_cast<double>(clock_ms) * 1e-3;
  }
}

absl::StatusOr<std::map<std::string, std::vector<std::string>>> NodesOfWorkloads(const Graph& graph) {
  std::map<std::string, std::vector<std::string>> nodes;
  const Aliases aliases(graph);
  for (const Group& group : graph.groups) {
    if (aliases.Have(group)) continue;
    const Node& anchor = graph.nodes[static_cast<size_t>(group.nodes[static_cast<size_t>(group.anchor)])];
    TEMPER_ASSIGN_OR_RETURN(const Extracted extracted, Extract(graph, group));
    if (!anchor.name.empty()) nodes[Text(extracted.workload)].push_back(anchor.name);
  }
  return nodes;
}

}  // namespace

absl::StatusOr<Explanation> ExplainModel(const Graph& graph, const Target& target, Records& records,
                                         const std::string& device, int64_t now_unix_ms) {
  Explanation e;
  e.model = graph.name;
  e.device = device;
  e.target = target;
  TEMPER_ASSIGN_OR_RETURN(const std::vector<Task> tasks, ExtractTasks(graph));
  TEMPER_ASSIGN_OR_RETURN(const auto nodes, NodesOfWorkloads(graph));
  TEMPER_ASSIGN_OR_RETURN(Digest digest, Read(records, tasks, Text(e.target)));
  for (const Task& task : tasks) {
    TEMPER_ASSIGN_OR_RETURN(OperatorReport report, Report(task, e.target, records, digest, now_unix_ms));
    if (const auto it = nodes.find(report.workload); it != nodes.end()) report.nodes = it->second;
    e.operators.push_back(std::move(report));
  }
  e.failures = std::move(digest.failures);
  EstimateTheRest(&e.operators);
  SetTuningClock(&e.operators);
  for (const OperatorReport& op : e.operators) {
    e.untuned_s += op.count * op.untuned.seconds;
    e.tuned_s += op.count * op.tuned.seconds;
    if (!op.gain_measured()) continue;
    ++e.compared;
    e.compared_untuned_s += op.count * op.untuned.seconds;
    e.compared_tuned_s += op.count * op.tuned.seconds;
  }
  for (OperatorReport& op : e.operators) op.share = op.count * op.tuned.seconds / e.tuned_s;
  std::stable_sort(e.operators.begin(), e.operators.end(),
                   [](const OperatorReport& a, const OperatorReport& b) { return a.share > b.share; });
  for (size_t i = 0; i < e.operators.size(); ++i) e.operators[i].number = static_cast<int>(i) + 1;
  if (!digest.targets.empty() && !digest.targets.contains(Text(e.target))) {
    const bool other_threads = std::ranges::any_of(digest.targets, [&](const std::string& text) {
      return WithoutThreads(text) == WithoutThreads(Text(e.target));
    });
    e.hint = absl::StrCat("the records are of other ", other_threads ? "numbers of threads" : "targets",
                          " (devices: ", absl::StrJoin(digest.devices, ", "),
                          "): ", other_threads ? "--threads" : "--device or --target",
                          " chooses one; what is shown is for ", Text(e.target));
  }
  return e;
}

}  // namespace temper
