// Two-dimensional convolutions, x in logical NCHW; weights are OIHW for conv2d and IOHW for conv_transpose2d.
#include "absl/strings/str_cat.h"
#include "compiler/ops/families/compute_util.h"
#include "compiler/ops/families/families.h"
#include "compiler/ops/families/infer_util.h"

namespace temper::ops {
namespace {

using ir::Expr;

absl::Status CheckOperands(const Attrs& attrs, std::span<const TensorType> in) {
  TEMPER_RETURN_IF_ERROR(CheckFactors(attrs, in[0].dtype, in[1].dtype));
  if (in[0].shape.size() != 4 || in[1].shape.size() != 4) return InvalidType("operands have rank 4");
  int64_t group = attrs.Int("group", 1);
  if (group < 1 || group > in[0].shape[1]) return InvalidType("group is at least 1 and at most the channels");
  return absl::OkStatus();
}

absl::StatusOr<TensorType> InferConv(const Attrs& attrs, std::span<const TensorType> in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"strides", AttrKind::kInts},
                                            {"pads", AttrKind::kInts},
                                            {"dilations", AttrKind::kInts},
                                            {"group", AttrKind::kInt},
                                            {"result", AttrKind::kString},
                                            {"tf32", AttrKind::kInt},         // 1: f32 may be rounded to TF32
                                            {"bf16", AttrKind::kInt},         // 1: ... to bf16
                                            {"winograd", AttrKind::kInt}}));  // 0: not by this algorithm
  TEMPER_RETURN_IF_ERROR(CheckOperands(attrs, in));
  const Shape& x = in[0].shape;
  const Shape& w = in[1].shape;
  int64_t group = attrs.Int("group", 1);
  if (x[1] % group != 0 || w[1] != x[1] / group)
    return InvalidType(absl::StrCat("input has ", x[1], " channels, weight takes ", w[1], " in ", group, " groups"));
  if (w[0] % group != 0) return InvalidType("group divides the output channels");
  TEMPER_ASSIGN_OR_RETURN(Window window, WindowOf(attrs, w[2], w[3]));
  Shape shape = {x[0], w[0]};
  for (int i = 0; i < 2; ++i) {
    int64_t room = x[2 + i] + window.pad_begin[i] + window.pad_end[i] - window.Span(i);
    if (room < 0) return InvalidType("the kernel is larger than the padded input");
    shape.push_back(room / window.stride[i] + 1);
  }
  TEMPER_ASSIGN_OR_RETURN(const DType result, ContractionResult(attrs, in[0].dtype));
  return TensorType{result, std::move(shape), {}};
}

absl::StatusOr<ir::Tensor> ComputeConv(ir::ProgramBuilder& b, const Attrs& attrs, std::span<const ir::Tensor> in,
                                       const TensorType& output) {
  ir::Tensor x = MaterializeFormula(b, "data", in[0], output), weight = MaterializeFormula(b, "weight", in[1], {});
  const Shape& w = weight.shape();
  TEMPER_ASSIGN_OR_RETURN(Window window, WindowOf(attrs, w[2], w[3]));
  int64_t group = attrs.Int("group", 1), filters = w[0] / group, channels = w[1];
  Shape image = x.shape(), grid = output.shape;
  // Reduced in the order of a channels-last window: rows, columns, channels.
  return ReduceStage(
      b, "conv2d", output, {w[2], w[3], channels}, ir::Combiner::kSum, [=](const Index& i, const Index& r) {
        Expr channel = group == 1 ? r[2] : i[1] / Expr(filters) * Expr(channels) + r[2];
        std::vector<Expr> conditions;
        Expr pixel[2];
        for (int d = 0; d < 2; ++d) {
          pixel[d] = i[2 + d] * Expr(window.stride[d]) + r[d] * Expr(window.dilation[d]) - Expr(window.pad_begin[d]);
          int64_t last = (grid[2 + d] - 1) * window.stride[d] + window.Span(d) - 1 - window.pad_begin[d];
          if (window.pad_begin[d] > 0) conditions.push_back(Expr(0) <= pixel[d]);
          if (last >= image[2 + d]) conditions.push_back(pixel[d] < Expr(image[2 + d]));
        }
        Expr seen = InBounds(conditions, x({i[0], channel, pixel[0], pixel[1]}), ir::Const(0, x.dtype()));
        return seen * weight({i[1], r[2], r[0], r[1]});
      });
}

// What multiplies by padding is no work: a kernel may leave it out.
double ConvFlops(const Attrs& attrs, std::span<const TensorType> in, const TensorType& output) {
  const Shape &x = in[0].shape, &w = in[1].shape, &out = output.shape;
  const absl::StatusOr<Window> window = WindowOf(attrs, w[2], w[3]);
  if (!window.ok()) return 0;  // the type rule has refused it
  double flops = 2 * static_cast<double>(out[0] * out[1]) * static_cast<double>(w[1]);
  for (int d = 0; d < 2; ++d) {
    flops *= static_cast<double>(
        TapsInside(out[2 + d], w[2 + d], window->stride[d], window->dilation[d], window->pad_begin[d], x[2 + d]));
  }
  return flops;
}

