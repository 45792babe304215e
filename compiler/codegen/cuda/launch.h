// CUDA's code where it is launched: without LLVM or NVRTC, so that libtemper-devices has it too.
#pragma once

#include <string_view>

#include "compiler/driver/program.h"
#include "compiler/runtime/kernel_abi.h"

namespace temper {

// What a session of the CUDA driver builds and launches. kInvalidArgument: it is not what the generator "cuda" makes.
absl::StatusOr<driver::Program> ReadCudaProgram(std::string_view code);

// Arguments are parts of the device's memory. Thread-safe.
extern const temper_device kCudaDevice;

}  // namespace temper
