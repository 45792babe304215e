#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/nodes.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace temper::onnx_frontend {
namespace {

using Attributes = google::protobuf::RepeatedPtrField<onnx::AttributeProto>;

constexpr size_t kMostScopes = 64;      // bodies and functions within each other
constexpr size_t kMostNodes = 500000;   // of a graph whose loops are unrolled
constexpr size_t kMostSteps = 2000000;  // nodes and bodies that are added, of which some leave no node in the graph
constexpr int kFirstOpset = 7, kLastOpset = 28;

const onnx::FunctionProto* FunctionOf(const onnx::NodeProto& node, const Functions& functions) {
  const auto it = functions.find({node.domain(), node.op_type()});
  return it == functions.end() ? nullptr : it->second;
}

class Missing {
 public:
  explicit Missing(const Functions& functions) : functions_(functions) {}

  // Functions may call each other in a long chain: they wait in a row.
  void LookAtAll(const Nodes& nodes) {
    Look(nodes);
    while (!called_.empty()) {
      const onnx::FunctionProto* function = called_.back();
      called_.pop_back();
      Look(function->node());
    }
  }

  absl::Status status() const {
    constexpr size_t kMostNames = 8;
    if (by_operator_.empty()) return absl::OkStatus();
    std::vector<std::string> parts;
    for (auto [op, nodes] : by_operator_) {
      const size_t total = nodes.size();
      nodes.resize(std::min(total, kMostNames));
      parts.push_back(absl::StrCat(op, " (", absl::StrJoin(nodes, ", "),
                                   total > kMostNames ? absl::StrCat(" and ", total - kMostNames, " more") : "", ")"));
    }
    return absl::UnimplementedError(absl::StrCat("unsupported operators: ", absl::StrJoin(parts, "; ")));
  }

 private:
  void Look(const Nodes& nodes) {
    for (const onnx::NodeProto& node : nodes) {
      for (const onnx::AttributeProto& a : node.attribute()) {
        if (a.has_g()) Look(a.g().node());
      }
      if (const onnx::FunctionProto* function = FunctionOf(node, functions_)) {
        if (seen_.insert(function).second) called_.push_back(function);
      } else if (FindConverter(node) == nullptr) {
        const std::string op =
            IsStandard(node.domain()) ? node.op_type() : absl::StrCat(node.domain(), ".", node.op_type());
        by_operator_[op].push_back(NameOf(node));
      }
    }
  }

