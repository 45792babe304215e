// The default schedule on random shapes: rows in one pass, windows that hang over the image, reductions over any axes
// in any layout, with stages before and after them.
#include "absl/strings/str_join.h"
#include "tests/templates/check_templates.h"

namespace temper {
namespace {

std::string TypeText(const Shape& shape, const std::string& perm = "") {
  return absl::StrCat("f32[", absl::StrJoin(shape, ","), "]", perm.empty() ? "" : "@" + perm);
}

// Extents below, at and above a vector, most of them no multiple of one.
int64_t RandomExtent(Rng& rng) {
  switch (rng.Below(4)) {
    case 0:
      return 1 + rng.Below(5);
    case 1:
      return 16 * (1 + rng.Below(4));
    default:
      return 1 + rng.Below(70);
  }
}

TEST(DefaultTest, RowsOfAnyAxis) {
  Rng rng(1);
  for (uint64_t seed = 0; seed < 16 && !::testing::Test::HasFatalFailure(); ++seed) {
    Shape shape;
    for (int64_t rank = 1 + rng.Below(3); rank > 0; --rank) shape.push_back(RandomExtent(rng));
    const int64_t axis = rng.Below(static_cast<int64_t>(shape.size()));
    const std::string type = TypeText(shape);
    const char* op = rng.Below(2) == 0 ? "softmax" : "log_softmax";
    // A stage before it, and one after it that reads the row again.
    CheckAll(Parse(absl::StrCat("(", type, ", ", type, ") add(0,1) -> ", type, "; ", op, "(2; axis=", axis, ") -> ",
                                type, "; mul(3,1) -> ", type, "; anchor=1")),
             2, seed);
  }
}

TEST(DefaultTest, LayerNorms) {
  Rng rng(2);
  for (uint64_t seed = 0; seed < 16 && !::testing::Test::HasFatalFailure(); ++seed) {
    Shape shape;
    for (int64_t rank = 2 + rng.Below(2); rank > 0; --rank) shape.push_back(RandomExtent(rng));
    const int64_t axis = 1 + rng.Below(static_cast<int64_t>(shape.size()) - 1);
    const std::string type = TypeText(shape), affine = TypeText(Shape(shape.begin() + axis, shape.end()));
    CheckAll(Parse(absl::StrCat("(", type, ", ", type, ", const ", affine, ", const ", affine, ") add(0,1) -> ", type,
                                "; layer_norm(4,2,3; axis=", axis, " epsilon=1e-05) -> ", type, "; anchor=1")),
             2, seed);
  }
}

TEST(DefaultTest, ReductionsOverAnyAxes) {
  Rng rng(3);
  for (uint64_t seed = 0; seed < 30 && !::testing::Test::HasFatalFailure(); ++seed) {
    const Shape shape = {1 + rng.Below(2), RandomExtent(rng), 1 + rng.Below(20), 1 + rng.Below(40)};
    const std::string perm = rng.Below(2) == 0 ? "0231" : "";
    std::vector<int64_t> axes;
    Shape out = shape;
    for (int64_t axis = 0; axis < 4; ++axis) {
      if (rng.Below(2) == 0) continue;
      axes.push_back(axis);
      out[static_cast<size_t>(axis)] = 1;
    }
    if (axes.empty()) continue;
    const char* ops[] = {"reduce_sum", "reduce_mean", "reduce_max"};
    const std::string result = TypeText(out, perm);
    CheckAll(
        Parse(absl::StrCat("(", TypeText(shape, perm), ") ", ops[rng.Below(3)], "(0; axes=[", absl::StrJoin(axes, ","),
                           "] keepdims=1) -> ", result, "; sigmoid(1) -> ", result, "; anchor=0")),
        2, seed);
  }
}

// Along any axis of any layout, kept or not, between other stages.
TEST(DefaultTest, PlacesOfExtremes) {
  Rng rng(5);
  for (uint64_t seed = 0; seed < 16 && !::testing::Test::HasFatalFailure(); ++seed) {
    const Shape shape = {1 + rng.Below(2), RandomExtent(rng), 1 + rng.Below(20), 1 + rng.Below(40)};
    const auto axis = rng.Below(4);
    const bool keep = rng.Below(2) == 0, nhwc = rng.Below(2) == 0;
    Shape out = shape;
    out[static_cast<size_t>(axis)] = 1;
    if (!keep) out.erase(out.begin() + axis);
    const std::string x =
        absl::StrCat(seed % 3 == 0 ? "i32[" : "f32[", absl::StrJoin(shape, ","), "]", nhwc ? "@0231" : "");
    const std::string tail = absl::StrCat(absl::StrJoin(out, ","), "]", nhwc && keep ? "@0231" : "");
    CheckAll(Parse(absl::StrCat("(", x, ") neg(0) -> ", x, "; ", rng.Below(2) == 0 ? "arg_max" : "arg_min", "(1; axis=",
                                axis, " keepdims=", keep ? 1 : 0, rng.Below(2) == 0 ? " select_last_index=1" : "",
                                ") -> i64[", tail, "; cast(2; to='f32') -> f32[", tail, "; anchor=1")),
             2, seed);
  }
}

TEST(DefaultTest, Pools) {
  Rng rng(4);
  for (uint64_t seed = 0; seed < 30 && !::testing::Test::HasFatalFailure(); ++seed) {
    const int64_t c = RandomExtent(rng);
    Shape in = {1 + rng.Below(2), c}, out = in;
    std::vector<int64_t> kernel, strides, before, after;
    for (int d = 0; d < 2; ++d) {
      kernel.push_back(1 + rng.Below(5));
      strides.push_back(1 + rng.Below(3));
      before.push_back(rng.Below(kernel.back()));
      after.push_back(rng.Below(kernel.back()));
      in.push_back(kernel.back() + rng.Below(12));
      out.push_back((in.back() + before.back() + after.back() - kernel.back()) / strides.back() + 1);
      // A window that would start beyond the image is left out.
      if ((out.back() - 1) * strides.back() >= in.back() + before.back()) --out.back();
    }
    const std::string perm = rng.Below(4) == 0 ? "" : "0231", result = TypeText(out, perm);
    const bool average = rng.Below(2) == 0;
    CheckAll(Parse(absl::StrCat("(", TypeText(in, perm), ") ", average ? "avg_pool2d" : "max_pool2d",
                                average && rng.Below(2) == 0 ? "(0; count_include_pad=1 kernel=[" : "(0; kernel=[",
                                absl::StrJoin(kernel, ","), "] pads=[", absl::StrJoin(before, ","), ",",
                                absl::StrJoin(after, ","), "] strides=[", absl::StrJoin(strides, ","), "]) -> ", result,
                                "; relu(1) -> ", result, "; anchor=0")),
             2, seed);
  }
}

// Planes that become pixels, and the way back.
TEST(DefaultTest, ChangesOfLayout) {
  uint64_t seed = 0;
  for (int64_t channels : {1, 2, 3, 4, 5, 16, 33}) {
    for (int64_t width : {5, 7, 16, 32, 48}) {  // 3 x 5 pixels are shorter than a line
      for (const char* to : {"0231", ""}) {
        const Shape shape = {2, channels, 3, width};
        CheckAll(Parse(absl::StrCat("(", TypeText(shape, *to ? "" : "0231"), ") layout_copy(0) -> ",
                                    TypeText(shape, to), "; anchor=0")),
                 1, seed++);
      }
    }
  }
}

// Whole squares of vectors and what is left of them at both edges, in elements of any width.
TEST(DefaultTest, TransposesOfEveryWidth) {
  uint64_t seed = 0;
  for (const char* type : {"f32", "f64", "i64", "f16", "i8", "bool"}) {
    for (const Shape& shape : {Shape{16, 16}, Shape{40, 24}, Shape{33, 17}, Shape{19, 50}}) {
      const auto text = [&](int64_t rows, int64_t columns) {
        return absl::StrCat(type, "[2,", rows, ",", columns, "]");
      };
      CheckAll(Parse(absl::StrCat("(", text(shape[0], shape[1]), ") transpose(0; perm=[0,2,1]) -> ",
                                  text(shape[1], shape[0]), "; anchor=0")),
               1, seed++);
    }
  }
}

// Groups of channels become neighbours, one of each in turn, while pixels become planes.
TEST(DefaultTest, ShufflesOfChannels) {
  uint64_t seed = 0;
  for (const char* type : {"f32", "i8"}) {
    for (int64_t groups : {2, 3, 8, 9}) {
      for (int64_t each : {15, 16, 29, 58}) {
        for (int64_t width : {1, 4, 13}) {
          const std::string image = absl::StrCat("4,", width, "]"), channels = absl::StrCat(groups * each, ",");
          CheckAll(Parse(absl::StrCat("(", type, "[2,", each, ",", groups, ",", image, "@03421) reshape(0; shape=[2,",
                                      channels, image, ") -> ", type, "[2,", channels, image, "; anchor=0")),
                   1, seed++);
        }
      }
    }
  }
}

// One parallel region, and no scratch beyond a row's.
TEST(DefaultTest, Transposes) {
  Rng rng(6);
  for (uint64_t seed = 0; seed < 16 && !::testing::Test::HasFatalFailure(); ++seed) {
    std::vector<int64_t> perm = {0, 1, 2};
    if (rng.Below(2) == 0) perm.push_back(3);
    for (size_t i = perm.size(); i > 1; --i)
      std::swap(perm[i - 1], perm[static_cast<size_t>(rng.Below(static_cast<int64_t>(i)))]);
    Shape shape, turned;
    for (size_t i = 0; i < perm.size(); ++i) shape.push_back(i == 0 ? 1 + rng.Below(3) : RandomExtent(rng));
    for (int64_t axis : perm) turned.push_back(shape[static_cast<size_t>(axis)]);
    const std::string from = TypeText(shape), to = TypeText(turned);
    // What is read in the new order joins it.
    CheckAll(Parse(absl::StrCat("(", from, ", ", to, ") transpose(0; perm=[", absl::StrJoin(perm, ","), "]) -> ", to,
                                "; add(2,1) -> ", to, "; anchor=0")),
             1, seed);
  }
}

int ParallelLoops(const Kernel& kernel) {
  int loops = 0;
  ir::VisitStmt(kernel.main.body, [&](const ir::Stmt& s) {
    loops += s->kind == ir::StmtKind::kFor && s->for_kind == ir::ForKind::kParallel ? 1 : 0;
  });
  return loops;
}

TEST(DefaultTest, RowsAreOneKernel) {
  const char* texts[] = {
      "(f32[1,12,128,128]) softmax(0; axis=3) -> f32[1,12,128,128]; anchor=0",
      "(f32[1,12,128,128]) log_softmax(0; axis=3) -> f32[1,12,128,128]; anchor=0",
      "(f32[1,128,768], f32[1,128,768], const f32[768], const f32[768]) add(0,1) -> f32[1,128,768]; "
      "layer_norm(4,2,3; axis=2 epsilon=1e-05) -> f32[1,128,768]; anchor=1",
      "(f32[1,64,28,28]@0231) max_pool2d(0; kernel=[3,3] pads=[1,1,1,1] strides=[2,2]) -> f32[1,64,14,14]@0231; "
      "anchor=0",
      "(f32[1,96,56,56]@0231) reduce_mean(0; axes=[2,3] keepdims=1) -> f32[1,96,1,1]@0231; anchor=0",
  };
  const Target t = HostTarget();
  for (const char* text : texts) {
    const Workload w = Parse(text);
    for (const Config& config : FindTemplate("default")->space(w, t).Enumerate(8)) {
      absl::StatusOr<Kernel> kernel = BuildKernel(w, "default", config, t);
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      int64_t scratch = 0;
      ir::VisitStmt(kernel->main.body, [&](const ir::Stmt& s) {
        if (s->kind == ir::StmtKind::kAlloc) scratch = std::max(scratch, NumElements(s->buffer->shape));
      });
      EXPECT_EQ(ParallelLoops(*kernel), 1) << ir::Text(kernel->main);
      EXPECT_LE(scratch, 768) << ir::Text(kernel->main);
    }
  }
}

// A step of a sequence, and all steps of one.
TEST(DefaultTest, WhatIsDoneAtOnceIsDoneByOneThread) {
  const auto loops = [](int64_t rows, const char* op) {
    const std::string type = TypeText({rows, 112});
    const Workload w = Parse(absl::StrCat("(", type, ") ", op, "(0) -> ", type, "; anchor=0"));
    const Target t = HostTarget();
    const absl::StatusOr<Kernel> kernel = BuildKernel(w, "default", FindTemplate("default")->space(w, t).At(0), t);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    return kernel.ok() ? ParallelLoops(*kernel) : -1;
  };
  EXPECT_EQ(loops(1, "tanh"), 0);
  EXPECT_EQ(loops(4, "relu"), 0);
  EXPECT_EQ(loops(64, "relu"), 1);
}

// max(x, x * x) reads x three times: written out for each read, 25 of them in a row would never end.
TEST(DefaultTest, ChainsThatReadValuesMoreThanOnceAreNoLargerThanTheyAreWritten) {
  constexpr int kSteps = 25;
  const std::string inputs = "(f32[1,5,37], f32[1,5,37], bool[1,5,37]) ", type = "f32[1,5,37]", joined = "f32[1,10,37]";
  for (const auto& [first, result] :
       {std::pair{std::string("add(0,1)"), type}, {"concat(0,1; axis=1)", joined}, {"where(2,0,1)", type}}) {
    std::string text = absl::StrCat(inputs, first, " -> ", result);
    for (int i = 0; i < kSteps; ++i) {
      const int last = 3 + 2 * i;
      absl::StrAppend(&text, "; mul(", last, ",", last, ") -> ", result, "; max(", last, ",", last + 1, ") -> ",
                      result);
    }
    CheckAll(Parse(text + "; anchor=0"), 1, 5);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace temper
