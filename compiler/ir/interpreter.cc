// Compiles the nest once (variables to slots, buffers to arrays) and then walks it: slow, but exact and checked.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/ir/access_watch.h"
#include "compiler/ir/interpreter_value.h"
#include "compiler/ir/launch.h"
#include "compiler/ir/stmt.h"
#include "compiler/ir/sum.h"

namespace temper::ir {
namespace {

struct Array {
  const BufferNode* buffer;
  char* data = nullptr;
  NDArray owned;  // what an Alloc gave
};

// An expression with its names resolved. Nodes that it shares are shared here too, and are computed once each time.
struct Code;
using Codes = std::vector<std::shared_ptr<Code>>;
struct Code {
  ExprKind kind;
  DType dtype;                    // of the result
  DType arg_dtype = DType::kI64;  // of the operands
  Value constant{.i = 0};
  int slot = -1;  // kVar: variable; kLoad: array
  CastMode cast_mode;
  Codes args;
  bool shared = false;
  // Of a shared one: the evaluation that computed it last, and what came of it.
  int64_t computed = 0;
  Value value{.i = 0};
};

struct CodeStmt {
  StmtKind kind;
  int slot = -1;  // kFor: variable; others: array
  int64_t extent = 0;
  std::array<TiledMatrix, 2> tiled;
  ForKind for_kind = ForKind::kSerial;
  Instruction instruction = Instruction::kLoadMatrix;
  bool asynchronous = false;       // kStore
  bool together = false;           // threads meet inside, so all of a group run it together
  std::vector<CodeStmt> children;  // of kIf: then, else
  Codes indices;
  Codes value;  // kStore, kBlock: one; kIf: the condition
  // kBlock
  const BlockInfo* block = nullptr;
  std::vector<int> iter_slots;
  Codes bindings, predicate, init;  // the last two empty or one
};

// --- resolving names ---

class Resolver {
 public:
  absl::StatusOr<CodeStmt> Resolve(const Stmt& s);
  int AddArray(const Buffer& b);
  int num_vars() const { return static_cast<int>(vars_.size()); }
  std::vector<Array>& arrays() { return arrays_; }

 private:
  // Of one expression, by node.
  using Known = std::unordered_map<const ExprNode*, std::shared_ptr<Code>>;
  absl::StatusOr<std::shared_ptr<Code>> Resolve(const Expr& e, Known& known);
  absl::StatusOr<Code> ResolveNode(const Expr& e, Known& known);
  absl::Status ResolveAll(const std::vector<Expr>& exprs, Codes& out);
  absl::Status ResolveOptional(const Expr& e, Codes& out);
  absl::StatusOr<int> SlotOf(const Buffer& b, size_t indices) const;
  int AddVar(const Var& v) { return vars_.try_emplace(v.get(), static_cast<int>(vars_.size())).first->second; }

