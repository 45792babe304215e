// Statements: loops of each kind, branches, scratch, stores.
#include <llvm/IR/Module.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/llvm/emit_object.h"
#include "compiler/codegen/llvm/emitter.h"
#include "compiler/codegen/llvm/kernel.h"
#include "compiler/codegen/llvm/math.h"
#include "compiler/ir/walk.h"

namespace temper {

using ir::Expr;
using ir::ExprKind;
using ir::ForKind;
using ir::Stmt;
using ir::StmtKind;
using llvm::Value;

namespace {

// Past this, a kernel is a mistake of whoever unrolled it, and would keep the compiler busy for minutes.
constexpr int64_t kMostStatements = 60000;

// Widest vector in registers' worth: wider loops are cut into pieces.
int64_t WidestPiece(const CpuTarget& t) { return 4 * t.lanes(); }

// `e` without its operand buffer[indices] of a chain of `kind`; empty if that is no operand of it.
Expr WithoutOperand(const Expr& e, ExprKind kind, const ir::StmtNode& store) {
  if (e->kind != kind) return Expr();
  for (int i = 0; i < 2; ++i) {
    const Expr& arg = e->args[i];
    if (arg->kind == ExprKind::kLoad && arg->buffer == store.buffer) {
      bool same = true;
      for (size_t d = 0; d < store.indices.size(); ++d)
        same = same && ir::StructurallyEqual(arg->args[d], store.indices[d]);
      if (same) return e->args[1 - i];
    }
  }
  for (int i = 0; i < 2; ++i) {
    if (Expr rest = WithoutOperand(e->args[i], kind, store)) {
      return i == 0 ? ir::Binary(kind, rest, e->args[1]) : ir::Binary(kind, e->args[0], rest);
    }
  }
  return Expr();
}

}  // namespace

Emitter::Emitter(KernelContext& context, llvm::Function* function, Value* workspace, Value* launcher)
    : context_(context),
      function_(function),
      workspace_(workspace),
      launcher_(launcher),
      b_(&function->getEntryBlock()) {
  llvm::FastMathFlags flags;
  flags.setAllowContract();
  b_.setFastMathFlags(flags);
  levels_.emplace_back();
}

void Emitter::Return() {
  LeaveTiles();
  llvm::Type* type = function_->getReturnType();
  if (type->isVoidTy()) {
    b_.CreateRetVoid();
  } else {
    b_.CreateRet(llvm::Constant::getNullValue(type));
  }
}

void Emitter::Bind(const ir::Var& var, const Binding& binding, int64_t extent) {
  bindings_[var.get()] = binding;
  if (extent > 0) ranges_.Bind(var, extent);
}

void Emitter::Unbind(const ir::Var& var) {
  bindings_.erase(var.get());
  ranges_.Unbind(var);
}

void Emitter::Emit(const Stmt& s) {
  if (!status_.ok() || s == nullptr) return;
  switch (s->kind) {
    case StmtKind::kFor:
      if (s->for_kind == ForKind::kParallel && launcher_ != nullptr && lanes_.count == 0 && s->extent > 1) {
        EmitParallel(s);
      } else if (s->for_kind == ForKind::kOutlined && lanes_.count == 0 && s->extent > 1) {
        EmitOutlined(s);
      } else if (s->for_kind == ForKind::kTile) {
        EmitTile(*s);
      } else {
        EmitFor(*s);
      }
      return;
    case StmtKind::kSeq:
      for (const Stmt& child : s->stmts) Emit(child);
      return;
    case StmtKind::kStore:
      EmitStore(s);
      return;
    case StmtKind::kIf:
      EmitIf(*s);
      return;
    case StmtKind::kAlloc:
      EmitAlloc(*s);
      return;
    case StmtKind::kPrefetch:
      EmitPrefetch(s);
      return;
    case StmtKind::kBarrier:
    case StmtKind::kInstruction:
      Fail(absl::InternalError("a launch in code for a CPU"));  // BuildKernel refuses launches
      return;
    case StmtKind::kBlock:
      break;
  }
  Fail(absl::InvalidArgumentError(absl::StrCat("function is not lowered: block ", s->block.name)));
}

// --- loops

namespace {

// Where the iterations of a loop do nothing from one on, by what is loaded around it (schedule/skip_behind.h): which
// that is, where there is one. Empty: it is no such loop.
Expr EndOf(const ir::StmtNode& loop) {
  const Stmt& body = loop.body;
  if (body->kind != StmtKind::kIf || body->else_body || !ir::HasLoad(body->cond)) return {};
  const Expr& cond = body->cond;
  const bool stays = !ir::AnyOf(
      body->body, [&](const Stmt& s) { return s->kind == StmtKind::kStore && ir::LoadsFrom(cond, s->buffer); });
  if (!stays) return {};
  if ((cond->kind != ExprKind::kLt && cond->kind != ExprKind::kLe) || ir::UsesVar(cond->args[1], loop.var)) return {};
  return ir::BoundOf(loop.var, cond->args[0], cond->kind == ExprKind::kLt ? cond->args[1] : cond->args[1] + Expr(1));
}

}  // namespace

void Emitter::EmitFor(const ir::StmtNode& s) {
  if (s.extent <= 0) return;
  if (s.extent == 1 || s.for_kind == ForKind::kUnrolled) return EmitUnrolled(s);
  if (s.for_kind == ForKind::kVectorized) return lanes_.count > 0 ? EmitUnrolled(s) : EmitVectorized(s);
  if (const Expr end = EndOf(s)) {
    Value* count = CountOf(s, end);
    return Branch(b_.CreateICmpSGT(count, I64(0)), [&] { EmitSerial(s.var, s.extent, I64(0), count, s.body->body); },
                  {});
  }
  EmitSerial(s.var, s.extent, I64(0), I64(s.extent), s.body);
}

// How many iterations a loop has that ends early.
Value* Emitter::CountOf(const ir::StmtNode& loop, const Expr& end) {
  const Expr count = ir::Min(ir::Max(end, Expr(0)), Expr(loop.extent));
  kept_.push_back(count);
  return Emit(Resolve(count));
}

void Emitter::EmitUnrolled(const ir::StmtNode& s) {
  unrolled_.emplace_back(s.var.get(), s.extent);
  for (int64_t i = 0; i < s.extent && status_.ok(); ++i) {
    // The range stays the whole loop's: what is cached about an access holds for all of its instances.
    Bind(s.var, {Binding::kConstant, i}, s.extent);
    Emit(s.body);
    Unbind(s.var);
  }
  unrolled_.pop_back();
}

void Emitter::EmitVectorized(const ir::StmtNode& s) {
  for (const VectorPiece& piece : PowerOfTwoPieces(s.extent, WidestPiece(context_.target))) {
    if (!status_.ok()) return;
    if (piece.length == 1) {
      Bind(s.var, {Binding::kConstant, piece.base}, s.extent);
      Emit(s.body);
      Unbind(s.var);
      continue;
    }
    ir::Var& local = locals_[{s.var.get(), piece.base}];
    if (local == nullptr) local = ir::MakeVar(s.var->name);
    lanes_ = {s.var, local, piece.base, piece.length};
    Bind(s.var, {Binding::kLane, piece.base}, s.extent);
    Bind(local, {Binding::kLane, 0}, piece.length);
    Emit(s.body);
    Unbind(local);
    Unbind(s.var);
    lanes_ = Lanes();
  }
}

// A loop that runs at least once: the caller has seen to it.
void Emitter::EmitSerial(const ir::Var& var, int64_t extent, Value* begin, Value* end, const Stmt& body) {
  llvm::BasicBlock* before = b_.GetInsertBlock();
  auto* block = llvm::BasicBlock::Create(b_.getContext(), var->name, function_);
  levels_.back().anchor = b_.CreateBr(block);
  levels_.emplace_back();
  b_.SetInsertPoint(block);
  llvm::PHINode* i = b_.CreatePHI(b_.getInt64Ty(), 2, var->name);
  i->addIncoming(begin, before);
  Bind(var, {Binding::kValue, 0, i, current()}, extent);
  Emit(body);
  Unbind(var);
  levels_.pop_back();
  Value* next = b_.CreateAdd(i, I64(1), "", /*HasNUW=*/true, /*HasNSW=*/true);
  i->addIncoming(next, b_.GetInsertBlock());
  auto* after = llvm::BasicBlock::Create(b_.getContext(), "", function_);
  b_.CreateCondBr(b_.CreateICmpSLT(next, end), block, after);
  b_.SetInsertPoint(after);
  levels_.back().anchor = nullptr;
}

void Emitter::Branch(Value* cond, const std::function<void()>& then, const std::function<void()>& otherwise) {
  auto* taken = llvm::BasicBlock::Create(b_.getContext(), "then", function_);
  auto* after = llvm::BasicBlock::Create(b_.getContext(), "", function_);
  auto* other = otherwise ? llvm::BasicBlock::Create(b_.getContext(), "else", function_) : after;
  levels_.back().anchor = b_.CreateCondBr(cond, taken, other);
  auto region = [&](llvm::BasicBlock* block, const std::function<void()>& emit) {
    b_.SetInsertPoint(block);
    levels_.emplace_back();
    emit();
    levels_.pop_back();
    b_.CreateBr(after);
  };
  region(taken, then);
  if (otherwise) region(other, otherwise);
  b_.SetInsertPoint(after);
  levels_.back().anchor = nullptr;
}

void Emitter::EmitIf(const ir::StmtNode& s) {
  const Expr cond = Resolve(s.cond);
  if (std::optional<int64_t> known = ir::AsInt(cond)) return Emit(*known != 0 ? s.body : s.else_body);
  if (DependsOnLane(cond)) {
    Value* outer = lanes_.mask;
    Value* mask = Spread(Emit(cond));
    lanes_.mask = outer == nullptr ? mask : b_.CreateAnd(outer, mask);
    Emit(s.body);
    if (s.else_body != nullptr) {
      Value* inverse = b_.CreateNot(mask);
      lanes_.mask = outer == nullptr ? inverse : b_.CreateAnd(outer, inverse);
      Emit(s.else_body);
    }
    lanes_.mask = outer;
    return;
  }
  std::function<void()> otherwise;
  if (s.else_body != nullptr) otherwise = [&] { Emit(s.else_body); };
  Branch(
      Emit(cond), [&] { Emit(s.body); }, otherwise);
}

// --- parallel loops

namespace {

// The closure is an array of 8-byte slots: buffers, then thread's buffers' base, then variables.
Value* Slot(llvm::IRBuilder<>& b, Value* closure, size_t i) { return b.CreateConstGEP1_64(b.getInt64Ty(), closure, i); }

}  // namespace

void Emitter::EmitParallel(const Stmt& loop) {
  Stmt s = loop;
  Value* count = I64(loop->extent);
  if (const Expr end = EndOf(*loop)) {
    count = CountOf(*loop, end);
    s = ir::For(loop->var, loop->extent, loop->for_kind, loop->body->body);
  }
  absl::StatusOr<Captures> captures = CapturesOf(s, context_.plan);
  if (!captures.ok()) {
    Fail(captures.status());
    return;
  }
  std::vector<Value*> values = PointersTo(captures->buffers);
  if (!captures->thread_buffers.empty()) {
    values.push_back(
        b_.CreateConstGEP1_64(b_.getInt8Ty(), workspace_, static_cast<uint64_t>(context_.plan.workspace_bytes)));
  }
  for (const ir::Var& var : captures->vars) {
    const Binding& binding = bindings_.at(var.get());
    if (binding.kind == Binding::kValue) values.push_back(binding.value);
  }
  llvm::Function* body = MakeBody(s, *captures, "parallel");
  llvm::Function* thunk = MakeThunk(body, *captures, values.size());

  Value* closure = nullptr;
  {
    llvm::IRBuilder<>::InsertPointGuard guard(b_);
    b_.SetInsertPoint(&function_->getEntryBlock(), function_->getEntryBlock().begin());
    closure = b_.CreateAlloca(llvm::ArrayType::get(b_.getInt64Ty(), std::max<size_t>(1, values.size())));
  }
  for (size_t i = 0; i < values.size(); ++i) b_.CreateStore(values[i], Slot(b_, closure, i));
  auto* launch =
      llvm::FunctionType::get(b_.getVoidTy(), {b_.getPtrTy(), b_.getInt64Ty(), b_.getPtrTy(), b_.getPtrTy()}, false);
  Value* parallel_for = b_.CreateLoad(b_.getPtrTy(), launcher_);
  b_.CreateCall(launch, parallel_for, {launcher_, count, thunk, closure});
}

std::vector<Value*> Emitter::PointersTo(const std::vector<ir::Buffer>& buffers) {
  std::vector<Value*> pointers;
  for (const ir::Buffer& buffer : buffers) {
    auto it = pointers_.find(buffer.get());
    pointers.push_back(it != pointers_.end()
                           ? it->second
                           : Fail(absl::InvalidArgumentError(
                                      absl::StrCat("buffer ", buffer->name, " is neither a parameter nor allocated")),
                                  b_.getPtrTy()));
  }
  return pointers;
}

void Emitter::EmitOutlined(const Stmt& s) {
  absl::StatusOr<Captures> captures = CapturesOf(s, context_.plan);
  if (!captures.ok()) {
    Fail(captures.status());
    return;
  }
  std::vector<Value*> args = PointersTo(captures->buffers);
  for (Value* pointer : PointersTo(captures->thread_buffers)) args.push_back(pointer);
  for (const ir::Var& var : captures->vars) {
    const Binding& binding = bindings_.at(var.get());
    if (binding.kind == Binding::kValue) args.push_back(binding.value);
  }
  args.insert(args.end(), {I64(0), I64(s->extent)});
  b_.CreateCall(MakeBody(s, *captures, "loop"), args);
}

// void body(buffers..., thread's buffers..., variables..., begin, end), every pointer noalias.
llvm::Function* Emitter::MakeBody(const Stmt& s, const Captures& captures, const char* name) {
  std::vector<ir::Buffer> buffers = captures.buffers;
  buffers.insert(buffers.end(), captures.thread_buffers.begin(), captures.thread_buffers.end());
  std::vector<ir::Var> vars;
  for (const ir::Var& var : captures.vars) {
    if (bindings_.at(var.get()).kind == Binding::kValue) vars.push_back(var);
  }
  llvm::Function* function =
      MakePart(context_, absl::StrCat(context_.symbol, ".", name, context_.bodies++), buffers, vars.size() + 2, 0);
  Emitter inner(context_, function, nullptr, nullptr);
  inner.ranges_ = ranges_;
  unsigned arg = 0;
  for (const ir::Buffer& buffer : buffers) inner.BindPointer(buffer, function->getArg(arg++));
  for (const ir::Var& var : captures.vars) inner.bindings_[var.get()] = bindings_.at(var.get());
  for (const ir::Var& var : vars) inner.bindings_[var.get()] = {Binding::kValue, 0, function->getArg(arg++), 0};
  Value* begin = function->getArg(arg);
  Value* end = function->getArg(arg + 1);
  inner.Branch(inner.b_.CreateICmpSLT(begin, end), [&] { inner.EmitSerial(s->var, s->extent, begin, end, s->body); },
               {});
  inner.Return();
  if (!inner.status_.ok()) Fail(inner.status_);
  return function;
}

// What the launcher calls: unpacks the closure for the body.
llvm::Function* Emitter::MakeThunk(llvm::Function* body, const Captures& captures, size_t slots) {
  llvm::LLVMContext& c = b_.getContext();
  llvm::Type* i64 = b_.getInt64Ty();
  auto* type = llvm::FunctionType::get(b_.getVoidTy(), {b_.getPtrTy(), i64, i64, b_.getInt32Ty()}, false);
  auto* thunk =
      llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage, body->getName() + ".thunk", context_.module);
  SetTargetAttributes(*thunk, context_.target);
  llvm::IRBuilder<> b(llvm::BasicBlock::Create(c, "", thunk));
  std::vector<Value*> args;
  auto load = [&](llvm::Type* t, size_t i) { return b.CreateLoad(t, Slot(b, thunk->getArg(0), i)); };
  size_t slot = 0;
  for (; slot < captures.buffers.size(); ++slot) args.push_back(load(b.getPtrTy(), slot));
  if (!captures.thread_buffers.empty()) {
    Value* thread = b.CreateSExt(thunk->getArg(3), i64);
    Value* base = b.CreateGEP(b.getInt8Ty(), load(b.getPtrTy(), slot++),
                              b.CreateMul(thread, b.getInt64(context_.plan.thread_workspace_bytes)));
    for (const ir::Buffer& buffer : captures.thread_buffers) {
      args.push_back(b.CreateConstGEP1_64(b.getInt8Ty(), base,
                                          static_cast<uint64_t>(context_.plan.placements.at(buffer.get()).offset)));
    }
  }
  for (; slot < slots; ++slot) args.push_back(load(i64, slot));
  args.push_back(thunk->getArg(1));
  args.push_back(thunk->getArg(2));
  b.CreateCall(body, args);
  b.CreateRetVoid();
  return thunk;
}

