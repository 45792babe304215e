// A whole model in the backend: finalists as its kernels, and end to end, untuned against tuned.
#include "measure_worker/models/model_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <iterator>

#include "base/temporary_directory.h"
#include "compiler/graph/extract.h"
#include "compiler/graph/fill_constants.h"
#include "compiler/graph/graph_json.h"
#include "measure_worker/backends/cpu/cpu_device.h"
#include "measure_worker/compare.h"
#include "measure_worker/models/model_bench.h"
#include "measure_worker/models/model_finals.h"
#include "measure_worker/models/model_runner.h"
#include "compiler/graph/pipeline.h"
#include "compiler/ops/template.h"
#include "compiler/timing/timing.h"
#include "tests/graph/builder.h"

namespace temper::worker {
namespace {

using ::testing::HasSubstr;

// x[13,32] -> relu(x * w0 + b0) -> * w1, as the client sends it.
Graph SmallModel() {
  Graph g;
  g.name = "small";
  const auto add = [&](const char* name, Shape shape, bool constant) {
    Value v;
    v.name = name;
    v.type.shape = std::move(shape);
    v.is_constant = constant;
    if (constant) v.constant = NDArray(DType::kF32, v.type.shape);
    return g.AddValue(std::move(v));
  };
  const ValueId x = add("x", {13, 32}, false), w0 = add("w0", {32, 48}, true), b0 = add("b0", {48}, true);
  const ValueId w1 = add("w1", {48, 24}, true);
  g.inputs = {x};
  ValueId v = *g.AddNode("matmul", {}, {x, w0});
  v = *g.AddNode("add", {}, {v, b0});
  v = *g.AddNode("relu", {}, {v});
  g.outputs = {*g.AddNode("matmul", {}, {v, w1})};
  FillConstants(g, 1);
  EXPECT_TRUE(Optimize(g, Target{}).ok());
  return g;
}

ModelWork WorkOf(const Graph& g) {
  ModelWork work;
  work.graph_json = std::make_shared<const std::string>(ToJson(g));
  work.target = Text(HostTarget());
  work.seed = 42;
  work.rounds = 4;
  return work;
}

// As many steps as there are, each of which rounds what it hands on; of values that are widened, one for each output.
TEST(ModelRunner, ToleratesTheRoundingsOfNarrowFloatsAndNoMore) {
  const auto tolerance = [](DType dtype, int steps, std::set<std::string> disabled = {"widen"}) {
    testing::Builder b;
    ValueId v = b.Input({8, 8}, dtype);
    for (int i = 0; i < steps; ++i) v = b.Call("softmax", {v}, testing::Builder::Int("axis", i % 2));
    b.Output(v);
    EXPECT_TRUE(Optimize(b.g, HostTarget(), {.disabled = std::move(disabled)}).ok());
    CompileCache cache;
    return ModelRunner::Make(b.g, HostTarget(), ChooseDefault, 1, cache).value().tolerance();
  };
  EXPECT_EQ(tolerance(DType::kF32, 4), 0) << "that of the type";
  EXPECT_DOUBLE_EQ(tolerance(DType::kF16, 1), ErrorBound(DType::kF16));
  EXPECT_DOUBLE_EQ(tolerance(DType::kF16, 4), 2 * ErrorBound(DType::kF16));
  EXPECT_DOUBLE_EQ(tolerance(DType::kBF16, 4), 2 * ErrorBound(DType::kBF16));
  EXPECT_DOUBLE_EQ(tolerance(DType::kF16, 4, {}), ErrorBound(DType::kF16));
}

// For each task a config that is not the default one.
std::vector<KernelPick> OtherPicks(const Graph& g) {
  std::vector<KernelPick> picks;
  const auto tasks = ExtractTasks(g);
  EXPECT_TRUE(tasks.ok());
  for (const Task& task : *tasks) {
    const auto standard = DefaultChoice(task.workload, HostTarget());
    EXPECT_TRUE(standard.ok());
    for (const Config& c : standard->def->space(task.workload, HostTarget()).Enumerate(8, 3)) {
      if (c == standard->config) continue;
      picks.push_back({Text(task.workload), std::string(standard->def->name), Text(c)});
      break;
    }
  }
  EXPECT_FALSE(picks.empty());
  return picks;
}

// Where this process's temporary files lie, and nobody else's.
const TemporaryDirectory own_folder = [] {
  TemporaryDirectory made = *TemporaryDirectory::Make();
  setenv("TMPDIR", made.path().c_str(), 1);
  return made;
}();

int TemporaryModels() {
  const std::filesystem::directory_iterator files(own_folder.path());
  return static_cast<int>(std::distance(begin(files), end(files)));
}

TEST(ModelCheck, WithoutAFolderForTemporaryFilesNoKernelIsToBlame) {
  setenv("TMPDIR", (own_folder.path() + "/gone").c_str(), 1);
  const ModelResult result = CheckModel(WorkOf(SmallModel()), [](Phase) {});
  setenv("TMPDIR", own_folder.path().c_str(), 1);
  EXPECT_EQ(Text(result.outcome), "infrastructure") << result.error;
  EXPECT_THAT(result.error, HasSubstr("no folder for temporary files"));
}

TEST(ModelCheck, TimesTunedAgainstUntunedInTurns) {
  const Graph g = SmallModel();
  ModelWork work = WorkOf(g);
  work.picks = OtherPicks(g);
  std::vector<Phase> phases;
  const ModelResult result = CheckModel(work, [&](Phase phase) { phases.push_back(phase); });
  ASSERT_EQ(Text(result.outcome), "ok") << result.error;
  EXPECT_GE(result.untuned_s.size(), 4u);
  EXPECT_LE(result.untuned_s.size(), 12u) << "a close call is given three times the rounds";
  EXPECT_EQ(result.tuned_s.size(), result.untuned_s.size());
  EXPECT_NE(result.untuned_s, result.tuned_s) << "two packages, two times";
  EXPECT_LE(result.relative_error, 1e-4);
  EXPECT_THAT(phases, ::testing::ElementsAre(Phase::kModelBuild, Phase::kModelRun));
  EXPECT_EQ(TemporaryModels(), 0);
}

TEST(ModelCheck, WithoutPicksThatDifferOnePackageStandsForBoth) {
  const Graph g = SmallModel();
  ModelWork work = WorkOf(g);
  const ModelResult result = CheckModel(work, [](Phase) {});
  ASSERT_EQ(Text(result.outcome), "ok") << result.error;
  EXPECT_EQ(result.untuned_s, result.tuned_s);
}

// Defaults throughout: what is picked says only how long each kernel takes.
TEST(ModelCheck, TheAlternativeThatIsFasterIsBuilt) {
  temper::testing::Builder b;
  const ValueId between = b.Call("relu", {b.Conv(b.Input({1, 32, 64, 64}), b.Random({32, 1, 3, 3}), 1, 32)});
  b.Output(b.Conv(between, b.Random({16, 32, 1, 1})));
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  ASSERT_EQ(b.g.alternatives.size(), 1u);
  const std::vector<Task> tasks = *ExtractTasks(b.g);
  for (const double pair : {1e-3, 1.0}) {
    ModelWork work = WorkOf(b.g);
    for (const Task& task : tasks) {
      const auto standard = DefaultChoice(task.workload, HostTarget());
      ASSERT_TRUE(standard.ok());
      work.picks.push_back({Text(task.workload), std::string(standard->def->name), Text(standard->config),
                            task.alternative ? pair : 1e-2});
    }
    const ModelResult result = CheckModel(work, [](Phase) {});
    ASSERT_EQ(Text(result.outcome), "ok") << result.error;
    EXPECT_EQ(result.untuned_s == result.tuned_s, pair == 1.0);
    EXPECT_LE(result.relative_error, 1e-5);
  }
}

TEST(ModelCheck, StopsAtItsBudgetButNotBeforeThreeRounds) {
  ModelWork work = WorkOf(SmallModel());
  work.rounds = 1'000'000;
  work.budget_ms = 1;
  const ModelResult result = CheckModel(work, [](Phase) {});
  ASSERT_EQ(Text(result.outcome), "ok") << result.error;
  EXPECT_EQ(result.tuned_s.size(), 3u);
}

TEST(ModelCheck, SaysWhatIsWrong) {
  const Graph g = SmallModel();
  ModelWork work = WorkOf(g);
  work.graph_json = std::make_shared<const std::string>("{");
  EXPECT_EQ(Text(CheckModel(work, [](Phase) {}).outcome), "build_failed");
  work = WorkOf(g);
  work.picks = OtherPicks(g);
  work.picks[0].config = "nonsense=1";
  const ModelResult result = CheckModel(work, [](Phase) {});
  EXPECT_EQ(Text(result.outcome), "build_failed");
  EXPECT_THAT(result.error, HasSubstr("nonsense"));
}

// Of each task the default, and another config.
FinalsWork FinalsOf(const Graph& g) {
  FinalsWork work{WorkOf(g), {}};
  for (const KernelPick& other : OtherPicks(g)) {
    const auto standard = DefaultChoice(*ParseWorkload(other.workload), HostTarget());
    EXPECT_TRUE(standard.ok());
    work.tasks.push_back({other.workload,
                          {{.template_name = std::string(standard->def->name), .config = Text(standard->config)},
                           {.template_name = other.template_name, .config = other.config}}});
  }
  return work;
}

TEST(ModelFinals, EveryFinalistIsTimedInEveryRound) {
  const FinalsWork work = FinalsOf(SmallModel());
  std::vector<Phase> phases;
  const std::vector<TrialResult> results = MeasureFinals(work, [&](Phase phase) { phases.push_back(phase); });
  ASSERT_EQ(results.size(), work.Candidates().size());
  for (const TrialResult& result : results) {
    EXPECT_EQ(Text(result.outcome), "ok") << result.error;
    EXPECT_EQ(result.costs_s.size(), 4u);
    EXPECT_TRUE(std::ranges::all_of(result.costs_s, [](double s) { return s > 0; }));
  }
  EXPECT_NE(results[0].costs_s, results[1].costs_s) << "two packages, two times";
  EXPECT_THAT(phases, ::testing::ElementsAre(Phase::kModelBuild, Phase::kModelRun));
  EXPECT_EQ(TemporaryModels(), 0);
}

TEST(ModelFinals, WhatCanNotBeBuiltStopsNobodyElse) {
  FinalsWork work = FinalsOf(SmallModel());
  work.tasks[0].candidates[1].config = "nonsense=1";
  const std::vector<TrialResult> results = MeasureFinals(work, [](Phase) {});
  EXPECT_EQ(Text(results[0].outcome), "ok");
  EXPECT_EQ(Text(results[1].outcome), "illegal_config");
  EXPECT_THAT(results[1].error, HasSubstr("nonsense"));
  EXPECT_EQ(Text(results.back().outcome), "ok") << results.back().error;
}

TEST(ModelFinals, BothWaysToCutTheGraphAreTimed) {
  temper::testing::Builder b;
  const ValueId between = b.Call("relu", {b.Conv(b.Input({1, 32, 64, 64}), b.Random({32, 1, 3, 3}), 1, 32)});
  b.Output(b.Conv(between, b.Random({16, 32, 1, 1})));
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  const FinalsWork work = FinalsOf(b.g);
  ASSERT_EQ(work.tasks.size(), ExtractTasks(b.g)->size()) << "those of both ways";
  for (const TrialResult& result : MeasureFinals(work, [](Phase) {}))
    EXPECT_EQ(Text(result.outcome), "ok") << result.error;
}

TEST(ModelFinals, StopAtTheirBudgetButNotBeforeThreeRounds) {
  FinalsWork work = FinalsOf(SmallModel());
  work.model.rounds = 1'000'000;
  work.model.budget_ms = 1;
  EXPECT_EQ(MeasureFinals(work, [](Phase) {}).front().costs_s.size(), 3u);
}

TEST(ModelFinals, AModelThatCanNotBeReadIsNoFinalistsFault) {
  FinalsWork work = FinalsOf(SmallModel());
  work.model.graph_json = std::make_shared<const std::string>("{");
  for (const TrialResult& result : MeasureFinals(work, [](Phase) {})) {
    EXPECT_EQ(Text(result.outcome), "infrastructure");
    EXPECT_FALSE(result.error.empty());
  }
}

TEST(ModelFinals, WhatTheyKeepSparesTheCheckNothingButTime) {
  const FinalsWork work = FinalsOf(SmallModel());
  std::optional<KeptModel> kept;
  MeasureFinals(
      work, [](Phase) {}, &kept);
  ASSERT_TRUE(kept.has_value());
  EXPECT_TRUE(kept->IsOf(work.model));
  ModelWork check = work.model;
  check.picks = OtherPicks(SmallModel());
  const ModelResult result = CheckModel(
      check, [](Phase) {}, std::move(kept));
  ASSERT_EQ(Text(result.outcome), "ok") << result.error;
  EXPECT_NE(result.untuned_s, result.tuned_s);
  EXPECT_LE(result.relative_error, 1e-4);
  // Of another seed: not this model's.
  MeasureFinals(
      work, [](Phase) {}, &kept);
  check.seed += 1;
  EXPECT_FALSE(kept->IsOf(check));
  const ModelResult other = CheckModel(
      check, [](Phase) {}, std::move(kept));
  EXPECT_EQ(Text(other.outcome), "ok");
}

TEST(ModelBench, ATargetThatTheDeviceDoesNotServeIsToldBeforeAnythingIsBuilt) {
  DeviceKernels kernels(std::make_unique<CpuDevice>());
  const std::unique_ptr<ModelBench> models = NewModelBench(kernels);
  FinalsWork work = FinalsOf(SmallModel());
  work.model.target = "gibberish";
  std::vector<Phase> phases;
  const auto begin = [&](Phase phase) { phases.push_back(phase); };
  const std::vector<TrialResult> finals = models->MeasureFinals(work, begin);
  ASSERT_EQ(finals.size(), work.Candidates().size());
  for (const TrialResult& result : finals) {
    EXPECT_EQ(Text(result.outcome), "infrastructure");
    EXPECT_THAT(result.error, HasSubstr("unknown target 'gibberish'"));
  }
  const ModelResult model = models->CheckModel(work.model, begin);
  EXPECT_EQ(Text(model.outcome), "build_failed");
  EXPECT_THAT(model.error, HasSubstr("unknown target 'gibberish'"));
  EXPECT_THAT(phases, ::testing::ElementsAre(Phase::kModelBuild, Phase::kModelBuild));
}

TEST(UsualPace, WhatWasMeasuredWhileTheDeviceWasSlowIsMeasuredAgain) {
  std::deque<bool> looks{false, true, false,
                         true,  true, true};  // waits; is slow afterwards; is as usual before and after
  UsualPace pace([&] {
    const bool usual = looks.front();
    looks.pop_front();
    return usual;
  });
  int measured = 0;
  EXPECT_TRUE(pace.Run([&] { return ++measured, absl::OkStatus(); }).ok());
  EXPECT_EQ(measured, 2);
  ASSERT_EQ(looks.size(), 2u) << "a second time counts, whatever comes after it";
  EXPECT_EQ(pace.Run([] { return absl::InternalError("no"); }).message(), "no");
}

TEST(UsualPace, WhatTakesNoTimeIsNotWaitedForLong) {
  int looks = 0, measured = 0;
  UsualPace pace([&] { return ++looks, false; });
  EXPECT_TRUE(pace.Run([&] { return ++measured, absl::OkStatus(); }).ok());
  EXPECT_EQ(measured, 1);
  EXPECT_LT(looks, 100) << "a look takes 20 ms";
}

TEST(UsualPace, OnADeviceThatStaysSlowARoundIsMeasuredTwiceAtMost) {
  UsualPace pace([] { return false; });
  int measured = 0;
  for (int round = 1; round <= 3; ++round) {
    const absl::Status held = pace.Run([&] {
      ++measured;
      for (const int64_t start = MonotonicNs(); MonotonicNs() - start < 50'000'000;) {
      }
      return absl::OkStatus();
    });
    EXPECT_TRUE(held.ok());
    EXPECT_LE(measured, 2 * round);
  }
}

int DistinctConstants(const Graph& g) {
  return static_cast<int>(std::ranges::count_if(g.values, [](const Value& v) { return v.is_constant; }));
}

// Six layers of 1 MiB of weights each.
Graph DeepModel() {
  temper::testing::Builder b;
  ValueId v = b.Input({8, 512});
  for (int i = 0; i < 6; ++i) v = b.Call("matmul", {v, b.Random({512, 512})});
  b.Output(v);
  EXPECT_TRUE(Optimize(b.g, Target{}).ok());
  return *GraphFromJson(ToJson(b.g));
}

TEST(SharedConstants, LaterLayersHaveEarlierOnesWeights) {
  for (const int64_t most : {int64_t{3} << 20, int64_t{100} << 20}) {
    Graph g = DeepModel();
    const std::string hash = ModelHash(*ExtractTasks(g));
    ASSERT_TRUE(ShareConstants(g, most).ok());
    ASSERT_TRUE(Verify(g).ok());
    EXPECT_EQ(DistinctConstants(g), most == 3 << 20 ? 3 : 6);
    EXPECT_EQ(ModelHash(*ExtractTasks(g)), hash) << "the same kernels, as often";
  }
}

}  // namespace
}  // namespace temper::worker
