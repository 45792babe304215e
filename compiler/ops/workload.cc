#include "compiler/ops/workload.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/hash.h"
#include "base/shape_limits.h"
#include "compiler/ops/attrs_parse.h"
#include "compiler/ops/op.h"

namespace temper {
namespace {

constexpr double kMaxFlops = 0x1p60;  // days of any machine; counts of a call's operations fit 64 bits
constexpr std::string_view kAxes = "0123456789abcdef";

std::string CallText(const Workload::Call& call) {
  std::string text = absl::StrCat(call.op, "(", absl::StrJoin(call.args, ",", [](std::string* out, int arg) {
                                    if (arg < 0)
                                      out->push_back('_');
                                    else
                                      absl::StrAppend(out, arg);
                                  }));
  if (!call.attrs.values().empty()) absl::StrAppend(&text, "; ", Text(call.attrs));
  return absl::StrCat(text, ") -> ", Text(call.type));
}

absl::StatusOr<TensorType> ParseType(ops::TextCursor& c) {
  TensorType type;
  TEMPER_ASSIGN_OR_RETURN(type.dtype, DTypeFromName(c.Word()));
  TEMPER_RETURN_IF_ERROR(c.Expect("["));
  while (!c.Eat("]")) {
    if (!type.shape.empty()) TEMPER_RETURN_IF_ERROR(c.Expect(","));
    TEMPER_ASSIGN_OR_RETURN(int64_t dim, c.Int());
    type.shape.push_back(dim);
    if (std::ssize(type.shape) > kMaxTensorRank) return c.Error("too many dimensions");
    if (dim < 1 || !CheckTensorShape(type.shape).ok()) return c.Error("dimension out of range");
  }
  if (!c.Eat("@")) return type;
  std::vector<bool> seen(type.shape.size(), false);
  bool identity = true;
  for (size_t i = 0; i < type.shape.size(); ++i) {
    size_t axis = c.AtEnd() ? std::string_view::npos : kAxes.find(c.Peek());
    if (axis >= type.shape.size() || seen[axis]) return c.Error("not a permutation of the axes");
    seen[axis] = true;
    identity = identity && axis == i;
    type.perm.push_back(static_cast<int>(axis));
    c.Skip(1);
  }
  if (identity) type.perm.clear();
  return type;
}

absl::StatusOr<Workload::Call> ParseCall(ops::TextCursor& c) {
  Workload::Call call;
  call.op = std::string(c.Word());
  TEMPER_RETURN_IF_ERROR(c.Expect("("));
  while (c.Peek() != ';' && c.Peek() != ')') {
    if (!call.args.empty()) TEMPER_RETURN_IF_ERROR(c.Expect(","));
    if (c.Eat("_")) {
      call.args.push_back(-1);
      continue;
    }
    TEMPER_ASSIGN_OR_RETURN(int64_t arg, c.Int());
    if (arg < 0 || arg > 2 * kMaxWorkloadItems) return c.Error("argument out of range");
    call.args.push_back(static_cast<int>(arg));
  }
  if (c.Eat("; ")) {
    TEMPER_ASSIGN_OR_RETURN(call.attrs, ops::ParseAttrs(c));
  }
  TEMPER_RETURN_IF_ERROR(c.Expect(") -> "));
  TEMPER_ASSIGN_OR_RETURN(call.type, ParseType(c));
  return call;
}

absl::Status CheckCall(const Workload& w, size_t index) {
  const Workload::Call& call = w.calls[index];
  const OpDef* op = FindOp(call.op);
  if (op == nullptr) return absl::InvalidArgumentError(absl::StrCat("unknown operator '", call.op, "'"));
  std::vector<TensorType> inputs;
  for (size_t i = 0; i < call.args.size(); ++i) {
    const int arg = call.args[i];
    if (arg >= static_cast<int>(w.inputs.size() + index)) {
      return absl::InvalidArgumentError(absl::StrCat(call.op, ": argument ", arg, " is not computed before it"));
    }
    if (arg < 0 && static_cast<int>(i) < op->min_inputs)
      return absl::InvalidArgumentError(absl::StrCat(call.op, ": operand ", i, " may not be absent"));
    inputs.push_back(arg < 0 ? TensorType{} : w.TypeOf(arg));
  }
  TEMPER_ASSIGN_OR_RETURN(TensorType inferred, op->infer(call.attrs, inputs));
  if (inferred.dtype != call.type.dtype || inferred.shape != call.type.shape) {
    inferred.perm.clear();
    return absl::InvalidArgumentError(
        absl::StrCat(call.op, ": stated result ", Text(call.type), ", computed ", Text(inferred)));
  }
  if (op->flops && !(op->flops(call.attrs, inputs, call.type) <= kMaxFlops))
    return absl::InvalidArgumentError(absl::StrCat(call.op, ": more work than any machine does in days"));
  return absl::OkStatus();
}

}  // namespace

Shape TensorType::PhysicalShape() const {
  if (perm.empty()) return shape;
  Shape physical;
  for (int axis : perm) physical.push_back(shape[axis]);
  return physical;
}

std::string Text(const TensorType& t) {
  std::string text = absl::StrCat(std::string(Name(t.dtype)), "[", absl::StrJoin(t.shape, ","), "]");
  if (!t.perm.empty()) text += '@';
  for (int axis : t.perm) text += kAxes[axis];
  return text;
}

const TensorType& Workload::TypeOf(int arg) const {
  size_t i = static_cast<size_t>(arg);
  return i < inputs.size() ? inputs[i].type : calls[i - inputs.size()].type;
}

std::string Text(const Workload& w) {
  std::string text =
      absl::StrCat("(",
                   absl::StrJoin(w.inputs, ", ",
                                 [](std::string* out, const Workload::Operand& operand) {
                                   absl::StrAppend(out, operand.constant ? "const " : "", Text(operand.type));
                                 }),
                   ") ");
  for (const Workload::Call& call : w.calls) absl::StrAppend(&text, CallText(call), "; ");
  return absl::StrCat(text, "anchor=", w.anchor);
}

absl::StatusOr<Workload> ParseWorkload(std::string_view text) {
  ops::TextCursor c(text);
  Workload w;
  TEMPER_RETURN_IF_ERROR(c.Expect("("));
  while (!c.Eat(")")) {
    if (!w.inputs.empty()) TEMPER_RETURN_IF_ERROR(c.Expect(", "));
    Workload::Operand operand;
    operand.constant = c.Eat("const ");
    TEMPER_ASSIGN_OR_RETURN(operand.type, ParseType(c));
    w.inputs.push_back(std::move(operand));
    if (w.inputs.size() > kMaxWorkloadItems) return c.Error("too many inputs");
  }
  TEMPER_RETURN_IF_ERROR(c.Expect(" "));
  while (!c.Eat("anchor=")) {
    TEMPER_ASSIGN_OR_RETURN(Workload::Call call, ParseCall(c));
    TEMPER_RETURN_IF_ERROR(c.Expect("; "));
    w.calls.push_back(std::move(call));
    if (w.calls.size() > kMaxWorkloadItems) return c.Error("too many calls");
    TEMPER_RETURN_IF_ERROR(CheckCall(w, w.calls.size() - 1));
  }
  TEMPER_ASSIGN_OR_RETURN(int64_t anchor, c.Int());
  if (!c.AtEnd()) return c.Error("text after the workload");
  if (anchor < 0 || anchor >= static_cast<int64_t>(w.calls.size())) return c.Error("anchor names no call");
  w.anchor = static_cast<int>(anchor);
  return w;
}

uint64_t Hash(const Workload& w) { return StableHash(Text(w)); }

std::string AnchorText(const Workload& w) {
  const Workload::Call& anchor = w.calls[w.anchor];
  Workload alone;
  alone.calls.push_back(anchor);
  std::vector<int> operands;  // of w, in order of first use
  for (int& arg : alone.calls[0].args) {
    if (arg < 0) continue;
    auto it = std::find(operands.begin(), operands.end(), arg);
    if (it == operands.end()) {
      bool constant = arg < static_cast<int>(w.inputs.size()) && w.inputs[arg].constant;
      alone.inputs.push_back({w.TypeOf(arg), constant});
      it = operands.insert(operands.end(), arg);
    }
    arg = static_cast<int>(it - operands.begin());
  }
  return Text(alone);
}

}  // namespace temper
