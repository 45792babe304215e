#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/json_line.h"
#include "cli/report/explain_html.h"
#include "cli/report/explanation.h"
#include "cli/report/words.h"
#include "compiler/graph/extract.h"

namespace temper {

std::string Headline(const Explanation& e) {
  std::string text = absl::StrFormat("kernels: %.3f ms as tuned", e.tuned_s * 1e3);
  if (e.compared == 0) return text;
  const bool all = e.compared == static_cast<int>(e.operators.size());
  return text + absl::StrFormat("; %s default %.3f ms, best %.3f ms, %.2fx",
                                all ? "of all" : absl::StrFormat("of the %d measured both ways", e.compared),
                                e.compared_untuned_s * 1e3, e.compared_tuned_s * 1e3,
                                e.compared_untuned_s / e.compared_tuned_s);
}

std::string Milliseconds(const ConfigReport& c) {
  return absl::StrFormat("%s%.4f", c.measured ? "" : "~", c.seconds * 1e3);
}

std::string AgeText(double seconds) {
  struct Unit {
    double seconds;
    const char* name;
  };
  for (const Unit& unit : {Unit{86400, "d"}, Unit{3600, "h"}, Unit{60, "min"}}) {
    if (seconds >= 2 * unit.seconds) return absl::StrFormat("%.0f %s", seconds / unit.seconds, unit.name);
  }
  return absl::StrFormat("%.0f s", std::max(0.0, seconds));
}

std::string RecordText(const OperatorReport& op) {
  if (op.level == "default") return "none";
  return absl::StrCat("record ", op.tuned.record, ", ", op.purpose, ", ", op.level, ", ", AgeText(op.age_s), " old",
                      op.stale ? ", stale" : "");
}

std::string GainText(const OperatorReport& op) {
  return absl::StrFormat("%s%.2fx", op.gain_measured() ? "" : "~", op.gain());
}

std::string NearestText(const Nearest& nearest) {
  const Record& r = nearest.record;
  const std::string distance =
      nearest.distance > 0 ? absl::StrFormat(" (dimensions differ %.3gx in all)", std::exp(nearest.distance)) : "";
  return absl::StrFormat("nearest: %s%s: record %d of %s, %s, %s %s, %.4f ms", nearest.how, distance, r.id,
                         r.device_key, nearest.what, r.template_name, r.config, MedianCost(r) * 1e3);
}

std::string NodesText(const OperatorReport& op) {
  constexpr size_t kMost = 4;
  const size_t shown = std::min(op.nodes.size(), kMost);
  const std::string text = absl::StrJoin(op.nodes.begin(), op.nodes.begin() + static_cast<int>(shown), ", ");
  return shown == op.nodes.size() ? text : absl::StrCat(text, " and ", op.nodes.size() - shown, " more");
}

std::string ConfigText(const ConfigReport& c) { return absl::StrCat(c.template_name, " ", Text(c.config)); }

namespace {

struct ExplainOptions {
  ModelOptions model;
  RecordOptions records;
  std::string operator_name, html;
  bool verbose = false, json = false, failures = false;
};

// --- text ---

void PrintTable(const Explanation& e) {
  int own = 0, stale = 0;
  for (const OperatorReport& op : e.operators) {
    own += op.tuned_itself() ? 1 : 0;
    stale += op.stale ? 1 : 0;
  }
  std::printf("%s for %s with %s: %s, %d of them tuned", e.model.c_str(), e.target.name().c_str(),
              Counted(e.target.threads(), "thread").c_str(), Counted(std::ssize(e.operators), "operator").c_str(), own);
  if (stale > 0) std::printf(" (%d stale: `temper tune --revalidate` measures them again)", stale);
  std::printf("\n%s\n", Headline(e).c_str());
  std::printf("%3s %6s %5s %11s %10s %8s %9s %6s  %s\n", "#", "share", "times", "default ms", "best ms", "gain",
              "predicted", "trials", "operator");
  bool estimates = false;
  for (const OperatorReport& op : e.operators) {
    estimates = estimates || !op.gain_measured();
    std::printf("%3d %5.1f%% %4dx %11s %10s %8s %8.2fx %6zu  %s%s\n", op.number, 100 * op.share, op.count,
                Milliseconds(op.untuned).c_str(), Milliseconds(op.tuned).c_str(), GainText(op).c_str(),
                op.predicted_gain(), op.trials.size(), op.what.c_str(),
                op.tuned_itself() ? "" : absl::StrCat("  [", op.level, "]").c_str());
  }
  if (estimates) std::printf("~: never measured: the draft's word, on the scale of the nearest that was\n");
  for (const OperatorReport& op : e.operators) {
    if (op.gap.has_value()) std::printf("#%d: %s\n", op.number, GapText(*op.gap).c_str());
  }
}

void PrintDifferences(const char* what, const std::vector<Difference>& differences) {
  if (!differences.empty()) std::printf("  %s\n", what);
  for (const Difference& d : differences)
    std::printf("    %-27s %s -> %s\n", d.what.c_str(), d.before.c_str(), d.after.c_str());
}

void PrintDetails(const OperatorReport& op, const std::string& command) {
  std::printf("\n#%d %s\n", op.number, op.what.c_str());
  if (!op.nodes.empty()) std::printf("  nodes: %s\n", Escaped(NodesText(op)).c_str());
  std::printf("  %.1f %% of the model, %dx; %zu trials, %d of them failed\n", 100 * op.share, op.count,
              op.trials.size(), op.failures);
  std::printf("  default  %s ms  %s%s\n", Milliseconds(op.untuned).c_str(), ConfigText(op.untuned).c_str(),
              op.untuned.measured ? absl::StrCat("  (record ", op.untuned.record, ")").c_str() : "");
  if (op.level != "default") {
    std::printf("  best     %s ms  %s  (%s)\n", Milliseconds(op.tuned).c_str(), ConfigText(op.tuned).c_str(),
                RecordText(op).c_str());
    std::printf("  gain     %s, by the draft %.2fx%s\n", GainText(op).c_str(), op.predicted_gain(),
                op.knobs.empty() ? ": the default is the best" : "");
  }
  if (op.gap.has_value()) std::printf("  %s\n", GapText(*op.gap).c_str());
  PrintDifferences("changed:", op.knobs);
  PrintDifferences("what that did:", op.effects);
  if (op.nearest.has_value()) std::printf("  %s\n", NearestText(*op.nearest).c_str());
  if (!op.tuned_itself()) std::printf("  to tune it: %s\n", command.c_str());
}

void PrintFailures(const FailureGroups& failures) {
  std::printf("%d of %d attempts failed\n", failures.failures(), failures.attempts());
  for (const FailureGroup& group : failures.Largest()) {
    const Record& r = group.example;
    std::printf("\n%6d  %s: %s\n        %s; %zu workloads\n        such as record %lld: %s %s\n          %s\n",
                group.count, std::string(Text(group.outcome)).c_str(), group.cause.c_str(),
                absl::StrJoin(group.templates, ", ", absl::PairFormatter(" ")).c_str(), group.workloads.size(),
                static_cast<long long>(r.id), r.template_name.c_str(), r.config.c_str(), r.workload.c_str());
  }
}

// --- JSON ---

using Json = nlohmann::ordered_json;

Json ToJson(const ConfigReport& c) {
  Json footprint = Json::object();
  const Footprint& f = c.footprint;
  for (size_t i = 0; i < f.values.size(); ++i) footprint[std::string(f.schema->names[i])] = f.values[i];
  return {{"template", c.template_name}, {"config", Text(c.config)},
          {"ms", c.seconds * 1e3},       {"measured", c.measured},
          {"draft_ms", c.draft_s * 1e3}, {"record", c.record == 0 ? Json(nullptr) : Json(c.record)},
          {"footprint", footprint}};
}

Json ToJson(const std::vector<Difference>& differences) {
  Json json = Json::array();
  for (const Difference& d : differences) json.push_back({{"what", d.what}, {"default", d.before}, {"best", d.after}});
  return json;
}

Json ToJson(const OperatorReport& op, const std::string& command) {
  Json json = {{"number", op.number},
               {"operator", op.what},
               {"workload", op.workload},
               {"nodes", op.nodes},
               {"count", op.count},
               {"share", op.share},
               {"default", ToJson(op.untuned)},
               {"best", ToJson(op.tuned)},
               {"gain", op.gain()},
               {"gain_measured", op.gain_measured()},
               {"predicted_gain", op.predicted_gain()},
               {"level", op.level},
               {"trials", op.trials.size()},
               {"failures", op.failures},
               {"knobs", ToJson(op.knobs)},
               {"effects", ToJson(op.effects)}};
  if (op.level != "default") {
    json["purpose"] = op.purpose;
    json["age_s"] = op.age_s;
    json["stale"] = op.stale;
  }
  if (op.gap.has_value()) {
    json["search_gap"] = {
        {"search_ms", op.gap->search_s * 1e3}, {"final_ms", op.gap->final_s * 1e3}, {"why", op.gap->why}};
  }
  if (op.nearest.has_value()) {
    const Record& r = op.nearest->record;
    json["nearest"] = {{"how", op.nearest->how}, {"log_distance", op.nearest->distance},
                       {"record", r.id},         {"device", r.device_key},
                       {"workload", r.workload}, {"template", r.template_name},
                       {"config", r.config},     {"ms", MedianCost(r) * 1e3}};
  }
  if (!op.tuned_itself()) json["tune"] = command;
  return json;
}

Json ToJson(const FailureGroups& failures) {
  Json groups = Json::array();
  for (const FailureGroup& group : failures.Largest()) {
    groups.push_back({{"outcome", Text(group.outcome)},
                      {"cause", group.cause},
                      {"count", group.count},
                      {"templates", group.templates},
                      {"workloads", group.workloads.size()},
                      {"example",
                       {{"record", group.example.id},
                        {"template", group.example.template_name},
                        {"config", group.example.config},
                        {"workload", group.example.workload},
                        {"error", group.example.error}}}});
  }
  return {{"attempts", failures.attempts()}, {"failures", failures.failures()}, {"groups", groups}};
}

// Errors may hold bytes of any kind.
void PrintJson(const Json& json) { std::printf("%s\n", JsonText(json).c_str()); }

// --- the command ---

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) return absl::UnavailableError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

// By number ("3", "#3"), or by a part of the description or of a node's name.
bool IsCalled(const OperatorReport& op, const std::string& name) {
  const std::string number = name[0] == '#' ? name.substr(1) : name;
  if (int wanted = 0; absl::SimpleAtoi(number, &wanted)) return op.number == wanted;
  return absl::StrContains(op.what, name) || std::any_of(op.nodes.begin(), op.nodes.end(), [&](const std::string& n) {
           return absl::StrContains(n, name);
         });
}

absl::Status ExplainFailures(const ExplainOptions& o) {
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Records> records, Records::Open(o.records));
  std::set<std::string> workloads;
  if (!o.model.path.empty()) {
    TEMPER_ASSIGN_OR_RETURN(const Target target, records->ResolveTarget());
    TEMPER_ASSIGN_OR_RETURN(const Graph graph, LoadModel(o.model, target));
    TEMPER_ASSIGN_OR_RETURN(std::vector<Task> tasks, ExtractTasks(graph));
    for (const Task& task : tasks) workloads.insert(Text(task.workload));
  }
  FailureGroups failures;
  TEMPER_RETURN_IF_ERROR(records->Scan([&](const Record& r) {
    if (o.model.path.empty() || workloads.contains(r.workload)) failures.Add(r);
  }));
  if (!o.html.empty()) TEMPER_RETURN_IF_ERROR(WriteFile(o.html, FailuresPage(failures)));
  if (o.json)
    PrintJson(ToJson(failures));
  else
    PrintFailures(failures);
  return absl::OkStatus();
}

