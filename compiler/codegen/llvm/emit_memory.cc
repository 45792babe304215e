// Indices, addresses, loads and stores.
#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/llvm/emitter.h"
#include "compiler/ir/walk.h"

namespace temper {

using ir::Expr;
using ir::ExprKind;
using llvm::Value;

Value* Emitter::Fail(absl::Status status, llvm::Type* type) {
  if (status_.ok()) status_ = std::move(status);
  return llvm::PoisonValue::get(type == nullptr ? b_.getInt64Ty() : type);
}

llvm::Type* Emitter::ValueType(DType dtype) {
  if (dtype == DType::kBool) return b_.getInt1Ty();
  if (dtype == DType::kF32) return b_.getFloatTy();
  if (dtype == DType::kF64) return b_.getDoubleTy();
  return b_.getIntNTy(static_cast<unsigned>(Info(dtype).bits));
}

llvm::Type* Emitter::MemoryType(DType dtype) {
  if (dtype == DType::kBool) return b_.getInt8Ty();
  if (!IsPacked(dtype)) return ValueType(dtype);
  Fail(absl::UnimplementedError(
      absl::StrCat(std::string(Name(dtype)), " lies packed in memory, which no code is generated for")));
  return b_.getInt8Ty();
}

Value* Emitter::FromMemory(Value* v, DType dtype) {
  return dtype == DType::kBool ? b_.CreateICmpNE(v, llvm::Constant::getNullValue(v->getType())) : v;
}

Value* Emitter::ToMemory(Value* v, DType dtype) {
  if (dtype != DType::kBool) return v;
  llvm::Type* type = b_.getInt8Ty();
  if (auto* vector = llvm::dyn_cast<llvm::VectorType>(v->getType())) type = llvm::VectorType::get(type, vector);
  return b_.CreateZExt(v, type);
}

llvm::Constant* Emitter::LaneNumbers(llvm::Type* element, int64_t first, int64_t step) {
  std::vector<llvm::Constant*> lanes;
  for (int64_t i = 0; i < lanes_.count; ++i) lanes.push_back(llvm::ConstantInt::getSigned(element, first + i * step));
  return llvm::ConstantVector::get(lanes);
}

// --- indices

Emitter::Access Emitter::AccessOf(const void* key, const ir::Buffer& buffer, const std::vector<Expr>& indices) {
  Expr& flat = flat_[key];
  if (!flat) flat = ranges_.Simplify(ir::FlatIndex(buffer, indices));
  return AccessOf(buffer.get(), flat);
}

Emitter::Access Emitter::AccessOf(const ir::BufferNode* buffer, const Expr& flat) {
  Access access{buffer, flat, FormOf(flat)};
  auto copies = private_.find(buffer);
  if (copies == private_.end()) return access;
  for (Term& t : access.form.terms) t.coefficient *= copies->second;
  access.form.constant = access.form.constant * copies->second + (lanes_.count == 0 ? as_lane_ : 0);
  access.form.lane = access.form.lane * copies->second + (lanes_.count == 0 ? 0 : 1);
  return access;
}

Emitter::Form Emitter::FormOf(const Expr& e) {
  Form form;
  Decompose(e, 1, false, form);
  return form;
}

std::optional<int64_t> Emitter::ConstantOf(const Expr& e) const {
  if (e->kind == ExprKind::kInt) return e->int_value;
  if (e->kind != ExprKind::kVar) return std::nullopt;
  auto it = bindings_.find(e->var.get());
  if (it == bindings_.end() || it->second.kind != Binding::kConstant) return std::nullopt;
  return it->second.constant;
}

void Emitter::Decompose(const Expr& e, int64_t scale, bool resolved, Form& form) {
  switch (e->kind) {
    case ExprKind::kInt:
      form.constant += scale * e->int_value;
      return;
    case ExprKind::kVar: {
      auto it = bindings_.find(e->var.get());
      if (it == bindings_.end()) {
        Fail(absl::InternalError(absl::StrCat("variable ", e->var->name, " is not bound")));
      } else if (it->second.kind == Binding::kValue) {
        DecomposeAtom(e, scale, form);
      } else {
        form.constant += scale * it->second.constant;
        if (it->second.kind == Binding::kLane) form.lane += scale;
      }
      return;
    }
    case ExprKind::kAdd:
    case ExprKind::kSub:
      Decompose(e->args[0], scale, resolved, form);
      Decompose(e->args[1], e->kind == ExprKind::kAdd ? scale : -scale, resolved, form);
      return;
    case ExprKind::kMul:
      for (int i = 0; i < 2; ++i) {
        if (std::optional<int64_t> c = ConstantOf(e->args[i])) {
          if (*c != 0) Decompose(e->args[1 - i], scale * *c, resolved, form);
          return;
        }
      }
      break;
    default:
      break;
  }
  if (!resolved) {
    const Expr r = Resolve(e);
    if (r.get() != e.get()) return Decompose(r, scale, true, form);
  }
  DecomposeAtom(e, scale, form);
}

void Emitter::DecomposeAtom(const Expr& e, int64_t scale, Form& form) {
  if (DependsOnLane(e)) form.irregular = true;
  for (Term& t : form.terms) {
    if (ir::StructurallyEqual(t.atom, e)) {
      t.coefficient += scale;
      return;
    }
  }
  form.terms.push_back({e, scale});
}

bool Emitter::Hoistable(const Expr& atom) const {
  return !ir::AnyNode(atom, [](const Expr& e) {
    const bool divides = e->kind == ExprKind::kDiv || e->kind == ExprKind::kMod;
    return e->kind == ExprKind::kLoad || e->kind == ExprKind::kSelect ||
           (divides && e->args[1]->kind != ExprKind::kInt);
  });
}

int Emitter::LevelOf(const Expr& atom) const {
  int level = 0;
  ir::Visit(atom, [&](const Expr& e) {
    if (e->kind != ExprKind::kVar) return;
    auto it = bindings_.find(e->var.get());
    if (it != bindings_.end() && it->second.kind == Binding::kValue) level = std::max(level, it->second.level);
  });
  return level;
}

Value* Emitter::TermValue(const Term& t) {
  if (t.atom->kind == ExprKind::kVar) return Emit(t.atom);
  if (!Hoistable(t.atom)) return Emit(t.atom);
  const int level = LevelOf(t.atom);
  Value*& cached = levels_[level].values[t.atom.get()];
  if (cached != nullptr) return cached;
  llvm::IRBuilder<>::InsertPointGuard guard(b_);
  if (level != current()) b_.SetInsertPoint(levels_[level].anchor);
  const OpenScope scope(*this, /*closed=*/true);  // what is known here may not be known there
  return cached = Emit(t.atom);
}

Value* Emitter::SumOf(const Form& form) {
  Value* sum = nullptr;
  for (const Term& t : form.terms) {
    Value* v = TermValue(t);
    if (t.coefficient != 1) v = b_.CreateNSWMul(v, I64(t.coefficient));
    sum = sum == nullptr ? v : b_.CreateNSWAdd(sum, v);
  }
  if (sum == nullptr) return I64(form.constant);
  return form.constant == 0 ? sum : b_.CreateNSWAdd(sum, I64(form.constant));
}

// base + the terms that vary least + ... + those of the innermost loop + constant, in that order.
Value* Emitter::AddressOf(const Access& access, int64_t extra) {
  auto base = pointers_.find(access.buffer);
  if (base == pointers_.end()) {
    return Fail(absl::InvalidArgumentError(
                    absl::StrCat("buffer ", access.buffer->name, " is neither a parameter nor allocated")),
                b_.getPtrTy());
  }
  struct Step {
    int level;
    const Term* term;
  };
  std::vector<Step> steps;
  for (const Term& t : access.form.terms) {
    if (t.coefficient != 0) steps.push_back({Hoistable(t.atom) ? LevelOf(t.atom) : current(), &t});
  }
  std::ranges::stable_sort(steps, {}, &Step::level);
  llvm::Type* type = MemoryType(access.buffer->dtype);
  Value* p = base->second;
  for (const Step& s : steps) {
    Value* v = TermValue(*s.term);
    Value*& cached = levels_[s.level].addresses[{p, v, s.term->coefficient}];
    if (cached == nullptr) {
      llvm::IRBuilder<>::InsertPointGuard guard(b_);
      if (s.level != current()) b_.SetInsertPoint(levels_[s.level].anchor);
      Value* offset = s.term->coefficient == 1 ? v : b_.CreateNSWMul(v, I64(s.term->coefficient));
      cached = b_.CreateGEP(type, p, offset);
    }
    p = cached;
  }
  const int64_t constant = access.form.constant + extra;
  return constant == 0 ? p : b_.CreateGEP(type, p, I64(constant));
}

Value* Emitter::PointersOf(const Access& access) {
  llvm::Type* type = MemoryType(access.buffer->dtype);
  if (!access.form.irregular)
    return b_.CreateGEP(type, AddressOf(access, 0), LaneNumbers(b_.getInt64Ty(), 0, access.form.lane));
  auto base = pointers_.find(access.buffer);
  if (base == pointers_.end()) return AddressOf(access, 0);
  Value* indices = EmitVector(access.flat);
  if (auto copies = private_.find(access.buffer); copies != private_.end()) {
    indices = b_.CreateAdd(b_.CreateMul(indices, Spread(I64(copies->second))), LaneNumbers(b_.getInt64Ty(), 0, 1));
  }
  return b_.CreateGEP(type, base->second, indices);
}

// Where unaligned accesses cost nothing, none is claimed to be aligned.
llvm::Align Emitter::AlignmentOf(const Access& access) const {
  const int64_t size = SizeOf(access.buffer->dtype);
  if (context_.target.TakesUnaligned()) return llvm::Align(size);
  int64_t g = std::gcd(int64_t{64}, access.form.constant * size);
  for (const Term& t : access.form.terms) g = std::gcd(g, t.coefficient * size);
  return llvm::Align(g);
}

bool Emitter::InBounds(const Access& access) const {
  const std::optional<ir::Interval> range = ranges_.Bounds(access.flat);
  return range.has_value() && range->min >= 0 && range->max < NumElements(access.buffer->shape);
}

void Emitter::AsLane(int64_t lane, const std::function<void()>& f) {
  const Lanes saved = lanes_;
  bindings_[saved.var.get()] = {Binding::kConstant, saved.base + lane};
  bindings_[saved.local.get()] = {Binding::kConstant, lane};
  lanes_ = Lanes();
  as_lane_ = lane;
  const OpenScope scope(*this, /*closed=*/true);
  f();
  as_lane_ = 0;
  lanes_ = saved;
  bindings_[saved.var.get()] = {Binding::kLane, saved.base};
  bindings_[saved.local.get()] = {Binding::kLane, 0};
}

// --- loads

Value* Emitter::EmitLoad(const Expr& e) { return LoadAccess(e, AccessOf(e.get(), e->buffer, e->args)); }

Value* Emitter::LoadAccess(const Expr& e, const Access& access) {
  const DType dtype = access.buffer->dtype;
  if (access.buffer->scope == ir::Scope::kRegister) return FromMemory(EmitRegisterLoad(access), dtype);
  const bool guarded = lanes_.mask != nullptr && !InBounds(access);
  if (lanes_.count == 0 || (access.form.lane == 0 && !access.form.irregular)) {
    return FromMemory(guarded ? GuardedScalarLoad(access) : ScalarLoad(access), dtype);
  }
  if (access.form.irregular || access.form.lane != 1) return FromMemory(EmitGather(e, access), dtype);
  auto* type = llvm::FixedVectorType::get(MemoryType(dtype), static_cast<unsigned>(lanes_.count));
  Value* p = AddressOf(access, 0);
  if (!guarded) return FromMemory(b_.CreateAlignedLoad(type, p, AlignmentOf(access)), dtype);
  return FromMemory(MaskedLoad(type, p, AlignmentOf(access), lanes_.mask, llvm::Constant::getNullValue(type)), dtype);
}

// Where masks are vectors (AVX without AVX-512), LLVM 19 keeps of a mask that it finds to be constant its lanes' sign
// bits alone, and then takes lanes that are not zero for ones that are read. The instruction itself, which it does not
// look into, is not taken for another.
Value* Emitter::MaskedLoad(llvm::FixedVectorType* type, Value* p, llvm::Align align, Value* mask, Value* otherwise) {
  const auto lanes = static_cast<int64_t>(type->getNumElements());
  const int64_t bits = type->getScalarSizeInBits(), part = std::min<int64_t>(lanes, 256 / bits);
  const CpuTarget& target = context_.target;
  const bool in_vectors =
      target.Has("avx") && !target.Has("avx512f") && (bits == 32 || bits == 64) && part * bits >= 128;
  if (!in_vectors) return b_.CreateMaskedLoad(type, p, align, mask, otherwise);
  const llvm::Intrinsic::ID ids[] = {llvm::Intrinsic::x86_avx_maskload_ps, llvm::Intrinsic::x86_avx_maskload_ps_256,
                                     llvm::Intrinsic::x86_avx_maskload_pd, llvm::Intrinsic::x86_avx_maskload_pd_256};
  const llvm::Intrinsic::ID id = ids[(bits == 64 ? 2 : 0) + (part * bits == 256 ? 1 : 0)];
  auto* numbers = llvm::FixedVectorType::get(b_.getIntNTy(static_cast<unsigned>(bits)), static_cast<unsigned>(part));
  std::vector<Value*> parts;
  for (int64_t begin = 0; begin < lanes; begin += part) {
    std::vector<int> which(static_cast<size_t>(part));
    std::iota(which.begin(), which.end(), static_cast<int>(begin));
    Value* own = lanes == part ? mask : b_.CreateShuffleVector(mask, which);
    Value* at = begin == 0 ? p : b_.CreateGEP(type->getElementType(), p, I64(begin));
    parts.push_back(b_.CreateIntrinsic(id, {}, {at, b_.CreateSExt(own, numbers)}));
  }
  Value* loaded = b_.CreateBitCast(llvm::concatenateVectors(b_, parts), type);
  auto* constant = llvm::dyn_cast<llvm::Constant>(otherwise);
  return constant != nullptr && constant->isNullValue() ? loaded : b_.CreateSelect(mask, loaded, otherwise);
}

static void AppendParts(const Expr& e, std::vector<Expr>& parts) {
  if (e->kind != ExprKind::kPair) return parts.push_back(e);
  for (const Expr& arg : e->args) AppendParts(arg, parts);
}

std::vector<Expr> Emitter::PartsOf(const Expr& e) {
  std::vector<Expr> parts;
  AppendParts(e, parts);
  return parts;
}

std::optional<Emitter::Access> Emitter::FirstOfNeighbours(const std::vector<Expr>& parts) {
  const bool loads = std::ranges::all_of(parts, [&](const Expr& part) {
    return part->kind == ExprKind::kLoad && part->buffer == parts[0]->buffer &&
           part->buffer->scope == ir::Scope::kMemory;
  });
  if (!loads) return std::nullopt;
  const Access first = AccessOf(parts[0].get(), parts[0]->buffer, parts[0]->args);
  for (size_t i = 0; i < parts.size(); ++i) {
    const Access access = AccessOf(parts[i].get(), parts[i]->buffer, parts[i]->args);
    if (ir::AsInt(ranges_.Simplify(access.flat - first.flat)) != static_cast<int64_t>(i)) return std::nullopt;
    if (lanes_.mask != nullptr && !InBounds(access)) return std::nullopt;
  }
  return first;
}

Value* Emitter::LoadTogether(const std::vector<Expr>& parts, llvm::Type* type) {
  const std::optional<Access> first = FirstOfNeighbours(parts);
  if (!first.has_value() || first->form.irregular) return nullptr;
  const int64_t lane = lanes_.count == 0 ? 0 : first->form.lane;
  if (lane != 0 && lane != static_cast<int64_t>(parts.size())) return nullptr;
  if (lane != 0) type = llvm::FixedVectorType::get(type, static_cast<unsigned>(lanes_.count));
  return b_.CreateAlignedLoad(type, AddressOf(*first, 0), llvm::Align(SizeOf(parts[0]->dtype)));
}

static bool WidensBytes(const Expr& e) {
  if (e->kind != ExprKind::kCast) return false;
  const DType from = e->args[0]->dtype;
  return (from == DType::kI8 || from == DType::kU8) && !IsFloat(e->dtype) && Info(e->dtype).bits > 8;
}

// Neighbours in memory are one access of their width together; a vector of them may be widened, each number by itself.
// Null where they are none.
Value* Emitter::LoadNeighbours(const Expr& e) {
  std::vector<Expr> parts = PartsOf(e);
  if (!std::ranges::all_of(parts, WidensBytes)) return LoadTogether(parts, ValueType(e->dtype));
  const DType wide = parts[0]->dtype;
  for (Expr& part : parts) part = part->args[0];
  const std::optional<Access> first = FirstOfNeighbours(parts);
  const auto count = static_cast<int64_t>(parts.size());
  if (!first.has_value() || first->form.irregular || lanes_.count == 0 || first->form.lane != count) return nullptr;
  const DType kept = parts[0]->dtype;
  const auto numbers = static_cast<unsigned>(lanes_.count * count);
  Value* loaded = b_.CreateAlignedLoad(llvm::FixedVectorType::get(MemoryType(kept), numbers), AddressOf(*first, 0),
                                       llvm::Align(SizeOf(kept)));
  llvm::Type* each = llvm::FixedVectorType::get(ValueType(wide), numbers);
  llvm::Type* type = llvm::FixedVectorType::get(ValueType(e->dtype), static_cast<unsigned>(lanes_.count));
  return b_.CreateBitCast(IsUnsigned(kept) ? b_.CreateZExt(loaded, each) : b_.CreateSExt(loaded, each), type);
}

Value* Emitter::EmitPair(const Expr& e) {
  if (Value* loaded = LoadNeighbours(e)) return loaded;
  Value* lower = Emit(e->args[0]);
  Value* upper = Emit(e->args[1]);
  Match(lower, upper);
  llvm::Type* type = ValueType(e->dtype);
  if (auto* vector = llvm::dyn_cast<llvm::VectorType>(lower->getType())) type = llvm::VectorType::get(type, vector);
  const auto bits = static_cast<uint64_t>(Info(e->args[0]->dtype).bits);
  return b_.CreateOr(b_.CreateZExt(lower, type), b_.CreateShl(b_.CreateZExt(upper, type), bits));
}

Value* Emitter::ScalarLoad(const Access& access) {
  return b_.CreateAlignedLoad(MemoryType(access.buffer->dtype), AddressOf(access, 0),
                              llvm::Align(SizeOf(access.buffer->dtype)));
}

// A vector of memory that is read only under a condition common to all lanes, and `otherwise` without it: a masked
// load instead of a branch keeps unrolled code in one block. It never leaves the buffer: where no lane is read, a page
// that is not there costs hundreds of cycles all the same. Null where it is something else, or masks are slow.
Value* Emitter::LoadUnder(Value* condition, const Expr& e, const Expr& otherwise) {
  if (lanes_.count == 0 || e->kind != ExprKind::kLoad || !CheapAndSafe(otherwise)) return nullptr;
  if (e->buffer->scope != ir::Scope::kMemory || SizeOf(e->dtype) < 4 || !context_.target.Has("avx")) return nullptr;
  const Access access = AccessOf(e.get(), e->buffer, e->args);
  if (access.form.irregular || access.form.lane != 1) return nullptr;
  auto* type = llvm::FixedVectorType::get(MemoryType(e->dtype), static_cast<unsigned>(lanes_.count));
  Value* mask = b_.CreateVectorSplat(type->getElementCount(), condition);
  if (lanes_.mask != nullptr) mask = b_.CreateAnd(mask, lanes_.mask);
  Value* p = AddressOf(access, 0);
  if (auto base = pointers_.find(access.buffer); base != pointers_.end() && !InBounds(access)) {
    p = b_.CreateSelect(condition, p, base->second);
  }
  return MaskedLoad(type, p, AlignmentOf(access), mask, EmitVector(otherwise));
}

// One element for all lanes, which exists only if some lane wants it.
Value* Emitter::GuardedScalarLoad(const Access& access) {
  Value* any = Any(lanes_.mask);
  Value* p = AddressOf(access, 0);
  llvm::Type* type = MemoryType(access.buffer->dtype);
  llvm::BasicBlock* before = b_.GetInsertBlock();
  auto* load = llvm::BasicBlock::Create(b_.getContext(), "load", function_);
  auto* after = llvm::BasicBlock::Create(b_.getContext(), "after", function_);
  b_.CreateCondBr(any, load, after);
  b_.SetInsertPoint(load);
  Value* loaded = b_.CreateAlignedLoad(type, p, llvm::Align(SizeOf(access.buffer->dtype)));
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  llvm::PHINode* phi = b_.CreatePHI(type, 2);
  phi->addIncoming(loaded, load);
  phi->addIncoming(llvm::Constant::getNullValue(type), before);
  return phi;
}

bool Emitter::SameTerms(const Form& a, const Form& b) {
  return std::ranges::equal(a.terms, b.terms, [](const Term& x, const Term& y) {
    return x.coefficient == y.coefficient && ir::StructurallyEqual(x.atom, y.atom);
  });
}

Value* Emitter::EmitShuffledLoad(const Access& access) {
  const int64_t n = lanes_.count;
  if (NumElements(access.buffer->shape) % n != 0) return nullptr;
  Form vector;
  std::vector<int> lanes;
  for (int64_t lane = 0; lane < n; ++lane) {
    Form form;
    AsLane(lane, [&] { form = AccessOf(access.buffer, access.flat).form; });
    const int64_t within = (form.constant % n + n) % n;
    form.constant -= within;
    if (lane == 0) vector = form;
    const bool whole = std::ranges::all_of(form.terms, [n](const Term& term) { return term.coefficient % n == 0; });
    if (!whole || !SameTerms(form, vector) || form.constant != vector.constant) return nullptr;
    lanes.push_back(static_cast<int>(within));
  }
  auto* type = llvm::FixedVectorType::get(MemoryType(access.buffer->dtype), static_cast<unsigned>(n));
  const Access whole{access.buffer, access.flat, vector};
  return b_.CreateShuffleVector(b_.CreateAlignedLoad(type, AddressOf(whole, 0), AlignmentOf(whole)), lanes);
}

std::optional<int64_t> Emitter::ColumnOf(const Access& access) {
  const int64_t n = lanes_.count;
  for (const auto& [var, extent] : unrolled_) {
    if (extent % n != 0) continue;
    Binding& binding = bindings_[var];
    const int64_t now = binding.constant, column = now % n;
    const auto at = [&](int64_t i) {
      binding.constant = i;
      return AccessOf(access.buffer, access.flat).form;
    };
    // Both ends of the line are read, too, so it lies in the buffer.
    const Form first = at(now - column), last = at(now - column + n - 1);
    binding.constant = now;
    if (first.constant + column == access.form.constant && first.constant + n - 1 == last.constant &&
        SameTerms(first, access.form) && SameTerms(first, last))
      return column;
  }
  return std::nullopt;
}

Value* Emitter::EmitColumn(const Access& access) {
  const int64_t n = lanes_.count;
  if (access.form.irregular || access.form.lane < n || lanes_.mask != nullptr || !InBounds(access)) return nullptr;
  const std::optional<int64_t> column = ColumnOf(access);
  if (!column) return nullptr;
  auto* type = llvm::FixedVectorType::get(MemoryType(access.buffer->dtype), static_cast<unsigned>(n));
  std::vector<Value*> parts;
  for (int64_t line = 0; line < n; ++line) {
    parts.push_back(b_.CreateAlignedLoad(type, AddressOf(access, line * access.form.lane - *column),
                                         llvm::Align(SizeOf(access.buffer->dtype))));
  }
  // Of two neighbours, the lanes that agree with the column in one more bit; the other half of the lanes is made free
  // for the upper one's.
  for (int64_t bit = 1; bit < n; bit *= 2) {
    std::vector<int> lanes;
    for (int64_t l = 0; l < n; ++l) {
      const int64_t from = (l & ~bit) | (*column & bit);
      lanes.push_back(static_cast<int>((l & bit) != 0 ? n + from : from));
    }
    for (size_t i = 0; 2 * i < parts.size(); ++i)
      parts[i] = b_.CreateShuffleVector(parts[2 * i], parts[2 * i + 1], lanes);
    parts.resize(parts.size() / 2);
  }
  return parts[0];
}

Value* Emitter::EmitGather(const Expr& e, const Access& access) {
  if (Value* column = EmitColumn(access)) return column;
  const DType dtype = access.buffer->dtype;
  auto* type = llvm::FixedVectorType::get(MemoryType(dtype), static_cast<unsigned>(lanes_.count));
  const llvm::Align align(SizeOf(dtype));
  if (lanes_.mask != nullptr && !InBounds(access)) {
    return b_.CreateMaskedGather(type, PointersOf(access), align, lanes_.mask, llvm::Constant::getNullValue(type));
  }
  if (access.form.irregular) {
    if (Value* shuffled = EmitShuffledLoad(access)) return shuffled;
  }
  Value* result = llvm::PoisonValue::get(type);
  Value* p = access.form.irregular ? nullptr : AddressOf(access, 0);
  for (int64_t lane = 0; lane < type->getNumElements(); ++lane) {
    Value* element = nullptr;
    if (p != nullptr) {
      element = b_.CreateAlignedLoad(type->getElementType(),
                                     b_.CreateGEP(type->getElementType(), p, I64(lane * access.form.lane)), align);
    } else {
      AsLane(lane, [&] { element = ScalarLoad(AccessOf(access.buffer, access.flat)); });
    }
    result = b_.CreateInsertElement(result, element, static_cast<uint64_t>(lane));
  }
  return result;
}

const RegisterArray* Emitter::RegisterAt(const Access& access, int64_t count) {
  auto array = registers_.find(access.buffer);
  const Form& f = access.form;
  if (array == registers_.end()) {
    Fail(absl::InvalidArgumentError(
        absl::StrCat("register array ", access.buffer->name, " is used outside its allocation")));
  } else if (!f.terms.empty()) {
    Fail(absl::InvalidArgumentError(absl::StrCat("register array ", access.buffer->name, " has the index ",
                                                 ir::Text(access.flat),
                                                 ", which is not constant once loops are unrolled")));
  } else if (std::min(f.constant, f.constant + (count - 1) * f.lane) < 0 ||
             std::max(f.constant, f.constant + (count - 1) * f.lane) >= array->second.size()) {
    Fail(absl::InvalidArgumentError(
        absl::StrCat("register array ", access.buffer->name, " is indexed out of range: ", f.constant)));
  } else {
    return &array->second;
  }
  return nullptr;
}

Value* Emitter::EmitRegisterLoad(const Access& access) {
  llvm::Type* element = MemoryType(access.buffer->dtype);
  if (access.form.irregular) {
    auto* type = llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes_.count));
    Value* result = llvm::PoisonValue::get(type);
    for (int64_t lane = 0; lane < type->getNumElements(); ++lane) {
      Value* v = nullptr;
      AsLane(lane, [&] { v = EmitRegisterLoad(AccessOf(access.buffer, access.flat)); });
      result = b_.CreateInsertElement(result, v, static_cast<uint64_t>(lane));
    }
    return result;
  }
  const int64_t count = lanes_.count == 0 || access.form.lane == 0 ? 1 : lanes_.count;
  const RegisterArray* array = RegisterAt(access, count);
  if (array != nullptr) return array->Load(b_, access.form.constant, count, access.form.lane);
  return llvm::PoisonValue::get(count == 1 ? element
                                           : llvm::FixedVectorType::get(element, static_cast<unsigned>(count)));
}

