#include "storage/best.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace temper {
namespace {

// Within one workload, target, device key and number of threads a revalidation counts.
auto PlaceOf(const Record& r) { return std::tie(r.workload, r.target, r.device_key, r.threads); }

auto CandidateOf(const Record& r) { return std::tie(r.template_name, r.template_version, r.config); }

// A failure counts for the very device and anchor.
auto TrialOf(const Record& r) { return std::tuple_cat(PlaceOf(r), std::tie(r.anchor, r.fingerprint), CandidateOf(r)); }

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

bool Retires(const Record& r) { return r.purpose == "revalidate" && r.ok(); }

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
             return IsLater(*later, r) && MaySpeakAgainst(*later, r) &&
                    (later->codegen_id != r.codegen_id || CandidateOf(*later) == CandidateOf(r));
           });
  };
  std::vector<bool> stands;
  for (const Record& r : records) stands.push_back(MayBeBest(r) && !refuted(r) && !retired(r));
  std::vector<Record> standing;
  for (size_t i = 0; i < records.size(); ++i) {
    if (stands[i]) standing.push_back(std::move(records[i]));
  }
  return standing;
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
