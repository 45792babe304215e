#include "storage/best.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace temper {
namespace {

// Within one workload, target, device key and number of threads a revalidation counts.
auto PlaceOf(const Record& r) { return std::tie(r.workload, r.target, r.device_key, r.threads); }

auto CandidateOf(const Record& r) { return std::tie(r.template_name, r.template_version, r.config); }

auto DeviceOf(const Record& r) { return std::tie(r.device_key, r.fingerprint, r.threads); }

auto DeviceAndTemplateOf(const Record& r) {
  return std::tuple_cat(DeviceOf(r), std::tie(r.anchor, r.template_name, r.template_version));
}

// A failure counts for the very device and anchor.
auto TrialOf(const Record& r) { return std::tuple_cat(PlaceOf(r), std::tie(r.anchor, r.fingerprint), CandidateOf(r)); }

// Among these, the finals of the job that measured last stand.
auto ContestOf(const Record& r) { return std::tuple_cat(PlaceOf(r), std::tie(r.codegen_id)); }
using Contests = std::map<decltype(ContestOf(std::declval<const Record&>())), const Record*>;

Contests LastFinals(const std::vector<Record>& records) {
  Contests last;
  for (const Record& r : records) {
    if (!DecidesAnew(r)) continue;
    const Record*& final = last.try_emplace(ContestOf(r), &r).first->second;
    if (r.id > final->id) final = &r;
  }
  return last;
}

// Records of this store's own jobs are in the order of their ids, whatever the clock said meanwhile; of those that came
// from elsewhere only their time tells.
bool IsLater(const Record& later, const Record& r) {
  if (later.id <= r.id) return false;
  return (later.job != 0 && r.job != 0) || later.time_unix_ms >= r.time_unix_ms;
}

bool MaySpeakAgainst(const Record& later, const Record& r) { return !IsPut(later) || IsPut(r); }

bool IsDefault(const BestQuery& query, const Record& r) {
  return r.template_name == query.default_template && r.config == query.default_config;
}

bool Allows(const BestQuery& query, const Contender& c) {
  return query.templates.empty() ||
         std::any_of(query.templates.begin(), query.templates.end(), [&](const auto& allowed) {
           return allowed.first == c.template_name && allowed.second == c.template_version;
         });
}

}  // namespace

bool MayBeBest(const Record& r) {
  if (!r.ok()) return false;
  if (r.purpose == "search") return r.costs_s.size() >= kProvisionalSamples;
  return IsConfirmed(r);
}

bool IsConfirmed(const Record& r) { return r.purpose == "final" || r.purpose == "revalidate"; }

bool IsPut(const Record& r) { return r.origin == "put"; }

Rank RankOf(const Record& r) { return {IsPut(r), !IsConfirmed(r), MedianCost(r), r.id}; }

bool Refutes(const Record& r) { return IsOwnFailure(r.outcome); }

bool Retires(const Record& r) { return r.purpose == "revalidate" && r.ok() && !IsPut(r); }

bool DecidesAnew(const Record& r) { return r.purpose == "final" && r.ok() && r.job != 0 && !IsPut(r); }

std::vector<Record> Standing(std::vector<Record> records) {
  // By what they are about; of failures, the last one says it all.
  std::map<decltype(TrialOf(records[0])), std::pair<int64_t, int64_t>> failures;  // ids: measured, put
  std::map<decltype(PlaceOf(records[0])), std::vector<const Record*>> revalidations;
  for (const Record& r : records) {
    if (Refutes(r)) {
      auto& [measured, put] = failures[TrialOf(r)];
      int64_t& last = IsPut(r) ? put : measured;
      last = std::max(last, r.id);
    }
    if (Retires(r)) revalidations[PlaceOf(r)].push_back(&r);
  }
  const auto refuted = [&](const Record& r) {
    const auto found = failures.find(TrialOf(r));
    if (found == failures.end()) return false;
    const auto& [measured, put] = found->second;
    return measured > r.id || (IsPut(r) && put > r.id);
  };
  const auto retired = [&](const Record& r) {
    const auto found = revalidations.find(PlaceOf(r));
    return found != revalidations.end() &&
           std::any_of(found->second.begin(), found->second.end(), [&](const Record* later) {
             return IsLater(*later, r) && (later->codegen_id != r.codegen_id || CandidateOf(*later) == CandidateOf(r));
           });
  };
  const Contests last_finals = LastFinals(records);
  const auto decided_anew = [&](const Record& r) {
    if (!IsConfirmed(r)) return false;
    const auto last = last_finals.find(ContestOf(r));
    return last != last_finals.end() && last->second->job != r.job && IsLater(*last->second, r);
  };
  std::vector<bool> stands;
  for (const Record& r : records) stands.push_back(MayBeBest(r) && !refuted(r) && !retired(r) && !decided_anew(r));
  std::vector<Record> standing;
  for (size_t i = 0; i < records.size(); ++i) {
    if (stands[i]) standing.push_back(std::move(records[i]));
  }
  return standing;
}

