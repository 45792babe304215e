// OpenCL's code where it is launched: without the compiler, so that libtemper-devices has it too.
#pragma once

#include <string_view>

#include "compiler/driver/program.h"
#include "compiler/runtime/kernel_abi.h"

namespace temper {

// What a session of OpenCL builds and launches. kInvalidArgument: it is not what the generator "opencl" makes.
absl::StatusOr<driver::Program> ReadOpenclProgram(std::string_view code);

// Arguments are parts of the device's memory. Thread-safe.
extern const temper_device kOpenclDevice;

}  // namespace temper
