// What converters of ONNX operators work with: the node at hand, and the graph that is being built.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"
#include "onnx/onnx_pb.h"

namespace temper::onnx_frontend {

// A node with its operands looked up. Attributes come with ONNX's defaults passed in by the converter.
struct OnnxNode {
  const onnx::NodeProto& proto;
  int opset = 0;
  std::vector<ValueId> inputs;  // kNoValue for those left out; trailing ones may be missing

  ValueId Input(size_t i) const { return i < inputs.size() ? inputs[i] : kNoValue; }
  const onnx::AttributeProto* Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name) != nullptr; }
  int64_t Int(std::string_view name, int64_t otherwise) const;
  double Float(std::string_view name, double otherwise) const;
  std::string String(std::string_view name, std::string otherwise) const;
  std::vector<int64_t> Ints(std::string_view name, std::vector<int64_t> otherwise = {}) const;

  // The first attribute that was asked for and is of another kind, such as a number where there should be a text.
  mutable std::string wrong_kind;

 private:
  const onnx::AttributeProto* FindOf(std::string_view name, onnx::AttributeProto::AttributeType type) const;
};

// What an ONNX name stands for: a tensor, or a sequence of tensors, as long as it is known to be.
struct Bound {
  ValueId value = kNoValue;
  std::optional<std::vector<ValueId>> sequence;
};

// Of a value, an axis along which only the run knows how many elements there are, and the i64 without axes that tells
// it; see extents.h.
struct Varying {
  int64_t axis = 0;
  ValueId extent = kNoValue;
  int64_t lines = 1;  // that lie behind one another with what is behind the end of each, and have equal parts of extent
  // Where two axes that vary were folded into one: how many of the lines count, the first ones, and what each has.
  ValueId counted = kNoValue, line = kNoValue;
  bool operator==(const Varying&) const = default;
};
using Varyings = std::vector<Varying>;  // ascending, one for an axis

// The functions that a model brings, by domain and name. They outlive the context.
using Functions = std::map<std::pair<std::string, std::string>, const onnx::FunctionProto*>;

class Context {
 public:
  Context(Graph& g, std::string folder, Functions functions = {})
      : g_(g), folder_(std::move(folder)), functions_(std::move(functions)) {}

  Graph& graph() { return g_; }
  const std::string& folder() const { return folder_; }
  const Functions& functions() const { return functions_; }
  const TensorType& TypeOf(ValueId v) const { return g_.values[v].type; }
  const Shape& ShapeOf(ValueId v) const { return g_.values[v].type.shape; }
  int64_t Rank(ValueId v) const { return static_cast<int64_t>(ShapeOf(v).size()); }

  // The data of a constant; null if `v` is none, or not all of it counts.
  const NDArray* Known(ValueId v) const;
  // The same as integers or floats, for operands that must be known now, such as shapes. `what` goes into the error.
  absl::StatusOr<std::vector<int64_t>> KnownInts(ValueId v, std::string_view what) const;
  absl::StatusOr<int64_t> KnownInt(ValueId v, std::string_view what) const;  // the only one of them
  absl::StatusOr<std::vector<double>> KnownFloats(ValueId v, std::string_view what) const;

  ValueId Constant(NDArray data, std::string name = "");
  // A constant of a body or a function, the same one however often the body turns.
  absl::StatusOr<ValueId> Shared(const onnx::TensorProto& tensor);
  ValueId Scalar(DType dtype, double value);
  ValueId IntVector(const std::vector<int64_t>& values);

  // Adds a call of a Temper operator; one on small known operands is computed at once, so that the arithmetic on
  // shapes that models carry is gone when a converter asks for its result.
  absl::StatusOr<ValueId> Call(std::string op, Attrs attrs, std::vector<ValueId> inputs);
  // The same of elements behind the ends of operands, too: the result has known extents.
  absl::StatusOr<ValueId> CallWhole(std::string op, Attrs attrs, std::vector<ValueId> inputs);
  // The same, left to the passes even where all is known.
  absl::StatusOr<ValueId> Defer(std::string op, Attrs attrs, std::vector<ValueId> inputs);
  absl::StatusOr<ValueId> Reshape(ValueId v, Shape shape);
  absl::StatusOr<ValueId> Transpose(ValueId v, std::vector<int64_t> axes);
  absl::StatusOr<ValueId> Slice(ValueId v, int64_t axis, int64_t start, int64_t end);
  absl::StatusOr<ValueId> Element(ValueId v, int64_t axis, int64_t i);  // the i-th along the axis, that axis gone
  absl::StatusOr<ValueId> NewAxis(ValueId v, int64_t axis);             // of one element
  absl::StatusOr<ValueId> Gather(ValueId v, ValueId at, int64_t axis);  // elements along the axis
  absl::StatusOr<ValueId> Pad(ValueId v, std::vector<int64_t> pads, double value = 0, std::string mode = "constant");
  absl::StatusOr<ValueId> Concat(std::vector<ValueId> parts, int64_t axis);
  absl::StatusOr<ValueId> Expand(ValueId v, Shape shape);
  absl::StatusOr<ValueId> Cast(ValueId v, DType to);  // nothing to do where it is of that type
  absl::StatusOr<ValueId> Reduce(std::string op, ValueId v, std::vector<int64_t> axes, bool keeps_axes);