std::vector<int64_t> Dispensable(std::vector<Record> records, int64_t keep,
                                 const std::function<bool(int64_t job)>& is_running) {
  std::sort(records.begin(), records.end(), [](const Record& a, const Record& b) { return a.id > b.id; });
  const std::vector<Record> standing = Standing(records);
  // The best of each device and template, and of each device.
  std::map<decltype(DeviceAndTemplateOf(records[0])), Rank> bests;
  std::map<decltype(DeviceOf(records[0])), Rank> leaders;
  std::set<int64_t> stands;
  for (const Record& r : standing) {
    stands.insert(r.id);
    const auto raise = [&](auto& map, const auto& key) {
      const auto [best, first] = map.try_emplace(key, RankOf(r));
      if (!first && RankOf(r) < best->second) best->second = RankOf(r);
    };
    raise(bests, DeviceAndTemplateOf(r));
    raise(leaders, DeviceOf(r));
  }
  const auto is_best = [&](const Record& r) {
    const auto best = bests.find(DeviceAndTemplateOf(r));
    return best != bests.end() && best->second.record == r.id;
  };
  // Were it the default's own measurement, it would deny the lead.
  const auto may_deny = [&](const Record& r) {
    const auto leader = leaders.find(DeviceOf(r));
    return leader != leaders.end() && leader->second.provisional &&
           MedianCost(r) < kProvisionalMargin * leader->second.median_s;
  };
  std::vector<bool> kept;
  std::set<decltype(TrialOf(records[0]))> fallen;  // kept, though they stand no longer: what says so is kept too
  const Contests last_finals = LastFinals(records);
  std::set<int64_t> deciders;
  for (const Record& r : records) {
    kept.push_back(static_cast<int64_t>(kept.size()) < keep || is_best(r) || Retires(r) || may_deny(r) ||
                   (r.job != 0 && is_running(r.job)));
    if (!kept.back() || !MayBeBest(r) || stands.contains(r.id)) continue;
    fallen.insert(TrialOf(r));
    const auto last = last_finals.find(ContestOf(r));
    if (!IsConfirmed(r) || last == last_finals.end()) continue;
    deciders.insert(last->second->id);
    fallen.insert(TrialOf(*last->second));  // it may have been refuted
  }
  std::vector<int64_t> ids;
  for (size_t i = 0; i < records.size(); ++i) {
    const Record& r = records[i];
    const bool speaks = (Refutes(r) && fallen.contains(TrialOf(r))) || deciders.contains(r.id);
    if (!kept[i] && !speaks) ids.push_back(r.id);
  }
  return ids;
}

std::vector<int64_t> DispensableJobs(std::span<const JobRow> jobs, int64_t keep) {
  std::set<std::tuple<std::string_view, std::string_view, std::string_view>> judged;
  std::vector<int64_t> ids;
  for (const JobRow& job : jobs) {
    const bool latest_verdict =
        !job.build_with.empty() && judged.insert({job.model_hash, job.target, job.device_key}).second;
    if (keep-- > 0 || latest_verdict || !IsFinalJobState(job.state)) continue;
    ids.push_back(job.id);
  }
  return ids;
}

void BestChoice::Offer(const Contender& c, bool borrowed) {
  if (!Allows(query_, c)) return;
  int distance = borrowed ? kBorrowed : 0;
  const bool same_device =
      !query_.fingerprint.empty() && c.fingerprint == query_.fingerprint && c.threads == query_.threads;
  if (!same_device) distance += !query_.device_key.empty() && c.device_key == query_.device_key ? 1 : 2;
  const Standpoint offered{c.rank.put, distance, c.rank};
  if (!best_.has_value() || offered < *best_) best_ = offered;
}

std::optional<BestChoice::Chosen> BestChoice::chosen() const {
  if (!best_.has_value()) return std::nullopt;
  static constexpr std::string_view kLevels[] = {"exact", "key", "target"};
  return Chosen{best_->rank.record, best_->distance < kBorrowed ? kLevels[best_->distance] : "borrowed"};
}

bool NeedsALead(const BestQuery& query, const Record& best) {
  return !IsConfirmed(best) && !query.default_template.empty() && !IsDefault(query, best);
}

bool DeniesTheLead(const BestQuery& query, const Record& best, const Record& other) {
  return IsDefault(query, other) && PlaceOf(other) == PlaceOf(best) && other.fingerprint == best.fingerprint &&
         MaySpeakAgainst(other, best) && MedianCost(other) < kProvisionalMargin * MedianCost(best);
}

}  // namespace temper
