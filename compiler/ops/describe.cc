#include "compiler/ops/describe.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace temper {

std::string Describe(const Workload& w) {
  const auto shape_of = [&](int arg) { return arg < 0 ? "_" : ShapeText(w.TypeOf(arg).shape); };
  std::vector<std::string> operands;
  for (int arg : w.calls[static_cast<size_t>(w.anchor)].args) operands.push_back(shape_of(arg));
  const std::string operators =
      absl::StrJoin(w.calls, "+", [](std::string* out, const Workload::Call& call) { out->append(call.op); });
  return absl::StrCat(operators, " ", absl::StrJoin(operands, " * "), " -> ", ShapeText(w.output().shape));
}

}  // namespace temper
