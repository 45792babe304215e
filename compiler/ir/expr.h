// Expressions: immutable trees of one node type, shared freely. Indices are kI64 and exact; `/` and `%` on integers
// are floor division and floor modulo (for every sign), `/` on floats is true division.
// Comparisons give kBool. All arithmetic is between equal dtypes that have it (IsNative); others are loaded, selected,
// stored and cast. Cast converts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ndarray.h"

namespace temper::ir {

struct BufferNode;
using Buffer = std::shared_ptr<const BufferNode>;

// A loop or iteration variable. Identity is the pointer, the name is for people. Always kI64.
struct VarNode {
  std::string name;
};
using Var = std::shared_ptr<const VarNode>;
Var MakeVar(std::string name);

enum class ExprKind : uint8_t {
  kInt,
  kFloat,
  kVar,
  kLoad,  // leaves; bool constants are kInt of dtype kBool
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMod,
  kMin,
  kMax,
  kPow,  // arithmetic, two args
  kLt,
  kLe,
  kEq,
  kAnd,
  kOr,
  kNot,  // logic
  kSelect,
  kCast,  // select(cond, a, b) evaluates lazily: the branch not taken is not loaded
  kExp,
  kLog,
  kTanh,
  kErf,
  kSqrt,
  kAbs,
  kFloor,
  kCeil,
  kRound,
  kSin,
  kCos,  // float functions, one arg; round is half to even
  // Of f32 alone: rounded to TF32, a float of f32's exponents with 10 bits of mantissa; to the nearest, ties away from
  // zero.
  kTf32,
  // Two numbers as one of twice their bits, the first in its lower half: of 8 bits as an i16, of i16 as an i32.
  kPair,
  // Of two i32 the products of their lower halves and of their upper halves, as i16, added. It wraps.
  kDot16,
  // The products of their four bytes, of the first one unsigned and of the second one signed, added. It wraps.
  kDot8,
  kBitAnd,  // of two integers of one type the bits that both have
};
std::string_view Name(ExprKind kind);

struct ExprNode;
class Expr {
 public:
  Expr() = default;
  Expr(int v);         // NOLINT: constants read naturally in index arithmetic
  Expr(int64_t v);     // NOLINT
  Expr(const Var& v);  // NOLINT
  explicit Expr(std::shared_ptr<const ExprNode> node) : node_(std::move(node)) {}
  const ExprNode* operator->() const { return node_.get(); }
  const ExprNode& operator*() const { return *node_; }
  const ExprNode* get() const { return node_.get(); }
  explicit operator bool() const { return node_ != nullptr; }
  bool shared() const { return node_.use_count() > 1; }  // a hint for memo tables: another Expr holds this node too

 private:
  std::shared_ptr<const ExprNode> node_;
};

struct ExprNode {
  ExprKind kind;
  DType dtype;
  int64_t int_value = 0;   // kInt
  double float_value = 0;  // kFloat
  CastMode cast_mode;      // kCast
  Var var;                 // kVar
  Buffer buffer;           // kLoad; args are the indices, one per dimension of the buffer
  std::vector<Expr> args;
};

// Where an array lives. Memory is the host's, or a device's global memory. `register` arrays have only constant indices
// once unrolled loops are expanded and vectorised ones are lanes; each element (or vector of lanes along the last
// dimension) becomes an SSA value. `tile` arrays hold sums in a CPU's matrix tiles, and tile loops alone touch them.
// `shared` arrays belong to a group of threads on a device; see launch.h.
enum class Scope : uint8_t { kMemory, kRegister, kShared, kTile };

struct BufferNode {
  std::string name;
  DType dtype;
  Shape shape;  // physical, dense, row-major
  Scope scope = Scope::kMemory;
};
Buffer MakeBuffer(std::string name, DType dtype, Shape shape, Scope scope = Scope::kMemory);

// Constructors. The binary ones fold constants and drop neutral elements, nothing more (see simplify.h). An i64
// constant beside an operand of another dtype takes that dtype.
Expr Int(int64_t v, DType dtype = DType::kI64);
Expr Bool(bool v);
Expr Float(double v, DType dtype = DType::kF32);
Expr Const(double v, DType dtype);  // Int or Float by dtype
Expr Load(const Buffer& buffer, std::vector<Expr> indices);
Expr Binary(ExprKind kind, Expr a, Expr b);
Expr Unary(ExprKind kind, Expr a);
Expr Select(Expr cond, Expr a, Expr b);
Expr Cast(Expr a, DType dtype, CastMode mode = {});
Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator*(Expr a, Expr b);
Expr operator/(Expr a, Expr b);
Expr operator%(Expr a, Expr b);
Expr operator<(Expr a, Expr b);
Expr operator<=(Expr a, Expr b);
Expr Eq(Expr a, Expr b);
Expr And(Expr a, Expr b);
Expr Or(Expr a, Expr b);
Expr Not(Expr a);
Expr Min(Expr a, Expr b);
Expr Max(Expr a, Expr b);
inline Expr Exp(Expr a) { return Unary(ExprKind::kExp, std::move(a)); }
inline Expr Sqrt(Expr a) { return Unary(ExprKind::kSqrt, std::move(a)); }
inline Expr Tf32(Expr a) { return Unary(ExprKind::kTf32, std::move(a)); }

inline Expr Pair(Expr a, Expr b) { return Binary(ExprKind::kPair, std::move(a), std::move(b)); }
inline Expr Dot16(Expr a, Expr b) { return Binary(ExprKind::kDot16, std::move(a), std::move(b)); }
inline Expr Dot8(Expr a, Expr b) { return Binary(ExprKind::kDot8, std::move(a), std::move(b)); }
inline Expr BitAnd(Expr a, Expr b) { return Binary(ExprKind::kBitAnd, std::move(a), std::move(b)); }

// The constant's value, if `e` is an integer constant.
std::optional<int64_t> AsInt(const Expr& e);

// `e` with other arguments, folded as its constructor folds.
Expr WithArgs(const Expr& e, std::vector<Expr> args);

// Rebuilds `e` bottom-up: `f` sees each node after its args were rebuilt and returns a replacement, or an empty Expr
// to keep it. A node that several parents share is rebuilt once.
Expr Rewrite(const Expr& e, const std::function<Expr(const Expr&)>& f);
void Visit(const Expr& e, const std::function<void(const Expr&)>& f);  // pre-order; nodes that are shared once
bool UsesVar(const Expr& e, const Var& v);
bool StructurallyEqual(const Expr& a, const Expr& b);

// Simultaneous substitution of variables.
struct VarBinding {
  Var var;
  Expr value;
};
Expr Substitute(const Expr& e, const std::vector<VarBinding>& bindings);

std::string Text(const Expr& e);  // "A[i*16 + j] + 1.5"

}  // namespace temper::ir
