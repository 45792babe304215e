#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "compiler/ir/launch.h"
#include "compiler/ir/stmt.h"
#include "compiler/ir/walk.h"

namespace temper::ir {
namespace {

class Verifier {
 public:
  absl::Status Check(const Func& f);

 private:
  absl::Status Check(const Stmt& s);
  absl::Status CheckFor(const Stmt& s);
  absl::Status CheckNesting(const Stmt& s) const;
  absl::Status CheckAlloc(const Stmt& s);
  absl::Status CheckBlock(const Stmt& s);
  absl::Status CheckOfTeam(const Stmt& s);
  absl::Status CheckInstruction(const Stmt& s);
  absl::Status CheckCopy(const Stmt& s) const;
  absl::Status CheckAccess(const Stmt& s, const Buffer& buffer, const std::vector<Expr>& indices);
  absl::Status CheckIndices(const Stmt& s, const Buffer& buffer, const std::vector<Expr>& indices) const;
  absl::Status CheckExpr(const Stmt& s, const Expr& e, DType want, const std::string& what) const;
  absl::Status CheckDType(const Stmt& s, const Expr& e, DType want, const std::string& what) const;
  absl::Status CheckNode(const Stmt& s, const Expr& e) const;  // not what is below it
  absl::Status CheckWritable(const Stmt& s);
  absl::Status CheckNoBarrier(const Func& f) const;
  absl::Status Error(const Stmt& s, const std::string& what) const;

  std::string name_;
  std::unordered_set<const BufferNode*> buffers_;   // in scope
  std::unordered_set<const BufferNode*> declared_;  // ever: an array is allocated at one place
  std::unordered_set<const BufferNode*> inputs_;
  std::unordered_set<const VarNode*> vars_;   // in scope
  std::unordered_set<const VarNode*> bound_;  // by some loop, in scope or not
  std::vector<Stmt> concurrent_;              // loops in scope whose iterations have no order, outermost first
  std::unordered_set<std::string> blocks_;
};

absl::Status Verifier::Error(const Stmt& s, const std::string& what) const {
  return absl::InvalidArgumentError(absl::StrCat(name_, ": ", what, " in: ", FirstLine(s)));
}

absl::Status Verifier::Check(const Func& f) {
  name_ = f.name;
  if (!f.body) return absl::InvalidArgumentError(absl::StrCat(name_, ": no body"));
  if (f.num_outputs < 0 || static_cast<size_t>(f.num_outputs) > f.params.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name_, ": ", f.num_outputs, " outputs of ", f.params.size(), " parameters"));
  }
  for (size_t i = 0; i < f.params.size(); ++i) {
    const Buffer& b = f.params[i];
    if (!declared_.insert(b.get()).second)
      return absl::InvalidArgumentError(absl::StrCat(name_, ": parameter ", b->name, " twice"));
    if (b->scope != Scope::kMemory) {
      return absl::InvalidArgumentError(absl::StrCat(name_, ": parameter ", b->name, " can not live in ",
                                                     b->scope == Scope::kShared ? "shared memory" : "registers"));
    }
    buffers_.insert(b.get());
    if (i + f.num_outputs < f.params.size()) inputs_.insert(b.get());
  }
  TEMPER_RETURN_IF_ERROR(Check(f.body));
  if (!blocks_.empty()) return CheckNoBarrier(f);
  TEMPER_ASSIGN_OR_RETURN(std::vector<Launch> launches, LaunchesOf(f));
  for (const Launch& launch : launches) TEMPER_RETURN_IF_ERROR(CheckBarriers(f, launch));
  return absl::OkStatus();
}

absl::Status Verifier::CheckNoBarrier(const Func& f) const {
  absl::Status status;
  VisitStmt(f.body, [&](const Stmt& s) {
    if (s->kind == StmtKind::kBarrier || s->kind == StmtKind::kInstruction)
      status = Error(s, "a scheduled nest has no barriers and instructions, Lower places them");
  });
  return status;
}

