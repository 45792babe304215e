// CUDA's code for those who launch it themselves.
#pragma once

#include <string_view>

#include "compiler/driver/program.h"

namespace temper {

// What a session of the CUDA driver builds and launches. kInvalidArgument: it is not what the generator "cuda" makes.
absl::StatusOr<driver::Program> ReadCudaProgram(std::string_view code);

}  // namespace temper
