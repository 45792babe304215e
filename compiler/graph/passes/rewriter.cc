#include "compiler/graph/passes/rewriter.h"

#include <iterator>

namespace temper::passes {

// Rules shrink the graph or move it towards a normal form; a pair that undid each other would never end.
constexpr int kMaxSweeps = 100;

Rewriter::Rewriter(Graph& g) : g_(g) {}

const NDArray* Rewriter::Constant(ValueId v) const {
  return v != kNoValue && g_.values[v].constant.has_value() ? &*g_.values[v].constant : nullptr;
}

const Node* Rewriter::Producer(ValueId v, std::string_view op) const {
  if (v == kNoValue || producer_[v] < 0) return nullptr;
  const Node& node = out_[producer_[v]];
  return op.empty() || node.op == op ? &node : nullptr;
}

void Rewriter::CountUses(const Node& node, int by) {
  for (ValueId v : node.inputs) {
    if (v != kNoValue) uses_[v] += by;
  }
}

ValueId Rewriter::Resolve(ValueId v) const {
  while (v != kNoValue && replaced_[v] != v) v = replaced_[v];
  return v;
}

ValueId Rewriter::AddConstant(NDArray data, std::string name) {
  Value v{std::move(name), {data.dtype(), data.shape(), {}}, std::nullopt, true};
  v.constant = std::move(data);
  producer_.push_back(-1);
  uses_.push_back(0);
  is_output_.push_back(false);
  replaced_.push_back(static_cast<ValueId>(g_.values.size()));
  return g_.AddValue(std::move(v));
}

absl::StatusOr<ValueId> Rewriter::Emit(std::string op, Attrs attrs, std::vector<ValueId> inputs, std::string name) {
  TEMPER_ASSIGN_OR_RETURN(ValueId v, g_.AddNode(std::move(op), std::move(attrs), std::move(inputs), std::move(name)));
  out_.push_back(std::move(g_.nodes.back()));
  g_.nodes.pop_back();
  CountUses(out_.back(), 1);
  producer_.push_back(static_cast<int>(out_.size()) - 1);
  uses_.push_back(0);
  is_output_.push_back(false);
  replaced_.push_back(v);
  return v;
}

bool Rewriter::ReplaceOutput(const Node& node, ValueId by) {
  const ValueId from = node.output;
  if (is_output_[from]) {
    if (is_output_[by] || producer_[by] < 0) return false;
    std::swap(g_.values[from].name, g_.values[by].name);
    for (ValueId& v : g_.outputs) v = v == from ? by : v;
    is_output_[by] = true;
  }
  uses_[by] += uses_[from];
  replaced_[from] = by;
  CountUses(node, -1);
  return true;
}

void Rewriter::Become(Node& node, std::string op, Attrs attrs, std::vector<ValueId> inputs) {
  CountUses(node, -1);
  node.op = std::move(op);
  node.attrs = std::move(attrs);
  node.inputs = std::move(inputs);
  CountUses(node, 1);
}

absl::StatusOr<bool> Rewriter::Sweep(std::span<const Rule> rules) {
  const size_t values = g_.values.size();
  producer_.assign(values, -1);
  uses_.assign(values, 0);
  is_output_.assign(values, false);
  replaced_.resize(values);
  for (size_t i = 0; i < values; ++i) replaced_[i] = static_cast<ValueId>(i);
  for (const Node& node : g_.nodes) CountUses(node, 1);
  for (ValueId v : g_.outputs) {
    ++uses_[v];
    is_output_[v] = true;
  }
  out_.clear();
  std::vector<Node> nodes = std::move(g_.nodes);
  g_.nodes.clear();
  bool changed = false;
  for (Node& node : nodes) {
    for (ValueId& v : node.inputs) v = Resolve(v);
    bool replaced = false;
    for (const Rule& rule : rules) {
      TEMPER_ASSIGN_OR_RETURN(bool applied, rule(*this, node));
      changed = changed || applied;
      replaced = replaced_[node.output] != node.output;
      if (replaced) break;
    }
    if (replaced) continue;
    producer_[node.output] = static_cast<int>(out_.size());
    out_.push_back(std::move(node));
  }
  g_.nodes.assign(std::make_move_iterator(out_.begin()), std::make_move_iterator(out_.end()));
  out_.clear();
  for (ValueId& v : g_.outputs) v = Resolve(v);
  g_.Compact();
  return changed;
}

absl::StatusOr<bool> Rewriter::Run(std::span<const Rule> rules) {
  bool any = false;
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    TEMPER_ASSIGN_OR_RETURN(bool changed, Sweep(rules));
    if (!changed) return any;
    any = true;
  }
  return absl::InternalError("simplification does not come to an end");
}

Attrs IntsAttrs(const char* name, std::vector<int64_t> values) {
  Attrs attrs;
  attrs.Set(name, std::move(values));
  return attrs;
}

Attrs SliceAttrs(int64_t axis, int64_t begin, int64_t end) {
  Attrs attrs = IntsAttrs("axes", {axis});
  attrs.Set("starts", std::vector<int64_t>{begin});
  attrs.Set("ends", std::vector<int64_t>{end});
  attrs.Set("steps", std::vector<int64_t>{1});
  return attrs;
}

}  // namespace temper::passes
