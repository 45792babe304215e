#include "storage/sqlite/best_rows.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"

namespace temper::rows {
namespace {

// From the column on where a query has put, confirmed, median_s, record_id.
Rank ReadRank(const Query& row, int column) {
  return {row.Int(column) != 0, row.Int(column + 1) == 0, row.Real(column + 2), row.Int(column + 3)};
}

#define TEMPER_STANDING_BESTS                                                                                \
  "SELECT device.key, device.fingerprint, best.threads, best.template, best.template_version, best.put, "    \
  "best.confirmed, best.median_s, best.record_id FROM best JOIN device ON device.id = best.device_id WHERE " \
  "best.target_id = (SELECT id FROM target WHERE text = ?) AND "
constexpr std::string_view kOwn = TEMPER_STANDING_BESTS "best.workload_id = (SELECT id FROM workload WHERE text = ?)";
constexpr std::string_view kKin = TEMPER_STANDING_BESTS "best.anchor_id = (SELECT id FROM anchor WHERE text = ?)";
#undef TEMPER_STANDING_BESTS

#define TEMPER_BESTS                                                                               \
  "SELECT best.workload_id, best.target_id, device.key, best.put, best.confirmed, best.median_s, " \
  "best.record_id FROM best JOIN device ON device.id = best.device_id"
constexpr std::string_view kBestsOfAll = TEMPER_BESTS;
constexpr std::string_view kBestsOfOne =
    TEMPER_BESTS " WHERE best.workload_id = (SELECT id FROM workload WHERE text = ?)";
#undef TEMPER_BESTS

absl::Status Offer(Connection& db, std::string_view sql, std::string_view target, std::string_view text, bool borrowed,
                   BestChoice& choice) {
  TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare(sql));
  query.Bind(target).Bind(text);
  while (true) {
    TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return absl::OkStatus();
    choice.Offer({query.View(0), query.View(1), static_cast<int>(query.Int(2)), query.View(3),
                  static_cast<int>(query.Int(4)), ReadRank(query, 5)},
                 borrowed);
  }
}

absl::Status Missing(int64_t id) {
  // By SQLite's rules the file is sound: some rows were removed by hand.
  return absl::FailedPreconditionError(absl::StrCat("record ", id, ", named as a best, is missing; restore a copy"));
}

}  // namespace

absl::Status BestKeeper::Added(const Keys& keys, const Record& r, int64_t id) {
  bool find_again = Retires(r);
  if (Refutes(r)) {
    TEMPER_ASSIGN_OR_RETURN(find_again, IsBest(keys, r));
  }
  if (DecidesAnew(r)) {
    TEMPER_ASSIGN_OR_RETURN(find_again, OthersConfirmed(keys, r));
  }
  if (find_again) {
    to_find_again_.insert({keys.workload, keys.target, r.threads, r.device_key});
    return absl::OkStatus();
  }
  if (!MayBeBest(r)) return absl::OkStatus();
  Rank rank = RankOf(r);
  rank.record = id;
  return Raise(keys, r, rank);
}

absl::Status BestKeeper::Finish() {
  for (const Place& place : to_find_again_) TEMPER_RETURN_IF_ERROR(FindAgain(place));
  to_find_again_.clear();
  return absl::OkStatus();
}

// Whether a best is of this candidate, as measured in this place.
absl::StatusOr<bool> BestKeeper::IsBest(const Keys& keys, const Record& r) {
  TEMPER_ASSIGN_OR_RETURN(
      Query query,
      db_.Prepare("SELECT 1 FROM best WHERE workload_id = ? AND target_id = ? AND anchor_id = ? AND device_id = ? AND "
                  "threads = ? AND template = ? AND template_version = ? AND (SELECT config FROM record WHERE id = "
                  "best.record_id) = ?"));
  query.Bind(keys.workload).Bind(keys.target).Bind(keys.anchor).Bind(keys.device).Bind(int64_t{r.threads});
  query.Bind(r.template_name).Bind(int64_t{r.template_version}).Bind(r.config);
  return query.Step();
}

// Whether another job confirmed anything of the workload, which may fall, or made this job's earlier finals fall.
absl::StatusOr<bool> BestKeeper::OthersConfirmed(const Keys& keys, const Record& r) {
  TEMPER_ASSIGN_OR_RETURN(Query query, db_.Prepare("SELECT 1 FROM record WHERE workload_id = ? AND target_id = ? AND "
                                                   "purpose IN ('final', 'revalidate') AND job != ? LIMIT 1"));
  query.Bind(keys.workload).Bind(keys.target).Bind(r.job);
  return query.Step();
}

absl::Status BestKeeper::Raise(const Keys& keys, const Record& r, const Rank& rank) {
  {
    TEMPER_ASSIGN_OR_RETURN(
        Query query,
        db_.Prepare("SELECT put, confirmed, median_s, record_id FROM best WHERE workload_id = ? AND target_id = ? AND "
                    "anchor_id = ? AND device_id = ? AND threads = ? AND template = ? AND template_version = ?"));
    query.Bind(keys.workload).Bind(keys.target).Bind(keys.anchor).Bind(keys.device).Bind(int64_t{r.threads});
    query.Bind(r.template_name).Bind(int64_t{r.template_version});
    TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (row && !(rank < ReadRank(query, 0))) return absl::OkStatus();
  }
  return Set(keys, r, rank);
}

