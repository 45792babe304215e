// Operators with made-up templates: spaces of every awkward size, and a machine whose costs are a formula.
#pragma once

#include <string>

#include "tuner_server/search/tuner.h"

namespace temper {

// Which spaces fit the toy workload:
//   "gemm"    about 10^5 configs of a made-up GEMM, most of them legal
//   "two"     the same, beside a template of a few hundred configs that is better
//   "small"   200 legal of 300
//   "point"   one knob with one value
//   "knobless" no knobs at all: one config
//   "needle"  one legal among 30,000
//   "void"    none legal
Workload ToyWorkload(const std::string& spaces);
TunerContext ToyContext(const std::string& spaces, uint64_t seed = 0);
void RegisterToys();  // once a program, before anything else

// Seconds on one of the made-up machines: the draft, times what the draft does not know. Deterministic.
inline constexpr int kToyMachines = 5;
inline constexpr int kTrueToDraft = -1;  // a machine that the draft does know
double ToyCost(const TunerContext& context, const Proposal& candidate, int machine = 0);

}  // namespace temper
