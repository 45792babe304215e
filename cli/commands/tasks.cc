#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_join.h"
#include "cli/command.h"
#include "cli/json_line.h"
#include "cli/report/words.h"
#include "compiler/graph/extract.h"

namespace temper {
namespace {

struct TasksOptions {
  ModelOptions model;
  RecordOptions records;
  bool json = false, space = false;
};

// What one template leaves to choose from.
struct SpaceView {
  std::string_view name;
  int64_t product = 0;
  ConfigSpace::Size size;
};

void Print(const SpaceView& view) {
  std::printf("    %s: %lld of %lld configs are legal\n", std::string(view.name).c_str(),
              static_cast<long long>(view.size.legal), static_cast<long long>(view.product));
  for (const auto& [why, count] : view.size.refused) {
    if (count > 0) std::printf("      %8lld: %s\n", static_cast<long long>(count), why.c_str());
  }
}

nlohmann::ordered_json Json(const SpaceView& view) {
  nlohmann::ordered_json pruned = nlohmann::ordered_json::array();
  for (const auto& [why, count] : view.size.refused) pruned.push_back({{"why", why}, {"configs", count}});
  return {{"template", view.name}, {"product", view.product}, {"legal", view.size.legal}, {"pruned", pruned}};
}

absl::Status Tasks(const TasksOptions& o) {
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Records> records, Records::Open(o.records));
  TEMPER_ASSIGN_OR_RETURN(const Target target, records->ResolveTarget());
  TEMPER_ASSIGN_OR_RETURN(const Graph graph, LoadModel(o.model, target));
  TEMPER_ASSIGN_OR_RETURN(std::vector<Task> tasks, ExtractTasks(graph));
  for (const Task& task : tasks) {
    std::vector<std::string> templates;
    std::vector<SpaceView> spaces;
    int64_t size = 0;
    for (const TemplateDef* def : TemplatesFor(task.workload, target)) {
      templates.emplace_back(def->name);
      const ConfigSpace space = def->space(task.workload, target);
      spaces.push_back({def->name, space.product_size(), space.Count()});
      size += spaces.back().size.legal;
    }
    TEMPER_ASSIGN_OR_RETURN(std::optional<BestAnswer> best, records->Best(task.workload, target));
    const double best_ms = best.has_value() ? MedianCost(best->record) * 1e3 : 0;
    if (o.json) {
      nlohmann::ordered_json line = {{"workload", Text(task.workload)},
                                     {"count", task.count},
                                     {"alternative", task.alternative},
                                     {"flops", Flops(task.workload)},
                                     {"templates", templates},
                                     {"space_size", size},
                                     {"best_ms", nullptr}};
      if (best_ms > 0) line["best_ms"] = best_ms;
      for (const SpaceView& view : spaces) {
        if (o.space) line["spaces"].push_back(Json(view));
      }
      std::printf("%s\n", JsonText(line).c_str());
    } else {
      std::printf("%s%2dx %8.2f MFLOP  %6lld configs of %s", task.alternative ? "or " : "", task.count,
                  Flops(task.workload) / 1e6, static_cast<long long>(size), absl::StrJoin(templates, ", ").c_str());
      if (best_ms > 0) std::printf("  best %s", TimeText(best_ms).c_str());
      std::printf("\n    %s\n", Text(task.workload).c_str());
      for (const SpaceView& view : spaces) {
        if (o.space) Print(view);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

void AddTasks(CLI::App& app, Action* action) {
  auto o = std::make_shared<TasksOptions>();
  CLI::App* command = app.add_subcommand("tasks", "list the distinct workloads of a model");
  AddModelOptions(command, &o->model, "MODEL.onnx");
  AddRecordOptions(command, &o->records);
  AddThreadsOption(command, &o->records);
  command->add_option("--target", o->records.target, "what to compile for (default: the device's, or this machine)");
  command->add_flag("--space", o->space, "show how many configs each template has, and how many each rule refused");
  command->add_flag("--json", o->json, "one JSON object a line");
  command->footer("Example:\n  temper tasks resnet50.onnx --json");
  command->callback([o, action] { *action = [o] { return Tasks(*o); }; });
}

}  // namespace temper
