// Depthwise convolutions of random shapes: windows that hang over the image on any side, by more than a tile or by more
// than the image, strides and dilations that differ, channels that fill no vector.
#include "absl/strings/str_join.h"
#include "tests/templates/check_templates.h"
#include "tests/templates/random_sides.h"

namespace temper {
namespace {

std::string Text(int64_t n, int64_t c, const Sides& h, const Sides& w, const char* filter,
                 const char* activation = "relu") {
  const std::string out = absl::StrCat("f32[", n, ",", c, ",", h.out(), ",", w.out(), "]@0231");
  return absl::StrCat("(f32[", n, ",", c, ",", h.size, ",", w.size, "]@0231, ", filter, "f32[", c, ",1,", h.taps, ",",
                      w.taps, "], f32[", c, ",1,1]) conv2d(0,1; dilations=[", h.dilation, ",", w.dilation,
                      "] group=", c, " pads=[", h.before, ",", w.before, ",", h.after, ",", w.after, "] strides=[",
                      h.stride, ",", w.stride, "]) -> ", out, "; add(3,2) -> ", out, "; ", activation, "(4) -> ", out,
                      "; anchor=0");
}

TEST(DepthwiseTest, RandomShapes) {
  Rng rng(11);
  for (uint64_t seed = 0; seed < 20 && !::testing::Test::HasFatalFailure(); ++seed) {
    const Sides h = RandomSides(rng, 14), w = RandomSides(rng, 14);
    const int64_t n = 1 + rng.Below(2), c = rng.Below(3) == 0 ? 16 * (1 + rng.Below(4)) : 2 + rng.Below(70);
    CheckAll(Parse(Text(n, c, h, w, rng.Below(4) == 0 ? "" : "const ", seed % 3 == 0 ? "silu" : "relu")), 3, seed);
  }
}

// The shapes of MobileNetV2 and EfficientNet, smaller: tiles at the edges alone, and tiles between them.
TEST(DepthwiseTest, ShapesOfNetworks) {
  uint64_t seed = 100;
  for (int64_t taps : {3, 5}) {
    for (int64_t stride : {1, 2}) {
      for (int64_t size : {7, 14, 23}) {
        const Sides s{size, taps, stride, 1, (taps - 1) / 2, (taps - 1) / 2};
        CheckAll(Parse(Text(1, 48, s, s, "const ")), 3, seed++);
      }
    }
  }
}

TEST(DepthwiseTest, NothingIsCopied) {
  const Sides s{14, 3, 1, 1, 1, 1};
  const Workload w = Parse(Text(1, 32, s, s, "const "));
  const TemplateDef* def = FindTemplate("conv2d.depthwise");
  for (const Target& t : Targets()) {
    for (const Config& config : def->space(w, t).Enumerate(64)) {
      EXPECT_EQ(def->footprint(w, config, t)["copies_bytes"], 0);
      absl::StatusOr<Kernel> kernel = BuildKernel(w, def->name, config, t);
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      ir::VisitStmt(kernel->main.body, [&](const ir::Stmt& s) {
        if (s->kind != ir::StmtKind::kAlloc) return;
        EXPECT_EQ(s->buffer->scope, ir::Scope::kRegister) << s->buffer->name;
      });
    }
  }
}

// A large tile on few registers loads its taps again and again, and half a line of channels is fetched twice where
// threads share out the channels.
TEST(DepthwiseTest, TheFootprintKnowsWhatRegistersAndLinesHold) {
  const Sides s{14, 3, 1, 1, 1, 1};
  const Workload w = Parse(Text(1, 64, s, s, "const "));
  const auto footprint = [&](const char* config, const char* target) {
    return FindTemplate("conv2d.depthwise")->footprint(w, *ParseConfig(config), *ParseTarget(target));
  };
  const char *small = "th=2,tw=2,cv=1", *large = "th=6,tw=2,cv=1", *few = "llvm:haswell", *many = "llvm:skylake-avx512";
  EXPECT_EQ(footprint(small, few)["loads_per_fma"], footprint(small, many)["loads_per_fma"]);
  EXPECT_GT(footprint(large, few)["loads_per_fma"], footprint(large, many)["loads_per_fma"]);
  EXPECT_GT(footprint("th=2,tw=2,cv=1", few)["l2_traffic"], footprint("th=2,tw=2,cv=2", few)["l2_traffic"]);
}

}  // namespace
}  // namespace temper
