#include "tuner_server/service/job_plan.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "compiler/graph/graph_json.h"
#include "tuner_server/search/tuner.h"

namespace temper {
namespace {

// Of all of a job's workloads. Large models have some thousands.
constexpr size_t kMostCalls = 1 << 16;

std::string JobText(const JobSpec& spec) {
  return nlohmann::ordered_json{{"model", spec.model},
                                {"device_key", spec.device_key},
                                {"tuner", spec.tuner},
                                {"trials", spec.trials},
                                {"trials_per_task", spec.trials_per_task},
                                {"early_stopping", spec.early_stopping},
                                {"early_stopping_model", spec.early_stopping_model},
                                {"min_gain", spec.min_gain},
                                {"time_budget_s", absl::ToDoubleSeconds(spec.time_budget)},
                                {"seed", spec.seed},
                                {"revalidate", spec.revalidate},
                                {"booster", spec.booster},
                                {"workloads", spec.workloads.size()}}
      .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

absl::StatusOr<std::vector<Task>> TasksOf(const JobSpec& spec) {
  if (spec.workloads.empty()) {
    TEMPER_ASSIGN_OR_RETURN(const Graph graph, GraphFromJson(*spec.graph_json));
    return ExtractTasks(graph);
  }
  std::vector<Task> tasks;
  std::map<std::string, size_t> seen;  // one task each, as of a graph
  size_t calls = 0;
  for (const std::string& text : spec.workloads) {
    TEMPER_ASSIGN_OR_RETURN(Workload workload, ParseWorkload(text));
    calls += workload.calls.size();
    if (calls > kMostCalls) {
      return absl::InvalidArgumentError(
          absl::StrCat("the workloads have more than ", kMostCalls, " operator calls together"));
    }
    const auto [known, fresh] = seen.try_emplace(Text(workload), tasks.size());
    if (fresh) tasks.push_back({std::move(workload), 0});
    ++tasks[known->second].count;
  }
  return tasks;
}

absl::StatusOr<TunerFactory> MakerOf(const std::string& tuner) {
  if (const TunerDef* def = FindTuner(tuner)) return TunerFactory(def->make);
  return absl::InvalidArgumentError(absl::StrCat("no tuner '", tuner, "'; there are: ", TunerNames()));
}

}  // namespace

absl::StatusOr<JobPlan> PlanJob(JobSpec spec, JobLoopOptions loop, absl::Time wall) {
  JobPlan plan;
  plan.loop = std::move(loop);
  if (!plan.loop.make_tuner) {
    TEMPER_ASSIGN_OR_RETURN(plan.loop.make_tuner, MakerOf(spec.tuner));
  }
  TEMPER_ASSIGN_OR_RETURN(plan.tasks, TasksOf(spec));
  plan.row.model = spec.model;
  plan.row.device_key = spec.device_key;
  plan.row.tuner = spec.tuner;
  plan.row.spec = JobText(spec);
  plan.row.owner = spec.owner;
  plan.row.priority = spec.priority;
  plan.row.model_hash = ModelHash(plan.tasks);
  plan.row.created_unix_ms = plan.row.updated_unix_ms = absl::ToUnixMillis(wall);
  plan.spec = std::move(spec);
  return plan;
}

size_t RequestBytes(const JobSpec& spec) {
  size_t bytes = spec.model.size() + (spec.graph_json == nullptr ? 0 : spec.graph_json->size());
  for (const std::string& workload : spec.workloads) {
    // A call may be much longer than its text. Each call and each input has a type, which has a bracket.
    const auto types = static_cast<size_t>(std::ranges::count(workload, '['));
    bytes += workload.size() + types * sizeof(Workload::Call);
  }
  return bytes;
}

}  // namespace temper
