#include "compiler/ir/expr.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "compiler/ir/interpreter_value.h"
#include "compiler/ir/walk.h"

namespace temper::ir {
namespace {

constexpr std::string_view kNames[] = {"int",    "float", "var", "load", "add",  "sub",  "mul",   "div",  "mod",
                                       "min",    "max",   "pow", "lt",   "le",   "eq",   "and",   "or",   "not",
                                       "select", "cast",  "exp", "log",  "tanh", "erf",  "sqrt",  "abs",  "floor",
                                       "ceil",   "round", "sin", "cos",  "tf32", "pair", "dot16", "dot8", "bitand"};
static_assert(std::size(kNames) == static_cast<size_t>(ExprKind::kBitAnd) + 1);

Expr Make(ExprKind kind, DType dtype, std::vector<Expr> args) {
  auto node = std::make_shared<ExprNode>();
  node->kind = kind;
  node->dtype = dtype;
  node->args = std::move(args);
  return Expr(std::move(node));
}

bool IsComparison(ExprKind kind) { return kind == ExprKind::kLt || kind == ExprKind::kLe || kind == ExprKind::kEq; }
bool IsLogic(ExprKind kind) { return kind == ExprKind::kAnd || kind == ExprKind::kOr; }

DType ResultOf(ExprKind binary, DType operands) {
  if (IsComparison(binary) || IsLogic(binary)) return DType::kBool;
  if (binary != ExprKind::kPair) return operands;
  return operands == DType::kI16 ? DType::kI32 : DType::kI16;
}

// As the interpreter computes it; nothing where an i64 overflows or a division is by zero.
std::optional<int64_t> FoldInt(ExprKind kind, int64_t a, int64_t b) {
  int64_t r = 0;
  switch (kind) {
    case ExprKind::kAdd:
      return __builtin_add_overflow(a, b, &r) ? std::nullopt : std::optional(r);
    case ExprKind::kSub:
      return __builtin_sub_overflow(a, b, &r) ? std::nullopt : std::optional(r);
    case ExprKind::kMul:
      return __builtin_mul_overflow(a, b, &r) ? std::nullopt : std::optional(r);
    case ExprKind::kDiv:
      return b == 0 || b == -1 ? std::nullopt : std::optional(IntBinary(kind, a, b));
    case ExprKind::kMod:
      return b == 0 ? std::nullopt : std::optional(IntBinary(kind, a, b));
    case ExprKind::kMin:
    case ExprKind::kMax:
    case ExprKind::kLt:
    case ExprKind::kLe:
    case ExprKind::kEq:
    case ExprKind::kBitAnd:
      return IntBinary(kind, a, b);
    default:
      return std::nullopt;
  }
}

std::optional<double> FoldFloat(ExprKind kind, double a, double b) {
  switch (kind) {
    case ExprKind::kAdd:
    case ExprKind::kSub:
    case ExprKind::kMul:
    case ExprKind::kDiv:
    case ExprKind::kMin:
    case ExprKind::kMax:
      return FloatBinary(kind, a, b);
    case ExprKind::kLt:
      return a < b;
    case ExprKind::kLe:
      return a <= b;
    case ExprKind::kEq:
      return a == b;
    default:
      return std::nullopt;
  }
}

bool IsConst(const Expr& e, double value) {
  return (e->kind == ExprKind::kInt && static_cast<double>(e->int_value) == value) ||
         (e->kind == ExprKind::kFloat && e->float_value == value);
}

// x+0, x-0, x*1, x/1 and, for integers, x*0 and x%1; an empty Expr where none applies.
Expr DropNeutral(ExprKind kind, const Expr& a, const Expr& b) {
  bool integer = !IsFloat(a->dtype);
  switch (kind) {
    case ExprKind::kAdd:
      if (IsConst(a, 0)) return b;
      return IsConst(b, 0) ? a : Expr();
    case ExprKind::kSub:
      return IsConst(b, 0) ? a : Expr();
    case ExprKind::kMul:
      if (IsConst(a, 1)) return b;
      if (IsConst(b, 1)) return a;
      return integer && (IsConst(a, 0) || IsConst(b, 0)) ? Int(0, a->dtype) : Expr();
    case ExprKind::kDiv:
      return IsConst(b, 1) ? a : Expr();
    case ExprKind::kMod:
      return integer && IsConst(b, 1) ? Int(0, a->dtype) : Expr();
    case ExprKind::kAnd:
      if (a->kind == ExprKind::kInt) return a->int_value ? b : a;
      if (b->kind == ExprKind::kInt) return b->int_value ? a : b;
      return Expr();
    case ExprKind::kOr:
      if (a->kind == ExprKind::kInt) return a->int_value ? a : b;
      if (b->kind == ExprKind::kInt) return b->int_value ? b : a;
      return Expr();
    default:
      return Expr();
  }
}

// An index constant beside another dtype takes that dtype: `x * 2` reads naturally for a float x.
void AdoptDType(Expr& constant, const Expr& other) {
  if (constant->kind == ExprKind::kInt && constant->dtype == DType::kI64 && other->dtype != DType::kI64) {
    constant = Const(static_cast<double>(constant->int_value), other->dtype);
  }
}

// Nodes reached by several paths are rebuilt once, so sharing survives and costs nothing.
using Memo = std::unordered_map<const ExprNode*, Expr>;

Expr RewriteWithMemo(const Expr& e, const std::function<Expr(const Expr&)>& f, Memo& memo) {
  bool shared = e.shared() && !e->args.empty();
  if (shared) {
    if (auto it = memo.find(e.get()); it != memo.end()) return it->second;
  }
  Expr rebuilt = e;
  if (!e->args.empty()) {
    std::vector<Expr> args;
    args.reserve(e->args.size());
    bool changed = false;
    for (const Expr& arg : e->args) {
      args.push_back(RewriteWithMemo(arg, f, memo));
      changed |= args.back().get() != arg.get();
    }
    if (changed) rebuilt = WithArgs(e, std::move(args));
  }
  if (Expr replaced = f(rebuilt)) rebuilt = std::move(replaced);
  if (shared) memo.emplace(e.get(), rebuilt);
  return rebuilt;
}

// Nodes that were met.
using Seen = std::unordered_set<const ExprNode*>;

bool AnyNode(const Expr& e, const std::function<bool(const Expr&)>& holds, Seen& seen) {
  if (e.shared() && !e->args.empty() && !seen.insert(e.get()).second) return false;
  return holds(e) || std::ranges::any_of(e->args, [&](const Expr& arg) { return AnyNode(arg, holds, seen); });
}

// Pairs of nodes that are equal, as long as no pair was found that is not.
using Compared = std::set<std::pair<const ExprNode*, const ExprNode*>>;

bool Equal(const Expr& a, const Expr& b, Compared& compared) {
  if (a.get() == b.get()) return true;
  if (a->kind != b->kind || a->dtype != b->dtype || a->int_value != b->int_value || a->var != b->var ||
      a->buffer != b->buffer || a->cast_mode != b->cast_mode || a->args.size() != b->args.size()) {
    return false;
  }
  bool same_float = a->float_value == b->float_value || (std::isnan(a->float_value) && std::isnan(b->float_value));
  if (!same_float || std::signbit(a->float_value) != std::signbit(b->float_value)) return false;
  if (a.shared() && b.shared() && !a->args.empty() && !compared.emplace(a.get(), b.get()).second) return true;
  return std::equal(a->args.begin(), a->args.end(), b->args.begin(),
                    [&](const Expr& x, const Expr& y) { return Equal(x, y, compared); });
}

}  // namespace

std::string_view Name(ExprKind kind) { return kNames[static_cast<int>(kind)]; }

Var MakeVar(std::string name) { return std::make_shared<VarNode>(VarNode{std::move(name)}); }

Buffer MakeBuffer(std::string name, DType dtype, Shape shape, Scope scope) {
  return std::make_shared<BufferNode>(BufferNode{std::move(name), dtype, std::move(shape), scope});
}

Expr::Expr(int v) : Expr(Int(v)) {}
Expr::Expr(int64_t v) : Expr(Int(v)) {}
Expr::Expr(const Var& v) {
  auto node = std::make_shared<ExprNode>();
  node->kind = ExprKind::kVar;
  node->dtype = DType::kI64;
  node->var = v;
  node_ = std::move(node);
}

Expr Int(int64_t v, DType dtype) {
  auto node = std::make_shared<ExprNode>();
  node->kind = ExprKind::kInt;
  node->dtype = dtype;
  node->int_value = WrapInteger(dtype, v);
  return Expr(std::move(node));
}

Expr Bool(bool v) { return Int(v, DType::kBool); }

Expr Float(double v, DType dtype) {
  auto node = std::make_shared<ExprNode>();
  node->kind = ExprKind::kFloat;
  node->dtype = dtype;
  node->float_value = dtype == DType::kF64 ? v : DecodeFloat(dtype, EncodeFloat(dtype, v));
  return Expr(std::move(node));
}

Expr Const(double v, DType dtype) {
  return IsFloat(dtype) ? Float(v, dtype) : Int(dtype == DType::kBool ? v != 0 : static_cast<int64_t>(v), dtype);
}

Expr Load(const Buffer& buffer, std::vector<Expr> indices) {
  auto node = std::make_shared<ExprNode>();
  node->kind = ExprKind::kLoad;
  node->dtype = buffer->dtype;
  node->buffer = buffer;
  node->args = std::move(indices);
  return Expr(std::move(node));
}

Expr Binary(ExprKind kind, Expr a, Expr b) {
  AdoptDType(a, b);
  AdoptDType(b, a);
  const DType result = ResultOf(kind, a->dtype);
  // The upper half of u64 comes as negative numbers, which only equality takes for what they are.
  const bool orderly = a->dtype != DType::kU64 || (a->int_value >= 0 && b->int_value >= 0);
  if (a->kind == ExprKind::kInt && b->kind == ExprKind::kInt && a->dtype == b->dtype && orderly) {
    if (auto folded = FoldInt(kind, a->int_value, b->int_value)) return Int(*folded, result);
  }
  if (a->kind == ExprKind::kFloat && b->kind == ExprKind::kFloat && a->dtype == b->dtype) {
    if (auto folded = FoldFloat(kind, a->float_value, b->float_value)) return Const(*folded, result);
  }
  if (a->dtype == b->dtype) {
    if (Expr kept = DropNeutral(kind, a, b)) return kept;
  }
  return Make(kind, result, {std::move(a), std::move(b)});
}

Expr Unary(ExprKind kind, Expr a) {
  if (kind == ExprKind::kNot) {
    if (a->kind == ExprKind::kInt) return Bool(a->int_value == 0);
    if (a->kind == ExprKind::kNot) return a->args[0];
  }
  DType result = kind == ExprKind::kNot ? DType::kBool : a->dtype;
  return Make(kind, result, {std::move(a)});
}

Expr Select(Expr cond, Expr a, Expr b) {
  if (cond->kind == ExprKind::kInt) return cond->int_value ? a : b;
  AdoptDType(a, b);
  AdoptDType(b, a);
  DType result = a->dtype;
  return Make(ExprKind::kSelect, result, {std::move(cond), std::move(a), std::move(b)});
}

Expr Cast(Expr a, DType dtype, CastMode mode) {
  if (a->dtype == dtype) return a;
  const bool known = a->kind == ExprKind::kInt && (a->dtype != DType::kU64 || a->int_value >= 0);
  if (known) {
    const auto value = static_cast<double>(a->int_value);
    if (!IsFloat(dtype)) return Int(a->int_value, dtype);
    return Float(IsNarrowFloat(dtype) ? DecodeFloat(dtype, EncodeFloat(dtype, value, mode)) : value, dtype);
  }
  if (a->kind == ExprKind::kFloat && (IsFloat(dtype) || dtype == DType::kBool || std::abs(a->float_value) < 1e18)) {
    if (IsNarrowFloat(dtype)) return Float(DecodeFloat(dtype, EncodeFloat(dtype, a->float_value, mode)), dtype);
    return Const(a->float_value, dtype);
  }
  auto node = std::make_shared<ExprNode>();
  node->kind = ExprKind::kCast;
  node->dtype = dtype;
  node->cast_mode = mode;
  node->args = {std::move(a)};
  return Expr(std::move(node));
}

Expr operator+(Expr a, Expr b) { return Binary(ExprKind::kAdd, std::move(a), std::move(b)); }
Expr operator-(Expr a, Expr b) { return Binary(ExprKind::kSub, std::move(a), std::move(b)); }
Expr operator*(Expr a, Expr b) { return Binary(ExprKind::kMul, std::move(a), std::move(b)); }
Expr operator/(Expr a, Expr b) { return Binary(ExprKind::kDiv, std::move(a), std::move(b)); }
Expr operator%(Expr a, Expr b) { return Binary(ExprKind::kMod, std::move(a), std::move(b)); }
Expr operator<(Expr a, Expr b) { return Binary(ExprKind::kLt, std::move(a), std::move(b)); }
Expr operator<=(Expr a, Expr b) { return Binary(ExprKind::kLe, std::move(a), std::move(b)); }
Expr Eq(Expr a, Expr b) { return Binary(ExprKind::kEq, std::move(a), std::move(b)); }
Expr And(Expr a, Expr b) { return Binary(ExprKind::kAnd, std::move(a), std::move(b)); }
Expr Or(Expr a, Expr b) { return Binary(ExprKind::kOr, std::move(a), std::move(b)); }
Expr Not(Expr a) { return Unary(ExprKind::kNot, std::move(a)); }
Expr Min(Expr a, Expr b) { return Binary(ExprKind::kMin, std::move(a), std::move(b)); }
Expr Max(Expr a, Expr b) { return Binary(ExprKind::kMax, std::move(a), std::move(b)); }

std::optional<int64_t> AsInt(const Expr& e) {
  if (e && e->kind == ExprKind::kInt) return e->int_value;
  return std::nullopt;
}

Expr WithArgs(const Expr& e, std::vector<Expr> args) {
  switch (e->kind) {
    case ExprKind::kLoad:
      return Load(e->buffer, std::move(args));
    case ExprKind::kSelect:
      return Select(args[0], args[1], args[2]);
    case ExprKind::kCast:
      return Cast(args[0], e->dtype, e->cast_mode);
    default:
      return args.size() == 2 ? Binary(e->kind, args[0], args[1]) : Unary(e->kind, args[0]);
  }
}

Expr Rewrite(const Expr& e, const std::function<Expr(const Expr&)>& f) {
  Memo memo;
  return RewriteWithMemo(e, f, memo);
}

void Visit(const Expr& e, const std::function<void(const Expr&)>& f) {
  Seen seen;
  AnyNode(
      e,
      [&](const Expr& node) {
        f(node);
        return false;
      },
      seen);
}

bool AnyNode(const Expr& e, const std::function<bool(const Expr&)>& holds) {
  Seen seen;
  return AnyNode(e, holds, seen);
}

bool HasLoad(const Expr& e) {
  return AnyNode(e, [](const Expr& node) { return node->kind == ExprKind::kLoad; });
}

bool LoadsFrom(const Expr& e, const Buffer& buffer) {
  return AnyNode(e, [&](const Expr& node) { return node->kind == ExprKind::kLoad && node->buffer == buffer; });
}

bool UsesVar(const Expr& e, const Var& v) {
  return AnyNode(e, [&](const Expr& node) { return node->kind == ExprKind::kVar && node->var == v; });
}

bool StructurallyEqual(const Expr& a, const Expr& b) {
  Compared compared;
  return Equal(a, b, compared);
}

Expr Substitute(const Expr& e, const std::vector<VarBinding>& bindings) {
  if (bindings.empty()) return e;
  return Rewrite(e, [&](const Expr& node) {
    if (node->kind != ExprKind::kVar) return Expr();
    for (const VarBinding& binding : bindings) {
      if (binding.var == node->var) return binding.value;
    }
    return Expr();
  });
}

}  // namespace temper::ir
