// Mathematical functions in LLVM IR, for scalars and vectors of f32; f64 and the rare ones call libm a lane at
// a time. Infinities, NaN, overflow and denormal results as in C. The largest errors in f32, in units in the last place
// of the result, with or without fused multiply-add (tests/codegen/math_test.cc holds them against libm):
//   exp 1.25   log 1   tanh 2.75   erf 2   sqrt 0.5   power -0.5 (1 / sqrt) 1.5
//   sin 2 and cos 2, beside 2^-25: near their zeros pi's digits end (beyond 8192 they are libm's)
// and of operators made of them (compiler/ops/families/unary.cc):
//   sigmoid 2.75, but 0 where e^-x overflows (x < -88.6), and silu likewise
//   hard_sigmoid 1 and hard_swish 1.5 of the argument
//   gelu, in both forms: 2 of the argument, since erf and tanh round to -1 far to the left
//   softplus 2 and elu 1, beside 2^-23: they subtract or add 1
// Vectors of 512 bits allow exp, sigmoid and silu |x| / 25 more, AVX2 sigmoid and silu: ln(2) is subtracted in one
// step.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "compiler/ir/expr.h"

namespace temper {

// A function of one argument of a float type: ExprKind from kExp on. Null for a kind that is none.
llvm::Value* EmitUnaryMath(llvm::IRBuilder<>& b, ir::ExprKind kind, llvm::Value* x);
// 1 + e^x of f32, as sigmoid and silu have it, faster than by e^x; null where the target or the width has nothing
// faster.
llvm::Value* EmitOnePlusExp(llvm::IRBuilder<>& b, llvm::Value* x);
// x to the power y, both of one float type; constant exponents 2, 3, 0.5, -0.5 and -1 without a call.
llvm::Value* EmitPow(llvm::IRBuilder<>& b, llvm::Value* x, llvm::Value* y);
// ExprKind::kDot16 or kDot8 of two i32, or vectors of them; with `sum` added, if it is not null. `seven_bits`: x's
// bytes are below 128.
llvm::Value* EmitDot(llvm::IRBuilder<>& b, ir::ExprKind kind, llvm::Value* x, llvm::Value* y, llvm::Value* sum,
                     bool seven_bits);
// a > b ? a : b and a < b ? a : b, on floats and (with `is_unsigned`) integers: one instruction on vectors.
// A constant operand goes first, so that a NaN beside it comes through.
llvm::Value* EmitMax(llvm::IRBuilder<>& b, llvm::Value* a, llvm::Value* c, bool is_unsigned);
llvm::Value* EmitMin(llvm::IRBuilder<>& b, llvm::Value* a, llvm::Value* c, bool is_unsigned);

}  // namespace temper