absl::Status Verifier::Check(const Stmt& s) {
  switch (s->kind) {
    case StmtKind::kFor:
      return CheckFor(s);
    case StmtKind::kBlock:
      return CheckBlock(s);
    case StmtKind::kSeq:
      for (const Stmt& child : s->stmts) TEMPER_RETURN_IF_ERROR(Check(child));
      return absl::OkStatus();
    case StmtKind::kIf:
      TEMPER_RETURN_IF_ERROR(CheckExpr(s, s->cond, DType::kBool, "condition"));
      TEMPER_RETURN_IF_ERROR(Check(s->body));
      return s->else_body ? Check(s->else_body) : absl::OkStatus();
    case StmtKind::kAlloc:
      return CheckAlloc(s);
    case StmtKind::kStore:
      TEMPER_RETURN_IF_ERROR(CheckWritable(s));
      TEMPER_RETURN_IF_ERROR(CheckAccess(s, s->buffer, s->indices));
      TEMPER_RETURN_IF_ERROR(CheckCopy(s));
      return CheckExpr(s, s->value, s->buffer->dtype, "value");
    case StmtKind::kInstruction:
      return CheckInstruction(s);
    case StmtKind::kPrefetch:
      return CheckAccess(s, s->buffer, s->indices);
    case StmtKind::kBarrier:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

// A load of memory, or that or zero.
absl::Status Verifier::CheckCopy(const Stmt& s) const {
  if (s->ahead == 0) return absl::OkStatus();
  const bool either = s->value->kind == ExprKind::kSelect;
  const Expr& load = either ? s->value->args[1] : s->value;
  const bool zero = !either || (s->value->args[2]->kind == ExprKind::kFloat && s->value->args[2]->float_value == 0);
  if (s->buffer->scope == Scope::kShared && load->kind == ExprKind::kLoad && load->buffer->scope == Scope::kMemory &&
      zero)
    return absl::OkStatus();
  return Error(s, "an asynchronous store is of an element of memory, or of zero, to shared memory, but not");
}

absl::Status Verifier::CheckInstruction(const Stmt& s) {
  if (!IsOfWarp(s->instruction)) return absl::OkStatus();
  TEMPER_RETURN_IF_ERROR(CheckAccess(s, s->buffer, s->indices));
  if (IsOfTeam(s->instruction)) return CheckOfTeam(s);
  TEMPER_RETURN_IF_ERROR(CheckExpr(s, s->value, s->buffer->dtype, "value"));
  bool fits = s->buffer->scope == Scope::kRegister;
  if (s->instruction == Instruction::kExchange) {
    if (s->extent <= 0 || s->extent >= kTensorWarp) return Error(s, "lanes that no warp has");
    fits = fits && s->value->kind == ExprKind::kLoad && s->value->buffer->scope == Scope::kRegister;
    return fits ? absl::OkStatus() : Error(s, "an exchange that is not of registers");
  }
  const auto reads = [](const Expr& e, Scope scope) {
    return e->kind == ExprKind::kLoad && e->buffer->scope == scope && IsTensorType(e->dtype);
  };
  if (s->instruction == Instruction::kMultiply) {
    fits = fits && s->buffer->dtype == DType::kF32 && s->value->kind == ExprKind::kMul &&
           reads(FactorOf(s, 0), Scope::kRegister) && reads(FactorOf(s, 1), Scope::kRegister) &&
           FactorOf(s, 0)->dtype == FactorOf(s, 1)->dtype && s->value->dtype == DType::kF32;
  } else {
    const bool transposed = s->instruction == Instruction::kLoadMatrixTransposed;
    fits = fits && reads(s->value, Scope::kShared) && !(transposed && s->value->dtype == DType::kF32);
  }
  return fits ? absl::OkStatus() : Error(s, "operands that the instruction does not take");
}

absl::Status Verifier::CheckOfTeam(const Stmt& s) {
  bool fits = s->buffer->scope == Scope::kRegister && s->buffer->dtype == DType::kF32;
  if (s->instruction == Instruction::kAddProduct) {
    TEMPER_RETURN_IF_ERROR(CheckExpr(s, s->value, DType::kF32, "value"));
    fits = fits && s->value->kind == ExprKind::kMul && FactorOf(s, 0)->dtype == FactorOf(s, 1)->dtype;
    for (size_t i = 0; i < s->tiled.size() && fits; ++i) {
      const Expr& load = FactorOf(s, i);
      fits = load->kind == ExprKind::kLoad && load->buffer->scope == Scope::kShared && IsTensorType(load->dtype) &&
             SizeOf(load->dtype) == 2;
      for (const int64_t next : {s->tiled[i].next_step, s->tiled[i].next_outer})
        fits = fits && next > 0 && next % kTileSide == 0 && next * SizeOf(load->dtype) < kMostTileBytes;
    }
    if (s->extent < kMatrixSide || s->extent > kTeamColumns || s->extent % kMatrixSide != 0)
      return Error(s, "columns that no product has");
  }
  return fits ? absl::OkStatus() : Error(s, "operands that the instruction does not take");
}

absl::Status Verifier::CheckFor(const Stmt& s) {
  if (s->extent < 0) return Error(s, "negative extent");
  if (!bound_.insert(s->var.get()).second) return Error(s, absl::StrCat("variable ", s->var->name, " is bound twice"));
  TEMPER_RETURN_IF_ERROR(CheckNesting(s));
  const bool concurrent = IsConcurrent(s->for_kind);
  vars_.insert(s->var.get());
  if (concurrent) concurrent_.push_back(s);
  TEMPER_RETURN_IF_ERROR(Check(s->body));
  vars_.erase(s->var.get());
  if (concurrent) concurrent_.pop_back();
  return absl::OkStatus();
}

absl::Status Verifier::CheckNesting(const Stmt& s) const {
  if (!IsConcurrent(s->for_kind)) return absl::OkStatus();
  for (const Stmt& outer : concurrent_) {
    if (MayHold(outer->for_kind, s->for_kind)) continue;
    return Error(s, absl::StrCat("this loop can not be inside ", FirstLine(outer), ", but is"));
  }
  return absl::OkStatus();
}

absl::Status Verifier::CheckAlloc(const Stmt& s) {
  if (!declared_.insert(s->buffer.get()).second) return Error(s, absl::StrCat(s->buffer->name, " is allocated twice"));
  for (int64_t d : s->buffer->shape) {
    if (d < 0) return Error(s, absl::StrCat(s->buffer->name, " has no known size"));
  }
  buffers_.insert(s->buffer.get());
  TEMPER_RETURN_IF_ERROR(Check(s->body));
  buffers_.erase(s->buffer.get());
  return absl::OkStatus();
}

absl::Status Verifier::CheckBlock(const Stmt& s) {
  const BlockInfo& block = s->block;
  if (!blocks_.insert(block.name).second) return Error(s, absl::StrCat("a second block named ", block.name));
  if (block.iters.size() != block.bindings.size()) {
    return Error(s, absl::StrCat(block.iters.size(), " iterators but ", block.bindings.size(), " bindings"));
  }
  for (size_t i = 0; i < block.iters.size(); ++i) {
    TEMPER_RETURN_IF_ERROR(CheckExpr(s, block.bindings[i], DType::kI64, "binding"));
    if (!block.iters[i].reduce) continue;
    absl::Status status;
    AnyNode(block.bindings[i], [&](const Expr& e) {
      if (e->kind != ExprKind::kVar) return false;
      for (const Stmt& loop : concurrent_) {
        if (loop->var != e->var) continue;
        status =
            Error(s, absl::StrCat(loop->for_kind == ForKind::kParallel ? "parallel" : std::string(Word(loop->for_kind)),
                                  " loop ", e->var->name, " binds reduction iterator ", block.iters[i].var->name));
      }
      return !status.ok();
    });
    TEMPER_RETURN_IF_ERROR(status);
  }
  if (block.predicate) TEMPER_RETURN_IF_ERROR(CheckExpr(s, block.predicate, DType::kBool, "predicate"));

  // The computation itself sees the block's own iterators, not the loops.
  std::unordered_set<const VarNode*> loops;
  loops.swap(vars_);
  for (const IterVar& iter : block.iters) {
    if (iter.extent < 0) return Error(s, absl::StrCat("negative extent of iterator ", iter.var->name));
    if (!vars_.insert(iter.var.get()).second || bound_.count(iter.var.get())) {
      return Error(s, absl::StrCat("variable ", iter.var->name, " is bound twice"));
    }
  }
  TEMPER_RETURN_IF_ERROR(CheckWritable(s));
  TEMPER_RETURN_IF_ERROR(CheckAccess(s, s->buffer, s->indices));
  if (block.init) TEMPER_RETURN_IF_ERROR(CheckExpr(s, block.init, s->buffer->dtype, "init"));
  TEMPER_RETURN_IF_ERROR(CheckExpr(s, s->value, s->buffer->dtype, "value"));
  TEMPER_RETURN_IF_ERROR(CheckCopy(s));
  loops.swap(vars_);
  return absl::OkStatus();
}

absl::Status Verifier::CheckWritable(const Stmt& s) {
  if (inputs_.count(s->buffer.get())) return Error(s, absl::StrCat("input ", s->buffer->name, " is written"));
  return absl::OkStatus();
}

absl::Status Verifier::CheckAccess(const Stmt& s, const Buffer& buffer, const std::vector<Expr>& indices) {
  TEMPER_RETURN_IF_ERROR(CheckIndices(s, buffer, indices));
  for (const Expr& index : indices) TEMPER_RETURN_IF_ERROR(CheckExpr(s, index, DType::kI64, "index"));
  return absl::OkStatus();
}

absl::Status Verifier::CheckIndices(const Stmt& s, const Buffer& buffer, const std::vector<Expr>& indices) const {
  if (!buffers_.count(buffer.get())) return Error(s, absl::StrCat("buffer ", buffer->name, " is not in scope"));
  if (indices.size() != buffer->shape.size()) {
    return Error(s, absl::StrCat(indices.size(), " indices into ", buffer->name, " of rank ", buffer->shape.size()));
  }
  for (const Expr& index : indices) TEMPER_RETURN_IF_ERROR(CheckDType(s, index, DType::kI64, "index"));
  return absl::OkStatus();
}

absl::Status Verifier::CheckExpr(const Stmt& s, const Expr& e, DType want, const std::string& what) const {
  absl::Status status = CheckDType(s, e, want, what);
  if (!status.ok()) return status;
  AnyNode(e, [&](const Expr& node) {
    status = CheckNode(s, node);
    return !status.ok();
  });
  return status;
}

absl::Status Verifier::CheckDType(const Stmt& s, const Expr& e, DType want, const std::string& what) const {
  if (!e) return Error(s, absl::StrCat("no ", what));
  if (e->dtype != want) {
    return Error(s, absl::StrCat(what, " ", Text(e), " is ", std::string(Name(e->dtype)), " where ",
                                 std::string(Name(want)), " is needed"));
  }
  return absl::OkStatus();
}

absl::Status Verifier::CheckNode(const Stmt& s, const Expr& e) const {
  auto wants = [&](bool holds) {
    return holds ? absl::OkStatus() : Error(s, absl::StrCat("dtypes disagree at ", Text(e)));
  };
  const std::vector<Expr>& args = e->args;
  if (e->kind > ExprKind::kLoad && e->kind != ExprKind::kSelect && e->kind != ExprKind::kCast) {
    for (const Expr& arg : args) {
      if (!IsNative(arg->dtype))
        return Error(s, absl::StrCat(std::string(Name(arg->dtype)), " has no arithmetic at ", Text(e)));
    }
  }
  switch (e->kind) {
    case ExprKind::kInt:
    case ExprKind::kFloat:
      return wants(IsFloat(e->dtype) == (e->kind == ExprKind::kFloat));
    case ExprKind::kVar:
      return vars_.count(e->var.get()) ? absl::OkStatus()
                                       : Error(s, absl::StrCat("variable ", e->var->name, " is not in scope"));
    case ExprKind::kLoad:
      return CheckIndices(s, e->buffer, args);
    case ExprKind::kSelect:
      return wants(args[0]->dtype == DType::kBool && args[1]->dtype == args[2]->dtype);
    case ExprKind::kAnd:
    case ExprKind::kOr:
      return wants(args[0]->dtype == DType::kBool && args[1]->dtype == DType::kBool);
    case ExprKind::kNot:
      return wants(args[0]->dtype == DType::kBool);
    case ExprKind::kPow:
      return wants(IsFloat(e->dtype) && args[0]->dtype == args[1]->dtype);
    case ExprKind::kCast:
      return absl::OkStatus();
    case ExprKind::kAbs:
      return wants(e->dtype != DType::kBool);
    case ExprKind::kTf32:
      return wants(e->dtype == DType::kF32);
    case ExprKind::kPair:
      return wants(args[0]->dtype == args[1]->dtype && !IsFloat(args[0]->dtype) && !IsFloat(e->dtype) &&
                   2 * Info(args[0]->dtype).bits == Info(e->dtype).bits);
    case ExprKind::kDot16:
    case ExprKind::kDot8:
      return wants(e->dtype == DType::kI32 && args[0]->dtype == DType::kI32 && args[1]->dtype == DType::kI32);
    case ExprKind::kBitAnd:
      return wants(!IsFloat(e->dtype) && args[0]->dtype == args[1]->dtype);
    default:
      return wants(args.size() == 2 ? args[0]->dtype == args[1]->dtype : IsFloat(e->dtype));
  }
}

}  // namespace

absl::Status Verify(const Func& f) { return Verifier().Check(f); }

}  // namespace temper::ir
