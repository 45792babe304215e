// NVIDIA's compiler of CUDA C++, which works without a GPU and without a driver. The library is loaded when it is first
// asked for, from the first of these that has it:
//   $TEMPER_NVRTC    a library's file, or a folder with it
//   the build folder, where deploy/setup.sh puts it
//   wherever the loader looks
// Thread-safe.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "base/status.h"

namespace temper::nvrtc {

struct Compiled {
  std::string cubin;
  std::string ptx;  // with the NUL at its end
  std::string log;  // what ptxas says of each function, among others
};

class Compiler {
 public:
  virtual ~Compiler() = default;
  virtual std::array<int, 2> version() const = 0;  // 12, 9
  // kInvalidArgument: the first error that the compiler finds.
  virtual absl::StatusOr<Compiled> Compile(const std::string& source, std::string_view arch) const = 0;
};

// The newest that makes code for "sm_90" and whose code this machine's driver takes; where none is both, the newest
// that makes it. It lives as long as the process. kUnavailable: there is none on this machine, or those that are here
// do not know the architecture.
absl::StatusOr<const Compiler*> CompilerFor(std::string_view arch);

// What ptxas says of one function: per block the shared memory, per thread the rest.
struct FunctionUse {
  int64_t registers = 0, shared_bytes = 0, stack_bytes = 0, spill_bytes = 0;
};
// kInternal: the log does not speak of it.
absl::StatusOr<FunctionUse> UseOf(std::string_view log, std::string_view function);

}  // namespace temper::nvrtc
