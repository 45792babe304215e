// Random numbers. They are drawn when the model is imported, so that each run has the same ones, and as many numbers as
// the largest input has.
#include <bit>
#include <functional>

#include "base/rng.h"
#include "base/shape_limits.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/tensor_data.h"

namespace temper::onnx_frontend {
namespace {

constexpr int64_t kMostDrawn = int64_t{1} << 26;

// A node's own numbers: those of its seed, or else of its place in the model.
Rng RngOf(Context& c, const OnnxNode& n) {
  const double seed = n.Float("seed", 0);
  return Rng(n.Has("seed") ? std::bit_cast<uint64_t>(seed) : c.graph().values.size());
}

// Of mean 0 and variance 1. A sum of even ones is the same to the last bit whatever machine compiles the model, which
// functions of the C library are not.
double Normal(Rng& rng) {
  double sum = 0;
  for (int i = 0; i < 48; ++i) sum += rng.Uniform();
  return (sum - 24) / 2;
}

absl::StatusOr<ValueId> Drawn(Context& c, DType dtype, const Shape& shape, const std::function<double()>& draw) {
  TEMPER_RETURN_IF_ERROR(CheckTensorShape(shape));
  if (NumElements(shape) > kMostDrawn) return absl::UnimplementedError("so many random numbers are not supported");
  NDArray data(dtype, shape);
  for (int64_t i = 0; i < data.size(); ++i) data.Set(i, draw());
  return c.Constant(std::move(data));
}

// Of an even distribution or of a normal one, as the node's name says.
absl::StatusOr<ValueId> DrawnFor(Context& c, const OnnxNode& n, DType dtype, const Shape& shape) {
  Rng rng = RngOf(c, n);
  if (n.proto.op_type().starts_with("RandomUniform")) {
    const double low = n.Float("low", 0), high = n.Float("high", 1);
    return Drawn(c, dtype, shape, [&] { return low + (high - low) * rng.Uniform(); });
  }
  const double mean = n.Float("mean", 0), scale = n.Float("scale", 1);
  return Drawn(c, dtype, shape, [&] { return mean + scale * Normal(rng); });
}

absl::StatusOr<DType> TypeFor(const OnnxNode& n, DType otherwise) {
  return n.Has("dtype") ? DTypeOf(static_cast<int>(n.Int("dtype", 0))) : otherwise;
}

absl::Status RandomOfShape(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const DType dtype, TypeFor(n, DType::kF32));
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, DrawnFor(c, n, dtype, n.Ints("shape")));
  return c.Set(n, v);
}

absl::Status RandomLike(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const DType dtype, TypeFor(n, c.TypeOf(n.Input(0)).dtype));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, DrawnFor(c, n, dtype, c.ShapeOf(n.Input(0))));
  TEMPER_ASSIGN_OR_RETURN(v, WithVaryings(c, v, c.VaryingsOf(n.Input(0))));
  return c.Set(n, v);
}

// Which of the chances that the operand states came true.
absl::Status Bernoulli(Context& c, const OnnxNode& n) {
  const TensorType type = c.TypeOf(n.Input(0));
  TEMPER_ASSIGN_OR_RETURN(const DType dtype, TypeFor(n, type.dtype));
  Rng rng = RngOf(c, n);
  TEMPER_ASSIGN_OR_RETURN(ValueId v, Drawn(c, type.dtype, type.shape, [&] { return rng.Uniform(); }));
  TEMPER_ASSIGN_OR_RETURN(v, WithVaryings(c, v, c.VaryingsOf(n.Input(0))));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("less", {}, {v, n.Input(0)}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Cast(v, dtype));
  return c.Set(n, v);
}

}  // namespace

std::span<const TableEntry> RandomTable() {
  static constexpr TableEntry kTable[] = {{"RandomNormal", RandomOfShape, 0},
                                          {"RandomUniform", RandomOfShape, 0},
                                          {"RandomNormalLike", RandomLike, 1, Extents::kAlongAnyAxis},
                                          {"RandomUniformLike", RandomLike, 1, Extents::kAlongAnyAxis},
                                          {"Bernoulli", Bernoulli, 1, Extents::kAlongAnyAxis}};
  return kTable;
}

}  // namespace temper::onnx_frontend
