#include "tuner_server/service/left_behind.h"

#include <algorithm>
#include <set>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/log.h"
#include "tuner_server/service/stored_lease.h"
#include "tuner_server/service/wire.h"

namespace temper {
namespace {

// What the job's records say of it.
struct Earlier {
  int trials = 0;
  absl::Duration time;  // to the latest of them
};

// Also which of its items have a result.
absl::StatusOr<Earlier> ReadEarlier(Store& store, const JobRow& row, std::set<int64_t>& settled) {
  Earlier earlier;
  int64_t latest_ms = row.created_unix_ms;
  // Hashes of workloads with a config: one that was measured again is one trial.
  absl::flat_hash_set<uint64_t> measured;
  TEMPER_RETURN_IF_ERROR(store.Scan({.job = row.id}, [&](const Record& record) {
    if (record.purpose != "search" && record.purpose != "canary") return;
    if (IsMeasured(record.outcome))
      measured.insert(StableHash(absl::StrCat(record.workload, "\n", record.template_name, "\n", record.config)));
    latest_ms = std::max(latest_ms, record.time_unix_ms);
    settled.insert(record.candidate);
  }));
  earlier.trials = static_cast<int>(measured.size());
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

absl::Status ReadJobs(Store& store, const JobLoopOptions& loop, absl::Time wall, LeftBehind& left,
                      std::set<int64_t>& settled) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<JobRow> rows, store.Jobs({}));
  for (const JobRow& listed : rows) {
    if (IsFinalJobState(listed.state)) continue;
    TEMPER_ASSIGN_OR_RETURN(JobRow row, store.GetJob(listed.id));
    TEMPER_ASSIGN_OR_RETURN(const Earlier earlier, ReadEarlier(store, row, settled));
    row.trials = earlier.trials;
    absl::StatusOr<JobPlan> plan = PlanAgain(row, earlier, loop, wall);
    if (plan.ok()) {
      LogInfo({.job = row.id, .key = row.device_key}, "goes on where a server before this one left it, after {} trials",
              plan->row.trials);
      left.plans.push_back(*std::move(plan));
      continue;
    }
    row.state = "abandoned";
    row.reason = std::string(plan.status().message());
    row.updated_unix_ms = absl::ToUnixMillis(wall);
    TEMPER_RETURN_IF_ERROR(store.UpdateJob(row));
    LogInfo({.job = row.id, .key = row.device_key}, "left by a server that is gone: {}", row.reason);
  }
  return absl::OkStatus();
}

absl::Status ReadLeases(Store& store, LeftBehind& left, const std::set<int64_t>& settled) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<LeaseRow> rows, store.Leases());
  for (const LeaseRow& row : rows) {
    if (std::ranges::none_of(left.plans, [&](const JobPlan& plan) { return plan.row.id == row.job; })) continue;
    absl::StatusOr<RestoredLease> lease = FromRow(row);
    if (!lease.ok()) {
      LogError({.job = row.job, .lease = row.id}, "{}: its candidates are measured again", lease.status().ToString());
      continue;
    }
    std::erase_if(lease->work.items, [&](const WorkItem& item) { return settled.contains(item.id); });
    if (!lease->work.items.empty()) left.leases.push_back({row.id, std::move(lease->work), std::move(lease->worker)});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LeftBehind> ReadLeftBehind(Store& store, const JobLoopOptions& loop, absl::Time wall) {
  LeftBehind left;
  std::set<int64_t> settled;
  TEMPER_RETURN_IF_ERROR(ReadJobs(store, loop, wall, left, settled));
  TEMPER_RETURN_IF_ERROR(ReadLeases(store, left, settled));
  TEMPER_ASSIGN_OR_RETURN(left.highest_item, store.HighestCandidate());
  return left;
}

}  // namespace temper
