#include "compiler/frontend/onnx/context.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/tensor_data.h"

namespace temper::onnx_frontend {
namespace {

// Arrays up to this size are computed while importing; larger work is left to the constant folding pass. What decides
// where elements go must be known here, so indices may be more.
constexpr int64_t kSmall = int64_t{1} << 16, kSmallIndices = int64_t{1} << 22;
// All results that are computed while importing are kept until its end: a loop may ask for many.
constexpr int64_t kMostComputed = int64_t{1} << 31;  // bytes
bool IsSmall(const TensorType& type) {
  const bool indices = type.dtype == DType::kI64 || type.dtype == DType::kBool;  // and what compares them
  return NumElements(type.shape) <= (indices ? kSmallIndices : kSmall);
}

}  // namespace

const onnx::AttributeProto* OnnxNode::Find(std::string_view name) const {
  for (const onnx::AttributeProto& a : proto.attribute()) {
    if (a.name() == name) return &a;
  }
  return nullptr;
}

const onnx::AttributeProto* OnnxNode::FindOf(std::string_view name, onnx::AttributeProto::AttributeType type) const {
  const onnx::AttributeProto* a = Find(name);
  // Models of the first versions do not say of which kind their attributes are.
  const bool fits = a == nullptr || a->type() == type || a->type() == onnx::AttributeProto::UNDEFINED;
  if (!fits && wrong_kind.empty()) wrong_kind = name;
  return a;
}

int64_t OnnxNode::Int(std::string_view name, int64_t otherwise) const {
  const onnx::AttributeProto* a = FindOf(name, onnx::AttributeProto::INT);
  return a != nullptr ? a->i() : otherwise;
}

double OnnxNode::Float(std::string_view name, double otherwise) const {
  const onnx::AttributeProto* a = FindOf(name, onnx::AttributeProto::FLOAT);
  if (a == nullptr) return otherwise;
  // The decimal that was meant: 1e-05f is 1e-05, not 9.999999747378752e-06, in texts and hashes of workloads.
  char digits[40];
  const auto end = std::to_chars(digits, digits + sizeof(digits), a->f()).ptr;
  double value = a->f();
  std::from_chars(digits, end, value);
  return value;
}

std::string OnnxNode::String(std::string_view name, std::string otherwise) const {
  const onnx::AttributeProto* a = FindOf(name, onnx::AttributeProto::STRING);
  return a != nullptr ? a->s() : std::move(otherwise);
}

std::vector<int64_t> OnnxNode::Ints(std::string_view name, std::vector<int64_t> otherwise) const {
  const onnx::AttributeProto* a = FindOf(name, onnx::AttributeProto::INTS);
  return a != nullptr ? std::vector<int64_t>(a->ints().begin(), a->ints().end()) : std::move(otherwise);
}

const NDArray* Context::Known(ValueId v) const {
  return v != kNoValue && g_.values[v].constant.has_value() && !Varies(v) ? &*g_.values[v].constant : nullptr;
}

absl::StatusOr<std::vector<int64_t>> Context::KnownInts(ValueId v, std::string_view what) const {
  const NDArray* data = Known(v);
  if (data == nullptr)
    return absl::UnimplementedError(absl::StrCat(std::string(what), " depends on the model's inputs"));
  std::vector<int64_t> values;
  constexpr double kBound = 9.2e18;  // of what an i64 holds
  for (int64_t i = 0; i < data->size(); ++i) {
    if (data->dtype() == DType::kI64) {
      values.push_back(data->as<int64_t>()[static_cast<size_t>(i)]);
      continue;
    }
    const double value = data->At(i);
    if (!(std::abs(value) < kBound) || value != std::trunc(value))
      return absl::InvalidArgumentError(absl::StrCat(std::string(what), " has ", value, ", which is no integer"));
    values.push_back(static_cast<int64_t>(value));
  }
  return values;
}

absl::StatusOr<int64_t> Context::KnownInt(ValueId v, std::string_view what) const {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<int64_t> known, KnownInts(v, what));
  if (known.size() != 1) return absl::InvalidArgumentError(absl::StrCat(std::string(what), " is one number"));
  return known[0];
}

absl::StatusOr<std::vector<double>> Context::KnownFloats(ValueId v, std::string_view what) const {
  const NDArray* data = Known(v);
  if (data == nullptr)
    return absl::UnimplementedError(absl::StrCat(std::string(what), " depends on the model's inputs"));
  std::vector<double> values;
  for (int64_t i = 0; i < data->size(); ++i) values.push_back(data->At(i));
  return values;
}

