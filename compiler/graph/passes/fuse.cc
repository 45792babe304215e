// Vertical fusion. A kernel grows forward from a contraction, a reduction or a first node: as long as all that its
// result flows into meets again in one node (the post-dominator) and everything on the way is elementwise at the
// result's shape, it all joins, diamonds such as x * sigmoid(x) included. Then cheap producers that one kernel alone
// reads join it from the front, ahead of its contraction where there is a template for that. A kernel has one result,
// and no path leaves it and comes back, so no cycles arise.
#include <algorithm>
#include <optional>
#include <queue>
#include <set>

#include "compiler/graph/alias.h"
#include "compiler/graph/extract.h"
#include "compiler/graph/passes/passes.h"
#include "compiler/ops/template.h"

namespace temper::passes {
namespace {

constexpr size_t kMaxNodes = 48;  // of one kernel: beyond it, code grows without saving traffic

enum class Kind { kAnchor, kReduction, kInjective, kElementwise, kAlone };

struct Part {
  std::vector<int> nodes;  // ascending
  int root = 0;            // the node it grew from
  Kind kind = Kind::kElementwise;
};

Kind KindOf(const Node& node) {
  switch (FindOp(node.op)->pattern) {
    case OpPattern::kAnchor:
      return Kind::kAnchor;
    case OpPattern::kReduction:
      return Kind::kReduction;
    case OpPattern::kInjective:
      return Kind::kInjective;
    case OpPattern::kElementwise:
      return Kind::kElementwise;
    case OpPattern::kSequential:
    case OpPattern::kOpaque:
      return Kind::kAlone;
  }
  return Kind::kAlone;
}

class Fuser {
 public:
  Fuser(Graph& g, const Target& t);
  void Run();

 private:
  int OutputNode(const Part& p) const { return p.nodes.back(); }
  const TensorType& TypeOf(int node) const { return g_.values[g_.nodes[node].output].type; }
  bool IsElementwise(int node) const { return kind_[node] == Kind::kElementwise; }

  std::optional<std::vector<int>> WayToPostDominator(int node) const;
  bool MayFollow(const Part& p, int node) const;
  void GrowForward(int root);
  int OnlyReader(const Part& p) const;
  bool MayPrecedeAnchor(const Part& producer, const Part& consumer) const;
  bool Widens(const Part& p) const;
  bool PicksOnce(const Node& node, int producer) const;
  bool MayPrecede(const Part& producer, const Part& consumer) const;
  void MergeProducers();
  int AnchorFirst(Part& p) const;
  void EmitGroups();

