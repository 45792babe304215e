// From a model's file to its package, as compile, bench and run do it: what is decided, and by what, before any code is
// generated.
#pragma once

#include <string>
#include <vector>

#include "base/temporary_directory.h"
#include "cli/command.h"
#include "cli/report/coverage.h"
#include "lock/lock.h"

namespace temper {

struct BuildOptions {
  std::string prefix;       // of the package's functions
  std::string lock;         // FILE: the choices are its, and no database and no server is asked
  std::string report;       // FILE that gets the coverage as JSON; empty: none
  double min_coverage = 0;  // of time; less is kFailedPrecondition, before any code is generated
};

// All that decides a package's code.
struct BuildPlan {
  struct Variant {
    std::string name;  // see ModelVariant
    Graph graph;       // optimised, its alternatives taken
  };
  std::vector<Variant> variants;
  Target target;
  std::vector<ChosenKernel> kernels;  // of all variants; what two of them have is chosen as for the first
  std::string device;                 // the key that was asked for; empty: none
  std::string lock_digest;            // empty: the choices are not a lock's
  // For a lock to be made of it:
  std::string model_hash;   // of all variants
  std::string verdict;      // of LockPins; empty: also where variants have several
  int64_t verdict_job = 0;  // 0: the whole was never measured
  std::vector<LockedAlternative> alternatives;
};

// By the records known now. Says on stdout where a verdict forbids their use, and on stderr where there are none for
// this target and number of threads, but for others.
absl::StatusOr<BuildPlan> PlanFromRecords(const ModelOptions& model, const RecordOptions& records);
// By the lock's entry for --target or --device alone. Prints a table of what the lock lacks to stderr, with the
// commands that tune and lock it. kFailedPrecondition, kNotFound, kInvalidArgument: see lock.h; or the model's options
// contradict those of the lock.
absl::StatusOr<BuildPlan> PlanFromLock(const ModelOptions& model, const RecordOptions& records,
                                       const std::string& lock);
// kFailedPrecondition: less of the time is covered. Names the command that tunes the rest.
absl::Status CheckCoverage(const BuildPlan& plan, double least, const ModelOptions& model,
                           const RecordOptions& records);

absl::StatusOr<PackageReport> WritePlan(const BuildPlan& plan, const std::string& dir, const std::string& prefix);

// Plans as the options say, reports, checks coverage, and builds the package into `dir`.
absl::StatusOr<PackageReport> BuildPackage(const ModelOptions& model, const RecordOptions& records,
                                           const std::string& dir, const BuildOptions& options = {});

// A package that stands in the command's place of a model, or one built of the model, which goes with this.
struct PackageAtHand {
  std::string dir;
  TemporaryDirectory temporary;  // of a built one
};
// kInvalidArgument: it is a package, and an option is given that says how to make one.
absl::StatusOr<PackageAtHand> FindOrBuildPackage(const ModelOptions& model, const RecordOptions& records);

}  // namespace temper
