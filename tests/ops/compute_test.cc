// Each operator's tensor expression, run by the interpreter in random physical layouts, against its reference.
#include <numeric>

#include "base/hash.h"
#include "cases.h"
#include "ops_testing.h"

namespace temper {
namespace {

using Ints = std::vector<int64_t>;

// x stored in the order `perm` (inverse false), or back (inverse true).
NDArray Permuted(const NDArray& x, const std::vector<int>& perm, const Shape& logical, bool inverse) {
  if (perm.empty()) return x;
  TensorType type{x.dtype(), logical, perm};
  NDArray result(x.dtype(), inverse ? logical : type.PhysicalShape());
  size_t rank = logical.size();
  for (int64_t flat = 0; flat < x.size(); ++flat) {
    Ints index(rank);
    int64_t rest = flat;
    for (size_t d = rank; d-- > 0;) {
      index[d] = rest % logical[d];
      rest /= logical[d];
    }
    int64_t physical = 0;
    for (int axis : perm) physical = physical * logical[axis] + index[axis];
    if (inverse)
      result.Set(flat, x.At(physical));
    else
      result.Set(physical, x.At(flat));
  }
  return result;
}

std::vector<int> RandomPerm(Rng& rng, size_t rank, int layout) {
  std::vector<int> perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  if (layout == 1 && rank == 4) return {0, 2, 3, 1};
  for (size_t i = rank; layout == 2 && i > 1; --i)
    std::swap(perm[i - 1], perm[static_cast<size_t>(rng.Below(static_cast<int64_t>(i)))]);
  return std::is_sorted(perm.begin(), perm.end()) ? std::vector<int>() : perm;
}

absl::StatusOr<NDArray> RunCompute(const OpDef& op, const Case& c, const std::vector<std::vector<int>>& perms,
                                   const TensorType& output) {
  ir::ProgramBuilder b("test");
  std::vector<ir::Tensor> tensors;
  std::vector<NDArray> args;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    args.push_back(Permuted(c.inputs[i], perms[i], c.inputs[i].shape(), false));
    tensors.push_back(
        ir::Tensor::OfBuffer(b.Input("in" + std::to_string(i), args[i].dtype(), args[i].shape()), perms[i]));
  }
  TEMPER_ASSIGN_OR_RETURN(ir::Tensor result, op.compute(b, c.attrs, tensors, output));
  if (result.shape() != output.shape || result.dtype() != output.dtype)
    return absl::InternalError("compute's type is not infer's");
  b.Materialize("result", result, output.perm);
  b.MarkOutput(b.last());
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, b.Finish());
  args.push_back(NDArray(output.dtype, output.PhysicalShape()));
  TEMPER_RETURN_IF_ERROR(ir::Interpret(func, std::span<NDArray>(args)));
  return Permuted(args.back(), output.perm, output.shape, true);
}

class Compute : public testing::TestWithParam<std::string_view> {};

TEST_P(Compute, EqualsTheReferenceInEveryLayout) {
  const OpDef& op = *FindOp(GetParam());
  Rng rng(StableHash(GetParam()));
  int done = 0;
  for (int i = 0; i < 60; ++i) {
    Case c = CaseGenerators().at(op.name)(rng);
    absl::StatusOr<TensorType> output = op.infer(c.attrs, TypesOf(c.inputs));
    if (!output.ok() || NumElements(output->shape) == 0)
      continue;  // a random window larger than its image, an empty slice
    ++done;
    absl::StatusOr<NDArray> expected = op.reference(c.attrs, c.inputs, *output);
    ASSERT_TRUE(expected.ok()) << expected.status();
    ASSERT_EQ(expected->shape(), output->shape);
    ASSERT_EQ(expected->dtype(), output->dtype);
    for (int layout = 0; layout < 3; ++layout) {
      std::vector<std::vector<int>> perms;
      for (const NDArray& x : c.inputs) perms.push_back(RandomPerm(rng, x.shape().size(), layout));
      output->perm = RandomPerm(rng, output->shape.size(), layout);
      absl::StatusOr<NDArray> computed = RunCompute(op, c, perms, *output);
      ASSERT_TRUE(computed.ok()) << computed.status() << "\n" << Text(c.attrs);
      double bound = IsFloat(output->dtype) ? 5e-6 : 0;
      ASSERT_LE(RelativeError(*computed, *expected), bound)
          << Text(c.attrs) << " on " << Text(TypesOf(c.inputs)[0]) << " layout " << layout;
    }
  }
  EXPECT_GE(done, 20);
}

// Rows that are too long to compare all with all: the first of each part, and then of these.
TEST(ComputeOfLongRows, TheirFirstElementsAreThoseOfTheReference) {
  const OpDef& op = *FindOp("top_k");
  Rng rng(1);
  for (const int64_t count : {4097, 4200}) {
    for (const int64_t k : {1, 7, 40}) {
      Case c{{}, {NDArray(DType::kF32, {2, count})}};
      for (int64_t i = 0; i < c.inputs[0].size(); ++i)
        c.inputs[0].Set(i, rng.Below(50) == 0 ? std::nan("") : static_cast<double>(rng.Below(300)));
      c.attrs.Set("k", k);
      c.attrs.Set("largest", rng.Below(2));
      const TensorType output{DType::kI32, {2, k}, {}};
      const absl::StatusOr<NDArray> expected = op.reference(c.attrs, c.inputs, output),
                                    computed = RunCompute(op, c, {{}}, output);
      ASSERT_TRUE(expected.ok() && computed.ok()) << computed.status();
      EXPECT_EQ(RelativeError(*computed, *expected), 0) << count << " " << Text(c.attrs);
    }
  }
}

// test_div_uint8 of ONNX, and the bytes that have no negative of their own.
TEST(ComputeOfBytes, DivisionRoundsTowardZeroForEveryPair) {
  for (const DType dtype : {DType::kU8, DType::kI8}) {
    const int low = dtype == DType::kU8 ? 0 : -128;
    NDArray a(dtype, {256, 255}), b(dtype, {255});
    for (int64_t i = 0; i < 256; ++i) {
      for (int64_t j = 0; j < 255; ++j) a.Set(i * 255 + j, static_cast<double>(low + i));
    }
    for (int64_t j = 0, v = low; j < 255; ++v) {
      if (v != 0) b.Set(j++, static_cast<double>(v));
    }
    Attrs fmod;
    fmod.Set("fmod", int64_t{1});
    for (const auto& [name, attrs] : {std::pair("div", Attrs()), std::pair("mod", fmod), std::pair("mod", Attrs())}) {
      SCOPED_TRACE(std::string(name) + " " + Text(attrs) + " of " + std::string(Name(dtype)));
      const Case c{attrs, {a, b}};
      const TensorType output{dtype, {256, 255}, {}};
      absl::StatusOr<NDArray> expected = FindOp(name)->reference(attrs, c.inputs, output);
      absl::StatusOr<NDArray> computed = RunCompute(*FindOp(name), c, {{}, {}}, output);
      ASSERT_TRUE(expected.ok() && computed.ok()) << expected.status() << computed.status();
      EXPECT_EQ(RelativeError(*computed, *expected), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, Compute, testing::ValuesIn([] {
                           std::vector<std::string_view> names;
                           for (const OpDef& op : AllOps()) {
                             if (op.compute) names.push_back(op.name);
                           }
                           return names;
                         }()),
                         [](const testing::TestParamInfo<std::string_view>& info) { return std::string(info.param); });

}  // namespace
}  // namespace temper
