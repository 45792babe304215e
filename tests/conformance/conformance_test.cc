// What every backend of the table has to do. Another one joins by its line there; what it can not do has its reason in
// kSkips. That a crash costs the child only is the sandbox's promise, whatever the backend: SandboxTest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <thread>

#include "base/temporary_directory.h"
#include "compiler/graph/extract.h"
#include "compiler/graph/graph_json.h"
#include "compiler/graph/pipeline.h"
#include "compiler/ops/templates/winograd.h"
#include "measure_worker/backend.h"
#include "measure_worker/kernels/program.h"
#include "measure_worker/sandbox/session.h"
#include "tests/conformance/configs.h"
#include "tests/conformance/device_run.h"
#include "tests/conformance/shapes.h"
#include "tests/graph/builder.h"
#include "tests/worker/collector.h"

namespace temper::worker {
namespace {

using conformance::kShapes;
using conformance::Shape;
using ::testing::HasSubstr;
using ::testing::Not;

struct Skip {
  std::string_view backend, test, why;
};
constexpr Skip kSkips[] = {
    {"null", "KernelsAreRight", "it runs no kernel, so there is no output to look at"},
    {"null", "RefusesWhatItMust", "it builds nothing, so any config of any workload will do"},
    {"null", "AWrongKernelIsToldWrong", "it runs no kernel, so none is wrong"},
};

// The one backend whose device and driver a machine may lack: its tests are then skipped.
constexpr std::string_view kMayBeMissing = "cuda";

constexpr size_t kShapesOfATemplate = 3;
constexpr size_t kConfigs = 5;       // for each shape
constexpr size_t kTimedConfigs = 1;  // that goes the whole way: what they compute is looked at with the others
constexpr uint64_t kSeed = 20;
constexpr char kAdd[] = "(f32[37,19], f32[37,19]) add(0,1) -> f32[37,19]; anchor=0";
constexpr char kSub[] = "(f32[37,19], f32[37,19]) sub(0,1) -> f32[37,19]; anchor=0";
constexpr char kMatmul[] = "(f32[37,50], const f32[50,70]) matmul(0,1) -> f32[37,70]; anchor=0";

Workload Parse(std::string_view text) {
  absl::StatusOr<Workload> w = ParseWorkload(text);
  EXPECT_TRUE(w.ok()) << text << ": " << w.status();
  return w.ok() ? *std::move(w) : Workload{};
}

bool IsTime(double seconds) { return std::isfinite(seconds) && seconds > 0; }

class ConformanceTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    for (const Skip& skip : kSkips) {
      if (GetParam() == skip.backend && name.starts_with(std::string(skip.test) + "/")) GTEST_SKIP() << skip.why;
    }
    const absl::StatusOr<DeviceReport> report = def_.describe(spec_, "host");
    if (def_.name == kMayBeMissing && absl::IsUnavailable(report.status())) GTEST_SKIP() << report.status().message();
    ASSERT_TRUE(report.ok()) << report.status();
    report_ = *report;
    target_ = ParseTarget(report_.target).value();
  }

  Backend Make() const { return MakeBackend(spec_).value(); }

  // On a device that uses the target. It must outlive all that is made on it.
  std::unique_ptr<Device> Open() const {
    std::unique_ptr<Device> device = def_.open(spec_).value();
    EXPECT_TRUE(device->Use(target_).ok());
    return device;
  }

  BatchWork WorkOf(std::string_view workload) const {
    BatchWork work;
    work.workload = workload;
    work.target = report_.target;
    work.plan.repeats = 2;
    work.plan.min_sample_us = 1;
    work.plan.race_factor = 0;
    return work;
  }
  static void Add(BatchWork& work, std::string_view name, std::string config) {
    Candidate& candidate = work.candidates.emplace_back();
    candidate.template_name = name;
    candidate.config = std::move(config);
  }
  static std::map<int, TrialResult> Measure(KernelBench& kernels, const BatchWork& work) {
    Collector collector;
    Canary canary;
    CarryOut(kernels, {work, false}, canary, collector);
    return collector.Take();
  }

