#include "tuner_server/service/job_plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "proto/convert.h"
#include "tuner_server/search/tuner.h"
#include "tuner_server/service/wire.h"

namespace temper {
namespace {

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
  for (const std::string& text : spec.workloads) {
    TEMPER_ASSIGN_OR_RETURN(Workload workload, ParseWorkload(text));
    tasks.push_back({std::move(workload), 1});
  }
  return tasks;
}

absl::StatusOr<TunerFactory> MakerOf(const std::string& tuner) {
  if (const TunerDef* def = FindTuner(tuner)) return TunerFactory(def->make);
  std::string names;
  for (const TunerDef& def : AllTuners()) absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(def.name));
  return absl::InvalidArgumentError(absl::StrCat("no tuner '", tuner, "'; there are: ", names));
}

// What the job's records say of it.
struct Earlier {
  int trials = 0;
  absl::Duration time;  // to the latest of them
};

absl::StatusOr<Earlier> ReadEarlier(Store& store, const JobRow& row) {
  Earlier earlier;
  int64_t latest_ms = row.created_unix_ms;
  TEMPER_RETURN_IF_ERROR(store.Scan({.purpose = "search", .job = row.id}, [&](const Record& record) {
    earlier.trials += IsMeasured(record.outcome) ? 1 : 0;
    latest_ms = std::max(latest_ms, record.time_unix_ms);
  }));
  earlier.time = absl::Milliseconds(latest_ms - row.created_unix_ms);
  return earlier;
}

absl::StatusOr<JobPlan> PlanAgain(JobRow row, const Earlier& earlier, const JobLoopOptions& loop, absl::Time wall) {
  v1::SubmitJobRequest request;
  if (row.request.empty() || !request.ParseFromString(row.request)) {
    return absl::FailedPreconditionError("its server ended before it did");
  }
  TEMPER_ASSIGN_OR_RETURN(JobSpec spec, FromWire(request));
  spec.id = row.id;
  spec.owner = row.owner;
  spec.priority = row.priority;
  // A clock that was set meanwhile takes no more than the whole budget.
  spec.earlier_time = spec.time_budget > absl::ZeroDuration() ? std::min(earlier.time, spec.time_budget) : earlier.time;
  TEMPER_ASSIGN_OR_RETURN(JobPlan plan, PlanJob(std::move(spec), loop, wall));
  row.request.clear();
  plan.row = std::move(row);
  return plan;
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
  plan.row.codegen_id = spec.codegen_id;
  plan.row.spec = JobText(spec);
  plan.row.owner = spec.owner;
  plan.row.priority = spec.priority;
  plan.row.model_hash = ModelHash(plan.tasks);
  plan.row.created_unix_ms = plan.row.updated_unix_ms = absl::ToUnixMillis(wall);
  plan.spec = std::move(spec);
  return plan;
}

absl::StatusOr<std::vector<JobPlan>> PlanUnendedJobs(Store& store, const JobLoopOptions& loop, absl::Time wall) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<JobRow> rows, store.Jobs({}));
  std::vector<JobPlan> plans;
  for (const JobRow& listed : rows) {
    if (IsFinalJobState(listed.state)) continue;
    TEMPER_ASSIGN_OR_RETURN(JobRow row, store.GetJob(listed.id));
    TEMPER_ASSIGN_OR_RETURN(const Earlier earlier, ReadEarlier(store, row));
    row.trials = earlier.trials;
    absl::StatusOr<JobPlan> plan = PlanAgain(row, earlier, loop, wall);
    if (plan.ok()) {
      LogInfo({.job = row.id, .key = row.device_key}, "goes on where a server before this one left it, after {} trials",
              plan->row.trials);
      plans.push_back(*std::move(plan));
      continue;
    }
    row.state = "abandoned";
    row.reason = std::string(plan.status().message());
    row.updated_unix_ms = absl::ToUnixMillis(wall);
    TEMPER_RETURN_IF_ERROR(store.UpdateJob(row));
    LogInfo({.job = row.id, .key = row.device_key}, "left by a server that is gone: {}", row.reason);
  }
  return plans;
}

}  // namespace temper
