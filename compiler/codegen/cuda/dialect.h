#pragma once

#include "compiler/codegen/c_like/dialect.h"

namespace temper {

// CUDA C++ that includes nothing. What it calls is built in: in NVRTC, and, in tests, in a header that runs blocks on
// the host (tests/codegen/cuda_on_host.h). Functions of PTX have a second body in C++ beside it.
const Dialect& CudaDialect();

}  // namespace temper
