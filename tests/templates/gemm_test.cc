// The family of register-tiled contractions: every value of every knob, and what is fetched ahead.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/ops/templates/templates.h"
#include "tests/templates/check_templates.h"
#include "tests/templates/covering_configs.h"

namespace temper {
namespace {

const char kDense[] =
    "(f32[61,96], const f32[96,93], const f32[93]) matmul(0,1) -> f32[61,93]; add(3,2) -> f32[61,93]; anchor=0";
const char kBatched[] = "(f32[2,33,48], f32[2,48,64]) matmul(0,1) -> f32[2,33,64]; anchor=0";
const char kVector[] = "(f32[1,52], const f32[52,19]) matmul(0,1) -> f32[1,19]; anchor=0";
const char kShort[] = "(f32[3,1536], const f32[1536,19]) matmul(0,1) -> f32[3,19]; relu(2) -> f32[3,19]; anchor=0";
const char kShortBatched[] = "(f32[2,5,520], f32[2,17,520]) matmul(0,1; trans_b=1) -> f32[2,5,17]; anchor=0";
const char kTransposed[] = "(f32[9,14,24], f32[9,37,24]) matmul(0,1; trans_b=1) -> f32[9,14,37]; anchor=0";
const char kWholeTransposed[] = "(f32[2,5,24], f32[2,32,24]) matmul(0,1; trans_b=1) -> f32[2,5,32]; anchor=0";
const char kPointwise[] =
    "(f32[1,48,9,9]@0231, const f32[80,48,1,1]) conv2d(0,1; dilations=[1,1] group=1 pads=[0,0,0,0] strides=[2,2]) -> "
    "f32[1,80,5,5]@0231; anchor=0";
const char kSpatial[] =
    "(f32[1,24,9,9]@0231, const f32[40,24,3,3]) conv2d(0,1; dilations=[1,1] group=1 pads=[1,1,1,1] strides=[1,1]) -> "
    "f32[1,40,9,9]@0231; anchor=0";

// Rows 4 KiB apart, as they lie and as the stride takes them.
const char kCollidingRows[] =
    "(f32[23,1024], const f32[1024,40]) matmul(0,1) -> f32[23,40]; relu(2) -> f32[23,40]; anchor=0";
const char kCollidingPixels[] =
    "(f32[1,512,7,6]@0231, const f32[24,512,1,1]) conv2d(0,1; dilations=[1,1] group=1 pads=[0,0,0,0] strides=[2,2]) -> "
    "f32[1,24,4,3]@0231; anchor=0";

// Panels that come in parts.
const char kLong[] =
    "(f32[11,4096], const f32[4096,40], f32[40]) matmul(0,1) -> f32[11,40]; add(3,2) -> f32[11,40]; relu(4) -> "
    "f32[11,40]; anchor=0";

const char kScaled[] =
    "(f32[2,49,1,1]@0231, f32[2,49,5,7]@0231, const f32[80,49,1,1], f32[2,80,5,7]@0231) mul(0,1) -> "
    "f32[2,49,5,7]@0231; relu(4) -> f32[2,49,5,7]@0231; conv2d(5,2; dilations=[1,1] group=1 pads=[0,0,0,0] "
    "strides=[1,1]) -> f32[2,80,5,7]@0231; add(6,3) -> f32[2,80,5,7]@0231; anchor=2";
const char kScaledStrided[] =
    "(f32[1,48,19,18]@0231, const f32[70,48,1,1]) silu(0) -> f32[1,48,19,18]@0231; conv2d(2,1; dilations=[1,1] group=1 "
    "pads=[0,0,0,0] strides=[2,2]) -> f32[1,70,10,9]@0231; anchor=1";
// Channels scaled, and few filters, which are scaled instead.
const char kScaledFilters[] =
    "(f32[1,35,9,8]@0231, f32[35,1,1], const f32[20,35,1,1]) relu(0) -> f32[1,35,9,8]@0231; mul(3,1) -> "
    "f32[1,35,9,8]@0231; conv2d(4,2; dilations=[1,1] group=1 pads=[0,0,0,0] strides=[2,1]) -> f32[1,20,5,8]@0231; "
    "anchor=2";
const char kScaledDynamicFilters[] =
    "(f32[1,35,1,1]@0231, f32[1,35,9,8]@0231, f32[20,35,1,1]) mul(0,1) -> f32[1,35,9,8]@0231; conv2d(3,2; "
    "dilations=[1,1] group=1 pads=[0,0,0,0] strides=[1,1]) -> f32[1,20,9,8]@0231; anchor=1";

// Of i16, summed in i32: pairs read in place, and copies of what has an odd end, comes from calls, or has a window.
const char kPairs[] =
    "(i16[33,96], const i16[96,93], const f32[93]) matmul(0,1; result='i32') -> i32[33,93]; cast(3; to='f32') -> "
    "f32[33,93]; mul(4,2) -> f32[33,93]; anchor=0";
const char kOddPairs[] = "(i16[2,5,51], i16[2,51,37]) matmul(0,1; result='i32') -> i32[2,5,37]; anchor=0";
const char kTransposedPairs[] =
    "(i16[9,14], i16[21,9]) matmul(0,1; result='i32' trans_a=1 trans_b=1) -> i32[14,21]; anchor=0";
const char kMadePairs[] =
    "(u8[1,19,32], i16[], const i16[32,40]) cast(0; to='i16') -> i16[1,19,32]; sub(3,1) -> i16[1,19,32]; matmul(4,2; "
    "result='i32') -> i32[1,19,40]; anchor=2";
const char kWindowOfPairs[] =
    "(u8[1,10,9,7]@0231, const i16[21,10,3,3]) cast(0; to='i16') -> i16[1,10,9,7]@0231; conv2d(2,1; dilations=[1,1] "
    "group=1 pads=[1,0,1,2] result='i32' strides=[2,1]) -> i32[1,21,5,7]@0231; cast(3; to='u8') -> "
    "u8[1,21,5,7]@0231; anchor=1";

// Four bytes at once.
const char kBytes[] =
    "(u8[33,96], const i8[96,93]) matmul(0,1; result='i32') -> i32[33,93]; cast(2; to='f32') -> f32[33,93]; anchor=0";
const char kOddBytes[] = "(u8[3,5,51], const i8[29,51]) matmul(0,1; result='i32' trans_b=1) -> i32[3,5,29]; anchor=0";
const char kWindowOfBytes[] =
    "(u8[1,10,9,7]@0231, const i8[21,10,3,3]) conv2d(0,1; dilations=[1,1] group=1 pads=[1,0,1,2] result='i32' "
    "strides=[2,1]) -> i32[1,21,5,7]@0231; anchor=0";

// Rows 4 KiB apart in cache.
const char kCollidingPairs[] = "(i16[5,2048], const i16[2048,24]) matmul(0,1; result='i32') -> i32[5,24]; anchor=0";
const char kCollidingMadePairs[] =
    "(u8[5,2048], const i16[2048,24]) cast(0; to='i16') -> i16[5,2048]; matmul(2,1; result='i32') -> i32[5,24]; "
    "anchor=1";
const char kCollidingBytes[] =
    "(f32[3,4096], const i8[4096,9]) cast(0; to='u8') -> u8[3,4096]; matmul(2,1; result='i32') -> i32[3,9]; anchor=1";

// Caches so small that tests' operands come from beyond them.
Target WithTinyCaches(Target t) {
  t.cpu()->l1_bytes = 512;
  t.cpu()->l2_bytes = 2048;
  return t;
}

TEST(GemmTest, EveryValueOfEveryKnobWithFewCaches) {
  Rng rng(3);
  for (const char* text : {kDense,
                           kBatched,
                           kVector,
                           kShort,
                           kShortBatched,
                           kTransposed,
                           kWholeTransposed,
                           kPointwise,
                           kSpatial,
                           kCollidingRows,
                           kCollidingPixels,
                           kScaled,
                           kScaledStrided,
                           kScaledFilters,
                           kScaledDynamicFilters,
                           kPairs,
                           kOddPairs,
                           kTransposedPairs,
                           kMadePairs,
                           kWindowOfPairs,
                           kBytes,
                           kOddBytes,
                           kWindowOfBytes,
                           kCollidingPairs,
                           kCollidingMadePairs,
                           kCollidingBytes,
                           kLong}) {
    const Workload w = Parse(text);
    const std::vector<NDArray> inputs = RandomInputs(w, rng);
    absl::StatusOr<NDArray> wanted = RunReference(w, inputs);
    ASSERT_TRUE(wanted.ok()) << wanted.status();
    const NDArray physical = ToPhysical(*wanted, w.output().perm);
    const TemplateDef* def = TemplatesFor(w, Target{}).front();
    for (const Target& host : Targets()) {
      const Target t = rng.Below(2) == 0 ? WithTinyCaches(host) : WithSmallCaches(host);
      for (const Config& config : CoveringConfigs(def->space(w, t), rng)) {
        SCOPED_TRACE(absl::StrCat(text, "\n", Text(config), "\n", Text(t)));
        absl::StatusOr<Kernel> kernel = BuildKernel(w, def->name, config, t);
        ASSERT_TRUE(kernel.ok()) << kernel.status();
        absl::StatusOr<NDArray> got = RunKernel(w, *kernel, t, inputs);
        ASSERT_TRUE(got.ok()) << got.status();
        ASSERT_LT(RelativeError(*got, physical), 1e-5);
      }
    }
  }
}

TEST(GemmTest, RowsThatCollideLieALineFurtherApartInTheirCopy) {
  const Workload w = Parse(kCollidingRows);
  Target t = *ParseTarget("llvm:haswell");
  t.cpu()->threads = 2;
  const ConfigSpace space = FindTemplate("matmul.packed")->space(w, t);
  for (const Config& config : space.Enumerate(1 << 16)) {
    if (config["ca"] == 0 || config["mr"] != 4 || config["nv"] != 2) continue;
    const absl::StatusOr<Kernel> kernel = BuildKernel(w, "matmul.packed", config, t);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    EXPECT_TRUE(absl::StrContains(Text(kernel->main), "a[0, a.i1*1040 + ")) << Text(kernel->main);
    return;
  }
  FAIL() << "no config copies rows";
}

TEST(GemmTest, ThreadsShareTheReductionOfASmallOutput) {
  const auto parts = [](const std::string& text, int threads) {
    Target t = *ParseTarget("llvm:skylake-avx512");
    t.cpu()->threads = threads;
    const Workload w = Parse(text.c_str());
    const ConfigSpace space = TemplatesFor(w, t).front()->space(w, t);
    for (const Knob& knob : space.knobs()) {
      if (knob.name == "parts") return knob.values;
    }
    return std::vector<int64_t>{1};
  };
  const std::string small = "(f32[1,7680], const f32[7680,16]) matmul(0,1) -> f32[1,16]; anchor=0";
  EXPECT_EQ(parts(small, 1), (std::vector<int64_t>{1}));
  EXPECT_EQ(parts(small, 8), (std::vector<int64_t>{1, 2, 3, 4, 6, 8}));
  EXPECT_EQ(parts("(f32[1,300], const f32[300,16]) matmul(0,1) -> f32[1,16]; anchor=0", 8),
            (std::vector<int64_t>{1, 2}));  // a part is worth a thread's start
  EXPECT_EQ(parts("(f32[64,768], const f32[768,768]) matmul(0,1) -> f32[64,768]; anchor=0", 8),
            (std::vector<int64_t>{1}));
  // Panels that are too long to stay for many rows come in parts.
  EXPECT_EQ(parts("(f32[64,8192], const f32[8192,768]) matmul(0,1) -> f32[64,768]; anchor=0", 8),
            (std::vector<int64_t>{1, 4, 8, 16, 32}));
  EXPECT_EQ(parts("(f32[256,8192], const f32[8192,768]) matmul(0,1) -> f32[256,768]; anchor=0", 8),
            (std::vector<int64_t>{1, 4, 8}));  // no more than a quarter of the weights is made of them
  EXPECT_EQ(parts("(f32[8,8192], const f32[8192,768]) matmul(0,1) -> f32[8,768]; anchor=0", 8),
            (std::vector<int64_t>{1}));
  Target t = *ParseTarget("llvm:skylake-avx512");
  t.cpu()->threads = 2;
  const absl::StatusOr<Choice> untuned = DefaultChoice(Parse(small.c_str()), t);
  ASSERT_TRUE(untuned.ok()) << untuned.status();
  EXPECT_EQ(untuned->config["parts"], 2);
}

TEST(GemmTest, WhatMakesTheInputComesBeforeItsTilesOrGoesToFewFilters) {
  Target t = *ParseTarget("llvm:skylake-avx512");
  t.cpu()->threads = 2;
  const auto main_of = [&](const char* text) {
    const Workload w = Parse(text);
    const TemplateDef* def = FindTemplate("conv2d.direct");
    EXPECT_EQ(TemplatesFor(w, t), std::vector<const TemplateDef*>{def}) << text;
    absl::StatusOr<Kernel> kernel = def->build(w, DefaultChoice(w, t)->config, t);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    return kernel.ok() ? ir::Text(kernel->main) : "";
  };
  for (const char* text : {kScaled, kScaledStrided}) {
    const std::string main = main_of(text);
    EXPECT_LT(main.find("parallel "), main.find("alloc a:")) << "each thread's own, a chunk at a time";
    EXPECT_FALSE(absl::StrContains(main, "scaled_b"));
  }
  EXPECT_FALSE(absl::StrContains(main_of(kScaledDynamicFilters), "alloc a:"));
  for (const char* text : {kScaledFilters, kScaledDynamicFilters}) {
    EXPECT_TRUE(absl::StrContains(main_of(text), "alloc scaled_b:")) << text;
  }
}

TEST(GemmTest, OnlyElementwiseCallsComeBeforeAConvolution) {
  const CpuTemplate def = Conv2dDirect();
  const std::string conv = "conv2d(2,1; dilations=[1,1] group=1 pads=[0,0,0,0] strides=[1,1]) -> f32[1,8,4,4]@0231; ";
  const std::string in = "(f32[1,8,4,4]@0231, const f32[8,8,1,1]) ", made = " -> f32[1,8,4,4]@0231; ";
  EXPECT_TRUE(def.matches(Parse(in + "relu(0)" + made + conv + "anchor=1")));
  EXPECT_FALSE(def.matches(Parse(in + "softmax(0; axis=1)" + made + conv + "anchor=1")));
  EXPECT_FALSE(def.matches(Parse(in + "relu(0)" + made +
                                 "conv2d(0,1; dilations=[1,1] group=1 pads=[0,0,0,0] "
                                 "strides=[1,1]) -> f32[1,8,4,4]@0231; anchor=1")))
      << "the convolution reads something else";
  EXPECT_FALSE(
      def.matches(Parse("(f32[1,8,4,4]@0231, const f32[1,8,1,1]) mul(0,1) -> f32[1,8,4,4]@0231; conv2d(2,1; "
                        "dilations=[1,1] group=1 pads=[0,0,0,0] strides=[1,1]) -> f32[1,1,4,4]@0231; "
                        "anchor=1")))
      << "the filter arrives packed";
}

// The draft knows that every block of columns makes its rows anew.
TEST(GemmTest, BlocksMakeTheInputAgain) {
  const Target target = *ParseTarget("llvm:skylake-avx512");
  const CpuTarget& t = *target.cpu();
  const Workload w = Parse(kScaled);
  const CpuTemplate def = Conv2dDirect();
  const auto ops = [&](const char* config) { return def.footprint(w, *ParseConfig(config), t).prologue_ops; };
  const double once = ops("mr=4,nv=1,blocks=1,ku=1,pack=1");
  EXPECT_GT(once, 0);
  EXPECT_DOUBLE_EQ(ops("mr=4,nv=1,blocks=5,ku=1,pack=1"), 5 * once);
  EXPECT_EQ(def.footprint(Parse(AnchorText(w)), *ParseConfig("mr=4,nv=1,blocks=5,ku=1,pack=1"), t).prologue_ops, 0);
}

std::string MainOf(const Workload& w, const std::string& config, const Target& t) {
  absl::StatusOr<Kernel> kernel = BuildKernel(w, TemplatesFor(w, t).front()->name, *ParseConfig(config), t);
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  return kernel.ok() ? ir::Text(kernel->main) : "";
}

TEST(GemmTest, FetchesAheadWhatTheCachesDoNotHold) {
  Target held = *ParseTarget("llvm:skylake-avx512");
  held.cpu()->l1_bytes = 32 << 10;
  held.cpu()->l2_bytes = 1 << 20;
  const std::string rows = "prefetch in0[", panels = "prefetch in1[";
  // The panel of an iteration, and that of the last one, which is peeled.
  const auto of_panel = [&](const std::string& main, const char* inside, const char* last) {
    const bool has = absl::StrContains(main, absl::StrCat(panels, "0, ", inside, ", "));
    EXPECT_EQ(has, absl::StrContains(main, absl::StrCat(panels, "0, ", last, ", ")));
    return has;
  };
  const auto of_present = [&](const std::string& main) { return of_panel(main, "out.i1.o.i", "2"); };
  const auto of_next = [&](const std::string& main) { return of_panel(main, "out.i1.o.i + 1", "3"); };
  for (const char* text : {kDense, kPointwise}) {
    const std::string config = "mr=4,nv=2,blocks=1,ku=2,pack=1";
    // Where no two row tiles' rows stay, the present panel is fetched; else the next one.
    const std::string tiny = MainOf(Parse(text), config, WithTinyCaches(held));
    EXPECT_TRUE(absl::StrContains(tiny, rows));
    EXPECT_TRUE(of_present(tiny));
    EXPECT_FALSE(of_next(tiny));
    // What tiles are stored to is fetched in any case, and nothing else is.
    const std::string main = absl::StrReplaceAll(MainOf(Parse(text), config, held), {{"prefetch for store out[", ""}});
    EXPECT_FALSE(absl::StrContains(main, "prefetch"));
  }
  const std::string small = MainOf(Parse(kDense), "mr=4,nv=2,blocks=1,ku=2,pack=1", WithSmallCaches(held));
  EXPECT_TRUE(absl::StrContains(small, rows));
  EXPECT_FALSE(of_present(small));
  EXPECT_TRUE(of_next(small));
  // One row at a time has no loads to spare.
  EXPECT_FALSE(
      absl::StrContains(MainOf(Parse(kDense), "mr=1,nv=1,blocks=1,ku=1,pack=1", WithTinyCaches(held)), panels));
}

TEST(GemmTest, AChunksTilesFetchTheWholeNextPanel) {
  Target t = WithSmallCaches(*ParseTarget("llvm:skylake-avx512"));
  t.cpu()->threads = 1;
  const std::string text = MainOf(Parse(kDense), "mr=4,nv=2,blocks=1,ku=1,pack=1", t);
  // Four tiles of six turns each, a share of four steps in every turn: 4 * 6 * 4 are all 96.
  EXPECT_TRUE(absl::StrContains(text, "prefetch in1[0, out.i1.o.i + 1, out.i0.o.i*24 + acc.r0.o*4 + 3, "));
  EXPECT_FALSE(absl::StrContains(text, "acc.r0.o*4 + 4, "));
}

TEST(GemmTest, SmallTilesSumUnrolledStepsApart) {
  const Target t = *ParseTarget("llvm:skylake-avx512");
  const auto apart = [&](const char* text, const std::string& config) {
    return absl::StrContains(MainOf(Parse(text), config, t), "alloc acc_rf");
  };
  EXPECT_TRUE(apart(kVector, "mr=1,nv=2,vl=16,blocks=1,ku=4,pack=1"));
  EXPECT_FALSE(apart(kVector, "mr=1,nv=2,vl=16,blocks=1,ku=1,pack=1"));
  EXPECT_TRUE(apart(kDense, "mr=4,nv=1,blocks=1,ku=2,pack=1"));
  EXPECT_FALSE(apart(kDense, "mr=5,nv=1,blocks=1,ku=2,pack=1"));
}

TEST(GemmTest, ThreadsShareWholePanelsOfColumnsThatLieAcrossMemory) {
  Target t = *ParseTarget("llvm:skylake-avx512");
  t.cpu()->threads = 2;
  const auto shared = [&](const char* text, const std::string& config) {
    return absl::StrContains(MainOf(Parse(text), config, t), "parallel pack_b.i0.i1 in");
  };
  EXPECT_TRUE(shared(kWholeTransposed, "mr=5,nv=1,blocks=1,ku=1,pack=1"));
  EXPECT_FALSE(shared(kTransposed, "mr=5,nv=1,vl=16,blocks=1,ku=1,pack=1"));
}

TEST(GemmTest, FewRowsByColumnsThatLieInOnePieceAreDotProducts) {
  const auto packs = [](const std::string& b, int64_t rows) {
    const Workload w =
        Parse(absl::StrCat("(f32[2,", rows, ",24], ", b, ") matmul(0,1; trans_b=1) -> f32[2,", rows, ",32]; anchor=0"));
    return TemplatesFor(w, Target{}).front()->name == "matmul.packed";
  };
  EXPECT_FALSE(packs("f32[2,32,24]", 1));
  EXPECT_FALSE(packs("f32[2,32,24]", 4));
  EXPECT_TRUE(packs("f32[2,32,24]", 5));
  EXPECT_TRUE(packs("f32[2,32,24]@021", 1)) << "its rows do";
  EXPECT_TRUE(packs("const f32[2,32,24]", 1)) << "it is packed beforehand";
}

}  // namespace
}  // namespace temper
