#include "compiler/graph/graph.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/shape_limits.h"
#include "compiler/graph/alternatives.h"

namespace temper {
namespace {

// Names that passes make up start with this, followed by the value's index.
constexpr char kMadeUp = '#';

std::string MadeUpName(size_t id) { return absl::StrCat(std::string(1, kMadeUp), id); }

std::vector<TensorType> TypesOf(const Graph& g, std::span<const ValueId> ids) {
  std::vector<TensorType> types;
  for (ValueId id : ids) types.push_back(id == kNoValue ? TensorType{} : g.values[id].type);
  return types;
}

std::string Where(const Node& node) {
  return node.name.empty() ? node.op : absl::StrCat(node.op, " '", node.name, "'");
}

absl::Status At(const std::string& where, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(where, ": ", std::string(status.message())));
}

absl::StatusOr<TensorType> InferNode(const Graph& g, const Node& node) {
  const OpDef* op = FindOp(node.op);
  if (op == nullptr) return absl::InvalidArgumentError(absl::StrCat(Where(node), ": unknown operator"));
  const int inputs = static_cast<int>(node.inputs.size());
  if (inputs < op->min_inputs || inputs > op->max_inputs) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(node), ": takes ", op->min_inputs, " to ", op->max_inputs, " inputs, got ", inputs));
  }
  for (int i = 0; i < op->min_inputs; ++i) {
    if (node.inputs[static_cast<size_t>(i)] == kNoValue)
      return absl::InvalidArgumentError(absl::StrCat(Where(node), ": operand ", i, " may not be absent"));
  }
  absl::StatusOr<TensorType> type = op->infer(node.attrs, TypesOf(g, node.inputs));
  return type.ok() ? type : At(Where(node), type.status());
}

absl::Status CheckPerm(const Value& v) {
  const std::vector<int>& perm = v.type.perm;
  if (perm.empty()) return absl::OkStatus();
  std::vector<int> sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  bool complete = perm.size() == v.type.shape.size();
  for (size_t i = 0; complete && i < sorted.size(); ++i) complete = sorted[i] == static_cast<int>(i);
  if (!complete) return absl::InternalError(absl::StrCat("value '", v.name, "': physical order is no permutation"));
  if (std::is_sorted(perm.begin(), perm.end())) {
    return absl::InternalError(absl::StrCat("value '", v.name, "': the identity order is written as the empty one"));
  }
  return absl::OkStatus();
}

