// Softmax and the normalisations.
#include "compiler/ops/families/compute_util.h"
#include "compiler/ops/families/families.h"
#include "compiler/ops/families/infer_util.h"

namespace temper::ops {
namespace {

using ir::Expr;
using ir::Tensor;

// The type of a value per group: extent 1 along axes [first, last).
TensorType PerGroup(const TensorType& output, int64_t first, int64_t last) {
  TensorType t = output;
  for (int64_t axis = first; axis < last; ++axis) t.shape[axis] = 1;
  return t;
}

// The same index at position `r` of axes [first, first + r.size()).
Index At(Index index, int64_t first, const Index& r) {
  for (size_t i = 0; i < r.size(); ++i) index[first + i] = r[i];
  return index;
}
Index GroupOf(Index index, int64_t first, int64_t last) {
  for (int64_t axis = first; axis < last; ++axis) index[axis] = Expr(0);
  return index;
}

absl::StatusOr<TensorType> InferSoftmax(const Attrs& attrs, std::span<const TensorType> in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"axis", AttrKind::kInt}}));
  if (!IsFloat(in[0].dtype)) return InvalidType("takes floats");
  TEMPER_RETURN_IF_ERROR(NormalizeAxis(attrs.Int("axis", -1), static_cast<int64_t>(in[0].shape.size())).status());
  return TensorType{in[0].dtype, in[0].shape, {}};
}

absl::StatusOr<Tensor> ComputeSoftmax(ir::ProgramBuilder& b, const Attrs& attrs, std::span<const Tensor> in,
                                      const TensorType& output) {
  TEMPER_ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(attrs.Int("axis", -1), in[0].rank()));
  TensorType group = PerGroup(output, axis, axis + 1);
  std::vector<int64_t> extent = {output.shape[axis]};
  Tensor x = in[0];
  Tensor largest = ReduceStage(b, "softmax_max", group, extent, ir::Combiner::kMax,
                               [=](const Index& i, const Index& r) { return x(At(i, axis, r)); });
  Tensor power =
      b.Materialize("softmax_exp",
                    Tensor(output.dtype, output.shape,
                           [=](const Index& i) { return ir::Exp(x(i) - largest(GroupOf(i, axis, axis + 1))); }),
                    output.perm);
  Tensor sum = ReduceStage(b, "softmax_sum", group, extent, ir::Combiner::kSum,
                           [=](const Index& i, const Index& r) { return power(At(i, axis, r)); });
  // Divided once a group: a vector division takes as long as the exponential.
  Tensor share = b.Materialize(
      "softmax_share",
      Tensor(output.dtype, group.shape, [=](const Index& i) { return ir::Const(1, output.dtype) / sum(i); }),
      output.perm);
  return Tensor(output.dtype, output.shape,
                [=](const Index& i) { return power(i) * share(GroupOf(i, axis, axis + 1)); });
}

absl::StatusOr<Tensor> ComputeLogSoftmax(ir::ProgramBuilder& b, const Attrs& attrs, std::span<const Tensor> in,
                                         const TensorType& output) {
  TEMPER_ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(attrs.Int("axis", -1), in[0].rank()));
  TensorType group = PerGroup(output, axis, axis + 1);
  std::vector<int64_t> extent = {output.shape[axis]};
  Tensor x = in[0];
  Tensor largest = ReduceStage(b, "log_softmax_max", group, extent, ir::Combiner::kMax,
                               [=](const Index& i, const Index& r) { return x(At(i, axis, r)); });
  Tensor sum = ReduceStage(b, "log_softmax_sum", group, extent, ir::Combiner::kSum,
                           [=](const Index& i, const Index& r) { return ir::Exp(x(At(i, axis, r)) - largest(i)); });
  // Apart from the largest: beside a large number it would lose its digits.
  Tensor offset = b.Materialize(
      "log_softmax_offset",
      Tensor(output.dtype, group.shape, [=](const Index& i) { return ir::Unary(ir::ExprKind::kLog, sum(i)); }),
      output.perm);
  return Tensor(output.dtype, output.shape, [=](const Index& i) {
    const Index g = GroupOf(i, axis, axis + 1);
    return x(i) - largest(g) - offset(g);
  });
}

// (x - mean) / sqrt(variance + epsilon) over axes [first, rank), by two passes for accuracy.
Tensor Standardize(ir::ProgramBuilder& b, const std::string& name, const Tensor& in, const TensorType& output,
                   int64_t first, double epsilon) {
  int64_t rank = in.rank();
  TensorType group = PerGroup(output, first, rank);
  std::vector<int64_t> extents(output.shape.begin() + first, output.shape.end());
  Expr share = ir::Const(1.0 / static_cast<double>(NumElements(extents)), output.dtype);
  Tensor x = MaterializeFormula(b, name + "_input", in, output);
  Tensor sum = ReduceStage(b, name + "_sum", group, extents, ir::Combiner::kSum,
                           [=](const Index& i, const Index& r) { return x(At(i, first, r)); });
  Tensor squares =
      ReduceStage(b, name + "_squares", group, extents, ir::Combiner::kSum, [=](const Index& i, const Index& r) {
        Expr d = x(At(i, first, r)) - sum(i) * share;
        return d * d;
      });
  Tensor scale = b.Materialize(name + "_scale",
                               Tensor(output.dtype, group.shape,
                                      [=](const Index& i) {
                                        return ir::Const(1, output.dtype) /
                                               ir::Sqrt(squares(i) * share + ir::Const(epsilon, output.dtype));
                                      }),
                               output.perm);
  return Tensor(output.dtype, output.shape, [=](const Index& i) {
    Index g = GroupOf(i, first, rank);
    return (x(i) - sum(g) * share) * scale(g);
  });
}

