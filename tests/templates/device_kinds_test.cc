// Templates of one kind of device are none of another's.
#include <gtest/gtest.h>

#include <set>
#include <span>

#include "compiler/ops/template.h"

namespace temper {
namespace {

constexpr const char* kCpus[] = {"llvm:haswell", "interpreter"};
constexpr const char* kBf16[] = {"llvm:znver4", "llvm:sapphirerapids"};
constexpr const char* kTiles[] = {"llvm:sapphirerapids"};
constexpr const char* kGpus[] = {"opencl", "cuda:sm_90"};
constexpr const char* kTensorCores[] = {"cuda:sm_80", "cuda:sm_90"};
constexpr const char* kTeams[] = {"cuda:sm_90", "cuda:sm_90a"};

constexpr const char* kNBits =
    "(f32[4,64], const u8[32,16], const f32[2,16]) matmul_nbits(0,1,2; zero=8) -> f32[4,16]; anchor=0";

constexpr const char* kNBitsI8 =
    "(i8[4,64], const u8[32,16], const f32[2,16], f32[4,2]) matmul_nbits_i8(0,1,2,3; zero=8) -> f32[4,16]; anchor=0";

// One for each built-in template.
struct Built {
  const char* name;
  std::span<const char* const> targets;
  const char* workload;
};
constexpr Built kBuilt[] = {
    {"conv2d.direct", kCpus,
     "(f32[1,8,4,4]@0231, const f32[8,8,1,1]) conv2d(0,1; dilations=[1,1] group=1 pads=[0,0,0,0] strides=[1,1]) -> "
     "f32[1,8,4,4]@0231; anchor=0"},
    {"conv2d.rows", kCpus,
     "(f32[1,8,8,8]@0231, const f32[8,8,5,5]) conv2d(0,1; dilations=[1,1] group=1 pads=[2,2,2,2] strides=[1,1]) -> "
     "f32[1,8,8,8]@0231; anchor=0"},
    {"conv2d.winograd", kCpus,
     "(f32[1,8,8,8]@0231, const f32[8,8,3,3]) conv2d(0,1; dilations=[1,1] group=1 pads=[1,1,1,1] strides=[1,1]) -> "
     "f32[1,8,8,8]@0231; anchor=0"},
    {"conv2d.depthwise", kCpus,
     "(f32[1,8,8,8]@0231, const f32[8,1,3,3]) conv2d(0,1; dilations=[1,1] group=8 pads=[1,1,1,1] strides=[1,1]) -> "
     "f32[1,8,8,8]@0231; anchor=0"},
    {"conv2d.separable", kCpus,
     "(f32[1,96,14,14]@0231, const f32[96,1,3,3], const f32[96,96,1,1]) conv2d(0,1; dilations=[1,1] group=96 "
     "pads=[1,1,1,1] strides=[1,1]) -> f32[1,96,14,14]@0231; conv2d(3,2; dilations=[1,1] group=1 pads=[0,0,0,0] "
     "strides=[1,1]) -> f32[1,96,14,14]@0231; anchor=1"},
    {"conv2d.expanded", kCpus,
     "(f32[1,16,14,14]@0231, const f32[96,16,1,1], const f32[96,1,3,3]) conv2d(0,1; dilations=[1,1] group=1 "
     "pads=[0,0,0,0] strides=[1,1]) -> f32[1,96,14,14]@0231; conv2d(3,2; dilations=[1,1] group=96 pads=[1,1,1,1] "
     "strides=[1,1]) -> f32[1,96,14,14]@0231; anchor=1"},
    {"matmul.packed", kCpus, "(f32[4,8], const f32[8,16]) matmul(0,1) -> f32[4,16]; anchor=0"},
    {"conv2d.integer", kCpus,
     "(i16[1,8,8,8]@0231, const i16[8,8,3,3]) conv2d(0,1; dilations=[1,1] group=1 pads=[1,1,1,1] result='i32' "
     "strides=[1,1]) -> i32[1,8,8,8]@0231; anchor=0"},
    {"matmul.integer", kCpus, "(i16[4,8], const i16[8,16]) matmul(0,1; result='i32') -> i32[4,16]; anchor=0"},
    {"conv2d.tiles", kTiles,
     "(u8[1,8,8,8]@0231, const i8[8,8,3,3]) conv2d(0,1; dilations=[1,1] group=1 pads=[1,1,1,1] result='i32' "
     "strides=[1,1]) -> i32[1,8,8,8]@0231; anchor=0"},
    {"matmul.tiles", kTiles, "(u8[4,8], const i8[8,16]) matmul(0,1; result='i32') -> i32[4,16]; anchor=0"},
    {"conv2d.bf16", kBf16,
     "(f32[1,8,8,8]@0231, const f32[8,8,3,3]) conv2d(0,1; bf16=1 dilations=[1,1] group=1 pads=[1,1,1,1] strides=[1,1]) "
     "-> f32[1,8,8,8]@0231; anchor=0"},
    {"matmul.bf16", kBf16, "(f32[4,8], const f32[8,16]) matmul(0,1; bf16=1) -> f32[4,16]; anchor=0"},
    {"conv2d.tiles_bf16", kTiles,
     "(f32[1,8,8,8]@0231, const f32[8,8,3,3]) conv2d(0,1; bf16=1 dilations=[1,1] group=1 pads=[1,1,1,1] strides=[1,1]) "
     "-> f32[1,8,8,8]@0231; anchor=0"},
    {"matmul.tiles_bf16", kTiles, "(f32[4,8], const f32[8,16]) matmul(0,1; bf16=1) -> f32[4,16]; anchor=0"},
    {"matmul.nbits", kCpus, kNBits},
    {"matmul.nbits_cached", kCpus, kNBits},
    {"matmul.nbits_i8", kCpus, kNBitsI8},
    {"attention.rows", kCpus,
     "(f32[2,8,8], f32[2,8,8], f32[2,8,8]) matmul(0,1) -> f32[2,8,8]; softmax(3; axis=2) -> f32[2,8,8]; matmul(4,2) "
     "-> f32[2,8,8]; anchor=2"},
    {"reduce.pixels", kCpus,
     "(f32[1,32,32,16]@0231) reduce_mean(0; axes=[2,3] keepdims=1) -> f32[1,32,1,1]@0231; anchor=0"},
    {"pool.separable", kCpus,
     "(f32[1,8,32,32]) max_pool2d(0; kernel=[3,3] pads=[1,1,1,1] strides=[1,1]) -> f32[1,8,32,32]; anchor=0"},
    {"scan", kCpus, "(f32[4,16]) cum_sum(0; axis=1) -> f32[4,16]; anchor=0"},
    {"compact", kCpus, "(f32[4,16], i64[]) compact(0,1; axis=1) -> f32[4,16]; anchor=0"},
    {"scatter", kCpus, "(f32[8,4], i64[3], f32[3,4]) scatter(0,1,2; axis=0) -> f32[8,4]; anchor=0"},
    {"top_k", kCpus, "(f32[4,16]) top_k(0; k=3) -> i32[4,3]; anchor=0"},
    {"suppress", kCpus,
     "(f32[1,4,9], f32[1,2,9], f32[1], f32[1]) non_max_suppression(0,1,2,3; k=3) -> i32[1,2,3]; anchor=0"},
    {"default", kCpus, "(f32[16]) relu(0) -> f32[16]; anchor=0"},
    {"gpu.conv", kGpus,
     "(f32[1,8,8,8]@0231, const f32[8,8,3,3]) conv2d(0,1; dilations=[1,1] group=1 pads=[1,1,1,1] strides=[1,1]) -> "
     "f32[1,8,8,8]@0231; anchor=0"},
    {"gpu.depthwise", kGpus,
     "(f32[1,8,8,8]@0231, const f32[8,1,3,3]) conv2d(0,1; dilations=[1,1] group=8 pads=[1,1,1,1] strides=[1,1]) -> "
     "f32[1,8,8,8]@0231; anchor=0"},
    {"gpu.reduce", kGpus, "(f32[4,16]) softmax(0; axis=1) -> f32[4,16]; anchor=0"},
    {"gpu.pixels", kGpus, "(f32[1,32,8,8]@0231) reduce_mean(0; axes=[2,3] keepdims=1) -> f32[1,32,1,1]@0231; anchor=0"},
    {"gpu.gemm", kGpus, "(f32[4,8], const f32[8,16]) matmul(0,1) -> f32[4,16]; anchor=0"},
    {"gpu.mma", kTensorCores, "(f16[4,8], const f16[8,16]) matmul(0,1) -> f16[4,16]; anchor=0"},
    {"gpu.wgmma", kTeams, "(f16[4,8], const f16[8,16]) matmul(0,1) -> f16[4,16]; anchor=0"},
    {"gpu.winograd", kGpus,
     "(f32[1,8,8,8]@0231, const f32[8,8,3,3]) conv2d(0,1; dilations=[1,1] group=1 pads=[1,1,1,1] strides=[1,1]) -> "
     "f32[1,8,8,8]@0231; anchor=0"},
    {"gpu.attention", kGpus,
     "(f32[2,8,8], f32[2,8,8], f32[2,8,8]) matmul(0,1) -> f32[2,8,8]; softmax(3; axis=2) -> f32[2,8,8]; matmul(4,2) "
     "-> f32[2,8,8]; anchor=2"},
    {"gpu.attention_mma", kTensorCores,
     "(f16[2,8,8], f16[2,8,8], f16[2,8,8]) matmul(0,1) -> f16[2,8,8]; softmax(3; axis=2) -> f16[2,8,8]; matmul(4,2) "
     "-> f16[2,8,8]; anchor=2"},
    {"gpu.default", kGpus, "(f32[16]) relu(0) -> f32[16]; anchor=0"},
};

TEST(DeviceKinds, EveryBuiltInTemplateFitsSomeWorkloadOnItsKindAndNoneOnAnother) {
  std::set<std::string_view> tried;
  for (const Built& built : kBuilt) {
    const absl::StatusOr<Workload> w = ParseWorkload(built.workload);
    ASSERT_TRUE(w.ok()) << w.status();
    const TemplateDef* def = FindTemplate(built.name);
    ASSERT_NE(def, nullptr) << built.name;
    tried.insert(def->name);
    for (const char* own : built.targets) EXPECT_TRUE(def->matches(*w, *ParseTarget(own))) << built.name;
    for (const char* other : built.targets.data() == kCpus ? kGpus : kCpus) {
      const Target t = *ParseTarget(other);
      EXPECT_FALSE(def->matches(*w, t)) << built.name;
      EXPECT_EQ(BuildKernel(*w, built.name, Config(), t).status().code(), absl::StatusCode::kInvalidArgument);
    }
  }
  EXPECT_EQ(tried.size(), AllTemplates().size());
}

TEST(DeviceKinds, TheFallbackIsAskedWhereNothingElseFits) {
  for (const Built& built : kBuilt) {
    const Workload w = *ParseWorkload(built.workload);
    for (const char* own : built.targets) {
      const Target t = *ParseTarget(own);
      const std::vector<const TemplateDef*> templates = TemplatesFor(w, t);
      ASSERT_FALSE(templates.empty());
      for (const TemplateDef* def : templates) {
        EXPECT_EQ(def->fallback, !HasOwnTemplate(w, t)) << built.name;
        EXPECT_EQ(def->schema, templates.front()->schema);
      }
      EXPECT_TRUE(!templates.front()->fallback || templates.size() == 1) << built.name;
    }
  }
}

TEST(DeviceKinds, APlainMachineHasTheSameTemplatesAsAnyCpuButThoseOfInstructions) {
  for (const Built& built : kBuilt) {
    if (built.targets.data() == kBf16 || built.targets.data() == kTiles) continue;
    const Workload w = *ParseWorkload(built.workload);
    EXPECT_EQ(TemplatesFor(w, *ParseTarget("interpreter")), TemplatesFor(w, *ParseTarget("llvm:znver4"))) << built.name;
  }
}

}  // namespace
}  // namespace temper
