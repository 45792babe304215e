#include "storage/sqlite/rows.h"

#include <charconv>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "storage/check.h"

namespace temper::rows {
namespace {

// Samples as a JSON array, each in the shortest form that reads back as the same double.
std::string CostsText(std::span<const double> costs) {
  std::string text = "[";
  for (double cost : costs) {
    char digits[32];
    const auto [end, error] = std::to_chars(digits, digits + sizeof(digits), cost);
    if (text.size() > 1) text.push_back(',');
    text.append(digits, end);
  }
  return text + "]";
}

std::vector<double> ParseCosts(const std::string& text) {
  std::vector<double> costs;
  const char* at = text.data() + 1;
  const char* const end = text.data() + text.size();
  while (at < end) {
    double cost = 0;
    const auto [next, error] = std::from_chars(at, end, cost);
    if (error != std::errc()) break;
    costs.push_back(cost);
    at = next + 1;  // past the comma or the closing bracket
  }
  return costs;
}

constexpr char kRecordColumns[] =
    "record.id, workload.text, anchor.text, target.text, device.key, device.fingerprint, record.threads, "
    "record.cache_policy, "
    "record.template, record.template_version, record.config, record.codegen_id, record.purpose, record.outcome, "
    "record.error, "
    "record.costs_s, record.tuner, record.job, record.time_unix_ms";
constexpr char kKeyTables[] =
    " JOIN workload ON workload.id = record.workload_id JOIN anchor ON anchor.id = record.anchor_id "
    "JOIN target ON target.id = record.target_id JOIN device ON device.id = record.device_id";

Record ReadRecord(const Query& row) {
  Record r;
  int column = 0;
  r.id = row.Int(column++);
  r.workload = row.Text(column++);
  r.anchor = row.Text(column++);
  r.target = row.Text(column++);
  r.device_key = row.Text(column++);
  r.fingerprint = row.Text(column++);
  r.threads = static_cast<int>(row.Int(column++));
  r.cache_policy = row.Text(column++);
  r.template_name = row.Text(column++);
  r.template_version = static_cast<int>(row.Int(column++));
  r.config = row.Text(column++);
  r.codegen_id = row.Text(column++);
  r.purpose = row.Text(column++);
  r.outcome = row.Text(column++);
  r.error = row.Text(column++);
  r.costs_s = ParseCosts(row.Text(column++));
  r.tuner = row.Text(column++);
  r.job = row.Int(column++);
  r.time_unix_ms = row.Int(column++);
  return r;
}

// Text conditions in one place, so that a filter is written and bound in the same order.
struct Condition {
  const char* sql;
  std::string_view value;
};
std::vector<Condition> Conditions(const RecordFilter& f) {
  std::vector<Condition> all;
  const auto add = [&](const char* sql, const std::string& value) {
    if (!value.empty()) all.push_back({sql, value});
  };
  add(" AND workload.text = ?", f.workload);
  add(" AND anchor.text = ?", f.anchor);
  add(" AND target.text = ?", f.target);
  add(" AND device.key = ?", f.device_key);
  add(" AND record.template = ?", f.template_name);
  add(" AND record.purpose = ?", f.purpose);
  add(" AND record.outcome = ?", f.outcome);
  return all;
}

absl::Status VisitRecords(Connection& db, const char* tables, const RecordFilter& f,
                          const std::function<void(const Record&)>& visit) {
  const std::vector<Condition> conditions = Conditions(f);
  std::string sql = absl::StrCat("SELECT ", kRecordColumns, " FROM ", tables, kKeyTables, " WHERE record.id > ?");
  for (const Condition& c : conditions) sql += c.sql;
  absl::StrAppend(&sql, f.job != 0 ? " AND record.job = ?" : "", " ORDER BY record.id", f.newest_first ? " DESC" : "",
                  f.limit > 0 ? " LIMIT ?" : "");
  TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare(sql));
  query.Bind(f.after_id);
  for (const Condition& c : conditions) query.Bind(c.value);
  if (f.job != 0) query.Bind(f.job);
  if (f.limit > 0) query.Bind(f.limit);
  while (true) {
    TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return absl::OkStatus();
    visit(ReadRecord(query));
  }
}

// The id of a row with these texts, found or made.
absl::StatusOr<int64_t> Intern(Connection& db, std::string_view select, std::string_view insert,
                               std::span<const std::string_view> texts) {
  {
    TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare(select));
    for (std::string_view text : texts) query.Bind(text);
    TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (row) return query.Int(0);
  }
  TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare(insert));
  for (std::string_view text : texts) query.Bind(text);
  TEMPER_RETURN_IF_ERROR(query.Run());
  return db.LastInsertId();
}

