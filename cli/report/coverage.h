// Where each kernel's choice comes from, what share of the model's time it has, and how much of that time was decided
// by measurement.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"
#include "compiler/package/package.h"

namespace temper {

struct ChosenKernel {
  Workload workload;
  int uses = 1;  // in the model
  KernelChoice choice;
  // "exact": a record of this workload and target, of the device that was asked for (of any, where none was);
  // "other_device": the same of another device; "transferred": a record of the same anchor with another epilogue;
  // "default": no record; "verdict": the default, since a job measured the whole model and kept it; "locked": a lock's
  // choice whose evidence does not say where it came from.
  std::string source;
  double seconds = 0;     // of one run
  bool measured = false;  // else an estimate: the draft, on the scale of the kernels that were measured
  double share = 0;       // of the model's time; they sum up to 1
};

// The source for a level of KernelChoice. `device`: the key that was asked for, or empty.
std::string SourceOf(const std::string& level, const std::string& device, bool verdict_keeps_defaults);

// Adds the graph's kernels in order, each once; its alternatives are taken already. Those that are there by another
// variant of the model keep their choice. What is known of their times comes from EstimateTimes.
absl::Status ChooseKernels(const Graph& graph, const Target& target, const ChooseFn& choose, const std::string& device,
                           bool verdict_keeps_defaults, std::vector<ChosenKernel>& kernels);
absl::Status EstimateTimes(const Target& target, std::vector<ChosenKernel>& kernels);

// The share of time of the kernels that a measurement of this very workload and target, or of the whole model, decided:
// those from "exact", "other_device" and "verdict".
double CoverageOf(const std::vector<ChosenKernel>& kernels);

// What `compile --report` writes: by share, the largest first.
nlohmann::ordered_json CoverageReport(const std::vector<ChosenKernel>& kernels);

}  // namespace temper
