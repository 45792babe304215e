// "gpu.default" on whatever operators draw, and on shapes of its own.
#include <numeric>

#include "base/hash.h"
#include "tests/ops/cases.h"
#include "tests/templates/check_gpu.h"

namespace temper {
namespace {

TEST(GpuDefault, Shapes) {
  const char* texts[] = {
      "(f32[1]) relu(0) -> f32[1]; anchor=0",
      "(f32[]) relu(0) -> f32[]; anchor=0",
      "(f32[1023]) relu(0) -> f32[1023]; anchor=0",
      "(f32[5,3,33]) reduce_sum(0; axes=[0,1,2] keepdims=0) -> f32[]; sigmoid(1) -> f32[]; anchor=0",
      "(f32[7]) reduce_max(0; axes=[0] keepdims=0) -> f32[]; add(1,0) -> f32[7]; anchor=0",
      "(f32[2,64,7,7]@0231) max_pool2d(0; kernel=[3,3] pads=[1,1,1,1] strides=[2,2]) -> f32[2,64,4,4]@0231; "
      "relu(1) -> f32[2,64,4,4]@0231; anchor=0",
      "(f32[2,5,7,7]) avg_pool2d(0; kernel=[3,3] pads=[1,1,1,1] strides=[2,2]) -> f32[2,5,4,4]; anchor=0",
      "(f32[37,50], const f32[50,70], const f32[70]) matmul(0,1) -> f32[37,70]; add(3,2) -> f32[37,70]; anchor=0",
      "(f32[3,4,37]) softmax(0; axis=2) -> f32[3,4,37]; mul(1,0) -> f32[3,4,37]; anchor=0",
      "(f32[3,37], const f32[37], const f32[37]) layer_norm(0,1,2; axis=1 epsilon=1e-05) -> f32[3,37]; anchor=0",
      "(f32[1,3,10,16]) layout_copy(0) -> f32[1,3,10,16]@0231; anchor=0",
      "(const f32[31,17], i64[9]) gather(0,1; axis=0) -> f32[9,17]; anchor=0",
  };
  uint64_t seed = 1;
  for (const char* text : texts) ASSERT_NO_FATAL_FAILURE(CheckOnGpus(Parse(text), 4, seed++, "gpu.default"));
}

std::vector<int> AnyOrder(Rng& rng, size_t rank) {
  std::vector<int> perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  if (rng.Below(2) == 0) return {};
  for (size_t i = rank; i > 1; --i)
    std::swap(perm[i - 1], perm[static_cast<size_t>(rng.Below(static_cast<int64_t>(i)))]);
  return std::is_sorted(perm.begin(), perm.end()) ? std::vector<int>() : perm;
}

// Every operator that has tensor expressions, in any order of its operands and result.
TEST(GpuDefault, Operators) {
  for (const OpDef& op : AllOps()) {
    if (op.compute == nullptr) continue;
    Rng rng(StableHash(op.name));
    int done = 0;
    for (int i = 0; i < 40 && done < 3; ++i) {
      const Case c = CaseGenerators().at(op.name)(rng);
      Workload w;
      Workload::Call call{std::string(op.name), c.attrs, {}, {}};
      std::vector<TensorType> types;
      for (const NDArray& x : c.inputs) {
        call.args.push_back(x.shape().empty() && x.size() == 0 ? -1 : static_cast<int>(w.inputs.size()));
        types.push_back({x.dtype(), x.shape(), {}});
        w.inputs.push_back({{x.dtype(), x.shape(), AnyOrder(rng, x.shape().size())}, false});
      }
      const absl::StatusOr<TensorType> output = op.infer(c.attrs, types);
      if (!output.ok() || NumElements(output->shape) == 0 || IsPacked(output->dtype)) continue;
      call.type = *output;
      call.type.perm = AnyOrder(rng, output->shape.size());
      w.calls.push_back(call);
      ++done;
      ASSERT_NO_FATAL_FAILURE(CheckOnGpus(w, 1, rng.Next(), "gpu.default", c.inputs));
    }
    EXPECT_EQ(done, 3) << op.name;
  }
}

}  // namespace
}  // namespace temper
