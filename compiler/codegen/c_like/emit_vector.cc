// Vectorised loops whose lanes lie side by side in memory, as vectors. Others stay loops.
#include "absl/strings/str_cat.h"
#include "compiler/codegen/c_like/emitter.h"

namespace temper {

using ir::Expr;
using ir::ExprKind;
using ir::Stmt;

namespace {

bool IsVectorLength(int64_t n) { return n == 2 || n == 4 || n == 8 || n == 16; }

bool HasVectors(DType dtype) { return !IsPacked(dtype) && dtype != DType::kBool; }

}  // namespace

std::optional<KernelEmitter::Lanes> KernelEmitter::LanesOf(const ir::Buffer& buffer, const std::vector<Expr>& indices,
                                                           const Stmt& loop) {
  const Expr flat = ranges_.Simplify(ir::FlatIndex(buffer, indices));
  if (loop == nullptr) return Lanes{buffer, flat, true};
  const std::optional<ir::Linear> linear = ir::AsLinear(flat, {loop->var});
  if (!HasVectors(buffer->dtype) || !linear.has_value() || linear->coefficients[0] != 1) return std::nullopt;
  const Expr first = ranges_.Simplify(linear->rest);
  // Private arrays begin anywhere.
  const bool aligned =
      buffer->scope != ir::Scope::kRegister && ir::AsInt(ranges_.Simplify(first % Expr(loop->extent))) == int64_t{0};
  return Lanes{buffer, first, aligned};
}

const char* KernelEmitter::Space(ir::Scope scope) const {
  switch (scope) {
    case ir::Scope::kMemory:
      return dialect_.global;
    case ir::Scope::kShared:
      return dialect_.shared;
    case ir::Scope::kRegister:
    case ir::Scope::kTile:  // which no device has
      break;
  }
  return "";
}

std::string KernelEmitter::Pointer(const Lanes& lanes) {
  return absl::StrCat(NameOf(lanes.buffer.get(), lanes.buffer->name), " + ", Value(lanes.first));
}

std::string KernelEmitter::VectorPointer(const Lanes& lanes, int64_t length, bool writes) {
  return absl::StrCat("*(", Space(lanes.buffer->scope), writes ? "" : "const ",
                      dialect_.vector(prelude_, MemoryType(lanes.buffer->dtype), length), "*)(", Pointer(lanes), ")");
}

std::string KernelEmitter::ElementsFrom(const Lanes& lanes, int64_t length) {
  std::string list;
  for (int64_t i = 0; i < length; ++i)
    absl::StrAppend(&list, i == 0 ? "" : ", ", NameOf(lanes.buffer.get(), lanes.buffer->name), "[",
                    Value(ranges_.Simplify(lanes.first + Expr(i))), "]");
  return list;
}

std::optional<std::string> KernelEmitter::VectorValue(const Expr& e, const Stmt& loop) {
  const std::string type = dialect_.vector(prelude_, ValueType(e->dtype), loop->extent);
  if (!ir::UsesVar(e, loop->var)) return absl::StrCat("(", type, ")(", Value(e), ")");
  if (e->kind == ExprKind::kLoad) {
    const std::optional<Lanes> lanes = LanesOf(e->buffer, e->args, loop);
    if (!lanes.has_value()) return std::nullopt;
    if (lanes->aligned) return VectorPointer(*lanes, loop->extent, false);
    if (dialect_.vectors_by_element && e->buffer->scope == ir::Scope::kRegister)
      return absl::StrCat("(", type, ")(", ElementsFrom(*lanes, loop->extent), ")");
    return absl::StrCat("vload", loop->extent, "(0, ", Pointer(*lanes), ")");
  }
  if (e->kind == ExprKind::kSelect && !ir::UsesVar(e->args[0], loop->var)) {
    const std::optional<std::string> then = VectorValue(e->args[1], loop), other = VectorValue(e->args[2], loop);
    if (!then.has_value() || !other.has_value()) return std::nullopt;
    return absl::StrCat("(", Value(e->args[0]), " ? ", *then, " : ", *other, ")");
  }
  const char* op = e->kind == ExprKind::kAdd   ? "+"
                   : e->kind == ExprKind::kSub ? "-"
                   : e->kind == ExprKind::kMul ? "*"
                   : e->kind == ExprKind::kDiv ? "/"
                                               : nullptr;
  if (op == nullptr || !IsFloat(e->dtype)) return std::nullopt;
  const std::optional<std::string> a = VectorValue(e->args[0], loop), b = VectorValue(e->args[1], loop);
  if (!a.has_value() || !b.has_value()) return std::nullopt;
  return absl::StrCat("(", *a, " ", op, " ", *b, ")");
}

bool KernelEmitter::EmitCopy(const Stmt& store, const Stmt& loop) {
  const Expr& value = store->value;
  const bool either = value->kind == ExprKind::kSelect;
  const Expr& load = either ? value->args[1] : value;
  const int64_t bytes = (loop == nullptr ? 1 : loop->extent) * SizeOf(load->dtype);
  if (load->kind != ExprKind::kLoad || (bytes != 2 && bytes != 4 && bytes != 8 && bytes != 16)) return false;
  if (either && loop != nullptr && ir::UsesVar(value->args[0], loop->var)) return false;
  const std::optional<Lanes> to = LanesOf(store->buffer, store->indices, loop);
  const std::optional<Lanes> from = LanesOf(load->buffer, load->args, loop);
  if (!to.has_value() || !to->aligned || !from.has_value() || !from->aligned) return false;
  BeginStatement(ir::Bool(true));  // values of one lane are no variables
  const std::string inside = either ? Value(value->args[0]) : "true";
  Line(absl::StrCat(WarpFunction("temper_copy"), "<", bytes, ">(", SteppedPointer(to->buffer, to->first), ", ",
                    SteppedPointer(from->buffer, from->first), ", ", inside, ");"));
  return true;
}

bool KernelEmitter::EmitVectorized(const Stmt& loop) {
  const Stmt& s = loop->body;
  if (!IsVectorLength(loop->extent) || s->kind != ir::StmtKind::kStore || !HasVectors(s->value->dtype)) return false;
  const std::optional<Lanes> lanes = LanesOf(s->buffer, s->indices, loop);
  if (!lanes.has_value()) return false;
  // A lane must not read what one before it writes.
  bool own_alone = true;
  ir::Visit(s->value, [&](const Expr& e) {
    if (e->kind != ExprKind::kLoad || e->buffer != s->buffer) return;
    const Expr flat = ranges_.Simplify(ir::FlatIndex(e->buffer, e->args));
    own_alone &= ir::StructurallyEqual(flat, ranges_.Simplify(ir::FlatIndex(s->buffer, s->indices)));
  });
  if (!own_alone) return false;
  if (s->ahead > 0) return EmitCopy(s, loop);
  BeginStatement(ir::Bool(true));  // values of one lane are no variables
  const std::optional<std::string> value = VectorValue(s->value, loop);
  if (!value.has_value()) return false;
  if (lanes->aligned) {
    Line(absl::StrCat(VectorPointer(*lanes, loop->extent, true), " = ", *value, ";"));
  } else {
    Line(absl::StrCat("vstore", loop->extent, "(", *value, ", 0, ", Pointer(*lanes), ");"));
  }
  return true;
}

}  // namespace temper
