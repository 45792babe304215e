#include "storage/sqlite/record_rows.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "storage/best.h"
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

std::vector<double> ParseCosts(std::string_view text) {
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

bool AreTimes(const std::vector<double>& costs) { return !costs.empty() && std::ranges::all_of(costs, IsTime); }

int64_t ConfigHash(std::string_view config) { return static_cast<int64_t>(StableHash(config)); }

// Of all that SameTrial compares, as the columns have it; migration 0004 makes it of them.
int64_t TrialHash(const Keys& keys, const Record& r, std::string_view error, std::string_view costs) {
  return static_cast<int64_t>(
      StableHash(absl::StrCat(keys.workload, " ", keys.anchor, " ", keys.target, " ", keys.device, " ", r.threads, " ",
                              r.cache_policy, " ", r.template_name, " ", r.template_version, " ", r.config, " ",
                              r.codegen_id, " ", r.purpose, " ", std::string(Text(r.outcome)), " ", std::string(error),
                              " ", std::string(costs), " ", r.tuner, " ", r.time_unix_ms)));
}

constexpr char kSelectRecords[] =
    "SELECT record.id, workload.text, anchor.text, target.text, device.key, device.fingerprint, record.threads, "
    "record.cache_policy, record.template, record.template_version, record.config, record.codegen_id, record.purpose, "
    "record.outcome, record.error, record.costs_s, record.tuner, record.job, record.time_unix_ms, record.candidate, "
    "record.attempt, record.origin FROM record JOIN workload ON workload.id = record.workload_id "
    "JOIN anchor ON anchor.id = record.anchor_id JOIN target ON target.id = record.target_id "
    "JOIN device ON device.id = record.device_id WHERE ";

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
  // A class that a newer Temper would know: it says nothing about the candidate.
  r.outcome = ParseOutcome(row.View(column++)).value_or(Outcome::kInfrastructure);
  r.error = row.Text(column++);
  r.costs_s = ParseCosts(row.View(column++));
  if (r.ok() && !AreTimes(r.costs_s)) {  // edited by hand, or damaged: it says nothing about the candidate either
    r.outcome = Outcome::kInfrastructure;
    r.error = "the record is damaged: its samples are no times";
    r.costs_s.clear();
  }
  r.tuner = row.Text(column++);
  r.job = row.Int(column++);
  r.time_unix_ms = row.Int(column++);
  r.candidate = row.Int(column++);
  r.attempt = static_cast<int>(row.Int(column++));
  r.origin = row.Text(column++);
  return r;
}

absl::Status VisitRows(Query& query, const Visitor& visit) {
  while (true) {
    TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return absl::OkStatus();
    visit(ReadRecord(query));
  }
}

// The texts that a filter asks for, in one place, so that they are written and bound in the same order.
struct Condition {
  const char* sql;
  std::string_view value;
};
std::vector<Condition> Conditions(const RecordFilter& f) {
  std::vector<Condition> all;
  const auto add = [&](const char* sql, std::string_view value) {
    if (!value.empty()) all.push_back({sql, value});
  };
  add(" AND workload.text = ?", f.workload);
  add(" AND anchor.text = ?", f.anchor);
  add(" AND target.text = ?", f.target);
  add(" AND device.key = ?", f.device_key);
  add(" AND record.template = ?", f.template_name);
  add(" AND record.purpose = ?", f.purpose);
  if (f.outcome.has_value()) add(" AND record.outcome = ?", Text(*f.outcome));
  return all;
}

// Those with ids from `first` to `last` that the filter matches, in its order; its limit and cursors are the caller's.
absl::StatusOr<Query> Select(Connection& db, const RecordFilter& f, int64_t first, int64_t last) {
  const std::vector<Condition> conditions = Conditions(f);
  std::string sql = absl::StrCat(kSelectRecords, "record.id BETWEEN ? AND ?");
  for (const Condition& c : conditions) sql += c.sql;
  if (f.put.has_value()) sql += *f.put ? " AND record.origin = 'put'" : " AND record.origin != 'put'";
  // The first condition is its index's.
  if (f.candidate != 0) sql += " AND record.candidate != 0 AND record.candidate = ? AND record.attempt = ?";
  absl::StrAppend(&sql, f.job != 0 ? " AND record.job = ?" : "", " ORDER BY record.id", f.newest_first ? " DESC" : "",
                  f.limit > 0 ? " LIMIT ?" : "");
  TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare(sql));
  query.Bind(first).Bind(last);
  for (const Condition& c : conditions) query.Bind(c.value);
  if (f.candidate != 0) query.Bind(f.candidate).Bind(int64_t{f.attempt});
  if (f.job != 0) query.Bind(f.job);
  if (f.limit > 0) query.Bind(f.limit);
  return query;
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

}  // namespace

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