// --- scratch

void Emitter::EmitAlloc(const ir::StmtNode& s) {
  const ir::BufferNode& buffer = *s.buffer;
  private_.erase(&buffer);
  if (lanes_.count > 0) private_[&buffer] = lanes_.count;
  const int64_t copies = std::max<int64_t>(1, lanes_.count);
  const int64_t elements = std::max<int64_t>(1, NumElements(buffer.shape)) * copies;
  if (buffer.scope == ir::Scope::kRegister) {
    const bool own = copies > 1;
    RegisterArray array(b_, buffer.name, MemoryType(buffer.dtype), own ? elements : NumElements(buffer.shape),
                        own || buffer.shape.empty() ? copies : buffer.shape.back(), own ? copies : WidestAccess(s));
    array.Clear(b_);
    registers_.insert_or_assign(&buffer, std::move(array));
  } else if (buffer.scope == ir::Scope::kMemory && context_.plan.placements.at(&buffer).kind == Placement::kStack) {
    llvm::IRBuilder<>::InsertPointGuard guard(b_);
    b_.SetInsertPoint(&function_->getEntryBlock(), function_->getEntryBlock().begin());
    auto* type = llvm::ArrayType::get(MemoryType(buffer.dtype), static_cast<uint64_t>(elements));
    llvm::AllocaInst* memory = b_.CreateAlloca(type, nullptr, buffer.name);
    memory->setAlignment(llvm::Align(64));
    pointers_[&buffer] = memory;
  }
  Emit(s.body);
  if (buffer.scope == ir::Scope::kTile)
    std::erase_if(tiles_.sums, [&](const auto& tile) { return tile.first.first == &buffer; });
}

