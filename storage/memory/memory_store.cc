#include "storage/memory/memory_store.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "storage/best.h"
#include "storage/check.h"
#include "storage/memory/memory_access.h"
#include "storage/memory/memory_overview.h"

namespace temper {
namespace {

bool Same(const std::string& wanted, const std::string& value) { return wanted.empty() || wanted == value; }

bool Matches(const RecordFilter& f, const Record& r) {
  return Same(f.workload, r.workload) && Same(f.anchor, r.anchor) && Same(f.target, r.target) &&
         Same(f.device_key, r.device_key) && Same(f.template_name, r.template_name) && Same(f.purpose, r.purpose) &&
         (!f.outcome.has_value() || *f.outcome == r.outcome) && (f.job == 0 || f.job == r.job) && r.id > f.after_id &&
         (f.candidate == 0 || (f.candidate == r.candidate && f.attempt == r.attempt)) &&
         (f.before_id == 0 || r.id < f.before_id) && (!f.put.has_value() || *f.put == IsPut(r));
}

void Visit(const RecordFilter& filter, const std::vector<Record>& records,
           const std::function<void(const Record&)>& visit) {
  int64_t visited = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    const Record& r = records[filter.newest_first ? records.size() - 1 - i : i];
    if (filter.limit > 0 && visited == filter.limit) return;
    if (!Matches(filter, r)) continue;
    visit(r);
    ++visited;
  }
}

class MemoryStore : public Store {
 public:
  absl::StatusOr<std::vector<int64_t>> Commit(const Changes& changes) override {
    for (const Record& r : changes.records) TEMPER_RETURN_IF_ERROR(CheckRecord(r));
    for (const LeaseRow& lease : changes.granted) TEMPER_RETURN_IF_ERROR(CheckLease(lease));
    std::lock_guard lock(mutex_);
    std::vector<int64_t> ids;
    for (const Record& r : changes.records) {
      const bool known = r.candidate != 0 && !executions_.insert({r.candidate, r.attempt}).second;
      ids.push_back(known ? 0 : Keep(r));
    }
    for (const LeaseRow& lease : changes.granted) {
      if (GoesOn(lease.job)) leases_[lease.id] = lease;
    }
    for (const int64_t id : changes.closed) leases_.erase(id);
    for (const JobPriority& change : changes.priorities) {
      if (GoesOn(change.job)) jobs_.at(change.job).priority = change.priority;
    }
    return ids;
  }

  absl::StatusOr<std::vector<int64_t>> Import(std::span<const Record> records) override {
    for (const Record& r : records) TEMPER_RETURN_IF_ERROR(CheckRecord(r));
    std::lock_guard lock(mutex_);
    std::vector<int64_t> ids;
    for (Record r : records) {
      const bool known = std::any_of(records_.begin(), records_.end(), [&](const Record& kept) {
        return SameTrial(kept, r) && (!IsPut(kept) || IsPut(r));
      });
      r.job = r.candidate = r.attempt = 0;
      ids.push_back(known ? 0 : Keep(r));
    }
    return ids;
  }

  absl::Status Scan(const RecordFilter& filter, const std::function<void(const Record&)>& visit) override {
    Visit(filter, Snapshot(), visit);
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> HighestCandidate() override {
    std::lock_guard lock(mutex_);
    return executions_.empty() ? 0 : executions_.rbegin()->first;
  }

  absl::StatusOr<std::optional<BestAnswer>> Best(const BestQuery& q) override {
    if (q.workload.empty() || q.target.empty())
      return absl::InvalidArgumentError("best asked without a workload or a target");
    const std::vector<Record> all = Snapshot(), standing = Standing(all);
    BestChoice choice(q);
    for (const Record& r : standing) {
      if (r.target != q.target) continue;
      const bool own = r.workload == q.workload, kin = !q.anchor.empty() && r.anchor == q.anchor;
      const Contender contender{r.device_key, r.fingerprint, r.threads, r.template_name, r.template_version, RankOf(r)};
      if (own || kin) choice.Offer(contender, /*borrowed=*/!own);
    }
    const auto chosen = choice.chosen();
    if (!chosen.has_value()) return std::nullopt;
    const auto best =
        std::find_if(standing.begin(), standing.end(), [&](const Record& r) { return r.id == chosen->record; });
    const auto denies = [&](const Record& other) { return DeniesTheLead(q, *best, other); };
    if (NeedsALead(q, *best) && std::any_of(all.begin(), all.end(), denies)) return std::nullopt;
    return BestAnswer{*best, std::string(chosen->level)};
  }

  absl::Status ScanBest(const RecordFilter& filter, const std::function<void(const Record&)>& visit) override {
    std::map<std::tuple<std::string, std::string, std::string>, Record> best;
    for (const Record& r : Standing(Snapshot())) {
      const auto [it, first] = best.try_emplace({r.workload, r.target, r.device_key}, r);
      if (!first && RankOf(r) < RankOf(it->second)) it->second = r;
    }
    std::map<int64_t, Record> by_id;
    for (const auto& [key, r] : best) by_id.emplace(r.id, r);
    std::vector<Record> ordered;
    for (const auto& [id, r] : by_id) ordered.push_back(r);
    Visit(filter, ordered, visit);
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> CreateJob(const JobRow& job) override {
    TEMPER_RETURN_IF_ERROR(CheckJob(job));
    std::lock_guard lock(mutex_);
    const int64_t id = jobs_.empty() ? 1 : jobs_.rbegin()->first + 1;
    Set(id, job);
    return id;
  }

  absl::Status UpdateJob(const JobRow& job) override {
    TEMPER_RETURN_IF_ERROR(CheckJob(job));
    std::lock_guard lock(mutex_);
    const auto old = jobs_.find(job.id);
    if (old == jobs_.end()) return NoJob(job.id);
    JobRow row = job;
    row.spec = old->second.spec;
    row.request = old->second.request;
    row.priority = old->second.priority;
    Set(job.id, row);
    return absl::OkStatus();
  }

  absl::StatusOr<JobRow> GetJob(int64_t id) override {
    std::lock_guard lock(mutex_);
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) return NoJob(id);
    return found->second;
  }

  absl::StatusOr<std::vector<JobRow>> Jobs(const JobFilter& filter) override {
    std::lock_guard lock(mutex_);
    std::vector<JobRow> rows;
    for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) {
      const JobRow& job = it->second;
      if (filter.limit > 0 && static_cast<int64_t>(rows.size()) == filter.limit) break;
      if (filter.before_id != 0 && job.id >= filter.before_id) continue;
      if (!Same(filter.state, job.state) || !Same(filter.device_key, job.device_key)) continue;
      rows.push_back(Listed(job));
    }
    return rows;
  }

