// The graph as JSON: what SubmitJob carries and workers read back. Input from the wire is checked like any other.
#include "compiler/graph/graph_json.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/shape_limits.h"
#include "nlohmann/json.hpp"

namespace temper {
namespace {

using Json = nlohmann::json;

constexpr int kFormat = 1;      // rises when the meaning changes
constexpr int64_t kSmall = 64;  // weights up to this many elements keep their data
constexpr size_t kMaxValues = 1 << 18, kMaxNodes = 1 << 16, kMaxAlternatives = 1 << 10;
constexpr size_t kMaxChecked = 1 << 23;  // nodes times alternatives, each of which is checked in the whole graph
// Of the text: how deep lists and objects lie in each other, how many items they have, and how many of these have keys.
constexpr int kMaxDepth = 16;
constexpr int64_t kMaxItems = 4 << 20, kMaxKeys = 1 << 20;

// JSON has no infinities; masks in models do.
Json NumberToJson(double v) {
  if (std::isfinite(v)) return v;
  return std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf";
}

Json DataToJson(const NDArray& a) {
  Json data = Json::array();
  for (int64_t i = 0; i < a.size(); ++i) {
    if (a.dtype() == DType::kI64)
      data.push_back(a.as<int64_t>()[static_cast<size_t>(i)]);
    else if (a.dtype() == DType::kU64)
      data.push_back(a.as<uint64_t>()[static_cast<size_t>(i)]);
    else if (IsFloat(a.dtype()))
      data.push_back(NumberToJson(a.At(i)));
    else
      data.push_back(static_cast<int64_t>(a.At(i)));
  }
  return data;
}

// Other integers, and truth values, decide where elements go.
bool MayBeWeights(DType dtype) { return IsFloat(dtype) || (dtype != DType::kBool && Info(dtype).bits <= 16); }

bool KeepsData(const Value& v) {
  return v.constant.has_value() && (!MayBeWeights(v.type.dtype) || v.constant->size() <= kSmall);
}

absl::Status Bad(std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("graph: ", std::string(what)));
}

// Before anything is built: a text of a few MB can describe what takes GB, or lies deeper than a stack does.
absl::Status CheckShape(std::string_view text) {
  int depth = 0;
  int64_t items = 0, keys = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '"':
        while (++i < text.size() && text[i] != '"') i += text[i] == '\\' ? 1 : 0;
        break;
      case '[':
      case '{':
        if (++depth > kMaxDepth) return Bad("lists lie too deep in each other");
        ++items;
        break;
      case ']':
      case '}':
        --depth;
        break;
      case ',':
        ++items;
        break;
      case ':':
        ++keys;
        break;
    }
  }
  if (items > kMaxItems || keys > kMaxKeys) return Bad("too many items");
  return absl::OkStatus();
}

// Typed access to JSON objects, since a wrong type must be an error and not an abort.
absl::StatusOr<const Json*> Field(const Json& object, const char* name) {
  if (!object.is_object()) return Bad(absl::StrCat("expected an object with '", name, "'"));
  auto it = object.find(name);
  if (it == object.end()) return Bad(absl::StrCat("'", name, "' is missing"));
  return &*it;
}

absl::StatusOr<const Json*> ArrayField(const Json& object, const char* name) {
  TEMPER_ASSIGN_OR_RETURN(const Json* field, Field(object, name));
  if (!field->is_array()) return Bad(absl::StrCat("'", name, "' is no list"));
  return field;
}

absl::StatusOr<std::string> StringField(const Json& object, const char* name) {
  TEMPER_ASSIGN_OR_RETURN(const Json* field, Field(object, name));
  if (!field->is_string()) return Bad(absl::StrCat("'", name, "' is no text"));
  return field->get<std::string>();
}

absl::StatusOr<std::vector<int64_t>> IntsField(const Json& object, const char* name, int64_t low, int64_t high) {
  TEMPER_ASSIGN_OR_RETURN(const Json* field, ArrayField(object, name));
  std::vector<int64_t> values;
  for (const Json& item : *field) {
    if (!item.is_number_integer() || item.get<int64_t>() < low || item.get<int64_t>() > high) {
      return Bad(absl::StrCat("'", name, "' holds something out of range"));
    }
    values.push_back(item.get<int64_t>());
  }
  return values;
}

absl::StatusOr<std::vector<int>> IdsField(const Json& object, const char* name, int64_t low, size_t count) {
  TEMPER_ASSIGN_OR_RETURN(std::vector<int64_t> wide, IntsField(object, name, low, static_cast<int64_t>(count) - 1));
  return std::vector<int>(wide.begin(), wide.end());
}

absl::StatusOr<double> Number(const Json& item) {
  if (item.is_number()) return item.get<double>();
  if (item == "inf") return std::numeric_limits<double>::infinity();
  if (item == "-inf") return -std::numeric_limits<double>::infinity();
  if (item == "nan") return std::numeric_limits<double>::quiet_NaN();
  return Bad("constant data hold something that is no number");
}

// Whether this integer type has that value.
bool Holds(DType dtype, int64_t v) { return dtype == DType::kBool ? v == 0 || v == 1 : WrapInteger(dtype, v) == v; }