struct Keys {
  int64_t workload, anchor, target, device;
};
absl::StatusOr<Keys> InternKeys(Connection& db, const Record& r) {
  Keys keys;
  const std::string hash = HashText(StableHash(r.workload));
  const std::string_view workload[] = {r.workload, hash};
  TEMPER_ASSIGN_OR_RETURN(keys.workload, Intern(db, "SELECT id FROM workload WHERE text = ? AND hash = ?",
                                                "INSERT INTO workload (text, hash) VALUES (?, ?)", workload));
  const std::string_view anchor[] = {r.anchor};
  TEMPER_ASSIGN_OR_RETURN(
      keys.anchor, Intern(db, "SELECT id FROM anchor WHERE text = ?", "INSERT INTO anchor (text) VALUES (?)", anchor));
  const std::string_view target[] = {r.target};
  TEMPER_ASSIGN_OR_RETURN(
      keys.target, Intern(db, "SELECT id FROM target WHERE text = ?", "INSERT INTO target (text) VALUES (?)", target));
  const std::string_view device[] = {r.device_key, r.fingerprint};
  TEMPER_ASSIGN_OR_RETURN(keys.device, Intern(db, "SELECT id FROM device WHERE key = ? AND fingerprint = ?",
                                              "INSERT INTO device (key, fingerprint) VALUES (?, ?)", device));
  return keys;
}

// The row stays where what it holds is as good: a final before a provisional, then the faster, then the older.
constexpr std::string_view kRaiseBest =
    "INSERT INTO best (workload_id, target_id, anchor_id, device_id, threads, template, template_version, confirmed, "
    "median_s, record_id) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT DO UPDATE SET confirmed = excluded.confirmed, median_s = excluded.median_s, record_id = "
    "excluded.record_id "
    "WHERE excluded.confirmed > confirmed OR (excluded.confirmed = confirmed AND excluded.median_s < median_s)";

// The bests of a workload on a device, found again among the records that no later one refutes or retires (check.h).
constexpr std::string_view kForgetBests =
    "DELETE FROM best WHERE workload_id = ?1 AND target_id = ?2 AND threads = ?3 AND device_id IN "
    "(SELECT id FROM device WHERE key = ?4)";
constexpr std::string_view kFindBestsAgain =
    "WITH own AS (SELECT record.*, purpose IN ('final', 'revalidate') AS confirmed FROM record "
    "JOIN device ON device.id = record.device_id "
    "WHERE workload_id = ?1 AND target_id = ?2 AND threads = ?3 AND device.key = ?4), "
    "verdict AS MATERIALIZED (SELECT * FROM own WHERE outcome NOT IN ('ok', 'raced_out', 'infrastructure') "
    "OR (purpose = 'revalidate' AND outcome = 'ok')), "
    "standing AS (SELECT * FROM own WHERE outcome = 'ok' "
    "AND (confirmed OR (purpose = 'search' AND json_array_length(costs_s) >= ?5)) "
    "AND NOT EXISTS (SELECT 1 FROM verdict AS later WHERE later.id > own.id AND "
    "CASE WHEN later.outcome = 'ok' THEN later.time_unix_ms >= own.time_unix_ms AND (later.codegen_id != "
    "own.codegen_id "
    "OR (later.template, later.template_version, later.config) = (own.template, own.template_version, own.config)) "
    "ELSE (later.anchor_id, later.device_id, later.template, later.template_version, later.config) = "
    "(own.anchor_id, own.device_id, own.template, own.template_version, own.config) END)), "
    "ranked AS (SELECT *, row_number() OVER (PARTITION BY anchor_id, device_id, template, template_version "
    "ORDER BY confirmed DESC, median_s, id) AS place FROM standing) "
    "INSERT INTO best (workload_id, target_id, anchor_id, device_id, threads, template, template_version, confirmed, "
    "median_s, record_id) "
    "SELECT workload_id, target_id, anchor_id, device_id, threads, template, template_version, confirmed, median_s, id "
    "FROM ranked WHERE place = 1";

