// Whatever passes run, the answers stay: random graphs, every pass on, each one off, and none at all.
#include "compiler/graph/extract.h"
#include "compiler/graph/fill_constants.h"
#include "compiler/graph/graph_json.h"
#include "compiler/graph/memory_plan.h"
#include "compiler/graph/pipeline.h"
#include "tests/graph/builder.h"
#include "tests/graph/random_graph.h"
#include "tests/graph/run_by_plan.h"

namespace temper {
namespace {

using testing::Evaluated;
using testing::ExpectClose;
using testing::RandomGraph;
using testing::RandomInputs;

constexpr uint64_t kGraphs = 400;
int NodesOf(uint64_t seed) { return 2 + static_cast<int>(seed % 17); }

void CheckWith(const std::set<std::string>& disabled, uint64_t graphs, const Target& t = {}) {
  for (uint64_t seed = 1; seed <= graphs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph before = RandomGraph(seed, NodesOf(seed));
    ASSERT_TRUE(Verify(before).ok()) << Verify(before);
    const std::vector<NDArray> inputs = RandomInputs(before, seed);
    const std::vector<NDArray> want = Evaluated(before, inputs);
    Graph after = before;
    const absl::Status status = Optimize(after, t, {disabled, nullptr});
    ASSERT_TRUE(status.ok()) << status << "\n" << Text(before);
    ASSERT_EQ(after.outputs.size(), before.outputs.size());
    for (size_t i = 0; i < after.outputs.size(); ++i) {
      ASSERT_EQ(after.values[after.outputs[i]].name, before.values[before.outputs[i]].name);
    }
    ExpectClose(Evaluated(after, inputs), want);
    absl::StatusOr<std::vector<NDArray>> by_plan = testing::RunByPlan(after, inputs);
    ASSERT_TRUE(by_plan.ok()) << by_plan.status() << "\n" << Text(after);
    ExpectClose(*by_plan, want);
    if (::testing::Test::HasFatalFailure()) FAIL() << "before\n" << Text(before) << "after\n" << Text(after);
  }
}

TEST(GraphFuzz, AllPassesKeepTheAnswers) { CheckWith({}, kGraphs); }

TEST(GraphFuzz, AllPassesKeepTheAnswersOfAGpusGraph) { CheckWith({}, kGraphs / 4, *ParseTarget("opencl")); }

TEST(GraphFuzz, NoPassKeepsTheAnswers) {
  std::set<std::string> all;
  for (const PassDef& pass : AllPasses()) all.emplace(pass.name);
  CheckWith(all, kGraphs / 4);
}

std::vector<std::string> PassNames() {
  std::vector<std::string> names;
  for (const PassDef& pass : AllPasses()) names.emplace_back(pass.name);
  return names;
}

class OnePassOff : public ::testing::TestWithParam<std::string> {};
TEST_P(OnePassOff, KeepsTheAnswers) { CheckWith({GetParam()}, kGraphs / 4); }
INSTANTIATE_TEST_SUITE_P(Passes, OnePassOff, ::testing::ValuesIn(PassNames()));

// Each pass alone, since a pass may hide what another gets wrong.
class OnePassOn : public ::testing::TestWithParam<std::string> {};
TEST_P(OnePassOn, KeepsTheAnswers) {
  std::set<std::string> others;
  for (const PassDef& pass : AllPasses()) {
    if (pass.name != GetParam()) others.emplace(pass.name);
  }
  CheckWith(others, kGraphs / 4);
}
INSTANTIATE_TEST_SUITE_P(Passes, OnePassOn, ::testing::ValuesIn(PassNames()));

// Slices of slices of one value, as recurrent models have them: in one piece or not, renamed, written in place, parts
// of a concatenation, and outputs themselves.
TEST(GraphFuzz, SlicesInOnePieceLieInTheirOperand) {
  using testing::Builder;
  int pieces = 0;
  for (uint64_t seed = 1; seed <= kGraphs / 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Builder b(seed);
    const auto below = [&](int64_t n) { return b.rng.Below(n); };
    const auto slice = [&](ValueId v) {
      const Shape& shape = b.g.values[v].type.shape;
      const int64_t axis = below(4) == 0 ? 1 : 0, extent = shape[static_cast<size_t>(axis)];
      const int64_t unit = axis == 1 && extent >= 32 ? 16 : 1, start = below(extent / unit) * unit;
      const int64_t end = start + (1 + below((extent - start) / unit)) * unit;
      Attrs attrs = Builder::Ints("axes", {axis});
      attrs.Set("starts", std::vector<int64_t>{start});
      attrs.Set("ends", std::vector<int64_t>{end});
      attrs.Set("steps", std::vector<int64_t>{1});
      return b.Call("slice", {v}, std::move(attrs));
    };
    const ValueId x = b.Input({6, 32});
    const ValueId whole = below(3) == 0 ? x : b.Call("softmax", {x});
    std::vector<ValueId> joined;
    for (int i = 0; i < 4; ++i) {
      ValueId v = slice(below(2) == 0 ? whole : slice(whole));
      const int64_t count = NumElements(b.g.values[v].type.shape);
      if (below(2) == 0) v = b.Reshape(v, {1, count});
      if (below(4) == 0) b.Output(v);
      if (below(2) == 0) v = b.Call("sigmoid", {v});
      if (below(2) == 0) v = b.Call("softmax", {v});
      joined.push_back(b.Reshape(v, {1, count}));
    }
    b.Output(b.Call("concat", joined, Builder::Int("axis", 1)));
    const std::vector<NDArray> inputs = RandomInputs(b.g, seed);
    const std::vector<NDArray> want = Evaluated(b.g, inputs);
    ASSERT_TRUE(Optimize(b.g, Target{}).ok());
    absl::StatusOr<BufferPlan> plan = PlanMemory(b.g);
    ASSERT_TRUE(plan.ok());
    pieces += static_cast<int>(std::count_if(plan->start.begin(), plan->start.end(), [](int64_t s) { return s > 0; }));
    absl::StatusOr<std::vector<NDArray>> by_plan = testing::RunByPlan(b.g, inputs);
    ASSERT_TRUE(by_plan.ok()) << by_plan.status() << "\n" << Text(b.g);
    ExpectClose(*by_plan, want);
  }
  EXPECT_GT(pieces, static_cast<int>(kGraphs / 4));
}

TEST(GraphFuzz, EveryWorkloadHasATextThatReadsBack) {
  for (uint64_t seed = 1; seed <= kGraphs / 4; ++seed) {
    Graph g = RandomGraph(seed, NodesOf(seed));
    ASSERT_TRUE(Optimize(g, Target{}).ok());
    absl::StatusOr<std::vector<Task>> tasks = ExtractTasks(g);
    ASSERT_TRUE(tasks.ok()) << tasks.status();
    for (const Task& task : *tasks) {
      const std::string text = Text(task.workload);
      absl::StatusOr<Workload> back = ParseWorkload(text);
      ASSERT_TRUE(back.ok()) << back.status() << "\n" << text;
      EXPECT_EQ(Text(*back), text);
    }
  }
}

TEST(GraphFuzz, JsonReadsBackAndSeededWeightsStayFinite) {
  for (uint64_t seed = 1; seed <= kGraphs / 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Graph g = RandomGraph(seed, NodesOf(seed));
    ASSERT_TRUE(Optimize(g, Target{}).ok());
    const std::string json = ToJson(g);
    absl::StatusOr<Graph> back = GraphFromJson(json);
    ASSERT_TRUE(back.ok()) << back.status() << "\n" << json;
    EXPECT_EQ(ToJson(*back), json);
    FillConstants(*back, 7);
    for (const NDArray& out : Evaluated(*back, RandomInputs(g, seed))) {
      for (int64_t i = 0; i < out.size(); ++i) ASSERT_TRUE(std::isfinite(out.At(i)));
    }
  }
}

}  // namespace
}  // namespace temper