absl::Status Explain(const ExplainOptions& o) {
  if (o.failures) return ExplainFailures(o);
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Records> records, Records::Open(o.records));
  const int64_t now_ms = absl::ToUnixMillis(Clock::System().Wall());
  TEMPER_ASSIGN_OR_RETURN(const Target target, records->ResolveTarget());
  TEMPER_ASSIGN_OR_RETURN(Graph graph, LoadModel(o.model, target));
  TEMPER_RETURN_IF_ERROR(records->TakeAlternatives(graph, target));
  TEMPER_ASSIGN_OR_RETURN(const Explanation e, ExplainModel(graph, target, *records, o.records.device, now_ms));
  const std::string command = TuneCommand(o.model, o.records);
  if (!o.html.empty()) TEMPER_RETURN_IF_ERROR(WriteFile(o.html, ExplanationPage(e, command)));
  std::vector<const OperatorReport*> shown;
  for (const OperatorReport& op : e.operators) {
    if (o.operator_name.empty() || IsCalled(op, o.operator_name)) shown.push_back(&op);
  }
  if (shown.empty() && !o.operator_name.empty())
    return absl::NotFoundError(absl::StrCat("no operator of ", e.model, " is called '", o.operator_name,
                                            "': give its number, or a part of its name or shapes"));
  if (o.json) {
    Json operators = Json::array();
    for (const OperatorReport* op : shown) operators.push_back(ToJson(*op, command));
    PrintJson({{"model", e.model},
               {"target", Text(e.target)},
               {"device", e.device},
               {"default_ms", e.untuned_s * 1e3},
               {"best_ms", e.tuned_s * 1e3},
               {"compared",
                {{"operators", e.compared},
                 {"default_ms", e.compared_untuned_s * 1e3},
                 {"best_ms", e.compared_tuned_s * 1e3}}},
               {"operators", operators},
               {"failures", ToJson(e.failures)}});
    return absl::OkStatus();
  }
  if (!e.hint.empty()) std::fprintf(stderr, "note: %s\n", e.hint.c_str());
  if (o.operator_name.empty()) PrintTable(e);
  for (const OperatorReport* op : shown) {
    if (o.verbose || !o.operator_name.empty()) PrintDetails(*op, command);
  }
  const auto untuned = std::count_if(shown.begin(), shown.end(), [](auto* op) { return !op->tuned_itself(); });
  if (!o.verbose && o.operator_name.empty() && untuned > 0)
    std::printf("%d not tuned; to tune: %s\n", static_cast<int>(untuned), command.c_str());
  if (e.failures.failures() > 0 && o.operator_name.empty())
    std::printf("%d of %d attempts failed: `temper explain --failures` says why\n", e.failures.failures(),
                e.failures.attempts());
  return absl::OkStatus();
}

}  // namespace

void AddExplain(CLI::App& app, Action* action) {
  auto o = std::make_shared<ExplainOptions>();
  CLI::App* command = app.add_subcommand("explain", "say where a model's time goes, and what tuning changed and why");
  AddModelOptions(command, &o->model, "MODEL.onnx");
  command->get_option("model")->required(false);
  AddRecordOptions(command, &o->records);
  AddThreadsOption(command, &o->records);
  command->add_option("operator", o->operator_name,
                      "only the operator of this number, or operators with this text in their name or shapes");
  command->add_option("--target", o->records.target, "what is compiled for (default: the device's, or this machine)");
  command->add_flag("-v,--verbose", o->verbose, "the details of every operator");
  command->add_flag("--failures", o->failures, "group the failures of a model, or of the whole database");
  command->add_option("--html", o->html, "write the explanation to FILE, as one page");
  command->add_flag("--json", o->json, "one JSON object");
  command->footer(
      "Examples:\n  temper explain resnet50.onnx --html resnet50.html\n  temper explain resnet50.onnx 1\n  temper "
      "explain --failures");
  command->callback([o, action] {
    if (o->model.path.empty() && !o->failures) throw CLI::RequiredError("model");
    *action = [o] { return Explain(*o); };
  });
}

}  // namespace temper
