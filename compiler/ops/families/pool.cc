// Pooling over the two last axes of NCHW; global pooling is a reduction over them.
#include "compiler/ops/families/pool.h"

#include "compiler/ops/families/compute_util.h"
#include "compiler/ops/families/families.h"

namespace temper::ops {

using ir::Expr;

absl::StatusOr<Window> PoolWindow(const Attrs& attrs) {
  std::vector<int64_t> kernel = attrs.Ints("kernel");
  if (kernel.size() != 2) return InvalidType("kernel has two elements");
  return WindowOf(attrs, kernel[0], kernel[1]);
}

namespace {

absl::StatusOr<TensorType> InferPool(const Attrs& attrs, const TensorType& x) {
  if (x.shape.size() != 4) return InvalidType("takes rank 4");
  TEMPER_ASSIGN_OR_RETURN(Window window, PoolWindow(attrs));
  bool ceil_mode = attrs.Int("ceil_mode", 0) != 0;
  TensorType result{x.dtype, {x.shape[0], x.shape[1]}, {}};
  for (int i = 0; i < 2; ++i) {
    int64_t extent = x.shape[2 + i], room = extent + window.pad_begin[i] + window.pad_end[i] - window.Span(i);
    if (room < 0) return InvalidType("the kernel is larger than the padded input");
    if (window.pad_begin[i] >= window.Span(i) || window.pad_end[i] >= window.Span(i))
      return InvalidType("pads are smaller than the kernel");
    int64_t positions = (room + (ceil_mode ? window.stride[i] - 1 : 0)) / window.stride[i] + 1;
    // A window that would start beyond the input sees nothing and is left out.
    if ((positions - 1) * window.stride[i] >= extent + window.pad_begin[i]) --positions;
    result.shape.push_back(positions);
  }
  return result;
}

absl::StatusOr<TensorType> InferMax(const Attrs& attrs, std::span<const TensorType> in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"kernel", AttrKind::kInts},
                                            {"strides", AttrKind::kInts},
                                            {"pads", AttrKind::kInts},
                                            {"dilations", AttrKind::kInts},
                                            {"ceil_mode", AttrKind::kInt}}));
  if (in[0].dtype == DType::kBool) return InvalidType("takes numbers");
  return InferPool(attrs, in[0]);
}

absl::StatusOr<TensorType> InferAverage(const Attrs& attrs, std::span<const TensorType> in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"kernel", AttrKind::kInts},
                                            {"strides", AttrKind::kInts},
                                            {"pads", AttrKind::kInts},
                                            {"dilations", AttrKind::kInts},
                                            {"ceil_mode", AttrKind::kInt},
                                            {"count_include_pad", AttrKind::kInt}}));
  if (!IsFloat(in[0].dtype)) return InvalidType("takes floats");
  return InferPool(attrs, in[0]);
}

// How many of a window's taps at output position `o` count along one axis: those from `low` to `high`, exclusive.
Expr TapCount(const Expr& o, int64_t low, int64_t high, const Window& w, int d) {
  Expr start = o * Expr(w.stride[d]) - Expr(w.pad_begin[d]);
  Expr first = ir::Max(Expr(0), (Expr(low + w.dilation[d] - 1) - start) / Expr(w.dilation[d]));
  Expr last = ir::Min(Expr(w.kernel[d]), (Expr(high + w.dilation[d] - 1) - start) / Expr(w.dilation[d]));
  return last - first;
}

}  // namespace

ir::Tensor PoolStage(ir::ProgramBuilder& b, const std::string& name, const ir::Tensor& x, const Window& window,
                     const std::vector<int>& axes, const TensorType& output, ir::Combiner combiner) {
  std::vector<int64_t> taps;
  for (int d : axes) taps.push_back(window.kernel[d]);
  return ReduceStage(b, name, output, taps, combiner, [=](const Index& i, const Index& r) {
    std::vector<Expr> conditions;
    Index at = i;
    for (size_t a = 0; a < axes.size(); ++a) {
      const int d = axes[a];
      const int64_t extent = x.shape()[2 + d];
      const Expr pixel =
          i[2 + d] * Expr(window.stride[d]) + r[a] * Expr(window.dilation[d]) - Expr(window.pad_begin[d]);
      const int64_t last = (output.shape[2 + d] - 1) * window.stride[d] + window.Span(d) - 1 - window.pad_begin[d];
      if (window.pad_begin[d] > 0) conditions.push_back(Expr(0) <= pixel);
      if (last >= extent) conditions.push_back(pixel < Expr(extent));
      at[2 + d] = pixel;
    }
    return InBounds(conditions, x(at), ir::Identity(combiner, x.dtype()));
  });
}

ir::Tensor MeanOfWindows(const ir::Tensor& sum, const Attrs& attrs, const Window& window, const Shape& image,
                         const TensorType& output) {
  bool include_pad = attrs.Int("count_include_pad", 0) != 0;
  bool always_full = true;
  for (int d = 0; d < 2; ++d) {
    int64_t high = image[2 + d] + (include_pad ? window.pad_end[d] : 0);
    int64_t end = (output.shape[2 + d] - 1) * window.stride[d] + window.Span(d) - window.pad_begin[d];
    always_full = always_full && (include_pad || window.pad_begin[d] == 0) && end <= high;
  }
  return ir::Tensor(output.dtype, output.shape, [=](const Index& i) {
    if (always_full)
      return sum(i) * ir::Const(1.0 / static_cast<double>(window.kernel[0] * window.kernel[1]), output.dtype);
    Expr count = 1;
    for (int d = 0; d < 2; ++d) {
      int64_t low = include_pad ? -window.pad_begin[d] : 0, high = image[2 + d] + (include_pad ? window.pad_end[d] : 0);
      count = count * TapCount(i[2 + d], low, high, window, d);
    }
    return sum(i) / ir::Cast(count, output.dtype);
  });
}

namespace {

absl::StatusOr<ir::Tensor> ComputeMax(ir::ProgramBuilder& b, const Attrs& attrs, std::span<const ir::Tensor> in,
                                      const TensorType& output) {
  TEMPER_ASSIGN_OR_RETURN(Window window, PoolWindow(attrs));
  return PoolStage(b, "max_pool", in[0], window, {0, 1}, output, ir::Combiner::kMax);
}

absl::StatusOr<ir::Tensor> ComputeAverage(ir::ProgramBuilder& b, const Attrs& attrs, std::span<const ir::Tensor> in,
                                          const TensorType& output) {
  TEMPER_ASSIGN_OR_RETURN(Window window, PoolWindow(attrs));
  const ir::Tensor sum = PoolStage(b, "avg_pool", in[0], window, {0, 1}, output, ir::Combiner::kSum);
  return MeanOfWindows(sum, attrs, window, in[0].shape(), output);
}

double PoolFlops(const Attrs& attrs, std::span<const TensorType>, const TensorType& output) {
  std::vector<int64_t> kernel = attrs.Ints("kernel", {1, 1});
  return Elements(output) * static_cast<double>(kernel[0] * kernel[1]);
}

}  // namespace

std::vector<OpDef> PoolOps() {
  std::vector<OpDef> ops = {
      {"max_pool2d", OpPattern::kReduction, 1, 1, InferMax, ComputeMax, PoolFlops},
      {"avg_pool2d", OpPattern::kReduction, 1, 1, InferAverage, ComputeAverage, PoolFlops},
  };
  for (OpDef& op : ops) op.windows = true;
  ops.front().exact = true;  // the largest
  return ops;
}

}  // namespace temper::ops
