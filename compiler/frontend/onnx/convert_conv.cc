// Convolutions, pooling and matrix products. One spatial axis is two with the first of extent 1; for three see
// volume.cc.
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/window.h"

namespace temper::onnx_frontend {
namespace {

// [n, c, w] as [n, c, 1, w].
absl::StatusOr<ValueId> AsImage(Context& c, ValueId v) {
  const Shape& shape = c.ShapeOf(v);
  if (shape.size() == 4) return v;
  if (shape.size() != 3)
    return absl::UnimplementedError(absl::StrCat("rank ", shape.size(), " is not supported, only 3 and 4"));
  return c.Reshape(v, {shape[0], shape[1], 1, shape[2]});
}
// And back, if the model's `like` has three axes.
absl::StatusOr<ValueId> FromImage(Context& c, ValueId v, ValueId like) {
  Shape shape = c.ShapeOf(v);
  if (c.Rank(like) == 3) shape.erase(shape.begin() + 2);
  return c.Reshape(v, std::move(shape));
}
absl::Status SetImage(Context& c, const OnnxNode& n, ValueId v) {
  TEMPER_ASSIGN_OR_RETURN(v, FromImage(c, v, n.Input(0)));
  return c.Set(n, v);
}

}  // namespace

absl::StatusOr<ValueId> ConvOf(Context& c, const OnnxNode& n, ValueId x, ValueId weight, ValueId bias, DType sums) {
  TEMPER_ASSIGN_OR_RETURN(ValueId image, AsImage(c, x));
  if (c.Rank(weight) != c.Rank(x)) return absl::InvalidArgumentError("data and weight differ in rank");
  TEMPER_ASSIGN_OR_RETURN(const ValueId filters, AsImage(c, weight));
  const Shape& shape = c.ShapeOf(weight);
  TEMPER_ASSIGN_OR_RETURN(Window w, WindowOf(n, Ints(shape.begin() + 2, shape.end()), c.ShapeOf(image)));
  TEMPER_ASSIGN_OR_RETURN(const Varyings moved, MoveAlongVarying(c, n, 0, w, image));
  Attrs attrs = WindowAttrs(w);
  attrs.Set("group", n.Int("group", 1));
  if (sums != c.TypeOf(x).dtype) attrs.Set("result", std::string(Name(sums)));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("conv2d", std::move(attrs), {image, filters}));
  c.AddVaryings(v, moved);
  TEMPER_ASSIGN_OR_RETURN(v, AddBias(c, v, bias));
  return FromImage(c, v, x);
}

namespace {

absl::Status Conv(Context& c, const OnnxNode& n) {
  if (c.Rank(n.Input(0)) == 5) return VolumeConv(c, n);
  TEMPER_ASSIGN_OR_RETURN(const ValueId v,
                          ConvOf(c, n, n.Input(0), n.Input(1), n.Input(2), c.TypeOf(n.Input(0)).dtype));
  return c.Set(n, v);
}

absl::Status ConvTranspose(Context& c, const OnnxNode& n) {
  if (c.Rank(n.Input(0)) == 5) {
    TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, n.Input(0), "ConvTranspose of volumes"));
    TEMPER_RETURN_IF_ERROR(MustBeKnownAlong(c, n.Input(0), AxesFrom(1, 5), "ConvTranspose of volumes"));
    return VolumeConvTranspose(c, n);
  }
  TEMPER_ASSIGN_OR_RETURN(ValueId x, AsImage(c, n.Input(0)));
  if (c.Rank(n.Input(1)) != c.Rank(n.Input(0))) return absl::InvalidArgumentError("data and weight differ in rank");
  TEMPER_ASSIGN_OR_RETURN(ValueId weight, AsImage(c, n.Input(1)));
  const Shape& shape = c.ShapeOf(n.Input(1));
  TEMPER_ASSIGN_OR_RETURN(Window w, WindowOf(n, Ints(shape.begin() + 2, shape.end()), c.ShapeOf(x)));
  Ints extra = Widen(n.Ints("output_padding", Ints(shape.size() - 2, 0)), 0);
  if (extra.size() != 2) return absl::InvalidArgumentError("output_padding has one element a spatial axis");
  TEMPER_RETURN_IF_ERROR(SetTransposedPads(n, c.ShapeOf(x), extra, w));
  Attrs attrs = WindowAttrs(w);
  attrs.Set("group", n.Int("group", 1));
  attrs.Set("output_padding", extra);
  TEMPER_ASSIGN_OR_RETURN(const Varyings spread, SpreadAlongVarying(c, n, w, extra, x));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("conv_transpose2d", std::move(attrs), {x, weight}));
  c.AddVaryings(v, spread);
  TEMPER_ASSIGN_OR_RETURN(v, AddBias(c, v, n.Input(2)));
  return SetImage(c, n, v);
}

absl::StatusOr<ValueId> PooledAs(Context& c, const OnnxNode& n, Window w, ValueId x, bool counts_pads) {
  const bool average = n.proto.op_type() == "AveragePool";
  const DType dtype = c.TypeOf(x).dtype;
  const double least = IsFloat(dtype) ? -std::numeric_limits<double>::infinity() : Lowest(dtype);
  TEMPER_ASSIGN_OR_RETURN(const Varyings moved, MoveAlongVarying(c, n, average ? 0 : least, w, x));
  Attrs attrs = WindowAttrs(w);
  attrs.Set("kernel", w.kernel);
  if (n.Int("ceil_mode", 0) != 0) attrs.Set("ceil_mode", int64_t{1});
  if (average && counts_pads) attrs.Set("count_include_pad", int64_t{1});
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, c.Call(average ? "avg_pool2d" : "max_pool2d", std::move(attrs), {x}));
  c.AddVaryings(v, moved);
  return v;
}

