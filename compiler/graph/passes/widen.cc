// Values of f16 and bf16 for a CPU, which computes with neither: they become values of f32, in which templates are
// written, and casts stay where a value comes from outside, leaves, or is of an operator that has to have its type.
// Results are rounded less often than the model says, and so are nearer to the exact ones.
#include <algorithm>

#include "compiler/graph/passes/passes.h"

namespace temper::passes {
namespace {

// Those of eight bits and fewer are in models that mean what they round.
bool IsWidened(DType dtype) { return IsNarrowFloat(dtype) && Info(dtype).bits == 16; }

bool SwapsLastTwo(const Node& node) {
  if (node.op != "transpose") return false;
  std::vector<int64_t> axes = node.attrs.Ints("perm");
  if (axes.size() < 2) return false;
  std::swap(axes.back(), axes[axes.size() - 2]);
  return std::ranges::is_sorted(axes);
}

class Widening {
 public:
  explicit Widening(Graph& g)
      : g_(g),
        wanted_(g.values.size(), false),
        made_(g.values.size(), false),
        known_(g.values.size(), false),
        read_(g.values.size(), false),
        producer_(g.values.size(), -1),
        instead_(g.values.size(), kNoValue) {}

  absl::Status Run() {
    for (const ValueId v : g_.inputs) made_[v] = true;
    for (size_t v = 0; v < made_.size(); ++v) {
      known_[v] = g_.values[v].is_constant;
      made_[v] = made_[v] || known_[v];
    }
    FindWanted();
    std::vector<Node> nodes = std::move(g_.nodes);
    g_.nodes.clear();
    const std::vector<bool> stays = FindThoseThatStay(nodes);
    for (size_t i = 0; i < nodes.size(); ++i) {
      const ValueId out = nodes[i].output;
      TEMPER_RETURN_IF_ERROR(Rewrite(std::move(nodes[i]), stays[i]));
      if (IsOutput(out)) MakeNarrow(out);
    }
    g_.Compact();
    return absl::OkStatus();
  }

 private:
  bool IsNarrow(ValueId v) const { return v != kNoValue && IsWidened(g_.values[v].type.dtype); }
  int64_t Elements(ValueId v) const { return NumElements(g_.values[v].type.shape); }
  bool IsOutput(ValueId v) const { return std::ranges::find(g_.outputs, v) != g_.outputs.end(); }
  bool ComesNarrow(ValueId v) const { return made_[v] && !known_[v] && IsNarrow(v); }
  bool Moves(const Node& node) const { return FindOp(node.op)->types == OpTypes::kMoves; }

  // What leaves the graph, and what is moved alone before it leaves.
  void FindWanted() {
    for (const ValueId v : g_.outputs) wanted_[v] = true;
    for (auto node = g_.nodes.rbegin(); node != g_.nodes.rend(); ++node) {
      if (!wanted_[node->output] || !Moves(*node)) continue;
      for (const ValueId v : node->inputs) {
        if (IsNarrow(v)) wanted_[v] = true;
      }
    }
  }

  // Elements that come narrow stay so while they are moved to where they leave, a cache of keys for one, or while
  // fewer are picked of them, such as rows of a table. Elsewhere casts come first, and moves join what reads them.
  bool MoveStays(const Node& node) const {
    int64_t elements = 0;
    bool all = true, comes = false;
    for (const ValueId v : node.inputs) {
      if (!IsNarrow(v)) continue;
      elements += Elements(v);
      all = all && made_[v];
      comes = comes || ComesNarrow(v);
    }
    return wanted_[node.output] ? all || comes : all && Elements(node.output) < elements;
  }

  // Whether it has to have its type, by its rule: in f32 its result would not be what it is, in f32.
  bool MustStay(const Node& node) const {
    std::vector<TensorType> inputs;
    for (const ValueId v : node.inputs) {
      inputs.push_back(v == kNoValue ? TensorType{} : g_.values[v].type);
      if (IsNarrow(v)) inputs.back().dtype = DType::kF32;
    }
    TensorType want = g_.values[node.output].type;
    if (IsNarrow(node.output)) want.dtype = DType::kF32;
    const absl::StatusOr<TensorType> type = FindOp(node.op)->infer(node.attrs, inputs);
    return !type.ok() || type->dtype != want.dtype || type->shape != want.shape;
  }

  // Of `nodes`, which of them makes a value that one node alone reads, and no output is; -1 for others.
  void FindProducers(const std::vector<Node>& nodes) {
    std::vector<int> reads(g_.values.size(), 0);
    for (const ValueId v : g_.outputs) ++reads[v];
    for (const Node& node : nodes) {
      for (const ValueId v : node.inputs) {
        if (v != kNoValue) ++reads[v];
      }
    }
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (reads[nodes[i].output] == 1) producer_[nodes[i].output] = static_cast<int>(i);
    }
  }

