// Default configs of kernels whose runs differ in how much they do.
#pragma once

#include "compiler/ops/template.h"

namespace temper {

// How much of a kernel's work its smallest run has.
struct SmallestRun {
  double share = 1;  // of the rows, or of the lines of rows
  // Rows come in lines of so many, of each of which a run has the first; 0: they do not.
  int64_t line = 0, of_line = 0;
};
// As DefaultChoice, of a kernel of a CPU whose runs differ so. The draft of the smallest one, whose constants are as
// large, counts as much as that of the largest: a tenth less of one is worth a tenth more of the other.
absl::StatusOr<Choice> DefaultChoiceOfRuns(const Workload& w, const Target& t, const SmallestRun& run);

}  // namespace temper
