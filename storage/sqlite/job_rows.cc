#include "storage/sqlite/job_rows.h"

#include "absl/strings/str_cat.h"
#include "storage/check.h"

namespace temper::rows {
namespace {

// What UpdateJob writes, and what a listing reads; spec, summary and request lie in job_text.
#define TEMPER_JOB_CHANGES                                                                            \
  "model, target, device_key, tuner, codegen_id, owner, state, reason, trials, best_ms, model_hash, " \
  "build_with, created_unix_ms, updated_unix_ms"
#define TEMPER_JOB_COLUMNS TEMPER_JOB_CHANGES ", priority"

void BindChanges(Query& query, const JobRow& job) {
  query.Bind(job.model).Bind(job.target).Bind(job.device_key).Bind(job.tuner).Bind(job.codegen_id);
  query.Bind(job.owner).Bind(job.state).Bind(KeptError(job.reason)).Bind(job.trials);
  query.Bind(job.best_ms).Bind(job.model_hash).Bind(job.build_with).Bind(job.created_unix_ms);
  query.Bind(job.updated_unix_ms);
}

// Of a query that begins with id and TEMPER_JOB_COLUMNS. Returns the next column.
int ReadJob(const Query& row, JobRow& job) {
  int column = 0;
  job.id = row.Int(column++);
  job.model = row.Text(column++);
  job.target = row.Text(column++);
  job.device_key = row.Text(column++);
  job.tuner = row.Text(column++);
  job.codegen_id = row.Text(column++);
  job.owner = row.Text(column++);
  job.state = row.Text(column++);
  job.reason = row.Text(column++);
  job.trials = row.Int(column++);
  job.best_ms = row.Real(column++);
  job.model_hash = row.Text(column++);
  job.build_with = row.Text(column++);
  job.created_unix_ms = row.Int(column++);
  job.updated_unix_ms = row.Int(column++);
  job.priority = static_cast<int>(row.Int(column++));
  return column;
}

absl::Status NoJob(int64_t id) { return absl::NotFoundError(absl::StrCat("no job ", id)); }

// Whether the job is known and not final.
absl::StatusOr<bool> GoesOn(Connection& db, int64_t job) {
  TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare("SELECT state FROM job WHERE id = ?"));
  query.Bind(job);
  TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
  return row && !IsFinalJobState(query.View(0));
}

// What is kept of a job that goes on, and no longer of one that is final.
absl::Status DropWhatItNeededToGoOn(Connection& db, int64_t job) {
  for (const std::string_view sql :
       {"UPDATE job_text SET request = x'' WHERE job = ?", "DELETE FROM lease WHERE job = ?"}) {
    TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare(sql));
    query.Bind(job);
    TEMPER_RETURN_IF_ERROR(query.Run());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> InsertJob(Connection& db, const JobRow& job) {
  int64_t id = 0;
  {
    TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare("INSERT INTO job (" TEMPER_JOB_COLUMNS
                                                    ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
    BindChanges(query, job);
    query.Bind(int64_t{job.priority});
    TEMPER_RETURN_IF_ERROR(query.Run());
    id = db.LastInsertId();
  }
  TEMPER_ASSIGN_OR_RETURN(Query query,
                          db.Prepare("INSERT INTO job_text (job, spec, summary, request) VALUES (?, ?, ?, ?)"));
  query.Bind(id).Bind(job.spec).Bind(job.summary);
  query.BindBytes(IsFinalJobState(job.state) ? std::string_view() : job.request);
  TEMPER_RETURN_IF_ERROR(query.Run());
  return id;
}

absl::Status UpdateJob(Connection& db, const JobRow& job) {
  {
    TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare("UPDATE job SET (" TEMPER_JOB_CHANGES
                                                    ") = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE id = ?"));
    BindChanges(query, job);
    query.Bind(job.id);
    TEMPER_RETURN_IF_ERROR(query.Run());
    if (!db.Changed()) return NoJob(job.id);
  }
  {
    TEMPER_ASSIGN_OR_RETURN(Query query,
                            db.Prepare("UPDATE job_text SET summary = ?1 WHERE job = ?2 AND summary != ?1"));
    query.Bind(job.summary).Bind(job.id);
    TEMPER_RETURN_IF_ERROR(query.Run());
  }
  return IsFinalJobState(job.state) ? DropWhatItNeededToGoOn(db, job.id) : absl::OkStatus();
}

absl::StatusOr<JobRow> GetJob(Connection& db, int64_t id) {
  TEMPER_ASSIGN_OR_RETURN(Query query,
                          db.Prepare("SELECT id, " TEMPER_JOB_COLUMNS
                                     ", spec, summary, request FROM job JOIN job_text ON job = id WHERE id = ?"));
  query.Bind(id);
  TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
  if (!row) return NoJob(id);
  JobRow job;
  int column = ReadJob(query, job);
  job.spec = query.Text(column++);
  job.summary = query.Text(column++);
  job.request = query.Text(column++);
  return job;
}

absl::StatusOr<std::vector<JobRow>> Jobs(Connection& db, const JobFilter& filter) {
  TEMPER_ASSIGN_OR_RETURN(
      Query query, db.Prepare("SELECT id, " TEMPER_JOB_COLUMNS
                              " FROM job WHERE id < ?1 AND (?2 = '' OR state = ?2) AND (?3 = '' OR device_key = ?3) "
                              "ORDER BY id DESC LIMIT ?4"));
  query.Bind(filter.before_id > 0 ? filter.before_id : INT64_MAX).Bind(filter.state).Bind(filter.device_key);
  query.Bind(filter.limit > 0 ? filter.limit : int64_t{-1});
  std::vector<JobRow> jobs;
  while (true) {
    TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return jobs;
    ReadJob(query, jobs.emplace_back());
  }
}

absl::StatusOr<std::optional<JobRow>> LatestVerdict(Connection& db, std::string_view model_hash,
                                                    std::string_view target, std::string_view device_key) {
  TEMPER_ASSIGN_OR_RETURN(Query query,
                          db.Prepare("SELECT id, " TEMPER_JOB_COLUMNS
                                     " FROM job WHERE model_hash = ? AND target = ? AND build_with != '' AND "
                                     "(?3 = '' OR device_key = ?3) ORDER BY id DESC LIMIT 1"));
  query.Bind(model_hash).Bind(target).Bind(device_key);
  TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
  if (!row) return std::nullopt;
  JobRow job;
  ReadJob(query, job);
  return job;
}

absl::Status SetPriority(Connection& db, const JobPriority& change) {
  TEMPER_ASSIGN_OR_RETURN(const bool goes_on, GoesOn(db, change.job));
  if (!goes_on) return absl::OkStatus();
  TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare("UPDATE job SET priority = ? WHERE id = ?"));
  query.Bind(int64_t{change.priority}).Bind(change.job);
  return query.Run();
}

absl::Status GrantLease(Connection& db, const LeaseRow& lease) {
  TEMPER_ASSIGN_OR_RETURN(const bool goes_on, GoesOn(db, lease.job));
  if (!goes_on) return absl::OkStatus();
  TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare("INSERT OR REPLACE INTO lease (id, instance, job, work, "
                                                  "granted_unix_ms) VALUES (?, ?, ?, ?, ?)"));
  query.Bind(lease.id).Bind(lease.instance).Bind(lease.job).BindBytes(lease.work).Bind(lease.granted_unix_ms);
  return query.Run();
}

absl::Status CloseLease(Connection& db, int64_t id) {
  TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare("DELETE FROM lease WHERE id = ?"));
  query.Bind(id);
  return query.Run();
}

absl::StatusOr<std::vector<LeaseRow>> Leases(Connection& db) {
  TEMPER_ASSIGN_OR_RETURN(Query query,
                          db.Prepare("SELECT id, instance, job, work, granted_unix_ms FROM lease ORDER BY id"));
  std::vector<LeaseRow> leases;
  while (true) {
    TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return leases;
    leases.push_back({query.Int(0), query.Text(1), query.Int(2), query.Text(3), query.Int(4)});
  }
}

}  // namespace temper::rows
