// "gpu.reduce": rows of any length, with stages before and after them. "gpu.pixels": images of any size.
#include <array>

#include "absl/strings/str_join.h"
#include "tests/templates/check_gpu.h"

namespace temper {
namespace {

std::string TypeText(const Shape& shape) { return absl::StrCat("f32[", absl::StrJoin(shape, ","), "]"); }

Shape RandomShape(Rng& rng) {
  Shape shape;
  for (int64_t rank = rng.Below(3); rank > 0; --rank) shape.push_back(1 + rng.Below(6));
  shape.insert(shape.begin(), 1 + rng.Below(9));
  shape.push_back(rng.Below(2) == 0 ? 8 * (1 + rng.Below(10)) : 8 + rng.Below(90));
  return shape;
}

TEST(GpuReduce, Softmax) {
  Rng rng(1);
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const Shape shape = RandomShape(rng);
    const std::string type = TypeText(shape);
    const char* op = rng.Below(2) == 0 ? "softmax" : "log_softmax";
    ASSERT_NO_FATAL_FAILURE(CheckOnGpus(
        Parse(absl::StrCat("(", type, ", ", type, ") add(0,1) -> ", type, "; ", op, "(2; axis=", shape.size() - 1,
                           ") -> ", type, "; mul(3,1) -> ", type, "; anchor=1")),
        3, seed, "gpu.reduce"));
  }
}

TEST(GpuReduce, LayerNorm) {
  Rng rng(2);
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const Shape shape = RandomShape(rng);
    const int64_t axis = 1 + rng.Below(static_cast<int64_t>(shape.size()) - 1);
    const std::string type = TypeText(shape), affine = TypeText(Shape(shape.begin() + axis, shape.end()));
    ASSERT_NO_FATAL_FAILURE(CheckOnGpus(
        Parse(absl::StrCat("(", type, ", ", type, ", const ", affine, ", const ", affine, ") add(0,1) -> ", type,
                           "; layer_norm(4,2,3; axis=", axis, " epsilon=1e-05) -> ", type, "; anchor=1")),
        3, seed, "gpu.reduce"));
  }
}

TEST(GpuPixels, Images) {
  Rng rng(4);
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const bool keep = rng.Below(3) > 0, mean = rng.Below(2) == 0;
    const int64_t n = 1 + rng.Below(3), c = rng.Below(2) == 0 ? 8 * (1 + rng.Below(8)) : 1 + rng.Below(70);
    const std::string type = std::array{"f32", "f16", "bf16"}[seed % 3];
    const std::string out =
        keep ? absl::StrCat(type, "[", n, ",", c, ",1,1]@0231") : absl::StrCat(type, "[", n, ",", c, "]");
    ASSERT_NO_FATAL_FAILURE(CheckOnGpus(
        Parse(absl::StrCat("(", type, "[", n, ",", c, ",", 3 + rng.Below(12), ",", 3 + rng.Below(12), "]@0231) ",
                           mean ? "reduce_mean" : "reduce_sum", "(0; axes=[2,3] keepdims=", keep ? 1 : 0, ") -> ", out,
                           "; sigmoid(1) -> ", out, "; anchor=0")),
        4, seed, "gpu.pixels"));
  }
}

TEST(GpuReduce, InnerAxes) {
  Rng rng(3);
  for (uint64_t seed = 0; seed < 18; ++seed) {
    const Shape shape = RandomShape(rng);
    const int64_t first = 1 + rng.Below(static_cast<int64_t>(shape.size()) - 1);
    const bool keep = rng.Below(2) == 0;
    std::vector<int64_t> axes;
    Shape out(shape.begin(), shape.begin() + first);
    for (int64_t axis = first; axis < static_cast<int64_t>(shape.size()); ++axis) {
      axes.push_back(axis);
      if (keep) out.push_back(1);
    }
    const char* ops[] = {"reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_l2"};
    const std::string result = TypeText(out);
    ASSERT_NO_FATAL_FAILURE(CheckOnGpus(
        Parse(absl::StrCat("(", TypeText(shape), ") ", ops[rng.Below(5)], "(0; axes=[", absl::StrJoin(axes, ","),
                           "] keepdims=", keep ? 1 : 0, ") -> ", result, "; sigmoid(1) -> ", result, "; anchor=0")),
        3, seed, "gpu.reduce"));
  }
}

// What lanes exchange: in a warp alone without shared memory and barriers, among warps with one for each reduction.
TEST(GpuReduce, LanesExchangeTheirSums) {
  const Target t = ParseTarget("cuda:sm_80").value();
  const TemplateDef& def = *FindTemplate("gpu.reduce");
  EXPECT_EQ(def.space(Parse("(f32[9,50]) softmax(0; axis=1) -> f32[9,50]; anchor=0"), *ParseTarget("opencl"))
                .Check(*ParseConfig("lanes=32,rows=1,radix=2,keep=0,shuffle=1"))
                .ok(),
            false);
  struct Case {
    const char* workload;
    int reductions;
  };
  for (const Case& c : {Case{"(f32[9,50]) softmax(0; axis=1) -> f32[9,50]; anchor=0", 2},
                        {"(f64[5,70]) reduce_sum(0; axes=[1] keepdims=0) -> f64[5]; anchor=0", 1},
                        {"(i32[3,3,90]) reduce_max(0; axes=[2] keepdims=1) -> i32[3,3,1]; anchor=0", 1},
                        {"(f16[7,300]) softmax(0; axis=1) -> f16[7,300]; anchor=0", 2}}) {
    const Workload w = Parse(c.workload);
    for (const int lanes : {2, 8, 32, 64, 256}) {
      const int rows = std::max(1, 32 / lanes);
      const Config config = *ParseConfig(absl::StrCat("lanes=", lanes, ",rows=", rows, ",radix=2,keep=0,shuffle=1"));
      if (!def.space(w, t).Check(config).ok()) continue;
      ASSERT_NO_FATAL_FAILURE(CheckOnGpu(w, "gpu.reduce", config, t, 5));
      int barriers = 0;
      ir::VisitStmt(BuildKernel(w, "gpu.reduce", config, t)->main.body,
                    [&](const ir::Stmt& s) { barriers += s->kind == ir::StmtKind::kBarrier ? 1 : 0; });
      EXPECT_EQ(barriers, lanes > 32 ? c.reductions : 0) << c.workload;
      EXPECT_EQ(def.footprint(w, config, t)["barriers"], barriers) << c.workload;
      EXPECT_EQ(def.footprint(w, config, t)["shared_bytes"] > 0, lanes > 32) << c.workload;
    }
  }
}

TEST(GpuReduce, ThereIsAConfigForEverySize) {
  for (const char* name : {"opencl", "opencl -local=1024 -wg=8", "cuda:sm_50", "cuda:sm_90"}) {
    const Target t = ParseTarget(name).value();
    for (const Shape& shape : {Shape{1, 8}, {1, 1 << 20}, {1 << 20, 9}, {12, 128, 128}, {1, 50257}, {997, 991}}) {
      const std::string type = TypeText(shape);
      const Workload w =
          Parse(absl::StrCat("(", type, ") softmax(0; axis=", shape.size() - 1, ") -> ", type, "; anchor=0"));
      ASSERT_EQ(TemplatesFor(w, t).front()->name, "gpu.reduce");
      EXPECT_GE(FindTemplate("gpu.reduce")->space(w, t).Count().legal, 1) << name << " " << type;
    }
  }
}

}  // namespace
}  // namespace temper
