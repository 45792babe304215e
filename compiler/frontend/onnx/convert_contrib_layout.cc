// Operators of com.microsoft that ONNX has too, under their own names, or for images whose channels come first.
#include "compiler/frontend/onnx/rewrite.h"

namespace temper::onnx_frontend {
namespace {

// A node of that name over all operands, of which the first is an image.
absl::Status OfImage(Context& c, const OnnxNode& n, const char* op, bool last) {
  const int64_t rank = c.Rank(n.Input(0));
  if (rank < 3) return absl::InvalidArgumentError("takes an image");
  Rewrite r(c, n);
  NodeNames operands;
  for (size_t i = 0; i < n.inputs.size(); ++i) operands.push_back(r.Operand(i));
  if (last) operands[0] = r.ChannelsSecond(operands[0], rank);
  const std::string y = r.Add(op, operands);
  r.WithCalls({"channels_last"});
  return r.Finish({last ? r.ChannelsLast(y, rank) : y});
}

absl::Status NhwcMaxPool(Context& c, const OnnxNode& n) { return OfImage(c, n, "MaxPool", true); }
absl::Status QLinearConv(Context& c, const OnnxNode& n) {
  return OfImage(c, n, "QLinearConv", n.Int("channels_last", 0) != 0);
}

// ONNX's operator of the same name.
absl::Status AsOnnx(Context& c, const OnnxNode& n) {
  Rewrite r(c, n);
  NodeNames operands;
  for (size_t i = 0; i < n.inputs.size(); ++i) operands.push_back(r.Operand(i));
  const std::string y = r.Add(n.proto.op_type().c_str(), operands);
  r.WithCalls();
  return r.Finish({y});
}

absl::Status ExpandDims(Context& c, const OnnxNode& n) {
  Rewrite r(c, n);
  return r.Finish({r.Add("Unsqueeze", {r.Operand(0), r.Operand(1)})});
}

}  // namespace

std::span<const TableEntry> ContribLayoutTable() {
  static constexpr TableEntry kTable[] = {{"NhwcMaxPool", NhwcMaxPool, 1, Extents::kAlongAnyAxis},
                                          {"QLinearConv", QLinearConv, 8, Extents::kAlongAnyAxis},
                                          {"Trilu", AsOnnx, 1, Extents::kAlongAnyAxis},
                                          {"Pad", AsOnnx, 2, Extents::kAlongAnyAxis},
                                          {"GatherND", AsOnnx, 2, Extents::kAlongAnyAxis},
                                          {"GridSample", AsOnnx, 2, Extents::kAlongAnyAxis},
                                          {"Range", AsOnnx, 2, Extents::kAlongAnyAxis},
                                          {"ExpandDims", ExpandDims, 2, Extents::kAlongAnyAxis}};
  return kTable;
}

}  // namespace temper::onnx_frontend