  std::vector<Config> DrawConfigs(const TemplateDef& def, const Workload& w, size_t count) const {
    constexpr int64_t kMostListed = 4096;
    std::vector<Config> all = def.space(w, target_).Enumerate(kMostListed, kSeed);
    EXPECT_FALSE(all.empty()) << def.name << " has no config for " << Text(w);
    Rng rng(kSeed);
    for (size_t i = 0; i < std::min(count, all.size()); ++i)
      std::swap(all[i], all[i + static_cast<size_t>(rng.Below(static_cast<int64_t>(all.size() - i)))]);
    all.resize(std::min(count, all.size()));
    return all;
  }

  // Calls `f` for each of the suite's shapes whose template admits the target, with about that many configs.
  void ForEachShape(size_t count,
                    const std::function<void(const TemplateDef&, const Workload&, const std::vector<Config>&)>& f) {
    for (const Shape& shape : kShapes) {
      if (!conformance::IsDrawn(std::string(shape.template_name))) continue;
      SCOPED_TRACE(absl::StrCat(std::string(shape.template_name), " ", std::string(shape.workload)));
      const TemplateDef* def = FindTemplate(shape.template_name);
      ASSERT_NE(def, nullptr);
      const Workload w = Parse(shape.workload);
      if (!def->matches(w, target_)) continue;
      const conformance::Draw draw(kShapesOfATemplate * count);
      f(*def, w, DrawConfigs(*def, w, (draw.configs + kShapesOfATemplate - 1) / kShapesOfATemplate));
      if (HasFatalFailure()) return;
    }
  }

  const BackendDef& def_ = *FindBackend(GetParam());
  const DeviceSpec spec_ = ParseDeviceSpec(GetParam()).value();
  DeviceReport report_;
  Target target_;
};

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const BackendDef& def : AllBackends()) names.emplace_back(def.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Backends, ConformanceTest, ::testing::ValuesIn(Names()),
                         [](const ::testing::TestParamInfo<std::string>& info) { return info.param; });

// The target of a backend's device, where nothing particular is wished.
Target TargetOf(const BackendDef& def) {
  const absl::StatusOr<DeviceReport> report = def.describe(ParseDeviceSpec(def.name).value(), "host");
  if (def.name == kMayBeMissing && absl::IsUnavailable(report.status())) return ParseTarget("cuda:sm_90").value();
  return ParseTarget(report.value().target).value();
}

TEST(ConformanceTable, EveryTemplateHasThreeShapesOrMoreThatItFits) {
  std::map<std::string_view, size_t> shapes;
  for (const Shape& shape : kShapes) {
    const TemplateDef* def = FindTemplate(shape.template_name);
    ASSERT_NE(def, nullptr) << shape.template_name;
    const Workload w = Parse(shape.workload);
    // Templates for GPUs, and for CPUs of their own, have their shapes before a backend does.
    const auto fits = [&](const char* target) { return def->matches(w, *ParseTarget(target)); };
    EXPECT_TRUE(fits("opencl") || fits("cuda:sm_80") || fits("llvm:sapphirerapids") ||
                std::ranges::any_of(AllBackends(), [&](const BackendDef& b) { return def->matches(w, TargetOf(b)); }))
        << shape.template_name << " fits " << shape.workload << " on no backend";
    ++shapes[shape.template_name];
  }
  for (const TemplateDef& def : AllTemplates()) EXPECT_GE(shapes[def.name], kShapesOfATemplate) << def.name;
  EXPECT_EQ(shapes.size(), AllTemplates().size());
}

TEST(ConformanceTable, EverySkipNamesABackendAndATest) {
  std::set<std::string> tests;
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) tests.insert(suite.GetTestInfo(t)->name());
  }
  for (const Skip& skip : kSkips) {
    EXPECT_TRUE(tests.contains(absl::StrCat(std::string(skip.test), "/", std::string(skip.backend))))
        << skip.backend << " " << skip.test;
    EXPECT_FALSE(skip.why.empty());
  }
}

TEST(ConformanceTable, ABackendOpensADeviceOrStandsInForOne) {
  for (const BackendDef& def : AllBackends()) EXPECT_NE(def.open == nullptr, def.simulate == nullptr) << def.name;
}

// --- in the worker ---

TEST_P(ConformanceTest, DescribesItselfTheSameEachTime) {
  EXPECT_FALSE(report_.fingerprint.empty());
  EXPECT_THAT(report_.fingerprint, Not(HasSubstr("\n")));
  EXPECT_EQ(Text(target_), report_.target) << "the canonical text";
  EXPECT_FALSE(report_.codegen_id.empty());
  EXPECT_GE(report_.threads, 1);
  EXPECT_GE(report_.slots, 1);
  const absl::StatusOr<DeviceReport> again = def_.describe(spec_, report_.target);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->fingerprint, report_.fingerprint);
  EXPECT_EQ(again->target, report_.target);
}

