// Expressions.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/llvm/emitter.h"
#include "compiler/codegen/llvm/math.h"
#include "compiler/codegen/llvm/narrow_float.h"

namespace temper {

using ir::Expr;
using ir::ExprKind;
using llvm::Value;

namespace {

bool IsPowerOfTwo(int64_t v) { return v > 0 && (v & (v - 1)) == 0; }

llvm::Type* Like(llvm::Type* element, Value* v) {
  auto* vector = llvm::dyn_cast<llvm::VectorType>(v->getType());
  return vector == nullptr ? element : llvm::VectorType::get(element, vector);
}

bool IsDot(ExprKind kind) { return kind == ExprKind::kDot16 || kind == ExprKind::kDot8; }

// Whether none of an i32's bytes has its highest bit.
bool HasSevenBits(const ir::ExprNode& e) {
  constexpr int64_t kHighest = 0x80808080;
  const ir::ExprNode& mask = e.kind == ExprKind::kBitAnd ? *e.args[1] : e;
  return mask.kind == ExprKind::kInt && (mask.int_value & kHighest) == 0;
}

bool IsOnePlusExp(const ir::ExprNode& e) {
  const ir::ExprNode& a = *e.args[0];
  return e.kind == ExprKind::kAdd && a.kind == ExprKind::kFloat && a.float_value == 1.0 &&
         e.args[1]->kind == ExprKind::kExp;
}

constexpr int64_t kNarrow = int64_t{1} << 30;

bool FitsNarrow(const std::optional<ir::Interval>& range) {
  return range.has_value() && range->min > -kNarrow && range->max < kNarrow;
}

}  // namespace

bool Emitter::DependsOnLane(const Expr& e) const {
  return lanes_.count > 0 && (ir::UsesVar(e, lanes_.var) || ir::UsesVar(e, lanes_.local));
}

Expr Emitter::Resolve(const Expr& e) {
  auto found = vars_of_.find(e.get());
  if (found == vars_of_.end()) {
    std::vector<ir::Var> vars;
    ir::Visit(e, [&vars](const Expr& node) {
      if (node->kind == ExprKind::kVar && std::ranges::find(vars, node->var) == vars.end()) vars.push_back(node->var);
    });
    found = vars_of_.emplace(e.get(), std::move(vars)).first;
  }
  std::vector<ir::VarBinding> values;
  std::vector<int64_t> key;
  for (const ir::Var& v : found->second) {
    auto it = bindings_.find(v.get());
    if (it == bindings_.end() || it->second.kind == Binding::kValue) continue;
    const Binding& binding = it->second;
    if (binding.kind == Binding::kLane && binding.constant == 0) continue;
    key.insert(key.end(), {binding.kind, binding.constant, lanes_.count});
    values.push_back({v, binding.kind == Binding::kConstant ? ir::Int(binding.constant)
                                                            : Expr(lanes_.local) + ir::Int(binding.constant)});
  }
  if (values.empty()) return e;
  // Entries hold the expressions that they are keyed by elsewhere, so none of those is ever freed.
  Expr& result = resolved_[{e.get(), std::move(key)}];
  if (!result) result = ranges_.Simplify(ir::Substitute(e, values));
  return result;
}

Value* Emitter::Spread(Value* v) {
  if (lanes_.count == 0 || v->getType()->isVectorTy()) return v;
  return b_.CreateVectorSplat(static_cast<unsigned>(lanes_.count), v);
}

void Emitter::Match(Value*& a, Value*& c) {
  if (a->getType()->isVectorTy()) c = Spread(c);
  if (c->getType()->isVectorTy()) a = Spread(a);
}

Value* Emitter::Any(Value* mask) { return b_.CreateOrReduce(mask); }

Value* Emitter::EmitVector(const Expr& e) { return Spread(Emit(e)); }

Value* Emitter::Emit(const Expr& e) {
  if (!e.shared() || e->args.empty() || scopes_.empty()) return EmitNode(e);
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const auto known = scope->values.find(e.get()); known != scope->values.end()) return known->second.value;
    if (scope->closed) break;
  }
  Value* v = EmitNode(e);
  scopes_.back().values.insert_or_assign(e.get(), Known{e, v});
  return v;
}

