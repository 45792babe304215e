#include "cli/report/search_gap.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/statistics.h"

namespace temper {
namespace {

// The default moved by as much, within this.
constexpr double kAlike = 0.05;

// The times of one config in the place of `best`, by one kind of measurement.
struct Times {
  std::vector<double> medians;
  std::set<std::string> fingerprints, codegen_ids, cache_policies;
  size_t samples = 0;  // of the record that has the most
  double spread = 0;   // of a record's samples, (highest - lowest) / lowest, at most

  double median() const { return Median(medians); }
};

Times TimesOf(const std::vector<Record>& own, const Record& best, const std::string& template_name,
              const std::string& config, const std::string& purpose) {
  Times times;
  for (const Record& r : own) {
    const bool same = r.ok() && r.purpose == purpose && r.template_name == template_name && r.config == config &&
                      r.device_key == best.device_key && r.threads == best.threads &&
                      (template_name != best.template_name || r.template_version == best.template_version);
    if (!same) continue;
    times.medians.push_back(MedianCost(r));
    times.fingerprints.insert(r.fingerprint);
    times.codegen_ids.insert(r.codegen_id);
    times.cache_policies.insert(r.cache_policy);
    times.samples = std::max(times.samples, r.costs_s.size());
    const auto [low, high] = std::minmax_element(r.costs_s.begin(), r.costs_s.end());
    times.spread = std::max(times.spread, (*high - *low) / *low);
  }
  return times;
}

double Ratio(const Times& search, const Times& finals) { return finals.median() / search.median(); }

bool Agree(double ratio) { return std::max(ratio, 1 / ratio) <= 1 + kGapWorthALine; }

}  // namespace

std::optional<SearchGap> FindSearchGap(const std::vector<Record>& own, const Record& best,
                                       const std::string& default_template, const std::string& default_config) {
  if (best.purpose != "final") return std::nullopt;
  const Times search = TimesOf(own, best, best.template_name, best.config, "search");
  const Times finals = TimesOf(own, best, best.template_name, best.config, "final");
  if (search.medians.empty() || finals.medians.empty() || Agree(Ratio(search, finals))) return std::nullopt;
  const double ratio = Ratio(search, finals);

  std::vector<std::string> why;
  if (search.cache_policies != finals.cache_policies) {
    why.push_back(absl::StrCat("the search left the caches as '", absl::StrJoin(search.cache_policies, ", "),
                               "', the finals as '", absl::StrJoin(finals.cache_policies, ", "), "'"));
  }
  if (search.codegen_ids != finals.codegen_ids) why.push_back("another code generator built it");
  if (search.fingerprints != finals.fingerprints) why.push_back("another device of the same key measured it");
  const bool is_default = best.template_name == default_template && best.config == default_config;
  const Times untuned_search = TimesOf(own, best, default_template, default_config, "search");
  const Times untuned_finals = TimesOf(own, best, default_template, default_config, "final");
  if (!is_default && !untuned_search.medians.empty() && !untuned_finals.medians.empty()) {
    const double moved = Ratio(untuned_search, untuned_finals);
    if (std::abs(moved / ratio - 1) <= kAlike) {
      why.push_back(absl::StrFormat("the device ran at another speed: the default's time changed alike, %.2fx", moved));
    }
  }
  if (search.spread >= std::abs(ratio - 1)) {
    why.push_back(absl::StrFormat("the search's own samples differ by %.0f %%", 100 * search.spread));
  }
  if (ratio > 1 && search.samples < finals.samples) {
    why.push_back(absl::StrCat("the search took ", search.samples, " samples and the finals ", finals.samples,
                               ", and the best of many trials by few samples is a lucky one"));
  }
  if (why.empty()) why.push_back("the records do not say; `temper tune --revalidate` measures it again");
  return SearchGap{search.median(), finals.median(), absl::StrJoin(why, "; ")};
}

std::string GapText(const SearchGap& gap) {
  const double longer = gap.final_s / gap.search_s;
  return absl::StrFormat("the finals' time is %.0f %% %s than the search's (%.4f ms, then %.4f ms): %s",
                         100 * (longer > 1 ? longer - 1 : 1 - longer), longer > 1 ? "longer" : "shorter",
                         gap.search_s * 1e3, gap.final_s * 1e3, gap.why);
}

}  // namespace temper
