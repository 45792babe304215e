// Statements, and which values become variables.
#include "compiler/codegen/c_like/emitter.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/str_cat.h"
#include "compiler/ir/walk.h"

namespace temper {

using ir::Expr;
using ir::ExprKind;
using ir::ForKind;
using ir::Scope;
using ir::Stmt;
using ir::StmtKind;

namespace {

// Whether threads read what others of their group may have written to memory, in the same launch.
bool ReadsWhatItWrites(const Stmt& body) {
  std::set<const ir::BufferNode*> written;
  ir::VisitStmt(body, [&](const Stmt& s) {
    if (s->kind == StmtKind::kStore && s->buffer->scope == Scope::kMemory) written.insert(s->buffer.get());
  });
  bool reads = false;
  ir::VisitExprs(body, [&](const Expr& root) {
    reads = reads || ir::AnyNode(root, [&](const Expr& e) {
              return e->kind == ExprKind::kLoad && written.contains(e->buffer.get());
            });
  });
  return reads;
}

constexpr int64_t kHalvesOfWord = 2;

// Arrays that matrices of 2-byte elements are loaded to.
std::set<const void*> HalvesIn(const Stmt& body) {
  std::set<const void*> halves;
  ir::VisitStmt(body, [&](const Stmt& s) {
    const bool loads = s->kind == StmtKind::kInstruction && ir::LoadsMatrix(s->instruction);
    if (loads && SizeOf(s->buffer->dtype) == 2) halves.insert(s->buffer.get());
  });
  return halves;
}

bool AddsProducts(const Stmt& body) {
  return ir::AnyOf(body, [](const Stmt& s) {
    return s->kind == StmtKind::kInstruction && s->instruction == ir::Instruction::kAddProduct;
  });
}

const char* MultiplyFunction(DType operand) {
  if (operand == DType::kF32) return "temper_multiply_tf32";
  return operand == DType::kF16 ? "temper_multiply_f16" : "temper_multiply_bf16";
}

std::string LoadFunction(const Stmt& load) {
  if (load->buffer->dtype == DType::kF32) return "temper_load_matrix_f32";
  return load->instruction == ir::Instruction::kLoadMatrixTransposed ? "temper_load_matrix_transposed"
                                                                     : "temper_load_matrix";
}

// The text without parentheses around all of it.
std::string Bare(const std::string& text) {
  if (text.empty() || text.front() != '(') return text;
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
    if (depth == 0) return i + 1 == text.size() ? text.substr(1, i - 1) : text;
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> KernelEmitter::Emit(const ir::Launch& launch, const std::string& name) {
  Line(dialect_.kernel(launch));
  Line(absl::StrCat("void ", name, "("));
  EmitArguments();
  indent_ = 1;
  for (const WorkspaceArray& array : workspace_) {
    const std::string type = MemoryType(array.buffer->dtype);
    Line(absl::StrCat(dialect_.global, type, "* ", dialect_.restrict_word, " const ",
                      NameOf(array.buffer.get(), array.buffer->name), " = (", dialect_.global, type, "*)(workspace + ",
                      array.offset, ");"));
  }
  EmitIds(launch.group_loops, dialect_.group_id);
  EmitIds(launch.thread_loops, dialect_.thread_id);
  EmitSharedArrays(launch);
  barrier_ = AddsProducts(launch.body) ? absl::StrCat(WarpFunction("temper_team_barrier"), "()")
                                       : dialect_.barrier(ReadsWhatItWrites(launch.body));
  halves_ = HalvesIn(launch.body);
  EmitStmt(launch.body);
  indent_ = 0;
  Line("}");
  TEMPER_RETURN_IF_ERROR(status_);
  return std::move(text_);
}

void KernelEmitter::EmitArguments() {
  const size_t inputs = func_.params.size() - static_cast<size_t>(func_.num_outputs);
  std::vector<std::string> arguments;
  for (size_t i = 0; i < func_.params.size(); ++i) {
    const ir::Buffer& param = func_.params[i];
    // Bytes that two of them share must not be promised to be one's alone.
    const bool shares = in_place_ >= 0 && (i >= inputs || static_cast<int>(i) == in_place_);
    const std::string restricted = shares ? "" : absl::StrCat(dialect_.restrict_word, " ");
    arguments.push_back(absl::StrCat("    ", dialect_.global, i < inputs ? "const " : "", MemoryType(param->dtype),
                                     "* ", restricted, NameOf(param.get(), param->name)));
  }
  if (!workspace_.empty())
    arguments.push_back(absl::StrCat("    ", dialect_.global, "uchar* ", dialect_.restrict_word, " workspace"));
  for (size_t i = 0; i < arguments.size(); ++i) Line(arguments[i] + (i + 1 < arguments.size() ? "," : ") {"));
  if (arguments.empty()) Line("    void) {");
}

void KernelEmitter::EmitSharedArrays(const ir::Launch& launch) {
  int64_t offset = 0;
  for (const ir::Buffer& array : launch.shared) {
    Line(dialect_.shared_array(prelude_, offset, array, MemoryType(array->dtype), NameOf(array.get(), array->name)));
    offset += ir::SharedBytes(array);
  }
}

void KernelEmitter::EmitRegisterArray(const ir::Buffer& buffer) {
  if (halves_.contains(buffer.get())) {
    const int64_t words = ElementsOf(buffer) / kHalvesOfWord;
    return Line(absl::StrCat("uint ", NameOf(buffer.get(), buffer->name), "[", words, "];"));
  }
  Line(absl::StrCat(MemoryType(buffer->dtype), " ", NameOf(buffer.get(), buffer->name), "[", ElementsOf(buffer), "];"));
}

void KernelEmitter::EmitIds(const std::vector<Stmt>& loops, std::string (*id)(int axis)) {
  for (const Stmt& loop : loops) {
    ranges_.Bind(loop->var, loop->extent);
    Line(absl::StrCat("const int ", NameOf(loop->var.get(), loop->var->name), " = (int)",
                      id(ir::AxisOf(loop->for_kind)), ";"));
  }
}

void KernelEmitter::EmitStmt(const Stmt& s) {
  if (!status_.ok()) return;
  switch (s->kind) {
    case StmtKind::kSeq:
      for (const Stmt& child : s->stmts) EmitStmt(child);
      return;
    case StmtKind::kFor:
      return EmitFor(s);
    case StmtKind::kIf:
      return EmitIf(s);
    case StmtKind::kStore:
      return EmitStore(s);
    case StmtKind::kAlloc:
      EmitRegisterArray(s->buffer);
      return EmitStmt(s->body);
    case StmtKind::kBarrier:
      return Line(absl::StrCat(barrier_, ";"));
    case StmtKind::kInstruction:
      return EmitInstruction(s);
    case StmtKind::kPrefetch:
      return;  // threads hide the way to memory
    case StmtKind::kBlock:
      Fail("a block, which Lower takes away");
      return;
  }
}

namespace {

// Statements of threads, with each iteration of unrolled loops counted.
int64_t WrittenOut(const Stmt& s) {
  if (s == nullptr) return 0;
  int64_t count = s->kind == StmtKind::kStore || s->kind == StmtKind::kInstruction ? 1 : 0;
  count += WrittenOut(s->body) + WrittenOut(s->else_body);
  for (const Stmt& child : s->stmts) count += WrittenOut(child);
  return s->kind == StmtKind::kFor && s->for_kind == ForKind::kUnrolled ? s->extent * count : count;
}

// What a loop's iterations copy asynchronously, outside loops inside it.
struct Copies {
  int64_t places = 1;        // that they go to in turn
  bool conditional = false;  // whether some elements may not be there
};
void AddCopies(const Stmt& s, Copies& copies) {
  if (s == nullptr || (s->kind == StmtKind::kFor && s->for_kind == ForKind::kSerial)) return;
  copies.places = std::max(copies.places, int64_t{s->ahead} + 1);
  copies.conditional = copies.conditional || (s->ahead > 0 && s->value->kind == ExprKind::kSelect);
  AddCopies(s->body, copies);
  AddCopies(s->else_body, copies);
  for (const Stmt& child : s->stmts) AddCopies(child, copies);
}

// How many iterations of a serial loop are written one after another: so many that each knows the place of its copies.
// Conditions are kept in registers for all of them, and then these do not suffice.
int64_t IterationsTogether(const Stmt& loop) {
  constexpr int64_t kMostWritten = 512;
  Copies copies;
  AddCopies(loop->body, copies);
  if (copies.places == 1 || copies.conditional || copies.places > loop->extent) return 1;
  return copies.places * WrittenOut(loop->body) <= kMostWritten ? copies.places : 1;
}

}  // namespace

void KernelEmitter::EmitFor(const Stmt& s) {
  if (s->extent == 0) return;
  if (s->for_kind == ForKind::kVectorized && EmitVectorized(s)) return;
  const bool unrolled = s->for_kind == ForKind::kUnrolled || s->for_kind == ForKind::kVectorized;
  if (!unrolled && rows_.empty()) {
    std::vector<Stmt> loops;
    EmitRowsOf(s, loops);
  }
  ranges_.Bind(s->var, s->extent);
  const std::string name = NameOf(s->var.get(), s->var->name);
  if (unrolled) Line("#pragma unroll");
  if (const int64_t together = unrolled ? 1 : IterationsTogether(s); together > 1)
    Line(absl::StrCat("#pragma unroll ", together));
  if (unrolled) unrolled_.push_back(s->var);
  const char* type = s->extent > INT32_MAX ? "long " : "int ";
  Block(absl::StrCat("for (", type, name, " = 0; ", name, " < ", s->extent, "; ++", name, ")"), s->body);
  if (unrolled) unrolled_.pop_back();
  ranges_.Unbind(s->var);
}

void KernelEmitter::EmitIf(const Stmt& s) {
  BeginStatement(s->cond);
  Block(absl::StrCat("if (", Bare(Value(s->cond)), ")"), s->body);
  if (s->else_body != nullptr) Block("else", s->else_body);
}

std::string KernelEmitter::WarpFunction(const std::string& name) {
  const std::string text = dialect_.warp_function(name);
  if (text.empty()) return Fail(absl::StrCat("the function '", name, "'"));
  prelude_.AddText(name, text);
  return name;
}

std::string KernelEmitter::FragmentPointer(const ir::Buffer& buffer, const std::vector<Expr>& indices) {
  const Expr flat = ir::FlatIndex(buffer, indices);
  return SteppedPointer(buffer, halves_.contains(buffer.get()) ? flat / Expr(kHalvesOfWord) : flat);
}

std::string KernelEmitter::SteppedPointer(const ir::Buffer& buffer, const Expr& flat) {
  return absl::StrCat(NameOf(buffer.get(), buffer->name), " + ", Stepped(flat));
}

std::string KernelEmitter::Stepped(const Expr& flat) {
  const auto [rest, step] = StepOf(flat);
  return absl::StrCat(Value(rest), " + ", Value(step));
}

std::pair<Expr, Expr> KernelEmitter::StepOf(const Expr& flat) const {
  Expr rest = ranges_.Simplify(flat), step = Expr(0);
  for (const ir::Var& v : unrolled_) {
    const std::optional<ir::Linear> linear = ir::AsLinear(rest, {v});
    if (!linear.has_value()) continue;
    step = step + Expr(v) * Expr(linear->coefficients[0]);
    rest = linear->rest;
  }
  return {ranges_.Simplify(rest), ranges_.Simplify(step)};
}

void KernelEmitter::EmitInstruction(const Stmt& s) {
  BeginStatement(ir::Bool(true));
  switch (s->instruction) {
    case ir::Instruction::kLoadMatrix:
    case ir::Instruction::kLoadMatrixTransposed: {
      const std::string function = WarpFunction(LoadFunction(s));
      return Line(absl::StrCat(function, "(", FragmentPointer(s->buffer, s->indices), ", ", RowOf(s), ");"));
    }
    case ir::Instruction::kMultiply: {
      const Expr &a = ir::FactorOf(s, 0), &b = ir::FactorOf(s, 1);
      const std::string function = WarpFunction(MultiplyFunction(a->dtype));
      return Line(absl::StrCat(function, "(", FragmentPointer(s->buffer, s->indices), ", ",
                               FragmentPointer(a->buffer, a->args), ", ", FragmentPointer(b->buffer, b->args), ");"));
    }
    case ir::Instruction::kBeginProducts:
    case ir::Instruction::kEndProducts: {
      const bool begins = s->instruction == ir::Instruction::kBeginProducts;
      const std::string function = WarpFunction(begins ? "temper_begin_products" : "temper_end_products");
      return Line(
          absl::StrCat(function, "<", ElementsOf(s->buffer), ">(", NameOf(s->buffer.get(), s->buffer->name), ");"));
    }
    case ir::Instruction::kAddProduct:
      return EmitAddProduct(s);
    case ir::Instruction::kExchange:
      return Line(absl::StrCat(Element(s->buffer, s->indices), " = ", WarpFunction("temper_exchange"), "(",
                               Element(s->value->buffer, s->value->args), ", ", s->extent, ");"));
    case ir::Instruction::kCommitCopies:
      return Line(absl::StrCat(WarpFunction("temper_commit_copies"), "();"));
    case ir::Instruction::kWaitCopies:
      return Line(absl::StrCat(WarpFunction("temper_wait_copies"), "<", s->extent, ">();"));
  }
}

std::string KernelEmitter::Descriptor(const Stmt& s, size_t number) {
  const Expr& load = ir::FactorOf(s, number);
  const ir::TiledMatrix& m = s->tiled[number];
  const int64_t bytes = SizeOf(load->dtype);
  const std::string descriptor = WarpFunction("temper_descriptor"), tile = WarpFunction("temper_tile_at");
  // What unrolled loops add is added to the place that they share.
  const auto [rest, step] = StepOf(ir::FlatIndex(load->buffer, load->args));
  const std::string rows = Value(ranges_.Simplify(step / Expr(ir::kTileSide)));
  return absl::StrCat(descriptor, "<", bytes * m.next_step, ", ", bytes * m.next_outer, ">(", tile, "(",
                      NameOf(load->buffer.get(), load->buffer->name), " + ", Value(rest), ") + (uint)(", rows, "))");
}

void KernelEmitter::EmitAddProduct(const Stmt& s) {
  const char* type = ir::FactorOf(s, 0)->dtype == DType::kF16 ? "f16" : "bf16";
  const std::string function = WarpFunction(absl::StrCat("temper_add_product_", type, "_", s->extent));
  const std::string a = Descriptor(s, 0), b = Descriptor(s, 1);
  Line(absl::StrCat(function, "<", s->tiled[0].turned ? 1 : 0, ", ", s->tiled[1].turned ? 1 : 0, ">(",
                    FragmentPointer(s->buffer, s->indices), ", ", a, ", ", b, ");"));
}

void KernelEmitter::EmitStore(const Stmt& s) {
  if (s->ahead > 0 && EmitCopy(s, nullptr)) return;
  if (s->ahead > 0) {
    Fail(absl::StrCat("copies to ", s->buffer->name, " that are no 2, 4, 8 or 16 bytes of neighbours"));
    return;
  }
  if (IsPacked(s->buffer->dtype)) {
    Fail(absl::StrCat("stores to ", s->buffer->name, ", whose elements share bytes, by several threads"));
    return;
  }
  if (EmitElement(s)) return;
  BeginStatement(s->value);
  const std::string value = Bare(Value(s->value));
  Line(absl::StrCat(Element(s->buffer, s->indices), " = ", value, ";"));
}

void KernelEmitter::Line(const std::string& text) {
  absl::StrAppend(&text_, std::string(static_cast<size_t>(2 * indent_), ' '), text, "\n");
}

void KernelEmitter::Block(const std::string& head, const Stmt& body) {
  Line(head + " {");
  ++indent_;
  EmitStmt(body);
  --indent_;
  Line("}");
}

// --- values that expressions hold more than once

void KernelEmitter::BeginStatement(const Expr& e) {
  uses_.clear();
  variables_.clear();
  CountUses(e, true);
}

// Each node's arguments are looked at twice at most, however often it is shared. Indices are left to the compiler.
void KernelEmitter::CountUses(const Expr& e, bool always) {
  Use& use = uses_[e.get()];
  const bool news = use.count++ == 0 || (always && !use.always);
  use.always |= always;
  if (!news || e->kind == ExprKind::kLoad) return;
  for (size_t i = 0; i < e->args.size(); ++i) {
    const bool lazy = i > 0 && (e->kind == ExprKind::kSelect || e->kind == ExprKind::kAnd || e->kind == ExprKind::kOr);
    CountUses(e->args[i], always && !lazy);
  }
}

// What is not always evaluated may be evaluated all the same, but for loads.
bool KernelEmitter::IsKept(const Expr& e) const {
  const auto use = uses_.find(e.get());
  if (use == uses_.end() || use->second.count < 2 || e->kind < ExprKind::kLoad) return false;
  if (use->second.always) return true;
  return !ir::HasLoad(e);
}

std::string KernelEmitter::Value(const Expr& e) {
  if (const auto kept = variables_.find(e.get()); kept != variables_.end()) return kept->second;
  std::string text = Node(e);
  if (!IsKept(e)) return text;
  const std::string name = absl::StrCat("t", kept_++);
  Line(absl::StrCat("const ", TypeOf(e), " ", name, " = ", Bare(text), ";"));
  variables_[e.get()] = name;
  return name;
}

// --- names and elements

std::string KernelEmitter::Element(const ir::Buffer& buffer, const std::vector<Expr>& indices) {
  const Expr flat = ranges_.Simplify(ir::FlatIndex(buffer, indices));
  return absl::StrCat(NameOf(buffer.get(), buffer->name), "[", Bare(Value(flat)), "]");
}

// Ours end in an underscore or a number behind one: no name of the languages does, nor of the prelude's.
const std::string& KernelEmitter::NameOf(const void* key, const std::string& wished) {
  std::string& name = names_[key];
  if (!name.empty()) return name;
  std::string stem;
  for (const char c : wished) stem += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  if (stem.empty() || std::isdigit(static_cast<unsigned char>(stem[0])) != 0) stem = absl::StrCat("v", stem);
  name = stem + "_";
  for (int i = 2; !taken_.insert(name).second; ++i) name = absl::StrCat(stem, "_", i);
  return name;
}

std::string KernelEmitter::Fail(const std::string& what) {
  if (status_.ok()) status_ = absl::UnimplementedError(absl::StrCat("no ", dialect_.name, " code for ", what));
  return "0";
}

}  // namespace temper
