#include "cli/report/tune_report.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/utf8.h"
#include "cli/report/words.h"
#include "compiler/ops/workload.h"

namespace temper {
namespace {

struct OperatorCount {
  std::string op;
  int tasks = 0, trials = 0, failures = 0;
};

// By the operator that a task is about, most trials first.
std::vector<OperatorCount> CountByOperator(const WatchedJob& view) {
  std::map<std::string, OperatorCount> counts;
  for (const auto& [id, task] : view.tasks) {
    const absl::StatusOr<Workload> workload = ParseWorkload(task.workload());
    const std::string op = workload.ok() ? workload->calls[workload->anchor].op : "unknown";
    OperatorCount& count = counts[op];
    count.op = op;
    ++count.tasks;
    count.trials += task.trials();
    for (const auto& [name, failures] : task.failures()) count.failures += failures;
  }
  std::vector<OperatorCount> sorted;
  for (const auto& [op, count] : counts) sorted.push_back(count);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const OperatorCount& a, const OperatorCount& b) { return a.trials > b.trials; });
  return sorted;
}

nlohmann::ordered_json TaskJson(const v1::TaskProgress& t) {
  nlohmann::ordered_json failures = nlohmann::ordered_json::object();
  for (const auto& [name, count] : std::map<std::string, int>(t.failures().begin(), t.failures().end()))
    failures[name] = count;
  return {{"workload", t.workload()},
          {"weight", t.weight()},
          {"trials", t.trials()},
          {"failures", failures},
          {"untuned_ms", t.default_s() * 1e3},
          {"best_ms", t.best_s() * 1e3},
          {"template", t.template_name()},
          {"config", t.config()},
          {"why_done", t.why_done()}};
}

}  // namespace

nlohmann::ordered_json TuneReport::Json() const {
  nlohmann::ordered_json tasks = nlohmann::ordered_json::array();
  for (const auto& [id, task] : view.tasks) tasks.push_back(TaskJson(task));
  nlohmann::ordered_json operators = nlohmann::ordered_json::object();
  for (const OperatorCount& count : CountByOperator(view))
    operators[count.op] = {{"tasks", count.tasks}, {"trials", count.trials}, {"failures", count.failures}};
  nlohmann::ordered_json outcomes = nlohmann::ordered_json::object();
  for (const auto& [name, count] : view.outcomes) outcomes[name] = count;
  const int trials = view.latest.trials();
  return {{"model", model},
          {"target", view.latest.target()},
          {"device", device},
          {"state", view.latest.state()},
          {"trials", trials},
          {"seconds", seconds},
          {"trials_per_second", seconds > 0 ? trials / seconds : 0},
          {"search_seconds", view.latest.search_s()},
          {"outcomes", outcomes},
          {"operators", operators},
          {"untuned_ms", view.latest.untuned_ms()},
          {"tuned_ms", view.latest.tuned_ms()},
          {"kept_default", view.latest.kept_default()},
          {"tasks", tasks}};
}

void TuneReport::Print(std::FILE* out, bool revalidated) const {
  const v1::JobEvent& job = view.latest;
  const std::string name = Escaped(model);
  if (revalidated) {
    absl::FPrintF(out, "%s: measured again in %.1f s", name, seconds);
  } else {
    absl::FPrintF(out, "%s: %d trials in %.1f s (%.1f a second)", name, job.trials(), seconds,
                  job.trials() / std::max(1e-9, seconds));
  }
  if (job.tuned_ms() > 0) {
    absl::FPrintF(out, "; end to end untuned %s, tuned %s (%.2fx)", TimeText(job.untuned_ms()),
                  TimeText(job.tuned_ms()), job.untuned_ms() / job.tuned_ms());
  }
  const bool within_noise = !job.kept_default() && job.tuned_ms() > job.untuned_ms();
  absl::FPrintF(out, "%s%s\n", job.kept_default() ? "; the default configs are kept" : "",
                within_noise ? "; that is within the noise" : "");
  if (!revalidated && job.trials() > 0) {
    std::string counts;
    for (const OperatorCount& count : CountByOperator(view)) {
      if (count.trials == 0) continue;
      absl::StrAppendFormat(&counts, "%s%s %d (%.1f %%)", counts.empty() ? "" : ", ", count.op, count.trials,
                            100.0 * count.trials / job.trials());
    }
    absl::FPrintF(out, "trials by operator: %s; search and model took %.1f %% of the time\n", counts,
                  100 * job.search_s() / std::max(1e-9, seconds));
  }
  for (const std::string& warning : job.warnings()) absl::FPrintF(out, "note: %s\n", Escaped(warning));
}

}  // namespace temper
