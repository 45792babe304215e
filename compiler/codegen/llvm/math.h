// Mathematical functions in LLVM IR, the same for scalars and vectors of f32; f64 and the rare ones call libm a lane at
// a time. Relative error of a few units in the last place; infinities, NaN and overflow as in C, denormal results too.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "compiler/ir/expr.h"

namespace temper {

// A function of one argument of a float type: ExprKind from kExp on. Null for a kind that is none.
llvm::Value* EmitUnaryMath(llvm::IRBuilder<>& b, ir::ExprKind kind, llvm::Value* x);
// x to the power y, both of one float type; constant exponents 2, 3, 0.5, -0.5 and -1 without a call.
llvm::Value* EmitPow(llvm::IRBuilder<>& b, llvm::Value* x, llvm::Value* y);
// a > b ? a : b and a < b ? a : b, on floats and (with `is_unsigned`) integers: one instruction on vectors.
// A constant operand goes first, so that a NaN beside it comes through.
llvm::Value* EmitMax(llvm::IRBuilder<>& b, llvm::Value* a, llvm::Value* c, bool is_unsigned);
llvm::Value* EmitMin(llvm::IRBuilder<>& b, llvm::Value* a, llvm::Value* c, bool is_unsigned);

}  // namespace temper