// Texts of targets that this machine's CPU does not run, if there are any.
std::vector<std::string> ForeignTargets() {
  std::vector<std::string> foreign;
  for (const char* name : {"llvm:sapphirerapids", "llvm:znver5", "llvm:znver4", "llvm:skylake-avx512"}) {
    if (!CheckRunsHere(*ParseTarget(name)).ok()) foreign.push_back(name);
  }
  return foreign;
}

TEST_P(ConformanceTest, SaysInOneLineWhichTargetsItDoesNotServe) {
  std::vector<std::string> refused = ForeignTargets();
  refused.push_back("gibberish");
  for (const BackendDef& other : AllBackends()) {
    if (other.simulated() || def_.simulated() || other.name == def_.name) continue;
    refused.push_back(Text(TargetOf(other)));
  }
  for (const std::string& target : refused) {
    const absl::Status status = def_.describe(spec_, target).status();
    EXPECT_FALSE(status.ok()) << target;
    EXPECT_FALSE(status.message().empty());
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("\n")));
  }
}

TEST_P(ConformanceTest, IsHeldByOneAtATime) {
  const TemporaryDirectory folder = TemporaryDirectory::Make().value();
  setenv("XDG_RUNTIME_DIR", folder.path().c_str(), 1);  // where no worker at work holds it
  DeviceSpec spec = spec_;
  spec.cores = {0};
  const std::unique_ptr<DeviceLock> one = def_.lock(spec), other = def_.lock(spec);
  ASSERT_TRUE(one->Acquire([] { return false; }));
  EXPECT_FALSE(other->Acquire([] { return true; }));
  one->Release();
  EXPECT_TRUE(other->Acquire([] { return true; }));
  EXPECT_FALSE(one->Acquire([] { return true; }));
}

// --- in the measuring child ---

TEST_P(ConformanceTest, EveryTemplateIsBuiltVerifiedAndTimed) {
  const Backend backend = Make();
  ForEachShape(kTimedConfigs, [&](const TemplateDef& def, const Workload& w, const std::vector<Config>& configs) {
    BatchWork work = WorkOf(Text(w));
    for (const Config& config : configs) Add(work, def.name, Text(config));
    const std::map<int, TrialResult> trials = Measure(*backend.kernels, work);
    ASSERT_EQ(trials.size(), configs.size());
    for (const auto& [i, trial] : trials) {
      EXPECT_EQ(Text(trial.outcome), "ok") << work.candidates[i].config << ": " << trial.error;
      EXPECT_EQ(trial.costs_s.size(), 2u);
      EXPECT_TRUE(std::ranges::all_of(trial.costs_s, IsTime)) << work.candidates[i].config;
    }
  });
}

// How wrong the config's kernel is, beside what it may be: at most 1.
double ErrorOf(Device& device, CodeCache& code, const TemplateDef& def, const Workload& w, const Config& config,
               const Target& target) {
  const std::vector<NDArray> inputs = conformance::DrawInputs(w, kSeed);
  const NDArray want = ToPhysical(RunReference(w, inputs).value(), w.output().perm);
  const Kernel kernel = BuildKernel(w, def.name, config, target).value();
  const absl::StatusOr<NDArray> got = conformance::RunOnDevice(device, code, w, kernel, inputs);
  EXPECT_TRUE(got.ok()) << got.status();
  if (!got.ok()) return HUGE_VAL;
  const double of_type = SizeOf(w.output().dtype) == 2 && IsFloat(w.output().dtype) ? 2e-2 : 1e-5;
  const double bound = def.name == "conv2d.winograd" ? kWinogradErrorBound : of_type;
  return RelativeError(*got, want) / std::max(bound, kernel.tolerance);
}

TEST_P(ConformanceTest, KernelsAreRight) {
  const std::unique_ptr<Device> device = Open();
  CodeCache code(*device);
  std::map<std::string, int> right;  // by template
  ForEachShape(kConfigs, [&](const TemplateDef& def, const Workload& w, const std::vector<Config>& configs) {
    for (const Config& config : configs) {
      const double error = ErrorOf(*device, code, def, w, config, target_);
      EXPECT_LE(error, 1) << Text(config);
      right[std::string(def.name)] += error <= 1 ? 1 : 0;
    }
  });
  for (const auto& [name, count] : right) RecordProperty(name, count);
}