Value* Emitter::EmitNode(const Expr& e) {
  switch (e->kind) {
    case ExprKind::kInt:
      return llvm::ConstantInt::getSigned(ValueType(e->dtype), e->int_value);
    case ExprKind::kFloat:
      if (IsNarrowFloat(e->dtype))
        return llvm::ConstantInt::get(ValueType(e->dtype), EncodeFloat(e->dtype, e->float_value));
      return llvm::ConstantFP::get(ValueType(e->dtype), e->float_value);
    case ExprKind::kVar:
      return EmitVar(*e);
    case ExprKind::kLoad:
      return EmitLoad(e);
    case ExprKind::kAdd:
    case ExprKind::kSub:
    case ExprKind::kMul:
    case ExprKind::kDiv:
    case ExprKind::kMod:
    case ExprKind::kMin:
    case ExprKind::kMax:
    case ExprKind::kPow:
    case ExprKind::kBitAnd:
      return EmitBinary(e);
    case ExprKind::kLt:
    case ExprKind::kLe:
    case ExprKind::kEq:
      return EmitCompare(e);
    case ExprKind::kAnd:
    case ExprKind::kOr:
      return EmitLogic(e);
    case ExprKind::kNot:
      return b_.CreateNot(Emit(e->args[0]));
    case ExprKind::kSelect:
      return EmitSelect(e->args[0], e->args[1], e->args[2]);
    case ExprKind::kCast:
      return EmitCast(e);
    case ExprKind::kPair:
      return EmitPair(e);
    case ExprKind::kDot16:
    case ExprKind::kDot8:
      return EmitDot(nullptr, e);
    default:
      return EmitUnary(e);
  }
}

Value* Emitter::EmitVar(const ir::ExprNode& e) {
  auto it = bindings_.find(e.var.get());
  if (it == bindings_.end()) return Fail(absl::InternalError(absl::StrCat("variable ", e.var->name, " is not bound")));
  switch (it->second.kind) {
    case Binding::kConstant:
      return I64(it->second.constant);
    case Binding::kValue:
      return it->second.value;
    case Binding::kLane:
      break;
  }
  return LaneNumbers(b_.getInt64Ty(), it->second.constant, 1);
}

Value* Emitter::EmitBinary(const Expr& e) {
  if (IsOnePlusExp(*e)) return EmitOnePlusExp(b_, Emit(e->args[1]->args[0]));
  Value* a = Emit(e->args[0]);
  if (e->kind == ExprKind::kAdd && IsDot(e->args[1]->kind)) return EmitDot(a, e->args[1]);
  if (e->kind == ExprKind::kAdd && e->dtype == DType::kF32) {
    if (Value* sum = EmitBf16Products(a, e->args[1])) return sum;
  }
  Value* c = Emit(e->args[1]);
  Match(a, c);
  const bool fp = IsFloat(e->dtype);
  switch (e->kind) {
    case ExprKind::kAdd:
      return fp ? b_.CreateFAdd(a, c) : b_.CreateAdd(a, c);
    case ExprKind::kSub:
      return fp ? b_.CreateFSub(a, c) : b_.CreateSub(a, c);
    case ExprKind::kMul:
      return fp ? b_.CreateFMul(a, c) : b_.CreateMul(a, c);
    case ExprKind::kBitAnd:
      return b_.CreateAnd(a, c);
    case ExprKind::kMin:
      return EmitMin(b_, a, c, IsUnsigned(e->dtype));
    case ExprKind::kMax:
      return EmitMax(b_, a, c, IsUnsigned(e->dtype));
    case ExprKind::kPow: {
      if (fp) return EmitPow(b_, a, c);
      llvm::Type* type = Like(b_.getDoubleTy(), a);
      auto widen = [&](Value* v) { return IsUnsigned(e->dtype) ? b_.CreateUIToFP(v, type) : b_.CreateSIToFP(v, type); };
      Value* power = EmitPow(b_, widen(a), widen(c));
      return IsUnsigned(e->dtype) ? b_.CreateFPToUI(power, a->getType()) : b_.CreateFPToSI(power, a->getType());
    }
    default:
      return EmitDivMod(*e, a, c);
  }
}

Value* Emitter::EmitDot(Value* sum, const Expr& e) {
  Value* a = Emit(e->args[0]);
  Value* c = Emit(e->args[1]);
  Match(a, c);
  if (sum != nullptr) {
    Match(sum, a);
    Match(a, c);
  }
  return temper::EmitDot(b_, e->kind, a, c, sum, e->kind == ExprKind::kDot8 && HasSevenBits(*e->args[0]));
}