  std::unordered_map<const VarNode*, int> vars_;
  std::unordered_map<const BufferNode*, int> slots_;
  std::vector<Array> arrays_;
};

int Resolver::AddArray(const Buffer& b) {
  auto [it, is_new] = slots_.try_emplace(b.get(), static_cast<int>(arrays_.size()));
  if (is_new) arrays_.push_back({b.get(), nullptr, {}});
  return it->second;
}

absl::StatusOr<std::shared_ptr<Code>> Resolver::Resolve(const Expr& e, Known& known) {
  if (const auto found = known.find(e.get()); found != known.end()) {
    found->second->shared = true;
    return found->second;
  }
  TEMPER_ASSIGN_OR_RETURN(Code resolved, ResolveNode(e, known));
  auto code = std::make_shared<Code>(std::move(resolved));
  if (e.shared() && !e->args.empty()) known.emplace(e.get(), code);
  return code;
}

absl::StatusOr<Code> Resolver::ResolveNode(const Expr& e, Known& known) {
  Code code{e->kind, e->dtype};
  if (e->kind == ExprKind::kInt) code.constant = OfInt(e->int_value);
  if (e->kind == ExprKind::kFloat) code.constant = OfFloat(e->float_value);
  if (e->kind == ExprKind::kVar) {
    auto it = vars_.find(e->var.get());
    if (it == vars_.end()) return absl::InvalidArgumentError(absl::StrCat("variable ", e->var->name, " is not bound"));
    code.slot = it->second;
  }
  if (e->kind == ExprKind::kLoad) {
    TEMPER_ASSIGN_OR_RETURN(code.slot, SlotOf(e->buffer, e->args.size()));
  } else if (!e->args.empty()) {
    code.arg_dtype = e->args[0]->dtype;
  }
  for (const Expr& arg : e->args) {
    TEMPER_ASSIGN_OR_RETURN(code.args.emplace_back(), Resolve(arg, known));
  }
  code.cast_mode = e->cast_mode;
  return code;
}

absl::Status Resolver::ResolveAll(const std::vector<Expr>& exprs, Codes& out) {
  for (const Expr& e : exprs) {
    Known known;
    TEMPER_ASSIGN_OR_RETURN(out.emplace_back(), Resolve(e, known));
  }
  return absl::OkStatus();
}

absl::Status Resolver::ResolveOptional(const Expr& e, Codes& out) {
  return e ? ResolveAll({e}, out) : absl::OkStatus();
}

absl::StatusOr<int> Resolver::SlotOf(const Buffer& b, size_t indices) const {
  auto it = slots_.find(b.get());
  if (it == slots_.end()) return absl::InvalidArgumentError(absl::StrCat("buffer ", b->name, " is not in scope"));
  if (indices != b->shape.size()) {
    return absl::InvalidArgumentError(absl::StrCat(indices, " indices into ", b->name, " of rank ", b->shape.size()));
  }
  return it->second;
}

absl::StatusOr<CodeStmt> Resolver::Resolve(const Stmt& s) {
  CodeStmt code{s->kind};
  switch (s->kind) {
    case StmtKind::kFor:
      code.slot = AddVar(s->var);
      code.extent = s->extent;
      code.for_kind = s->for_kind;
      break;
    case StmtKind::kIf:
      TEMPER_RETURN_IF_ERROR(ResolveOptional(s->cond, code.value));
      break;
    case StmtKind::kAlloc:
      code.slot = AddArray(s->buffer);
      break;
    case StmtKind::kBlock:
      code.block = &s->block;
      if (s->block.bindings.size() != s->block.iters.size()) {
        return absl::InvalidArgumentError(absl::StrCat("block ", s->block.name, " does not bind every iterator"));
      }
      TEMPER_RETURN_IF_ERROR(ResolveAll(s->block.bindings, code.bindings));
      TEMPER_RETURN_IF_ERROR(ResolveOptional(s->block.predicate, code.predicate));
      for (const IterVar& iter : s->block.iters) code.iter_slots.push_back(AddVar(iter.var));
      TEMPER_RETURN_IF_ERROR(ResolveOptional(s->block.init, code.init));
      break;
    case StmtKind::kStore:
      code.asynchronous = s->ahead > 0;
      break;
    case StmtKind::kInstruction:
      code.instruction = s->instruction;
      code.extent = s->extent;
      code.tiled = s->tiled;
      break;
    case StmtKind::kSeq:
    case StmtKind::kPrefetch:
    case StmtKind::kBarrier:
      break;
  }
  const bool of_warp = s->kind == StmtKind::kInstruction && IsOfWarp(s->instruction);
  if (s->kind == StmtKind::kStore || s->kind == StmtKind::kBlock || of_warp) {
    TEMPER_ASSIGN_OR_RETURN(code.slot, SlotOf(s->buffer, s->indices.size()));
    TEMPER_RETURN_IF_ERROR(ResolveAll(s->indices, code.indices));
    TEMPER_RETURN_IF_ERROR(ResolveOptional(s->value, code.value));
  }
  std::vector<Stmt> children = s->stmts;
  if (s->body) children.push_back(s->body);
  if (s->else_body) children.push_back(s->else_body);
  for (const Stmt& child : children) {
    TEMPER_ASSIGN_OR_RETURN(CodeStmt resolved, Resolve(child));
    code.together |= resolved.together;
    code.children.push_back(std::move(resolved));
  }
  code.together |= s->kind == StmtKind::kBarrier || of_warp;
  return code;
}

void Poison(NDArray& array) {
  // All ones is NaN for floats; integers get a pattern no sane result has.
  if (array.bytes() > 0)
    std::memset(array.MutableData(), IsFloat(array.dtype()) ? 0xff : 0xa5, static_cast<size_t>(array.bytes()));
}

// --- running ---

class Machine {
 public:
  // Group loops begin the launches, in their order; without any they are loops like others.
  Machine(std::vector<Array>& arrays, int num_vars, std::vector<Launch> launches, int warp_width,
          SharedTraffic* traffic)
      : arrays_(arrays),
        vars_(static_cast<size_t>(num_vars)),
        launches_(std::move(launches)),
        warp_width_(warp_width),
        traffic_(traffic) {}
  void Run(const CodeStmt& s);
  const absl::Status& status() const { return status_; }

