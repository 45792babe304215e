// The shapes that boosters are trained on: reproducible, varied, and never near a benchmark's.
#include "cost_model/training_shapes.h"

#include <algorithm>
#include <map>

#include "compiler/ops/template.h"
#include "gtest/gtest.h"

namespace temper {
namespace {

Workload Parsed(const std::string& text) {
  const auto w = ParseWorkload(text);
  EXPECT_TRUE(w.ok()) << w.status();
  return *w;
}

Workload Dense(int64_t m, int64_t k, int64_t n) {
  const auto s = [](int64_t a, int64_t b) { return "f32[" + std::to_string(a) + "," + std::to_string(b) + "]"; };
  return Parsed("(" + s(m, k) + ", const " + s(k, n) + ") matmul(0,1) -> " + s(m, n) + "; anchor=0");
}

bool NearAny(const Workload& w, const std::vector<Workload>& others) {
  return std::any_of(others.begin(), others.end(), [&](const Workload& other) { return NearInShape(w, other); });
}

TEST(TrainingShapes, NearIsWithin1_25InEveryDimension) {
  EXPECT_TRUE(NearInShape(Dense(100, 100, 100), Dense(125, 80, 100)));
  EXPECT_FALSE(NearInShape(Dense(100, 100, 100), Dense(126, 100, 100)));
  EXPECT_FALSE(NearInShape(Dense(100, 100, 100), Dense(100, 79, 100)));
  EXPECT_FALSE(NearInShape(Dense(100, 100, 100), Dense(100, 100, 200)));
  // Rows of a batch are rows where the weights are shared.
  const Workload batched = Parsed("(f32[4,25,100], const f32[100,100]) matmul(0,1) -> f32[4,25,100]; anchor=0");
  EXPECT_TRUE(NearInShape(Dense(100, 100, 100), batched));
  const Workload turned = Parsed("(f32[100,60], const f32[200,60]) matmul(0,1; trans_b=1) -> f32[100,200]; anchor=0");
  EXPECT_TRUE(NearInShape(Dense(100, 60, 200), turned));
}

TEST(TrainingShapes, TheBenchmarksAreListedAndParse) {
  std::map<std::string, int> ops;
  for (const Workload& w : BenchShapes()) {
    EXPECT_FALSE(TrainingDims(w).empty()) << Text(w);
    ++ops[w.calls[w.anchor].op];
  }
  EXPECT_GT(ops["conv2d"], 80);
  EXPECT_GT(ops["matmul"], 10);
  // One of ResNet's, and one of BERT's.
  EXPECT_TRUE(NearAny(Dense(128, 768, 3072), BenchShapes()));
  EXPECT_TRUE(NearAny(Parsed("(f32[1,64,56,56]@0231, const f32[64,64,3,3]) conv2d(0,1; dilations=[1,1] group=1 "
                             "pads=[1,1,1,1] strides=[1,1]) -> f32[1,64,56,56]@0231; anchor=0"),
                      BenchShapes()));
}

TEST(TrainingShapes, NoneIsNearABenchmark) {
  constexpr int kCount = 4000;
  ShapeGenerator held(1, BenchShapes()), free(1, {});
  int near = 0;
  for (int i = 0; i < kCount; ++i) {
    const Workload w = held.Next();
    EXPECT_FALSE(NearAny(w, BenchShapes())) << Text(w);
    near += NearAny(free.Next(), BenchShapes());
  }
  EXPECT_GT(near, 0) << "without the exclusion some would be";
}

TEST(TrainingShapes, TheSameSeedGivesTheSameSequence) {
  ShapeGenerator a(5, BenchShapes()), b(5, BenchShapes()), c(6, BenchShapes());
  std::set<std::string> seen;
  int alike = 0;
  for (int i = 0; i < 300; ++i) {
    const std::string text = Text(a.Next());
    EXPECT_EQ(text, Text(b.Next()));
    alike += text == Text(c.Next());
    EXPECT_TRUE(seen.insert(text).second) << "none comes twice: " << text;
  }
  EXPECT_LT(alike, 3);
}

TEST(TrainingShapes, ShowEveryTemplateMoreThanOnce) {
  ShapeGenerator generator(1, BenchShapes());
  std::map<std::string_view, int> shown;
  for (int i = 0; i < 200; ++i) {
    const Workload w = generator.Next();
    for (const char* target : {"interpreter", "opencl"}) {
      for (const TemplateDef* def : TemplatesFor(w, *ParseTarget(target))) ++shown[def->name];
    }
  }
  for (const TemplateDef& def : AllTemplates()) {
    constexpr std::string_view kNoContractions[] = {"reduce.pixels", "pool.separable", "scan",
                                                    "scatter",       "compact",        "top_k",
                                                    "suppress",      "gpu.reduce",     "gpu.pixels"};
    if (def.fallback || std::ranges::find(kNoContractions, def.name) != std::end(kNoContractions)) continue;
    if (def.name == "gpu.mma" || def.name == "gpu.wgmma" || def.name.ends_with(".integer") || !def.feature.empty())
      continue;                                                          // none of f32 as it is
    if (def.name.starts_with("matmul.nbits")) continue;                  // of weights of other types
    if (def.name.find("attention") != std::string_view::npos) continue;  // of several kernels
    EXPECT_GT(shown[def.name], 5) << def.name;
  }
}

}  // namespace
}  // namespace temper