  Graph& g_;
  const Target& target_;
  std::vector<Kind> kind_;  // per node
  std::vector<bool> alias_;
  std::vector<int> depth_;                 // per node: the longest way to it from the graph's inputs
  std::vector<std::vector<int>> readers_;  // per node: those of its output, ascending
  std::vector<bool> escapes_;              // per node: its output is a graph output
  std::vector<int> part_of_;               // per node, or -1
  std::vector<Part> parts_;
};

Fuser::Fuser(Graph& g, const Target& t)
    : g_(g), target_(t), readers_(g.nodes.size()), escapes_(g.nodes.size(), false), part_of_(g.nodes.size(), -1) {
  std::vector<int> producer(g.values.size(), -1);
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& node = g.nodes[i];
    kind_.push_back(KindOf(node));
    alias_.push_back(IsAliasNode(g, node));
    depth_.push_back(0);
    producer[node.output] = static_cast<int>(i);
    for (ValueId v : node.inputs) {
      if (v == kNoValue || producer[v] < 0) continue;
      depth_[i] = std::max(depth_[i], depth_[producer[v]] + 1);
      std::vector<int>& readers = readers_[producer[v]];
      if (readers.empty() || readers.back() != static_cast<int>(i)) readers.push_back(static_cast<int>(i));
    }
  }
  for (ValueId v : g.outputs) {
    if (producer[v] >= 0) escapes_[producer[v]] = true;
  }
}

// The nodes on all ways from `node`'s output to the first node that every way passes, that one last; nullopt if some
// way ends without it, or something on the way is taken or not elementwise.
std::optional<std::vector<int>> Fuser::WayToPostDominator(int node) const {
  if (escapes_[node] || readers_[node].empty()) return std::nullopt;
  // Nodes are visited in order; when just one is open, nothing visited before leads past it.
  std::priority_queue<int, std::vector<int>, std::greater<>> open(std::greater<>(), readers_[node]);
  std::vector<int> way;
  while (true) {
    const int next = open.top();
    while (!open.empty() && open.top() == next) open.pop();
    if (!IsElementwise(next) || alias_[next] || part_of_[next] >= 0 || way.size() >= kMaxNodes) return std::nullopt;
    way.push_back(next);
    if (open.empty()) return way;
    if (escapes_[next] || readers_[next].empty()) return std::nullopt;
    for (int reader : readers_[next]) open.push(reader);
  }
}

bool Fuser::MayFollow(const Part& p, int node) const {
  const TensorType& from = TypeOf(OutputNode(p));
  const TensorType& to = TypeOf(node);
  return from.shape == to.shape && from.perm == to.perm;
}

void Fuser::GrowForward(int root) {
  Part p{{root}, root, kind_[root]};
  if (!alias_[root] && p.kind != Kind::kAlone) {
    while (std::optional<std::vector<int>> way = WayToPostDominator(OutputNode(p))) {
      const bool fits = p.nodes.size() + way->size() <= kMaxNodes &&
                        std::all_of(way->begin(), way->end(), [&](int n) { return MayFollow(p, n); });
      if (!fits) break;
      p.nodes.insert(p.nodes.end(), way->begin(), way->end());
    }
  }
  for (int n : p.nodes) part_of_[n] = static_cast<int>(parts_.size());
  parts_.push_back(std::move(p));
}

// The part that alone reads the output of `p`; -1 if there is none or several.
int Fuser::OnlyReader(const Part& p) const {
  const int last = OutputNode(p);
  if (escapes_[last] || readers_[last].empty()) return -1;
  const int reader = part_of_[readers_[last][0]];
  const bool alone =
      std::all_of(readers_[last].begin(), readers_[last].end(), [&](int n) { return part_of_[n] == reader; });
  return alone ? reader : -1;
}

// Whether the producer makes nothing but the contraction's left operand, and a template computes it as it goes along.
bool Fuser::MayPrecedeAnchor(const Part& producer, const Part& consumer) const {
  const Node& anchor = g_.nodes[consumer.root];
  const ValueId made = g_.nodes[OutputNode(producer)].output;
  if (readers_[OutputNode(producer)].size() > 1 || anchor.inputs[0] != made) return false;
  Group group{producer.nodes, static_cast<int>(producer.nodes.size())};
  group.nodes.push_back(consumer.root);
  const absl::StatusOr<Extracted> e = Extract(g_, group);
  return e.ok() && HasOwnTemplate(e->workload, target_);
}

// Whether all that it reads is fewer bytes than what it makes, as where numbers of 8 bits are dequantised.
bool Fuser::Widens(const Part& p) const {
  const auto bytes = [](const TensorType& t) { return BytesOf(t.dtype, NumElements(t.shape)); };
  std::set<ValueId> made, read;
  for (int n : p.nodes) {
    read.insert(g_.nodes[n].inputs.begin(), g_.nodes[n].inputs.end());
    made.insert(g_.nodes[n].output);
  }
  int64_t total = 0;
  for (const ValueId v : read) {
    if (v != kNoValue && !made.contains(v)) total += bytes(g_.values[v].type);
  }
  return total < bytes(TypeOf(OutputNode(p)));
}

// Whether a node picks elements of what another one makes, each about once.
bool Fuser::PicksOnce(const Node& node, int producer) const {
  const ValueId made = g_.nodes[producer].output;
  if (FindOp(node.op)->move != Move::kPicks || node.inputs[0] != made || node.inputs[1] == made) return false;
  return NumElements(g_.values[node.output].type.shape) <= 2 * NumElements(g_.values[made].type.shape);
}

// Whether computing the producer again wherever the consumer reads it costs no more than its own kernel would.
bool Fuser::MayPrecede(const Part& producer, const Part& consumer) const {
  if (alias_[producer.root] || alias_[consumer.root] || producer.nodes.size() + consumer.nodes.size() > kMaxNodes)
    return false;
  const bool all_elementwise =
      std::all_of(producer.nodes.begin(), producer.nodes.end(), [&](int n) { return IsElementwise(n); });
  const bool one_move =
      producer.kind == Kind::kInjective && FindOp(g_.nodes[producer.root].op)->move != Move::kConcatenates;
  if (!all_elementwise && !one_move) return false;
  const TensorType& made = TypeOf(OutputNode(producer));
  for (int n : readers_[OutputNode(producer)]) {
    if (consumer.kind == Kind::kAnchor && n == consumer.root) return MayPrecedeAnchor(producer, consumer);
    const bool reduction = kind_[n] == Kind::kReduction;
    // A sliding window reads each element several times.
    if (reduction && FindOp(g_.nodes[n].op)->windows) return false;
    if (reduction && g_.values[g_.nodes[n].inputs[0]].type != made) return false;
    // Where two floats are nearly equal, a rounding decides which is the largest: a right kernel would look wrong.
    if (reduction && IsFloat(made.dtype) && !IsFloat(TypeOf(n).dtype)) return false;
    // A change of layout may well compute what it writes.
    if (g_.nodes[n].op == "layout_copy" && n == consumer.root && all_elementwise) return true;
    // What is read once may as well be made of fewer bytes where it is copied.
    if (FindOp(g_.nodes[n].op)->move == Move::kConcatenates && n == consumer.root && all_elementwise &&
        Widens(producer))
      return true;
    // What reads a part of a move's result, each element once, may as well move that part alone.
    if (FindOp(g_.nodes[n].op)->move == Move::kSlices && n == consumer.root && one_move) return true;
    // So may what picks from it hardly more than there is, as where pads repeat what is at two ends.
    if (PicksOnce(g_.nodes[n], OutputNode(producer)) && n == consumer.root && one_move) return true;
    if (!reduction && !IsElementwise(n)) return false;
    if (IsElementwise(n) && (TypeOf(n).shape != made.shape || TypeOf(n).perm != made.perm)) return false;
  }
  return consumer.kind == Kind::kElementwise || consumer.kind == Kind::kReduction ||
         consumer.kind == Kind::kInjective || (consumer.kind == Kind::kAnchor && all_elementwise);
}

void Fuser::MergeProducers() {
  // Consumers come after producers, so walking backward lets whole chains join.
  for (size_t i = parts_.size(); i-- > 0;) {
    const int node = static_cast<int>(i);
    const int reader = OnlyReader(parts_[node]);
    if (reader < 0 || !MayPrecede(parts_[node], parts_[reader])) continue;
    Part& into = parts_[reader];
    into.nodes.insert(into.nodes.end(), parts_[node].nodes.begin(), parts_[node].nodes.end());
    std::sort(into.nodes.begin(), into.nodes.end());
    for (int n : parts_[node].nodes) part_of_[n] = reader;
    parts_[node].nodes.clear();
  }
}

// Templates of contractions want the contraction before all that it does not depend on. Returns its place.
int Fuser::AnchorFirst(Part& p) const {
  std::vector<ValueId> read = {g_.nodes[p.root].output};
  const auto is_read = [&](int n) { return std::find(read.begin(), read.end(), g_.nodes[n].output) != read.end(); };
  for (size_t i = p.nodes.size(); i-- > 0;) {
    const Node& node = g_.nodes[p.nodes[i]];
    if (is_read(p.nodes[i])) read.insert(read.end(), node.inputs.begin(), node.inputs.end());
  }
  const auto rest = std::stable_partition(p.nodes.begin(), p.nodes.end(), is_read);
  return static_cast<int>(rest - p.nodes.begin()) - 1;
}

// Parts in an order in which each runs after those it reads, as early as its last node stood.
void Fuser::EmitGroups() {
  std::vector<int> order;
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (!parts_[i].nodes.empty()) order.push_back(static_cast<int>(i));
  }
  std::sort(order.begin(), order.end(), [&](int a, int b) { return OutputNode(parts_[a]) < OutputNode(parts_[b]); });
  g_.groups.clear();
  for (int i : order) {
    Part& p = parts_[i];
    const auto root = std::find(p.nodes.begin(), p.nodes.end(), p.root);
    const int anchor = p.kind == Kind::kAnchor ? AnchorFirst(p) : static_cast<int>(root - p.nodes.begin());
    g_.groups.push_back({p.nodes, anchor});
  }
}