// PoCL 3.1 made wrong code of a vector that was read from an array which a loop had filled element by element.
TEST_P(ConformanceTest, WhatACompilerOnceMistookIsRight) {
  unsetenv("POCL_EXTRA_BUILD_FLAGS");  // it did so where it optimised
  const Workload w = Parse("(f16[2,40,9,7]@0231) reduce_sum(0; axes=[2,3] keepdims=1) -> f16[2,40,1,1]@0231; anchor=0");
  const TemplateDef& def = *FindTemplate("gpu.pixels");
  if (!def.matches(w, target_)) GTEST_SKIP() << def.name << " is not for it";
  const std::unique_ptr<Device> device = Open();
  CodeCache code(*device);
  EXPECT_LE(ErrorOf(*device, code, def, w, ParseConfig("tx=2,ty=16,vec=2,parts=1").value(), target_), 1);
}

TEST_P(ConformanceTest, RefusesWhatItMust) {
  const Backend backend = Make();
  BatchWork work = WorkOf(kMatmul);
  Add(work, "no.such.template", "");
  for (const TemplateDef* def : TemplatesFor(Parse(kMatmul), target_)) {
    Add(work, def->name, "no_such_knob=1");
    Add(work, def->name, "not a config");
  }
  for (const auto& [i, trial] : Measure(*backend.kernels, work)) {
    EXPECT_EQ(Text(trial.outcome), "illegal_config") << work.candidates[i].config;
    EXPECT_FALSE(trial.error.empty());
    EXPECT_THAT(trial.error, Not(HasSubstr("\n")));
    EXPECT_TRUE(trial.costs_s.empty());
  }
  const std::string huge = "(f32[262144,262144], f32[262144,262144]) matmul(0,1) -> f32[262144,262144]; anchor=0";
  std::vector<std::pair<BatchWork, std::string_view>> refused = {
      {WorkOf(huge), "unfit"}, {WorkOf("gibberish"), "infrastructure"}, {WorkOf(kMatmul), "infrastructure"}};
  refused.back().first.target = "gibberish";
  for (const std::string& target : ForeignTargets()) {
    refused.emplace_back(WorkOf(kMatmul), "infrastructure").first.target = target;
  }
  for (auto& [batch, outcome] : refused) {
    Add(batch, "default", "");
    const TrialResult trial = Measure(*backend.kernels, batch).at(0);
    EXPECT_EQ(Text(trial.outcome), outcome) << batch.workload << " " << batch.target;
    EXPECT_FALSE(trial.error.empty());
    EXPECT_THAT(trial.error, Not(HasSubstr("\n")));
  }
  work = WorkOf(kMatmul);
  const Choice choice = DefaultChoice(Parse(kMatmul), target_).value();
  Add(work, choice.def->name, Text(choice.config));
  EXPECT_EQ(Text(Measure(*backend.kernels, work).at(0).outcome), "ok") << "it goes on after all that";
}

TEST_P(ConformanceTest, AWrongKernelIsToldWrong) {
  const std::unique_ptr<Device> device = Open();
  CodeCache code(*device);
  const CachePlan cache = MakeCachePlan("model", device->caches()).value();
  const std::shared_ptr<WorkloadState> state = MakeWorkloadState(*device, Parse(kAdd), kSeed).value();
  for (const char* built : {kAdd, kSub}) {
    const Workload w = Parse(built);
    const Choice choice = DefaultChoice(w, target_).value();
    const Kernel kernel = BuildKernel(w, choice.def->name, choice.config, target_).value();
    const absl::Status verified = NewProgram(code.Load(kernel).value(), state, cache)->Verify().status();
    if (built == kAdd) {
      EXPECT_TRUE(verified.ok()) << verified;
    } else {
      EXPECT_TRUE(absl::IsDataLoss(verified)) << verified;
    }
  }
}