Value* Emitter::EmitDivMod(const ir::ExprNode& e, Value* a, Value* c) {
  const bool div = e.kind == ExprKind::kDiv;
  if (IsFloat(e.dtype)) {
    Value* quotient = b_.CreateFDiv(a, c);
    if (div) return quotient;
    Value* floor = EmitUnaryMath(b_, ExprKind::kFloor, quotient);
    return b_.CreateFSub(a, b_.CreateFMul(floor, c));
  }
  const Expr& divisor = e.args[1];
  if (lanes_.mask != nullptr && divisor->kind != ExprKind::kInt && a->getType()->isVectorTy()) {
    // A lane that is masked off may hold a zero, and dividing by it traps all the same.
    c = b_.CreateSelect(lanes_.mask, c, llvm::ConstantInt::get(c->getType(), 1));
  }
  if (IsUnsigned(e.dtype)) return div ? b_.CreateUDiv(a, c) : b_.CreateURem(a, c);
  if (divisor->kind == ExprKind::kInt && IsPowerOfTwo(divisor->int_value)) {
    // Exact for negatives too: an arithmetic shift rounds down.
    const int shift = __builtin_ctzll(static_cast<uint64_t>(divisor->int_value));
    if (!div) return b_.CreateAnd(a, llvm::ConstantInt::getSigned(a->getType(), divisor->int_value - 1));
    return b_.CreateAShr(a, llvm::ConstantInt::get(a->getType(), static_cast<uint64_t>(shift)));
  }
  const std::optional<ir::Interval> range = e.dtype == DType::kI64 ? ranges_.Bounds(e.args[0]) : std::nullopt;
  if (range.has_value() && range->min >= 0 && divisor->kind == ExprKind::kInt && divisor->int_value > 0) {
    // Vectors have no wide multiplication, which is what a division by a constant becomes.
    const bool narrow = a->getType()->isVectorTy() && range->max < kNarrow && divisor->int_value < kNarrow;
    llvm::Type* type = narrow ? Like(b_.getInt32Ty(), a) : a->getType();
    Value* x = narrow ? b_.CreateTrunc(a, type) : a;
    Value* y = narrow ? b_.CreateTrunc(c, type) : c;
    Value* result = div ? b_.CreateUDiv(x, y) : b_.CreateURem(x, y);
    return narrow ? b_.CreateZExt(result, a->getType()) : result;
  }
  Value* remainder = b_.CreateSRem(a, c);
  Value* zero = llvm::Constant::getNullValue(a->getType());
  Value* crosses = b_.CreateAnd(b_.CreateICmpNE(remainder, zero), b_.CreateICmpSLT(b_.CreateXor(remainder, c), zero));
  if (!div) return b_.CreateSelect(crosses, b_.CreateAdd(remainder, c), remainder);
  Value* quotient = b_.CreateSDiv(a, c);
  return b_.CreateAdd(quotient, b_.CreateSExt(crosses, a->getType()));
}

Value* Emitter::NarrowLanes(const Expr& a, const Expr& c) {
  if (a->dtype != DType::kI64 || !(DependsOnLane(a) || (c && DependsOnLane(c)))) return nullptr;
  if (!FitsNarrow(ranges_.Bounds(a)) || (c && !FitsNarrow(ranges_.Bounds(c)))) return nullptr;
  Form form;
  Decompose(a, 1, false, form);
  if (c) Decompose(c, -1, false, form);
  if (form.irregular) return nullptr;
  Value* uniform = b_.CreateTrunc(SumOf(form), b_.getInt32Ty());
  return b_.CreateAdd(Spread(uniform), LaneNumbers(b_.getInt32Ty(), 0, form.lane));
}

Value* Emitter::EmitCompare(const Expr& e) {
  if (Value* difference = NarrowLanes(e->args[0], e->args[1])) {
    Value* zero = llvm::Constant::getNullValue(difference->getType());
    if (e->kind == ExprKind::kEq) return b_.CreateICmpEQ(difference, zero);
    return e->kind == ExprKind::kLt ? b_.CreateICmpSLT(difference, zero) : b_.CreateICmpSLE(difference, zero);
  }
  Value* a = Emit(e->args[0]);
  Value* c = Emit(e->args[1]);
  Match(a, c);
  const DType dtype = e->args[0]->dtype;
  if (IsFloat(dtype)) {
    if (e->kind == ExprKind::kEq) return b_.CreateFCmpOEQ(a, c);
    return e->kind == ExprKind::kLt ? b_.CreateFCmpOLT(a, c) : b_.CreateFCmpOLE(a, c);
  }
  if (e->kind == ExprKind::kEq) return b_.CreateICmpEQ(a, c);
  if (IsUnsigned(dtype)) return e->kind == ExprKind::kLt ? b_.CreateICmpULT(a, c) : b_.CreateICmpULE(a, c);
  return e->kind == ExprKind::kLt ? b_.CreateICmpSLT(a, c) : b_.CreateICmpSLE(a, c);
}

