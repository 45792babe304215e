// CUDA's code for those who launch it themselves.
#pragma once

#include <string_view>

#include "compiler/driver/program.h"
#include "compiler/runtime/kernel_abi.h"

namespace temper {

// What a session of the CUDA driver builds and launches. kInvalidArgument: it is not what the generator "cuda" makes.
absl::StatusOr<driver::Program> ReadCudaProgram(std::string_view code);
// CodeGenerator::launch. Arguments are the host's; they are copied to the device and back. Thread-safe.
int32_t LaunchByCuda(const char* code, int64_t bytes, const char* symbol, const temper_call* call);

}  // namespace temper
