#include <algorithm>

#include "base/division.h"
#include "compiler/graph/passes/simplify.h"
#include "compiler/graph/passes/transposed_conv.h"

namespace temper::passes {
namespace {

absl::StatusOr<bool> TransposedConvAsConv(Rewriter& r, Node& node) {
  const NDArray* weight = node.op != "conv_transpose2d" ? nullptr : r.Constant(node.inputs[1]);
  if (weight == nullptr || !IsFloat(weight->dtype()) || node.attrs.String("result", "") != "") return false;
  return ReplaceByConv(r, node, *weight, [&r](NDArray filters) { return r.AddConstant(std::move(filters)); });
}

// A depthwise convolution with several filters for each channel is one with a filter for each of repeated channels:
// then vectors of channels meet as many filters.
absl::StatusOr<bool> RepeatChannels(Rewriter& r, Node& node) {
  if (node.op != "conv2d") return false;
  const Shape image = r.ShapeOf(node.inputs[0]), filter = r.ShapeOf(node.inputs[1]);
  const int64_t channels = image[1], each = channels == 0 ? 0 : filter[0] / channels;
  if (node.attrs.Int("group", 1) != channels || channels < 2 || each < 2) return false;
  const auto shaped = [](Shape shape) { return IntsAttrs("shape", std::move(shape)); };
  TEMPER_ASSIGN_OR_RETURN(
      ValueId v, r.Emit("reshape", shaped({image[0], channels, 1, image[2], image[3]}), {node.inputs[0]}, node.name));
  TEMPER_ASSIGN_OR_RETURN(v, r.Emit("expand", shaped({image[0], channels, each, image[2], image[3]}), {v}, node.name));
  TEMPER_ASSIGN_OR_RETURN(v, r.Emit("reshape", shaped({image[0], filter[0], image[2], image[3]}), {v}, node.name));
  Attrs attrs = node.attrs;
  attrs.Set("group", filter[0]);
  r.Become(node, "conv2d", std::move(attrs), {v, node.inputs[1]});
  return true;
}

// x * sigmoid(x), as exporters write silu: one division for a division and a multiplication.
absl::StatusOr<bool> RecogniseSilu(Rewriter& r, Node& node) {
  if (node.op != "mul") return false;
  for (size_t i = 0; i < 2; ++i) {
    const Node* sigmoid = r.Producer(node.inputs[i], "sigmoid");
    if (sigmoid == nullptr || !r.OnlyUse(sigmoid->output) || sigmoid->inputs[0] != node.inputs[1 - i]) continue;
    r.Become(node, "silu", {}, {node.inputs[1 - i]});
    return true;
  }
  return false;
}

}  // namespace

std::span<const Rewriter::Rule> FinalRules() {
  static const std::vector<Rewriter::Rule> rules = {TransposedConvAsConv, RepeatChannels, RecogniseSilu};
  return rules;
}

}  // namespace temper::passes
