#include "storage/sqlite/overview.h"

#include <map>
#include <tuple>

#include "storage/best.h"

namespace temper {
namespace {

// The standing bests in the order of their workloads, the newest first. The caller stops reading where a page ends.
constexpr std::string_view kBests =
    "SELECT best.workload_id, best.target_id, device.key, best.put, best.confirmed, best.median_s, best.record_id "
    "FROM best JOIN device ON device.id = best.device_id WHERE best.workload_id < ?1 AND "
    "(?2 = '' OR device.key = ?2) AND "
    "(?3 = '' OR best.workload_id IN (SELECT id FROM workload WHERE instr(lower(text), lower(?3)) > 0)) "
    "ORDER BY best.workload_id DESC";

constexpr std::string_view kBestRecord =
    "SELECT record.id, record.job, workload.text, target.text, device.key, record.template, record.config, "
    "record.time_unix_ms FROM record JOIN workload ON workload.id = record.workload_id JOIN target ON "
    "target.id = record.target_id JOIN device ON device.id = record.device_id WHERE record.id = ?";

// With min(), SQLite takes the other columns from the row that has the least value.
constexpr std::string_view kModels =
    "SELECT all_jobs.model, all_jobs.target, all_jobs.device_key, jobs, trials, latest, coalesce(best_ms, 0), "
    "coalesce(best_id, 0) FROM "
    "(SELECT model, target, device_key, count(*) AS jobs, sum(trials) AS trials, max(id) AS latest FROM job "
    "GROUP BY model, target, device_key) AS all_jobs LEFT JOIN "
    "(SELECT model, target, device_key, id AS best_id, min(best_ms) AS best_ms FROM job WHERE best_ms > 0 "
    "GROUP BY model, target, device_key) AS timed USING (model, target, device_key) ORDER BY latest DESC LIMIT ?";

constexpr std::string_view kCurve =
    "SELECT trial, workload.text, median_s FROM (SELECT row_number() OVER (ORDER BY id) AS trial, workload_id, "
    "median_s, min(median_s) OVER (PARTITION BY workload_id ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND "
    "1 PRECEDING) AS before_s FROM record WHERE job = ? AND purpose = 'search') JOIN workload ON "
    "workload.id = workload_id WHERE median_s < before_s OR (median_s IS NOT NULL AND before_s IS NULL) ORDER BY trial";

// With max(), SQLite takes the other columns from the row that has the greatest value.
#define TEMPER_FAILURES(RECORDS)                                                                                 \
  "SELECT outcome, error, count(*) AS times, max(latest.id) AS newest, time_unix_ms, device.key, template FROM " \
  "(" RECORDS                                                                                                    \
  ") AS latest JOIN device ON device.id = device_id WHERE outcome != 'ok' GROUP BY outcome, error "              \
  "ORDER BY times DESC, newest DESC LIMIT ?2"
#define TEMPER_FAILURE_COLUMNS "SELECT id, outcome, error, time_unix_ms, device_id, template FROM record "
constexpr std::string_view kFailures = TEMPER_FAILURES(TEMPER_FAILURE_COLUMNS "WHERE ?3 = 0 ORDER BY id DESC LIMIT ?1");
constexpr std::string_view kFailuresOfJob =
    TEMPER_FAILURES(TEMPER_FAILURE_COLUMNS "WHERE job = ?3 ORDER BY id DESC LIMIT ?1");
#undef TEMPER_FAILURE_COLUMNS
#undef TEMPER_FAILURES

// By workload (the newest first), target and device key.
using Standings = std::map<std::tuple<int64_t, int64_t, std::string>, Rank>;

absl::Status AddRows(Connection& db, const Standings& standings, BestPage& page) {
  for (auto best = standings.rbegin(); best != standings.rend(); ++best) {
    const Rank& rank = best->second;
    TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare(kBestRecord));
    query.Bind(rank.record);
    TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) continue;  // named as a best and missing: Store::Best tells of it
    page.rows.push_back({query.Int(0), query.Int(1), query.Text(2), query.Text(3), query.Text(4), query.Text(5),
                         query.Text(6), !rank.provisional, rank.put, rank.median_s, query.Int(7)});
  }
  return absl::OkStatus();
}

