// The tuners, one file each; registry.cc lists them.
#pragma once

#include "tuner_server/search/tuner.h"

namespace temper {

absl::StatusOr<std::unique_ptr<Tuner>> MakeRandomTuner(const TunerContext& context);
absl::StatusOr<std::unique_ptr<Tuner>> MakeXgbTuner(const TunerContext& context);

}  // namespace temper
