// Branches of a sum that are convolutions of one image are one convolution, whose filter is the sum of theirs: blocks
// that were trained with several branches (RepVGG, MobileOne) are exported so.
#include <algorithm>

#include "compiler/graph/passes/simplify.h"

namespace temper::passes {
namespace {

// What is added up in the end, through sums that nobody else reads: of a long chain, the last few.
struct Terms {
  std::vector<ValueId> values, constants;
};
Terms TermsOf(const Rewriter& r, const Node& sum) {
  constexpr size_t kMostSums = 32;
  Terms terms;
  std::vector<const Node*> sums = {&sum};
  for (size_t i = 0; i < sums.size(); ++i) {
    for (ValueId v : sums[i]->inputs) {
      const Node* inner = r.Producer(v, "add");
      if (r.Constant(v) != nullptr) {
        terms.constants.push_back(v);
      } else if (inner != nullptr && sums.size() < kMostSums && r.OnlyUse(v) && r.ShapeOf(v) == r.ShapeOf(sum.output)) {
        sums.push_back(inner);
      } else {
        terms.values.push_back(v);
      }
    }
  }
  return terms;
}

// A convolution with a known filter that only the sum reads.
const Node* Branch(const Rewriter& r, ValueId v) {
  const Node* conv = r.Producer(v, "conv2d");
  const NDArray* filter = conv != nullptr && r.OnlyUse(v) ? r.Constant(conv->inputs[1]) : nullptr;
  return filter != nullptr && filter->dtype() == DType::kF32 ? conv : nullptr;
}

std::vector<int64_t> PadsOf(const Node& conv) { return conv.attrs.Ints("pads", {0, 0, 0, 0}); }

// Where the small filter's first tap lies in the large one, if both see the same pixels; nullopt if it does not fit.
std::optional<std::pair<int64_t, int64_t>> PlaceIn(const Rewriter& r, const Node& large, const Node& small) {
  const std::vector<int64_t> ones = {1, 1};
  if (large.attrs.Int("group", 1) != small.attrs.Int("group", 1) ||
      large.attrs.Ints("strides", ones) != small.attrs.Ints("strides", ones))
    return std::nullopt;
  const Shape &l = r.ShapeOf(large.inputs[1]), &s = r.ShapeOf(small.inputs[1]);
  int64_t place[2];
  for (size_t d = 0; d < 2; ++d) {
    const int64_t step = large.attrs.Ints("dilations", ones)[d], lead = PadsOf(large)[d] - PadsOf(small)[d];
    if (s[2 + d] > 1 && small.attrs.Ints("dilations", ones)[d] != step) return std::nullopt;
    place[d] = lead / step;
    if (lead < 0 || lead % step != 0 || place[d] + s[2 + d] > l[2 + d]) return std::nullopt;
  }
  return std::pair(place[0], place[1]);
}

// Adds the small filter to the large one, where its first tap lies at `place`.
void AddFilter(NDArray& large, const NDArray& small, std::pair<int64_t, int64_t> place) {
  const Shape &l = large.shape(), &s = small.shape();
  for (int64_t i = 0; i < small.size(); ++i) {
    const int64_t x = i % s[3], y = i / s[3] % s[2], plane = i / (s[2] * s[3]);
    large.as<float>()[(plane * l[2] + place.first + y) * l[3] + place.second + x] += small.as<float>()[i];
  }
}

// If `v` is what the convolution reads times a constant for each channel: that as a filter of one tap.
std::optional<NDArray> ScaleAsFilter(const Rewriter& r, const Node& conv, ValueId v) {
  const Node* scaled = r.Producer(v, "mul");
  const NDArray* factor = scaled != nullptr && r.OnlyUse(v) ? r.Constant(scaled->inputs[1]) : nullptr;
  if (factor == nullptr || scaled->inputs[0] != conv.inputs[0]) return std::nullopt;
  const Shape &filter = r.ShapeOf(conv.inputs[1]), &image = r.ShapeOf(conv.inputs[0]);
  const int64_t channels = image[1], each = filter[1];
  const bool by_channel = factor->size() == 1 || (factor->size() == channels && factor->shape().size() >= 3 &&
                                                  factor->shape()[factor->shape().size() - 3] == channels);
  if (!by_channel || filter[0] != channels) return std::nullopt;
  NDArray result(DType::kF32, {channels, each, 1, 1});
  for (int64_t c = 0; c < channels; ++c)
    result.as<float>()[c * each + c % each] = static_cast<float>(factor->At(factor->size() == 1 ? 0 : c));
  return result;
}

// Whether `conv`, with `filter` for its own, can compute its sum with the other term: then that is in the filter.
bool Absorb(const Rewriter& r, const Node& conv, NDArray& filter, ValueId other) {
  if (r.ShapeOf(other) != r.ShapeOf(conv.output)) return false;
  if (const Node* small = Branch(r, other); small != nullptr && small->inputs[0] == conv.inputs[0]) {
    const auto place = PlaceIn(r, conv, *small);
    if (place.has_value()) AddFilter(filter, *r.Constant(small->inputs[1]), *place);
    return place.has_value();
  }
  const std::optional<NDArray> scale = ScaleAsFilter(r, conv, other);
  if (!scale.has_value() || conv.attrs.Ints("strides", {1, 1}) != std::vector<int64_t>{1, 1}) return false;
  std::pair<int64_t, int64_t> place;
  for (size_t d = 0; d < 2; ++d) {
    const int64_t step = conv.attrs.Ints("dilations", {1, 1})[d], lead = PadsOf(conv)[d];
    if (lead % step != 0 || lead / step >= filter.shape()[2 + d]) return false;
    (d == 0 ? place.first : place.second) = lead / step;
  }
  AddFilter(filter, *scale, place);
  return true;
}

// All terms that can be are absorbed at once, by the largest filters first.
absl::StatusOr<bool> MergeBranches(Rewriter& r, Node& node) {
  if (node.op != "add") return false;
  Terms terms = TermsOf(r, node);
  std::vector<ValueId> convs = terms.values;
  std::erase_if(convs, [&](ValueId v) { return Branch(r, v) == nullptr; });
  std::stable_sort(convs.begin(), convs.end(), [&](ValueId a, ValueId b) {
    return NumElements(r.ShapeOf(Branch(r, a)->inputs[1])) > NumElements(r.ShapeOf(Branch(r, b)->inputs[1]));
  });
  std::vector<ValueId>& left = terms.values;
  std::vector<ValueId> merged;
  for (ValueId v : convs) {
    const auto own = std::find(left.begin(), left.end(), v);
    if (own == left.end()) continue;  // absorbed
    const Node& conv = *Branch(r, v);
    NDArray filter = r.Constant(conv.inputs[1])->Clone();
    const size_t count = left.size();
    std::erase_if(left, [&](ValueId other) { return other != v && Absorb(r, conv, filter, other); });
    if (left.size() == count) continue;
    std::erase(left, v);
    const ValueId filter_id = r.AddConstant(std::move(filter));
    TEMPER_ASSIGN_OR_RETURN(ValueId sum, r.Emit("conv2d", conv.attrs, {conv.inputs[0], filter_id}, conv.name));
    merged.push_back(sum);
  }
  if (merged.empty()) return false;
  // The constants next to the convolutions, whose biases they are.
  merged.insert(merged.end(), terms.constants.begin(), terms.constants.end());
  merged.insert(merged.end(), left.begin(), left.end());
  ValueId sum = merged[0];
  if (merged.size() == 1) return r.ReplaceOutput(node, sum);
  for (size_t k = 1; k + 1 < merged.size(); ++k) {
    TEMPER_ASSIGN_OR_RETURN(sum, r.Emit("add", {}, {sum, merged[k]}));
  }
  r.Become(node, "add", {}, {sum, merged.back()});
  return true;
}

bool HasBranch(const Rewriter& r, ValueId v) {
  const Node* sum = r.Producer(v, "add");
  if (sum == nullptr) return Branch(r, v) != nullptr;
  const Terms terms = TermsOf(r, *sum);
  return std::any_of(terms.values.begin(), terms.values.end(), [&](ValueId t) { return Branch(r, t) != nullptr; });
}

// Among branches, a - (b + c) and a - b * c are sums too, c a constant. Elsewhere the order of additions stays.
absl::StatusOr<bool> SubtractAsSum(Rewriter& r, Node& node) {
  if (node.op != "sub" || !IsFloat(r.TypeOf(node.output).dtype)) return false;
  const Node* right = r.Producer(node.inputs[1]);
  const bool sum = right != nullptr && right->op == "add";
  if (right == nullptr || (!sum && right->op != "mul") || !r.OnlyUse(right->output)) return false;
  const NDArray* constant = r.Constant(right->inputs[1]);
  if (constant == nullptr || r.ShapeOf(right->inputs[0]) != r.ShapeOf(right->output) ||
      r.ShapeOf(node.inputs[0]) != r.ShapeOf(node.output) || r.ShapeOf(right->output) != r.ShapeOf(node.output))
    return false;
  if (!HasBranch(r, node.inputs[0]) && !HasBranch(r, right->inputs[0])) return false;
  NDArray minus(constant->dtype(), {});
  minus.Set(0, -1);
  TEMPER_ASSIGN_OR_RETURN(NDArray negative, Evaluate("mul", *constant, minus));
  const ValueId negated = r.AddConstant(std::move(negative));
  if (sum) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId difference, r.Emit("sub", {}, {node.inputs[0], right->inputs[0]}));
    r.Become(node, "add", {}, {difference, negated});
  } else {
    TEMPER_ASSIGN_OR_RETURN(const ValueId product, r.Emit("mul", {}, {right->inputs[0], negated}));
    r.Become(node, "add", {}, {node.inputs[0], product});
  }
  return true;
}

}  // namespace

std::span<const Rewriter::Rule> BranchRules() {
  static const std::vector<Rewriter::Rule> rules = {SubtractAsSum, MergeBranches};
  return rules;
}

}  // namespace temper::passes
