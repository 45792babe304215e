// Small graphs like the networks that people run, optimised for a GPU: every task has a template, those that are worth
// one of their own have it, no layout is a CPU's, and the drafts' first choices give the references' answers.
#include <gmock/gmock.h>

#include <set>

#include "compiler/graph/alternatives.h"
#include "compiler/graph/extract.h"
#include "compiler/graph/pipeline.h"
#include "tests/graph/builder.h"
#include "tests/templates/check_gpu.h"

namespace temper {
namespace {

using testing::Builder;

Attrs Strided(int64_t stride, int64_t pad, int64_t group = 1) {
  Attrs attrs = Builder::Ints("strides", {stride, stride});
  attrs.Set("pads", std::vector<int64_t>(4, pad));
  attrs.Set("group", group);
  return attrs;
}

ValueId Classify(Builder& b, ValueId x, int64_t channels) {
  Attrs axes = Builder::Ints("axes", {2, 3});
  axes.Set("keepdims", int64_t{1});
  const ValueId mean = b.Reshape(b.Call("reduce_mean", {x}, axes), {1, channels});
  return b.Call("add", {b.Call("matmul", {mean, b.Random({channels, 10})}), b.Random({10})});
}

Graph ResNet() {
  Builder b;
  ValueId x = b.Call("conv2d", {b.Input({1, 3, 24, 24}), b.Random({8, 3, 7, 7})}, Strided(2, 3));
  x = b.Call("relu", {b.Call("add", {x, b.Random({8, 1, 1})})});
  Attrs pool = Builder::Ints("kernel", {3, 3});
  pool.Set("strides", std::vector<int64_t>{2, 2});
  pool.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
  x = b.Call("max_pool2d", {x}, pool);
  const ValueId y = b.Call("relu", {b.Conv(x, b.Random({8, 8, 3, 3}), 1)});
  x = b.Call("relu", {b.Call("add", {b.Conv(y, b.Random({8, 8, 3, 3}), 1), x})});
  const ValueId z = b.Call("relu", {b.Call("conv2d", {x, b.Random({16, 8, 3, 3})}, Strided(2, 1))});
  const ValueId shortcut = b.Call("conv2d", {x, b.Random({16, 8, 1, 1})}, Strided(2, 0));
  x = b.Call("relu", {b.Call("add", {b.Conv(z, b.Random({16, 16, 3, 3}), 1), shortcut})});
  b.Output(Classify(b, x, 16));
  return b.g;
}

Graph MobileNet() {
  Builder b;
  Attrs to_6;
  to_6.Set("min", 0.0);
  to_6.Set("max", 6.0);
  ValueId x = b.Call("conv2d", {b.Input({1, 3, 20, 20}), b.Random({8, 3, 3, 3})}, Strided(2, 1));
  for (int64_t stride : {1, 2}) {
    const ValueId wide = b.Call("clip", {b.Conv(x, b.Random({24, 8, 1, 1}))}, to_6);
    const ValueId deep =
        b.Call("clip", {b.Call("conv2d", {wide, b.Random({24, 1, 3, 3})}, Strided(stride, 1, 24))}, to_6);
    const ValueId narrow = b.Conv(deep, b.Random({8, 24, 1, 1}));
    x = stride == 1 ? b.Call("add", {narrow, x}) : narrow;
  }
  b.Output(Classify(b, x, 8));
  return b.g;
}

Graph Bert() {
  constexpr int64_t kWords = 9, kWidth = 16, kHeads = 2;
  Builder b;
  Attrs axis = Builder::Int("axis", 2);
  axis.Set("epsilon", 1e-5);
  const auto dense = [&](ValueId x, int64_t from, int64_t to) {
    return b.Call("add", {b.Call("matmul", {x, b.Random({from, to})}), b.Random({to})});
  };
  const auto norm = [&](ValueId x) { return b.Call("layer_norm", {x, b.Random({kWidth}), b.Random({kWidth})}, axis); };
  const auto heads = [&](ValueId x) {
    return b.Transpose(b.Reshape(x, {1, kWords, kHeads, kWidth / kHeads}), {0, 2, 1, 3});
  };
  const ValueId x = norm(b.Input({1, kWords, kWidth}));
  const ValueId q = heads(dense(x, kWidth, kWidth)), k = heads(dense(x, kWidth, kWidth)),
                v = heads(dense(x, kWidth, kWidth));
  const ValueId scores = b.Call("mul", {b.Call("matmul", {q, k}, Builder::Int("trans_b", 1)), b.Scalar(0.35)});
  const ValueId shares = b.Call("softmax", {scores}, Builder::Int("axis", 3));
  const ValueId context = b.Reshape(b.Transpose(b.Call("matmul", {shares, v}), {0, 2, 1, 3}), {1, kWords, kWidth});
  const ValueId y = norm(b.Call("add", {dense(context, kWidth, kWidth), x}));
  const ValueId wide = b.Call("gelu", {dense(y, kWidth, 4 * kWidth)});
  b.Output(norm(b.Call("add", {dense(wide, 4 * kWidth, kWidth), y})));
  return b.g;
}

// How many kernels of the network each template of a GPU makes.
std::map<std::string_view, int> KernelsOf(Graph g, const Target& t) {
  std::map<std::string_view, int> kernels;
  EXPECT_TRUE(Optimize(g, t).ok());
  g.alternatives.clear();
  for (const Value& value : g.values) {
    EXPECT_TRUE(value.type.shape.size() <= 4) << "no blocks of channels";
  }
  const std::vector<Task> tasks = ExtractTasks(g).value();
  for (const Task& task : tasks) {
    std::vector<const TemplateDef*> templates = TemplatesFor(task.workload, t);
    std::erase_if(templates, [](const TemplateDef* def) { return def->only_measured; });
    EXPECT_EQ(templates.size(), 1u) << Text(task.workload);
    if (templates.empty()) continue;
    kernels[templates.front()->name] += task.count;
    const Choice choice = DefaultChoice(task.workload, t).value();
    EXPECT_EQ(choice.def, templates.front());
    CheckOnGpu(task.workload, choice.def->name, choice.config, t, 1);
  }
  return kernels;
}

using Kernels = std::map<std::string_view, int>;

TEST(GpuGraphs, AResNetIsConvolutionsAPoolAMeanAndADenseLayer) {
  EXPECT_EQ(KernelsOf(ResNet(), *ParseTarget("opencl")),
            (Kernels{{"gpu.conv", 6}, {"gpu.default", 2}, {"gpu.gemm", 1}, {"gpu.pixels", 1}}));
}

TEST(GpuGraphs, AMobileNetHasDepthwiseConvolutions) {
  EXPECT_EQ(KernelsOf(MobileNet(), *ParseTarget("opencl")),
            (Kernels{{"gpu.conv", 5}, {"gpu.depthwise", 2}, {"gpu.default", 1}, {"gpu.gemm", 1}, {"gpu.pixels", 1}}));
}

// Each task that allows TF32 has a key of its own, so no record is for both; the others keep theirs.
TEST(GpuGraphs, ProductsThatAllowTf32ShareNoRecordWithOthers) {
  const Target t = ParseTarget("cuda:sm_80").value();
  for (Graph (*const model)() : {ResNet, MobileNet, Bert}) {
    std::set<std::string> exact, rounded;
    for (const bool tf32 : {false, true}) {
      Graph g = model();
      ASSERT_TRUE(Optimize(g, t, {.tf32 = tf32}).ok());
      const std::vector<Task> tasks = ExtractTasks(g).value();
      for (const Task& task : tasks) (tf32 ? rounded : exact).insert(Text(task.workload));
    }
    for (const std::string& text : exact) {
      const Workload w = ParseWorkload(text).value();
      const std::string_view name = TemplatesFor(w, t).front()->name;
      EXPECT_EQ(rounded.contains(text), name != "gpu.gemm" && name != "gpu.conv" && name != "gpu.attention") << text;
    }
    for (const std::string& text : rounded) {
      if (exact.contains(text)) continue;
      const std::vector<const TemplateDef*> templates = TemplatesFor(ParseWorkload(text).value(), t);
      if (templates.front()->name == "gpu.attention") continue;  // it rounds nothing
      ASSERT_GE(templates.size(), 2u) << text;
      EXPECT_EQ(templates[1]->name, "gpu.mma") << text;
    }
  }
}

TEST(GpuGraphs, ATargetWithoutTf32RefusesIt) {
  for (const char* name : {"cuda:sm_75", "opencl", "llvm:haswell"}) {
    Graph g = Bert();
    const absl::Status status = Optimize(g, ParseTarget(name).value(), {.tf32 = true});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("multiplies nothing in TF32")) << name;
  }
}

TEST(GpuGraphs, ATargetWithoutBf16RefusesIt) {
  for (const char* name : {"cuda:sm_90", "opencl", "llvm:znver3"}) {
    Graph g = Bert();
    const absl::Status status = Optimize(g, ParseTarget(name).value(), {.bf16 = true});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("multiplies no f32 in bf16")) << name;
  }
}