absl::Status FindBestsAgain(Connection& db, const Keys& keys, const Record& r) {
  for (const std::string_view sql : {kForgetBests, kFindBestsAgain}) {
    TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare(sql));
    query.Bind(keys.workload).Bind(keys.target).Bind(int64_t{r.threads}).Bind(r.device_key);
    if (sql == kFindBestsAgain) query.Bind(int64_t{kProvisionalSamples});
    TEMPER_RETURN_IF_ERROR(query.Run());
  }
  return absl::OkStatus();
}

// Whether a best is of this candidate, as measured in this place.
absl::StatusOr<bool> IsBest(Connection& db, const Keys& keys, const Record& r) {
  TEMPER_ASSIGN_OR_RETURN(
      Query query,
      db.Prepare("SELECT 1 FROM best WHERE workload_id = ? AND target_id = ? AND anchor_id = ? AND device_id = ? AND "
                 "threads = ? AND template = ? AND template_version = ? AND (SELECT config FROM record WHERE id = "
                 "best.record_id) = ?"));
  query.Bind(keys.workload).Bind(keys.target).Bind(keys.anchor).Bind(keys.device).Bind(int64_t{r.threads});
  query.Bind(r.template_name).Bind(int64_t{r.template_version}).Bind(r.config);
  return query.Step();
}

// What record `id` changes.
absl::Status UpdateBest(Connection& db, const Keys& keys, const Record& r, int64_t id) {
  if (Refutes(r)) {
    TEMPER_ASSIGN_OR_RETURN(const bool was_best, IsBest(db, keys, r));
    return was_best ? FindBestsAgain(db, keys, r) : absl::OkStatus();
  }
  if (!MayBeBest(r)) return absl::OkStatus();
  if (r.purpose == "revalidate") return FindBestsAgain(db, keys, r);
  TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare(kRaiseBest));
  query.Bind(keys.workload).Bind(keys.target).Bind(keys.anchor).Bind(keys.device).Bind(int64_t{r.threads});
  query.Bind(r.template_name).Bind(int64_t{r.template_version});
  query.Bind(int64_t{IsConfirmed(r)}).Bind(MedianCost(r)).Bind(id);
  return query.Run();
}

// One row of `best`, as far as the choice depends on it. Less is better.
struct Contender {
  int level;  // 0 exact, 1 key, 2 target
  bool provisional;
  double median_s;
  int64_t record;
  auto Rank() const { return std::tie(level, provisional, median_s, record); }
};

bool Allowed(const BestQuery& q, const std::string& name, int64_t version) {
  if (q.templates.empty()) return true;
  for (const auto& [allowed, allowed_version] : q.templates) {
    if (allowed == name && allowed_version == version) return true;
  }
  return false;
}

constexpr char kContenders[] =
    "SELECT device.key, device.fingerprint, best.threads, best.template, best.template_version, best.confirmed, "
    "best.median_s, best.record_id "
    "FROM best JOIN device ON device.id = best.device_id WHERE best.target_id = (SELECT id FROM target WHERE text = ?) "
    "AND ";

absl::StatusOr<std::optional<Contender>> BestAmong(Connection& db, const BestQuery& q, const char* condition,
                                                   std::string_view text) {
  TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare(absl::StrCat(kContenders, condition)));
  query.Bind(q.target).Bind(text);
  std::optional<Contender> best;
  while (true) {
    TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return best;
    if (!Allowed(q, query.Text(3), query.Int(4))) continue;
    Contender c{2, query.Int(5) == 0, query.Real(6), query.Int(7)};
    if (!q.device_key.empty() && query.Text(0) == q.device_key) c.level = 1;
    if (!q.fingerprint.empty() && query.Text(1) == q.fingerprint && query.Int(2) == q.threads) c.level = 0;
    if (!best.has_value() || c.Rank() < best->Rank()) best = c;
  }
}

// The default's best median where that record was made, unless it is itself the default's; 0: not measured there.
absl::StatusOr<double> DefaultSeconds(Connection& db, const BestQuery& q, int64_t record) {
  TEMPER_ASSIGN_OR_RETURN(
      Query query,
      db.Prepare("SELECT min(other.median_s) FROM record AS best JOIN record AS other ON other.workload_id = "
                 "best.workload_id AND other.target_id = best.target_id AND other.device_id = best.device_id AND "
                 "other.threads = best.threads WHERE best.id = ? AND other.template = ? AND other.config = ? AND "
                 "(other.template, other.config) != (best.template, best.config)"));
  query.Bind(record).Bind(q.default_template).Bind(q.default_config);
  TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
  return row ? query.Real(0) : 0;
}

