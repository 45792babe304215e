// Which ONNX operators take operands that vary along any axis. Converters of the others may compute with the sizes of
// an image, a signal or a cache, which are those of the most elements: they take what varies along its first axis,
// which is one of examples or of boxes.
#include <algorithm>
#include <string_view>

#include "compiler/frontend/onnx/extents.h"

namespace temper::onnx_frontend {
namespace {

constexpr std::string_view kAlongAnyAxis[] = {
    // that move elements
    "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Concat", "Split", "Slice", "Gather", "Expand", "Tile",
    "Pad", "GatherElements", "OneHot", "ScatterElements", "Scatter", "Trilu",
    // that combine them
    "MatMul", "Gemm", "Einsum", "Conv", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "CumSum",
    "LSTM", "GRU", "RNN", "Attention", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1",
    "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp", "ArgMax", "ArgMin", "Softmax", "LogSoftmax",
    "TopK", "BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization",
    "RMSNormalization", "MeanVarianceNormalization", "LpNormalization",
    // that find some of them, or tell how many there are
    "NonMaxSuppression", "Compress", "NonZero", "Unique", "Shape", "Size", "Range", "ConstantOfShape",
    // of quantised numbers
    "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "QLinearMatMul",
    "QLinearConv", "MatMulNBits", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QLinearAdd", "QLinearMul",
    "QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", "QLinearConcat", "QGemm", "DynamicQuantizeLSTM",
    // that ONNX Runtime fuses
    "Gelu", "FastGelu", "BiasGelu", "QuickGelu", "SimplifiedLayerNormalization", "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization", "EmbedLayerNormalization", "FusedMatMul", "TransposeMatMul", "FusedConv",
    "FusedGemm", "QAttention", "MultiHeadAttention",
    // of other operators
    "If", "Loop", "Scan", "SequenceConstruct", "SequenceInsert", "SequenceAt", "SequenceMap", "SplitToSequence",
    "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement"};

// Each element for itself, or with those beside it in other operands.
bool IsOfElements(std::string_view op) {
  const auto has = [op](std::span<const TableEntry> table) {
    return std::ranges::count(table, op, &TableEntry::op) > 0;
  };
  return has(ElementwiseTable()) || has(MathTable()) || has(BitsTable());
}

}  // namespace

absl::Status MayVary(Context& c, const OnnxNode& n) {
  const std::string_view op = n.proto.op_type();
  if (IsOfElements(op) || std::ranges::count(kAlongAnyAxis, op) > 0) return absl::OkStatus();
  for (const ValueId v : n.inputs) {
    if (v == kNoValue) continue;
    TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, v, op));
    TEMPER_RETURN_IF_ERROR(MustBeKnownAlong(c, v, AxesFrom(1, c.Rank(v)), op));
  }
  return absl::OkStatus();
}

}  // namespace temper::onnx_frontend