// Whether windows of an average may see fewer elements at an end that only the run knows.
bool CountsToVaryingEnd(Context& c, const OnnxNode& n, const Window& w, ValueId x) {
  return n.proto.op_type() == "AveragePool" && std::ranges::any_of(c.VaryingsOf(x), [&](const Varying& v) {
           if (v.axis < 2) return false;
           const size_t d = static_cast<size_t>(v.axis) - 2;
           const bool same = n.String("auto_pad", "NOTSET").starts_with("SAME");
           const bool pads = same || w.pads[d] > 0 || w.pads[w.kernel.size() + d] > 0;
           return n.Int("ceil_mode", 0) != 0 || (pads && n.Int("count_include_pad", 0) == 0);
         });
}

}  // namespace

absl::StatusOr<ValueId> PoolOf(Context& c, const OnnxNode& n, const Window& w, ValueId x) {
  const bool counts_pads = n.Int("count_include_pad", 0) != 0;
  if (!CountsToVaryingEnd(c, n, w, x)) return PooledAs(c, n, w, x, counts_pads);
  if (counts_pads) TEMPER_RETURN_IF_ERROR(MustBeKnownAlong(c, x, {2, 3}, "AveragePool of counted pads in ceil_mode"));
  // The sum of what is there by how much that is, each by the window's size.
  const Shape& shape = c.ShapeOf(x);
  TEMPER_ASSIGN_OR_RETURN(ValueId ones, c.Expand(c.Scalar(c.TypeOf(x).dtype, 1), {1, 1, shape[2], shape[3]}));
  Varyings spatial = c.VaryingsOf(x);
  std::erase_if(spatial, [](const Varying& v) { return v.axis < 2; });
  TEMPER_ASSIGN_OR_RETURN(ones, WithVaryings(c, ones, spatial));
  TEMPER_ASSIGN_OR_RETURN(const ValueId sums, PooledAs(c, n, w, x, true));
  TEMPER_ASSIGN_OR_RETURN(const ValueId counts, PooledAs(c, n, w, ones, true));
  return c.Call("div", {}, {sums, counts});
}

namespace {

absl::Status Pool(Context& c, const OnnxNode& n) {
  const Ints kernel = n.Ints("kernel_shape");
  if (kernel.size() + 2 != c.ShapeOf(n.Input(0)).size())
    return absl::InvalidArgumentError("kernel_shape has one element a spatial axis");
  if (n.proto.output_size() > 1 && !n.proto.output(1).empty()) return MaxPoolWithIndices(c, n);
  if (kernel.size() == 3) return VolumePool(c, n);
  TEMPER_ASSIGN_OR_RETURN(ValueId x, AsImage(c, n.Input(0)));
  TEMPER_ASSIGN_OR_RETURN(Window w, WindowOf(n, kernel, c.ShapeOf(x)));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, PoolOf(c, n, w, x));
  return SetImage(c, n, v);
}

absl::Status GlobalPool(Context& c, const OnnxNode& n) {
  Ints axes = AxesFrom(2, c.Rank(n.Input(0)));
  if (axes.empty()) return absl::InvalidArgumentError("takes rank 3 or more");
  const char* op = n.proto.op_type() == "GlobalAveragePool" ? "reduce_mean" : "reduce_max";
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Reduce(op, n.Input(0), std::move(axes), true));
  return c.Set(n, v);
}

// Vectors become matrices of one row or column for the product, and the added axis goes again.
absl::Status MatMul(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, OfMatrices(c, n.Input(0), n.Input(1), [&](ValueId a, ValueId b) {
                            return c.Call("matmul", {}, {a, b});
                          }));
  return c.Set(n, v);
}

// alpha * op(A) * op(B) + beta * C
absl::Status Gemm(Context& c, const OnnxNode& n) {
  Attrs attrs;
  if (n.Int("transA", 0) != 0) attrs.Set("trans_a", int64_t{1});
  if (n.Int("transB", 0) != 0) attrs.Set("trans_b", int64_t{1});
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("matmul", std::move(attrs), {n.Input(0), n.Input(1)}));
  const DType dtype = c.TypeOf(v).dtype;
  if (const double alpha = n.Float("alpha", 1); alpha != 1) {
    TEMPER_ASSIGN_OR_RETURN(v, c.Call("mul", {}, {v, c.Scalar(dtype, alpha)}));
  }
  ValueId bias = n.Input(2);
  const double beta = n.Float("beta", 1);
  if (bias != kNoValue && beta != 0) {
    if (beta != 1) {
      TEMPER_ASSIGN_OR_RETURN(bias, c.Call("mul", {}, {bias, c.Scalar(dtype, beta)}));
    }
    TEMPER_ASSIGN_OR_RETURN(v, c.Call("add", {}, {v, bias}));
  }
  return c.Set(n, v);
}

}  // namespace

std::span<const TableEntry> ConvTable() {
  static constexpr TableEntry kTable[] = {{"Conv", Conv, 2, Extents::kAlongAnyAxis},
                                          {"ConvTranspose", ConvTranspose, 2, Extents::kAlongAnyAxis},
                                          {"DeformConv", DeformConv, 3},
                                          {"MaxPool", Pool, 1, Extents::kAlongAnyAxis},
                                          {"AveragePool", Pool, 1, Extents::kAlongAnyAxis},
                                          {"GlobalAveragePool", GlobalPool, 1, Extents::kAlongAnyAxis},
                                          {"GlobalMaxPool", GlobalPool, 1, Extents::kAlongAnyAxis},
                                          {"MatMul", MatMul, 2, Extents::kAlongAnyAxis},
                                          {"Gemm", Gemm, 2, Extents::kAlongAnyAxis}};
  return kTable;
}

}  // namespace temper::onnx_frontend
