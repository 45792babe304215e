// References: plain loops over logical, row-major arrays, written without a look at the tensor expressions. They are
// what kernels are verified against, so they are fast enough for full-size operators and themselves proved against
// naive loops in tests/ops. Sums are kept in double, or in float in blocks of a few hundred terms.
// All take valid operands (types as `infer` accepted them).
#pragma once

#include <span>

#include "compiler/ops/workload.h"

namespace temper::reference {

using Arrays = std::span<const NDArray>;

// unary.cc
NDArray Relu(const Attrs&, const NDArray& x);
NDArray Sigmoid(const Attrs&, const NDArray& x);
NDArray Silu(const Attrs&, const NDArray& x);
NDArray Tanh(const Attrs&, const NDArray& x);
NDArray Erf(const Attrs&, const NDArray& x);
NDArray Exp(const Attrs&, const NDArray& x);
NDArray Log(const Attrs&, const NDArray& x);
NDArray Sqrt(const Attrs&, const NDArray& x);
NDArray Neg(const Attrs&, const NDArray& x);
NDArray Abs(const Attrs&, const NDArray& x);
NDArray Floor(const Attrs&, const NDArray& x);
NDArray Ceil(const Attrs&, const NDArray& x);
NDArray Round(const Attrs&, const NDArray& x);
NDArray Sin(const Attrs&, const NDArray& x);
NDArray Cos(const Attrs&, const NDArray& x);
NDArray Reciprocal(const Attrs&, const NDArray& x);
NDArray Not(const Attrs&, const NDArray& x);
NDArray Identity(const Attrs&, const NDArray& x);
NDArray Clip(const Attrs&, const NDArray& x);
NDArray LeakyRelu(const Attrs&, const NDArray& x);
NDArray Elu(const Attrs&, const NDArray& x);
NDArray HardSigmoid(const Attrs&, const NDArray& x);
NDArray HardSwish(const Attrs&, const NDArray& x);
NDArray Softplus(const Attrs&, const NDArray& x);
NDArray Gelu(const Attrs&, const NDArray& x);
absl::StatusOr<NDArray> Cast(const Attrs&, Arrays inputs, const TensorType& output);

// binary.cc
NDArray Add(const Attrs&, Arrays inputs, const TensorType& output);
NDArray Sub(const Attrs&, Arrays inputs, const TensorType& output);
NDArray Mul(const Attrs&, Arrays inputs, const TensorType& output);
NDArray Div(const Attrs&, Arrays inputs, const TensorType& output);
NDArray Pow(const Attrs&, Arrays inputs, const TensorType& output);
NDArray Min(const Attrs&, Arrays inputs, const TensorType& output);
NDArray Max(const Attrs&, Arrays inputs, const TensorType& output);
NDArray Mod(const Attrs&, Arrays inputs, const TensorType& output);
NDArray Equal(const Attrs&, Arrays inputs, const TensorType& output);
NDArray Less(const Attrs&, Arrays inputs, const TensorType& output);
NDArray LessEqual(const Attrs&, Arrays inputs, const TensorType& output);
NDArray Greater(const Attrs&, Arrays inputs, const TensorType& output);
NDArray GreaterEqual(const Attrs&, Arrays inputs, const TensorType& output);
NDArray And(const Attrs&, Arrays inputs, const TensorType& output);
NDArray Or(const Attrs&, Arrays inputs, const TensorType& output);
NDArray PRelu(const Attrs&, Arrays inputs, const TensorType& output);
absl::StatusOr<NDArray> Where(const Attrs&, Arrays inputs, const TensorType& output);

// conv.cc, matmul.cc
absl::StatusOr<NDArray> Conv2d(const Attrs&, Arrays inputs, const TensorType& output);
absl::StatusOr<NDArray> ConvTranspose2d(const Attrs&, Arrays inputs, const TensorType& output);
absl::StatusOr<NDArray> Matmul(const Attrs&, Arrays inputs, const TensorType& output);

// pool.cc, reduce.cc, norm.cc
absl::StatusOr<NDArray> MaxPool2d(const Attrs&, Arrays inputs, const TensorType& output);
absl::StatusOr<NDArray> AvgPool2d(const Attrs&, Arrays inputs, const TensorType& output);
absl::StatusOr<NDArray> ReduceSum(const Attrs&, Arrays inputs, const TensorType& output);
absl::StatusOr<NDArray> ReduceMean(const Attrs&, Arrays inputs, const TensorType& output);
absl::StatusOr<NDArray> ReduceMax(const Attrs&, Arrays inputs, const TensorType& output);
absl::StatusOr<NDArray> ReduceMin(const Attrs&, Arrays inputs, const TensorType& output);
absl::StatusOr<NDArray> ReduceProd(const Attrs&, Arrays inputs, const TensorType& output);
absl::StatusOr<NDArray> ReduceL2(const Attrs&, Arrays inputs, const TensorType& output);
absl::StatusOr<NDArray> ArgMax(const Attrs&, Arrays inputs, const TensorType& output);
absl::StatusOr<NDArray> Softmax(const Attrs&, Arrays inputs, const TensorType& output);
absl::StatusOr<NDArray> LogSoftmax(const Attrs&, Arrays inputs, const TensorType& output);
absl::StatusOr<NDArray> LayerNorm(const Attrs&, Arrays inputs, const TensorType& output);
absl::StatusOr<NDArray> InstanceNorm(const Attrs&, Arrays inputs, const TensorType& output);
absl::StatusOr<NDArray> BatchNorm(const Attrs&, Arrays inputs, const TensorType& output);

// movement.cc, resize.cc
absl::StatusOr<NDArray> Reshape(const Attrs&, Arrays inputs, const TensorType& output);
absl::StatusOr<NDArray> Transpose(const Attrs&, Arrays inputs, const TensorType& output);
absl::StatusOr<NDArray> Concat(const Attrs&, Arrays inputs, const TensorType& output);
absl::StatusOr<NDArray> Slice(const Attrs&, Arrays inputs, const TensorType& output);
absl::StatusOr<NDArray> Pad(const Attrs&, Arrays inputs, const TensorType& output);
absl::StatusOr<NDArray> Gather(const Attrs&, Arrays inputs, const TensorType& output);
absl::StatusOr<NDArray> Expand(const Attrs&, Arrays inputs, const TensorType& output);
absl::StatusOr<NDArray> Tile(const Attrs&, Arrays inputs, const TensorType& output);
absl::StatusOr<NDArray> DepthToSpace(const Attrs&, Arrays inputs, const TensorType& output);
absl::StatusOr<NDArray> Resize(const Attrs&, Arrays inputs, const TensorType& output);

}  // namespace temper::reference