absl::Status CheckValues(const Graph& g) {
  for (const Value& v : g.values) {
    if (const absl::Status sound = CheckTensorShape(v.type.shape); !sound.ok())
      return At(absl::StrCat("value '", v.name, "'"), sound);
    TEMPER_RETURN_IF_ERROR(CheckPerm(v));
    if (!v.constant.has_value()) continue;
    if (!v.is_constant || v.constant->dtype() != v.type.dtype || v.constant->shape() != v.type.shape) {
      return absl::InternalError(absl::StrCat("value '", v.name, "': its data do not fit its type"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckGroups(const Graph& g, const std::vector<Group>& groups) {
  std::vector<int> group_of(g.nodes.size(), -1);
  std::vector<bool> ready(g.values.size(), false);
  for (ValueId v : g.inputs) ready[v] = true;
  for (size_t i = 0; i < g.values.size(); ++i) ready[i] = ready[i] || g.values[i].is_constant;
  for (const Group& group : groups) {
    if (group.nodes.empty() || group.anchor < 0 || group.anchor >= static_cast<int>(group.nodes.size())) {
      return absl::InternalError("an empty group, or one whose anchor is none of its nodes");
    }
    for (int n : group.nodes) {
      if (n < 0 || n >= static_cast<int>(g.nodes.size()) || group_of[n]++ != -1) {
        return absl::InternalError("groups do not cover each node once");
      }
      for (ValueId v : g.nodes[n].inputs) {
        if (v != kNoValue && !ready[v])
          return absl::InternalError(absl::StrCat(Where(g.nodes[n]), ": its group runs too early"));
      }
      ready[g.nodes[n].output] = true;
    }
  }
  if (std::find(group_of.begin(), group_of.end(), -1) != group_of.end())
    return absl::InternalError("a node is in no group");
  return absl::OkStatus();
}

absl::Status CheckAlternatives(const Graph& g) {
  std::vector<bool> replaced(g.groups.size(), false);
  for (const Alternative& a : g.alternatives) {
    for (size_t i = 0; i < a.replaces.size(); ++i) {
      const int group = a.replaces[i];
      if (group < 0 || group >= static_cast<int>(g.groups.size()) || replaced[group] ||
          (i > 0 && a.replaces[i - 1] >= group)) {
        return absl::InternalError("an alternative replaces groups that are not there, out of order or replaced twice");
      }
      replaced[group] = true;
    }
    if (a.replaces.empty()) return absl::InternalError("an alternative to nothing");
    TEMPER_RETURN_IF_ERROR(CheckGroups(g, WithAlternatives(g.groups, std::span(&a, 1))));
  }
  return absl::OkStatus();
}

absl::Status CheckExtents(const Graph& g) {
  const int outputs = static_cast<int>(g.outputs.size()), results = outputs - g.hidden;
  if (g.hidden < 0 || results < 0) return absl::InternalError("more outputs are hidden than there are");
  std::pair<int, int64_t> before(-1, 0);
  for (const Extent& e : g.extents) {
    if (std::pair(e.output, e.axis) <= before || e.output < 0 || e.output >= results || e.told_by < results ||
        e.told_by >= outputs)
      return absl::InternalError("an extent is of no output, or of one's axis twice, or told by none");
    before = {e.output, e.axis};
    const Shape& shape = g.values[g.outputs[static_cast<size_t>(e.output)]].type.shape;
    const TensorType& told = g.values[g.outputs[static_cast<size_t>(e.told_by)]].type;
    if (e.axis < 0 || e.axis >= std::ssize(shape) || told.dtype != DType::kI64 || !told.shape.empty())
      return absl::InternalError("an extent is along no axis, or no number");
  }
  return absl::OkStatus();
}

absl::Status CheckInputExtents(const Graph& g) {
  const int inputs = static_cast<int>(g.inputs.size()), given = inputs - g.hidden_inputs;
  if (g.hidden_inputs < 0 || given < 0) return absl::InternalError("more inputs are hidden than there are");
  std::pair<int, int64_t> before(-1, 0);
  for (const InputExtent& e : g.input_extents) {
    if (std::pair(e.input, e.axis) <= before || e.input < 0 || e.input >= given || e.told_by < given ||
        e.told_by >= inputs)
      return absl::InternalError("an extent is of no input, or of one's axis twice, or told by none");
    before = {e.input, e.axis};
    const Shape& shape = g.values[g.inputs[static_cast<size_t>(e.input)]].type.shape;
    const TensorType& told = g.values[g.inputs[static_cast<size_t>(e.told_by)]].type;
    if (e.axis < 0 || e.axis >= std::ssize(shape) || told.dtype != DType::kI64 || !told.shape.empty() || e.least < 0 ||
        e.least > shape[static_cast<size_t>(e.axis)])
      return absl::InternalError("an input's extent is along no axis, or no number");
  }
  return absl::OkStatus();
}

// One past the last node that reads each value; graph outputs are kept for ever.
std::vector<int> LastUses(const Graph& g) {
  std::vector<int> last(g.values.size(), -1);
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    for (ValueId v : g.nodes[i].inputs) {
      if (v != kNoValue) last[v] = static_cast<int>(i);
    }
  }
  for (ValueId v : g.outputs) last[v] = static_cast<int>(g.nodes.size());
  return last;
}

absl::StatusOr<std::vector<NDArray>> InitialArrays(const Graph& g, std::span<const NDArray> inputs) {
  if (inputs.size() != g.inputs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the graph takes ", g.inputs.size(), " inputs, got ", inputs.size()));
  }
  std::vector<NDArray> arrays(g.values.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& v = g.values[g.inputs[i]];
    if (inputs[i].dtype() != v.type.dtype || inputs[i].shape() != v.type.shape) {
      return absl::InvalidArgumentError(absl::StrCat("input '", v.name, "' is ", std::string(Name(inputs[i].dtype())),
                                                     " ", ShapeText(inputs[i].shape()), ", expected ", Text(v.type)));
    }
    arrays[g.inputs[i]] = inputs[i];
  }
  for (size_t i = 0; i < g.values.size(); ++i) {
    const Value& v = g.values[i];
    if (!v.is_constant) continue;
    if (!v.constant.has_value())
      return absl::FailedPreconditionError(absl::StrCat("constant '", v.name, "' has no data"));
    arrays[i] = *v.constant;
  }
  return arrays;
}

std::string ConstantText(const Value& v) {
  if (!v.constant.has_value() || v.constant->size() > 4) return "";
  std::string text = " = {";
  for (int64_t i = 0; i < v.constant->size(); ++i) absl::StrAppend(&text, i > 0 ? ", " : "", v.constant->At(i));
  return text + "}";
}

std::string NodeText(const Graph& g, const Node& node) {
  std::string text = absl::StrCat("%", node.output, " = ", node.op, "(",
                                  absl::StrJoin(node.inputs, ", ", [](std::string* out, ValueId v) {
                                    if (v == kNoValue)
                                      out->push_back('_');
                                    else
                                      absl::StrAppend(out, "%", v);
                                  }));
  if (!node.attrs.values().empty()) absl::StrAppend(&text, "; ", Text(node.attrs));
  absl::StrAppend(&text, ") : ", Text(g.values[node.output].type));
  if (!node.name.empty()) absl::StrAppend(&text, "  # ", node.name);
  return text + "\n";
}

}  // namespace

ValueId Graph::AddValue(Value v) {
  if (v.name.empty()) v.name = MadeUpName(values.size());
  values.push_back(std::move(v));
  return static_cast<ValueId>(values.size()) - 1;
}

absl::StatusOr<ValueId> Graph::AddNode(std::string op, Attrs attrs, std::vector<ValueId> inputs_of_node,
                                       std::string node_name) {
  Node node{std::move(node_name), std::move(op), std::move(attrs), std::move(inputs_of_node), kNoValue};
  for (ValueId v : node.inputs) {
    if (v < kNoValue || v >= static_cast<ValueId>(values.size()))
      return absl::InternalError(absl::StrCat(Where(node), ": no such value"));
  }
  TEMPER_ASSIGN_OR_RETURN(TensorType type, InferNode(*this, node));
  type.perm.clear();
  if (const absl::Status sound = CheckTensorShape(type.shape); !sound.ok()) return At(Where(node), sound);
  node.output = AddValue({"", std::move(type), std::nullopt, false});
  nodes.push_back(std::move(node));
  return nodes.back().output;
}

std::vector<int> Graph::ConsumersOf(ValueId v) const {
  std::vector<int> consumers;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (std::find(nodes[i].inputs.begin(), nodes[i].inputs.end(), v) != nodes[i].inputs.end())
      consumers.push_back(static_cast<int>(i));
  }
  return consumers;
}

void Graph::Compact() {
  std::vector<bool> live(values.size(), false);
  for (ValueId v : inputs) live[v] = true;
  for (ValueId v : outputs) live[v] = true;
  std::vector<int> new_node(nodes.size(), -1);
  for (size_t i = nodes.size(); i-- > 0;) {
    if (!live[nodes[i].output]) continue;
    new_node[i] = 0;
    for (ValueId v : nodes[i].inputs) {
      if (v != kNoValue) live[v] = true;
    }
  }
  std::vector<ValueId> new_id(values.size(), kNoValue);
  std::vector<Value> kept;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!live[i]) continue;
    new_id[i] = static_cast<ValueId>(kept.size());
    if (values[i].name.empty() || values[i].name[0] == kMadeUp) values[i].name = MadeUpName(kept.size());
    kept.push_back(std::move(values[i]));
  }
  values = std::move(kept);
  auto renumber = [&new_id](ValueId& v) { v = v == kNoValue ? kNoValue : new_id[v]; };
  std::vector<Node> kept_nodes;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (new_node[i] < 0) continue;
    new_node[i] = static_cast<int>(kept_nodes.size());
    for (ValueId& v : nodes[i].inputs) renumber(v);
    renumber(nodes[i].output);
    kept_nodes.push_back(std::move(nodes[i]));
  }
  // A group that lost a node is no group any more: fusion starts over.
  if (kept_nodes.size() != new_node.size()) groups.clear();
  nodes = std::move(kept_nodes);
  for (ValueId& v : inputs) renumber(v);
  for (ValueId& v : outputs) renumber(v);
  for (Group& group : groups) {
    for (int& n : group.nodes) n = new_node[n];
  }
}

