#include "tuner_server/dashboard/views.h"

#include <algorithm>
#include <map>
#include <utility>

#include "compiler/ops/describe.h"
#include "trial/cause.h"

namespace temper {
namespace {

using Points = std::vector<std::pair<int64_t, double>>;

// A workload in a few words; one of another version as it is.
std::string Short(const std::string& workload) {
  const absl::StatusOr<Workload> parsed = ParseWorkload(workload);
  return parsed.ok() ? Describe(*parsed) : workload;
}

// At most `most` of them: the ends, and evenly what lies between.
Json Thinned(const Points& points, size_t most) {
  Json thinned = Json::array();
  const size_t count = std::min(points.size(), most);
  for (size_t i = 0; i < count; ++i) {
    const size_t at = count == points.size() ? i : i * (points.size() - 1) / (count - 1);
    thinned.push_back({points[at].first, points[at].second});
  }
  return thinned;
}

Json Counts(const std::map<Outcome, int>& counts) {
  Json json = Json::object();
  for (const auto& [outcome, count] : counts) json[std::string(Text(outcome))] = count;
  return json;
}

// As a job's summary has it.
Json TaskJson(const TaskView& task) {
  return {{"workload", task.workload},
          {"weight", task.weight},
          {"alternative", task.alternative},
          {"trials", task.trials},
          {"failures", Counts(task.failures)},
          {"untuned_ms", task.default_s * 1e3},
          {"best_ms", task.best_s * 1e3},
          {"template", task.template_name},
          {"config", task.config},
          {"why_done", task.why_done}};
}

Json TasksOf(const std::optional<JobNews>& news, const Json& summary) {
  Json tasks = Json::array();
  if (news.has_value()) {
    for (const auto& [place, task] : news->tasks) tasks.push_back(TaskJson(task));
  } else if (summary.is_object() && summary.contains("tasks") && summary["tasks"].is_array()) {
    tasks = summary["tasks"];
  }
  return tasks;
}

// Of a task, whoever wrote it.
double NumberOf(const Json& task, const char* field) {
  const auto found = task.find(field);
  return found != task.end() && found->is_number() ? found->get<double>() : 0;
}
std::string WorkloadOf(const Json& task) {
  const auto found = task.find("workload");
  return found != task.end() && found->is_string() ? found->get<std::string>() : "";
}

// How often the model runs it.
double WeightOf(const Json& task) {
  const auto alternative = task.find("alternative");
  return alternative != task.end() && *alternative == true ? 0 : NumberOf(task, "weight");
}

// Of the model's time.
double TaskMs(const Json& task) {
  const double best = NumberOf(task, "best_ms");
  return WeightOf(task) * (best > 0 ? best : NumberOf(task, "untuned_ms"));
}

// The sum of the best so far, each as often as the model has it. Before its first time a workload counts with that one.
Points ModelCurve(const JobCurve& curve, const std::map<std::string, double>& weights) {
  const auto weight_of = [&](const std::string& workload) {
    const auto known = weights.find(workload);
    return known != weights.end() ? known->second : weights.empty() ? 1.0 : 0.0;
  };
  std::map<std::string, double> best;
  double total_s = 0;
  for (const CurveStep& step : curve.steps) {
    if (best.try_emplace(step.workload, step.median_s).second) total_s += weight_of(step.workload) * step.median_s;
  }
  Points points;
  for (const CurveStep& step : curve.steps) {
    double& before = best[step.workload];
    total_s -= weight_of(step.workload) * (before - step.median_s);
    before = step.median_s;
    points.emplace_back(step.trial, total_s * 1e3);
  }
  if (!points.empty() && points.back().first < curve.trials) points.emplace_back(curve.trials, points.back().second);
  return points;
}

std::map<std::string, Points> TaskCurves(const JobCurve& curve) {
  std::map<std::string, Points> curves;
  for (const CurveStep& step : curve.steps) curves[step.workload].emplace_back(step.trial, step.median_s * 1e3);
  return curves;
}

}  // namespace

Json JobJson(const JobRow& row) {
  return {{"id", row.id},
          {"model", row.model},
          {"state", row.state},
          {"reason", row.reason},
          {"priority", row.priority},
          {"user", row.owner},
          {"device", row.device_key},
          {"target", row.target},
          {"tuner", row.tuner},
          {"trials", row.trials},
          {"best_ms", row.best_ms},
          {"build_with", row.build_with},
          {"created_unix_ms", row.created_unix_ms},
          {"updated_unix_ms", row.updated_unix_ms}};
}

Json CurveJson(const std::vector<std::pair<int, double>>& curve) {
  Json json = Json::array();
  for (const auto& [trials, seconds] : curve) json.push_back({trials, seconds * 1e3});
  return json;
}

Json JobDetailJson(const JobRow& row, const std::optional<JobNews>& news, const JobCurve& curve) {
  Json json = JobJson(row);
  // What it holds was written by this program, but maybe by another version of it.
  const Json summary = Json::parse(row.summary, nullptr, /*allow_exceptions=*/false);
  json["live"] = news.has_value();
  if (news.has_value()) {
    const JobView& view = news->job;
    json["elapsed_s"] = news->elapsed_s;
    json["eta_s"] = view.eta_s;
    json["trials_limit"] = view.trials_limit;
    json["expected_gain_ms"] = view.expected_gain_s * 1e3;
    json["untuned_ms"] = view.untuned_s * 1e3;
    json["tuned_ms"] = view.tuned_s * 1e3;
    json["kept_default"] = view.kept_default;
    json["warnings"] = view.warnings;
    json["outcomes"] = Counts(view.outcomes);
  } else if (summary.is_object()) {
    json["elapsed_s"] = NumberOf(summary, "seconds");
    for (const char* field : {"untuned_ms", "tuned_ms", "kept_default", "warnings", "outcomes"}) {
      if (summary.contains(field)) json[field] = summary[field];
    }
  }
  Json tasks = TasksOf(news, summary);
  std::erase_if(tasks.get_ref<Json::array_t&>(), [](const Json& task) { return !task.is_object(); });
  std::stable_sort(tasks.begin(), tasks.end(), [](const Json& a, const Json& b) { return TaskMs(a) > TaskMs(b); });
  std::map<std::string, double> weights;
  double total_ms = 0;
  for (const Json& task : tasks) {
    weights[WorkloadOf(task)] = WeightOf(task);
    total_ms += TaskMs(task);
  }
  json["trials_in_curve"] = curve.trials;
  json["curve"] = Thinned(ModelCurve(curve, weights), kMostModelPoints);
  json["tasks_left_out"] = tasks.size() > kMostTasks ? tasks.size() - kMostTasks : 0;
  if (tasks.size() > kMostTasks) tasks.get_ref<Json::array_t&>().resize(kMostTasks);
  const std::map<std::string, Points> curves = TaskCurves(curve);
  for (Json& task : tasks) {
    const std::string workload = WorkloadOf(task);
    task["what"] = Short(workload);
    task["share"] = total_ms > 0 ? TaskMs(task) / total_ms : 0;
    const auto own = curves.find(workload);
    task["curve"] = own == curves.end() ? Json::array() : Thinned(own->second, kMostTaskPoints);
  }
  json["tasks"] = std::move(tasks);
  return json;
}

Json DeviceJson(const Dispatcher::SessionView& view, absl::Duration now) {
  Json canary = Json::array();
  for (const CanaryReading& reading : view.canary) {
    canary.push_back({absl::ToDoubleSeconds(now - reading.at), reading.drift});
  }
  return {{"key", view.info.device_key},
          {"name", view.info.name},
          {"state", view.state},
          {"why_not_used", view.reason},
          {"fingerprint", view.info.fingerprint},
          {"target", view.info.target},
          {"codegen_id", view.info.codegen_id},
          {"sandbox", view.info.sandbox},
          {"last_seen_s", absl::ToDoubleSeconds(now - view.last_seen)},
          {"lease_job", view.job},
          {"lease_s", view.job == 0 ? 0 : absl::ToDoubleSeconds(now - view.lease_since)},
          {"trials", view.trials},
          {"failures", view.failures},
          {"canary", canary}};
}

Json BestJson(const BestRow& row) {
  return {{"record", row.record},
          {"job", row.job},
          {"what", Short(row.workload)},
          {"workload", row.workload},
          {"target", row.target},
          {"device", row.device_key},
          {"template", row.template_name},
          {"config", row.config},
          {"confirmed", row.confirmed},
          {"put", row.put},
          {"median_ms", row.median_s * 1e3},
          {"time_unix_ms", row.time_unix_ms}};
}

Json ModelJson(const ModelRow& row) {
  return {{"model", row.model},   {"target", row.target},   {"device", row.device_key}, {"jobs", row.jobs},
          {"trials", row.trials}, {"best_ms", row.best_ms}, {"best_job", row.best_job}, {"latest_job", row.latest_job}};
}

Json FailuresJson(const FailureRows& failures) {
  struct Group {
    int64_t count = 0;
    FailureRow latest;
  };
  std::map<std::pair<Outcome, std::string>, Group> groups;
  int64_t total = 0;
  for (const FailureRow& row : failures.rows) {
    Group& group = groups[{row.outcome, CauseOf(row.error)}];
    group.count += row.count;
    total += row.count;
    if (row.latest_record > group.latest.latest_record) group.latest = row;
  }
  std::vector<std::pair<std::string, Group>> largest;
  for (auto& [key, group] : groups) largest.emplace_back(key.second, std::move(group));
  std::stable_sort(largest.begin(), largest.end(),
                   [](const auto& a, const auto& b) { return a.second.count > b.second.count; });
  Json list = Json::array();
  for (size_t i = 0; i < largest.size() && i < kMostFailureGroups; ++i) {
    const auto& [cause, group] = largest[i];
    list.push_back({{"class", Text(group.latest.outcome)},
                    {"cause", cause},
                    {"count", group.count},
                    {"latest_record", group.latest.latest_record},
                    {"latest_unix_ms", group.latest.time_unix_ms},
                    {"latest_error", group.latest.error},
                    {"latest_device", group.latest.device_key},
                    {"latest_template", group.latest.template_name}});
  }
  return {{"records", failures.looked_at}, {"failed", total}, {"groups", list}};
}

}  // namespace temper
