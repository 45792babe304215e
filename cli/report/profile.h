// Where a package's time goes: each step's time beside what the machine could do.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compiler/package/package.h"
#include "compiler/timing/roofline.h"

namespace temper {

struct StepProfile {
  std::string name;     // the anchor's node
  std::string what;     // operators and shapes
  std::string kernel;   // template and config; empty for plain copies
  double seconds = 0;   // median over the runs
  double flops = 0;     // useful ones
  double bytes = 0;     // that must move at least once: operands and result
  double of_bound = 0;  // the roofline's time over `seconds`; above 1 where operands lie in caches
};

struct PackageProfile {
  Roofline roofline;               // of all threads, the better of before and after
  std::vector<StepProfile> steps;  // longest first
  int repeats = 0;
};

// Runs the package on random inputs for about `seconds`. `manifest` is the package's.
absl::StatusOr<PackageProfile> ProfilePackage(LoadedPackage& package, const nlohmann::json& manifest, int threads,
                                              double seconds);
void PrintProfile(const PackageProfile& profile);
nlohmann::ordered_json ToJson(const PackageProfile& profile);

}  // namespace temper
