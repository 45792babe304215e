// What each pass does, alone, to a small graph, as texts: before and after. A pass without an example fails.
#include <filesystem>
#include <set>

#include "compiler/graph/passes/passes.h"
#include "compiler/graph/pipeline.h"
#include "tests/golden.h"
#include "tests/graph/builder.h"

namespace temper {
namespace {

using testing::Builder;

struct Example {
  std::string_view pass;
  void (*build)(Builder& b);
  const char* target = nullptr;  // a CPU
};

void OfConstants(Builder& b) {
  const ValueId known = b.Transpose(b.Call("exp", {b.Random({3, 2})}), {1, 0});
  b.Output(b.Call("add", {b.Input({2, 3}), known}));
}

// A cache that grows by what is computed, and a row of a table.
void OfNarrowFloats(Builder& b) {
  const auto known = [&](Shape shape) { return b.Constant(testing::RandomArray(b.rng, shape, -1, 1, DType::kF16)); };
  const ValueId x = b.Call("gather", {known({8, 4}), b.Input({2}, DType::kI64)});
  const ValueId fresh = b.Call("matmul", {x, known({4, 3})});
  const ValueId all = b.Call("concat", {b.Input({5, 3}, DType::kF16), fresh}, Builder::Int("axis", 0));
  b.Output(all);
  b.Output(b.Call("softmax", {b.Call("add", {all, known({3})})}));
}

// Numbers of 8 bits with their scales, whose product a CPU has a template for, and integers of too few channels.
void OfIntegers(Builder& b) {
  const auto cast = [&](ValueId v, const char* to) { return b.Call("cast", {v}, Builder::String("to", to)); };
  const auto dequantised = [&](ValueId q, double zero, double scale) {
    const ValueId zero_point = b.Constant(testing::Numbers(DType::kI32, {}, {zero}));
    return b.Call("mul", {cast(b.Call("sub", {cast(q, "i32"), zero_point}), "f32"), b.Scalar(scale)});
  };
  const ValueId weights = b.Constant(testing::Numbers(DType::kI8, {2, 3}, {1, -2, 3, -4, 5, -6}));
  b.Output(b.Call("matmul", {dequantised(b.Input({4, 2}, DType::kU8), 128, 0.5), dequantised(weights, 0, 0.25)}));
  const ValueId image = cast(b.Input({1, 1, 4, 4}, DType::kU8), "i16");
  const ValueId filter = cast(b.Constant(testing::Numbers(DType::kI8, {1, 1, 1, 2}, {7, -7})), "i16");
  b.Output(b.Call("conv2d", {image, filter}, Builder::String("result", "i32")));
}

// Rows of 91 pixels, which are no whole number of neighbours.
void AConvolutionToOneChannel(Builder& b) { b.Output(b.Conv(b.Input({1, 64, 90, 91}), b.Random({1, 64, 3, 3}), 1)); }

void WithEqualCalls(Builder& b) {
  const ValueId x = b.Input({4});
  const auto half = [&] { return b.Call("mul", {b.Call("exp", {x}), b.Scalar(0.5)}); };
  b.Output(b.Call("sub", {half(), b.Call("sigmoid", {half()})}));
}

void WithUnreadNodes(Builder& b) {
  const ValueId x = b.Input({4});
  b.Call("relu", {b.Call("mul", {x, b.Random({4})})});
  b.Output(b.Call("exp", {x}));
}

void ConvolutionWithNorm(Builder& b) {
  const ValueId c = b.Conv(b.Input({1, 3, 8, 8}), b.Random({4, 3, 3, 3}), 1);
  const ValueId norm = b.Call(
      "batch_norm", {c, b.Random({4}), b.Random({4}), b.Random({4}), b.Constant(testing::Floats({4}, {1, 1, 2, 2}))});
  b.Output(b.Transpose(b.Transpose(b.Call("relu", {norm}), {0, 2, 3, 1}), {0, 3, 1, 2}));
}

void ConvolutionsAndDense(Builder& b) {
  ValueId x = b.Call("relu", {b.Conv(b.Input({1, 3, 4, 4}), b.Random({8, 3, 3, 3}), 1)});
  x = b.Call("add", {x, b.Conv(x, b.Random({8, 8, 1, 1}))});
  b.Output(b.Call("matmul", {b.Reshape(x, {1, 128}), b.Random({128, 10})}));
}

void KeysAndValues(Builder& b) {
  const ValueId x = b.Input({2, 3, 16});
  const auto dense = [&] { return b.Call("add", {b.Call("matmul", {x, b.Random({16, 8})}), b.Random({8})}); };
  const ValueId keys = dense(), values = dense();
  b.Output(b.Call("matmul", {b.Call("matmul", {keys, values}, Builder::Int("trans_b", 1)), values}));
}

void DenseWithActivation(Builder& b) {
  const ValueId dense = b.Call("add", {b.Call("matmul", {b.Input({4, 16}), b.Random({16, 32})}), b.Random({32})});
  const ValueId gated = b.Call("mul", {dense, b.Call("sigmoid", {dense})});
  b.Output(b.Call("softmax", {b.Call("mul", {gated, b.Scalar(0.125)})}));
}

// Depthwise and pointwise, with half a mebibyte between them, as the passes before leave it.
void SeparableConvolution(Builder& b) {
  const ValueId depthwise = b.Call("relu", {b.Conv(b.Input({1, 32, 64, 64}), b.Random({32, 1, 3, 3}), 1, 32)});
  b.Output(b.Conv(depthwise, b.Random({32, 32, 1, 1})));
  ASSERT_TRUE(passes::ChooseLayouts(b.g).ok());
  ASSERT_TRUE(passes::Fuse(b.g, Target{}).ok());
}

constexpr Example kExamples[] = {
    {"widen", OfNarrowFloats},
    {"integers", OfIntegers},
    {"fold-constants", OfConstants},
    {"cse", WithEqualCalls},
    {"dead-code", WithUnreadNodes},
    {"simplify", ConvolutionWithNorm},
    {"neighbours", AConvolutionToOneChannel},
    {"layout", ConvolutionsAndDense},
    {"fuse", DenseWithActivation},
    {"alternatives", SeparableConvolution},
    {"merge", KeysAndValues, "opencl"},
};

TEST(GoldenGraphs, EachPassDoesThisToItsExample) {
  std::set<std::string> files;
  for (const PassDef& pass : AllPasses()) {
    const std::string name(pass.name);
    files.insert(name + ".txt");
    const auto example = std::ranges::find(kExamples, pass.name, &Example::pass);
    ASSERT_NE(example, std::end(kExamples)) << "the pass " << name << " has no example here";
    Builder b;
    b.g.name = "example";
    example->build(b);
    const std::string before = Text(b.g);
    const Target target = example->target != nullptr ? ParseTarget(example->target).value() : Target{};
    ASSERT_TRUE(pass.run(b.g, target).ok()) << name;
    ASSERT_TRUE(Verify(b.g).ok()) << name << ": " << Verify(b.g);
    const std::string after = Text(b.g);
    EXPECT_NE(before, after) << "the example does not show what " << name << " does";
    EXPECT_TRUE(MatchesGolden("== before\n" + before + "== after\n" + after, "graph", name));
  }
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(GoldenPath("graph", "x")).parent_path()))
    EXPECT_TRUE(files.contains(entry.path().filename().string())) << entry.path() << " is of no pass";
}

}  // namespace
}  // namespace temper
