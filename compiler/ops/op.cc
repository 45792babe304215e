#include "compiler/ops/op.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace temper {
namespace {

absl::StatusOr<const OpDef*> OpOf(const Workload::Call& call) {
  const OpDef* op = FindOp(call.op);
  if (op == nullptr) return absl::InvalidArgumentError(absl::StrCat("unknown operator '", call.op, "'"));
  return op;
}

}  // namespace

std::vector<int> LastReaders(const Workload& w) {
  std::vector<int> last(w.inputs.size() + w.calls.size(), -1);
  for (int i = 0; i < std::ssize(w.calls); ++i) {
    for (int arg : w.calls[i].args) {
      if (arg >= 0) last[arg] = i;
    }
  }
  return last;
}

absl::StatusOr<NDArray> RunReference(const Workload& w, std::span<const NDArray> inputs,
                                     const std::function<void(int call, NDArray& result)>& on_result) {
  if (w.calls.empty()) return absl::InvalidArgumentError("a workload without calls");
  if (inputs.size() != w.inputs.size()) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", w.inputs.size(), " inputs, got ", inputs.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorType& type = w.inputs[i].type;
    if (inputs[i].dtype() == type.dtype && inputs[i].shape() == type.shape) continue;
    return absl::InvalidArgumentError(absl::StrCat("input ", i, " is ", std::string(Name(inputs[i].dtype())), " ",
                                                   ShapeText(inputs[i].shape()), ", expected ", Text(type)));
  }
  const std::vector<int> last_reader = LastReaders(w);
  std::vector<NDArray> values(inputs.begin(), inputs.end());
  for (int i = 0; i < std::ssize(w.calls); ++i) {
    const Workload::Call& call = w.calls[i];
    TEMPER_ASSIGN_OR_RETURN(const OpDef* op, OpOf(call));
    std::vector<NDArray> args;
    for (int arg : call.args) args.push_back(arg < 0 ? NDArray() : values[arg]);
    TEMPER_ASSIGN_OR_RETURN(NDArray result, op->reference(call.attrs, args, call.type));
    if (on_result) on_result(i, result);
    values.push_back(std::move(result));
    for (int arg : call.args) {
      if (arg >= 0 && last_reader[arg] == i) values[arg] = NDArray();
    }
  }
  return values.back();
}

bool IsQuantisation(std::string_view op, const TensorType& operand, const TensorType& result) {
  const OpDef* def = FindOp(op);
  const DTypeInfo& type = Info(result.dtype);
  const bool narrow = !IsFloat(result.dtype) && type.kind != TypeKind::kBool && type.bits <= 16;
  return IsFloat(operand.dtype) && (narrow || (def != nullptr && def->steps));
}

double Flops(const Workload& w) {
  double flops = 0;
  for (const Workload::Call& call : w.calls) {
    const OpDef* op = FindOp(call.op);
    if (op == nullptr) continue;
    std::vector<TensorType> args;
    for (int arg : call.args) args.push_back(arg < 0 ? TensorType{} : w.TypeOf(arg));
    flops += op->flops(call.attrs, args, call.type);
  }
  return flops;
}

double CompulsoryBytes(const Workload& w) {
  auto bytes = [](const TensorType& t) {
    return static_cast<double>(NumElements(t.shape)) * (Info(t.dtype).bits / 8.0);
  };
  // An operator that only moves data reads at most one element for each of its result: a gather no whole table.
  std::vector<double> read(w.inputs.size(), 0);
  for (const Workload::Call& call : w.calls) {
    const OpDef* op = FindOp(call.op);
    const bool moves = op != nullptr && op->pattern == OpPattern::kInjective;
    for (int arg : call.args) {
      if (arg < 0 || arg >= static_cast<int>(read.size())) continue;
      const TensorType& type = w.inputs[static_cast<size_t>(arg)].type;
      read[static_cast<size_t>(arg)] += moves ? bytes({type.dtype, call.type.shape, {}}) : bytes(type);
    }
  }
  double total = bytes(w.output());
  for (size_t i = 0; i < read.size(); ++i) total += std::min(read[i], bytes(w.inputs[i].type));
  return total;
}

}  // namespace temper
