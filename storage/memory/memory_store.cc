// The simple store: a list, searched from end to end. Tests use it, and compare the fast one with it.
#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "storage/check.h"
#include "storage/store.h"

namespace temper {
namespace {

bool Matches(const RecordFilter& f, const Record& r) {
  const auto same = [](const std::string& wanted, const std::string& value) {
    return wanted.empty() || wanted == value;
  };
  return same(f.workload, r.workload) && same(f.anchor, r.anchor) && same(f.target, r.target) &&
         same(f.device_key, r.device_key) && same(f.template_name, r.template_name) && same(f.purpose, r.purpose) &&
         same(f.outcome, r.outcome) && (f.job == 0 || f.job == r.job) && r.id > f.after_id;
}

// Less is better.
auto Rank(const Record& r) { return std::make_tuple(!IsConfirmed(r), MedianCost(r), r.id); }

bool SamePlace(const Record& a, const Record& b) {
  const auto place = [](const Record& r) {
    return std::tie(r.workload, r.anchor, r.target, r.device_key, r.fingerprint, r.threads, r.template_name,
                    r.template_version, r.config);
  };
  return place(a) == place(b);
}

// Those that may be best, and that no later record refutes or retires.
std::vector<Record> Standing(const std::vector<Record>& records) {
  std::vector<Record> standing;
  for (const Record& r : records) {
    const auto ends = [&](const Record& later) {
      return (later.id > r.id && Refutes(later) && SamePlace(later, r)) || Retires(later, r);
    };
    if (MayBeBest(r) && std::none_of(records.begin(), records.end(), ends)) standing.push_back(r);
  }
  return standing;
}

bool Allowed(const BestQuery& q, const Record& r) {
  if (q.templates.empty()) return true;
  for (const auto& [name, version] : q.templates) {
    if (name == r.template_name && version == r.template_version) return true;
  }
  return false;
}

// A provisional best has to, by a margin, where the default was measured too.
bool BeatsTheDefault(const std::vector<Record>& records, const BestQuery& q, const Record& best) {
  const auto is_default = [&](const Record& r) {
    return r.template_name == q.default_template && r.config == q.default_config;
  };
  if (IsConfirmed(best) || q.default_template.empty() || is_default(best)) return true;
  return std::none_of(records.begin(), records.end(), [&](const Record& r) {
    return is_default(r) && r.workload == best.workload && r.target == best.target && r.device_key == best.device_key &&
           r.fingerprint == best.fingerprint && r.threads == best.threads &&
           MedianCost(r) < kProvisionalMargin * MedianCost(best);
  });
}

class MemoryStore : public Store {
 public:
  absl::StatusOr<std::vector<int64_t>> Append(std::span<const Record> records) override {
    for (const Record& r : records) TEMPER_RETURN_IF_ERROR(CheckRecord(r));
    std::lock_guard lock(mutex_);
    std::vector<int64_t> ids;
    for (const Record& r : records) ids.push_back(Keep(r));
    return ids;
  }

  absl::StatusOr<std::vector<int64_t>> Import(std::span<const Record> records) override {
    for (const Record& r : records) TEMPER_RETURN_IF_ERROR(CheckRecord(r));
    std::lock_guard lock(mutex_);
    std::vector<int64_t> ids;
    for (const Record& r : records) {
      const bool known =
          std::any_of(records_.begin(), records_.end(), [&](const Record& kept) { return SameTrial(kept, r); });
      ids.push_back(known ? 0 : Keep(r));
      if (!known) records_.back().job = 0;
    }
    return ids;
  }

