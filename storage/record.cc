#include "storage/record.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "storage/check.h"

namespace temper {

double MedianCost(const Record& r) {
  if (!r.ok() || r.costs_s.empty()) return std::numeric_limits<double>::infinity();
  std::vector<double> sorted = r.costs_s;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

bool SameTrial(const Record& a, const Record& b) {
  const auto fields = [](const Record& r) {
    return std::tie(r.workload, r.anchor, r.target, r.device_key, r.fingerprint, r.threads, r.cache_policy,
                    r.template_name, r.template_version, r.config, r.codegen_id, r.purpose, r.outcome, r.costs_s,
                    r.tuner, r.time_unix_ms);
  };
  return fields(a) == fields(b) && KeptError(a.error) == KeptError(b.error);
}

bool IsFinalJobState(std::string_view state) {
  return state == "done" || state == "failed" || state == "cancelled" || state == "abandoned";
}

}  // namespace temper
