#include "storage/sqlite/prune.h"

#include <map>
#include <set>

#include "storage/best.h"
#include "storage/sqlite/best_rows.h"
#include "storage/sqlite/job_rows.h"
#include "storage/sqlite/record_rows.h"

namespace temper {
namespace {

constexpr size_t kWeight = 1 << 20;  // a transaction of its own
constexpr size_t kJobsAtATime = 256;

// Runs `step` where it may write, or, if nothing is to be written, where it may only read.
absl::Status Do(Database& database, bool dry_run, const std::function<absl::Status(Connection&)>& step) {
  return dry_run ? database.Read(step) : database.Write(kWeight, step);
}

absl::Status Delete(Connection& db, std::string_view sql, std::span<const int64_t> ids) {
  for (const int64_t id : ids) {
    TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare(sql));
    query.Bind(id);
    TEMPER_RETURN_IF_ERROR(query.Run());
  }
  return absl::OkStatus();
}

using Task = std::pair<int64_t, int64_t>;  // workload, target

absl::StatusOr<std::vector<Task>> LargeTasks(Connection& db, int64_t keep) {
  TEMPER_ASSIGN_OR_RETURN(
      Query query,
      db.Prepare("SELECT workload_id, target_id FROM record GROUP BY workload_id, target_id HAVING count(*) > ?"));
  query.Bind(keep);
  std::vector<Task> tasks;
  while (true) {
    TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return tasks;
    tasks.push_back({query.Int(0), query.Int(1)});
  }
}

absl::StatusOr<int64_t> PruneTask(Connection& db, const Task& task, const PruneOptions& options) {
  std::vector<Record> records;
  TEMPER_RETURN_IF_ERROR(rows::VisitTask(db, task.first, task.second, [&](const Record& r) { records.push_back(r); }));
  std::map<int64_t, bool> running;
  for (const Record& r : records) running.emplace(r.job, false);
  for (auto& [job, is_running] : running) {
    const absl::StatusOr<JobRow> row = rows::GetJob(db, job);
    if (!row.ok() && !absl::IsNotFound(row.status())) return row.status();
    is_running = row.ok() && !IsFinalJobState(row->state);
  }
  std::set<rows::BestKeeper::Place> places;
  for (const Record& r : records) places.insert({task.first, task.second, r.threads, r.device_key});
  const std::vector<int64_t> ids =
      Dispensable(std::move(records), options.keep_records, [&](int64_t job) { return running.at(job); });
  if (options.dry_run || ids.empty()) return static_cast<int64_t>(ids.size());
  // Somebody may have edited the file by hand: no best may name what goes.
  rows::BestKeeper keeper(db);
  for (const auto& place : places) TEMPER_RETURN_IF_ERROR(keeper.FindAgain(place));
  TEMPER_RETURN_IF_ERROR(Delete(db, "DELETE FROM record WHERE id = ?", ids));
  return static_cast<int64_t>(ids.size());
}

absl::StatusOr<int64_t> PruneRecords(Database& database, const PruneOptions& options) {
  if (options.keep_records == 0) return 0;
  TEMPER_ASSIGN_OR_RETURN(const std::vector<Task> tasks, database.Get<std::vector<Task>>([&](Connection& db) {
    return LargeTasks(db, options.keep_records);
  }));
  int64_t pruned = 0;
  for (const Task& task : tasks) {
    int64_t of_task = 0;
    TEMPER_RETURN_IF_ERROR(Do(database, options.dry_run, [&](Connection& db) -> absl::Status {
      TEMPER_ASSIGN_OR_RETURN(of_task, PruneTask(db, task, options));
      return absl::OkStatus();
    }));
    pruned += of_task;
  }
  return pruned;
}

absl::StatusOr<int64_t> PruneJobs(Database& database, const PruneOptions& options) {
  if (options.keep_jobs == 0) return 0;
  TEMPER_ASSIGN_OR_RETURN(const std::vector<JobRow> jobs,
                          database.Get<std::vector<JobRow>>([](Connection& db) { return rows::Jobs(db, {}); }));
  const std::vector<int64_t> ids = DispensableJobs(jobs, options.keep_jobs);
  for (size_t at = 0; !options.dry_run && at < ids.size(); at += kJobsAtATime) {
    const std::span<const int64_t> some = std::span(ids).subspan(at, std::min(kJobsAtATime, ids.size() - at));
    TEMPER_RETURN_IF_ERROR(database.Write(kWeight, [&](Connection& db) -> absl::Status {
      TEMPER_RETURN_IF_ERROR(Delete(db, "DELETE FROM job_text WHERE job = ?", some));
      return Delete(db, "DELETE FROM job WHERE id = ?", some);
    }));
  }
  return static_cast<int64_t>(ids.size());
}

absl::StatusOr<int64_t> PruneAudit(Database& database, const PruneOptions& options) {
  int64_t count = 0;
  TEMPER_RETURN_IF_ERROR(Do(database, options.dry_run, [&](Connection& db) -> absl::Status {
    const std::string where = " FROM audit WHERE time_unix_ms < ? AND id < (SELECT max(id) FROM audit)";
    {
      TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare("SELECT count(*)" + where));
      query.Bind(options.audit_before_unix_ms);
      TEMPER_RETURN_IF_ERROR(query.Step().status());
      count = query.Int(0);
    }
    if (options.dry_run || count == 0) return absl::OkStatus();
    TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare("DELETE" + where));
    query.Bind(options.audit_before_unix_ms);
    return query.Run();
  }));
  return count;
}

}  // namespace

absl::StatusOr<Pruned> PruneDatabase(Database& database, const PruneOptions& options) {
  Pruned pruned;
  TEMPER_ASSIGN_OR_RETURN(pruned.records, PruneRecords(database, options));
  TEMPER_ASSIGN_OR_RETURN(pruned.jobs, PruneJobs(database, options));
  TEMPER_ASSIGN_OR_RETURN(pruned.audit, PruneAudit(database, options));
  return pruned;
}

}  // namespace temper
