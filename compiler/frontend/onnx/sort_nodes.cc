#include "compiler/frontend/onnx/sort_nodes.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compiler/frontend/onnx/nodes.h"

namespace temper::onnx_frontend {
namespace {

using NamesRead = std::set<std::string>;

// What the node reads of the graph that it is in: its operands, and what its bodies take from around them.
void AddReads(const onnx::NodeProto& node, NamesRead& reads) {
  reads.insert(node.input().begin(), node.input().end());
  for (const onnx::AttributeProto& a : node.attribute()) {
    if (!a.has_g()) continue;
    NamesRead inner;
    for (const onnx::NodeProto& n : a.g().node()) AddReads(n, inner);
    for (const onnx::ValueInfoProto& output : a.g().output()) inner.insert(output.name());
    for (const onnx::NodeProto& n : a.g().node()) {
      for (const std::string& own : n.output()) inner.erase(own);
    }
    for (const onnx::ValueInfoProto& input : a.g().input()) inner.erase(input.name());
    for (const onnx::TensorProto& constant : a.g().initializer()) inner.erase(constant.name());
    reads.merge(inner);
  }
}

class Sorter {
 public:
  Sorter(Nodes& nodes, NamesRead known) : nodes_(nodes), known_(std::move(known)) {}

  absl::Status Run() {
    if (!Link()) return absl::OkStatus();
    state_.resize(before_.size(), State::kWaits);
    for (int node = 0; node < nodes_.size(); ++node) TEMPER_RETURN_IF_ERROR(Place(node));
    std::vector<onnx::NodeProto*> taken(order_.size());
    nodes_.ExtractSubrange(0, nodes_.size(), taken.data());
    for (const int node : order_) nodes_.AddAllocated(taken[static_cast<size_t>(node)]);
    return absl::OkStatus();
  }

 private:
  enum class State { kWaits, kBegun, kPlaced };

  // Finds who computes what each node reads; false if all are in order. Of several that give a name, a node reads the
  // last one in front of it.
  bool Link() {
    before_.resize(static_cast<size_t>(nodes_.size()));
    std::unordered_map<std::string, int> first, last;  // but for "", which is what is left out
    for (int node = 0; node < nodes_.size(); ++node) {
      for (const std::string& name : nodes_[node].output()) {
        if (!name.empty()) first.emplace(name, node);
      }
    }
    bool moves = false;
    for (int node = 0; node < nodes_.size(); ++node) {
      NamesRead reads;
      AddReads(nodes_[node], reads);
      std::vector<int>& before = before_[static_cast<size_t>(node)];
      for (const std::string& name : reads) {
        if (const auto earlier = last.find(name); earlier != last.end()) {
          before.push_back(earlier->second);
        } else if (const auto later = first.find(name); later != first.end() && !known_.contains(name)) {
          before.push_back(later->second);
          moves = true;
        }
      }
      std::ranges::sort(before, std::greater());  // taken from the end
      for (const std::string& name : nodes_[node].output()) {
        if (!name.empty()) last[name] = node;
      }
    }
    return moves;
  }

  // The node behind all that it needs, which may be a long chain.
  absl::Status Place(int wanted) {
    std::vector<int> chain = {wanted};
    while (!chain.empty()) {
      const int node = chain.back();
      std::vector<int>& before = before_[static_cast<size_t>(node)];
      State& state = state_[static_cast<size_t>(node)];
      if (state != State::kPlaced && !before.empty()) {
        state = State::kBegun;
        const int next = before.back();
        before.pop_back();
        if (state_[static_cast<size_t>(next)] == State::kBegun) return Cycle(nodes_[next]);
        chain.push_back(next);
        continue;
      }
      if (state != State::kPlaced) order_.push_back(node);
      state = State::kPlaced;
      chain.pop_back();
    }
    return absl::OkStatus();
  }

  static absl::Status Cycle(const onnx::NodeProto& node) {
    return absl::InvalidArgumentError(
        absl::StrCat(node.op_type(), " '", NameOf(node), "': it reads what is computed from its own results"));
  }

  Nodes& nodes_;
  const NamesRead known_;                 // what no node computes
  std::vector<std::vector<int>> before_;  // of each node, whom it needs
  std::vector<State> state_;
  std::vector<int> order_;
};

absl::Status SortBodies(Nodes& nodes);

absl::Status SortGraph(onnx::GraphProto& graph) {
  NamesRead known;
  for (const onnx::ValueInfoProto& input : graph.input()) known.insert(input.name());
  for (const onnx::TensorProto& constant : graph.initializer()) known.insert(constant.name());
  TEMPER_RETURN_IF_ERROR(Sorter(*graph.mutable_node(), std::move(known)).Run());
  return SortBodies(*graph.mutable_node());
}

absl::Status SortBodies(Nodes& nodes) {
  for (onnx::NodeProto& node : nodes) {
    for (onnx::AttributeProto& a : *node.mutable_attribute()) {
      if (a.has_g()) TEMPER_RETURN_IF_ERROR(SortGraph(*a.mutable_g()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SortNodes(onnx::ModelProto& model) {
  TEMPER_RETURN_IF_ERROR(SortGraph(*model.mutable_graph()));
  for (onnx::FunctionProto& function : *model.mutable_functions()) {
    NamesRead known(function.input().begin(), function.input().end());
    TEMPER_RETURN_IF_ERROR(Sorter(*function.mutable_node(), std::move(known)).Run());
    TEMPER_RETURN_IF_ERROR(SortBodies(*function.mutable_node()));
  }
  return absl::OkStatus();
}

}  // namespace temper::onnx_frontend
