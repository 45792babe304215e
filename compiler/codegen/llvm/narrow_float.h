// Floats that CPUs have no arithmetic for: their bits, as integers, to f32 and back, with integer instructions alone,
// so that they run in vectors on every CPU.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "base/dtype.h"

namespace temper {

// The f32 (or vector of them) that `bits` stand for; exact.
llvm::Value* EmitDecode(llvm::IRBuilder<>& b, DType dtype, llvm::Value* bits);
// The bits of the nearest `dtype`, as EncodeFloat (base/dtype.h) has them; `v` is f32 or f64, or a vector of them.
llvm::Value* EmitEncode(llvm::IRBuilder<>& b, DType dtype, llvm::Value* v, CastMode mode);

}  // namespace temper
