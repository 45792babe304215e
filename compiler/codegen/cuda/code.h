// The bytes of an artifact of the generator "cuda": what a driver loads, and what a caller has to know of its kernels.
// They are
//   8 bytes   "temcuda1": the format and its version
//   8 bytes   n, the length of the table, little endian
//   n bytes   the table: JSON
//   the rest  the images, at the offsets and of the lengths that the table gives
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace temper {

// Functions take one device pointer a parameter, in order, and then one to the workspace, if there is any.
struct CudaKernel {
  struct Launch {
    std::string function;
    std::array<uint32_t, 3> groups = {1, 1, 1}, threads = {1, 1, 1};
    int64_t dynamic_shared_bytes = 0;  // that a launch asks for
    // What ptxas says of the function: per group, and per thread the others.
    int64_t static_shared_bytes = 0, registers = 0, spill_bytes = 0, stack_bytes = 0;
  };
  std::vector<int64_t> parameter_bytes;
  size_t outputs = 1;           // the last parameters
  int64_t workspace_bytes = 0;  // 0: the functions have no such argument
  std::vector<Launch> launches;
};

struct CudaImage {
  std::string kind;  // "cubin" for the code's architecture alone; "ptx", which ends in a NUL, for that and later ones
  std::string bytes;
};

struct CudaCode {
  std::string arch;                                         // "sm_90"
  std::array<int, 2> nvrtc = {0, 0};                        // whose code it is: [12, 9]
  std::vector<CudaImage> images;                            // best first
  std::vector<std::pair<std::string, CudaKernel>> kernels;  // by symbol

  const CudaKernel* Find(std::string_view symbol) const;  // null: there is none
};

std::string WriteCudaCode(const CudaCode& code);
// kInvalidArgument: it is not what WriteCudaCode makes.
absl::StatusOr<CudaCode> ReadCudaCode(std::string_view bytes);

}  // namespace temper
