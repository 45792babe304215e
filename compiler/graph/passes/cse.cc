#include <algorithm>
#include <cstring>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/graph/passes/passes.h"

namespace temper::passes {
namespace {

constexpr int64_t kMaxComparedBytes = 4096;  // larger constants are hardly ever equal, and dear to compare

std::string ConstantKey(const Value& v) {
  return absl::StrCat(
      Text(v.type), "|",
      std::string(static_cast<const char*>(v.constant->data()), static_cast<size_t>(v.constant->bytes())));
}

}  // namespace

absl::Status EliminateCommonSubexpressions(Graph& g) {
  std::vector<ValueId> same(g.values.size());
  absl::flat_hash_map<std::string, ValueId> first;
  for (size_t i = 0; i < g.values.size(); ++i) {
    const Value& v = g.values[i];
    same[i] = static_cast<ValueId>(i);
    if (v.constant.has_value() && v.constant->bytes() <= kMaxComparedBytes)
      same[i] = first.try_emplace(ConstantKey(v), same[i]).first->second;
  }
  first.clear();
  std::vector<Node> kept;
  for (Node& node : g.nodes) {
    for (ValueId& v : node.inputs) v = v == kNoValue ? v : same[v];
    // Each graph output keeps a value of its own, with its own name.
    const bool is_output = std::find(g.outputs.begin(), g.outputs.end(), node.output) != g.outputs.end();
    std::string key = absl::StrCat(node.op, "(", absl::StrJoin(node.inputs, ","), ";", Text(node.attrs), ")");
    auto [it, fresh] = first.try_emplace(std::move(key), node.output);
    if (!fresh && !is_output) {
      same[node.output] = it->second;
      continue;
    }
    kept.push_back(std::move(node));
  }
  g.nodes = std::move(kept);
  return absl::OkStatus();
}

}  // namespace temper::passes
