// Numbers as the interpreter holds them, and its arithmetic, by which constants are folded too.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "compiler/ir/expr.h"

namespace temper::ir {

// An expression's type says which of them it is: floats of all types are doubles, all else is an integer.
union Value {
  int64_t i;
  double f;
};
inline Value OfInt(int64_t i) { return Value{.i = i}; }
inline Value OfFloat(double f) { return Value{.f = f}; }

double Round(double v, DType dtype);
double FloatOf(Value v, DType from);
Value CastValue(Value v, DType from, DType to, CastMode mode);

// Division by zero gives 0, so that a wrong nest is an error elsewhere rather than a trap.
int64_t IntBinary(ExprKind kind, int64_t a, int64_t b);
int64_t PairOf(int64_t lower, int64_t upper, int bits);       // of so many bits each
int64_t UnsignedBinary(ExprKind kind, int64_t a, int64_t b);  // of u64, whose upper half comes as negative numbers
double FloatBinary(ExprKind kind, double a, double b);
double FloatUnary(ExprKind kind, double a);
double TruncateToTf32(double v);  // an f32, without what TF32 does not hold of it

// Element `i` of an array that begins at `data`.
Value ReadElement(const char* data, int64_t i, DType dtype);
void WriteElement(char* data, int64_t i, DType dtype, Value v);

}  // namespace temper::ir
