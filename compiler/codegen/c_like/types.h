// How elements and numbers are written, and the functions that generated kernels call beside their language's own.
// Floats narrower than f32 travel as the integers that their bits make, as base/dtype.h has them.
#pragma once

#include <set>
#include <string>

#include "base/dtype.h"
#include "compiler/codegen/c_like/dialect.h"

namespace temper {

std::string ValueType(DType dtype);           // of a variable: "float", "bool"
std::string MemoryType(DType dtype);          // of what a pointer points to: a bool is a byte; packed ones are bytes
int64_t ElementsOf(const ir::Buffer& array);  // of the type that memory has it in
// Constants of the type. A narrow float's are its bits.
std::string IntLiteral(int64_t v, DType dtype);
std::string FloatLiteral(double v, DType dtype);

// What stands before the kernels of a program: the functions that were asked for, each once, after those it calls.
class Prelude {
 public:
  explicit Prelude(const Dialect& dialect) : dialect_(dialect) {}
  const Dialect& dialect() const { return dialect_; }
  std::string text() const { return std::string(dialect_.head) + text_; }

  // The functions return the name of one, and see that it is there. Their contracts are the interpreter's
  // (ir/interpreter.cc).
  std::string FloorDiv(const std::string& type);  // of a signed integer type; by zero: 0
  std::string FloorMod(const std::string& type);
  std::string UnsignedDiv(const std::string& type);
  std::string UnsignedMod(const std::string& type);
  std::string FloatMin(const std::string& type);  // NaN wins
  std::string FloatMax(const std::string& type);
  std::string FloatMod(const std::string& type);
  std::string Square(const std::string& type);
  std::string ToLong(const std::string& float_type);  // toward zero; NaN is 0, what does not fit the nearest
  std::string ToUlong(const std::string& float_type);
  std::string Decode(DType narrow);                                                // bits -> float
  std::string Encode(DType narrow, const std::string& float_type, CastMode mode);  // float or double -> bits
  std::string LoadPacked(DType packed, const std::string& space);                  // (pointer, element) -> value
  // Text as it is, once by that name.
  void AddText(const std::string& name, const std::string& text);

 private:
  // Adds a function unless it is there; `text` begins behind its name.
  std::string Add(const std::string& result, const std::string& name, const std::string& text);

  const Dialect& dialect_;
  std::set<std::string> names_;
  std::string text_;
};

}  // namespace temper
