// Templates of one kind of device are none of another's.
#include <gtest/gtest.h>

#include <set>

#include "compiler/ops/template.h"

namespace temper {
namespace {

// One for each built-in template, by name.
const std::pair<const char*, const char*> kWorkloads[] = {
    {"conv2d.direct",
     "(f32[1,8,4,4]@0231, const f32[8,8,1,1]) conv2d(0,1; dilations=[1,1] group=1 pads=[0,0,0,0] strides=[1,1]) -> "
     "f32[1,8,4,4]@0231; anchor=0"},
    {"conv2d.rows",
     "(f32[1,8,8,8]@0231, const f32[8,8,5,5]) conv2d(0,1; dilations=[1,1] group=1 pads=[2,2,2,2] strides=[1,1]) -> "
     "f32[1,8,8,8]@0231; anchor=0"},
    {"conv2d.winograd",
     "(f32[1,8,8,8]@0231, const f32[8,8,3,3]) conv2d(0,1; dilations=[1,1] group=1 pads=[1,1,1,1] strides=[1,1]) -> "
     "f32[1,8,8,8]@0231; anchor=0"},
    {"conv2d.depthwise",
     "(f32[1,8,8,8]@0231, const f32[8,1,3,3]) conv2d(0,1; dilations=[1,1] group=8 pads=[1,1,1,1] strides=[1,1]) -> "
     "f32[1,8,8,8]@0231; anchor=0"},
    {"conv2d.separable",
     "(f32[1,96,14,14]@0231, const f32[96,1,3,3], const f32[96,96,1,1]) conv2d(0,1; dilations=[1,1] group=96 "
     "pads=[1,1,1,1] strides=[1,1]) -> f32[1,96,14,14]@0231; conv2d(3,2; dilations=[1,1] group=1 pads=[0,0,0,0] "
     "strides=[1,1]) -> f32[1,96,14,14]@0231; anchor=1"},
    {"matmul.packed", "(f32[4,8], const f32[8,16]) matmul(0,1) -> f32[4,16]; anchor=0"},
    {"reduce.pixels", "(f32[1,32,32,16]@0231) reduce_mean(0; axes=[2,3] keepdims=1) -> f32[1,32,1,1]@0231; anchor=0"},
    {"default", "(f32[16]) relu(0) -> f32[16]; anchor=0"},
};

TEST(DeviceKinds, EveryBuiltInTemplateFitsSomeWorkloadOnCpusAndNoneOnGpus) {
  std::set<std::string_view> tried;
  for (const auto& [name, text] : kWorkloads) {
    const absl::StatusOr<Workload> w = ParseWorkload(text);
    ASSERT_TRUE(w.ok()) << w.status();
    const TemplateDef* def = FindTemplate(name);
    ASSERT_NE(def, nullptr) << name;
    tried.insert(def->name);
    for (const char* cpu : {"llvm:haswell", "interpreter"}) EXPECT_TRUE(def->matches(*w, *ParseTarget(cpu))) << name;
    for (const char* gpu : {"opencl", "cuda:sm_90"}) {
      const Target t = *ParseTarget(gpu);
      EXPECT_FALSE(def->matches(*w, t)) << name;
      EXPECT_TRUE(TemplatesFor(*w, t).empty());
      EXPECT_FALSE(HasOwnTemplate(*w, t));
      const absl::Status chosen = DefaultChoice(*w, t).status();
      EXPECT_EQ(chosen.code(), absl::StatusCode::kNotFound);
      EXPECT_NE(chosen.message().find(t.generator), std::string::npos) << chosen;
      EXPECT_EQ(chosen.message().find('\n'), std::string::npos) << chosen;
      EXPECT_EQ(BuildKernel(*w, name, Config(), t).status().code(), absl::StatusCode::kInvalidArgument);
    }
  }
  EXPECT_EQ(tried.size(), AllTemplates().size());
}

TEST(DeviceKinds, APlainMachineHasTheSameTemplatesAsAnyCpu) {
  for (const auto& [name, text] : kWorkloads) {
    const Workload w = *ParseWorkload(text);
    EXPECT_EQ(TemplatesFor(w, *ParseTarget("interpreter")), TemplatesFor(w, *ParseTarget("llvm:znver4"))) << name;
  }
}

}  // namespace
}  // namespace temper
