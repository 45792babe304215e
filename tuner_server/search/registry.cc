#include <cmath>

#include "absl/strings/str_cat.h"
#include "tuner_server/search/tuner.h"

namespace temper {

// Each stands in its own file.
using MakeTuner = absl::StatusOr<std::unique_ptr<Tuner>>(const TunerContext&);
MakeTuner MakeXgbTuner, MakeXgbRankTuner, MakeGpTuner, MakeGaTuner, MakeDropletTuner, MakeGridTuner, MakeRandomTuner;

absl::Status CheckObservation(const Observation& o) {
  if (!o.ok || (std::isfinite(o.cost_s) && o.cost_s > 0)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("observation refused: ", o.proposal.template_name, " ",
                                                 Text(o.proposal.config), " is ok and costs ", o.cost_s, " s"));
}

std::span<const TunerDef> AllTuners() {
  static constexpr TunerDef kTuners[] = {
      {"xgb", MakeXgbTuner},         {"xgb-rank", MakeXgbRankTuner}, {"gp", MakeGpTuner},         {"ga", MakeGaTuner},
      {"droplet", MakeDropletTuner}, {"grid", MakeGridTuner},        {"random", MakeRandomTuner},
  };
  return kTuners;
}

const TunerDef* FindTuner(std::string_view name) {
  for (const TunerDef& def : AllTuners()) {
    if (def.name == name) return &def;
  }
  return nullptr;
}

std::string TunerNames() {
  std::string names;
  for (const TunerDef& def : AllTuners()) absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(def.name));
  return names;
}

}  // namespace temper
