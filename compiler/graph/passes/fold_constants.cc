#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/graph/passes/passes.h"

namespace temper::passes {
namespace {

// A broadcast or a range of this size is cheaper to compute again than to keep in the package.
constexpr int64_t kMaxGrowthBytes = int64_t{4} << 20;

bool IsKnown(const Graph& g, ValueId v) {
  return v == kNoValue || (g.values[v].is_constant && g.values[v].constant.has_value());
}

// What has no more elements than an operand is folded also where its type is wider: quantised weights become those
// that kernels multiply with.
bool WorthFolding(const Graph& g, const Node& node) {
  int64_t bytes_in = 0, most = 0;
  for (ValueId v : node.inputs) {
    if (v == kNoValue) continue;
    bytes_in += g.values[v].constant->bytes();
    most = std::max(most, g.values[v].constant->size());
  }
  const TensorType& out = g.values[node.output].type;
  const int64_t elements = NumElements(out.shape);
  return elements <= most || BytesOf(out.dtype, elements) <= bytes_in + kMaxGrowthBytes;
}

}  // namespace

absl::Status FoldConstants(Graph& g) {
  std::vector<Node> kept;
  for (Node& node : g.nodes) {
    const bool known = std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return IsKnown(g, v); });
    if (!known || !WorthFolding(g, node)) {
      kept.push_back(std::move(node));
      continue;
    }
    std::vector<NDArray> args;
    for (ValueId v : node.inputs) args.push_back(v == kNoValue ? NDArray() : *g.values[v].constant);
    Value& out = g.values[node.output];
    absl::StatusOr<NDArray> result = FindOp(node.op)->reference(node.attrs, args, out.type);
    if (!result.ok()) {
      return absl::Status(result.status().code(),
                          absl::StrCat(node.op, " '", node.name, "': ", std::string(result.status().message())));
    }
    out.constant = *std::move(result);
    out.is_constant = true;
  }
  g.nodes = std::move(kept);
  return absl::OkStatus();
}

}  // namespace temper::passes
