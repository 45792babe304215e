#include "storage/memory/memory_overview.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "storage/best.h"

namespace temper {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return absl::StrContains(absl::AsciiStrToLower(text), absl::AsciiStrToLower(part));
}

}  // namespace

absl::StatusOr<BestPage> MemoryOverview::Bests(const BestFilter& filter) {
  // Workloads are numbered as they are met.
  std::map<std::string, int64_t> numbers;
  TEMPER_RETURN_IF_ERROR(store_.Scan(
      {}, [&](const Record& r) { numbers.try_emplace(r.workload, static_cast<int64_t>(numbers.size()) + 1); }));
  std::map<int64_t, std::vector<BestRow>, std::greater<>> bests;
  TEMPER_RETURN_IF_ERROR(store_.ScanBest({.device_key = filter.device_key}, [&](const Record& r) {
    if (!Contains(r.workload, filter.text)) return;
    bests[numbers[r.workload]].push_back({r.id, r.job, r.workload, r.target, r.device_key, r.template_name, r.config,
                                          !RankOf(r).provisional, IsPut(r), MedianCost(r), r.time_unix_ms});
  }));
  BestPage page;
  int64_t last = 0;
  for (auto& [number, rows] : bests) {
    if (filter.before > 0 && number >= filter.before) continue;
    if (static_cast<int64_t>(page.rows.size()) >= filter.limit) {
      page.next = last;
      break;
    }
    last = number;
    std::sort(rows.begin(), rows.end(), [](const BestRow& a, const BestRow& b) {
      return std::tie(a.target, a.device_key) > std::tie(b.target, b.device_key);
    });
    page.rows.insert(page.rows.end(), rows.begin(), rows.end());
  }
  return page;
}

absl::StatusOr<std::vector<ModelRow>> MemoryOverview::Models(int64_t limit) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<JobRow> jobs, store_.Jobs({}));
  std::map<std::tuple<std::string, std::string, std::string>, ModelRow> models;
  for (const JobRow& job : jobs) {  // newest first
    ModelRow& row = models[{job.model, job.target, job.device_key}];
    if (row.jobs == 0) row = {job.model, job.target, job.device_key, 0, 0, 0, 0, job.id};
    ++row.jobs;
    row.trials += job.trials;
    if (job.best_ms > 0 && (row.best_job == 0 || job.best_ms < row.best_ms)) {
      row.best_ms = job.best_ms;
      row.best_job = job.id;
    }
  }
  std::vector<ModelRow> rows;
  for (auto& [key, row] : models) rows.push_back(std::move(row));
  std::sort(rows.begin(), rows.end(), [](const ModelRow& a, const ModelRow& b) { return a.latest_job > b.latest_job; });
  rows.resize(std::min(rows.size(), static_cast<size_t>(limit)));
  return rows;
}

absl::StatusOr<JobCurve> MemoryOverview::Curve(int64_t job) {
  JobCurve curve;
  std::map<std::string, double> best;
  TEMPER_RETURN_IF_ERROR(store_.Scan({.purpose = "search", .job = job}, [&](const Record& r) {
    ++curve.trials;
    if (!r.ok()) return;
    const auto [before, first] = best.try_emplace(r.workload, MedianCost(r));
    if (!first && MedianCost(r) >= before->second) return;
    before->second = MedianCost(r);
    curve.steps.push_back({curve.trials, r.workload, MedianCost(r)});
  }));
  return curve;
}

absl::StatusOr<FailureRows> MemoryOverview::Failures(int64_t job, int64_t records, int64_t limit) {
  FailureRows all;
  std::map<std::pair<Outcome, std::string>, FailureRow> groups;
  TEMPER_RETURN_IF_ERROR(store_.Scan({.job = job, .limit = records, .newest_first = true}, [&](const Record& r) {
    ++all.looked_at;
    if (r.ok()) return;
    FailureRow& group = groups[{r.outcome, r.error}];
    if (group.count == 0) {
      group = {r.outcome, r.error, 0, r.id, r.time_unix_ms, r.device_key, r.template_name};
    }
    ++group.count;
  }));
  for (auto& [key, group] : groups) all.rows.push_back(std::move(group));
  std::sort(all.rows.begin(), all.rows.end(), [](const FailureRow& a, const FailureRow& b) {
    return std::tie(a.count, a.latest_record) > std::tie(b.count, b.latest_record);
  });
  all.rows.resize(std::min(all.rows.size(), static_cast<size_t>(limit)));
  return all;
}

}  // namespace temper
