// Q, K and V are products of one matrix with three weights. On a GPU each alone leaves units without work, and waits
// for a launch of its own. Products of one matrix with constants of one shape, whose results are only moved or
// multiplied, become one product of a batch; its parts lie one behind another, so none is copied.
#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "compiler/graph/passes/passes.h"
#include "compiler/graph/passes/rewriter.h"

namespace temper::passes {
namespace {

// A product, and the bias that is added to it, where there is one.
struct Product {
  int node = -1;
  ValueId result = kNoValue;  // with its bias
  ValueId weight = kNoValue, bias = kNoValue;
};

class Merger {
 public:
  explicit Merger(Graph& g) : g_(g), readers_(g.values.size()), makers_(g.values.size(), -1) {
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      makers_[static_cast<size_t>(g_.nodes[i].output)] = static_cast<int>(i);
      for (const ValueId v : g_.nodes[i].inputs) {
        if (v != kNoValue) readers_[static_cast<size_t>(v)].push_back(static_cast<int>(i));
      }
    }
  }

  absl::Status Run() {
    // By what the products of a batch have in common; std::map for an order that depends on the graph alone.
    std::map<std::tuple<ValueId, std::string, Shape, bool>, std::vector<Product>> found;
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      const Product p = ProductAt(static_cast<int>(i));
      const Node& node = g_.nodes[i];
      if (p.node >= 0) found[{node.inputs[0], Text(node.attrs), ShapeOf(p.weight), p.bias != kNoValue}].push_back(p);
    }
    nodes_ = std::move(g_.nodes);
    g_.nodes.clear();
    std::vector<const std::vector<Product>*> begins(nodes_.size());  // by node: the batch whose first product it is
    std::vector<bool> gone(nodes_.size());
    bool any = false;
    for (const auto& [common, batch] : found) {
      if (batch.size() < 2) continue;
      any = true;
      begins[static_cast<size_t>(batch.front().node)] = &batch;
      for (const Product& p : batch) {
        gone[static_cast<size_t>(p.node)] = true;
        gone[static_cast<size_t>(makers_[static_cast<size_t>(p.result)])] = true;
      }
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (begins[i] != nullptr) TEMPER_RETURN_IF_ERROR(Emit(*begins[i]));
      if (!gone[i]) g_.nodes.push_back(std::move(nodes_[i]));
    }
    if (any) g_.Compact();
    return absl::OkStatus();
  }

 private:
  const TensorType& TypeOf(ValueId v) const { return g_.values[static_cast<size_t>(v)].type; }
  const Shape& ShapeOf(ValueId v) const { return TypeOf(v).shape; }
  const std::vector<int>& ReadersOf(ValueId v) const { return readers_[static_cast<size_t>(v)]; }
  bool HasData(ValueId v) const { return v != kNoValue && g_.values[static_cast<size_t>(v)].constant.has_value(); }
  bool IsOutput(ValueId v) const { return std::ranges::find(g_.outputs, v) != g_.outputs.end(); }

  // Its operator would be computed beside the product.
  bool IsEpilogue(int reader) const {
    const std::string& op = g_.nodes[static_cast<size_t>(reader)].op;
    return op != "reshape" && op != "transpose" && op != "matmul";
  }

  // `node` of -1: no product that could be one of a batch.
  Product ProductAt(int i) const {
    const Node& node = g_.nodes[static_cast<size_t>(i)];
    if (node.op != "matmul" || node.attrs.Int("trans_a", 0) != 0 || !HasData(node.inputs[1]) || HasData(node.inputs[0]))
      return {};
    const Shape& weight = ShapeOf(node.inputs[1]);
    if (weight.size() != 2 || ShapeOf(node.inputs[0]).size() < 2) return {};
    Product p{i, node.output, node.inputs[1]};
    const std::vector<int>& readers = ReadersOf(node.output);
    if (readers.size() == 1 && !IsOutput(node.output)) {
      const Node& add = g_.nodes[static_cast<size_t>(readers[0])];
      const bool adds = add.op == "add" && add.inputs[0] != add.inputs[1];
      const ValueId other = adds ? add.inputs[add.inputs[0] == node.output ? 1 : 0] : kNoValue;
      if (HasData(other) && ShapeOf(other) == Shape{ShapeOf(node.output).back()}) p.bias = other, p.result = add.output;
    }
    if (IsOutput(p.result) || ReadersOf(p.result).empty() ||
        std::ranges::any_of(ReadersOf(p.result), [&](int reader) { return IsEpilogue(reader); }))
      return {};
    return p;
  }

  // The constants one behind another, each in that shape.
  ValueId Stack(const std::vector<Product>& batch, ValueId Product::*which, Shape each) {
    each.insert(each.begin(), static_cast<int64_t>(batch.size()));
    const DType dtype = TypeOf(batch.front().*which).dtype;
    NDArray all(dtype, each);
    char* to = static_cast<char*>(all.MutableData());
    for (const Product& p : batch) {
      const NDArray& part = *g_.values[static_cast<size_t>(p.*which)].constant;
      std::memcpy(to, part.data(), static_cast<size_t>(part.bytes()));
      to += part.bytes();
    }
    return g_.AddValue({"", {dtype, std::move(each)}, std::move(all), true});
  }

  absl::Status Emit(const std::vector<Product>& batch) {
    const Node first = nodes_[static_cast<size_t>(batch.front().node)];
    const Shape rows_of = ShapeOf(first.inputs[0]), weight = ShapeOf(batch.front().weight);
    const int64_t k = rows_of.back(), rows = NumElements(rows_of) / std::max<int64_t>(k, 1);
    ValueId a = first.inputs[0];
    if (rows_of.size() > 2) {
      TEMPER_ASSIGN_OR_RETURN(a, g_.AddNode("reshape", IntsAttrs("shape", {rows, k}), {a}, first.name));
    }
    const ValueId weights = Stack(batch, &Product::weight, weight);
    TEMPER_ASSIGN_OR_RETURN(ValueId all, g_.AddNode("matmul", first.attrs, {a, weights}, first.name));
    if (batch.front().bias != kNoValue) {
      const ValueId biases = Stack(batch, &Product::bias, {1, ShapeOf(all).back()});
      TEMPER_ASSIGN_OR_RETURN(all, g_.AddNode("add", {}, {all, biases}, first.name));
    }
    for (size_t i = 0; i < batch.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      Attrs shape = IntsAttrs("shape", ShapeOf(batch[i].result));
      TEMPER_ASSIGN_OR_RETURN(const ValueId slice, g_.AddNode("slice", SliceAttrs(0, at, at + 1), {all}, first.name));
      TEMPER_RETURN_IF_ERROR(g_.AddNode("reshape", std::move(shape), {slice}, first.name).status());
      // It makes the old value itself, so that readers need no change.
      g_.nodes.back().output = batch[i].result;
    }
    return absl::OkStatus();
  }

  Graph& g_;
  std::vector<std::vector<int>> readers_;  // by value
  std::vector<int> makers_;
  std::vector<Node> nodes_;  // as they came
};

}  // namespace

absl::Status MergeContractions(Graph& g, const Target& t) {
  return t.gpu() != nullptr ? Merger(g).Run() : absl::OkStatus();
}

}  // namespace temper::passes