// Of an array: the widest piece of any vectorised loop that runs along its last dimension.
int64_t Emitter::WidestAccess(const ir::StmtNode& alloc) const {
  int64_t widest = 1;
  ir::VisitStmt(alloc.body, [&](const Stmt& loop) {
    if (loop->kind != StmtKind::kFor || loop->for_kind != ForKind::kVectorized) return;
    auto use = [&](const ir::Buffer& b, const std::vector<Expr>& indices) {
      if (b != alloc.buffer || indices.empty() || !ir::UsesVar(indices.back(), loop->var)) return;
      const std::vector<VectorPiece> pieces = PowerOfTwoPieces(loop->extent, WidestPiece(context_.target));
      if (!pieces.empty()) widest = std::max(widest, pieces.front().length);
    };
    ir::VisitStmt(loop->body, [&](const Stmt& store) {
      if (store->kind == StmtKind::kStore) use(store->buffer, store->indices);
    });
    ir::VisitExprs(loop->body, [&](const Expr& root) {
      ir::Visit(root, [&](const Expr& e) {
        if (e->kind == ExprKind::kLoad) use(e->buffer, e->args);
      });
    });
  });
  return widest;
}

// --- stores

void Emitter::EmitStore(const Stmt& s) {
  if (++context_.statements > kMostStatements) {
    Fail(absl::ResourceExhaustedError(
        absl::StrCat("kernel ", context_.symbol, " unrolls to more than ", kMostStatements, " stores")));
    return;
  }
  const Access access = AccessOf(s.get(), s->buffer, s->indices);
  const OpenScope scope(*this, /*closed=*/true);
  ForgetOperandTiles();
  if (lanes_.count == 0) {
    Value* value = Emit(s->value);
    ScalarStore(access, value);
  } else if (access.form.lane == 0 && !access.form.irregular) {
    EmitLaneInvariantStore(*s, access);
  } else {
    Value* value = EmitVector(s->value);
    StoreAccess(*s, access, value);
  }
}