absl::Status BestKeeper::Set(const Keys& keys, const Record& r, const Rank& rank) {
  TEMPER_ASSIGN_OR_RETURN(
      Query query, db_.Prepare("INSERT OR REPLACE INTO best (workload_id, target_id, anchor_id, device_id, threads, "
                               "template, template_version, put, confirmed, median_s, record_id) "
                               "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  query.Bind(keys.workload).Bind(keys.target).Bind(keys.anchor).Bind(keys.device).Bind(int64_t{r.threads});
  query.Bind(r.template_name).Bind(int64_t{r.template_version}).Bind(int64_t{rank.put});
  query.Bind(int64_t{!rank.provisional}).Bind(rank.median_s).Bind(rank.record);
  return query.Run();
}

absl::Status BestKeeper::FindAgain(const Place& place) {
  const auto& [workload, target, threads, device_key] = place;
  {
    TEMPER_ASSIGN_OR_RETURN(Query query,
                            db_.Prepare("DELETE FROM best WHERE workload_id = ? AND target_id = ? AND threads = ? AND "
                                        "device_id IN (SELECT id FROM device WHERE key = ?)"));
    query.Bind(workload).Bind(target).Bind(int64_t{threads}).Bind(device_key);
    TEMPER_RETURN_IF_ERROR(query.Run());
  }
  std::vector<Record> records;
  TEMPER_RETURN_IF_ERROR(
      VisitPlace(db_, workload, target, threads, device_key, [&](const Record& r) { records.push_back(r); }));
  std::map<std::tuple<std::string, std::string, std::string, int>, Record> bests;
  for (Record& r : Standing(std::move(records))) {
    const auto [best, first] = bests.try_emplace({r.anchor, r.fingerprint, r.template_name, r.template_version}, r);
    if (!first && RankOf(r) < RankOf(best->second)) best->second = std::move(r);
  }
  for (const auto& [key, r] : bests) {
    TEMPER_ASSIGN_OR_RETURN(const Keys keys, InternKeys(db_, r));
    TEMPER_RETURN_IF_ERROR(Set(keys, r, RankOf(r)));
  }
  return absl::OkStatus();
}

absl::Status BestKeeper::FindAllAgain() {
  std::vector<Place> places;
  {
    TEMPER_ASSIGN_OR_RETURN(Query query, db_.Prepare("SELECT DISTINCT workload_id, target_id, threads, device.key FROM "
                                                     "record JOIN device ON device.id = record.device_id"));
    while (true) {
      TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) break;
      places.push_back({query.Int(0), query.Int(1), static_cast<int>(query.Int(2)), query.Text(3)});
    }
  }
  for (const Place& place : places) TEMPER_RETURN_IF_ERROR(FindAgain(place));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<BestAnswer>> Best(Connection& db, const BestQuery& q) {
  if (q.workload.empty() || q.target.empty())
    return absl::InvalidArgumentError("best asked without a workload or a target");
  BestChoice choice(q);
  TEMPER_RETURN_IF_ERROR(Offer(db, kOwn, q.target, q.workload, /*borrowed=*/false, choice));
  if (!q.anchor.empty() && !choice.NothingBorrowedWins()) {
    TEMPER_RETURN_IF_ERROR(Offer(db, kKin, q.target, q.anchor, /*borrowed=*/true, choice));
  }
  const auto chosen = choice.chosen();
  if (!chosen.has_value()) return std::nullopt;
  BestAnswer answer{{}, std::string(chosen->level)};
  TEMPER_ASSIGN_OR_RETURN(const bool found,
                          VisitOne(db, chosen->record, {}, [&](const Record& r) { answer.record = r; }));
  if (!found) return Missing(chosen->record);
  const Record& best = answer.record;
  if (!MayBeBest(best)) return std::nullopt;  // it is damaged
  bool denied = false;
  if (NeedsALead(q, best)) {
    TEMPER_RETURN_IF_ERROR(VisitConfig(db, best.workload, best.target, q.default_config,
                                       [&](const Record& other) { denied = denied || DeniesTheLead(q, best, other); }));
  }
  if (denied) return std::nullopt;
  return answer;
}

absl::Status ScanBest(Connection& db, const RecordFilter& filter, const Visitor& visit) {
  std::map<std::tuple<int64_t, int64_t, std::string>, Rank> bests;  // of each workload, target and device key
  {
    TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare(filter.workload.empty() ? kBestsOfAll : kBestsOfOne));
    if (!filter.workload.empty()) query.Bind(filter.workload);
    while (true) {
      TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) break;
      const Rank rank = ReadRank(query, 3);
      const auto [best, first] = bests.try_emplace({query.Int(0), query.Int(1), query.Text(2)}, rank);
      if (!first && rank < best->second) best->second = rank;
    }
  }
  std::vector<int64_t> ids;
  for (const auto& [key, rank] : bests) {
    const bool wanted = rank.record > filter.after_id && (filter.before_id == 0 || rank.record < filter.before_id);
    if (wanted) ids.push_back(rank.record);
  }
  std::sort(ids.begin(), ids.end());
  if (filter.newest_first) std::reverse(ids.begin(), ids.end());
  int64_t visited = 0;
  for (const int64_t id : ids) {
    if (filter.limit > 0 && visited == filter.limit) break;
    TEMPER_RETURN_IF_ERROR(VisitOne(db, id, filter, [&](const Record& r) {
                             if (!MayBeBest(r)) return;  // it is damaged
                             visit(r);
                             ++visited;
                           }).status());
  }
  return absl::OkStatus();
}

}  // namespace temper::rows