ValueId Context::Constant(NDArray data, std::string name) {
  Value v{std::move(name), {data.dtype(), data.shape(), {}}, std::nullopt, true};
  v.constant = std::move(data);
  return g_.AddValue(std::move(v));
}

absl::StatusOr<ValueId> Context::Shared(const onnx::TensorProto& tensor) {
  // Those of a function are gone with its scope, as the nodes are that carry them.
  size_t scope = scopes_.size() - 1;
  while (scope > 0 && !scopes_[scope].closed) --scope;
  const auto found = scopes_[scope].shared.find(&tensor);
  if (found != scopes_[scope].shared.end()) return found->second;
  TEMPER_ASSIGN_OR_RETURN(NDArray data, ArrayOf(tensor, folder_));
  return scopes_[scope].shared[&tensor] = Constant(std::move(data));
}

ValueId Context::Scalar(DType dtype, double value) {
  NDArray data(dtype, {});
  data.Set(0, value);
  return Constant(std::move(data));
}

ValueId Context::IntVector(const std::vector<int64_t>& values) {
  NDArray data(DType::kI64, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), data.as<int64_t>().begin());
  return Constant(std::move(data));
}

absl::StatusOr<ValueId> Context::Call(std::string op, Attrs attrs, std::vector<ValueId> inputs) {
  if (std::find(inputs.begin(), inputs.end(), kNoValue) != inputs.end())
    return absl::InvalidArgumentError("an operand is missing");
  if (Vary(inputs)) return CallVarying(std::move(op), std::move(attrs), std::move(inputs));
  const bool known =
      std::all_of(inputs.begin(), inputs.end(), [&](ValueId v) { return Known(v) != nullptr && IsSmall(TypeOf(v)); });
  TEMPER_ASSIGN_OR_RETURN(ValueId v, g_.AddNode(std::move(op), std::move(attrs), std::move(inputs), node_name_));
  if (NumElements(ShapeOf(v)) == 0) {  // known, whatever its operands are
    g_.nodes.pop_back();
    g_.values[v].constant = NDArray(TypeOf(v).dtype, ShapeOf(v));
    g_.values[v].is_constant = true;
    return v;
  }
  if (!known && KnowExtents(v)) return v;
  if (!known || !IsSmall(TypeOf(v))) return v;
  if (computed_bytes_ > kMostComputed) {
    // The passes compute it, which see what is used and what is there twice; but they must not unroll a loop's results.
    if (scopes_.size() == 1) return v;
    return absl::UnimplementedError(absl::StrCat("loops with more than ", kMostComputed, " bytes of constants"));
  }
  computed_bytes_ += BytesOf(TypeOf(v).dtype, NumElements(ShapeOf(v)));
  const Node node = std::move(g_.nodes.back());
  g_.nodes.pop_back();
  std::vector<NDArray> args;
  for (ValueId in : node.inputs) args.push_back(*Known(in));
  TEMPER_ASSIGN_OR_RETURN(g_.values[v].constant, FindOp(node.op)->reference(node.attrs, args, TypeOf(v)));
  g_.values[v].is_constant = true;
  return v;
}

bool Context::KnowExtents(ValueId v) {
  const DType dtype = TypeOf(v).dtype;
  if (g_.nodes.back().op != "slice" || (dtype != DType::kI64 && dtype != DType::kI32) || Rank(v) != 1) return false;
  const absl::StatusOr<Dims> dims = DimsOf(*this, v, "a shape");
  if (!dims.ok() || !dims->varyings.empty()) return false;
  g_.nodes.pop_back();
  NDArray known(dtype, ShapeOf(v));
  for (int64_t i = 0; i < known.size(); ++i) known.Set(i, static_cast<double>(dims->most[static_cast<size_t>(i)]));
  g_.values[v].constant = std::move(known);
  g_.values[v].is_constant = true;
  return true;
}

bool Context::Vary(const std::vector<ValueId>& values) const {
  return std::ranges::any_of(values, [&](ValueId v) { return Varies(v); });
}