 private:
  // The value now: variables and arrays may have changed since the last time.
  Value Now(Code& e) {
    ++evaluation_;
    return Eval(e);
  }
  // Within one evaluation.
  Value Eval(Code& e);
  Value Compute(const Code& e);
  bool True(Code& e) { return Eval(e).i != 0; }
  Value Call(const Code& e);
  // The flat position, or -1 after noting the error.
  int64_t Position(int array, const Codes& indices);
  int64_t PositionNow(int array, const Codes& indices) {
    ++evaluation_;
    return Position(array, indices);
  }
  void RunBlock(const CodeStmt& s);
  void Write(const CodeStmt& s, Code& value);
  void Fail(std::string message) { Fail(absl::OutOfRangeError(std::move(message))); }
  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  void RunFor(const CodeStmt& s);
  void Allocate(Array& array, NDArray& storage);
  void RunLaunch(const CodeStmt& s);
  // Thread code, by all threads of the group.
  void RunTogether(const CodeStmt& s);
  void RunIfTogether(const CodeStmt& s);
  void RunAllocTogether(const CodeStmt& s);
  void RunLoadMatrix(const CodeStmt& s);
  void RunMultiply(const CodeStmt& s);
  void RunAddProduct(const CodeStmt& s);
  // The matrix of one of its operands, by team: `outers` rows or columns, of kTeamSteps.
  std::vector<std::vector<double>> ReadTiled(const Code& load, const TiledMatrix& m, int64_t outers);
  void RunExchange(const CodeStmt& s);
  void EachThread(const std::function<void(size_t thread)>& run);
  // Calls `use` with where each thread's fragment of `array`, of so many elements, begins.
  void EachFragment(int array, const Codes& indices, int64_t length,
                    const std::function<void(size_t thread, Array& array, int64_t first)>& use);
  void Land(size_t most);
  void Watch(int array, int64_t position, bool write, const void* site);

  std::vector<Array>& arrays_;
  std::vector<int64_t> vars_;
  int64_t evaluation_ = 0;
  absl::Status status_;