absl::Status Verify(const Graph& g) {
  TEMPER_RETURN_IF_ERROR(CheckValues(g));
  const ValueId count = static_cast<ValueId>(g.values.size());
  std::vector<bool> defined(g.values.size(), false);
  auto is_defined = [&](ValueId v) { return v >= 0 && v < count && defined[v]; };
  for (size_t i = 0; i < g.values.size(); ++i) defined[i] = g.values[i].is_constant;
  for (ValueId v : g.inputs) {
    if (v < 0 || v >= count) return absl::InternalError("a graph input is no value");
    if (defined[v])
      return absl::InternalError(absl::StrCat("graph input '", g.values[v].name, "' is a constant or given twice"));
    if (!g.values[v].type.perm.empty()) return absl::InternalError("a graph input is not in its logical order");
    defined[v] = true;
  }
  for (const Node& node : g.nodes) {
    for (ValueId v : node.inputs) {
      if (v != kNoValue && !is_defined(v))
        return absl::InternalError(absl::StrCat(Where(node), ": reads a value that is not computed before it"));
    }
    if (node.output < 0 || node.output >= count || defined[node.output]) {
      return absl::InternalError(absl::StrCat(Where(node), ": its output is no value of its own"));
    }
    defined[node.output] = true;
    TEMPER_ASSIGN_OR_RETURN(TensorType type, InferNode(g, node));
    const TensorType& stored = g.values[node.output].type;
    if (type.dtype != stored.dtype || type.shape != stored.shape) {
      return absl::InternalError(absl::StrCat(Where(node), ": stored type ", Text(stored), ", inferred ", Text(type)));
    }
  }
  for (ValueId v : g.outputs) {
    if (!is_defined(v)) return absl::InternalError("a graph output is never computed");
    if (!g.values[v].type.perm.empty()) return absl::InternalError("a graph output is not in its logical order");
  }
  TEMPER_RETURN_IF_ERROR(CheckExtents(g));
  TEMPER_RETURN_IF_ERROR(CheckInputExtents(g));
  if (g.groups.empty()) return g.alternatives.empty() ? absl::OkStatus() : absl::InternalError("alternatives alone");
  TEMPER_RETURN_IF_ERROR(CheckGroups(g, g.groups));
  return CheckAlternatives(g);
}