absl::StatusOr<ValueId> Context::CallVarying(std::string op, Attrs attrs, std::vector<ValueId> inputs) {
  if (op == "reduce_mean" && CombinesVarying(*this, attrs, inputs[0])) return MeanOf(*this, attrs, inputs[0]);
  TEMPER_ASSIGN_OR_RETURN(const Varyings result, PrepareVarying(*this, op, attrs, inputs));
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, g_.AddNode(std::move(op), std::move(attrs), std::move(inputs), node_name_));
  const Node node = g_.nodes.back();
  if (NumElements(ShapeOf(v)) == 0) {  // columns of nothing, beside others that are as many
    g_.nodes.pop_back();
    g_.values[v].constant = NDArray(TypeOf(v).dtype, ShapeOf(v));
    g_.values[v].is_constant = true;
  }
  if (Vary(node.inputs)) {
    TEMPER_ASSIGN_OR_RETURN(Varyings others, VaryingsOfResult(*this, node));
    SetVaryings(v, std::move(others));
  }
  AddVaryings(v, result);
  return v;
}

absl::StatusOr<ValueId> Context::CallWhole(std::string op, Attrs attrs, std::vector<ValueId> inputs) {
  return g_.AddNode(std::move(op), std::move(attrs), std::move(inputs), node_name_);
}

absl::StatusOr<ValueId> Context::Defer(std::string op, Attrs attrs, std::vector<ValueId> inputs) {
  if (Vary(inputs)) return CallVarying(std::move(op), std::move(attrs), std::move(inputs));
  return g_.AddNode(std::move(op), std::move(attrs), std::move(inputs), node_name_);
}

absl::StatusOr<ValueId> Context::Reshape(ValueId v, Shape shape) {
  if (ShapeOf(v) == shape) return v;
  Attrs attrs;
  attrs.Set("shape", std::move(shape));
  return Call("reshape", std::move(attrs), {v});
}

absl::StatusOr<ValueId> Context::Transpose(ValueId v, std::vector<int64_t> axes) {
  Attrs attrs;
  attrs.Set("perm", std::move(axes));
  return Call("transpose", std::move(attrs), {v});
}

absl::StatusOr<ValueId> Context::Slice(ValueId v, int64_t axis, int64_t start, int64_t end) {
  using Ints = std::vector<int64_t>;
  Attrs attrs;
  attrs.Set("starts", Ints{start});
  attrs.Set("ends", Ints{end});
  attrs.Set("axes", Ints{axis});
  attrs.Set("steps", Ints{1});
  return Call("slice", std::move(attrs), {v});
}

absl::StatusOr<ValueId> Context::Element(ValueId v, int64_t axis, int64_t i) {
  Shape shape = ShapeOf(v);
  shape.erase(shape.begin() + axis);
  TEMPER_ASSIGN_OR_RETURN(v, Slice(v, axis, i, i + 1));
  return Reshape(v, std::move(shape));
}

absl::StatusOr<ValueId> Context::NewAxis(ValueId v, int64_t axis) {
  Shape shape = ShapeOf(v);
  shape.insert(shape.begin() + axis, 1);
  return Reshape(v, std::move(shape));
}

absl::StatusOr<ValueId> Context::Gather(ValueId v, ValueId at, int64_t axis) {
  // Positions that a converter knows are those of the most elements.
  if (Known(at) != nullptr) TEMPER_RETURN_IF_ERROR(MustBeKnownAlong(*this, v, {axis}, "a choice of elements"));
  Attrs attrs;
  attrs.Set("axis", axis);
  return Call("gather", std::move(attrs), {v, at});
}

absl::StatusOr<ValueId> Context::Pad(ValueId v, std::vector<int64_t> pads, double value, std::string mode) {
  Attrs attrs;
  attrs.Set("pads", std::move(pads));
  attrs.Set("mode", std::move(mode));
  attrs.Set("value", value);
  return Call("pad", std::move(attrs), {v});
}

absl::StatusOr<ValueId> Context::Concat(std::vector<ValueId> parts, int64_t axis) {
  // Parts without elements along the axis, such as an empty cache, add nothing, if others do.
  const auto adds = [&](ValueId v) { return Rank(v) <= axis || ShapeOf(v)[static_cast<size_t>(axis)] > 0; };
  if (std::ranges::any_of(parts, adds)) std::erase_if(parts, [&](ValueId v) { return !adds(v); });
  if (parts.size() == 1) return parts[0];
  constexpr size_t kMostParts = 1024;  // of the operator; more are joined group by group
  while (parts.size() > kMostParts) {
    std::vector<ValueId> groups;
    for (size_t first = 0; first < parts.size(); first += kMostParts) {
      const auto begin = parts.begin() + static_cast<std::ptrdiff_t>(first);
      const size_t count = std::min(kMostParts, parts.size() - first);
      TEMPER_ASSIGN_OR_RETURN(const ValueId group, Concat({begin, begin + static_cast<std::ptrdiff_t>(count)}, axis));
      groups.push_back(group);
    }
    parts = std::move(groups);
  }
  Attrs attrs;
  attrs.Set("axis", axis);
  return Call("concat", std::move(attrs), std::move(parts));
}