  const Functions& functions_;
  std::set<const onnx::FunctionProto*> seen_;
  std::vector<const onnx::FunctionProto*> called_;  // and not looked at yet
  std::map<std::string, std::vector<std::string>> by_operator_;
};

// Either the file is broken, or an operator's second output is asked for that Temper does not compute.
absl::Status NotComputed(const std::string& name, const Nodes& nodes) {
  for (const onnx::NodeProto& node : nodes) {
    for (int i = 1; i < node.output_size(); ++i) {
      if (node.output(i) == name)
        return absl::UnimplementedError(
            absl::StrCat("output ", i, " of ", node.op_type(), " '", NameOf(node), "' is not supported"));
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("value '", name, "' is not computed before it is read"));
}

// Values of a function's attributes where a call leaves them out. Not every version of the ONNX library knows the
// field.
template <typename Function>
absl::StatusOr<Attributes> DefaultsOf(const Function& function) {
  if constexpr (requires { function.attribute_proto(); }) {
    return function.attribute_proto();
  } else {
    constexpr int kAttributeProto = 11;
    Attributes defaults;
    const google::protobuf::UnknownFieldSet& fields = function.unknown_fields();
    for (int i = 0; i < fields.field_count(); ++i) {
      const google::protobuf::UnknownField& field = fields.field(i);
      if (field.number() != kAttributeProto || field.type() != google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED)
        continue;
      if (!defaults.Add()->ParseFromString(field.length_delimited()))
        return absl::InvalidArgumentError("its function is broken");
    }
    return defaults;
  }
}

// Attributes of a function's nodes that refer to one of its own take the value that the call gives; those that the call
// leaves out are left out.
void Substitute(onnx::NodeProto& node, const Attributes& given) {
  for (int i = node.attribute_size(); i-- > 0;) {
    onnx::AttributeProto& a = *node.mutable_attribute(i);
    if (a.has_g()) {
      for (onnx::NodeProto& inner : *a.mutable_g()->mutable_node()) Substitute(inner, given);
    }
    if (a.ref_attr_name().empty()) continue;
    const auto own =
        std::ranges::find(given, a.ref_attr_name(), [](const onnx::AttributeProto& g) { return g.name(); });
    if (own == given.end()) {
      node.mutable_attribute()->DeleteSubrange(i, 1);
      continue;
    }
    const std::string name = a.name();
    a = *own;
    a.set_name(name);
  }
}

absl::StatusOr<Bound> BoundOf(Context& c, const std::string& name, const Nodes& nodes) {
  if (name.empty()) return Bound{};
  const Bound* bound = c.Find(name);
  if (bound == nullptr) return NotComputed(name, nodes);
  return *bound;
}

absl::StatusOr<int> OpsetOf(const onnx::FunctionProto& function, int otherwise) {
  for (const onnx::OperatorSetIdProto& opset : function.opset_import()) {
    if (IsStandard(opset.domain())) return SupportedOpset(opset.version());
  }
  return otherwise;
}

absl::Status AddCall(Context& c, const onnx::NodeProto& call, const onnx::FunctionProto& function, const Nodes& around,
                     int opset) {
  if (call.input_size() > function.input_size() || call.output_size() > function.output_size())
    return absl::InvalidArgumentError("it has more operands or results than its function");
  std::vector<Bound> inputs(static_cast<size_t>(function.input_size()));
  for (int i = 0; i < call.input_size(); ++i) {
    TEMPER_ASSIGN_OR_RETURN(inputs[static_cast<size_t>(i)], BoundOf(c, call.input(i), around));
  }
  // The first of a name counts: what the call gives.
  Attributes given = call.attribute();
  TEMPER_ASSIGN_OR_RETURN(const Attributes defaults, DefaultsOf(function));
  given.MergeFrom(defaults);
  Nodes nodes = function.node();
  for (onnx::NodeProto& node : nodes) Substitute(node, given);
  TEMPER_ASSIGN_OR_RETURN(const int own_opset, OpsetOf(function, opset));
  std::vector<Bound> outputs;
  {
    Context::Scope scope(c, /*closed=*/true);
    for (int i = 0; i < function.input_size(); ++i) c.Bind(function.input(i), inputs[static_cast<size_t>(i)]);
    TEMPER_RETURN_IF_ERROR(AddNodes(c, nodes, own_opset));
    for (int i = 0; i < call.output_size(); ++i) {
      if (call.output(i).empty()) continue;
      TEMPER_ASSIGN_OR_RETURN(Bound bound, BoundOf(c, function.output(i), nodes));
      outputs.push_back(std::move(bound));
    }
  }
  size_t next = 0;
  for (const std::string& name : call.output()) {
    if (!name.empty()) c.Bind(name, std::move(outputs[next++]));
  }
  return absl::OkStatus();
}

// An error where an operand varies along another axis than its first.
absl::Status MustBeKnownBehindFirst(Context& c, const OnnxNode& n) {
  for (const ValueId v : n.inputs) {
    if (v == kNoValue) continue;
    TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, v, n.proto.op_type()));
    TEMPER_RETURN_IF_ERROR(MustBeKnownAlong(c, v, AxesFrom(1, c.Rank(v)), n.proto.op_type()));
  }
  return absl::OkStatus();
}

absl::Status AddNode(Context& c, const onnx::NodeProto& proto, const Nodes& around, int opset) {
  if (const onnx::FunctionProto* function = FunctionOf(proto, c.functions()))
    return AddCall(c, proto, *function, around, opset);
  if (proto.output_size() == 0) return absl::InvalidArgumentError("it has no results");
  const TableEntry* entry = FindConverter(proto);
  if (entry == nullptr) return absl::UnimplementedError("it is not supported");
  OnnxNode node{proto, opset, {}};
  for (const std::string& name : proto.input()) {
    TEMPER_ASSIGN_OR_RETURN(const Bound bound, BoundOf(c, name, around));
    if (bound.sequence.has_value() && entry->operands > 0)
      return absl::InvalidArgumentError(absl::StrCat("'", name, "' is a sequence, not a tensor"));
    node.inputs.push_back(bound.value);
  }
  for (size_t i = 0; i < entry->operands; ++i) {
    if (node.Input(i) == kNoValue) return absl::InvalidArgumentError(absl::StrCat("operand ", i, " is missing"));
  }
  c.SetNodeName(NameOf(proto));
  if (entry->extents == Extents::kAlongFirstAxis) TEMPER_RETURN_IF_ERROR(MustBeKnownBehindFirst(c, node));
  TEMPER_RETURN_IF_ERROR(entry->convert(c, node));
  if (node.wrong_kind.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("attribute '", node.wrong_kind, "' is of another kind than it should"));
}

}  // namespace