// --- stores

void Emitter::ScalarStore(const Access& access, Value* value) {
  if (access.buffer->scope == ir::Scope::kRegister) return StoreRegister(access, value);
  b_.CreateAlignedStore(ToMemory(value, access.buffer->dtype), AddressOf(access, 0),
                        llvm::Align(SizeOf(access.buffer->dtype)));
}

void Emitter::StoreRegister(const Access& access, Value* value) {
  const DType dtype = access.buffer->dtype;
  if (access.form.irregular) {
    for (int64_t lane = 0, n = lanes_.count; lane < n; ++lane) {
      Value* v = b_.CreateExtractElement(value, static_cast<uint64_t>(lane));
      Value* mask =
          lanes_.mask == nullptr ? nullptr : b_.CreateExtractElement(lanes_.mask, static_cast<uint64_t>(lane));
      AsLane(lane, [&] {
        const Access scalar = AccessOf(access.buffer, access.flat);
        if (mask != nullptr) v = b_.CreateSelect(mask, v, FromMemory(EmitRegisterLoad(scalar), dtype));
        StoreRegister(scalar, v);
      });
    }
    return;
  }
  const int64_t count = lanes_.count == 0 || access.form.lane == 0 ? 1 : lanes_.count;
  const RegisterArray* array = RegisterAt(access, count);
  if (array == nullptr) return;
  if (lanes_.mask != nullptr && count > 1) {
    value = b_.CreateSelect(lanes_.mask, value, FromMemory(EmitRegisterLoad(access), dtype));
  }
  array->Store(b_, access.form.constant, count, access.form.lane, ToMemory(value, dtype));
}