std::string Text(const Graph& g) {
  std::string text = absl::StrCat("graph ", g.name, "\n");
  for (ValueId v : g.inputs)
    absl::StrAppend(&text, "%", v, " = input : ", Text(g.values[v].type), "  # ", g.values[v].name, "\n");
  for (const InputExtent& e : g.input_extents)
    absl::StrAppend(&text, "input %", g.inputs[static_cast<size_t>(e.input)], " has ", e.least, " at least and %",
                    g.inputs[static_cast<size_t>(e.told_by)], " along axis ", e.axis, "\n");
  for (size_t i = 0; i < g.values.size(); ++i) {
    const Value& v = g.values[i];
    if (v.is_constant)
      absl::StrAppend(&text, "%", i, " = constant : ", Text(v.type), ConstantText(v), "  # ", v.name, "\n");
  }
  if (g.groups.empty()) {
    for (const Node& node : g.nodes) text += NodeText(g, node);
  }
  for (size_t i = 0; i < g.groups.size(); ++i) {
    const Group& group = g.groups[i];
    absl::StrAppend(&text, "group ", i, ", anchor ", g.nodes[group.nodes[group.anchor]].op, ":\n");
    for (int n : group.nodes) absl::StrAppend(&text, "  ", NodeText(g, g.nodes[n]));
  }
  for (const Alternative& a : g.alternatives) {
    absl::StrAppend(&text, "instead of groups ", absl::StrJoin(a.replaces, ", "), ":");
    for (const Group& group : a.groups) {
      absl::StrAppend(&text, " [",
                      absl::StrJoin(group.nodes, " ", [&](std::string* out, int n) { *out += g.nodes[n].op; }), "]");
    }
    text += "\n";
  }
  for (ValueId v : g.outputs) absl::StrAppend(&text, "output %", v, "  # ", g.values[v].name, "\n");
  for (const Extent& e : g.extents)
    absl::StrAppend(&text, "output %", g.outputs[static_cast<size_t>(e.output)], " has %",
                    g.outputs[static_cast<size_t>(e.told_by)], " along axis ", e.axis, "\n");
  return text;
}

absl::StatusOr<std::vector<NDArray>> RunReference(const Graph& g, std::span<const NDArray> inputs) {
  TEMPER_ASSIGN_OR_RETURN(std::vector<NDArray> arrays, InitialArrays(g, inputs));
  const std::vector<int> last = LastUses(g);
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& node = g.nodes[i];
    const OpDef* op = FindOp(node.op);
    if (op == nullptr) return absl::InvalidArgumentError(absl::StrCat(Where(node), ": unknown operator"));
    std::vector<NDArray> args;
    for (ValueId v : node.inputs) args.push_back(v == kNoValue ? NDArray() : arrays[v]);
    absl::StatusOr<NDArray> result = op->reference(node.attrs, args, g.values[node.output].type);
    if (!result.ok()) return At(Where(node), result.status());
    arrays[node.output] = *std::move(result);
    for (ValueId v : node.inputs) {
      if (v != kNoValue && last[v] == static_cast<int>(i)) arrays[v] = NDArray();
    }
  }
  std::vector<NDArray> outputs;
  for (ValueId v : g.outputs) outputs.push_back(arrays[v]);
  return outputs;
}

}  // namespace temper