TEST(GpuGraphs, ABertIsProductsAndRows) {
  EXPECT_EQ(KernelsOf(Bert(), *ParseTarget("cuda:sm_80")), (Kernels{{"gpu.gemm", 6}, {"gpu.reduce", 4}}));
}

// Where an alternative is proposed, and that a GPU's memory holds what it makes: three kernels of a graph are one. On a
// CPU so few scores stay in the caches.
TEST(GpuGraphs, AttentionMayBeOneKernel) {
  const Graph bert = Bert();
  for (const auto& [name, proposed] :
       {std::pair("cuda:sm_90", true), std::pair("opencl", true), std::pair("opencl -local=256 -wg=64", false),
        std::pair("llvm:haswell", false)}) {
    SCOPED_TRACE(name);
    const Target t = ParseTarget(name).value();
    Graph g = bert;
    ASSERT_TRUE(Optimize(g, t).ok());
    ASSERT_EQ(g.alternatives.size(), proposed ? 1u : 0u);
    if (!proposed) continue;
    EXPECT_EQ(g.alternatives[0].replaces.size(), 3u);
    const Workload w = Extract(g, g.alternatives[0].groups[0]).value().workload;
    EXPECT_EQ(TemplatesFor(w, t).front()->name, "gpu.attention");
    // Nothing measured says that it is fast, so what is right for everything is its default.
    const Choice choice = DefaultChoice(w, t).value();
    EXPECT_EQ(choice.def->name, "gpu.default");
    CheckOnGpu(w, choice.def->name, choice.config, t, 1);
    const size_t groups = g.groups.size();
    TakeAlternatives(g, {true});
    EXPECT_EQ(g.groups.size(), groups - 2);
    ASSERT_TRUE(Verify(g).ok());
  }
}

