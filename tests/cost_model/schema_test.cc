// A kind of footprint of its own: it goes through features, boosters, search and explain's differences, and nobody asks
// it for what a CPU's footprint says.
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/report/footprint_differences.h"
#include "compiler/ops/templates/cpu_footprint.h"
#include "cost_model/booster.h"
#include "tuner_server/search/task_space.h"

namespace temper {
namespace {

const FootprintSchema kSchema{"toy-gpu", 4, {"groups", "shared_used"}};

const Target& Gpu() {
  static const Target t = *ParseTarget("opencl -wg=64");
  return t;
}

const Workload& Matmul() {
  static const Workload w = *ParseWorkload("(f32[4,8], const f32[8,16]) matmul(0,1) -> f32[4,16]; anchor=0");
  return w;
}

// No built-in template but the fallback fits it.
const Workload& Sigmoid() {
  static const Workload w = *ParseWorkload("(f32[4,16]) sigmoid(0) -> f32[4,16]; anchor=0");
  return w;
}

// Fits sigmoids on GPUs alone.
const TemplateDef& Toy() {
  static const TemplateDef* const def = [] {
    TemplateDef toy{.name = "toy.groups", .version = 2, .schema = &kSchema};
    toy.matches = [](const Workload& w, const Target& t) { return t.gpu() != nullptr && w.calls[0].op == "sigmoid"; };
    toy.space = [](const Workload&, const Target& t) {
      ConfigSpace space;
      space.Add("threads", {8, 16, 32, 64, 128});
      space.Require("a group has too many threads",
                    [most = t.gpu()->group_threads](const Config& c) { return c["threads"] <= most; });
      return space;
    };
    toy.build = [](const Workload&, const Config&, const Target&) -> absl::StatusOr<Kernel> {
      return absl::UnimplementedError("a toy");
    };
    toy.footprint = [](const Workload&, const Config& c, const Target& t) {
      const double threads = static_cast<double>(c["threads"]);
      return Footprint{&kSchema, {1024 / threads, threads / t.gpu()->group_threads}, 1e-6 * (1 + 32 / threads)};
    };
    RegisterTemplate(std::move(toy));
    return FindTemplate("toy.groups");
  }();
  return *def;
}

Footprint Of(int64_t threads) { return Toy().footprint(Sigmoid(), Config({{"threads", threads}}), Gpu()); }

TEST(Schema, TemplatesOfOneKindStandAlone) {
  const TemplateDef& toy = Toy();
  EXPECT_EQ(TemplatesFor(Sigmoid(), Gpu()), std::vector<const TemplateDef*>{&toy});
  const auto on_cpu = TemplatesFor(Sigmoid(), *ParseTarget("llvm:haswell"));
  EXPECT_EQ(std::ranges::count(on_cpu, &toy), 0);
  ASSERT_FALSE(on_cpu.empty());
  EXPECT_EQ(on_cpu[0]->schema, &CpuSchema());
  const absl::StatusOr<Choice> choice = DefaultChoice(Sigmoid(), Gpu());
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->config["threads"], 64) << "by its own draft, within the target's limits";
}

TEST(Schema, FeaturesAreItsNamesAndTheDraft) {
  EXPECT_EQ(FeatureNames(kSchema), (std::vector<std::string>{"groups", "shared_used", "log_draft_s"}));
  std::vector<float> few(FeatureCount(kSchema)), many(FeatureCount(kSchema));
  Features(Of(8), Of(8).draft_s, few);
  Features(Of(64), Of(64).draft_s, many);
  EXPECT_GT(few[0], many[0]);
  EXPECT_LT(few[1], many[1]);
  EXPECT_GT(few[2], many[2]);
}

TEST(Schema, ATasksRowsHaveItsWidth) {
  Toy();
  const auto task = TaskSpace::Make({Sigmoid(), Gpu(), 1});
  ASSERT_TRUE(task.ok()) << task.status();
  Rows rows = (*task)->NewRows();
  (*task)->AppendRow({0, 2}, rows);
  EXPECT_EQ(rows.width, 3u + 1 + 1) << "features, which template, its knob";
  EXPECT_EQ(rows.features.back(), 32);
  EXPECT_EQ(rows.draft_s[0], Of(32).draft_s);
}

TEST(Schema, ABoosterIsOfItsTemplatesSchema) {
  BoosterTrainer trainer(Gpu(), {});
  for (const Config& c : Toy().space(Sigmoid(), Gpu()).Enumerate(10)) {
    for (const double slower : {1.0, 1.1})
      ASSERT_TRUE(trainer.Add(Sigmoid(), 0, "toy.groups", c, Of(c["threads"]).draft_s * slower).ok());
  }
  const auto trained = trainer.Train({.least_weight = 1}, 1);
  ASSERT_TRUE(trained.ok()) << trained.status();
  ASSERT_EQ(trained->size(), 1u);
  const auto read = ParseBooster(Text(trained->at(0)));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->schema, &kSchema);
  EXPECT_EQ(read->isa, "opencl");
  Booster of_cpus = trained->at(0);
  of_cpus.schema = &CpuSchema();
  EXPECT_TRUE(absl::IsFailedPrecondition(ParseBooster(Text(of_cpus)).status()));
}

// Records from outside may name any template.
TEST(Schema, ATrainerTakesNoSampleOfAnotherKindsTemplate) {
  Toy();
  const Config of_a_cpu = *ParseConfig("mr=4,nv=1,blocks=1,ku=1,pack=1");
  EXPECT_TRUE(absl::IsInvalidArgument(BoosterTrainer(Gpu(), {}).Add(Matmul(), 0, "matmul.packed", of_a_cpu, 1e-3)));
  const Target cpu = *ParseTarget("llvm:haswell");
  EXPECT_TRUE(absl::IsInvalidArgument(BoosterTrainer(cpu, {}).Add(Sigmoid(), 0, "toy.groups", Config(), 1e-3)));
}

TEST(Schema, DifferencesAreToldUnderItsNames) {
  std::vector<std::string> told;
  for (const Difference& d : FootprintDifferences(Of(8), Of(64), Gpu()))
    told.push_back(d.what + " " + d.before + " " + d.after);
  EXPECT_EQ(told, (std::vector<std::string>{"groups 128 16", "shared_used 0.125 1"}));
  EXPECT_TRUE(FootprintDifferences(Of(8), Of(8), Gpu()).empty());
}

TEST(Schema, CpusDifferencesAreToldInWords) {
  const Target t = *ParseTarget("llvm:haswell");
  CpuFootprint small, large;
  small.l1_bytes = 16 << 10;
  large.l1_bytes = 64 << 10;
  const auto told = FootprintDifferences(UnderCpuSchema(small, *t.cpu()), UnderCpuSchema(large, *t.cpu()), t);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].what, "working set in L1");
  EXPECT_EQ(told[0].before, "16.0 KiB, 0.50x L1");
  EXPECT_EQ(told[0].after, "64.0 KiB, 2.00x L1");
}

}  // namespace
}  // namespace temper