  std::vector<Launch> launches_;  // still to come, the next one first
  const int warp_width_;
  SharedTraffic* traffic_;
  // While a launch runs:
  AccessWatch* watch_ = nullptr;
  int64_t step_ = 0;                           // the iteration of the loops around, as one number
  std::vector<std::vector<int64_t>> threads_;  // the variables of each
  struct OwnArrays {
    int slot;
    std::vector<NDArray> storage;  // one a thread
  };
  std::vector<OwnArrays> own_;  // register arrays that live across barriers
  struct Copy {
    int slot;
    int64_t position;
    Value value;
  };
  struct Copies {
    std::vector<Copy> begun;
    std::vector<std::vector<Copy>> groups;
  };
  std::vector<Copies> copies_;                      // of each thread
  std::set<std::pair<int, int64_t>> on_their_way_;  // array and position of what they write
  Copies* own_copies_ = nullptr;
};

int64_t Machine::Position(int array, const Codes& indices) {
  const Shape& shape = arrays_[array].buffer->shape;
  int64_t position = 0;
  bool inside = true;
  for (size_t d = 0; d < indices.size(); ++d) {
    int64_t index = Eval(*indices[d]).i;
    inside &= index >= 0 && index < shape[d];
    position = position * shape[d] + index;
  }
  if (inside && arrays_[array].data != nullptr) return position;
  std::vector<int64_t> values;
  for (const auto& index : indices) values.push_back(Eval(*index).i);
  Fail(absl::StrCat(arrays_[array].buffer->name, "[", absl::StrJoin(values, ", "), "] is ",
                    inside ? "not allocated" : absl::StrCat("out of bounds ", ShapeText(shape))));
  return -1;
}

Value Machine::Eval(Code& e) {
  if (!e.shared) return Compute(e);
  if (e.computed != evaluation_) {
    e.value = Compute(e);
    e.computed = evaluation_;
  }
  return e.value;
}

Value Machine::Compute(const Code& e) {
  switch (e.kind) {
    case ExprKind::kInt:
    case ExprKind::kFloat:
      return e.constant;
    case ExprKind::kVar:
      return OfInt(vars_[e.slot]);
    case ExprKind::kLoad: {
      int64_t position = Position(e.slot, e.args);
      if (position < 0) return Value{.i = 0};
      if (watch_ != nullptr) Watch(e.slot, position, false, &e);
      return ReadElement(arrays_[e.slot].data, position, e.dtype);
    }
    case ExprKind::kSelect:
      return Eval(*e.args[True(*e.args[0]) ? 1 : 2]);
    case ExprKind::kAnd:
      return OfInt(True(*e.args[0]) && True(*e.args[1]));
    case ExprKind::kOr:
      return OfInt(True(*e.args[0]) || True(*e.args[1]));
    case ExprKind::kNot:
      return OfInt(!True(*e.args[0]));
    case ExprKind::kCast:
      return CastValue(Eval(*e.args[0]), e.arg_dtype, e.dtype, e.cast_mode);
    default:
      return Call(e);
  }
}

Value Machine::Call(const Code& e) {
  Value a = Eval(*e.args[0]);
  if (e.args.size() == 1) {
    return IsFloat(e.dtype)
               ? OfFloat(Round(FloatUnary(e.kind, a.f), e.dtype))
               : OfInt(WrapInteger(e.dtype, a.i < 0 && !IsUnsigned(e.dtype) ? IntBinary(ExprKind::kSub, 0, a.i) : a.i));
  }
  Value b = Eval(*e.args[1]);
  if (e.kind == ExprKind::kPair) return OfInt(WrapInteger(e.dtype, PairOf(a.i, b.i, Info(e.arg_dtype).bits)));
  if (!IsFloat(e.arg_dtype)) {
    const bool upper = e.arg_dtype == DType::kU64;
    return OfInt(WrapInteger(e.dtype, upper ? UnsignedBinary(e.kind, a.i, b.i) : IntBinary(e.kind, a.i, b.i)));
  }
  switch (e.kind) {
    case ExprKind::kLt:
      return OfInt(a.f < b.f);
    case ExprKind::kLe:
      return OfInt(a.f <= b.f);
    case ExprKind::kEq:
      return OfInt(a.f == b.f);
    default:
      return OfFloat(Round(FloatBinary(e.kind, a.f, b.f), e.dtype));
  }
}

void Machine::Write(const CodeStmt& s, Code& value) {
  Value v = Now(value);
  int64_t position = PositionNow(s.slot, s.indices);
  if (position < 0) return;
  if (watch_ != nullptr) Watch(s.slot, position, true, &s);
  if (s.asynchronous && own_copies_ != nullptr) {
    own_copies_->begun.push_back({s.slot, position, v});
    on_their_way_.emplace(s.slot, position);
    return;
  }
  WriteElement(arrays_[s.slot].data, position, arrays_[s.slot].buffer->dtype, v);
}

void Machine::RunBlock(const CodeStmt& s) {
  if (!s.predicate.empty() && Now(*s.predicate[0]).i == 0) return;
  bool first = true;
  for (size_t i = 0; i < s.bindings.size(); ++i) {
    int64_t value = Now(*s.bindings[i]).i;
    const IterVar& iter = s.block->iters[i];
    if (value < 0 || value >= iter.extent) {
      return Fail(absl::StrCat("block ", s.block->name, ": iterator ", iter.var->name, " = ", value, " is outside [0, ",
                               iter.extent, ")"));
    }
    vars_[s.iter_slots[i]] = value;
    first &= !iter.reduce || value == 0;
  }
  if (first && !s.init.empty()) Write(s, *s.init[0]);
  Write(s, *s.value[0]);
}

void Machine::Allocate(Array& array, NDArray& storage) {
  if (storage.data() == nullptr) storage = NDArray(array.buffer->dtype, array.buffer->shape);
  Poison(storage);
  array.data = static_cast<char*>(storage.MutableData());
}

void Machine::RunFor(const CodeStmt& s) {
  if (IsGroup(s.for_kind) && !launches_.empty()) return RunLaunch(s);
  const int64_t around = step_;
  for (int64_t i = 0; i < s.extent && status_.ok(); ++i) {
    vars_[s.slot] = i;
    if (s.for_kind != ForKind::kVectorized) step_ = around * s.extent + i;
    Run(s.children[0]);
  }
  step_ = around;
}

void Machine::Watch(int array, int64_t position, bool write, const void* site) {
  const BufferNode* buffer = arrays_[array].buffer;
  if (buffer->scope == Scope::kRegister) return;
  if (!on_their_way_.empty() && on_their_way_.contains({array, position}))
    return Fail(absl::FailedPreconditionError(
        absl::StrCat("element ", position, " of ", buffer->name, " is used while a copy is on its way there")));
  absl::Status status = watch_->Touch({array, buffer, position, write, site, step_});
  if (!status.ok()) Fail(std::move(status));
}

// --- launches ---

// The variables of up to three loops, by axis, at iteration `number` of all.
void SetPoint(const std::array<int, 3>& slots, const std::array<int64_t, 3>& extents, int64_t number,
              std::vector<int64_t>& vars) {
  for (size_t axis = 0; axis < slots.size(); ++axis) {
    if (slots[axis] >= 0) vars[static_cast<size_t>(slots[axis])] = number % extents[axis];
    number /= extents[axis];
  }
}

// The code of the last of a chain of loops, whose variables go to `slots` by axis.
const CodeStmt* TakeLoops(const CodeStmt* s, size_t count, std::array<int, 3>& slots) {
  for (; count > 0; --count, s = &s->children[0]) slots[static_cast<size_t>(AxisOf(s->for_kind))] = s->slot;
  return s;
}

void Machine::RunLaunch(const CodeStmt& s) {
  const Launch launch = std::move(launches_.front());
  launches_.erase(launches_.begin());
  std::array<int, 3> group_vars = {-1, -1, -1}, thread_vars = group_vars;
  const CodeStmt* code = TakeLoops(&s, launch.group_loops.size(), group_vars);
  std::vector<int> shared;
  for (size_t i = 0; i < launch.shared.size(); ++i, code = &code->children[0]) shared.push_back(code->slot);
  code = TakeLoops(code, launch.thread_loops.size(), thread_vars);

  AccessWatch watch(launch, warp_width_, arrays_.size(), traffic_);
  watch_ = &watch;
  for (int64_t group = 0; group < launch.num_groups() && status_.ok(); ++group) {
    SetPoint(group_vars, launch.groups, group, vars_);
    for (int slot : shared) Allocate(arrays_[slot], arrays_[slot].owned);
    watch.EnterGroup(group);
    threads_.assign(static_cast<size_t>(launch.num_threads()), vars_);
    copies_.assign(threads_.size(), {});
    on_their_way_.clear();
    for (size_t t = 0; t < threads_.size(); ++t) {
      SetPoint(thread_vars, launch.threads, static_cast<int64_t>(t), threads_[t]);
    }
    RunTogether(*code);
  }
  for (int slot : shared) arrays_[slot].data = nullptr;
  watch_ = nullptr;
  own_copies_ = nullptr;
}

void Machine::EachThread(const std::function<void(size_t thread)>& run) {
  for (size_t t = 0; t < threads_.size() && status_.ok(); ++t) {
    vars_.swap(threads_[t]);
    for (OwnArrays& own : own_) arrays_[own.slot].data = static_cast<char*>(own.storage[t].MutableData());
    watch_->EnterThread(static_cast<int64_t>(t));
    own_copies_ = &copies_[t];
    run(t);
    vars_.swap(threads_[t]);
    if ((t + 1) % static_cast<size_t>(warp_width_) == 0 || t + 1 == threads_.size()) watch_->EndWarp();
  }
}

// What holds no barrier each thread runs in one go; what holds one they run step by step, none ahead of another.
void Machine::RunTogether(const CodeStmt& s) {
  if (!status_.ok()) return;
  if (!s.together) return EachThread([&](size_t) { Run(s); });
  switch (s.kind) {
    case StmtKind::kFor:
      for (int64_t i = 0; i < s.extent && status_.ok(); ++i) {
        for (std::vector<int64_t>& vars : threads_) vars[s.slot] = i;
        RunTogether(s.children[0]);
      }
      return;
    case StmtKind::kSeq:
      for (const CodeStmt& child : s.children) RunTogether(child);
      return;
    case StmtKind::kIf:
      return RunIfTogether(s);
    case StmtKind::kAlloc:
      return RunAllocTogether(s);
    case StmtKind::kBarrier:
      return watch_->PassBarrier();
    case StmtKind::kInstruction:
      if (s.instruction == Instruction::kExchange) return RunExchange(s);
      if (s.instruction == Instruction::kAddProduct) return RunAddProduct(s);
      if (IsOfTeam(s.instruction)) return;  // CheckBarriers says what stands between
      return s.instruction == Instruction::kMultiply ? RunMultiply(s) : RunLoadMatrix(s);
    case StmtKind::kStore:
    case StmtKind::kBlock:
    case StmtKind::kPrefetch:
      return;  // hold no barrier
  }
}

void Machine::EachFragment(int array, const Codes& indices, int64_t length,
                           const std::function<void(size_t thread, Array& array, int64_t first)>& use) {
  EachThread([&](size_t thread) {
    const int64_t first = PositionNow(array, indices);
    if (first < 0) return;
    if (first % length != 0 || first + length > NumElements(arrays_[array].buffer->shape))
      return Fail(absl::StrCat("no fragment of ", arrays_[array].buffer->name, " begins at ", first));
    use(thread, arrays_[array], first);
  });
}

// All lanes' rows (or columns) are read first, then each fragment is put together.
void Machine::RunLoadMatrix(const CodeStmt& s) {
  const Code& row = *s.value[0];
  const int64_t length = QuarterColumns(row.dtype);
  std::vector<std::array<Value, kFragmentLength>> rows(threads_.size());
  EachThread([&](size_t thread) {
    const int64_t first = PositionNow(row.slot, row.args);
    const BufferNode& buffer = *arrays_[row.slot].buffer;
    if (first < 0) return;
    if (first % length != 0 || first + length > NumElements(buffer.shape))
      return Fail(absl::StrCat(length, " elements of ", buffer.name, " that are no aligned row begin at ", first));
    for (int64_t i = 0; i < length; ++i) {
      Watch(row.slot, first + i, false, &row);
      rows[thread][static_cast<size_t>(i)] = ReadElement(arrays_[row.slot].data, first + i, row.dtype);
    }
  });
  const bool transposed = s.instruction == Instruction::kLoadMatrixTransposed;
  EachFragment(s.slot, s.indices, FragmentLength(row.dtype), [&](size_t thread, Array& to, int64_t first) {
    const int64_t lane = static_cast<int64_t>(thread) % kTensorWarp, own = length / 4;
    for (int64_t e = 0; e < FragmentLength(row.dtype); ++e) {
      const int64_t slow = lane / 4, fast = own * (lane % 4) + e % own;
      const int64_t from = 8 * (e / own) + (transposed ? fast : slow);  // the lane that names it
      WriteElement(to.data, first + e, to.buffer->dtype,
                   rows[thread - static_cast<size_t>(lane - from)][static_cast<size_t>(transposed ? slow : fast)]);
    }
  });
}

void Machine::RunMultiply(const CodeStmt& s) {
  using Matrix = std::array<std::array<double, kMatrixSide>, kMatrixSide>;
  struct Operands {
    Matrix a, b;
  };
  std::vector<Operands> warps(threads_.size() / static_cast<size_t>(kTensorWarp));
  const auto load_of = [&](size_t number) -> const Code& {
    const Code& factor = *s.value[0]->args[number];
    return factor.kind == ExprKind::kCast ? *factor.args[0] : factor;
  };
  const DType type = load_of(0).dtype;
  const auto read = [&](const Code& load, Matrix Operands::*matrix) {
    EachFragment(load.slot, load.args, FragmentLength(type), [&](size_t thread, Array& from, int64_t first) {
      Matrix& to = warps[thread / static_cast<size_t>(kTensorWarp)].*matrix;
      for (int64_t e = 0; e < FragmentLength(type); ++e) {
        const MatrixPlace at =
            FragmentPlace(static_cast<int64_t>(thread) % kTensorWarp, e, QuarterColumns(type), matrix == &Operands::b);
        const double element = ReadElement(from.data, first + e, type).f;
        to[static_cast<size_t>(at.row)][static_cast<size_t>(at.column)] =
            type == DType::kF32 ? TruncateToTf32(element) : element;
      }
    });
  };
  read(load_of(0), &Operands::a);
  read(load_of(1), &Operands::b);
  EachFragment(s.slot, s.indices, kFragmentLength, [&](size_t thread, Array& sums, int64_t first) {
    const Operands& o = warps[thread / static_cast<size_t>(kTensorWarp)];
    for (int64_t e = 0; e < kFragmentLength; ++e) {
      const MatrixPlace at = SumPlace(static_cast<int64_t>(thread) % kTensorWarp, e);
      double sum = ReadElement(sums.data, first + e, DType::kF32).f;
      for (size_t k = 0; k < static_cast<size_t>(MatrixColumns(type)); ++k)
        sum = Round(sum + o.a[static_cast<size_t>(at.row)][k] * o.b[static_cast<size_t>(at.column)][k], DType::kF32);
      WriteElement(sums.data, first + e, DType::kF32, OfFloat(sum));
    }
  });
}

// Two threads are said to read each element, so that it is a race if any of them wrote it since the last barrier.
std::vector<std::vector<double>> Machine::ReadTiled(const Code& load, const TiledMatrix& m, int64_t outers) {
  constexpr int64_t kReaders = 2;
  std::vector<std::vector<double>> teams(threads_.size() / static_cast<size_t>(kTeamThreads));
  const BufferNode& buffer = *arrays_[load.slot].buffer;
  int64_t named = 0;  // by the team's first thread
  EachThread([&](size_t thread) {
    const int64_t first = PositionNow(load.slot, load.args), number = static_cast<int64_t>(thread) % kTeamThreads;
    if (first < 0) return;
    if (number == 0) named = first;
    if (first != named || first % kTileSide != 0)
      return Fail(absl::StrCat("thread ", watch_->ThreadName(static_cast<int64_t>(thread)), " names element ", first,
                               " of ", buffer.name, " for its team, and the first of them ", named));
    if (number >= kReaders) return;
    std::vector<double>& team = teams[thread / static_cast<size_t>(kTeamThreads)];
    team.clear();
    for (int64_t outer = 0; outer < outers; ++outer) {
      for (int64_t step = 0; step < kTeamSteps; ++step) {
        const int64_t row = m.turned ? step : outer, in_row = m.turned ? outer : step;
        const int64_t position = first + outer / kTileSide * m.next_outer + step / kTileSide * m.next_step +
                                 row % kTileSide * kTileSide + in_row % kTileSide;
        if (position >= NumElements(buffer.shape))
          return Fail(absl::StrCat("a product reads element ", position, " of ", buffer.name, ", which has fewer"));
        Watch(load.slot, position, false, nullptr);
        team.push_back(ReadElement(arrays_[load.slot].data, position, load.dtype).f);
      }
    }
  });
  return teams;
}

void Machine::RunAddProduct(const CodeStmt& s) {
  const auto load_of = [&](size_t number) -> const Code& { return *s.value[0]->args[number]->args[0]; };
  const std::vector<std::vector<double>> a = ReadTiled(load_of(0), s.tiled[0], kTeamRows),
                                         b = ReadTiled(load_of(1), s.tiled[1], s.extent);
  if (!status_.ok()) return;
  EachThread([&](size_t thread) {
    const int64_t first = PositionNow(s.slot, s.indices), number = static_cast<int64_t>(thread) % kTeamThreads;
    const int64_t length = s.extent / kMatrixSide * kFragmentLength;
    if (first < 0) return;
    if (first % kFragmentLength != 0 || first + length > NumElements(arrays_[s.slot].buffer->shape))
      return Fail(absl::StrCat("no sums of ", s.extent, " columns begin at ", first));
    const double* rows = a[thread / static_cast<size_t>(kTeamThreads)].data();
    const double* columns = b[thread / static_cast<size_t>(kTeamThreads)].data();
    for (int64_t i = 0; i < length; ++i) {
      const MatrixPlace at = SumPlace(number % kTensorWarp, i % kFragmentLength);
      const double* row = rows + (number / kTensorWarp * kMatrixSide + at.row) * kTeamSteps;
      const double* column = columns + (i / kFragmentLength * kMatrixSide + at.column) * kTeamSteps;
      double sum = ReadElement(arrays_[s.slot].data, first + i, DType::kF32).f;
      for (int64_t k = 0; k < kTeamSteps; ++k) sum = Round(sum + row[k] * column[k], DType::kF32);
      WriteElement(arrays_[s.slot].data, first + i, DType::kF32, OfFloat(sum));
    }
  });
}

// All lanes' elements are read first.
void Machine::RunExchange(const CodeStmt& s) {
  std::vector<Value> theirs(threads_.size());
  EachThread([&](size_t thread) { theirs[thread] = Eval(*s.value[0]); });
  EachThread([&](size_t thread) {
    const int64_t position = Position(s.slot, s.indices);
    const size_t other = thread ^ static_cast<size_t>(s.extent);
    if (position < 0) return;
    if (other >= threads_.size() || other / kTensorWarp != thread / kTensorWarp)
      return Fail(
          absl::FailedPreconditionError(absl::StrCat("thread ", watch_->ThreadName(static_cast<int64_t>(thread)),
                                                     " exchanges with a lane that its warp does not have")));
    WriteElement(arrays_[s.slot].data, position, arrays_[s.slot].buffer->dtype, theirs[other]);
  });
}

// The thread's groups but the latest `most`.
void Machine::Land(size_t most) {
  std::vector<std::vector<Copy>>& groups = own_copies_->groups;
  for (; groups.size() > most; groups.erase(groups.begin())) {
    for (const Copy& copy : groups.front()) {
      on_their_way_.erase({copy.slot, copy.position});
      Watch(copy.slot, copy.position, true, nullptr);
      WriteElement(arrays_[copy.slot].data, copy.position, arrays_[copy.slot].buffer->dtype, copy.value);
    }
  }
}

void Machine::RunIfTogether(const CodeStmt& s) {
  std::vector<bool> answers;
  EachThread([&](size_t) { answers.push_back(Now(*s.value[0]).i != 0); });
  if (!status_.ok()) return;
  const auto other = std::ranges::find(answers, !answers[0]);
  if (other != answers.end()) {
    return Fail(absl::FailedPreconditionError(
        absl::StrCat("threads ", watch_->ThreadName(0), " and ", watch_->ThreadName(other - answers.begin()),
                     " of group ", watch_->GroupName(watch_->group()), " part at a condition with a barrier inside")));
  }
  const size_t taken = answers[0] ? 0 : 1;
  if (taken < s.children.size()) RunTogether(s.children[taken]);
}

void Machine::RunAllocTogether(const CodeStmt& s) {
  own_.push_back({s.slot, std::vector<NDArray>(threads_.size())});
  for (NDArray& storage : own_.back().storage) Allocate(arrays_[s.slot], storage);
  RunTogether(s.children[0]);
  own_.pop_back();
  arrays_[s.slot].data = nullptr;
}

void Machine::Run(const CodeStmt& s) {
  if (!status_.ok()) return;
  switch (s.kind) {
    case StmtKind::kFor:
      return RunFor(s);
    case StmtKind::kSeq:
      for (const CodeStmt& child : s.children) Run(child);
      return;
    case StmtKind::kIf: {
      size_t taken = Now(*s.value[0]).i != 0 ? 0 : 1;
      if (taken < s.children.size()) Run(s.children[taken]);
      return;
    }
    case StmtKind::kAlloc: {
      Array& array = arrays_[s.slot];
      Allocate(array, array.owned);
      Run(s.children[0]);
      array.data = nullptr;
      return;
    }
    case StmtKind::kStore:
      return Write(s, *s.value[0]);
    case StmtKind::kBlock:
      return RunBlock(s);
    case StmtKind::kPrefetch:
      return;  // may point past the end; it is a hint
    case StmtKind::kBarrier:
      return Fail(absl::FailedPreconditionError("a barrier is outside of a launch"));
    case StmtKind::kInstruction:
      if (own_copies_ == nullptr) return Fail(absl::FailedPreconditionError("an instruction is outside of a launch"));
      if (s.instruction == Instruction::kWaitCopies) return Land(static_cast<size_t>(s.extent));
      own_copies_->groups.push_back(std::move(own_copies_->begun));
      own_copies_->begun.clear();
      return;
  }
}

}  // namespace

absl::Status Interpret(const Func& f, std::span<NDArray> args, SharedTraffic* traffic) {
  if (args.size() != f.params.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(f.name, ": ", args.size(), " arguments for ", f.params.size(), " parameters"));
  }
  Resolver resolver;
  for (size_t i = 0; i < args.size(); ++i) {
    const Buffer& param = f.params[i];
    if (args[i].dtype() != param->dtype || args[i].shape() != param->shape) {
      return absl::InvalidArgumentError(absl::StrCat(f.name, ": argument ", param->name, " is ",
                                                     ShapeText(args[i].shape()), " where ", ShapeText(param->shape),
                                                     " is needed, or of another dtype"));
    }
    resolver.arrays()[resolver.AddArray(param)].data = static_cast<char*>(args[i].MutableData());
  }
  TEMPER_ASSIGN_OR_RETURN(CodeStmt code, resolver.Resolve(f.body));
  bool scheduled = false;
  VisitStmt(f.body, [&](const Stmt& s) { scheduled = scheduled || s->kind == StmtKind::kBlock; });
  std::vector<Launch> launches;
  if (!scheduled) {
    TEMPER_ASSIGN_OR_RETURN(launches, LaunchesOf(f));
  }
  Machine machine(resolver.arrays(), resolver.num_vars(), std::move(launches), f.warp_width, traffic);
  machine.Run(code);
  if (machine.status().ok()) return absl::OkStatus();
  return absl::Status(machine.status().code(), absl::StrCat(f.name, ": ", machine.status().message()));
}

}  // namespace temper::ir
