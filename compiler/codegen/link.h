// The last steps of a package: its plan as an object file, and objects as one shared library. No tool of the host is
// run.
#pragma once

#include <string>
#include <vector>

#include "base/ndarray.h"
#include "base/status.h"
#include "compiler/codegen/codegen.h"

namespace temper {

// runtime/plan.h's tables in C++: what temper_package_plan shall say.
struct PlanArg {
  int kind;  // TEMPER_ARG_*
  int index = 0;
  int64_t offset = 0, bytes = 0;  // as temper_arg has them
};
struct PlanStep {
  std::string name;
  std::string symbol;  // of the kernel; empty: a copy of `copy_bytes` from args[0] to args[1]
  std::vector<PlanArg> args;
  int64_t copy_bytes = 0, workspace_bytes = 0, thread_workspace_bytes = 0, workspace_offset = 0;
  int64_t extent = 0, least = 0;  // as temper_step has them
};
struct PlanExtent {
  int64_t axis, told_by;  // as temper_extent has them
};
struct PlanIo {
  std::string name;
  DType dtype;
  Shape shape;
  Shape least = {};                 // as temper_io has it; empty: `shape`
  std::vector<PlanExtent> extents;  // the same
  bool unread = false;              // the same
};
struct PlanVariant {
  std::vector<PlanIo> inputs, outputs;
  int64_t num_given = 0, num_results = 0;
  std::vector<PlanStep> steps;
  int64_t arena_bytes = 0;
};
struct Plan {
  std::vector<PlanVariant> variants;
  int64_t scratch_threads = 0, weight_bytes = 0;
  uint64_t weight_hash = 0;
  int64_t caller_alignment = 64;
  std::vector<std::string> cpu_features;
  std::string device;  // the generator whose temper_device has all of its memory; empty: it is the host's
};

// What of an artifact is linked into a package: the code itself, if it is the host's, else an object that has it as
// data, and whose kernels hand it to temper_model_device_<generator>. That is a pointer to a CodeGenerator::device,
// which whoever loads the package sets; while it is null, kernels fail with TEMPER_NO_PACKAGE. Thread-safe.
absl::StatusOr<std::string> HostObject(const Artifact& artifact, const Target& target);
// An object file defining temper_package_plan. Thread-safe.
absl::StatusOr<std::string> CompilePlan(const Plan& plan, CpuArch arch);

// What a library exports: every temper_model_*, or the functions listed, under other names and nothing else.
struct Exports {
  std::vector<std::pair<std::string, std::string>> renamed;  // temper_model_run -> resnet_run
};
// Links objects of one architecture into the shared library `path`, whose file name is also its soname. Of this
// machine's architecture the library takes the C library's symbols in the versions that they have here. Of the other it
// takes them without a version, which finds the oldest that there is, in libraries named as glibc's. One call at a time
// in a process (a lock sees to it).
absl::Status LinkSharedLibrary(const std::vector<std::string>& objects, const std::string& path, CpuArch arch,
                               const Exports& exports = {});

}  // namespace temper