constexpr char kJobColumns[] =
    "id, model, target, device_key, tuner, codegen_id, spec, state, reason, summary, trials, best_ms, created_unix_ms, "
    "updated_unix_ms, model_hash, build_with";

void BindJob(Query& query, const JobRow& job) {
  query.Bind(job.model).Bind(job.target).Bind(job.device_key).Bind(job.tuner).Bind(job.codegen_id).Bind(job.spec);
  query.Bind(job.state).Bind(job.reason).Bind(job.summary).Bind(job.trials).Bind(job.best_ms);
  query.Bind(job.created_unix_ms).Bind(job.updated_unix_ms).Bind(job.model_hash).Bind(job.build_with);
}

JobRow ReadJob(const Query& row) {
  JobRow job;
  int column = 0;
  job.id = row.Int(column++);
  job.model = row.Text(column++);
  job.target = row.Text(column++);
  job.device_key = row.Text(column++);
  job.tuner = row.Text(column++);
  job.codegen_id = row.Text(column++);
  job.spec = row.Text(column++);
  job.state = row.Text(column++);
  job.reason = row.Text(column++);
  job.summary = row.Text(column++);
  job.trials = row.Int(column++);
  job.best_ms = row.Real(column++);
  job.created_unix_ms = row.Int(column++);
  job.updated_unix_ms = row.Int(column++);
  job.model_hash = row.Text(column++);
  job.build_with = row.Text(column++);
  return job;
}

}  // namespace