absl::StatusOr<ValueId> Context::Expand(ValueId v, Shape shape) {
  Attrs attrs;
  attrs.Set("shape", std::move(shape));
  return Call("expand", std::move(attrs), {v});
}

absl::StatusOr<ValueId> Context::Cast(ValueId v, DType to) {
  if (TypeOf(v).dtype == to) return v;
  Attrs attrs;
  attrs.Set("to", std::string(Name(to)));
  return Call("cast", std::move(attrs), {v});
}

absl::StatusOr<ValueId> Context::Reduce(std::string op, ValueId v, std::vector<int64_t> axes, bool keeps_axes) {
  Attrs attrs;
  attrs.Set("axes", std::move(axes));
  attrs.Set("keepdims", int64_t{keeps_axes});
  return Call(std::move(op), std::move(attrs), {v});
}

const Varyings& Context::VaryingsOf(ValueId v) const {
  static const Varyings kNone;
  const auto found = varyings_.find(v);
  return found == varyings_.end() ? kNone : found->second;
}

const Varying* Context::VaryingAlong(ValueId v, int64_t axis) const {
  const Varyings& all = VaryingsOf(v);
  const auto found = std::ranges::find(all, axis, &Varying::axis);
  return found == all.end() ? nullptr : &*found;
}

void Context::SetVaryings(ValueId v, Varyings varyings) {
  if (varyings.empty()) {
    varyings_.erase(v);
    return;
  }
  std::ranges::sort(varyings, {}, &Varying::axis);
  for (const Varying& varying : varyings)
    most_.try_emplace(varying.extent, ShapeOf(v)[static_cast<size_t>(varying.axis)]);
  varyings_[v] = std::move(varyings);
}

void Context::AddVaryings(ValueId v, const Varyings& more) {
  Varyings all = VaryingsOf(v);
  all.insert(all.end(), more.begin(), more.end());
  SetVaryings(v, std::move(all));
}

std::optional<Node> Context::MakerOf(ValueId v) const {
  const auto node = std::find_if(g_.nodes.rbegin(), g_.nodes.rend(), [&](const Node& n) { return n.output == v; });
  return node == g_.nodes.rend() ? std::nullopt : std::optional<Node>(*node);
}

std::optional<std::pair<ValueId, int64_t>> Context::MultipleOf(ValueId extent) const {
  const auto found = multiples_.find(extent);
  return found == multiples_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Context::Reshaped> Context::ReshapedFrom(ValueId v) const {
  const auto found = reshaped_.find(v);
  return found == reshaped_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Context::Stops> Context::StopsIn(ValueId extent) const {
  const auto found = stops_.find(extent);
  return found == stops_.end() ? std::nullopt : std::optional(found->second);
}

Context::Sum Context::SumOf(ValueId extent) const {
  const std::optional<Stops> stops = StopsIn(extent);
  const bool adds = stops && stops->stride == 1;
  const ValueId base = adds ? stops->of : extent;
  const int64_t number = adds ? stops->more + 1 : 0;
  const auto sum = sums_.find(base);
  if (sum == sums_.end()) return {{base}, {}, number};
  return {sum->second.first, sum->second.second, number};
}

bool Context::IsPlain(ValueId extent) const {
  const Sum sum = SumOf(extent);
  const auto hidden = g_.inputs.end() - g_.hidden_inputs;
  return sum.less.empty() && std::ranges::all_of(sum.terms, [&](ValueId v) {
           return std::find(hidden, g_.inputs.end(), v) != g_.inputs.end();
         });
}

void Context::MustAgree(ValueId a, ValueId b) {
  agreements_.pairs.insert(std::minmax(a, b));
  if (IsPlain(a) != IsPlain(b)) agreements_.plain.try_emplace(IsPlain(a) ? b : a, IsPlain(a) ? a : b);
}

ValueId Context::PlainOf(ValueId extent) const {
  const auto found = agreements_.plain.find(extent);
  return found == agreements_.plain.end() ? extent : found->second;
}

int64_t Context::JoinedFrom(ValueId extent) const {
  const auto found = joined_.find(extent);
  return found == joined_.end() ? 0 : found->second;
}

int64_t Context::MostOf(ValueId extent) const {
  const auto found = most_.find(extent);
  return found == most_.end() ? 0 : found->second;
}

int64_t Context::LeastOf(ValueId extent) const {
  const auto found = least_.find(extent);
  return found == least_.end() ? 0 : found->second;
}

ValueId Context::Made(const std::string& what) const {
  const auto found = made_.find(what);
  return found == made_.end() ? kNoValue : found->second;
}

const Bound* Context::Find(const std::string& name) const {
  if (name.empty()) return nullptr;
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const auto it = scope->names.find(name); it != scope->names.end()) return &it->second;
    if (scope->closed) break;
  }
  return nullptr;
}

