// Where lanes find the rows of matrices in shared memory, or elements of them: what all turns of a loop have in common
// of an address stands before the loop.
#include "absl/strings/str_cat.h"
#include "compiler/codegen/c_like/emitter.h"

namespace temper {
namespace {

using ir::Expr;
using ir::Stmt;
using ir::StmtKind;

void AddTerms(const Expr& e, std::vector<Expr>& terms) {
  if (e->kind != ir::ExprKind::kAdd) return terms.push_back(e);
  for (const Expr& arg : e->args) AddTerms(arg, terms);
}

// What such a statement loads from shared memory first; null: it is none.
const Expr* SharedLoadOf(const Stmt& s) {
  if (s->kind == StmtKind::kInstruction && ir::LoadsMatrix(s->instruction)) return &s->value;
  if (s->kind != StmtKind::kStore || s->value->kind != ir::ExprKind::kTf32) return nullptr;
  const Expr& load = s->value->args[0];
  return load->kind == ir::ExprKind::kLoad && load->buffer->scope == ir::Scope::kShared ? &load : nullptr;
}

bool IsUnrolled(const Stmt& loop) { return loop->for_kind == ir::ForKind::kUnrolled; }

// Whether a term of an address is for its place inside the loops: it changes in them, or is a constant there.
bool BelongsInside(const Expr& term, const std::vector<Stmt>& loops) {
  bool linear = false;
  for (const Stmt& loop : loops) {
    if (!ir::UsesVar(term, loop->var)) continue;
    if (!IsUnrolled(loop)) return true;
    linear = ir::AsLinear(term, {loop->var}).has_value();
    if (!linear) break;
  }
  return linear;
}

}  // namespace

void KernelEmitter::EmitRowsOf(const Stmt& s, std::vector<Stmt>& loops) {
  if (SharedLoadOf(s) != nullptr) return EmitRow(s, loops);
  const bool is_loop = s->kind == StmtKind::kFor;
  if (is_loop) {
    ranges_.Bind(s->var, s->extent);
    loops.push_back(s);
  }
  if (s->body != nullptr) EmitRowsOf(s->body, loops);
  if (s->else_body != nullptr) EmitRowsOf(s->else_body, loops);
  for (const Stmt& child : s->stmts) EmitRowsOf(child, loops);
  if (is_loop) {
    ranges_.Unbind(s->var);
    loops.pop_back();
  }
}

void KernelEmitter::EmitRow(const Stmt& s, const std::vector<Stmt>& loops) {
  const Expr& load = *SharedLoadOf(s);
  const ir::Buffer& from = load->buffer;
  std::vector<Expr> terms;
  AddTerms(ranges_.Simplify(ir::FlatIndex(from, load->args)), terms);
  Row& row = rows_[s.get()];
  Expr fixed(0);
  for (const Expr& term : terms) {
    Expr& part = BelongsInside(term, loops) ? row.rest : fixed;
    part = part + term;
  }
  int64_t count = 1;
  std::vector<Stmt> each;
  for (const Stmt& loop : loops) {
    if (!ir::UsesVar(fixed, loop->var)) continue;
    each.push_back(loop);
    row.index = row.index * Expr(loop->extent) + Expr(loop->var);
    count *= loop->extent;
  }
  BeginStatement(ir::Bool(true));
  row.array = NameOf(s.get(), absl::StrCat(from->name, "_row"));
  const std::string function = WarpFunction("temper_row_at");
  Line(absl::StrCat("temper_row ", row.array, "[", count, "];"));
  for (const Stmt& loop : each) {
    const std::string& name = NameOf(loop->var.get(), loop->var->name);
    Line("#pragma unroll");
    Line(absl::StrCat("for (int ", name, " = 0; ", name, " < ", loop->extent, "; ++", name, ") {"));
    ++indent_;
  }
  Line(absl::StrCat(row.array, "[", Value(ranges_.Simplify(row.index)), "] = ", function, "(",
                    NameOf(from.get(), from->name), " + ", Value(ranges_.Simplify(fixed)), ");"));
  for (size_t i = 0; i < each.size(); ++i) {
    --indent_;
    Line("}");
  }
}

bool KernelEmitter::EmitElement(const Stmt& s) {
  if (SharedLoadOf(s) == nullptr) return false;
  BeginStatement(ir::Bool(true));
  const std::string round = WarpFunction("temper_round_to_tf32"), load = WarpFunction("temper_load_f32");
  Line(absl::StrCat(Element(s->buffer, s->indices), " = ", round, "(", load, "(", RowOf(s), "));"));
  return true;
}

std::string KernelEmitter::RowOf(const Stmt& s) {
  const Expr& load = *SharedLoadOf(s);
  const ir::Buffer& from = load->buffer;
  const auto found = rows_.find(s.get());
  if (found == rows_.end()) {
    return absl::StrCat(WarpFunction("temper_row_at"), "(", SteppedPointer(from, ir::FlatIndex(from, load->args)), ")");
  }
  const Row& row = found->second;
  const Expr bytes = row.rest * Expr(SizeOf(from->dtype));
  return absl::StrCat(row.array, "[", Value(ranges_.Simplify(row.index)), "] + ", Stepped(bytes));
}

}  // namespace temper