bool SameKeys(const Record& a, const Record& b) {
  return a.workload == b.workload && a.anchor == b.anchor && a.target == b.target && a.device_key == b.device_key &&
         a.fingerprint == b.fingerprint;
}

absl::StatusOr<int64_t> InsertRecord(Connection& db, const Keys& keys, const Record& r) {
  TEMPER_ASSIGN_OR_RETURN(
      Query query,
      db.Prepare("INSERT INTO record (workload_id, anchor_id, target_id, device_id, threads, cache_policy, template, "
                 "template_version, config, config_hash, codegen_id, purpose, outcome, error, costs_s, median_s, "
                 "tuner, job, time_unix_ms, candidate, attempt, origin, trial_hash) "
                 "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
                 "ON CONFLICT (candidate, attempt) WHERE candidate != 0 DO NOTHING"));
  const std::string error = KeptError(r.error), costs = CostsText(r.costs_s);
  query.Bind(keys.workload).Bind(keys.anchor).Bind(keys.target).Bind(keys.device).Bind(int64_t{r.threads});
  query.Bind(r.cache_policy).Bind(r.template_name).Bind(int64_t{r.template_version}).Bind(r.config);
  query.Bind(ConfigHash(r.config)).Bind(r.codegen_id).Bind(r.purpose).Bind(Text(r.outcome)).Bind(error);
  query.Bind(costs);
  if (r.ok())
    query.Bind(MedianCost(r));
  else
    query.BindNull();
  query.Bind(r.tuner).Bind(r.job).Bind(r.time_unix_ms).Bind(r.candidate).Bind(int64_t{r.attempt}).Bind(r.origin);
  query.Bind(TrialHash(keys, r, error, costs));
  TEMPER_RETURN_IF_ERROR(query.Run());
  return db.Changed() ? db.LastInsertId() : 0;
}

absl::StatusOr<int64_t> HighestCandidate(Connection& db) {
  return db.Int("SELECT max(candidate) FROM record WHERE candidate != 0");  // the condition is its index's
}

absl::StatusOr<bool> Knows(Connection& db, const Keys& keys, const Record& r) {
  static const std::string kSql = absl::StrCat(kSelectRecords, "record.trial_hash = ?");
  TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare(kSql));
  query.Bind(TrialHash(keys, r, KeptError(r.error), CostsText(r.costs_s)));
  bool known = false;
  TEMPER_RETURN_IF_ERROR(VisitRows(
      query, [&](const Record& kept) { known = known || (SameTrial(kept, r) && (!IsPut(kept) || IsPut(r))); }));
  return known;
}

absl::Status Scan(Connection& db, const RecordFilter& filter, const Visitor& visit) {
  const int64_t last = filter.before_id == 0 ? INT64_MAX : filter.before_id - 1;
  TEMPER_ASSIGN_OR_RETURN(Query query, Select(db, filter, filter.after_id + 1, last));
  return VisitRows(query, visit);
}

absl::StatusOr<bool> VisitOne(Connection& db, int64_t id, const RecordFilter& filter, const Visitor& visit) {
  TEMPER_ASSIGN_OR_RETURN(Query query, Select(db, filter, id, id));
  TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
  if (row) visit(ReadRecord(query));
  return row;
}

absl::Status VisitPlace(Connection& db, int64_t workload, int64_t target, int threads, std::string_view device_key,
                        const Visitor& visit) {
  static const std::string kSql = absl::StrCat(
      kSelectRecords, "record.workload_id = ? AND record.target_id = ? AND record.threads = ? AND device.key = ?");
  TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare(kSql));
  query.Bind(workload).Bind(target).Bind(int64_t{threads}).Bind(device_key);
  return VisitRows(query, visit);
}

absl::Status VisitTask(Connection& db, int64_t workload, int64_t target, const Visitor& visit) {
  static const std::string kSql = absl::StrCat(kSelectRecords, "record.workload_id = ? AND record.target_id = ?");
  TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare(kSql));
  query.Bind(workload).Bind(target);
  return VisitRows(query, visit);
}

absl::Status VisitConfig(Connection& db, std::string_view workload, std::string_view target, std::string_view config,
                         const Visitor& visit) {
  static const std::string kSql = absl::StrCat(
      kSelectRecords,
      "record.workload_id = (SELECT id FROM workload WHERE text = ?) AND "
      "record.target_id = (SELECT id FROM target WHERE text = ?) AND record.config_hash = ? AND record.config = ?");
  TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare(kSql));
  query.Bind(workload).Bind(target).Bind(ConfigHash(config)).Bind(config);
  return VisitRows(query, visit);
}

}  // namespace temper::rows
