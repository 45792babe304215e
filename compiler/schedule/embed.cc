#include "compiler/schedule/embed.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "compiler/ir/simplify.h"
#include "compiler/schedule/nest.h"

namespace temper {

using ir::Expr;

absl::StatusOr<ir::Func> EmbedOutput(const ir::Func& func, int64_t inner, int64_t total, int64_t offset) {
  const ir::Buffer& out = func.params.back();
  size_t first = out->shape.size();
  while (first > 0 && NumElements(std::span(out->shape).subspan(first)) < inner) --first;
  if (NumElements(std::span(out->shape).subspan(first)) != inner)
    return absl::InvalidArgumentError(
        absl::StrCat(func.name, ": no dimensions of its output are the ", inner, " elements of a part"));
  const auto split = static_cast<std::ptrdiff_t>(first);
  Shape shape(out->shape.begin(), out->shape.begin() + split);
  shape.push_back(total);
  const ir::Buffer whole = ir::MakeBuffer(out->name, out->dtype, shape);
  const ir::Buffer row = ir::MakeBuffer(out->name, out->dtype, Shape(out->shape.begin() + split, out->shape.end()));
  ir::Func result = func;
  result.params.back() = whole;
  result.body = nest::ReplaceBuffer(func.body, out, whole, [&](const std::vector<Expr>& indices) {
    std::vector<Expr> placed(indices.begin(), indices.begin() + split);
    placed.push_back(ir::FlatIndex(row, {indices.begin() + split, indices.end()}) + Expr(offset));
    return placed;
  });
  result.body = ir::Simplify(result.body);
  TEMPER_RETURN_IF_ERROR(ir::Verify(result));
  return result;
}

bool ReadsWhatItWrites(const ir::Func& func, size_t param) {
  const ir::Buffer &in = func.params[param], &out = func.params.back();
  if (in->shape != out->shape || in->dtype != out->dtype) return false;
  const auto loads = [&](const Expr& root, const std::function<bool(const ir::ExprNode&)>& expected) {
    bool ok = true;
    ir::Visit(root, [&](const Expr& e) {
      if (e->kind == ir::ExprKind::kLoad && (e->buffer == in || e->buffer == out)) ok = ok && expected(*e);
    });
    return ok;
  };
  bool ok = true;
  size_t in_stores = 0, everywhere = 0;
  ir::VisitStmt(func.body, [&](const ir::Stmt& s) {
    if (s->kind != ir::StmtKind::kStore || s->buffer != out) return;
    ok = ok && loads(s->value, [&](const ir::ExprNode& load) {
           ++in_stores;
           return load.buffer == in && std::equal(load.args.begin(), load.args.end(), s->indices.begin(),
                                                  s->indices.end(), ir::StructurallyEqual);
         });
  });
  ir::VisitExprs(func.body, [&](const Expr& root) {
    loads(root, [&](const ir::ExprNode&) {
      ++everywhere;
      return true;
    });
  });
  return ok && in_stores == everywhere;
}

}  // namespace temper
