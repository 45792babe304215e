// Random records and questions about them. Few values each, so that they meet.
#pragma once

#include "base/rng.h"
#include "tests/storage/testing.h"

namespace temper {

inline std::string Pick(Rng& rng, const char* name, int choices) { return name + std::to_string(rng.Below(choices)); }

inline Record RandomRecord(Rng& rng) {
  Record r = GoodRecord();
  r.anchor = Pick(rng, "anchor", 2);
  r.workload = r.anchor + Pick(rng, "+epilogue", 3);
  r.target = Pick(rng, "target", 2);
  r.device_key = Pick(rng, "key", 3);
  r.fingerprint = Pick(rng, "cpu", 3);
  r.threads = 1 + static_cast<int>(rng.Below(2));
  r.template_name = Pick(rng, "template", 2);
  r.template_version = 1 + static_cast<int>(rng.Below(2));
  r.config = Pick(rng, "config", 8);
  r.codegen_id = Pick(rng, "generator", 2);
  r.time_unix_ms = 1700000000000 + rng.Below(4);
  static constexpr const char* kPurposes[] = {"search", "search", "search", "final", "revalidate", "canary"};
  r.purpose = kPurposes[rng.Below(6)];
  static constexpr Outcome kOutcomes[] = {Outcome::kOk,       Outcome::kOk,          Outcome::kOk,
                                          Outcome::kRacedOut, Outcome::kBuildFailed, Outcome::kInfrastructure};
  r.outcome = kOutcomes[rng.Below(6)];
  static constexpr const char* kOrigins[] = {"measured", "measured", "put", "trusted"};
  r.origin = kOrigins[rng.Below(4)];
  r.job = rng.Below(4);
  if (rng.Below(3) == 0) r.candidate = 1 + rng.Below(200), r.attempt = 1;
  r.costs_s.assign(1 + rng.Below(5), 0);
  for (double& cost : r.costs_s) cost = 1e-6 * (1 + rng.Below(20));  // few values: ties happen
  return r;
}

inline BestQuery RandomQuery(Rng& rng) {
  BestQuery q = QueryFor(RandomRecord(rng));
  if (rng.Below(4) == 0) q.device_key = "";
  if (rng.Below(4) == 0) q.fingerprint = "";
  if (rng.Below(4) == 0) q.anchor = "";
  if (rng.Below(2) == 0) {
    q.default_template = Pick(rng, "template", 2);
    q.default_config = Pick(rng, "config", 8);
  }
  if (rng.Below(2) == 0) q.templates = {{Pick(rng, "template", 3), 1}, {Pick(rng, "template", 2), 2}};
  return q;
}

inline std::string Lines(const std::vector<Record>& records) {
  std::string text;
  for (const Record& r : records) text += Line(r) + "\n";
  return text;
}

}  // namespace temper
