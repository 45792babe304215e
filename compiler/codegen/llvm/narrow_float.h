// Floats that CPUs have no arithmetic for: their bits, as integers, to f32 and back, with integer instructions alone,
// so that they run in vectors on every CPU. CPUs that convert f16 themselves do so, and the numbers come out the same.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "base/dtype.h"
#include "compiler/target/target.h"

namespace temper {

// The f32 (or vector of them) that `bits` stand for; exact. Of a NaN only the sign is sure.
llvm::Value* EmitDecode(llvm::IRBuilder<>& b, DType dtype, llvm::Value* bits, const CpuTarget& target);
// The bits of the nearest `dtype`, as EncodeFloat (base/dtype.h) has them; `v` is f32 or f64, or a vector of them.
llvm::Value* EmitEncode(llvm::IRBuilder<>& b, DType dtype, llvm::Value* v, CastMode mode, const CpuTarget& target);

}  // namespace temper
