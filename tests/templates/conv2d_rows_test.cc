// Convolutions of random shapes: windows that hang over the image on any side, by more than a tile or by more
// than the image, strides and dilations that differ, groups, filters that fill no vector.
#include <algorithm>
#include <set>

#include "absl/strings/str_join.h"
#include "compiler/ir/simplify.h"
#include "tests/templates/check_templates.h"
#include "tests/templates/random_sides.h"

namespace temper {
namespace {

struct Channels {
  int64_t in, out, group;
};

std::string Text(int64_t n, const Channels& c, const Sides& h, const Sides& w, const char* filter) {
  const std::string out = absl::StrCat("f32[", n, ",", c.out, ",", h.out(), ",", w.out(), "]@0231");
  return absl::StrCat("(f32[", n, ",", c.in, ",", h.size, ",", w.size, "]@0231, ", filter, "f32[", c.out, ",",
                      c.in / c.group, ",", h.taps, ",", w.taps, "], f32[", c.out, ",1,1], ", out,
                      ") conv2d(0,1; dilations=[", h.dilation, ",", w.dilation, "] group=", c.group, " pads=[",
                      h.before, ",", w.before, ",", h.after, ",", w.after, "] strides=[", h.stride, ",", w.stride,
                      "]) -> ", out, "; add(4,2) -> ", out, "; add(5,3) -> ", out, "; relu(6) -> ", out, "; anchor=0");
}

TEST(Conv2dRowsTest, RandomShapes) {
  Rng rng(12);
  for (uint64_t seed = 0; seed < 18 && !::testing::Test::HasFatalFailure(); ++seed) {
    const Sides h = RandomSides(rng, 20), w = RandomSides(rng, 20);
    const int64_t group = rng.Below(3) == 0 ? 2 + rng.Below(2) : 1;
    const Channels c = {group * (1 + rng.Below(9)), group * (1 + rng.Below(40)), group};
    const Workload workload = Parse(Text(1 + rng.Below(2), c, h, w, rng.Below(4) == 0 ? "" : "const "));
    const bool pointwise = h.taps * w.taps == 1 && h.before + h.after + w.before + w.after == 0;
    const bool depthwise = group == c.in && group == c.out && group > 1;
    EXPECT_EQ(TemplatesFor(workload, Target{}).front()->name, depthwise   ? "conv2d.depthwise"
                                                              : pointwise ? "conv2d.direct"
                                                                          : "conv2d.rows");
    CheckAll(workload, 3, seed);
  }
}

// The copy that would bring an image into another order is the kernel's own first call, and is never made.
TEST(Conv2dRowsTest, ImagesOfFewChannelsAreReadAsTheyLie) {
  Rng rng(77);
  const auto text = [](int64_t n, const Channels& c, const Sides& h, const Sides& w) {
    std::string s = Text(n, c, h, w, "const ");
    const auto replace = [&s](const std::string& from, const std::string& to) {
      const size_t at = s.find(from);
      ASSERT_NE(at, s.npos) << from;
      s.replace(at, from.size(), to);
    };
    const std::string image = absl::StrCat("f32[", n, ",", c.in, ",", h.size, ",", w.size, "]");
    replace(image + "@0231", image);
    replace("conv2d(0,1;", "layout_copy(0) -> " + image + "@0231; conv2d(4,1;");
    replace("add(4,2)", "add(5,2)");
    replace("add(5,3)", "add(6,3)");
    replace("relu(6)", "relu(7)");
    replace("anchor=0", "anchor=1");
    return s;
  };
  for (uint64_t seed = 0; seed < 8 && !::testing::Test::HasFatalFailure(); ++seed) {
    Sides h = RandomSides(rng, 20);
    const Sides w = RandomSides(rng, 20);
    h.taps = std::max<int64_t>(h.taps, 2);
    h.before = std::max<int64_t>(h.before, h.taps * h.dilation);  // so that some output is left
    const Workload workload = Parse(text(1 + rng.Below(2), {1 + rng.Below(4), 1 + rng.Below(40), 1}, h, w));
    ASSERT_EQ(TemplatesFor(workload, Target{}).size(), 1u);
    EXPECT_EQ(TemplatesFor(workload, Target{}).front()->name, "conv2d.rows");
    CheckAll(workload, 3, 500 + seed);
  }
  const Sides s{9, 3, 1, 1, 1, 1};
  EXPECT_EQ(TemplatesFor(Parse(text(1, {4, 16, 1}, s, s)), Target{}).front()->name, "conv2d.rows");
  EXPECT_NE(TemplatesFor(Parse(text(1, {5, 16, 1}, s, s)), Target{}).front()->name, "conv2d.rows");
}

// Planes of volumes that a filter sees several of: read where they lie, by each template that can. Windows that hang
// over a volume, or leave planes of it out.
TEST(Conv2dRowsTest, PlanesOfVolumes) {
  Rng rng(91);
  std::set<std::string_view> templates;
  for (uint64_t seed = 700; seed < 712 && !::testing::Test::HasFatalFailure(); ++seed) {
    Sides d = RandomSides(rng, 6), h = RandomSides(rng, 12), w = RandomSides(rng, 12);
    if (seed % 2 == 0) h.taps = w.taps = 3, h.stride = w.stride = h.dilation = w.dilation = 1, h.before = w.before = 2;
    const int64_t group = rng.Below(4) == 0 ? 2 : 1, n = 1 + rng.Below(2), out = group * (8 + rng.Below(30));
    const int64_t channels = 16 * group * (1 + rng.Below(2)), seen = d.taps * channels;
    if (d.before > 0 && d.size > d.dilation * d.taps + 1) d.before = -1;
    const std::string image = absl::StrCat("f32[", n * d.size, ",", channels, ",", h.size, ",", w.size, "]@0231");
    const std::string planes = absl::StrCat("f32[", n * d.out(), ",", seen, ",", h.size, ",", w.size, "]@0231");
    const std::string result = absl::StrCat("f32[", n * d.out(), ",", out, ",", h.out(), ",", w.out(), "]@0231");
    const Workload workload = Parse(absl::StrCat(
        "(", image, ", const f32[", out, ",", seen / group, ",", h.taps, ",", w.taps, "], f32[", out, ",1,1]) ",
        "unfold_planes(0; depth=", d.size, " dilation=", d.dilation, " group=", group, " pads=[", d.before, ",",
        d.after, "] stride=", d.stride, " taps=", d.taps, ") -> ", planes, "; conv2d(3,1; dilations=[", h.dilation, ",",
        w.dilation, "] group=", group, " pads=[", h.before, ",", w.before, ",", h.after, ",", w.after, "] strides=[",
        h.stride, ",", w.stride, "]) -> ", result, "; add(4,2) -> ", result, "; anchor=1"));
    for (const TemplateDef* def : TemplatesFor(workload, Target{})) templates.insert(def->name);
    CheckAll(workload, 3, seed);
  }
  EXPECT_EQ(templates, (std::set<std::string_view>{"conv2d.rows", "conv2d.winograd"}));
}

// Groups that fill a part of a vector together, or not quite; and filters that half vectors fit better.
TEST(Conv2dRowsTest, SmallGroupsAndHalfVectors) {
  Rng rng(41);
  uint64_t seed = 300;
  for (const Channels c : {Channels{64, 64, 16}, {64, 64, 32}, {48, 48, 12}, {24, 24, 6}, {64, 32, 16}, {72, 72, 3}}) {
    const Sides h = RandomSides(rng, 12), w = RandomSides(rng, 12);
    for (const char* filter : {"const ", ""}) CheckAll(Parse(Text(1, c, h, w, filter)), 3, seed++);
  }
}

TEST(Conv2dRowsTest, SmallGroupsLeaveNoLaneIdle) {
  const Sides s{9, 3, 1, 1, 1, 1};
  const TemplateDef* def = FindTemplate("conv2d.rows");
  const auto waste = [&](const Channels& c, const char* target) {
    const Workload w = Parse(Text(1, c, s, s, "const "));
    const Target t = *ParseTarget(target);
    double least = 1e9;
    for (const Config& config : def->space(w, t).Enumerate(1 << 14)) {
      const Footprint f = def->footprint(w, config, t);
      least = std::min(least, f["padded_flops"] / f["flops"]);
    }
    return least;
  };
  for (const char* target : {"llvm:skylake-avx512", "llvm:haswell"}) {
    EXPECT_EQ(waste({64, 64, 16}, target), 1);  // several groups a vector
    EXPECT_EQ(waste({64, 64, 8}, target), 1);   // half a vector
    EXPECT_EQ(waste({72, 72, 3}, target), 1);
    EXPECT_EQ(waste({48, 24, 12}, target), waste({4, 2, 1}, target));  // fewer filters than channels
  }
}

// Networks' shapes, smaller: tiles at the edges alone, tiles between them, and last ones that are narrower.
TEST(Conv2dRowsTest, ShapesOfNetworks) {
  uint64_t seed = 100;
  for (int64_t taps : {3, 7}) {
    for (int64_t stride : {1, 2}) {
      for (int64_t size : {7, 27, 35}) {
        const Sides s{size, taps, stride, 1, taps / 2, taps / 2};
        CheckAll(Parse(Text(1, {size == 35 ? 3 : 8, 40, 1}, s, s, "const ")), 3, seed++);
      }
    }
  }
}

// So wide that its taps are not unrolled at the ends of a row.
TEST(Conv2dRowsTest, FiltersAsWideAsTheImage) {
  const Sides h{1, 1, 1, 1, 0, 0}, w{70, 61, 1, 1, 30, 30};
  CheckAll(Parse(Text(1, {3, 40, 1}, h, w, "const ")), 2, 5);
}

// Caches so small that the filters come from beyond them.
std::vector<Target> TargetsWithTinyCaches() {
  std::vector<Target> targets = Targets();
  for (Target& t : targets) {
    t.cpu()->l1_bytes = 512;
    t.cpu()->l2_bytes = 2048;
    t.cpu()->threads = 1;
  }
  return targets;
}

TEST(Conv2dRowsTest, FiltersFromBeyondTheCaches) {
  Rng rng(31);
  for (uint64_t seed = 200; seed < 208 && !::testing::Test::HasFatalFailure(); ++seed) {
    const Sides h = RandomSides(rng, 12), w = RandomSides(rng, 12);
    const int64_t group = 1 + rng.Below(2);
    const Channels c = {group * (2 + 2 * rng.Below(8)), group * (20 + rng.Below(60)), group};
    CheckAll(Parse(Text(1, c, h, w, "const ")), 3, seed, TargetsWithTinyCaches());
  }
}

// How much of the packed filters a kernel fetches ahead, in lines, the first block aside.
double FetchedAhead(const Kernel& kernel, int64_t blocks) {
  const Shape& packed = kernel.main.params[1]->shape;
  const ir::Buffer fetched = ir::MakeBuffer("fetched", DType::kF32, {2 * NumElements(packed)});
  ir::Func func = kernel.main;
  func.params.push_back(fetched);
  func.body = ir::RewriteStmt(func.body, [&](const ir::Stmt& s) -> ir::Stmt {
    if (s->kind != ir::StmtKind::kPrefetch || s->for_store) return nullptr;
    EXPECT_EQ(s->buffer, func.params[1]);
    return ir::Store(fetched, {ir::FlatIndex(s->buffer, s->indices)}, ir::Float(1));
  });
  std::vector<NDArray> arrays;
  for (const ir::Buffer& b : func.params) arrays.emplace_back(b->dtype, b->shape);
  for (NDArray& a : arrays) std::memset(a.MutableData(), 0, static_cast<size_t>(a.bytes()));
  EXPECT_TRUE(ir::Interpret(func, arrays).ok());
  const float* marks = static_cast<const float*>(arrays.back().data());
  constexpr int64_t kLine = 16;
  int64_t lines = 0;
  const int64_t begin = NumElements(packed) / blocks, end = NumElements(packed);
  for (int64_t line = begin; line < end; line += kLine)
    lines += std::count(marks + line, marks + line + kLine, 1.0F) > 0;
  return static_cast<double>(lines * kLine) / static_cast<double>(end - begin);
}

// All passes over a block of filters together fetch the next one, but for what rows at the image's ends leave out.
TEST(Conv2dRowsTest, PassesShareTheFetchOfTheNextBlock) {
  const Sides s{7, 3, 1, 1, 1, 1};
  const Workload w = Parse(Text(1, {12, 64, 1}, s, s, "const "));
  Target t = *ParseTarget("llvm:skylake-avx512");
  t.cpu()->threads = 1;
  const auto fetched = [&](const std::string& config, int64_t blocks) {
    absl::StatusOr<Kernel> kernel = BuildKernel(w, "conv2d.rows", *ParseConfig(config), t);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    return kernel.ok() ? FetchedAhead(*kernel, blocks) : 0;
  };
  EXPECT_EQ(fetched("mr=7,nv=1,blocks=4,ku=1", 4), 0);  // L2 holds them
  t.cpu()->l2_bytes = 4096;
  EXPECT_GE(fetched("mr=7,nv=1,blocks=4,parts=1,ku=1", 4), 0.9);
  EXPECT_GE(fetched("mr=4,nv=1,blocks=4,parts=1,ku=2", 4), 0.9);
  EXPECT_GE(fetched("mr=2,nv=2,blocks=2,parts=1,ku=2", 2), 0.9);
  EXPECT_GE(fetched("mr=7,nv=1,blocks=4,parts=3,ku=1", 12), 0.9);
  t.cpu()->threads = 2;
  EXPECT_EQ(fetched("mr=2,nv=2,blocks=2,parts=1,ku=2", 2), 0);  // a thread has one block
}

// Every config reads the image as it lies, and branches past what would multiply by zero.
TEST(Conv2dRowsTest, NothingIsCopiedOrMultipliedByPadding) {
  const Sides s{14, 3, 1, 1, 1, 1};
  const Workload w = Parse(Text(1, {16, 32, 1}, s, s, "const "));
  const TemplateDef* def = FindTemplate("conv2d.rows");
  const double seen = (3 * 14 - 2) * (3 * 14 - 2);
  for (const Target& t : Targets()) {
    for (const Config& config : def->space(w, t).Enumerate(64)) {
      const Footprint f = def->footprint(w, config, t);
      EXPECT_EQ(f["copies_bytes"], 0);
      EXPECT_EQ(f["flops"], 2 * seen * 16 * 32);
      absl::StatusOr<Kernel> kernel = BuildKernel(w, def->name, config, t);
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      ir::VisitStmt(kernel->main.body, [&](const ir::Stmt& s) {
        if (s->kind != ir::StmtKind::kAlloc) return;
        EXPECT_EQ(s->buffer->scope, ir::Scope::kRegister) << s->buffer->name;
      });
      ir::VisitExprs(kernel->main.body, [](const ir::Expr& root) {
        ir::Visit(root, [](const ir::Expr& e) { EXPECT_NE(e->kind, ir::ExprKind::kSelect); });
      });
    }
  }
}

}  // namespace
}  // namespace temper