  // Empty: all extents of the value are known.
  const Varyings& VaryingsOf(ValueId v) const;
  bool Varies(ValueId v) const { return !VaryingsOf(v).empty(); }
  const Varying* VaryingAlong(ValueId v, int64_t axis) const;  // null: the extent along the axis is known
  void SetVaryings(ValueId v, Varyings varyings);              // in any order; those that it had are gone
  void AddVaryings(ValueId v, const Varyings& more);           // along axes whose extents were known
  std::optional<Node> MakerOf(ValueId v) const;                // the node that gives it
  // Values of a new shape that are another one's elements, in lines: those at some places of each.
  struct Reshaped {
    ValueId from = kNoValue, at = kNoValue;
    int64_t lines = 1;
  };
  std::optional<Reshaped> ReshapedFrom(ValueId v) const;  // nullopt: it is none
  void SetReshaped(ValueId v, Reshaped made) { reshaped_[v] = made; }
  // Extents that are a number of times another one: that one, and the number.
  std::optional<std::pair<ValueId, int64_t>> MultipleOf(ValueId extent) const;
  void SetMultiple(ValueId extent, ValueId of, int64_t times) { multiples_[extent] = {of, times}; }
  // Extents that are (another one + more) / stride + 1, which is never cut off at 0; see StopsOf.
  struct Stops {
    ValueId of = kNoValue;
    int64_t more = 0, stride = 1;
  };
  std::optional<Stops> StopsIn(ValueId extent) const;
  void SetStops(ValueId extent, Stops stops) { stops_[extent] = stops; }
  // Extents as sums: of others, each as often as it is added, without others, and of a number.
  struct Sum {
    std::vector<ValueId> terms, less;  // ascending; none is in both
    int64_t number = 0;
    bool operator==(const Sum&) const = default;
  };
  Sum SumOf(ValueId extent) const;
  void SetTerms(ValueId extent, std::vector<ValueId> terms, std::vector<ValueId> less = {}) {
    sums_[extent] = {std::move(terms), std::move(less)};
  }
  // Of how many lines each of several parts was taken that were joined again, and are so many; 0: of another number
  // each, or no such parts.
  int64_t JoinedFrom(ValueId extent) const;
  void SetJoinedFrom(ValueId extent, int64_t lines) { joined_[extent] = lines; }
  void SetMost(ValueId extent, int64_t most) { most_.try_emplace(extent, most); }
  void SetLeast(ValueId extent, int64_t least) { least_[extent] = least; }
  int64_t LeastOf(ValueId extent) const;  // the smallest that it is known to get
  // The largest that an extent can get; 0 if the value tells none.
  int64_t MostOf(ValueId extent) const;
  // Values that tell extents by what they are, in words: exporters make the same ones again and again, and only one
  // that is the same value is known to be the same number. kNoValue: it was not made before.
  ValueId Made(const std::string& what) const;
  void KeepMade(std::string what, ValueId v) { made_[std::move(what)] = v; }

  // Two extents that are one number at each length that the model itself takes.
  void MustAgree(ValueId a, ValueId b);
  struct Agreements {
    std::set<std::pair<ValueId, ValueId>> pairs;
    std::map<ValueId, ValueId> plain;  // see PlainOf
  };
  const Agreements& agreements() const { return agreements_; }
  void SetAgreements(Agreements agreements) { agreements_ = std::move(agreements); }  // as they were before
  // An extent that this one must agree with and that is a sum of inputs' ranges, if it is none itself.
  ValueId PlainOf(ValueId extent) const;

  // What is under an ONNX name: here, or in the scopes around up to one that is closed; null if nothing is.
  const Bound* Find(const std::string& name) const;
  void Bind(const std::string& name, Bound bound) { scopes_.back().names[name] = std::move(bound); }
  void Bind(const std::string& name, ValueId v) { Bind(name, Bound{v, std::nullopt}); }
  // The node's i-th operand, a sequence.
  absl::StatusOr<std::vector<ValueId>> SequenceOf(const OnnxNode& node, int i) const;
  // Binds the node's i-th output.
  absl::Status Set(const OnnxNode& node, ValueId v, int output = 0);
  void SetSequence(const OnnxNode& node, std::vector<ValueId> sequence, int output = 0);

