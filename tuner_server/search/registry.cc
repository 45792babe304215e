#include <cmath>

#include "absl/strings/str_cat.h"
#include "tuner_server/search/tuners.h"

namespace temper {

absl::Status CheckObservation(const Observation& o) {
  if (!o.ok || (std::isfinite(o.cost_s) && o.cost_s > 0)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("observation refused: ", o.proposal.template_name, " ",
                                                 Text(o.proposal.config), " is ok and costs ", o.cost_s, " s"));
}

std::span<const TunerDef> AllTuners() {
  static constexpr TunerDef kTuners[] = {
      {"xgb", [](const TunerContext& c) { return MakeXgbTuner(c); }},
      {"xgb-rank", [](const TunerContext& c) { return MakeXgbTuner(c, {Objective::kRank}); }},
      {"ga", [](const TunerContext& c) { return MakeGaTuner(c); }},
      {"droplet", MakeDropletTuner},
      {"grid", MakeGridTuner},
      {"random", MakeRandomTuner},
  };
  return kTuners;
}

const TunerDef* FindTuner(std::string_view name) {
  for (const TunerDef& def : AllTuners()) {
    if (def.name == name) return &def;
  }
  return nullptr;
}

}  // namespace temper