// One element written by all lanes: a reduction over them, or the last one's value.
void Emitter::EmitLaneInvariantStore(const ir::StmtNode& s, const Access& access) {
  if (!ir::LoadsFrom(s.value, s.buffer)) {
    Value* value = Emit(s.value);
    if (value->getType()->isVectorTy()) {
      if (lanes_.mask != nullptr) {
        Fail(absl::UnimplementedError(absl::StrCat("lanes under a condition write one element of ", s.buffer->name)));
        return;
      }
      value = b_.CreateExtractElement(value, static_cast<uint64_t>(lanes_.count - 1));
    }
    if (lanes_.mask == nullptr) return ScalarStore(access, value);
    Branch(Any(lanes_.mask), [&] { ScalarStore(access, value); }, {});
    return;
  }
  for (ExprKind kind : {ExprKind::kAdd, ExprKind::kMul, ExprKind::kMin, ExprKind::kMax}) {
    Expr rest = WithoutOperand(s.value, kind, s);
    if (!rest || ir::LoadsFrom(rest, s.buffer)) continue;
    kept_.push_back(rest);
    ReduceInto(s, access, kind, EmitVector(rest));
    return;
  }
  Fail(absl::UnimplementedError(
      absl::StrCat("vectorised loop over ", s.buffer->name, " is not a sum, product, minimum or maximum")));
}

