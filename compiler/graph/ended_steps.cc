#include "compiler/graph/ended_steps.h"

#include <algorithm>

#include "compiler/graph/alias.h"
#include "compiler/ops/templates/stages.h"
#include "compiler/schedule/nest.h"

namespace temper {
namespace {

// Who needs a value.
struct Need {
  bool anybody = false;
  std::optional<NeededFrom> from;  // nullopt: every run
};

// One more needs it.
void Join(Need& need, const Need& other) {
  const bool first = !need.anybody;
  need.anybody = true;
  if (first) {
    need.from = other.from;
  } else if (need.from && other.from && need.from->extent == other.from->extent) {
    need.from->least = std::min(need.from->least, other.from->least);
  } else {
    need.from.reset();
  }
}

// Runs that need it have `least` or more of the extent besides. Of several extents the first is kept.
Need Narrowed(Need need, int extent, int64_t least) {
  if (!need.from) {
    need.from = NeededFrom{extent, least};
  } else if (need.from->extent == extent) {
    need.from->least = std::max(need.from->least, least);
  }
  return need;
}

// Behind which place, the same for all of its elements, the group's result is the operand.
std::optional<BehindFacts::Place> KeepsBehind(const Graph& g, const Group& group, const GraphBehind& behind,
                                              ValueId operand) {
  const absl::StatusOr<Extracted> kernel = Extract(g, group);
  if (!kernel.ok()) return std::nullopt;
  const absl::StatusOr<ir::Func> stages = BuildStages(kernel->workload);
  if (!stages.ok()) return std::nullopt;
  const std::vector<ir::Stmt> blocks = nest::BlocksIn(stages->body);
  if (blocks.size() != 1 || blocks[0]->value->kind != ir::ExprKind::kSelect) return std::nullopt;
  const ir::Expr &condition = blocks[0]->value->args[0], &kept = blocks[0]->value->args[2];
  const auto at = static_cast<size_t>(std::ranges::find(kernel->inputs, operand) - kernel->inputs.begin());
  const ir::Simplifier ranges = RangesOf(*blocks[0]);
  const auto same = [&](const ir::Expr& a, const ir::Expr& b) {
    return ranges.CanProve(a <= b) && ranges.CanProve(b <= a);
  };
  const bool keeps = kept->kind == ir::ExprKind::kLoad && kept->buffer == stages->params[at] &&
                     std::ranges::equal(kept->args, blocks[0]->indices, same);
  if (!keeps) return std::nullopt;
  const BehindFacts facts(*stages, FactsOf(g, *kernel, behind));
  return facts.NoBehind(condition, ranges);
}

}  // namespace

std::vector<std::optional<NeededFrom>> EndedSteps(const Graph& g, const GraphBehind& behind,
                                                  const std::vector<ValueId>& in_place) {
  std::vector<std::optional<NeededFrom>> steps(g.groups.size());
  if (g.input_extents.empty()) return steps;
  const Aliases aliases(g);
  std::vector<Need> needs(g.values.size());
  for (const ValueId v : g.outputs) Join(needs[static_cast<size_t>(v)], {});
  for (const ValueId v : behind.extents) Join(needs[static_cast<size_t>(v)], {});
  for (size_t i = g.groups.size(); i-- > 0;) {
    const Group& group = g.groups[i];
    const ValueId output = g.nodes[static_cast<size_t>(group.nodes.back())].output;
    Need result = needs[static_cast<size_t>(output)];
    const bool runs = !aliases.Have(group);
    const bool unread = runs && !behind.places[static_cast<size_t>(output)];
    for (const Behind& b : behind.of[static_cast<size_t>(output)]) {
      const int64_t place = ir::AsInt(b.place).value_or(0);
      if (unread && b.kind == Behind::kUnread && place > 0 && b.extent < g.hidden_inputs)
        result = Narrowed(result, b.extent, place + 1);
    }
    Need step = result;
    const ValueId kept = in_place[i];
    const auto keeps = kept == kNoValue ? std::nullopt : KeepsBehind(g, group, behind, kept);
    const int64_t place = keeps ? ir::AsInt(keeps->at).value_or(0) : 0;
    if (place > 0 && keeps->extent < g.hidden_inputs) step = Narrowed(step, keeps->extent, place + 1);
    if (runs) steps[i] = step.from;
    for (const int at : group.nodes) {
      for (const ValueId v : g.nodes[static_cast<size_t>(at)].inputs) {
        if (v != kNoValue) Join(needs[static_cast<size_t>(v)], v == kept ? result : step);
      }
    }
  }
  return steps;
}

}  // namespace temper
