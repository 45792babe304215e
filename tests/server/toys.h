// A made-up operator whose spaces and costs are formulas, so that jobs can be played without a device. A program that
// has toys.cc knows it in its tests.
#pragma once

#include <string>

#include "compiler/graph/graph.h"

namespace temper {

// A space of `points` configs (a multiple of 10), costs spread over a factor of about ten. Distinct `name`s are
// distinct workloads.
Workload ToyWorkload(const std::string& name, int points, double seconds = 1e-3);
// Seconds of a config of the workload; deterministic. The draft knows only half of it.
double ToyCost(const Workload& workload, const std::string& config);
std::string ToyTarget();

}  // namespace temper