std::string NameOf(const onnx::NodeProto& node) {
  if (!node.name().empty()) return node.name();
  return node.output_size() > 0 ? node.output(0) : "";
}

bool IsStandard(const std::string& domain) { return domain.empty() || domain == "ai.onnx"; }

absl::StatusOr<int> SupportedOpset(int64_t version) {
  if (version >= kFirstOpset && version <= kLastOpset) return static_cast<int>(version);
  return absl::UnimplementedError(
      absl::StrCat("opset ", version, " is not supported, only ", kFirstOpset, " to ", kLastOpset));
}

Functions FunctionsOf(const onnx::ModelProto& model) {
  Functions functions;
  for (const onnx::FunctionProto& f : model.functions()) functions[{f.domain(), f.name()}] = &f;
  return functions;
}

absl::Status CheckOperators(const Nodes& nodes, const Functions& functions) {
  Missing missing(functions);
  missing.LookAtAll(nodes);
  return missing.status();
}

absl::Status AddNodes(Context& c, const Nodes& nodes, int opset) {
  c.CountStep();
  if (c.depth() > kMostScopes) return absl::InvalidArgumentError("its functions call each other without end");
  for (const onnx::NodeProto& node : nodes) {
    absl::Status status = AddNode(c, node, nodes, opset);
    if (status.ok() && (c.graph().nodes.size() > kMostNodes || c.CountStep() > kMostSteps))
      status = absl::UnimplementedError(absl::StrCat("more than ", kMostNodes, " operations are not supported"));
    if (!status.ok())
      return absl::Status(status.code(),
                          absl::StrCat(node.op_type(), " '", NameOf(node), "': ", std::string(status.message())));
  }
  return absl::OkStatus();
}

absl::StatusOr<ValueId> ValueOf(Context& c, const std::string& name, const Nodes& nodes) {
  TEMPER_ASSIGN_OR_RETURN(const Bound bound, BoundOf(c, name, nodes));
  if (bound.value == kNoValue) return absl::UnimplementedError(absl::StrCat("'", name, "' is no tensor"));
  return bound.value;
}

absl::StatusOr<const onnx::GraphProto*> BodyOf(const OnnxNode& n, std::string_view name) {
  const onnx::AttributeProto* a = n.Find(name);
  if (a == nullptr || !a->has_g()) return absl::InvalidArgumentError(absl::StrCat("it has no ", std::string(name)));
  return &a->g();
}

absl::StatusOr<std::vector<Bound>> Inline(Context& c, const onnx::GraphProto& body, const std::vector<Bound>& inputs,
                                          int opset) {
  if (static_cast<size_t>(body.input_size()) != inputs.size())
    return absl::InvalidArgumentError(
        absl::StrCat("its body has ", body.input_size(), " inputs where ", inputs.size(), " are given"));
  Context::Scope scope(c, /*closed=*/false);
  for (const onnx::TensorProto& tensor : body.initializer()) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId v, c.Shared(tensor));
    c.Bind(tensor.name(), v);
  }
  for (int i = 0; i < body.input_size(); ++i) c.Bind(body.input(i).name(), inputs[static_cast<size_t>(i)]);
  TEMPER_RETURN_IF_ERROR(AddNodes(c, body.node(), opset));
  std::vector<Bound> outputs;
  for (const onnx::ValueInfoProto& output : body.output()) {
    TEMPER_ASSIGN_OR_RETURN(Bound bound, BoundOf(c, output.name(), body.node()));
    outputs.push_back(std::move(bound));
  }
  return outputs;
}

}  // namespace temper::onnx_frontend
