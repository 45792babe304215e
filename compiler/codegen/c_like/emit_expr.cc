// Expressions. What they mean is what the interpreter makes of them (ir/interpreter.cc).
#include <array>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/c_like/emitter.h"

namespace temper {

using ir::Expr;
using ir::ExprKind;

namespace {

bool FitsInt(const std::optional<ir::Interval>& range) {
  return range.has_value() && range->min >= INT32_MIN && range->max <= INT32_MAX;
}

std::string Call(const std::string& function, const std::string& a) { return absl::StrCat(function, "(", a, ")"); }
std::string Call(const std::string& function, const std::string& a, const std::string& b) {
  return absl::StrCat(function, "(", a, ", ", b, ")");
}
std::string Infix(const std::string& a, const char* op, const std::string& b) {
  return absl::StrCat("(", a, " ", op, " ", b, ")");
}
std::string Converted(const std::string& type, const std::string& value) { return absl::StrCat("(", type, ")", value); }

}  // namespace

bool KernelEmitter::IsWide(const Expr& e) {
  if (e->dtype != DType::kI64) return false;
  const auto [known, is_new] = wide_.try_emplace(e.get(), e, true);
  // The answer holds for the whole kernel: a variable has one loop, and so one range.
  if (is_new) known->second.second = !FitsInt(ranges_.Bounds(e));
  return known->second.second;
}

std::string KernelEmitter::TypeOf(const Expr& e) {
  return e->dtype == DType::kI64 && !IsWide(e) ? "int" : ValueType(e->dtype);
}

std::string KernelEmitter::As(const Expr& e, bool wide) {
  const std::string value = Value(e);
  if (e->dtype != DType::kI64 || IsWide(e) == wide) return value;
  return Converted(wide ? "long" : "int", value);
}

std::string KernelEmitter::Node(const Expr& e) {
  switch (e->kind) {
    case ExprKind::kInt:
      return IntLiteral(e->int_value, e->dtype == DType::kI64 && !IsWide(e) ? DType::kI32 : e->dtype);
    case ExprKind::kFloat:
      return FloatLiteral(e->float_value, e->dtype);
    case ExprKind::kVar: {
      const auto name = names_.find(e->var.get());
      return name == names_.end() ? Fail(absl::StrCat("variable ", e->var->name, " outside its loop")) : name->second;
    }
    case ExprKind::kLoad:
      return Load(e);
    case ExprKind::kAdd:
    case ExprKind::kSub:
    case ExprKind::kMul:
      return Arithmetic(e);
    case ExprKind::kDiv:
    case ExprKind::kMod:
      return DivMod(e);
    case ExprKind::kMin:
    case ExprKind::kMax:
      return MinMax(e);
    case ExprKind::kPow:
      return Pow(e);
    case ExprKind::kLt:
    case ExprKind::kLe:
    case ExprKind::kEq:
      return Compare(e);
    case ExprKind::kAnd:
      return Infix(Value(e->args[0]), "&&", Value(e->args[1]));
    case ExprKind::kOr:
      return Infix(Value(e->args[0]), "||", Value(e->args[1]));
    case ExprKind::kBitAnd:
      return Infix(Value(e->args[0]), "&", Value(e->args[1]));
    case ExprKind::kNot:
      return "!" + Value(e->args[0]);
    case ExprKind::kSelect:
      return Select(e);
    case ExprKind::kCast:
      return Cast(e);
    default:
      return Function(e);
  }
}

// --- memory

std::string KernelEmitter::Load(const Expr& e) {
  const ir::Buffer& buffer = e->buffer;
  if (IsPacked(e->dtype)) {
    const Expr flat = ranges_.Simplify(ir::FlatIndex(buffer, e->args));
    return Call(prelude_.LoadPacked(e->dtype, Space(buffer->scope)), NameOf(buffer.get(), buffer->name), Value(flat));
  }
  const std::string element = Element(buffer, e->args);
  return e->dtype == DType::kBool ? Infix(element, "!=", "0") : element;
}

// --- arithmetic

std::string KernelEmitter::Arithmetic(const Expr& e) {
  const char* op = e->kind == ExprKind::kAdd ? "+" : e->kind == ExprKind::kSub ? "-" : "*";
  if (!IsFloat(e->dtype)) return IntArithmetic(e, op);
  return Infix(Value(e->args[0]), op, Value(e->args[1]));
}

// What overflows wraps, which in C unsigned integers alone do.
std::string KernelEmitter::IntArithmetic(const Expr& e, const char* op) {
  const Expr &a = e->args[0], &b = e->args[1];
  switch (e->dtype) {
    case DType::kU32:
    case DType::kU64:
      return Infix(Value(a), op, Value(b));
    case DType::kBool:
      return Infix(Infix(Value(a), op, Value(b)), "!=", "0");
    case DType::kI64: {
      const bool wide = IsWide(e) || IsWide(a) || IsWide(b);
      if (wide && !ranges_.Bounds(e).has_value())
        return Converted("long", Infix(Converted("ulong", As(a, true)), op, Converted("ulong", As(b, true))));
      const std::string result = Infix(As(a, wide), op, As(b, wide));
      return wide && !IsWide(e) ? Converted("int", result) : result;
    }
    default:
      return Converted(ValueType(e->dtype), Infix(Converted("uint", Value(a)), op, Converted("uint", Value(b))));
  }
}

std::string KernelEmitter::DivMod(const Expr& e) {
  const Expr &a = e->args[0], &b = e->args[1];
  const bool div = e->kind == ExprKind::kDiv;
  if (IsFloat(e->dtype)) {
    if (div) return Infix(Value(a), "/", Value(b));
    return Call(prelude_.FloatMod(ValueType(e->dtype)), Value(a), Value(b));
  }
  const bool wide = IsWide(e) || IsWide(a) || IsWide(b);
  const std::optional<int64_t> divisor = ir::AsInt(b);
  const std::optional<ir::Interval> range = ranges_.Bounds(a);
  const bool plain =
      divisor.has_value() && *divisor > 0 && (IsUnsigned(e->dtype) || (range.has_value() && range->min >= 0));
  std::string result;
  if (plain) {
    result = Infix(As(a, wide), div ? "/" : "%", As(b, wide));
  } else if (IsUnsigned(e->dtype)) {
    const std::string type = ValueType(e->dtype);
    result = Call(div ? prelude_.UnsignedDiv(type) : prelude_.UnsignedMod(type), Value(a), Value(b));
  } else {
    const std::string type = e->dtype == DType::kI64 ? (wide ? "long" : "int") : ValueType(e->dtype);
    result = Call(div ? prelude_.FloorDiv(type) : prelude_.FloorMod(type), As(a, wide), As(b, wide));
  }
  return wide && !IsWide(e) ? Converted("int", result) : result;
}

std::string KernelEmitter::MinMax(const Expr& e) {
  const Expr &a = e->args[0], &b = e->args[1];
  const bool least = e->kind == ExprKind::kMin;
  const std::string type = ValueType(e->dtype);
  if (IsFloat(e->dtype)) return Call(least ? prelude_.FloatMin(type) : prelude_.FloatMax(type), Value(a), Value(b));
  if (e->dtype == DType::kBool) return Infix(Value(a), least ? "&&" : "||", Value(b));
  const char* function = least ? "min" : "max";
  if (e->dtype != DType::kI64) return Call(function, Converted(type, Value(a)), Converted(type, Value(b)));
  const bool wide = IsWide(a) || IsWide(b);
  const std::string result = Call(function, As(a, wide), As(b, wide));
  return wide == IsWide(e) ? result : Converted(wide ? "int" : "long", result);
}

std::string KernelEmitter::Pow(const Expr& e) {
  const std::string x = Value(e->args[0]), type = ValueType(e->dtype);
  const Expr& y = e->args[1];
  if (y->kind == ExprKind::kFloat) {
    if (y->float_value == 2) return Call(prelude_.Square(type), x);
    if (y->float_value == 0.5) return Call(dialect_.math("sqrt", type), x);
    if (y->float_value == -0.5) return Infix(FloatLiteral(1, e->dtype), "/", Call(dialect_.math("sqrt", type), x));
    if (y->float_value == -1) return Infix(FloatLiteral(1, e->dtype), "/", x);
  }
  return Call(dialect_.math("pow", type), x, Value(y));
}

std::string KernelEmitter::Compare(const Expr& e) {
  const char* op = e->kind == ExprKind::kLt ? "<" : e->kind == ExprKind::kLe ? "<=" : "==";
  return Infix(Value(e->args[0]), op, Value(e->args[1]));
}

std::string KernelEmitter::Select(const Expr& e) {
  const bool wide = IsWide(e);
  return absl::StrCat("(", Value(e->args[0]), " ? ", As(e->args[1], wide), " : ", As(e->args[2], wide), ")");
}

// --- casts

std::string KernelEmitter::Cast(const Expr& e) {
  const DType to = e->dtype;
  DType from = e->args[0]->dtype;
  std::string value = Value(e->args[0]);
  if (from == to) return value;
  if (IsNarrowFloat(from)) {
    value = Call(prelude_.Decode(from), value);
    from = DType::kF32;
  }
  if (IsNarrowFloat(to)) {
    if (!IsFloat(from)) {
      from = Info(from).bits > 16 ? DType::kF64 : DType::kF32;  // rounded once
      value = Converted(ValueType(from), value);
    }
    if (to == DType::kF8E8M0 && from == DType::kF64) {
      from = DType::kF32;
      value = Converted("float", value);
    }
    return Call(prelude_.Encode(to, ValueType(from), e->cast_mode), value);
  }
  if (from == to) return value;
  if (to == DType::kBool) return Infix(value, "!=", "0");
  if (IsFloat(to)) return Converted(ValueType(to), value);
  if (IsFloat(from)) {
    const std::string type = ValueType(from);
    value = Call(to == DType::kU64 ? prelude_.ToUlong(type) : prelude_.ToLong(type), value);
  }
  if (!IsPacked(to)) return Converted(TypeOf(e), value);
  const int bits = Info(to).bits;
  if (IsUnsigned(to)) return Converted("uchar", Infix(value, "&", absl::StrCat((1 << bits) - 1)));
  const std::string up = Infix(Converted("uint", value), "<<", absl::StrCat(32 - bits));
  return Converted("char", Infix(Converted("int", up), ">>", absl::StrCat(32 - bits)));
}

// --- functions of one argument

std::string KernelEmitter::Function(const Expr& e) {
  const std::string x = Value(e->args[0]);
  if (!IsFloat(e->dtype)) {
    if (e->kind != ExprKind::kAbs) return Fail(absl::StrCat(std::string(ir::Name(e->kind)), " of integers"));
    if (IsUnsigned(e->dtype)) return x;
    const std::string type = TypeOf(e);
    return Converted(type, Call("abs", Converted(TypeOf(e->args[0]), x)));
  }
  if (e->kind == ExprKind::kTf32) return Call(WarpFunction("temper_round_to_tf32"), x);
  // In the order of ExprKind, from kExp on.
  constexpr std::array kFunctions = {"exp",   "log",  "tanh", "erf", "sqrt", "fabs",
                                     "floor", "ceil", "rint", "sin", "cos"};
  static_assert(kFunctions.size() == static_cast<size_t>(ExprKind::kCos) - static_cast<size_t>(ExprKind::kExp) + 1);
  const char* function = kFunctions[static_cast<size_t>(e->kind) - static_cast<size_t>(ExprKind::kExp)];
  return Call(dialect_.math(function, ValueType(e->dtype)), x);
}

}  // namespace temper
