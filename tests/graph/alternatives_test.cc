// Alternatives: where they are proposed, how they travel, and that the measured times alone decide between them.
#include "compiler/graph/alternatives.h"
#include "compiler/graph/extract.h"
#include "compiler/graph/graph_json.h"
#include "compiler/graph/passes/passes.h"
#include "compiler/graph/pipeline.h"
#include "compiler/ops/template.h"
#include "tests/graph/builder.h"

namespace temper {
namespace {

using testing::Builder;

// A depthwise convolution of 32 channels, relu, a pointwise one; by default with half a mebibyte between them.
struct Separable {
  Builder b;
  ValueId between, out;
  explicit Separable(int64_t size = 64, int count = 1) {
    out = b.Input({1, 32, size, size});
    for (int i = 0; i < count; ++i) Add();
  }
  void Add() {
    between = b.Call("relu", {b.Conv(out, b.Random({32, 1, 3, 3}), 1, 32)});
    out = b.Conv(between, b.Random({32, 32, 1, 1}));
  }
  Graph& Optimized(const Target& t = {}) {
    b.Output(out);
    EXPECT_TRUE(Optimize(b.g, t).ok());
    return b.g;
  }
};

int Convolutions(const Graph& g, const Group& group) {
  return static_cast<int>(
      std::count_if(group.nodes.begin(), group.nodes.end(), [&](int n) { return g.nodes[n].op == "conv2d"; }));
}
bool IsPair(const Workload& w) { return w.anchor > 0 && w.calls[w.anchor].op == "conv2d"; }

TEST(AlternativesTest, APairWithMuchBetweenMayBeOneKernel) {
  Separable s;
  const Graph& g = s.Optimized();
  ASSERT_EQ(g.alternatives.size(), 1u);
  const Alternative& a = g.alternatives[0];
  ASSERT_EQ(a.groups.size(), 1u);
  EXPECT_EQ(Convolutions(g, a.groups[0]), 2);
  EXPECT_EQ(g.nodes[a.groups[0].nodes[a.groups[0].anchor]].output, g.nodes[g.groups[a.replaces[1]].nodes[0]].output);
  for (const Group& group : g.groups) EXPECT_LE(Convolutions(g, group), 1) << "nothing is decided yet";
}

TEST(AlternativesTest, NotWhereTheTargetHasNoTemplateForThePair) {
  EXPECT_EQ(Separable().Optimized(*ParseTarget("interpreter")).alternatives.size(), 1u);
  EXPECT_TRUE(Separable().Optimized(*ParseTarget("opencl")).alternatives.empty());
}

TEST(AlternativesTest, NotWhereItCanNotOrNeedNotBe) {
  EXPECT_TRUE(Separable(32).Optimized().alternatives.empty()) << "a small value stays in the caches";
  Separable leaves;
  leaves.b.Output(leaves.between);
  EXPECT_TRUE(leaves.Optimized().alternatives.empty());
  Separable read_twice;
  read_twice.b.Output(read_twice.b.Call("reduce_mean", {read_twice.between}, Builder::Ints("axes", {2, 3})));
  EXPECT_TRUE(read_twice.Optimized().alternatives.empty());
  Separable strided;
  Attrs attrs = Builder::Ints("strides", {2, 2});
  strided.out = strided.b.Call("conv2d", {strided.between, strided.b.Random({8, 32, 1, 1})}, std::move(attrs));
  EXPECT_TRUE(strided.Optimized().alternatives.empty());
}

// An inverted residual: pointwise, depthwise of that stride, pointwise.
TEST(AlternativesTest, OfTwoThatShareAKernelTheOneWithMoreBetweenIsProposed) {
  for (int64_t stride : {1, 2}) {
    Builder b;
    ValueId v = b.Conv(b.Input({1, 8, 128, 128}), b.Random({32, 8, 1, 1}));
    Attrs attrs = Builder::Ints("strides", {stride, stride});
    attrs.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
    attrs.Set("group", int64_t{32});
    v = b.Call("conv2d", {v, b.Random({32, 1, 3, 3})}, std::move(attrs));
    b.Output(b.Conv(v, b.Random({8, 32, 1, 1})));
    ASSERT_TRUE(Optimize(b.g, Target{}).ok());
    ASSERT_EQ(b.g.alternatives.size(), 1u);
    const Workload w = Extract(b.g, b.g.alternatives[0].groups[0]).value().workload;
    const std::string_view own = TemplatesFor(w, Target{}).front()->name;
    EXPECT_EQ(own, stride == 2 ? "conv2d.expanded" : "conv2d.separable") << "of two with as much the later one";
  }
}

TEST(AlternativesTest, TheirTasksAreMarkedAndChangeTheModelsHash) {
  Separable s(64, 2);
  Graph& g = s.Optimized();
  ASSERT_EQ(g.alternatives.size(), 2u);
  const std::vector<Task> tasks = *ExtractTasks(g);
  int alternatives = 0;
  for (const Task& task : tasks) {
    EXPECT_EQ(task.alternative, IsPair(task.workload));
    if (!task.alternative) continue;
    ++alternatives;
    EXPECT_EQ(task.count, 2);
  }
  EXPECT_EQ(alternatives, 1) << "equal pairs are one task";
  g.alternatives.clear();
  EXPECT_NE(ModelHash(tasks), ModelHash(*ExtractTasks(g)));
}

TEST(AlternativesTest, TravelInJson) {
  Separable s(64, 2);
  const Graph& g = s.Optimized();
  const absl::StatusOr<Graph> back = GraphFromJson(ToJson(g));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(Text(*back), Text(g));
  ASSERT_EQ(back->alternatives.size(), 2u);
  Graph wrong = g;
  wrong.alternatives[1].replaces = wrong.alternatives[0].replaces;
  EXPECT_FALSE(GraphFromJson(ToJson(wrong)).ok());
  wrong = g;
  wrong.alternatives[0].groups[0].nodes.pop_back();
  EXPECT_FALSE(Verify(wrong).ok());
}

// Seconds of the pair and of each other kernel.
SecondsFn Times(std::optional<double> pair, std::optional<double> other) {
  return [pair, other](const Workload& w) -> absl::StatusOr<std::optional<double>> { return IsPair(w) ? pair : other; };
}

TEST(AlternativesTest, TheSmallerSumIsChosenWhereBothAreKnown) {
  struct Case {
    std::optional<double> pair, other;
    int taken;
  };
  for (const Case& c : {Case{1.9, 1, 2}, Case{2, 1, 0}, Case{2.1, 1, 0}, Case{std::nullopt, 1, 0}, Case{1, {}, 0}}) {
    Separable s(64, 2);
    Graph g = s.Optimized();
    const size_t groups = g.groups.size();
    EXPECT_EQ(*ChooseAlternatives(g, Times(c.pair, c.other)), c.taken);
    EXPECT_TRUE(g.alternatives.empty());
    EXPECT_EQ(g.groups.size(), groups - static_cast<size_t>(c.taken));
    EXPECT_TRUE(Verify(g).ok());
  }
}

// Attention over so many words, and a pair of convolutions on either side of it.
Graph Attentions(const Target& t, int64_t words, int count) {
  Separable s;
  Builder& b = s.b;
  for (int i = 0; i < count; ++i) {
    const ValueId q = b.Input({2, words, 8});
    const ValueId scores = b.Call("matmul", {q, b.Input({2, words, 8})}, Builder::Int("trans_b", 1));
    b.Output(b.Call("matmul", {b.Call("softmax", {scores}, Builder::Int("axis", 2)), b.Input({2, words, 8})}));
  }
  s.Add();
  return s.Optimized(t);
}

// Where their scores would go to memory, the kernels of attention are one to begin with, and apart where that was
// measured to be faster.
TEST(AlternativesTest, LongAttentionIsOneKernelUnlessMeasuredSlower) {
  Target t = ParseTarget("llvm:haswell").value();
  const auto softmaxes = [](const Graph& g) {
    return std::ranges::count_if(g.groups, [&](const Group& group) {
      return group.nodes.size() == 1 && g.nodes[static_cast<size_t>(group.nodes[0])].op == "softmax";
    });
  };
  t.cpu()->l2_bytes = 1 << 30;
  const Graph in_cache = Attentions(t, 300, 2);
  EXPECT_EQ(softmaxes(in_cache), 2);
  EXPECT_EQ(in_cache.alternatives.size(), 4u);
  t.cpu()->l2_bytes = 1 << 14;
  for (const bool slower : {false, true}) {
    Graph g = Attentions(t, 300, 2);
    EXPECT_EQ(softmaxes(g), 0);
    ASSERT_EQ(g.alternatives.size(), 4u);
    ASSERT_TRUE(Verify(g).ok()) << Verify(g);
    EXPECT_EQ(g.groups.size(), in_cache.groups.size() - 4);
    const auto seconds = [&](const Workload& w) -> absl::StatusOr<std::optional<double>> {
      return TemplatesFor(w, t).front()->name == "attention.rows" ? (slower ? 4 : 2) : IsPair(w) ? 3 : 1;
    };
    EXPECT_EQ(*ChooseAlternatives(g, seconds), slower ? 2 : 0);
    EXPECT_EQ(softmaxes(g), slower ? 2 : 0);
    EXPECT_TRUE(Verify(g).ok()) << Verify(g);
  }
}

// Groups that one alternative replaces may stand between those of another.
TEST(AlternativesTest, PlacesAreKept) {
  std::vector<Group> groups;
  for (int i = 0; i < 6; ++i) groups.push_back({{i}, 0});
  const std::vector<Alternative> alternatives = {{{1, 4}, {{{1, 4}, 1}}}, {{2, 3}, {{{2}, 0}, {{3}, 0}}}};
  std::vector<std::vector<int>> nodes;
  for (const Group& g : WithAlternatives(groups, alternatives)) nodes.push_back(g.nodes);
  EXPECT_EQ(nodes, (std::vector<std::vector<int>>{{0}, {2}, {3}, {1, 4}, {5}}));
}

}  // namespace
}  // namespace temper