absl::StatusOr<int64_t> InsertRecord(Connection& db, const Record& r) {
  TEMPER_ASSIGN_OR_RETURN(const Keys keys, InternKeys(db, r));
  TEMPER_ASSIGN_OR_RETURN(
      Query query,
      db.Prepare("INSERT INTO record (workload_id, anchor_id, target_id, device_id, threads, cache_policy, template, "
                 "template_version, "
                 "config, codegen_id, purpose, outcome, error, costs_s, median_s, tuner, job, time_unix_ms) "
                 "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  query.Bind(keys.workload)
      .Bind(keys.anchor)
      .Bind(keys.target)
      .Bind(keys.device)
      .Bind(int64_t{r.threads})
      .Bind(r.cache_policy);
  query.Bind(r.template_name)
      .Bind(int64_t{r.template_version})
      .Bind(r.config)
      .Bind(r.codegen_id)
      .Bind(r.purpose)
      .Bind(r.outcome);
  query.Bind(KeptError(r)).Bind(CostsText(r.costs_s));
  if (r.ok())
    query.Bind(MedianCost(r));
  else
    query.BindNull();
  query.Bind(r.tuner).Bind(r.job).Bind(r.time_unix_ms);
  TEMPER_RETURN_IF_ERROR(query.Run());
  const int64_t id = db.LastInsertId();
  TEMPER_RETURN_IF_ERROR(UpdateBest(db, keys, r, id));
  return id;
}

absl::StatusOr<bool> Knows(Connection& db, const Record& r) {
  TEMPER_ASSIGN_OR_RETURN(Query query,
                          db.Prepare(absl::StrCat("SELECT ", kRecordColumns, " FROM record", kKeyTables,
                                                  " WHERE record.time_unix_ms = ? AND workload.text = ?")));
  query.Bind(r.time_unix_ms).Bind(r.workload);
  while (true) {
    TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return false;
    if (SameTrial(ReadRecord(query), r)) return true;
  }
}

absl::Status Scan(Connection& db, const RecordFilter& filter, const std::function<void(const Record&)>& visit) {
  return VisitRecords(db, "record", filter, visit);
}

absl::StatusOr<std::optional<BestAnswer>> Best(Connection& db, const BestQuery& q) {
  if (q.workload.empty() || q.target.empty())
    return absl::InvalidArgumentError("best asked without a workload or a target");
  static constexpr std::string_view kLevels[] = {"exact", "key", "target"};
  BestAnswer answer;
  TEMPER_ASSIGN_OR_RETURN(std::optional<Contender> best,
                          BestAmong(db, q, "best.workload_id = (SELECT id FROM workload WHERE text = ?)", q.workload));
  if (best.has_value()) {
    answer.level = kLevels[best->level];
  } else if (!q.anchor.empty()) {
    TEMPER_ASSIGN_OR_RETURN(best,
                            BestAmong(db, q, "best.anchor_id = (SELECT id FROM anchor WHERE text = ?)", q.anchor));
    answer.level = "borrowed";
  }
  if (!best.has_value()) return std::nullopt;
  if (best->provisional && !q.default_template.empty()) {
    TEMPER_ASSIGN_OR_RETURN(const double default_s, DefaultSeconds(db, q, best->record));
    if (default_s > 0 && default_s < kProvisionalMargin * best->median_s) return std::nullopt;
  }
  TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare(absl::StrCat("SELECT ", kRecordColumns, " FROM record", kKeyTables,
                                                               " WHERE record.id = ?")));
  query.Bind(best->record);
  TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
  if (!row) return absl::DataLossError(absl::StrCat("record ", best->record, ", named as a best, is missing"));
  answer.record = ReadRecord(query);
  return answer;
}

absl::Status ScanBest(Connection& db, const RecordFilter& filter, const std::function<void(const Record&)>& visit) {
  static constexpr char kTables[] =
      "(SELECT best.record_id, row_number() OVER (PARTITION BY best.workload_id, best.target_id, device.key "
      "ORDER BY best.confirmed DESC, best.median_s, best.record_id) AS place FROM best JOIN device ON device.id = "
      "best.device_id) AS ranked "
      "JOIN record ON record.id = ranked.record_id AND ranked.place = 1";
  return VisitRecords(db, kTables, filter, visit);
}

absl::StatusOr<int64_t> InsertJob(Connection& db, const JobRow& job) {
  TEMPER_ASSIGN_OR_RETURN(
      Query query, db.Prepare("INSERT INTO job (model, target, device_key, tuner, codegen_id, spec, state, reason, "
                              "summary, trials, best_ms, "
                              "created_unix_ms, updated_unix_ms, model_hash, build_with) "
                              "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  BindJob(query, job);
  TEMPER_RETURN_IF_ERROR(query.Run());
  return db.LastInsertId();
}

absl::Status UpdateJob(Connection& db, const JobRow& job) {
  TEMPER_ASSIGN_OR_RETURN(
      Query query,
      db.Prepare(
          "UPDATE job SET (model, target, device_key, tuner, codegen_id, spec, state, reason, summary, trials, "
          "best_ms, "
          "created_unix_ms, updated_unix_ms, model_hash, build_with) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
          "WHERE id = ? RETURNING id"));
  BindJob(query, job);
  query.Bind(job.id);
  TEMPER_ASSIGN_OR_RETURN(const bool found, query.Step());
  if (!found) return absl::NotFoundError(absl::StrCat("no job ", job.id));
  return query.Run();
}

absl::StatusOr<JobRow> GetJob(Connection& db, int64_t id) {
  TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare(absl::StrCat("SELECT ", kJobColumns, " FROM job WHERE id = ?")));
  query.Bind(id);
  TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
  if (!row) return absl::NotFoundError(absl::StrCat("no job ", id));
  return ReadJob(query);
}

absl::StatusOr<std::vector<JobRow>> Jobs(Connection& db) {
  TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare(absl::StrCat("SELECT ", kJobColumns, " FROM job ORDER BY id DESC")));
  std::vector<JobRow> jobs;
  while (true) {
    TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return jobs;
    jobs.push_back(ReadJob(query));
  }
}

absl::StatusOr<std::optional<JobRow>> LatestVerdict(Connection& db, std::string_view model_hash,
                                                    std::string_view target, std::string_view device_key) {
  TEMPER_ASSIGN_OR_RETURN(
      Query query, db.Prepare(absl::StrCat("SELECT ", kJobColumns,
                                           " FROM job WHERE model_hash = ? AND target = ? AND build_with != '' AND "
                                           "(?3 = '' OR device_key = ?3) ORDER BY id DESC LIMIT 1")));
  query.Bind(model_hash).Bind(target).Bind(device_key);
  TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
  if (!row) return std::nullopt;
  return ReadJob(query);
}

}  // namespace temper::rows
