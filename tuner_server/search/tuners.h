// The tuners, one file each, with AutoTVM's defaults; registry.cc lists them.
#pragma once

#include "tuner_server/search/annealer.h"

namespace temper {

struct GaOptions {
  int population = 100;
  int elite = 3;
  double mutation = 0.1;  // of each knob
};

struct XgbOptions {
  Objective objective = Objective::kResidual;
  int plan = 64;               // candidates ranked at a time
  double random_share = 0.05;  // of a plan, its last ones
  AnnealOptions annealing;
};

absl::StatusOr<std::unique_ptr<Tuner>> MakeXgbTuner(const TunerContext& context, const XgbOptions& options = {});
absl::StatusOr<std::unique_ptr<Tuner>> MakeGaTuner(const TunerContext& context, const GaOptions& options = {});
absl::StatusOr<std::unique_ptr<Tuner>> MakeRandomTuner(const TunerContext& context);
absl::StatusOr<std::unique_ptr<Tuner>> MakeGridTuner(const TunerContext& context);
absl::StatusOr<std::unique_ptr<Tuner>> MakeDropletTuner(const TunerContext& context);

}  // namespace temper
