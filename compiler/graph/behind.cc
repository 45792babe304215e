#include "compiler/graph/behind.h"

#include <algorithm>

#include "compiler/ops/templates/stages.h"

namespace temper {
namespace {

bool Counts(const Value& v) {
  if (!v.constant.has_value() || v.type.dtype != DType::kI64 || !v.type.perm.empty()) return false;
  const std::span<const int64_t> data = v.constant->as<int64_t>();
  for (size_t i = 0; i < data.size(); ++i) {
    if (data[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

// Its number; -1: it is none, or one that may be 0.
int ExtentOf(const Graph& g, ValueId v) {
  const auto hidden = g.inputs.end() - g.hidden_inputs;
  const auto found = std::find(hidden, g.inputs.end(), v);
  const bool may_be_zero = std::ranges::any_of(g.input_extents, [&](const InputExtent& e) {
    return e.least == 0 && g.inputs[static_cast<size_t>(e.told_by)] == v;
  });
  return found == g.inputs.end() || may_be_zero ? -1 : static_cast<int>(found - hidden);
}

Behind OfInput(const Graph& g, const InputExtent& e) {
  const TensorType& type = g.values[static_cast<size_t>(g.inputs[static_cast<size_t>(e.input)])].type;
  Behind b{.extent = ExtentOf(g, g.inputs[static_cast<size_t>(e.told_by)]),
           .shape = type.PhysicalShape(),
           .index = IndexOf(type.shape.size())};
  auto dim = static_cast<size_t>(e.axis);
  if (!type.perm.empty())
    dim = static_cast<size_t>(std::ranges::find(type.perm, static_cast<int>(e.axis)) - type.perm.begin());
  b.place = b.index[dim];
  return b;
}

}  // namespace

std::vector<OperandFacts> FactsOf(const Graph& g, const Extracted& kernel,
                                  const std::vector<std::vector<Behind>>& behind) {
  std::vector<OperandFacts> facts;
  for (ValueId id : kernel.inputs) {
    const Value& v = g.values[static_cast<size_t>(id)];
    const bool known = v.constant.has_value() && v.type.shape.empty();
    facts.push_back({.behind = behind[static_cast<size_t>(id)],
                     .constant = v.is_constant,
                     .counts = Counts(v),
                     .number = known ? std::optional(v.constant->At(0)) : std::nullopt,
                     .extent = ExtentOf(g, id)});
  }
  return facts;
}

std::vector<std::vector<Behind>> BehindOf(const Graph& g) {
  std::vector<std::vector<Behind>> behind(g.values.size());
  if (g.input_extents.empty()) return behind;
  for (const InputExtent& e : g.input_extents) {
    const Behind b = OfInput(g, e);
    if (b.extent >= 0) behind[static_cast<size_t>(g.inputs[static_cast<size_t>(e.input)])] = {b};
  }
  for (const Group& group : g.groups) {
    const absl::StatusOr<Extracted> kernel = Extract(g, group);
    if (!kernel.ok()) continue;
    const std::vector<OperandFacts> facts = FactsOf(g, *kernel, behind);
    const bool any =
        std::ranges::any_of(facts, [](const OperandFacts& f) { return !f.behind.empty() || f.extent >= 0; });
    if (!any) continue;
    const absl::StatusOr<ir::Func> stages = BuildStages(kernel->workload);
    if (stages.ok())
      behind[static_cast<size_t>(kernel->output)] = BehindFacts(*stages, facts).Of(stages->params.back());
  }
  return behind;
}

}  // namespace temper
