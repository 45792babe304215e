// "gpu.winograd": tiles that hang over the image, channels that fill no vector, what is fused behind it, how far off it
// is, and who may use it.
#include <map>

#include "absl/strings/str_replace.h"
#include "compiler/ops/templates/winograd.h"
#include "tests/templates/check_gpu.h"

namespace temper {
namespace {

struct WinogradConvolution {
  int64_t n, c, oc, h, w;
  int64_t top, left, bottom, right;
  bool fused;  // bias, residual and relu
};

std::string WinogradText(const WinogradConvolution& k, const std::string& attributes = "") {
  const std::string out =
      absl::StrCat("f32[", k.n, ",", k.oc, ",", k.h + k.top + k.bottom - 2, ",", k.w + k.left + k.right - 2, "]@0231");
  const std::string operands =
      absl::StrCat("(f32[", k.n, ",", k.c, ",", k.h, ",", k.w, "]@0231, const f32[", k.oc, ",", k.c, ",3,3]");
  const std::string conv = absl::StrCat(") conv2d(0,1; pads=[", k.top, ",", k.left, ",", k.bottom, ",", k.right, "]",
                                        attributes, ") -> ", out);
  if (!k.fused) return absl::StrCat(operands, conv, "; anchor=0");
  return absl::StrCat(operands, ", f32[", k.oc, ",1,1], ", out, conv, "; add(4,2) -> ", out, "; add(5,3) -> ", out,
                      "; relu(6) -> ", out, "; anchor=0");
}

TEST(GpuWinograd, Shapes) {
  const WinogradConvolution shapes[] = {
      {1, 8, 8, 7, 7, 1, 1, 1, 1, false},    {1, 9, 17, 5, 9, 1, 1, 1, 1, true},  {2, 17, 10, 5, 9, 0, 0, 0, 0, true},
      {1, 12, 19, 7, 7, 0, 0, 0, 0, false},  {2, 16, 16, 7, 5, 1, 1, 1, 1, true}, {1, 11, 9, 3, 3, 0, 0, 0, 0, false},
      {1, 10, 12, 8, 6, 0, 2, 1, 0, true},   {3, 8, 20, 4, 4, 1, 1, 1, 1, false}, {1, 33, 24, 1, 13, 1, 1, 1, 1, true},
      {1, 20, 15, 10, 10, 2, 2, 2, 2, true},
  };
  uint64_t seed = 1;
  for (const WinogradConvolution& k : shapes)
    ASSERT_NO_FATAL_FAILURE(CheckOnGpus(Parse(WinogradText(k)), 3, seed++, "gpu.winograd"));
}

std::vector<Config> ConfigsOf(const Workload& w, const Target& t, int64_t m) {
  std::vector<Config> all = FindTemplate("gpu.winograd")->space(w, t).Enumerate(4096, 3);
  std::erase_if(all, [&](const Config& c) { return c["m"] != m; });
  return all;
}

TEST(GpuWinograd, IsThreeLaunchesOfWhichTheProductsShareMemory) {
  const Workload w = Parse(WinogradText({1, 16, 24, 9, 9, 1, 1, 1, 1, true}));
  for (const Target& t : GpuTargets()) {
    for (const int64_t m : {2, 4}) {
      const std::vector<Config> configs = ConfigsOf(w, t, m);
      ASSERT_FALSE(configs.empty());
      const Kernel kernel = BuildKernel(w, "gpu.winograd", configs.front(), t).value();
      const std::vector<ir::Launch> launches = ir::LaunchesOf(kernel.main).value();
      ASSERT_EQ(launches.size(), 3u);
      EXPECT_EQ(launches[0].shared_bytes(), 0);
      EXPECT_GT(launches[1].shared_bytes(), 0);
      EXPECT_EQ(launches[1].groups[2], (m + 2) * (m + 2)) << "a product for each point";
      EXPECT_EQ(launches[2].shared_bytes(), 0);
      EXPECT_EQ(FindTemplate("gpu.winograd")->footprint(w, configs.front(), t)["launches"], 3);
    }
  }
}

TEST(GpuWinograd, StaysWithinItsBoundOverManyChannels) {
  const Workload w = Parse(WinogradText({1, 512, 8, 8, 8, 1, 1, 1, 1, false}));
  const Target t = ParseTarget("cuda:sm_80").value();
  Rng rng(5);
  const std::vector<NDArray> inputs = RandomInputs(w, rng);
  const NDArray wanted = ToPhysical(RunReference(w, inputs).value(), w.output().perm);
  std::map<int64_t, double> error;
  for (const int64_t m : {2, 4}) {
    const Kernel kernel = BuildKernel(w, "gpu.winograd", ConfigsOf(w, t, m).front(), t).value();
    const absl::StatusOr<NDArray> got = InterpretKernel(w, kernel, inputs);
    ASSERT_TRUE(got.ok()) << got.status();
    error[m] = RelativeError(*got, wanted);
    EXPECT_EQ(kernel.tolerance, kWinogradErrorBound);
  }
  EXPECT_LT(error[2], kWinogradErrorBound / 10);
  EXPECT_LT(error[4], kWinogradErrorBound);
  EXPECT_LT(error[2], error[4]);
}

// The same word forbids it that forbids the CPU's, and the same shapes have no use for it.
TEST(GpuWinograd, FitsWhatTheTemplateForCpusFits) {
  const auto fits = [](const std::string& text) {
    const Workload w = Parse(text);
    const bool on_cpu = FindTemplate("conv2d.winograd")->matches(w, ParseTarget("llvm:haswell").value());
    for (const Target& t : GpuTargets()) EXPECT_EQ(FindTemplate("gpu.winograd")->matches(w, t), on_cpu) << text;
    return on_cpu;
  };
  const WinogradConvolution usual = {1, 8, 16, 9, 9, 1, 1, 1, 1, false};
  EXPECT_TRUE(fits(WinogradText(usual)));
  EXPECT_TRUE(fits(WinogradText(usual, " winograd=1")));
  EXPECT_TRUE(fits(WinogradText(usual, " tf32=1")));
  EXPECT_FALSE(fits(WinogradText(usual, " winograd=0")));
  EXPECT_FALSE(fits(WinogradText({1, 3, 16, 9, 9, 1, 1, 1, 1, false}))) << "few channels";
  EXPECT_FALSE(fits(WinogradText({1, 16, 3, 9, 9, 1, 1, 1, 1, false}))) << "few filters";
  const auto with = [&](const char* from, const char* to) {
    return absl::StrReplaceAll(WinogradText(usual), {{from, to}});
  };
  EXPECT_FALSE(fits(with("const ", ""))) << "filters that are not known";
  EXPECT_FALSE(fits(with("f32", "f16")));
  EXPECT_FALSE(
      fits("(f32[1,8,9,9]@0231, const f32[16,8,3,3]) conv2d(0,1; pads=[1,1,1,1] strides=[2,2]) -> "
           "f32[1,16,5,5]@0231; anchor=0"));
  EXPECT_FALSE(
      fits("(f32[1,8,9,9]@0231, const f32[16,8,3,3]) conv2d(0,1; dilations=[2,2] pads=[2,2,2,2]) -> "
           "f32[1,16,9,9]@0231; anchor=0"));
  EXPECT_FALSE(
      fits("(f32[1,16,9,9]@0231, const f32[16,8,3,3]) conv2d(0,1; group=2 pads=[1,1,1,1]) -> "
           "f32[1,16,9,9]@0231; anchor=0"));
  EXPECT_FALSE(
      fits("(f32[1,8,9,9]@0231, const f32[16,8,5,5]) conv2d(0,1; pads=[2,2,2,2]) -> f32[1,16,9,9]@0231; "
           "anchor=0"));
}

TEST(GpuWinograd, IsFoundBySearchesAndIsNoDefault) {
  for (const char* name : {"opencl", "cuda:sm_80", "cuda -arch=sm_90 -local=232448 -wg=1024 -warp=32 -units=132"}) {
    const Target t = ParseTarget(name).value();
    for (const WinogradConvolution& k : {WinogradConvolution{1, 64, 64, 56, 56, 1, 1, 1, 1, true},
                                         {1, 512, 512, 7, 7, 1, 1, 1, 1, true},
                                         {16, 256, 256, 56, 56, 1, 1, 1, 1, false}}) {
      const Workload w = Parse(WinogradText(k));
      const std::vector<const TemplateDef*> templates = TemplatesFor(w, t);
      ASSERT_EQ(templates.size(), 2u);
      EXPECT_EQ(templates[1]->name, "gpu.winograd");
      EXPECT_EQ(DefaultChoice(w, t)->def->name, "gpu.conv");
    }
  }
}

// What the draft weighs against gpu.conv: less arithmetic, and more bytes for what lies between the launches.
TEST(GpuWinograd, ItsFootprintTradesArithmeticForBytes) {
  const Workload w = Parse(WinogradText({1, 256, 256, 56, 56, 1, 1, 1, 1, false}));
  const Target t = ParseTarget("cuda:sm_80").value();
  const std::string tile = "ty=8,tx=16,tm=8,tn=8,bk=8,vec=4,stages=2,split=1";
  const auto footprint = [&](const char* name, const std::string& config) {
    const Config c = ParseConfig(config).value();
    EXPECT_TRUE(FindTemplate(name)->space(w, t).Check(c).ok()) << config;
    return FindTemplate(name)->footprint(w, c, t);
  };
  const Footprint direct = footprint("gpu.conv", tile), two = footprint("gpu.winograd", "m=2," + tile),
                  four = footprint("gpu.winograd", "m=4," + tile);
  EXPECT_EQ(direct["flops"], 2.25 * two["flops"]);
  EXPECT_EQ(direct["flops"], 4 * four["flops"]);
  EXPECT_EQ(two["compulsory_bytes"], direct["compulsory_bytes"]);
  // Of 56 x 56 pixels come 28 x 28 tiles of 16 points: each is written and read on both sides of the products.
  const double between = 2 * 28 * 28 * 16 * (256 + 256) * 4;
  EXPECT_GT(two["memory_traffic"], between);
  EXPECT_LT(two["memory_traffic"], between + 3 * direct["memory_traffic"]);
  EXPECT_GT(two["memory_traffic"], four["memory_traffic"]) << "smaller tiles overlap more";
  EXPECT_GT(four["memory_traffic"], 2 * direct["memory_traffic"]);
}

// However small or uneven; and where what lies between the launches would be too much, it is for larger tiles alone,
// and then for none.
TEST(GpuWinograd, ThereIsAConfigForEverySizeThatFitsMemory) {
  const auto sizes = [](const Workload& w, const Target& t) {
    const ConfigSpace space = FindTemplate("gpu.winograd")->space(w, t);
    for (const Knob& knob : space.knobs()) {
      if (knob.name == "m") return knob.values;
    }
    return std::vector<int64_t>();
  };
  using Sizes = std::vector<int64_t>;
  for (const char* name : {"opencl", "opencl -local=1024 -wg=8", "cuda:sm_50", "cuda:sm_90"}) {
    const Target t = ParseTarget(name).value();
    const TemplateDef& def = *FindTemplate("gpu.winograd");
    for (const auto& [k, wanted] : {std::pair(WinogradConvolution{1, 8, 8, 3, 3, 0, 0, 0, 0, false}, Sizes{2}),
                                    {{1, 8, 8, 5, 3, 1, 1, 1, 1, false}, {2}},
                                    {{1, 101, 103, 13, 13, 0, 1, 1, 0, true}, {2, 4}},
                                    {{1, 512, 512, 7, 7, 1, 1, 1, 1, true}, {2, 4}},
                                    {{1, 64, 64, 224, 224, 1, 1, 1, 1, false}, {2, 4}},
                                    {{1, 64, 64, 900, 900, 1, 1, 1, 1, false}, {4}}}) {
      const Workload w = Parse(WinogradText(k));
      ASSERT_TRUE(def.matches(w, t)) << WinogradText(k);
      EXPECT_EQ(sizes(w, t), wanted) << WinogradText(k);
      const int64_t legal = def.space(w, t).Count(1 << 14).legal;
      EXPECT_GE(legal, 1) << name << " " << WinogradText(k);
      EXPECT_LE(legal, 30000) << name << " " << WinogradText(k);
    }
    for (const WinogradConvolution& huge : {WinogradConvolution{1, 64, 64, 4096, 4096, 1, 1, 1, 1, false},
                                            {1, 256, 256, 1 << 14, 1 << 14, 1, 1, 1, 1, false}})
      EXPECT_FALSE(def.matches(Parse(WinogradText(huge)), t));
  }
}

}  // namespace
}  // namespace temper