absl::StatusOr<TensorType> InferLayerNorm(const Attrs& attrs, std::span<const TensorType> in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"axis", AttrKind::kInt}, {"epsilon", AttrKind::kFloat}}));
  TEMPER_RETURN_IF_ERROR(NormalizeAxis(attrs.Int("axis", -1), static_cast<int64_t>(in[0].shape.size())).status());
  for (const TensorType& t : in) {
    if (!IsFloat(t.dtype) || t.dtype != in[0].dtype) return InvalidType("operands are floats of one dtype");
    TEMPER_ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(in[0].shape, t.shape));
    if (shape != in[0].shape) return InvalidType("scale and bias broadcast to x");
  }
  if (in[1].shape.empty()) return InvalidType("scale has rank 1 or more");
  return TensorType{in[0].dtype, in[0].shape, {}};
}

absl::StatusOr<Tensor> ComputeLayerNorm(ir::ProgramBuilder& b, const Attrs& attrs, std::span<const Tensor> in,
                                        const TensorType& output) {
  TEMPER_ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(attrs.Int("axis", -1), in[0].rank()));
  Tensor standard = Standardize(b, "layer_norm", in[0], output, axis, attrs.Float("epsilon", 1e-5));
  std::vector<Tensor> affine(in.begin() + 1, in.end());
  return Tensor(output.dtype, output.shape, [=](const Index& i) {
    Expr value = standard(i) * affine[0](BroadcastIndex(i, affine[0].shape()));
    bool biased = affine.size() > 1 && affine[1].rank() > 0;
    return biased ? value + affine[1](BroadcastIndex(i, affine[1].shape())) : value;
  });
}

// x [n, c, ...] and one value per channel in each further operand.
absl::StatusOr<TensorType> InferPerChannel(std::span<const TensorType> in) {
  if (in[0].shape.size() < 2) return InvalidType("takes rank 2 or more");
  for (size_t i = 0; i < in.size(); ++i) {
    if (!IsFloat(in[i].dtype) || in[i].dtype != in[0].dtype) return InvalidType("operands are floats of one dtype");
    if (i > 0 && in[i].shape != Shape{in[0].shape[1]}) return InvalidType("parameters have one value per channel");
  }
  return TensorType{in[0].dtype, in[0].shape, {}};
}

absl::StatusOr<TensorType> InferBatchNorm(const Attrs& attrs, std::span<const TensorType> in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"epsilon", AttrKind::kFloat}}));
  return InferPerChannel(in);
}

// Without `groups` each channel is a group, as in instance normalisation.
absl::StatusOr<TensorType> InferGroupNorm(const Attrs& attrs, std::span<const TensorType> in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"groups", AttrKind::kInt}, {"epsilon", AttrKind::kFloat}}));
  if (in[0].shape.size() < 3) return InvalidType("takes rank 3 or more");
  const int64_t channels = in[0].shape[1], groups = attrs.Int("groups", channels);
  if (attrs.Has("groups") && (groups < 1 || channels % groups != 0)) return InvalidType("groups divides the channels");
  return InferPerChannel(in);
}

// The sum of fn(index) over the pixels of each channel. With channels last, rows of the image first: threads share
// them, and vectors of channels stay in registers along each.
Tensor ChannelSum(ir::ProgramBuilder& b, const std::string& name, const TensorType& type,
                  const std::function<Expr(const Index& index)>& fn) {
  const int64_t rank = static_cast<int64_t>(type.shape.size());
  const TensorType channel = PerGroup(type, 2, rank), row = PerGroup(type, 3, rank);
  std::vector<int64_t> pixels(type.shape.begin() + 2, type.shape.end());
  const auto at = [](int64_t first, const std::function<Expr(const Index&)>& value) {
    return [=](const Index& i, const Index& r) { return value(At(i, first, r)); };
  };
  if (rank == 3 || type.perm.empty() || type.perm.back() != 1)
    return ReduceStage(b, name, channel, pixels, ir::Combiner::kSum, at(2, fn));
  const std::vector<int64_t> along(pixels.begin() + 1, pixels.end());
  const Tensor rows = ReduceStage(b, name + "_row", row, along, ir::Combiner::kSum, at(3, fn));
  return ReduceStage(b, name, channel, {pixels[0]}, ir::Combiner::kSum,
                     at(2, [rows](const Index& i) { return rows(i); }));
}