absl::StatusOr<std::vector<ValueId>> Context::SequenceOf(const OnnxNode& node, int i) const {
  const Bound* bound = i < node.proto.input_size() ? Find(node.proto.input(i)) : nullptr;
  if (bound == nullptr || !bound->sequence.has_value())
    return absl::InvalidArgumentError(absl::StrCat("operand ", i, " is no sequence"));
  return *bound->sequence;
}

absl::Status Context::Set(const OnnxNode& node, ValueId v, int output) {
  if (output >= node.proto.output_size() || node.proto.output(output).empty()) return absl::OkStatus();
  const std::string& name = node.proto.output(output);
  // Values that this node made take its outputs' names; others keep the one they have. So do those of bodies, which
  // may be there many times.
  if (g_.values[v].name.front() == '#' && scopes_.size() == 1) g_.values[v].name = name;
  Bind(name, v);
  return absl::OkStatus();
}

void Context::SetSequence(const OnnxNode& node, std::vector<ValueId> sequence, int output) {
  if (output < node.proto.output_size() && !node.proto.output(output).empty())
    Bind(node.proto.output(output), Bound{kNoValue, std::move(sequence)});
}

ValueId InBytes(Context& c, ValueId v) {
  const DTypeInfo& type = Info(c.TypeOf(v).dtype);
  const NDArray* known = c.Known(v);
  if (known == nullptr || type.bits >= 8 || type.kind == TypeKind::kFloat) return v;
  return c.Constant(known->ConvertedTo(type.kind == TypeKind::kSigned ? DType::kI8 : DType::kU8));
}

absl::StatusOr<ValueId> OfMatrices(Context& c, ValueId a, ValueId b,
                                   const std::function<absl::StatusOr<ValueId>(ValueId a, ValueId b)>& multiply) {
  const bool row = c.Rank(a) == 1, column = c.Rank(b) == 1;
  if (row) {
    TEMPER_ASSIGN_OR_RETURN(a, c.NewAxis(a, 0));
  }
  if (column) {
    TEMPER_ASSIGN_OR_RETURN(b, c.NewAxis(b, 1));
  }
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, multiply(a, b));
  Shape shape = c.ShapeOf(v);
  if (column) shape.erase(shape.end() - 1);
  if (row) shape.erase(shape.end() - (column ? 1 : 2));
  return c.Reshape(v, std::move(shape));
}

absl::StatusOr<int64_t> Axis(int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank)
    return absl::InvalidArgumentError(absl::StrCat("axis ", axis, " is outside rank ", rank));
  return axis < 0 ? axis + rank : axis;
}

std::vector<int64_t> AxesFrom(int64_t axis, int64_t rank) {
  std::vector<int64_t> axes(static_cast<size_t>(std::max<int64_t>(rank - axis, 0)));
  std::iota(axes.begin(), axes.end(), axis);
  return axes;
}

absl::StatusOr<std::optional<std::vector<int64_t>>> AxesOf(Context& c, const OnnxNode& n, size_t input, int64_t rank) {
  std::vector<int64_t> axes = n.Ints("axes");
  const bool given = n.Has("axes") || n.Input(input) != kNoValue;
  if (n.Input(input) != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(axes, c.KnownInts(n.Input(input), "axes"));
  }
  for (int64_t& axis : axes) {
    TEMPER_ASSIGN_OR_RETURN(axis, Axis(axis, rank));
  }
  std::sort(axes.begin(), axes.end());
  return given ? std::optional<std::vector<int64_t>>(std::move(axes)) : std::nullopt;
}

}  // namespace temper::onnx_frontend