absl::StatusOr<TensorType> InferTransposed(const Attrs& attrs, std::span<const TensorType> in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"strides", AttrKind::kInts},
                                            {"pads", AttrKind::kInts},
                                            {"dilations", AttrKind::kInts},
                                            {"output_padding", AttrKind::kInts},
                                            {"result", AttrKind::kString},
                                            {"group", AttrKind::kInt}}));
  TEMPER_RETURN_IF_ERROR(CheckOperands(attrs, in));
  const Shape& x = in[0].shape;
  const Shape& w = in[1].shape;
  int64_t group = attrs.Int("group", 1);
  if (w[0] != x[1]) return InvalidType(absl::StrCat("input has ", x[1], " channels, weight takes ", w[0]));
  if (w[0] % group != 0) return InvalidType("group divides the input channels");
  if (int64_t channels; __builtin_mul_overflow(w[1], group, &channels)) return InvalidType("too many output channels");
  TEMPER_ASSIGN_OR_RETURN(Window window, WindowOf(attrs, w[2], w[3]));
  std::vector<int64_t> extra = attrs.Ints("output_padding", {0, 0});
  if (extra.size() != 2) return InvalidType("output_padding has two elements");
  Shape shape = {x[0], w[1] * group};
  for (int i = 0; i < 2; ++i) {
    if (extra[i] < 0 || extra[i] >= std::max(window.stride[i], window.dilation[i]))
      return InvalidType("output_padding is below stride or dilation");
    int64_t extent =
        (x[2 + i] - 1) * window.stride[i] + window.Span(i) + extra[i] - window.pad_begin[i] - window.pad_end[i];
    if (extent < 1) return InvalidType("pads leave no output");
    shape.push_back(extent);
  }
  TEMPER_ASSIGN_OR_RETURN(const DType result, ContractionResult(attrs, in[0].dtype));
  return TensorType{result, std::move(shape), {}};
}

// Seen from the output: input position p meets pixel o at tap r where p * stride = o + pad - r * dilation.
absl::StatusOr<ir::Tensor> ComputeTransposed(ir::ProgramBuilder& b, const Attrs& attrs, std::span<const ir::Tensor> in,
                                             const TensorType& output) {
  ir::Tensor x = MaterializeFormula(b, "data", in[0], output), weight = MaterializeFormula(b, "weight", in[1], {});
  const Shape& w = weight.shape();
  TEMPER_ASSIGN_OR_RETURN(Window window, WindowOf(attrs, w[2], w[3]));
  int64_t inputs = w[0] / attrs.Int("group", 1), filters = w[1];
  bool grouped = attrs.Int("group", 1) > 1;
  Shape grid = x.shape();
  return ReduceStage(
      b, "conv_transpose2d", output, {w[2], w[3], inputs}, ir::Combiner::kSum, [=](const Index& i, const Index& r) {
        Expr channel = grouped ? i[1] / Expr(filters) * Expr(inputs) + r[2] : r[2];
        std::vector<Expr> conditions;
        Expr position[2];
        for (int d = 0; d < 2; ++d) {
          Expr scaled = i[2 + d] + Expr(window.pad_begin[d]) - r[d] * Expr(window.dilation[d]);
          position[d] = scaled / Expr(window.stride[d]);
          conditions.push_back(Expr(0) <= scaled);
          conditions.push_back(position[d] < Expr(grid[2 + d]));
          if (window.stride[d] > 1) conditions.push_back(ir::Eq(scaled % Expr(window.stride[d]), Expr(0)));
        }
        Expr seen = InBounds(conditions, x({i[0], channel, position[0], position[1]}), ir::Const(0, x.dtype()));
        return seen * weight({channel, grouped ? i[1] % Expr(filters) : i[1], r[0], r[1]});
      });
}

double ConvTerms(const Attrs&, std::span<const TensorType> in) {
  const Shape& w = in[1].shape;
  return static_cast<double>(w[1] * w[2] * w[3]);
}

double TransposedTerms(const Attrs& attrs, std::span<const TensorType> in) {
  const Shape& w = in[1].shape;
  return static_cast<double>(w[0] / attrs.Int("group", 1) * w[2] * w[3]);
}

double TransposedFlops(const Attrs&, std::span<const TensorType> in, const TensorType&) {
  const Shape& w = in[1].shape;
  return 2 * Elements(in[0]) * static_cast<double>(w[1] * w[2] * w[3]);
}

}  // namespace

std::vector<OpDef> ConvOps() {
  std::vector<OpDef> ops = {
      {"conv2d", OpPattern::kAnchor, 2, 2, InferConv, ComputeConv, ConvFlops},
      {"conv_transpose2d", OpPattern::kAnchor, 2, 2, InferTransposed, ComputeTransposed, TransposedFlops},
  };
  ops[0].terms = ConvTerms;
  ops[1].terms = TransposedTerms;
  for (OpDef& op : ops) {
    op.types = OpTypes::kContracts;
    op.windows = true;
  }
  return ops;
}

}  // namespace temper::ops
