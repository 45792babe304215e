// Where a package's time goes: each step's time beside what the machine could do.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compiler/package/package.h"
#include "compiler/timing/roofline.h"

namespace temper {

struct StepProfile {
  std::string name;           // the anchor's node
  std::string what;           // operators and shapes
  std::string kernel;         // template and config; empty for plain copies
  double flops = 0;           // useful ones
  double bytes = 0;           // that must move at least once: operands and result
  double constant_bytes = 0;  // of weights.bin
  double of_bound = 0;        // the roofline's time over `seconds`; above 1 where operands lie in caches

  // Seconds in a run of the model, medians over the runs; the other four are its parts.
  double seconds = 0;
  // What threads work where everything lies in the caches as the step itself has left it: arithmetic, in the main.
  double warm_s = 0;
  // What they work beyond that, as far as fetching constants from memory explains it.
  double memory_s = 0;
  double threads_s = 0;  // that threads start and wait, or have nothing to do: the mean over the threads
  double rest_s = 0;     // activations that come from another core or from far, pages, noise; below 0: noise alone
};

struct PackageProfile {
  Roofline roofline;                   // of all threads, the better of before and after
  double core_to_core_s = 0;           // after the runs; MeasureCoreToCore's
  std::vector<StepProfile> steps;      // longest first
  double model_s = 0;                  // a run that nothing is timed in; the median
  double constant_bytes = 0;           // of weights.bin, at most; steps may share them
  bool constants_from_memory = false;  // whether L3 is smaller than what a run touches
  int repeats = 0;
};

// Runs the package on random inputs for about `seconds`. `manifest` is the package's.
absl::StatusOr<PackageProfile> ProfilePackage(LoadedPackage& package, const nlohmann::json& manifest, int threads,
                                              double seconds);
void PrintProfile(const PackageProfile& profile);
nlohmann::ordered_json ToJson(const PackageProfile& profile);

}  // namespace temper