Value* Emitter::EmitLogic(const Expr& e) {
  const bool conjunction = e->kind == ExprKind::kAnd;
  if (!CheapAndSafe(e->args[1])) {
    return conjunction ? EmitSelect(e->args[0], e->args[1], ir::Bool(false))
                       : EmitSelect(e->args[0], ir::Bool(true), e->args[1]);
  }
  Value* a = Emit(e->args[0]);
  Value* c = Emit(e->args[1]);
  Match(a, c);
  return conjunction ? b_.CreateAnd(a, c) : b_.CreateOr(a, c);
}

bool Emitter::CheapAndSafe(const Expr& e) {
  int nodes = 0;
  bool ok = true;
  ir::Visit(e, [&](const Expr& node) {
    if (!ok) return;
    const bool cheap = node->kind < ExprKind::kExp || node->kind > ExprKind::kTf32;
    ok = ++nodes <= 24 && cheap && node->kind != ExprKind::kPow;
    if (node->kind == ExprKind::kDiv || node->kind == ExprKind::kMod) {
      ok = ok && (IsFloat(node->dtype) || node->args[1]->kind == ExprKind::kInt);
    }
    if (node->kind == ExprKind::kLoad && node->buffer->scope == ir::Scope::kMemory) {
      ok = ok && InBounds(AccessOf(node.get(), node->buffer, node->args));
    }
  });
  return ok;
}

// `e` for the lanes of the mask. Guarded: not even computed where there are none, since a load of which every lane is
// masked off takes long where it would fail.
Value* Emitter::EmitUnder(Value* mask, const Expr& e, bool guarded) {
  Value* outer = lanes_.mask;
  lanes_.mask = outer == nullptr ? mask : b_.CreateAnd(outer, mask);
  const OpenScope scope(*this, /*closed=*/false);
  Value* v = nullptr;
  if (guarded) {
    Value* any = Any(lanes_.mask);
    llvm::BasicBlock *before = b_.GetInsertBlock(), *from = nullptr;
    const auto compute = [&] {
      v = EmitVector(e);
      from = b_.GetInsertBlock();
    };
    Branch(any, compute, {});
    llvm::PHINode* phi = b_.CreatePHI(v->getType(), 2);
    phi->addIncoming(v, from);
    phi->addIncoming(llvm::Constant::getNullValue(v->getType()), before);
    v = phi;
  } else {
    v = EmitVector(e);
  }
  lanes_.mask = outer;
  return v;
}

// Only the branch taken is evaluated, unless the other does no harm; lanes that do not take it are masked off.
Value* Emitter::EmitSelect(const Expr& cond, const Expr& a, const Expr& c) {
  const Expr r = Resolve(cond);
  if (std::optional<int64_t> known = ir::AsInt(r)) return Emit(*known != 0 ? a : c);
  if (DependsOnLane(r)) {
    // Of two arms that lie in memory apart, as in a concatenation, most vectors want one alone.
    const bool guarded = !CheapAndSafe(a) && !CheapAndSafe(c);
    Value* mask = Spread(Emit(r));
    Value* taken = EmitUnder(mask, a, guarded);
    Value* other = EmitUnder(b_.CreateNot(mask), c, guarded);
    return b_.CreateSelect(mask, taken, other);
  }
  Value* condition = Emit(r);
  if (CheapAndSafe(a) && CheapAndSafe(c)) {
    Value* taken = Emit(a);
    Value* other = Emit(c);
    Match(taken, other);
    return b_.CreateSelect(condition, taken, other);
  }
  if (Value* v = LoadUnder(condition, a, c); v != nullptr) return v;
  const bool vector = DependsOnLane(a) || DependsOnLane(c);
  Value *taken = nullptr, *other = nullptr;
  llvm::BasicBlock *from_taken = nullptr, *from_other = nullptr;
  auto arm = [&](const Expr& e, Value*& value, llvm::BasicBlock*& from) {
    const OpenScope scope(*this, /*closed=*/false);
    value = vector ? EmitVector(e) : Emit(e);
    from = b_.GetInsertBlock();
  };
  Branch(
      condition, [&] { arm(a, taken, from_taken); }, [&] { arm(c, other, from_other); });
  llvm::PHINode* phi = b_.CreatePHI(taken->getType(), 2);
  phi->addIncoming(taken, from_taken);
  phi->addIncoming(other, from_other);
  return phi;
}

