// Convolutions, pooling and matrix products. One spatial axis is two with the first of extent 1.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/context.h"

namespace temper::onnx_frontend {
namespace {

using Ints = std::vector<int64_t>;

// strides, dilations and pads of a window over two axes, whatever the model had.
struct Window {
  Ints kernel, strides, dilations, pads;
};

// [a] as [1, a]; pads [a, b] as [0, a, 0, b].
Ints Widen(Ints values, int64_t filler) {
  if (values.size() == 1) values.insert(values.begin(), filler);
  return values;
}
Ints WidenPads(const Ints& pads) { return pads.size() == 2 ? Ints{0, pads[0], 0, pads[1]} : pads; }

// auto_pad for windows that shrink what they see.
Ints AutoPads(const std::string& mode, const Shape& image, const Window& w) {
  Ints pads(4, 0);
  for (size_t i = 0; i < 2 && mode != "VALID"; ++i) {
    const int64_t out = (image[2 + i] + w.strides[i] - 1) / w.strides[i];
    const int64_t span = (w.kernel[i] - 1) * w.dilations[i] + 1;
    const int64_t total = std::max<int64_t>(0, (out - 1) * w.strides[i] + span - image[2 + i]);
    pads[i] = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
    pads[2 + i] = total - pads[i];
  }
  return pads;
}

absl::StatusOr<Window> WindowOf(const OnnxNode& n, const Ints& kernel, const Shape& image) {
  Window w{Widen(kernel, 1), {}, {}, {}};
  const Ints ones(kernel.size(), 1), zeros(2 * kernel.size(), 0);
  w.strides = Widen(n.Ints("strides", ones), 1);
  w.dilations = Widen(n.Ints("dilations", ones), 1);
  w.pads = WidenPads(n.Ints("pads", zeros));
  const bool complete = w.kernel.size() == 2 && w.strides.size() == 2 && w.dilations.size() == 2 && w.pads.size() == 4;
  if (!complete) return absl::UnimplementedError("only windows over one or two axes are supported");
  if (*std::min_element(w.strides.begin(), w.strides.end()) < 1)
    return absl::InvalidArgumentError("strides are at least 1");
  const std::string mode = n.String("auto_pad", "NOTSET");
  if (mode != "NOTSET" && !mode.empty()) w.pads = AutoPads(mode, image, w);
  return w;
}

Attrs WindowAttrs(const Window& w) {
  Attrs attrs;
  attrs.Set("strides", w.strides);
  attrs.Set("dilations", w.dilations);
  attrs.Set("pads", w.pads);
  return attrs;
}

// [n, c, w] as [n, c, 1, w].
absl::StatusOr<ValueId> AsImage(Context& c, ValueId v) {
  const Shape& shape = c.ShapeOf(v);
  if (shape.size() == 4) return v;
  if (shape.size() != 3)
    return absl::UnimplementedError(absl::StrCat("rank ", shape.size(), " is not supported, only 3 and 4"));
  return c.Reshape(v, {shape[0], shape[1], 1, shape[2]});
}
// And back, if the model had three axes.
absl::Status SetImage(Context& c, const OnnxNode& n, ValueId v) {
  Shape shape = c.ShapeOf(v);
  if (c.Rank(n.Input(0)) == 3) shape.erase(shape.begin() + 2);
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, std::move(shape)));
  return c.Set(n, v);
}

absl::StatusOr<ValueId> AddBias(Context& c, ValueId v, ValueId bias) {
  if (bias == kNoValue) return v;
  TEMPER_ASSIGN_OR_RETURN(bias, c.Reshape(bias, {NumElements(c.ShapeOf(bias)), 1, 1}));
  return c.Call("add", {}, {v, bias});
}

absl::Status Conv(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(ValueId x, AsImage(c, n.Input(0)));
  if (c.Rank(n.Input(1)) != c.Rank(n.Input(0))) return absl::InvalidArgumentError("data and weight differ in rank");
  TEMPER_ASSIGN_OR_RETURN(ValueId weight, AsImage(c, n.Input(1)));
  const Shape& shape = c.ShapeOf(n.Input(1));
  TEMPER_ASSIGN_OR_RETURN(Window w, WindowOf(n, Ints(shape.begin() + 2, shape.end()), c.ShapeOf(x)));
  Attrs attrs = WindowAttrs(w);
  attrs.Set("group", n.Int("group", 1));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("conv2d", std::move(attrs), {x, weight}));
  TEMPER_ASSIGN_OR_RETURN(v, AddBias(c, v, n.Input(2)));
  return SetImage(c, n, v);
}