absl::StatusOr<NDArray> DataFromJson(const Json& data, const TensorType& type) {
  if (!data.is_array() || static_cast<int64_t>(data.size()) != NumElements(type.shape))
    return Bad("constant data of the wrong length");
  NDArray array(type.dtype, type.shape);
  for (size_t i = 0; i < data.size(); ++i) {
    if (IsFloat(type.dtype)) {
      TEMPER_ASSIGN_OR_RETURN(double v, Number(data[i]));
      array.Set(static_cast<int64_t>(i), v);
      continue;
    }
    if (!data[i].is_number_integer()) return Bad("integer constant data hold something else");
    if (type.dtype == DType::kU64) {
      if (!data[i].is_number_unsigned()) return Bad("constant data hold a number that their type does not");
      array.as<uint64_t>()[i] = data[i].get<uint64_t>();
      continue;
    }
    const int64_t v = data[i].get<int64_t>();
    if (type.dtype == DType::kI64) {
      array.as<int64_t>()[i] = v;
      continue;
    }
    if (!Holds(type.dtype, v)) return Bad("constant data hold a number that their type does not");
    array.Set(static_cast<int64_t>(i), static_cast<double>(v));
  }
  return array;
}

Json ValueToJson(const Value& v) {
  Json json = {{"name", v.name}, {"dtype", std::string(Name(v.type.dtype))}, {"shape", v.type.shape}};
  if (!v.type.perm.empty()) json["perm"] = v.type.perm;
  if (v.is_constant) json["constant"] = true;
  if (KeepsData(v)) json["data"] = DataToJson(*v.constant);
  return json;
}

absl::StatusOr<Value> ValueFromJson(const Json& json) {
  Value v;
  TEMPER_ASSIGN_OR_RETURN(v.name, StringField(json, "name"));
  TEMPER_ASSIGN_OR_RETURN(std::string dtype, StringField(json, "dtype"));
  TEMPER_ASSIGN_OR_RETURN(v.type.dtype, DTypeFromName(dtype));
  TEMPER_ASSIGN_OR_RETURN(v.type.shape, IntsField(json, "shape", 0, kMaxTensorElements));
  if (const absl::Status sound = CheckTensorShape(v.type.shape); !sound.ok()) return Bad(std::string(sound.message()));
  if (json.contains("perm")) {
    TEMPER_ASSIGN_OR_RETURN(v.type.perm, IdsField(json, "perm", 0, v.type.shape.size()));
  }
  const auto constant = json.find("constant");
  v.is_constant = constant != json.end() && constant->is_boolean() && constant->get<bool>();
  if (json.contains("data")) {
    TEMPER_ASSIGN_OR_RETURN(v.constant, DataFromJson(json["data"], v.type));
  }
  return v;
}

Json NodeToJson(const Node& node) {
  Json json = {{"op", node.op}, {"inputs", node.inputs}, {"output", node.output}};
  if (!node.name.empty()) json["name"] = node.name;
  if (!node.attrs.values().empty()) json["attrs"] = Text(node.attrs);
  return json;
}

absl::StatusOr<Node> NodeFromJson(const Json& json, size_t values) {
  Node node;
  TEMPER_ASSIGN_OR_RETURN(node.op, StringField(json, "op"));
  TEMPER_ASSIGN_OR_RETURN(node.inputs, IdsField(json, "inputs", kNoValue, values));
  TEMPER_ASSIGN_OR_RETURN(const Json* output, Field(json, "output"));
  if (!output->is_number_integer()) return Bad("'output' is no number");
  const int64_t id = output->get<int64_t>();
  if (id < 0 || id >= static_cast<int64_t>(values)) return Bad("'output' is no value");
  node.output = static_cast<ValueId>(id);
  if (json.contains("name")) {
    TEMPER_ASSIGN_OR_RETURN(node.name, StringField(json, "name"));
  }
  if (json.contains("attrs")) {
    TEMPER_ASSIGN_OR_RETURN(std::string attrs, StringField(json, "attrs"));
    TEMPER_ASSIGN_OR_RETURN(node.attrs, ParseAttrs(attrs));
  }
  return node;
}

// A whole number from `least` to `most`.
absl::StatusOr<int> NumberField(const Json& json, const char* name, int64_t least, int64_t most) {
  TEMPER_ASSIGN_OR_RETURN(const Json* field, Field(json, name));
  if (!field->is_number_integer()) return Bad(absl::StrCat("'", name, "' is no number"));
  const int64_t number = field->get<int64_t>();
  if (number < least || number > most) return Bad(absl::StrCat("'", name, "' is out of range"));
  return static_cast<int>(number);
}

absl::Status ExtentsFromJson(const Json& json, Graph& g) {
  if (!json.contains("extents")) return absl::OkStatus();
  const int64_t outputs = std::ssize(g.outputs);
  TEMPER_ASSIGN_OR_RETURN(g.hidden, NumberField(json, "hidden", 0, outputs));
  TEMPER_ASSIGN_OR_RETURN(const Json* extents, ArrayField(json, "extents"));
  for (const Json& item : *extents) {
    Extent& e = g.extents.emplace_back();
    TEMPER_ASSIGN_OR_RETURN(e.output, NumberField(item, "output", 0, outputs));
    TEMPER_ASSIGN_OR_RETURN(e.axis, NumberField(item, "axis", 0, std::numeric_limits<int>::max()));
    TEMPER_ASSIGN_OR_RETURN(e.told_by, NumberField(item, "told_by", 0, outputs));
  }
  return absl::OkStatus();
}

