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
  if (c.Rank(n.Input(0)) == 5) return VolumeConvTranspose(c, n);
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

bool Averages(const OnnxNode& n) { return n.proto.op_type() == "AveragePool"; }

absl::StatusOr<ValueId> PooledAs(Context& c, const OnnxNode& n, Window w, ValueId x, bool counts_pads) {
  const DType dtype = c.TypeOf(x).dtype;
  const double least = IsFloat(dtype) ? -std::numeric_limits<double>::infinity() : Lowest(dtype);
  TEMPER_ASSIGN_OR_RETURN(const Varyings moved, MoveAlongVarying(c, n, Averages(n) ? 0 : least, w, x));
  const auto pooled = w.kernel.size() == 3 ? PooledVolume : PooledImage;
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, pooled(c, n, w, x, counts_pads));
  c.AddVaryings(v, moved);
  return v;
}

// Whether windows of an average may see fewer elements at an end that only the run knows.
bool CountsToVaryingEnd(Context& c, const OnnxNode& n, const Window& w, ValueId x) {
  return Averages(n) && std::ranges::any_of(c.VaryingsOf(x), [&](const Varying& v) {
           if (v.axis < 2) return false;
           const size_t d = static_cast<size_t>(v.axis) - 2;
           const bool same = n.String("auto_pad", "NOTSET").starts_with("SAME");
           const bool pads = same || w.pads[d] > 0 || w.pads[w.kernel.size() + d] > 0;
           return n.Int("ceil_mode", 0) != 0 || (pads && n.Int("count_include_pad", 0) == 0);
         });
}

}  // namespace

absl::StatusOr<ValueId> PooledImage(Context& c, const OnnxNode& n, const Window& w, ValueId x, bool counts_pads) {
  Attrs attrs = WindowAttrs(w);
  attrs.Set("kernel", w.kernel);
  if (n.Int("ceil_mode", 0) != 0) attrs.Set("ceil_mode", int64_t{1});
  if (Averages(n) && counts_pads) attrs.Set("count_include_pad", int64_t{1});
  return c.Call(Averages(n) ? "avg_pool2d" : "max_pool2d", std::move(attrs), {x});
}

namespace {

// Ones where `x` has elements, of one example and one channel, and where it has pads that count.
absl::StatusOr<ValueId> OnesOf(Context& c, const Window& w, ValueId x, bool counts_pads) {
  Shape shape = c.ShapeOf(x);
  shape[0] = shape[1] = 1;
  Varyings spatial = c.VaryingsOf(x);
  std::erase_if(spatial, [](const Varying& v) { return v.axis < 2; });
  for (size_t d = 0; counts_pads && d < w.kernel.size(); ++d) {
    const int64_t pads = w.pads[d] + w.pads[w.kernel.size() + d];
    shape[d + 2] += pads;
    const auto own = std::ranges::find(spatial, static_cast<int64_t>(d) + 2, &Varying::axis);
    if (own == spatial.end()) continue;
    TEMPER_ASSIGN_OR_RETURN(own->extent, StopsOf(c, own->extent, pads - 1, 1));
  }
  TEMPER_ASSIGN_OR_RETURN(const ValueId ones, c.Expand(c.Scalar(c.TypeOf(x).dtype, 1), std::move(shape)));
  return WithVaryings(c, ones, spatial);
}

// The first ones of `counts` along each spatial axis, for as many windows as `sums` has.
absl::StatusOr<ValueId> AsManyAs(Context& c, ValueId sums, ValueId counts) {
  Varyings spatial = c.VaryingsOf(sums);
  std::erase_if(spatial, [](const Varying& v) { return v.axis < 2; });
  TEMPER_ASSIGN_OR_RETURN(counts, c.CallWhole("identity", {}, {counts}));
  for (int64_t axis = 2; axis < c.Rank(sums); ++axis) {
    TEMPER_ASSIGN_OR_RETURN(counts, c.Slice(counts, axis, 0, c.ShapeOf(sums)[static_cast<size_t>(axis)]));
  }
  c.SetVaryings(counts, std::move(spatial));
  return counts;
}

absl::StatusOr<ValueId> PoolOf(Context& c, const OnnxNode& n, const Window& w, ValueId x) {
  const bool counts_pads = n.Int("count_include_pad", 0) != 0;
  if (!CountsToVaryingEnd(c, n, w, x)) return PooledAs(c, n, w, x, counts_pads);
  if (counts_pads && n.String("auto_pad", "NOTSET").starts_with("SAME"))
    TEMPER_RETURN_IF_ERROR(MustBeKnownAlong(c, x, AxesFrom(2, c.Rank(x)), "AveragePool of counted pads in ceil_mode"));
  // The sum of what is there by how much that is, each by the window's size. Pads that count are there.
  TEMPER_ASSIGN_OR_RETURN(const ValueId ones, OnesOf(c, w, x, counts_pads));
  TEMPER_ASSIGN_OR_RETURN(const ValueId sums, PooledAs(c, n, w, x, true));
  Window seen = w;
  if (counts_pads) std::ranges::fill(seen.pads, 0);
  TEMPER_ASSIGN_OR_RETURN(ValueId counts, PooledAs(c, n, seen, ones, true));
  if (counts_pads) {
    TEMPER_ASSIGN_OR_RETURN(counts, AsManyAs(c, sums, counts));
  }
  return c.Call("div", {}, {sums, counts});
}

absl::Status Pool(Context& c, const OnnxNode& n) {
  const Ints kernel = n.Ints("kernel_shape");
  if (kernel.size() + 2 != c.ShapeOf(n.Input(0)).size())
    return absl::InvalidArgumentError("kernel_shape has one element a spatial axis");
  if (n.proto.output_size() > 1 && !n.proto.output(1).empty()) return MaxPoolWithIndices(c, n);
  ValueId x = n.Input(0);
  if (kernel.size() < 3) {
    TEMPER_ASSIGN_OR_RETURN(x, AsImage(c, x));
  }
  TEMPER_ASSIGN_OR_RETURN(Window w, WindowOf(n, kernel, c.ShapeOf(x)));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, PoolOf(c, n, w, x));
  return kernel.size() < 3 ? SetImage(c, n, v) : c.Set(n, v);
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