  absl::StatusOr<std::optional<JobRow>> LatestVerdict(const std::string& model_hash, const std::string& target,
                                                      const std::string& device_key) override {
    std::lock_guard lock(mutex_);
    const auto found = std::find_if(jobs_.rbegin(), jobs_.rend(), [&](const auto& entry) {
      const JobRow& job = entry.second;
      return job.model_hash == model_hash && job.target == target && !job.build_with.empty() &&
             Same(device_key, job.device_key);
    });
    if (found == jobs_.rend()) return std::nullopt;
    return Listed(found->second);
  }

  absl::StatusOr<std::vector<LeaseRow>> Leases() override {
    std::lock_guard lock(mutex_);
    std::vector<LeaseRow> rows;
    for (const auto& [id, lease] : leases_) rows.push_back(lease);
    return rows;
  }

  absl::StatusOr<Pruned> Prune(const PruneOptions& options) override {
    std::lock_guard lock(mutex_);
    Pruned pruned{PruneRecords(options), PruneJobs(options), 0};
    pruned.audit = access_.PruneAudit(options.audit_before_unix_ms, options.dry_run);
    return pruned;
  }

  AccessStore& access() override { return access_; }
  Overview& overview() override { return overview_; }

 private:
  bool GoesOn(int64_t id) const {
    const auto job = jobs_.find(id);
    return job != jobs_.end() && !IsFinalJobState(job->second.state);
  }
  int64_t PruneRecords(const PruneOptions& options) {
    if (options.keep_records == 0) return 0;
    std::map<std::pair<std::string, std::string>, std::vector<Record>> tasks;
    for (const Record& r : records_) tasks[{r.workload, r.target}].push_back(r);
    const auto is_running = [this](int64_t job) { return GoesOn(job); };
    std::set<int64_t> ids;
    for (auto& [task, records] : tasks) {
      for (const int64_t id : Dispensable(std::move(records), options.keep_records, is_running)) ids.insert(id);
    }
    if (options.dry_run) return static_cast<int64_t>(ids.size());
    for (const Record& r : records_) {
      if (ids.contains(r.id)) executions_.erase({r.candidate, r.attempt});
    }
    std::erase_if(records_, [&](const Record& r) { return ids.contains(r.id); });
    return static_cast<int64_t>(ids.size());
  }
  int64_t PruneJobs(const PruneOptions& options) {
    if (options.keep_jobs == 0) return 0;
    std::vector<JobRow> newest_first;
    for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) newest_first.push_back(Listed(it->second));
    const std::vector<int64_t> ids = DispensableJobs(newest_first, options.keep_jobs);
    if (!options.dry_run) {
      for (const int64_t id : ids) jobs_.erase(id);
    }
    return static_cast<int64_t>(ids.size());
  }
  int64_t Keep(const Record& r) {
    const int64_t last = records_.empty() ? 0 : records_.back().id;
    Record& kept = records_.emplace_back(r);
    kept.id = last + 1;
    kept.error = KeptError(r.error);
    return kept.id;
  }
  void Set(int64_t id, const JobRow& job) {
    JobRow& row = jobs_[id] = job;
    row.id = id;
    row.reason = KeptError(job.reason);
    if (!IsFinalJobState(row.state)) return;
    row.request.clear();
    std::erase_if(leases_, [&](const auto& entry) { return entry.second.job == id; });
  }
  static JobRow Listed(JobRow job) {
    job.spec.clear();
    job.summary.clear();
    job.request.clear();
    return job;
  }
  static absl::Status NoJob(int64_t id) { return absl::NotFoundError(absl::StrCat("no job ", id)); }
  // Visitors run on a copy, without the lock: they may call the store.
  std::vector<Record> Snapshot() {
    std::lock_guard lock(mutex_);
    return records_;
  }

  std::mutex mutex_;
  std::vector<Record> records_;
  std::set<std::pair<int64_t, int>> executions_;
  std::map<int64_t, JobRow> jobs_;
  std::map<int64_t, LeaseRow> leases_;
  MemoryAccess access_;
  MemoryOverview overview_{*this};
};

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> OpenMemoryStore(const std::string& name, OpenMode mode) {
  if (!name.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("memory:", name, ": a store in memory has no name; say memory:"));
  }
  if (mode == OpenMode::kReadOnly) return absl::NotFoundError("memory: is empty: there is nothing to read");
  return std::make_unique<MemoryStore>();
}

absl::Status SnapshotMemoryStore(const std::string& name, const std::string& to) {
  return absl::UnimplementedError("memory: can not be copied into a file");
}

absl::StatusOr<std::string> RestoreMemoryStore(const std::string& from, const std::string& name) {
  return absl::UnimplementedError("memory: is gone with its process; restore into a file");
}

}  // namespace temper
