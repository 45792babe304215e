#include "compiler/graph/extract.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/hash.h"
#include "compiler/graph/alias.h"

namespace temper {
namespace {

// Position of `v` among the workload's inputs, added if new.
int InputIndex(const Graph& g, ValueId v, Extracted& e) {
  auto it = std::find(e.inputs.begin(), e.inputs.end(), v);
  if (it != e.inputs.end()) return static_cast<int>(it - e.inputs.begin());
  e.inputs.push_back(v);
  e.workload.inputs.push_back({g.values[v].type, g.values[v].is_constant});
  return static_cast<int>(e.inputs.size()) - 1;
}

// Of no elements, so that there is nothing to measure.
bool HasNothing(const Workload& w) { return NumElements(w.output().shape) == 0; }

absl::Status TooLarge() {
  return absl::InvalidArgumentError(
      absl::StrCat("a fused kernel has more than ", kMaxWorkloadItems, " operators or operands"));
}

bool IsOpaque(const Workload& w) {
  return std::any_of(w.calls.begin(), w.calls.end(), [](const Workload::Call& call) {
    const OpDef* op = FindOp(call.op);
    return op == nullptr || op->pattern == OpPattern::kOpaque;
  });
}

}  // namespace

absl::StatusOr<Extracted> Extract(const Graph& g, const Group& group) {
  if (group.nodes.empty()) return absl::InternalError("a group without nodes");
  if (group.nodes.size() > kMaxWorkloadItems) return TooLarge();
  Extracted e;
  absl::flat_hash_map<ValueId, int> call_of;  // values made inside
  for (size_t i = 0; i < group.nodes.size(); ++i) call_of[g.nodes[group.nodes[i]].output] = static_cast<int>(i);
  // Operands first, in order of first use, so that results can be numbered after them.
  for (int n : group.nodes) {
    for (ValueId v : g.nodes[n].inputs) {
      if (v != kNoValue && !call_of.contains(v)) InputIndex(g, v, e);
    }
    if (e.inputs.size() > kMaxWorkloadItems) return TooLarge();
  }
  const int inputs = static_cast<int>(e.inputs.size());
  for (size_t i = 0; i < group.nodes.size(); ++i) {
    const Node& node = g.nodes[group.nodes[i]];
    Workload::Call call{node.op, node.attrs, {}, g.values[node.output].type};
    for (ValueId v : node.inputs) {
      auto made = call_of.find(v);
      if (v == kNoValue) {
        call.args.push_back(-1);
      } else if (made == call_of.end()) {
        call.args.push_back(InputIndex(g, v, e));
      } else if (made->second >= static_cast<int>(i)) {
        return absl::InternalError(absl::StrCat(node.op, " '", node.name, "': a group out of order"));
      } else {
        call.args.push_back(inputs + made->second);
      }
    }
    e.workload.calls.push_back(std::move(call));
  }
  e.workload.anchor = group.anchor;
  e.output = g.nodes[group.nodes.back()].output;
  return e;
}

absl::StatusOr<std::vector<Task>> ExtractTasks(const Graph& g) {
  std::vector<Task> tasks;
  absl::flat_hash_map<std::string, size_t> seen;
  const Aliases aliases(g);
  const auto add = [&](const Group& group, bool alternative) -> absl::Status {
    if (aliases.Have(group)) return absl::OkStatus();
    TEMPER_ASSIGN_OR_RETURN(Extracted e, Extract(g, group));
    if (IsOpaque(e.workload) || HasNothing(e.workload)) return absl::OkStatus();
    auto [it, fresh] = seen.try_emplace(Text(e.workload), tasks.size());
    if (fresh) {
      // It travels as its text: what would be refused there is refused here.
      TEMPER_RETURN_IF_ERROR(ParseWorkload(it->first).status());
      tasks.push_back({std::move(e.workload), 0, alternative});
    }
    ++tasks[it->second].count;
    return absl::OkStatus();
  };
  for (const Group& group : g.groups) TEMPER_RETURN_IF_ERROR(add(group, false));
  for (const Alternative& a : g.alternatives) {
    for (const Group& group : a.groups) TEMPER_RETURN_IF_ERROR(add(group, true));
  }
  return tasks;
}

absl::StatusOr<std::vector<Task>> KernelsOf(const Graph& g) {
  std::vector<Task> kernels;
  absl::flat_hash_map<std::string, size_t> seen;
  const Aliases aliases(g);
  for (const Group& group : g.groups) {
    if (aliases.Have(group)) continue;
    TEMPER_ASSIGN_OR_RETURN(Extracted e, Extract(g, group));
    const auto [it, fresh] = seen.try_emplace(Text(e.workload), kernels.size());
    if (fresh) kernels.push_back({std::move(e.workload), 0});
    ++kernels[it->second].count;
  }
  return kernels;
}

int64_t ConstantBytes(const std::vector<Task>& tasks) {
  int64_t bytes = 0;
  for (const Task& task : tasks) {
    if (task.alternative) continue;
    for (const Workload::Operand& input : task.workload.inputs) {
      if (input.constant) bytes += task.count * BytesOf(input.type.dtype, NumElements(input.type.shape));
    }
  }
  return bytes;
}

std::string ModelHash(const std::vector<Task>& tasks) {
  std::vector<std::string> lines;
  for (const Task& task : tasks) lines.push_back(absl::StrCat(task.count, "x ", Text(task.workload), "\n"));
  std::sort(lines.begin(), lines.end());
  return HashText(StableHash(absl::StrJoin(lines, "")));
}

}  // namespace temper