  absl::Status Scan(const RecordFilter& filter, const std::function<void(const Record&)>& visit) override {
    Visit(filter, Snapshot(), visit);
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<BestAnswer>> Best(const BestQuery& q) override {
    if (q.workload.empty() || q.target.empty())
      return absl::InvalidArgumentError("best asked without a workload or a target");
    const auto own = [&](const Record& r) { return r.workload == q.workload; };
    const auto kin = [&](const Record& r) { return !q.anchor.empty() && r.anchor == q.anchor; };
    const auto exact = [&](const Record& r) {
      return !q.fingerprint.empty() && r.fingerprint == q.fingerprint && r.threads == q.threads;
    };
    const auto key = [&](const Record& r) { return !q.device_key.empty() && r.device_key == q.device_key; };
    const std::pair<std::string, std::function<bool(const Record&)>> levels[] = {
        {"exact", [&](const Record& r) { return own(r) && exact(r); }},
        {"key", [&](const Record& r) { return own(r) && key(r); }},
        {"target", [&](const Record& r) { return own(r); }},
        {"borrowed", [&](const Record& r) { return kin(r) && exact(r); }},
        {"borrowed", [&](const Record& r) { return kin(r) && key(r); }},
        {"borrowed", [&](const Record& r) { return kin(r); }},
    };
    const std::vector<Record> all = Snapshot(), records = Standing(all);
    for (const auto& [level, fits] : levels) {
      const Record* best = nullptr;
      for (const Record& r : records) {
        if (r.target != q.target || !Allowed(q, r) || !fits(r)) continue;
        if (best == nullptr || Rank(r) < Rank(*best)) best = &r;
      }
      if (best == nullptr) continue;
      if (!BeatsTheDefault(all, q, *best)) return std::nullopt;
      return BestAnswer{*best, level};
    }
    return std::nullopt;
  }

  absl::Status ScanBest(const RecordFilter& filter, const std::function<void(const Record&)>& visit) override {
    std::map<std::tuple<std::string, std::string, std::string>, Record> best;
    for (const Record& r : Standing(Snapshot())) {
      const auto [it, first] = best.try_emplace({r.workload, r.target, r.device_key}, r);
      if (!first && Rank(r) < Rank(it->second)) it->second = r;
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
    jobs_.push_back(job);
    return jobs_.back().id = static_cast<int64_t>(jobs_.size());
  }

  absl::Status UpdateJob(const JobRow& job) override {
    TEMPER_RETURN_IF_ERROR(CheckJob(job));
    std::lock_guard lock(mutex_);
    TEMPER_RETURN_IF_ERROR(Exists(job.id));
    jobs_[job.id - 1] = job;
    return absl::OkStatus();
  }

  absl::StatusOr<JobRow> GetJob(int64_t id) override {
    std::lock_guard lock(mutex_);
    TEMPER_RETURN_IF_ERROR(Exists(id));
    return jobs_[id - 1];
  }

  absl::StatusOr<std::vector<JobRow>> Jobs() override {
    std::lock_guard lock(mutex_);
    return std::vector<JobRow>(jobs_.rbegin(), jobs_.rend());
  }

  absl::StatusOr<std::optional<JobRow>> LatestVerdict(const std::string& model_hash, const std::string& target,
                                                      const std::string& device_key) override {
    std::lock_guard lock(mutex_);
    const auto found = std::find_if(jobs_.rbegin(), jobs_.rend(), [&](const JobRow& job) {
      return job.model_hash == model_hash && job.target == target && !job.build_with.empty() &&
             (device_key.empty() || job.device_key == device_key);
    });
    if (found == jobs_.rend()) return std::nullopt;
    return *found;
  }

 private:
  int64_t Keep(const Record& r) {
    Record& kept = records_.emplace_back(r);
    kept.id = static_cast<int64_t>(records_.size());
    kept.error = KeptError(r);
    return kept.id;
  }
  // Visitors run on a copy, without the lock: they may call the store.
  std::vector<Record> Snapshot() {
    std::lock_guard lock(mutex_);
    return records_;
  }
  static void Visit(const RecordFilter& filter, const std::vector<Record>& records,
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
  absl::Status Exists(int64_t id) const {
    if (id >= 1 && id <= static_cast<int64_t>(jobs_.size())) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat("no job ", id));
  }

  std::mutex mutex_;
  std::vector<Record> records_;
  std::vector<JobRow> jobs_;
};

}  // namespace

std::unique_ptr<Store> NewMemoryStore() { return std::make_unique<MemoryStore>(); }

}  // namespace temper