TEST_P(ConformanceTest, ItsCanaryTakesATime) {
  const Backend backend = Make();
  ASSERT_TRUE(backend.kernels->Prepare(WorkOf(kMatmul)).ok());
  for (int i = 0; i < 3; ++i) {
    const absl::StatusOr<double> seconds = backend.kernels->TimeCanary();
    ASSERT_TRUE(seconds.ok()) << seconds.status();
    EXPECT_TRUE(IsTime(*seconds)) << *seconds;
  }
}

TEST_P(ConformanceTest, BuildsOnSeveralThreadsAtOnce) {
  constexpr size_t kThreads = 4;
  const Backend backend = Make();
  EXPECT_GE(backend.kernels->build_threads(), 1);
  const Workload w = Parse(kMatmul);
  ASSERT_TRUE(backend.kernels->Prepare(WorkOf(Text(w))).ok());
  const TemplateDef& def = *TemplatesFor(w, target_).front();
  const std::vector<Config> configs = DrawConfigs(def, w, 4 * kThreads);
  std::vector<absl::StatusOr<std::unique_ptr<Program>>> built(configs.size());
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; i < configs.size(); i += kThreads) {
        Candidate candidate;
        candidate.template_name = def.name;
        candidate.config = Text(configs[i]);
        built[i] = backend.kernels->Build(candidate);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (size_t i = 0; i < built.size(); ++i) {
    ASSERT_TRUE(built[i].ok()) << Text(configs[i]) << ": " << built[i].status();
    Program& program = **built[i];
    const absl::StatusOr<double> verified_s = program.Verify();
    EXPECT_TRUE(verified_s.ok()) << Text(configs[i]) << ": " << verified_s.status();
    EXPECT_TRUE(IsTime(program.Time(2)));
    EXPECT_TRUE(program.CheckAfterwards().ok());
  }
}

// --- whole models ---

// relu(x * w) * v, as a client sends it.
Graph SmallModel(const Target& target) {
  testing::Builder b;
  const ValueId hidden = b.Call("relu", {b.Call("matmul", {b.Input({13, 32}), b.Random({32, 48})})});
  b.Output(b.Call("matmul", {hidden, b.Random({48, 24})}));
  EXPECT_TRUE(Optimize(b.g, target).ok());
  return std::move(b.g);
}

ModelWork ModelWorkOf(const Graph& g, const std::string& target) {
  ModelWork work;
  work.graph_json = std::make_shared<const std::string>(ToJson(g));
  work.target = target;
  work.seed = kSeed;
  work.rounds = 3;
  return work;
}

TEST_P(ConformanceTest, MeasuresFinalsAndThenTheModel) {
  const Backend backend = Make();
  const Graph g = SmallModel(target_);
  FinalsWork finals{ModelWorkOf(g, report_.target), {}};
  const std::vector<Task> tasks = ExtractTasks(g).value();
  for (const Task& task : tasks) {
    const Choice choice = DefaultChoice(task.workload, target_).value();
    FinalsTask& of_task = finals.tasks.emplace_back(FinalsTask{Text(task.workload), {}});
    std::vector<Config> configs = DrawConfigs(*choice.def, task.workload, 2);
    configs.insert(configs.begin(), choice.config);
    for (const Config& config : configs) {
      Candidate& candidate = of_task.candidates.emplace_back();
      candidate.template_name = choice.def->name;
      candidate.config = Text(config);
    }
    ModelWork& model = finals.model;
    model.picks.push_back({Text(task.workload), std::string(choice.def->name), Text(configs.back()), 1e-3});
  }
  const auto begin = [](Phase) {};
  const std::vector<TrialResult> results = backend.models->MeasureFinals(finals, begin);
  ASSERT_EQ(results.size(), finals.Candidates().size());
  for (const TrialResult& result : results) {
    EXPECT_EQ(Text(result.outcome), "ok") << result.error;
    EXPECT_GE(result.costs_s.size(), 3u);
    EXPECT_TRUE(std::ranges::all_of(result.costs_s, IsTime));
  }
  const ModelResult model = backend.models->CheckModel(finals.model, begin);
  ASSERT_EQ(Text(model.outcome), "ok") << model.error;
  EXPECT_TRUE(std::ranges::all_of(model.untuned_s, IsTime));
  EXPECT_TRUE(std::ranges::all_of(model.tuned_s, IsTime));
  EXPECT_GE(model.tuned_s.size(), 3u);
  EXPECT_LE(model.relative_error, 1e-4);
}

}  // namespace
}  // namespace temper::worker
