#include "compiler/graph/passes/simplify.h"

namespace temper::passes {
namespace {

// A transposed convolution whose windows do not overlap is a 1x1 convolution that makes each block of pixels at once,
// and a move. Channels of one pixel of the block stay together, as they lie channels-last.
absl::StatusOr<bool> TransposedConvAsConv(Rewriter& r, Node& node) {
  if (node.op != "conv_transpose2d" || node.attrs.Int("group", 1) != 1) return false;
  const NDArray* weight = r.Constant(node.inputs[1]);
  const std::vector<int64_t> zeros(4, 0), strides = node.attrs.Ints("strides", {1, 1});
  if (weight == nullptr || weight->dtype() != DType::kF32) return false;
  const int64_t in = weight->shape()[0], out = weight->shape()[1], block = weight->shape()[2];
  const bool tiles = weight->shape()[3] == block && strides == std::vector<int64_t>{block, block} && block > 1;
  const bool plain = node.attrs.Ints("pads", zeros) == zeros &&
                     node.attrs.Ints("output_padding", {0, 0}) == std::vector<int64_t>{0, 0} &&
                     node.attrs.Ints("dilations", {1, 1}) == std::vector<int64_t>{1, 1};
  if (!tiles || !plain) return false;
  const int64_t pixels = block * block;
  NDArray dense(DType::kF32, {pixels * out, in, 1, 1});
  for (int64_t i = 0; i < in; ++i) {
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t p = 0; p < pixels; ++p) {
        dense.as<float>()[static_cast<size_t>((p * out + o) * in + i)] =
            weight->as<float>()[static_cast<size_t>((i * out + o) * pixels + p)];
      }
    }
  }
  const ValueId dense_id = r.AddConstant(std::move(dense));
  Attrs conv;
  conv.Set("strides", std::vector<int64_t>{1, 1});
  conv.Set("pads", zeros);
  conv.Set("dilations", std::vector<int64_t>{1, 1});
  conv.Set("group", int64_t{1});
  TEMPER_ASSIGN_OR_RETURN(ValueId blocks, r.Emit("conv2d", std::move(conv), {node.inputs[0], dense_id}));
  Attrs move;
  move.Set("blocksize", block);
  move.Set("mode", std::string("DCR"));
  r.Become(node, "depth_to_space", std::move(move), {blocks});
  return true;
}

// A depthwise convolution with several filters for each channel is one with a filter for each of repeated channels:
// then vectors of channels meet as many filters.
absl::StatusOr<bool> RepeatChannels(Rewriter& r, Node& node) {
  if (node.op != "conv2d") return false;
  const Shape image = r.ShapeOf(node.inputs[0]), filter = r.ShapeOf(node.inputs[1]);
  const int64_t channels = image[1], each = channels == 0 ? 0 : filter[0] / channels;
  if (node.attrs.Int("group", 1) != channels || channels < 2 || each < 2) return false;
  const auto shaped = [](Shape shape) {
    Attrs attrs;
    attrs.Set("shape", std::move(shape));
    return attrs;
  };
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