absl::StatusOr<Group> GroupFromJson(const Json& json, size_t nodes) {
  Group group;
  TEMPER_ASSIGN_OR_RETURN(group.nodes, IdsField(json, "nodes", 0, nodes));
  TEMPER_ASSIGN_OR_RETURN(const Json* anchor, Field(json, "anchor"));
  if (!anchor->is_number_integer()) return Bad("'anchor' is no number");
  const int64_t position = anchor->get<int64_t>();
  if (position < 0 || position >= static_cast<int64_t>(group.nodes.size()))
    return Bad("'anchor' is none of the group's nodes");
  group.anchor = static_cast<int>(position);
  return group;
}

absl::StatusOr<std::vector<Group>> GroupsFromJson(const Json& json, size_t nodes) {
  std::vector<Group> groups;
  TEMPER_ASSIGN_OR_RETURN(const Json* items, ArrayField(json, "groups"));
  for (const Json& item : *items) {
    TEMPER_ASSIGN_OR_RETURN(groups.emplace_back(), GroupFromJson(item, nodes));
  }
  return groups;
}

Json GroupsToJson(const std::vector<Group>& groups) {
  Json json = Json::array();
  for (const Group& group : groups) json.push_back({{"nodes", group.nodes}, {"anchor", group.anchor}});
  return json;
}

}  // namespace

std::string ToJson(const Graph& g) {
  Json json = {{"format", kFormat}, {"name", g.name}, {"inputs", g.inputs}, {"outputs", g.outputs}};
  if (!g.extents.empty()) {
    json["hidden"] = g.hidden;
    for (const Extent& e : g.extents)
      json["extents"].push_back({{"output", e.output}, {"axis", e.axis}, {"told_by", e.told_by}});
  }
  json["values"] = Json::array();
  for (const Value& v : g.values) json["values"].push_back(ValueToJson(v));
  json["nodes"] = Json::array();
  for (const Node& node : g.nodes) json["nodes"].push_back(NodeToJson(node));
  json["groups"] = GroupsToJson(g.groups);
  json["alternatives"] = Json::array();
  for (const Alternative& a : g.alternatives)
    json["alternatives"].push_back({{"replaces", a.replaces}, {"groups", GroupsToJson(a.groups)}});
  // Names come from model files and need not be UTF-8.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<Graph> GraphFromJson(std::string_view text) {
  TEMPER_RETURN_IF_ERROR(CheckShape(text));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Bad("not JSON");
  TEMPER_ASSIGN_OR_RETURN(const Json* format, Field(json, "format"));
  if (*format != Json(kFormat)) return Bad("of another format version");
  Graph g;
  TEMPER_ASSIGN_OR_RETURN(g.name, StringField(json, "name"));
  TEMPER_ASSIGN_OR_RETURN(const Json* values, ArrayField(json, "values"));
  if (values->size() > kMaxValues) return Bad("too many values");
  for (const Json& item : *values) {
    TEMPER_ASSIGN_OR_RETURN(Value v, ValueFromJson(item));
    g.values.push_back(std::move(v));
  }
  TEMPER_ASSIGN_OR_RETURN(const Json* nodes, ArrayField(json, "nodes"));
  if (nodes->size() > kMaxNodes) return Bad("too many nodes");
  for (const Json& item : *nodes) {
    TEMPER_ASSIGN_OR_RETURN(Node node, NodeFromJson(item, g.values.size()));
    g.nodes.push_back(std::move(node));
  }
  TEMPER_ASSIGN_OR_RETURN(g.inputs, IdsField(json, "inputs", 0, g.values.size()));
  TEMPER_ASSIGN_OR_RETURN(g.outputs, IdsField(json, "outputs", 0, g.values.size()));
  TEMPER_RETURN_IF_ERROR(ExtentsFromJson(json, g));
  TEMPER_ASSIGN_OR_RETURN(g.groups, GroupsFromJson(json, g.nodes.size()));
  TEMPER_ASSIGN_OR_RETURN(const Json* alternatives, ArrayField(json, "alternatives"));
  if (alternatives->size() > kMaxAlternatives || alternatives->size() * g.nodes.size() > kMaxChecked)
    return Bad("too many alternatives");
  for (const Json& item : *alternatives) {
    Alternative a;
    TEMPER_ASSIGN_OR_RETURN(a.replaces, IdsField(item, "replaces", 0, g.groups.size()));
    TEMPER_ASSIGN_OR_RETURN(a.groups, GroupsFromJson(item, g.nodes.size()));
    g.alternatives.push_back(std::move(a));
  }
  if (const absl::Status sound = Verify(g); !sound.ok()) return Bad(std::string(sound.message()));
  return g;
}

}  // namespace temper
