// The generator "opencl": OpenCL C 1.2 as source, which the device's driver compiles. See CodeGenerator for what the
// functions do.
#pragma once

#include "compiler/codegen/codegen.h"

namespace temper {

std::string OpenclId(const Target& target);
// The code is JSON: the program's source, and what a caller has to know of its kernels (launch.h reads it). A function
// without launches is refused (kUnimplemented), and launches that exceed the target (kInvalidArgument).
absl::StatusOr<Artifact> CompileForOpencl(const std::vector<CodegenInput>& kernels, const Target& target);
// The source ("cl").
absl::StatusOr<std::string> EmitOpenclText(const std::vector<CodegenInput>& kernels, const Target& target,
                                           std::string_view form);

}  // namespace temper