  // Names bound while a scope lives are gone after it. One that is closed sees no names around it.
  class Scope {
   public:
    Scope(Context& c, bool closed) : c_(c) { c_.scopes_.push_back({{}, closed}); }
    Scope(const Scope&) = delete;
    ~Scope() { c_.scopes_.pop_back(); }

   private:
    Context& c_;
  };
  size_t depth() const { return scopes_.size(); }  // of scopes
  // Counts a node or a body that is added, though it may leave nothing in the graph; how many there were.
  size_t CountStep() { return ++steps_; }
  // Nodes added from here on carry this name.
  void SetNodeName(std::string name) { node_name_ = std::move(name); }

 private:
  struct Names {
    std::map<std::string, Bound> names;
    bool closed = false;
    std::map<const onnx::TensorProto*, ValueId> shared = {};  // of the outermost and of closed ones
  };

  Graph& g_;
  std::string folder_;
  Functions functions_;
  std::vector<Names> scopes_ = std::vector<Names>(1);
  std::string node_name_;
  bool Vary(const std::vector<ValueId>& values) const;  // any of them
  bool IsPlain(ValueId extent) const;                   // a sum of inputs' ranges
  // Makes a constant of the value of the latest node, where that is a part of a shape and the part does not vary.
  bool KnowExtents(ValueId v);
  absl::StatusOr<ValueId> CallVarying(std::string op, Attrs attrs, std::vector<ValueId> inputs);

  std::map<ValueId, Varyings> varyings_;
  std::map<ValueId, int64_t> most_, least_;  // by extent
  std::map<ValueId, Reshaped> reshaped_;
  std::map<ValueId, std::pair<ValueId, int64_t>> multiples_;
  std::map<ValueId, Stops> stops_;
  std::map<ValueId, std::pair<std::vector<ValueId>, std::vector<ValueId>>> sums_;
  std::map<ValueId, int64_t> joined_;
  std::map<std::string, ValueId> made_;
  Agreements agreements_;
  size_t steps_ = 0;
  int64_t computed_bytes_ = 0;  // of results that were computed while importing
};

// Known integers of less than a byte, which share bytes, in one each: to move them takes less time. Others as they are.
ValueId InBytes(Context& c, ValueId v);

// What `multiply` makes of matrices, either of which may be a vector, as MatMul takes them.
absl::StatusOr<ValueId> OfMatrices(Context& c, ValueId a, ValueId b,
                                   const std::function<absl::StatusOr<ValueId>(ValueId a, ValueId b)>& multiply);

// "[-rank, rank)" to "[0, rank)".
absl::StatusOr<int64_t> Axis(int64_t axis, int64_t rank);
// axis, axis + 1, ... up to rank - 1.
std::vector<int64_t> AxesFrom(int64_t axis, int64_t rank);
// An axes operand (from the opset on where they moved) or attribute, normalised; nullopt if neither is given.
absl::StatusOr<std::optional<std::vector<int64_t>>> AxesOf(Context& c, const OnnxNode& n, size_t input, int64_t rank);

using Converter = absl::Status (*)(Context& c, const OnnxNode& n);
// Along which axes operands may vary. Converters that compute with the sizes of an image, a signal or a cache, which
// are those of the most elements, take what varies along its first axis: it is one of examples, or of boxes.
enum class Extents { kAlongFirstAxis, kAlongAnyAxis };
struct TableEntry {
  std::string_view op;
  Converter convert;
  size_t operands = 1;  // that must be there; the converter need not look
  Extents extents = Extents::kAlongFirstAxis;
};
std::span<const TableEntry> ElementwiseTable(), ConvTable(), MoveTable(), PadTable(), IndexTable(), EinsumTable(),
    AttentionTable(), ReduceTable(), ResizeTable(), RecurrentTable(), SampleTable(), SortTable(), KnownTable(),
    MathTable(), QuantizeTable(), ControlTable(), SequenceTable(), ContribTable(), SignalTable(), LossTable(),
    PoolTable(), RoiTable(), BoxesTable(), ScatterTable(), SelectTable(), BitsTable(), GroupAttentionTable(),
    ContribRecurrentTable(), ContribLayoutTable(), RandomTable();
// Null if the operator is not supported. The domains that are known are ONNX's own and com.microsoft.
inline constexpr std::string_view kContribDomain = "com.microsoft";
const TableEntry* FindConverter(const onnx::NodeProto& node);
// The names of all of a domain's operators that are supported, in order: of ONNX's own, "", or of kContribDomain.
std::vector<std::string> OperatorsOf(std::string_view domain);

}  // namespace temper::onnx_frontend