// What each channel's group sums up to, for each channel.
Tensor GroupSum(ir::ProgramBuilder& b, const std::string& name, const TensorType& channel, int64_t groups,
                const Tensor& sum) {
  const int64_t each = channel.shape[1] / std::max<int64_t>(1, groups);
  if (each <= 1) return sum;
  TensorType group = channel;
  group.shape[1] = groups;
  const Tensor total = ReduceStage(b, name, group, {each}, ir::Combiner::kSum, [=](const Index& i, const Index& r) {
    return sum(At(i, 1, {i[1] * Expr(each) + r[0]}));
  });
  return Tensor(channel.dtype, channel.shape, [=](const Index& i) { return total(At(i, 1, {i[1] / Expr(each)})); });
}

// By channels, then by groups of them: so all that is long runs along memory, whether pixels or channels come last.
absl::StatusOr<Tensor> ComputeGroupNorm(ir::ProgramBuilder& b, const Attrs& attrs, std::span<const Tensor> in,
                                        const TensorType& output) {
  const int64_t rank = in[0].rank(), groups = attrs.Int("groups", output.shape[1]);
  const TensorType channel = PerGroup(output, 2, rank);
  const double elements = Elements(output) / static_cast<double>(output.shape[0] * groups);
  const Expr share = ir::Const(1 / elements, output.dtype),
             epsilon = ir::Const(attrs.Float("epsilon", 1e-5), output.dtype);
  const auto per_channel = [&](const std::string& name, const std::function<Expr(const Index&)>& value) {
    return b.Materialize(name, Tensor(output.dtype, channel.shape, value), output.perm);
  };
  const Tensor x = MaterializeFormula(b, "group_norm_input", in[0], output);
  const Tensor sum = GroupSum(b, "group_norm_sum", channel, groups,
                              ChannelSum(b, "group_norm_channel", output, [=](const Index& i) { return x(i); }));
  const Tensor mean = per_channel("group_norm_mean", [=](const Index& i) { return sum(i) * share; });
  const auto centered = [=](const Index& i) { return x(i) - mean(GroupOf(i, 2, rank)); };
  const Tensor squares = GroupSum(b, "group_norm_squares", channel, groups,
                                  ChannelSum(b, "group_norm_deviation", output, [=](const Index& i) {
                                    const Expr d = centered(i);
                                    return d * d;
                                  }));
  const Tensor factor = per_channel("group_norm_factor", [=, scale = in[1]](const Index& i) {
    return scale({i[1]}) / ir::Sqrt(squares(i) * share + epsilon);
  });
  return Tensor(output.dtype, output.shape,
                [=, bias = in[2]](const Index& i) { return centered(i) * factor(GroupOf(i, 2, rank)) + bias({i[1]}); });
}

absl::StatusOr<Tensor> ComputeBatchNorm(ir::ProgramBuilder&, const Attrs& attrs, std::span<const Tensor> in,
                                        const TensorType& output) {
  double epsilon = attrs.Float("epsilon", 1e-5);
  return Tensor(output.dtype, output.shape,
                [x = in[0], scale = in[1], bias = in[2], mean = in[3], variance = in[4], epsilon](const Index& i) {
                  Expr deviation = ir::Sqrt(variance({i[1]}) + ir::Const(epsilon, x.dtype()));
                  return (x(i) - mean({i[1]})) / deviation * scale({i[1]}) + bias({i[1]});
                });
}

template <int per_element>
double FlopsPerElement(const Attrs&, std::span<const TensorType>, const TensorType& output) {
  return per_element * Elements(output);
}

}  // namespace

std::vector<OpDef> NormOps() {
  constexpr OpPattern kReduces = OpPattern::kReduction;
  constexpr Numbers kAny = Numbers::kAny, kScale = Numbers::kFactor, kVariance = Numbers::kPositive;
  OpDef layer{"layer_norm", kReduces, 2, 3, InferLayerNorm, ComputeLayerNorm, FlopsPerElement<8>};
  OpDef group{"group_norm", kReduces, 3, 3, InferGroupNorm, ComputeGroupNorm, FlopsPerElement<8>};
  OpDef batch{"batch_norm", OpPattern::kElementwise, 5, 5, InferBatchNorm, ComputeBatchNorm, FlopsPerElement<4>};
  layer.numbers = {kAny, kScale};
  group.numbers = {kAny, kScale};
  batch.numbers = {kAny, kScale, kAny, kAny, kVariance};
  group.per_channel = batch.per_channel = true;
  return {{"softmax", kReduces, 1, 1, InferSoftmax, ComputeSoftmax, FlopsPerElement<14>},
          {"log_softmax", kReduces, 1, 1, InferSoftmax, ComputeLogSoftmax, FlopsPerElement<14>},
          std::move(layer),
          std::move(group),
          std::move(batch)};
}

}  // namespace temper::ops