void Emitter::ReduceInto(const ir::StmtNode& s, const Access& access, ExprKind kind, Value* lanes) {
  const DType dtype = s.buffer->dtype;
  const bool is_unsigned = IsUnsigned(dtype);
  auto combine = [&](Value* a, Value* c) -> Value* {
    if (kind == ExprKind::kMin) return EmitMin(b_, a, c, is_unsigned);
    if (kind == ExprKind::kMax) return EmitMax(b_, a, c, is_unsigned);
    if (kind == ExprKind::kAdd) return IsFloat(dtype) ? b_.CreateFAdd(a, c) : b_.CreateAdd(a, c);
    return IsFloat(dtype) ? b_.CreateFMul(a, c) : b_.CreateMul(a, c);
  };
  auto load = [&] {
    return access.buffer->scope == ir::Scope::kRegister ? EmitRegisterLoad(access) : ScalarLoad(access);
  };
  auto reduce_and_store = [&] {
    Value* old = FromMemory(load(), dtype);
    Value* v = lanes;
    if (lanes_.mask != nullptr) {
      // Lanes that take no part give what changes nothing: the old value, or the neutral one.
      const bool extremum = kind == ExprKind::kMin || kind == ExprKind::kMax;
      const double neutral = kind == ExprKind::kAdd ? 0 : 1;
      Value* other = extremum         ? old
                     : IsFloat(dtype) ? static_cast<Value*>(llvm::ConstantFP::get(old->getType(), neutral))
                                      : llvm::ConstantInt::getSigned(old->getType(), static_cast<int64_t>(neutral));
      v = b_.CreateSelect(lanes_.mask, v, Spread(other));
    }
    for (int64_t n = lanes_.count; n > 1; n /= 2) {
      std::vector<int> low, high;
      for (int i = 0; i < n / 2; ++i) {
        low.push_back(i);
        high.push_back(i + static_cast<int>(n / 2));
      }
      v = combine(b_.CreateShuffleVector(v, low), b_.CreateShuffleVector(v, high));
    }
    ScalarStore(access, combine(old, b_.CreateExtractElement(v, uint64_t{0})));
  };
  if (lanes_.mask == nullptr || access.buffer->scope == ir::Scope::kRegister || InBounds(access))
    return reduce_and_store();
  Branch(Any(lanes_.mask), reduce_and_store, {});
}

void Emitter::EmitPrefetch(const Stmt& s) {
  if (s->buffer->scope == ir::Scope::kRegister) return;
  const Access access = AccessOf(s.get(), s->buffer, s->indices);
  if (access.form.irregular) return;
  // Of a vector, the line that its first lane lies in, to all caches. Lines that were asked for L2 alone came late
  // now and then on Zen 5.
  b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                     {AddressOf(access, 0), b_.getInt32(s->for_store ? 1 : 0), b_.getInt32(3), b_.getInt32(1)});
}

}  // namespace temper
