// The generator "cuda": CUDA C++ compiled by NVRTC, on any machine that has that library. See CodeGenerator for what
// the functions do.
#pragma once

#include "compiler/codegen/codegen.h"

namespace temper {

std::string CudaId(const Target& target);  // "1-nvrtc13.5"; "1-cuda" without NVRTC
// The code is as code.h says. A function without launches is refused (kUnimplemented), and launches that exceed the
// target or what any GPU of NVIDIA has (kInvalidArgument); kUnavailable: no NVRTC here makes code for the target.
absl::StatusOr<Artifact> CompileForCuda(const std::vector<CodegenInput>& kernels, const Target& target);
// The source ("cu"), without NVRTC; what NVRTC makes of it ("ptx"), and what ptxas says of that ("ptxas").
absl::StatusOr<std::string> EmitCudaText(const std::vector<CodegenInput>& kernels, const Target& target,
                                         std::string_view form);

}  // namespace temper