absl::StatusOr<BestPage> ReadBests(Connection& db, const BestFilter& filter) {
  Standings standings;
  BestPage page;
  {
    TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare(kBests));
    query.Bind(filter.before > 0 ? filter.before : INT64_MAX).Bind(filter.device_key).Bind(filter.text);
    int64_t last = 0;
    while (true) {
      TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) break;
      const int64_t workload = query.Int(0);
      if (workload != last && static_cast<int64_t>(standings.size()) >= filter.limit) {
        page.next = last;
        break;
      }
      last = workload;
      const Rank rank{query.Int(3) != 0, query.Int(4) == 0, query.Real(5), query.Int(6)};
      const auto [best, first] = standings.try_emplace({workload, query.Int(1), query.Text(2)}, rank);
      if (!first && rank < best->second) best->second = rank;
    }
  }
  TEMPER_RETURN_IF_ERROR(AddRows(db, standings, page));
  return page;
}

absl::StatusOr<std::vector<ModelRow>> ReadModels(Connection& db, int64_t limit) {
  TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare(kModels));
  query.Bind(limit);
  std::vector<ModelRow> rows;
  while (true) {
    TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return rows;
    rows.push_back({query.Text(0), query.Text(1), query.Text(2), query.Int(3), query.Int(4), query.Real(6),
                    query.Int(7), query.Int(5)});
  }
}

absl::StatusOr<JobCurve> ReadCurve(Connection& db, int64_t job) {
  JobCurve curve;
  {
    TEMPER_ASSIGN_OR_RETURN(Query count,
                            db.Prepare("SELECT count(*) FROM record WHERE job = ? AND purpose = 'search'"));
    count.Bind(job);
    TEMPER_RETURN_IF_ERROR(count.Step().status());
    curve.trials = count.Int(0);
  }
  TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare(kCurve));
  query.Bind(job);
  while (true) {
    TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return curve;
    curve.steps.push_back({query.Int(0), query.Text(1), query.Real(2)});
  }
}

absl::StatusOr<FailureRows> ReadFailures(Connection& db, int64_t job, int64_t records, int64_t limit) {
  FailureRows all;
  {
    TEMPER_ASSIGN_OR_RETURN(
        Query count, db.Prepare(job == 0 ? "SELECT count(*) FROM (SELECT 1 FROM record WHERE ?2 = 0 LIMIT ?1)"
                                         : "SELECT count(*) FROM (SELECT 1 FROM record WHERE job = ?2 LIMIT ?1)"));
    count.Bind(records).Bind(job);
    TEMPER_RETURN_IF_ERROR(count.Step().status());
    all.looked_at = count.Int(0);
  }
  TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare(job == 0 ? kFailures : kFailuresOfJob));
  query.Bind(records).Bind(limit).Bind(job);
  while (true) {
    TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return all;
    // A class that a newer Temper would know: it says nothing about the candidate.
    const Outcome outcome = ParseOutcome(query.View(0)).value_or(Outcome::kInfrastructure);
    all.rows.push_back(
        {outcome, query.Text(1), query.Int(2), query.Int(3), query.Int(4), query.Text(5), query.Text(6)});
  }
}

// Who asks is answered on a thread that others wait for.
constexpr absl::Duration kLongestQuestion = absl::Seconds(2);

template <typename T, typename Read>
absl::StatusOr<T> Ask(Database& database, Read read) {
  return database.Get<T>([&](Connection& db) {
    db.LimitTime(kLongestQuestion);
    absl::StatusOr<T> answer = read(db);
    db.LimitTime(absl::ZeroDuration());
    return answer;
  });
}

}  // namespace

absl::StatusOr<BestPage> SqliteOverview::Bests(const BestFilter& filter) {
  return Ask<BestPage>(database_, [&](Connection& db) { return ReadBests(db, filter); });
}

absl::StatusOr<std::vector<ModelRow>> SqliteOverview::Models(int64_t limit) {
  return Ask<std::vector<ModelRow>>(database_, [&](Connection& db) { return ReadModels(db, limit); });
}

absl::StatusOr<JobCurve> SqliteOverview::Curve(int64_t job) {
  return Ask<JobCurve>(database_, [&](Connection& db) { return ReadCurve(db, job); });
}

absl::StatusOr<FailureRows> SqliteOverview::Failures(int64_t job, int64_t records, int64_t limit) {
  return Ask<FailureRows>(database_, [&](Connection& db) { return ReadFailures(db, job, records, limit); });
}

}  // namespace temper
