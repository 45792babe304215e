#pragma once

#include "compiler/codegen/c_like/dialect.h"

namespace temper {

const Dialect& OpenclDialect();  // OpenCL C 1.2, with the doubles of cl_khr_fp64

}  // namespace temper
