// Code for the GPUs that tests play (tests/driver/fake_cuda.h).
#pragma once

#include <string>
#include <vector>

#include "compiler/codegen/cuda/code.h"

namespace temper::worker {

inline constexpr size_t kElements = 96;
inline constexpr int64_t kBytes = kElements * sizeof(float);

// One kernel, which launches the functions of fake_kernels.cc one after another, an element a thread. Its parameters
// are arrays of kElements floats.
inline std::string CodeOf(const std::vector<std::string>& functions, size_t parameters, int64_t workspace_bytes = 0,
                          const std::string& arch = "sm_90") {
  CudaCode code{.arch = arch, .nvrtc = {12, 9}, .images = {{"cubin", "fake " + arch}}, .kernels = {}};
  CudaKernel kernel{.parameter_bytes = std::vector<int64_t>(parameters, kBytes), .workspace_bytes = workspace_bytes};
  for (const std::string& function : functions) {
    kernel.launches.push_back({.function = function, .groups = {kElements / 32, 1, 1}, .threads = {32, 1, 1}});
    code.images[0].bytes += " " + function;
  }
  code.kernels.emplace_back("kernel", kernel);
  return WriteCudaCode(code);
}

}  // namespace temper::worker