// What `e` was rounded from, within the same bounds; empty if it is no such thing. Rounding to the next integer may
// come after a clip to integers as well as before it.
static Expr BeforeRound(const Expr& e) {
  if (e->kind == ExprKind::kRound) return e->args[0];
  if (e->kind != ExprKind::kMin && e->kind != ExprKind::kMax) return Expr();
  for (size_t i = 0; i < 2; ++i) {
    const Expr& bound = e->args[i];
    if (bound->kind != ExprKind::kFloat || std::trunc(bound->float_value) != bound->float_value) continue;
    const Expr before = BeforeRound(e->args[1 - i]);
    if (before) return i == 0 ? ir::Binary(e->kind, bound, before) : ir::Binary(e->kind, before, bound);
  }
  return Expr();
}

Value* Emitter::EmitCast(const Expr& e) {
  const DType to = e->dtype;
  if (e->args[0]->dtype == DType::kF32 && !IsFloat(to) && to != DType::kBool && Info(to).bits < 32) {
    if (const Expr before = BeforeRound(e->args[0])) {
      kept_.push_back(before);
      Value* v = Emit(before);
      llvm::Type* wide = Like(b_.getInt32Ty(), v);
      return b_.CreateTrunc(b_.CreateIntrinsic(llvm::Intrinsic::lrint, {wide, v->getType()}, {v}),
                            Like(ValueType(to), v));
    }
  }
  if (IsFloat(to) && IsNative(to)) {
    if (Value* narrow = NarrowLanes(e->args[0], Expr())) return b_.CreateSIToFP(narrow, Like(ValueType(to), narrow));
  }
  Value* v = Emit(e->args[0]);
  DType from = e->args[0]->dtype;
  if (IsNarrowFloat(from)) {
    v = EmitDecode(b_, from, v, context_.target);
    from = DType::kF32;
  }
  if (from == to) return v;
  if (IsNarrowFloat(to)) {
    if (!IsFloat(from)) v = IntToFloat(v, from, Info(from).bits > 16 ? DType::kF64 : DType::kF32);
    return EmitEncode(b_, to, v, e->cast_mode, context_.target);
  }
  llvm::Type* type = Like(ValueType(to), v);
  llvm::Constant* zero = llvm::Constant::getNullValue(v->getType());
  if (to == DType::kBool) return IsFloat(from) ? b_.CreateFCmpUNE(v, zero) : b_.CreateICmpNE(v, zero);
  if (IsFloat(from)) {
    if (IsFloat(to)) return to == DType::kF64 ? b_.CreateFPExt(v, type) : b_.CreateFPTrunc(v, type);
    return FloatToInt(v, to);
  }
  if (IsFloat(to)) return IntToFloat(v, from, to);
  return IsUnsigned(from) ? b_.CreateZExtOrTrunc(v, type) : b_.CreateSExtOrTrunc(v, type);
}

Value* Emitter::IntToFloat(Value* v, DType from, DType to) {
  llvm::Type* type = Like(ValueType(to), v);
  return IsUnsigned(from) ? b_.CreateUIToFP(v, type) : b_.CreateSIToFP(v, type);
}

// What does not fit wraps as it does in C on this machine: small types go through i32, u32 through i64.
Value* Emitter::FloatToInt(Value* v, DType to) {
  llvm::Type* type = Like(ValueType(to), v);
  const int bits = Info(to).bits;
  if (bits < 32) return b_.CreateTrunc(b_.CreateFPToSI(v, Like(b_.getInt32Ty(), v)), type);
  if (to == DType::kU32) return b_.CreateTrunc(b_.CreateFPToSI(v, Like(b_.getInt64Ty(), v)), type);
  if (to != DType::kU64) return b_.CreateFPToSI(v, type);
  // The upper half is out of reach of signed conversion.
  Value* half = llvm::ConstantFP::get(v->getType(), 0x1p63);
  Value* upper = b_.CreateFCmpOGE(v, half);
  Value* low = b_.CreateFPToSI(b_.CreateSelect(upper, b_.CreateFSub(v, half), v), type);
  return b_.CreateXor(
      low, b_.CreateSelect(upper, llvm::ConstantInt::get(type, uint64_t{1} << 63), llvm::Constant::getNullValue(type)));
}

Value* Emitter::EmitUnary(const Expr& e) {
  Value* v = Emit(e->args[0]);
  if (!IsFloat(e->dtype) && e->kind == ExprKind::kAbs) {
    if (IsUnsigned(e->dtype)) return v;
    return b_.CreateSelect(b_.CreateICmpSLT(v, llvm::Constant::getNullValue(v->getType())), b_.CreateNeg(v), v);
  }
  if (IsFloat(e->dtype)) {
    if (Value* result = EmitUnaryMath(b_, e->kind, v)) return result;
  }
  return Fail(absl::UnimplementedError(
                  absl::StrCat("no code for ", std::string(ir::Name(e->kind)), " on ", std::string(Name(e->dtype)))),
              v->getType());
}

}  // namespace temper