  // A product that reads what comes narrow row by row, and each element a few times, such as one of a step's query by
  // a cache of keys: it takes less time than a cast of the cache and a product of f32.
  bool SumsNarrow(const std::vector<Node>& nodes, const Node& node, std::vector<bool>& stays) {
    constexpr int64_t kFewReads = 8;
    if (node.op != "matmul" || !IsNarrow(node.output) || node.attrs.Int("trans_a", 0) != 0) return false;
    const ValueId right = node.inputs[1];
    const Shape& left = g_.values[node.inputs[0]].type.shape;
    if (left.empty() || Elements(node.output) * left.back() > kFewReads * Elements(right)) return false;
    bool by_rows = node.attrs.Int("trans_b", 0) != 0;
    const int move = made_[right] ? -1 : producer_[right];
    if (move >= 0) {
      if (!SwapsLastTwo(nodes[move])) return false;
      by_rows = !by_rows;
    }
    if (!by_rows || !ComesNarrow(move >= 0 ? nodes[move].inputs[0] : right)) return false;
    if (move >= 0) stays[move] = made_[right] = true;
    return true;
  }

  // Nodes that compute what they did, of what is narrow; their sums may be of f32.
  std::vector<bool> FindThoseThatStay(std::vector<Node>& nodes) {
    FindProducers(nodes);
    std::vector<bool> stays(nodes.size(), false);
    for (size_t i = 0; i < nodes.size(); ++i) {
      Node& node = nodes[i];
      const bool narrow = IsNarrow(node.output), sums = SumsNarrow(nodes, node, stays);
      if (sums) node.attrs.Set("result", std::string(Name(DType::kF32)));
      if (node.op != "cast") stays[i] = sums || (narrow && Moves(node) ? MoveStays(node) : MustStay(node));
      made_[node.output] = (stays[i] && !sums) || !narrow;
      known_[node.output] = std::ranges::all_of(node.inputs, [&](ValueId v) { return v == kNoValue || known_[v]; });
    }
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (const ValueId v : nodes[i].inputs) {
        if (stays[i] && IsNarrow(v)) read_[v] = true;
      }
    }
    for (const ValueId v : g_.outputs) read_[v] = true;
    return stays;
  }

  absl::Status Rewrite(Node node, bool stays) {
    const ValueId out = node.output;
    for (ValueId& v : node.inputs) {
      if (stays && IsNarrow(v)) {
        MakeNarrow(v);
      } else if (v != kNoValue) {
        TEMPER_ASSIGN_OR_RETURN(v, Wide(v));
      }
    }
    if (node.op == "cast" && IsNarrow(out)) node.attrs = To(DType::kF32);
    if (IsNothing(node)) {
      instead_[out] = node.inputs[0];
    } else if (made_[out]) {
      g_.nodes.push_back(std::move(node));
    } else {
      TEMPER_ASSIGN_OR_RETURN(instead_[out], g_.AddNode(std::move(node.op), std::move(node.attrs),
                                                        std::move(node.inputs), std::move(node.name)));
    }
    return absl::OkStatus();
  }

  // A cast of f32 to what is or becomes f32; one that makes a graph output of f32 is left to others.
  bool IsNothing(const Node& node) const {
    const bool becomes = IsNarrow(node.output);
    const DType to = becomes ? DType::kF32 : g_.values[node.output].type.dtype;
    return node.op == "cast" && to == DType::kF32 && g_.values[node.inputs[0]].type.dtype == to &&
           (becomes || !IsOutput(node.output));
  }

  static Attrs To(DType dtype) {
    Attrs attrs;
    attrs.Set("to", std::string(Name(dtype)));
    return attrs;
  }

  // `v`, which is computed in f32 or is there, under its own name and of its own type.
  void MakeNarrow(ValueId v) {
    if (!IsNarrow(v) || made_[v]) return;
    g_.nodes.push_back({"", "cast", To(g_.values[v].type.dtype), {instead_[v]}, v});
    made_[v] = true;
  }

  // What is read instead of `v`: of f32 where `v` is narrow. A constant becomes it at once, and gives its own data
  // back where nothing else reads them.
  absl::StatusOr<ValueId> Wide(ValueId v) {
    if (instead_[v] != kNoValue) return instead_[v];
    if (!IsNarrow(v)) return v;
    if (!g_.values[v].is_constant) {
      TEMPER_ASSIGN_OR_RETURN(instead_[v], g_.AddNode("cast", To(DType::kF32), {v}));
      return instead_[v];
    }
    const auto convert = [](Value& value) {
      value.type.dtype = DType::kF32;
      if (value.constant.has_value()) value.constant = value.constant->ConvertedTo(DType::kF32);
    };
    if (!read_[v]) {
      convert(g_.values[v]);
      return v;
    }
    Value wide = g_.values[v];
    wide.name.clear();
    convert(wide);
    instead_[v] = g_.AddValue(std::move(wide));
    return instead_[v];
  }

  Graph& g_;
  // By values that there were before.
  std::vector<bool> wanted_;  // they leave the graph, or are moved to where others leave it
  std::vector<bool> made_;    // they are there, of their own type
  std::vector<bool> known_;   // constants, and what is made of constants alone
  std::vector<bool> read_;    // narrow ones that are read as they are
  std::vector<int> producer_;
  std::vector<ValueId> instead_;  // of f32, what to read in their place; kNoValue: there is nothing yet, or they are
};

}  // namespace

absl::Status WidenFloats(Graph& g, const Target& t) {
  const bool any = std::ranges::any_of(g.values, [](const Value& v) { return IsWidened(v.type.dtype); });
  return t.cpu() != nullptr && any ? Widening(g).Run() : absl::OkStatus();
}

}  // namespace temper::passes