// Pads of a transposed convolution from the wanted output size, or from auto_pad. An output that is larger than what
// the kernel reaches gets more output padding.
absl::Status TransposedPads(const OnnxNode& n, const Shape& image, Ints& extra, Window& w) {
  const std::string mode = n.String("auto_pad", "NOTSET");
  const Ints wanted = Widen(n.Ints("output_shape"), 1);
  const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  if (wanted.empty() && !same) return absl::OkStatus();
  if (!wanted.empty() && wanted.size() != 2)
    return absl::InvalidArgumentError("output_shape has one element a spatial axis");
  for (size_t i = 0; i < 2; ++i) {
    const int64_t out = wanted.empty() ? image[2 + i] * w.strides[i] : wanted[i];
    const int64_t full = (image[2 + i] - 1) * w.strides[i] + extra[i] + (w.kernel[i] - 1) * w.dilations[i] + 1;
    const int64_t total = std::max<int64_t>(0, full - out);
    w.pads[i] = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
    w.pads[2 + i] = total - w.pads[i];
    extra[i] += std::max<int64_t>(0, out - full);
    if (out > full && extra[i] >= std::max(w.strides[i], w.dilations[i])) {
      return absl::UnimplementedError(
          absl::StrCat("output_shape is larger than the kernel reaches: ", out, " where ", full, " are reached"));
    }
  }
  return absl::OkStatus();
}

absl::Status ConvTranspose(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(ValueId x, AsImage(c, n.Input(0)));
  if (c.Rank(n.Input(1)) != c.Rank(n.Input(0))) return absl::InvalidArgumentError("data and weight differ in rank");
  TEMPER_ASSIGN_OR_RETURN(ValueId weight, AsImage(c, n.Input(1)));
  const Shape& shape = c.ShapeOf(n.Input(1));
  TEMPER_ASSIGN_OR_RETURN(Window w, WindowOf(n, Ints(shape.begin() + 2, shape.end()), c.ShapeOf(x)));
  Ints extra = Widen(n.Ints("output_padding", Ints(shape.size() - 2, 0)), 0);
  if (extra.size() != 2) return absl::InvalidArgumentError("output_padding has one element a spatial axis");
  TEMPER_RETURN_IF_ERROR(TransposedPads(n, c.ShapeOf(x), extra, w));
  Attrs attrs = WindowAttrs(w);
  attrs.Set("group", n.Int("group", 1));
  attrs.Set("output_padding", extra);
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("conv_transpose2d", std::move(attrs), {x, weight}));
  TEMPER_ASSIGN_OR_RETURN(v, AddBias(c, v, n.Input(2)));
  return SetImage(c, n, v);
}

absl::Status Pool(Context& c, const OnnxNode& n) {
  const bool average = n.proto.op_type() == "AveragePool";
  TEMPER_ASSIGN_OR_RETURN(ValueId x, AsImage(c, n.Input(0)));
  const Ints kernel = n.Ints("kernel_shape");
  if (kernel.size() + 2 != c.ShapeOf(n.Input(0)).size())
    return absl::InvalidArgumentError("kernel_shape has one element a spatial axis");
  TEMPER_ASSIGN_OR_RETURN(Window w, WindowOf(n, kernel, c.ShapeOf(x)));
  Attrs attrs = WindowAttrs(w);
  attrs.Set("kernel", w.kernel);
  if (n.Int("ceil_mode", 0) != 0) attrs.Set("ceil_mode", int64_t{1});
  if (average && n.Int("count_include_pad", 0) != 0) attrs.Set("count_include_pad", int64_t{1});
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call(average ? "avg_pool2d" : "max_pool2d", std::move(attrs), {x}));
  return SetImage(c, n, v);
}

absl::Status GlobalPool(Context& c, const OnnxNode& n) {
  Ints axes;
  for (int64_t i = 2; i < c.Rank(n.Input(0)); ++i) axes.push_back(i);
  if (axes.empty()) return absl::InvalidArgumentError("takes rank 3 or more");
  const char* op = n.proto.op_type() == "GlobalAveragePool" ? "reduce_mean" : "reduce_max";
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Reduce(op, n.Input(0), std::move(axes), true));
  return c.Set(n, v);
}

// Vectors become matrices of one row or column for the product, and the added axis goes again.
absl::Status MatMul(Context& c, const OnnxNode& n) {
  ValueId a = n.Input(0), b = n.Input(1);
  const bool row = c.Rank(a) == 1, column = c.Rank(b) == 1;
  if (row) {
    TEMPER_ASSIGN_OR_RETURN(a, c.Reshape(a, {1, c.ShapeOf(a)[0]}));
  }
  if (column) {
    TEMPER_ASSIGN_OR_RETURN(b, c.Reshape(b, {c.ShapeOf(b)[0], 1}));
  }
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("matmul", {}, {a, b}));
  Shape shape = c.ShapeOf(v);
  if (column) shape.erase(shape.end() - 1);
  if (row) shape.erase(shape.end() - (column ? 1 : 2));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, std::move(shape)));
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
  static constexpr TableEntry kTable[] = {{"Conv", Conv, 2},
                                          {"ConvTranspose", ConvTranspose, 2},
                                          {"MaxPool", Pool},
                                          {"AveragePool", Pool},
                                          {"GlobalAveragePool", GlobalPool},
                                          {"GlobalMaxPool", GlobalPool},
                                          {"MatMul", MatMul, 2},
                                          {"Gemm", Gemm, 2}};
  return kTable;
}

}  // namespace temper::onnx_frontend