// The index depends on the lane; `value` is a vector.
void Emitter::StoreAccess(const ir::StmtNode& s, const Access& access, Value* value) {
  if (access.buffer->scope == ir::Scope::kRegister) return StoreRegister(access, value);
  value = ToMemory(value, access.buffer->dtype);
  const llvm::Align element_align(SizeOf(access.buffer->dtype));
  if (!access.form.irregular && access.form.lane == 1) {
    Value* p = AddressOf(access, 0);
    if (lanes_.mask != nullptr) {
      b_.CreateMaskedStore(value, p, AlignmentOf(access), lanes_.mask);
    } else {
      b_.CreateAlignedStore(value, p, AlignmentOf(access));
    }
    return;
  }
  if (lanes_.mask != nullptr) {
    b_.CreateMaskedScatter(value, PointersOf(access), element_align, lanes_.mask);
    return;
  }
  for (int64_t lane = 0, n = lanes_.count; lane < n; ++lane) {
    Value* v = b_.CreateExtractElement(value, static_cast<uint64_t>(lane));
    if (!access.form.irregular) {
      b_.CreateAlignedStore(v, AddressOf(access, lane * access.form.lane), element_align);
    } else {
      AsLane(lane,
             [&] { b_.CreateAlignedStore(v, AddressOf(AccessOf(access.buffer, access.flat), 0), element_align); });
    }
  }
}

}  // namespace temper
