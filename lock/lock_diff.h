// What changes between two locks: which kernels, why, and what was measured of both.
#pragma once

#include <string>
#include <vector>

#include "lock/lock.h"

namespace temper {

struct KernelChange {
  std::string workload, before, after;  // the choices, "template config"; empty: none
  std::string why;
  int uses = 0;                      // as after, else as before
  double before_s = 0, after_s = 0;  // of one run, measured; 0: not
};

struct EntryDiff {
  std::string target;
  std::vector<std::string> settings;  // a line each: what changed besides kernels
  std::vector<KernelChange> kernels;  // by workload
  // Of all kernels that were measured in both, changed or not, as often as they run.
  double before_s = 0, after_s = 0;
};

// Of each target that changes, by target.
std::vector<EntryDiff> DiffLocks(const Lock& before, const Lock& after);

}  // namespace temper
