// Every template against the operators' references: random shapes, random configs, several instruction sets.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "compiler/ops/default_choice.h"
#include "compiler/ops/legal_configs.h"
#include "compiler/ops/templates/winograd.h"
#include "tests/templates/check_templates.h"

namespace temper {
namespace {

std::string Nhwc(std::vector<int64_t> shape) { return absl::StrCat("f32[", absl::StrJoin(shape, ","), "]@0231"); }

struct Conv {
  int64_t c, h, w, oc, k, stride, pad, dilation, group;
};
std::string ConvText(const Conv& v, const std::string& epilogue_inputs,
                     const std::function<std::string(const std::string&, int)>& epilogue) {
  auto out = [&](int64_t size) { return (size + 2 * v.pad - v.dilation * (v.k - 1) - 1) / v.stride + 1; };
  const std::string result = Nhwc({1, v.oc, out(v.h), out(v.w)});
  const int call =
      2 +
      (epilogue_inputs.empty() ? 0 : static_cast<int>(std::count(epilogue_inputs.begin(), epilogue_inputs.end(), '#')));
  std::string inputs = epilogue_inputs;
  for (size_t at; (at = inputs.find('#')) != std::string::npos;) inputs.replace(at, 1, result);
  return absl::StrCat("(", Nhwc({1, v.c, v.h, v.w}), ", const f32[", v.oc, ",", v.c / v.group, ",", v.k, ",", v.k, "]",
                      inputs, ") conv2d(0,1; dilations=[", v.dilation, ",", v.dilation, "] group=", v.group, " pads=[",
                      v.pad, ",", v.pad, ",", v.pad, ",", v.pad, "] strides=[", v.stride, ",", v.stride, "]) -> ",
                      result, epilogue(result, call), "; anchor=0");
}

TEST(TemplateTest, ConvolutionsOfManyShapes) {
  const Conv kShapes[] = {{16, 7, 7, 32, 1, 1, 0, 1, 1}, {8, 9, 11, 24, 3, 1, 1, 1, 1},  {3, 19, 17, 20, 7, 2, 3, 1, 1},
                          {12, 8, 8, 40, 1, 2, 0, 1, 1}, {6, 10, 10, 18, 3, 1, 2, 2, 1}, {16, 6, 7, 32, 3, 1, 1, 1, 4},
                          {5, 5, 5, 7, 5, 1, 2, 1, 1},   {64, 14, 14, 64, 3, 1, 1, 1, 1}};
  uint64_t seed = 1;
  for (const Conv& shape : kShapes)
    CheckAll(Parse(ConvText(shape, "", [](const std::string&, int) { return std::string(); })), 4, seed++);
}

// Cheap and costly activations: see lower/epilogue.h.
TEST(TemplateTest, ConvolutionsWithBiasResidualAndActivation) {
  uint64_t seed = 7;
  for (const char* activation : {"relu", "silu"}) {
    for (int64_t k : {1, 3}) {
      // Operands 2 and 3: a bias and a residual; the anchor's result is argument 4.
      CheckAll(Parse(ConvText({16, 9, 9, 40, k, 1, k / 2, 1, 1}, ", const f32[40,1,1], #",
                              [&](const std::string& type, int) {
                                return absl::StrCat("; add(4,2) -> ", type, "; add(5,3) -> ", type, "; ", activation,
                                                    "(6) -> ", type);
                              })),
               5, seed++);
    }
  }
}

// As many of them as a core waits for at a time, or none.
TEST(TemplateTest, SmallTilesFetchTheLinesThatTheyAreStoredTo) {
  const auto fetches = [](const std::string& name, int64_t k, const std::string& tile, const char* target) {
    const Workload w =
        Parse(ConvText({64, 14, 14, 64, k, 1, k / 2, 1, 1}, "", [](const std::string&, int) { return std::string(); }));
    const std::string config = absl::StrCat(tile, ",blocks=1,ku=1", k == 1 ? ",pack=1" : "");
    const absl::StatusOr<Kernel> kernel = BuildKernel(w, name, *ParseConfig(config), *ParseTarget(target));
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    return kernel.ok() && ir::Text(kernel->main).find("prefetch for store out[") != std::string::npos;
  };
  for (const auto& [name, k] : {std::pair("conv2d.direct", 1), std::pair("conv2d.rows", 3)}) {
    EXPECT_TRUE(fetches(name, k, "mr=5,nv=2", "llvm:haswell")) << name;
    EXPECT_TRUE(fetches(name, k, "mr=7,nv=2", "llvm:skylake-avx512")) << name;
    EXPECT_FALSE(fetches(name, k, "mr=14,nv=2", "llvm:skylake-avx512")) << name;
  }
}

// The result is of another type than the sums.
TEST(TemplateTest, CastsBehindContractions) {
  uint64_t seed = 40;
  for (const char* to : {"f16", "bool"}) {
    for (const Conv& shape :
         {Conv{16, 9, 9, 40, 1, 1, 0, 1, 1}, Conv{16, 9, 9, 24, 3, 1, 1, 1, 1}, Conv{24, 9, 9, 24, 3, 1, 1, 1, 24}}) {
      CheckAll(Parse(ConvText(shape, ", const f32[1,1,1]",
                              [&](const std::string& type, int) {
                                const std::string cast = absl::StrCat(to, type.substr(3));
                                return absl::StrCat("; add(3,2) -> ", type, "; cast(4; to='", to, "') -> ", cast);
                              })),
               2, seed++);
    }
    const std::string type = "[5,70]";
    CheckAll(Parse(absl::StrCat("(f32[5,33], const f32[33,70]) matmul(0,1) -> f32", type, "; relu(2) -> f32", type,
                                "; cast(3; to='", to, "') -> ", to, type, "; anchor=0")),
             3, seed++);
  }
}

// What the anchor reads is made of another type.
TEST(TemplateTest, CastsBeforeContractions) {
  uint64_t seed = 60;
  for (const char* from : {"f16", "bf16", "u8"}) {
    CheckAll(Parse(absl::StrCat("(", from, "[5,33], const f32[33,70]) cast(0; to='f32') -> f32[5,33]; ",
                                "matmul(2,1) -> f32[5,70]; anchor=1")),
             3, seed++);
    CheckAll(Parse(absl::StrCat("(", from, "[1,16,9,9]@0231, const f32[40,16,1,1]) cast(0; to='f32') -> ",
                                "f32[1,16,9,9]@0231; conv2d(2,1) -> f32[1,40,9,9]@0231; anchor=1")),
             3, seed++);
  }
}

// Sums are of a type of their own: f32 of narrow floats, i32 of narrow integers, rounded once or kept.
TEST(TemplateTest, ContractionsOfNarrowTypes) {
  uint64_t seed = 70;
  for (const char* types :
       {"f16 f16", "bf16 bf16", "f16 f32", "f8e4m3fn f32", "i8 i8", "i8 i32", "u8 i32", "i16 i32"}) {
    const std::vector<std::string> t = absl::StrSplit(types, ' ');
    const std::string result = t[0] == t[1] ? "" : absl::StrCat("; result='", t[1], "'");
    CheckAll(Parse(absl::StrCat("(", t[0], "[5,33], const ", t[0], "[33,20]) matmul(0,1", result, ") -> ", t[1],
                                "[5,20]; anchor=0")),
             2, seed++);
    CheckAll(Parse(absl::StrCat("(", t[0], "[1,6,7,7]@0231, const ", t[0], "[10,6,3,3]) conv2d(0,1",
                                result.empty() ? "" : result, ") -> ", t[1], "[1,10,5,5]@0231; anchor=0")),
             2, seed++);
  }
}

TEST(TemplateTest, WinogradOnOddShapes) {
  uint64_t seed = 90;
  for (const Conv& shape : {Conv{16, 4, 4, 16, 3, 1, 1, 1, 1}, Conv{24, 13, 6, 40, 3, 1, 0, 1, 1},
                            Conv{9, 5, 22, 33, 3, 1, 2, 1, 1}, Conv{40, 3, 3, 8, 3, 1, 1, 1, 1}}) {
    const Workload w = Parse(ConvText(shape, "", [](const std::string&, int) { return std::string(); }));
    const std::vector<const TemplateDef*> defs = TemplatesFor(w, Target{});
    ASSERT_TRUE(std::any_of(defs.begin(), defs.end(), [](auto* def) { return def->name == "conv2d.winograd"; }));
    CheckAll(w, 5, seed++);
  }
}

TEST(TemplateTest, WinogradStaysWithinItsBoundOverManyChannels) {
  const Workload w =
      Parse(ConvText({512, 8, 8, 32, 3, 1, 1, 1, 1}, "", [](const std::string&, int) { return std::string(); }));
  Rng rng(5);
  const std::vector<NDArray> inputs = RandomInputs(w, rng);
  absl::StatusOr<NDArray> wanted = RunReference(w, inputs);
  ASSERT_TRUE(wanted.ok());
  const NDArray physical = ToPhysical(*wanted, w.output().perm);
  const Target t = HostTarget();
  double error[2];
  for (int i = 0; i < 2; ++i) {
    const std::string config = absl::StrCat("m=", i == 0 ? 2 : 4, ",mr=4,nv=1,mt=1,blocks=1,ku=1");
    absl::StatusOr<Config> parsed = ParseConfig(config);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    absl::StatusOr<Kernel> kernel = BuildKernel(w, "conv2d.winograd", *parsed, t);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    absl::StatusOr<NDArray> got = RunKernel(w, *kernel, t, inputs);
    ASSERT_TRUE(got.ok()) << got.status();
    error[i] = RelativeError(*got, physical);
  }
  EXPECT_LT(error[0], kWinogradErrorBound / 10);
  EXPECT_LT(error[1], kWinogradErrorBound);
  EXPECT_LT(error[0], error[1]);
}

// Channels and output channels past the last whole vector and panel, tiles past the last row, chunks and blocks.
TEST(TemplateTest, WinogradTransformsFiltersInTheKernel) {
  const Workload w =
      Parse(ConvText({127, 7, 5, 72, 3, 1, 1, 1, 1}, "", [](const std::string&, int) { return std::string(); }));
  Rng rng(6);
  const std::vector<NDArray> inputs = RandomInputs(w, rng);
  absl::StatusOr<NDArray> wanted = RunReference(w, inputs);
  ASSERT_TRUE(wanted.ok());
  const NDArray physical = ToPhysical(*wanted, w.output().perm);
  for (Target t : Targets()) {
    t.cpu()->l2_bytes = 320 << 10;
    t.cpu()->l3_bytes = 0;  // so that the filters are large
    std::vector<Config> late = FindTemplate("conv2d.winograd")->space(w, t).Enumerate(4096);
    std::erase_if(late, [](const Config& c) { return !c.Has("late") || c["late"] == 0; });
    ASSERT_FALSE(late.empty()) << Text(t);
    // Of few channels at a time, rows of points go in pairs.
    const auto few = std::partition(late.begin(), late.end(),
                                    [](const Config& c) { return c["m"] == 4 && c["late"] == 16 && c["nv"] > 1; });
    ASSERT_NE(few, late.begin()) << Text(t);
    for (int i = 0; i < 14; ++i) {
      const auto end = i < 6 ? few : late.end();
      const Config& config = late[static_cast<size_t>(rng.Below(end - late.begin()))];
      SCOPED_TRACE(Text(config) + " " + Text(t));
      absl::StatusOr<Kernel> kernel = BuildKernel(w, "conv2d.winograd", config, t);
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      absl::StatusOr<NDArray> got = RunKernel(w, *kernel, t, inputs);
      ASSERT_TRUE(got.ok()) << got.status();
      ASSERT_LE(RelativeError(*got, physical), kWinogradErrorBound);
    }
  }
}

TEST(TemplateTest, LegalConfigsAreOfATemplateThatFitsAndOfItsSpace) {
  const Workload w = Parse("(f32[4,8], const f32[8,16]) matmul(0,1) -> f32[4,16]; anchor=0");
  const Target t;
  const Choice choice = *DefaultChoice(w, t);
  LegalConfigs legal(w, t);
  const std::string name(choice.def->name);
  EXPECT_EQ(legal.Find(name), choice.def);
  EXPECT_EQ(*legal.Read(name, Text(choice.config)), choice.config);
  EXPECT_TRUE(legal.Check("default", FindTemplate("default")->space(w, t).Enumerate(1).at(0)).ok())
      << "the fallback fits what others fit";
  EXPECT_TRUE(absl::IsNotFound(legal.Read("unheard of", "").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(legal.Read("conv2d.rows", Text(choice.config)).status()));
  EXPECT_EQ(legal.Find("conv2d.rows"), nullptr);
  EXPECT_FALSE(legal.Read(name, "unheard=1").ok());
  EXPECT_FALSE(legal.Read(name, "no config").ok());
}

TEST(TemplateTest, ADefaultConfigOfRunsThatDifferCountsTheirConstantsAndThreads) {
  Target t = *ParseTarget("llvm:znver4");
  t.cpu()->threads = 2;
  const auto choose = [&](const Workload& w, double share, int64_t line = 0, int64_t of_line = 0) {
    const Choice choice = *DefaultChoiceOfRuns(w, t, {share, line, of_line});
    return std::pair(choice.config, choice.def->footprint(w, choice.config, t)["memory_traffic"]);
  };
  const Workload images = Parse(
      "(f32[8,512,7,7]@0231, const f32[512,512,3,3]) conv2d(0,1; dilations=[1,1] group=1 pads=[1,1,1,1] strides=[1,1]) "
      "-> f32[8,512,7,7]@0231; anchor=0");
  EXPECT_EQ(choose(images, 1).first, DefaultChoice(images, t)->config);
  EXPECT_LT(choose(images, 1.0 / 1000).second, choose(images, 1).second);
  const Workload rows = Parse("(f32[512,768], const f32[768,3072]) matmul(0,1) -> f32[512,3072]; anchor=0");
  EXPECT_EQ(choose(rows, 1.0 / 512).first["blocks"] % 2, 0);
  // Of lines of 15 rows a run has 5.
  EXPECT_NE(15 % choose(rows, 1).first["mr"], 0);
  EXPECT_EQ(15 % choose(rows, 1, 15, 5).first["mr"], 0);
}

TEST(TemplateTest, WinogradMayBeForbidden) {
  std::string text = ConvText({16, 8, 8, 16, 3, 1, 1, 1, 1}, "", [](const std::string&, int) { return std::string(); });
  text.insert(text.find("strides=[1,1]") + std::string("strides=[1,1]").size(), " winograd=0");
  for (const TemplateDef* def : TemplatesFor(Parse(text), Target{})) EXPECT_NE(def->name, "conv2d.winograd");
}

TEST(TemplateTest, DepthwiseConvolutions) {
  uint64_t seed = 20;
  for (const Conv& shape : {Conv{24, 9, 9, 24, 3, 1, 1, 1, 24}, Conv{40, 11, 8, 40, 5, 2, 2, 1, 40},
                            Conv{7, 6, 6, 7, 3, 1, 1, 1, 7}, Conv{16, 9, 9, 16, 3, 1, 2, 2, 16}}) {
    CheckAll(Parse(ConvText(shape, "", [](const std::string&, int) { return std::string(); })), 4, seed++);
  }
}

TEST(TemplateTest, Matmuls) {
  uint64_t seed = 40;
  for (const char* text : {
           "(f32[37,50], const f32[50,70]) matmul(0,1) -> f32[37,70]; anchor=0",
           "(f32[1,64], const f32[64,100]) matmul(0,1) -> f32[1,100]; anchor=0",
           "(f32[1,12,40], const f32[40,33], const f32[33]) matmul(0,1) -> f32[1,12,33]; add(3,2) -> f32[1,12,33]; "
           "anchor=0",
           "(f32[3,20,16], f32[3,16,24]) matmul(0,1) -> f32[3,20,24]; anchor=0",
           "(f32[43,50], const f32[50,75], const f32[75], f32[43,75]) matmul(0,1) -> f32[43,75]; add(4,2) -> "
           "f32[43,75]; gelu(5) -> f32[43,75]; mul(6,3) -> f32[43,75]; anchor=0",
           "(f32[2,3,9,16], f32[2,3,17,16]) matmul(0,1; trans_b=1) -> f32[2,3,9,17]; anchor=0",
           "(f32[16,21], const f32[16,48]) matmul(0,1; trans_a=1) -> f32[21,48]; anchor=0",
           "(f32[1,4,6,8]@0213, f32[1,4,8,10]@0231) matmul(0,1) -> f32[1,4,6,10]; anchor=0",
           "(f32[5,6], const f32[9,6]) matmul(0,1; trans_b=1) -> f32[5,9]; anchor=0",
       }) {
    CheckAll(Parse(text), 5, seed++);
  }
}

TEST(TemplateTest, EverythingElseByTheDefaultSchedule) {
  uint64_t seed = 60;
  for (const char* text : {
           "(f32[3,5,7]) relu(0) -> f32[3,5,7]; anchor=0",
           "(f32[1,8,6,6]@0231, const f32[8,1,1]) add(0,1) -> f32[1,8,6,6]@0231; sigmoid(2) -> f32[1,8,6,6]@0231; "
           "anchor=0",
           "(f32[1,40,9,9]@0231) max_pool2d(0; kernel=[3,3] pads=[1,1,1,1] strides=[2,2]) -> f32[1,40,5,5]@0231; "
           "anchor=0",
           "(f32[1,40,9,9]@0231) reduce_mean(0; axes=[2,3] keepdims=1) -> f32[1,40,1,1]@0231; anchor=0",
           "(f32[4,100]) softmax(0; axis=1) -> f32[4,100]; anchor=0",
           "(f32[2,3,33]) softmax(0; axis=2) -> f32[2,3,33]; anchor=0",
           "(f32[2,48,5]) softmax(0; axis=1) -> f32[2,48,5]; anchor=0",
           "(f32[6,96], const f32[96], const f32[96]) layer_norm(0,1,2; axis=1 epsilon=1e-05) -> f32[6,96]; anchor=0",
           "(f32[1,6,5,4]) transpose(0; perm=[0,2,3,1]) -> f32[1,5,4,6]; anchor=0",
           "(f32[2,3,20], f32[2,5,20]) concat(0,1; axis=1) -> f32[2,8,20]; anchor=0",
           "(f32[4,6,8]) reduce_sum(0; axes=[0] keepdims=0) -> f32[6,8]; anchor=0",
           "(f32[4,6,128]) reduce_max(0; axes=[2] keepdims=0) -> f32[4,6]; anchor=0",
           "(f32[64]) reduce_sum(0; axes=[0] keepdims=0) -> f32[]; anchor=0",
           "(f32[3]) reduce_sum(0; axes=[0] keepdims=0) -> f32[]; anchor=0",
           "(f32[30,16], i64[2,5]) gather(0,1; axis=0) -> f32[2,5,16]; anchor=0",
           "(f32[1,3,10,12]) layout_copy(0) -> f32[1,3,10,12]@0231; anchor=0",
       }) {
    CheckAll(Parse(text), 2, seed++);
  }
}

}  // namespace
}  // namespace temper