// By an H100's times one kernel of f16 is faster than three.
TEST(GpuGraphs, AttentionOfTensorCoresIsOneKernelByDefault) {
  Builder b;
  const auto heads = [&] { return b.Input({1, 2, 64, 64}, DType::kF16); };
  const ValueId scores = b.Call("matmul", {heads(), heads()}, Builder::Int("trans_b", 1));
  b.Output(b.Call("matmul", {b.Call("softmax", {scores}, Builder::Int("axis", 3)), heads()}));
  for (const auto& [name, kernels] : {std::pair("cuda:sm_90", Kernels{{"gpu.attention_mma", 1}}),
                                      std::pair("cuda:sm_75", Kernels{{"gpu.gemm", 2}, {"gpu.reduce", 1}})}) {
    SCOPED_TRACE(name);
    EXPECT_EQ(KernelsOf(b.g, *ParseTarget(name)), kernels);
  }
}

// Queries of one matrix, keys and values of all layers of another; beside them a product of another shape, one with an
// activation, which is computed with it, and one that is a result.
Graph Decoder() {
  constexpr int64_t kBatch = 2, kWords = 6, kSeen = 5, kWidth = 16;
  Builder b;
  const ValueId x = b.Input({kBatch, kWords, kWidth}), memory = b.Input({kBatch, kSeen, kWidth});
  const auto dense = [&](ValueId a, int64_t to) { return b.Call("matmul", {a, b.Random({kWidth, to})}); };
  const auto biased = [&](ValueId a) { return b.Call("add", {b.Random({kWidth}), dense(a, kWidth)}); };
  for (int layer = 0; layer < 2; ++layer) {
    const ValueId q = biased(x), k = biased(memory), v = biased(memory);
    const ValueId scores = b.Call("matmul", {q, k}, Builder::Int("trans_b", 1));
    b.Output(b.Call("matmul", {b.Call("softmax", {scores}, Builder::Int("axis", 2)), v}));
  }
  b.Output(b.Call("matmul", {dense(memory, kWidth / 2), b.Random({kWidth / 2, 3})}));
  b.Output(b.Call("relu", {dense(memory, kWidth)}));
  b.Output(dense(memory, kWidth));
  return b.g;
}

TEST(GpuGraphs, ProductsOfOneMatrixAreOneOfABatchOnAGpuAlone) {
  const Graph decoder = Decoder();
  const std::vector<NDArray> inputs = ::temper::testing::RandomInputs(decoder, 1);
  ASSERT_EQ(::temper::testing::CountOps(decoder, "matmul"), 14);
  for (const auto& [name, products] :
       {std::pair("cuda:sm_80", 10), std::pair("opencl", 10), std::pair("llvm:haswell", 14)}) {
    SCOPED_TRACE(name);
    Graph g = decoder;
    ASSERT_TRUE(Optimize(g, ParseTarget(name).value()).ok());
    EXPECT_EQ(::temper::testing::CountOps(g, "matmul"), products);
    ::temper::testing::ExpectClose(::temper::testing::Evaluated(g, inputs),
                                   ::temper::testing::Evaluated(decoder, inputs));
    // No part is copied.
    const std::vector<Task> tasks = ExtractTasks(g).value();
    EXPECT_TRUE(std::ranges::none_of(
        tasks, [](const Task& task) { return task.workload.calls[task.workload.anchor].op == "slice"; }));
  }
}

}  // namespace
}  // namespace temper