void Fuser::Run() {
  const int count = static_cast<int>(g_.nodes.size());
  // Contractions first, the deepest before the others: of two that meet in a residual addition, the one on the long
  // branch has it, as in blocks whose short branch is no contraction at all, so that their kernels are alike.
  std::vector<int> anchors;
  for (int i = 0; i < count; ++i) {
    if (kind_[i] == Kind::kAnchor) anchors.push_back(i);
  }
  std::sort(anchors.begin(), anchors.end(),
            [&](int a, int b) { return std::pair(depth_[a], a) > std::pair(depth_[b], b); });
  for (int i : anchors) GrowForward(i);
  for (int i = 0; i < count; ++i) {
    if (part_of_[i] < 0 && kind_[i] == Kind::kReduction) GrowForward(i);
  }
  for (int i = 0; i < count; ++i) {
    if (part_of_[i] < 0) GrowForward(i);
  }
  std::sort(parts_.begin(), parts_.end(), [&](const Part& a, const Part& b) { return OutputNode(a) < OutputNode(b); });
  for (size_t i = 0; i < parts_.size(); ++i) {
    for (int n : parts_[i].nodes) part_of_[n] = static_cast<int>(i);
  }
  MergeProducers();
  EmitGroups();
}

}  // namespace

absl::Status Fuse(Graph& g, const Target& t) {
  Fuser(g, t).Run();
  return absl::OkStatus();
}

void GroupEachNode(Graph& g) {
  g.groups.clear();
  for (size_t i = 0; i < g.nodes.size(); ++i) g.groups.push_back({{static_cast<int>(i)}, 0});
}

}  // namespace temper::passes
