// Boosters: what they learn, what their files keep, and what is refused.
#include "cost_model/booster.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/rng.h"
#include "compiler/ops/templates/cpu_template.h"
#include "cost_model/shipped.h"
#include "gtest/gtest.h"

namespace temper {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// A template of any "toy" whose draft says nothing of the knob "order", which is what decides.
void RegisterToy() {
  static const bool once = [] {
    OpDef op;
    op.name = "toy";
    op.pattern = OpPattern::kAnchor;
    op.min_inputs = op.max_inputs = 1;
    op.infer = [](const Attrs&, std::span<const TensorType> in) -> absl::StatusOr<TensorType> { return in[0]; };
    RegisterOp(std::move(op));
    CpuTemplate def;
    def.name = "toy.knobs";
    def.version = 7;
    def.matches = [](const Workload& w) { return w.calls[0].op == "toy"; };
    def.space = [](const Workload&, const CpuTarget&) {
      ConfigSpace space;
      space.Add("rows", {1, 2, 4, 6, 8});
      space.Add("order", {0, 1, 2});
      return space;
    };
    def.build = [](const Workload&, const Config&, const CpuTarget&) -> absl::StatusOr<Kernel> {
      return absl::UnimplementedError("a toy");
    };
    def.footprint = [](const Workload& w, const Config& c, const CpuTarget&) {
      CpuFootprint f;
      f.flops = f.padded_flops = 1e6 * static_cast<double>(w.inputs[0].type.shape[0]);
      f.tile_rows = static_cast<double>(c["rows"]);
      f.tile_columns = 16;
      f.vector_lanes = 8;
      f.reduction = 64;
      f.loads_per_fma = 1 / f.tile_rows;
      return f;
    };
    RegisterTemplate(ForCpu(std::move(def)));
    return true;
  }();
  (void)once;
}

Workload ToyProduct(int64_t size) {
  Workload w;
  w.inputs.push_back({{DType::kF32, {size}, {}}, false});
  w.calls.push_back({"toy", {}, {0}, {DType::kF32, {size}, {}}});
  return w;
}

Target Machine() { return Target{.device = CpuTarget{.features = {"avx2", "fma"}}}; }

// Seconds on a machine that likes order 1 with many rows, and order 2 with few; of some scale of its own for each size.
double Seconds(const Workload& w, const Config& c) {
  const TemplateDef& def = *FindTemplate("toy.knobs");
  const double draft_s = def.footprint(w, c, Machine()).draft_s;
  const bool liked = c["order"] == (c["rows"] >= 4 ? 1 : 2);
  return draft_s * (liked ? 1 : 2) * (1 + static_cast<double>(w.inputs[0].type.shape[0] % 7));
}

std::vector<Config> Configs(const Workload& w) { return FindTemplate("toy.knobs")->space(w, Machine()).Enumerate(100); }

std::vector<Booster> Trained(std::span<const Booster> base = {}) {
  RegisterToy();
  BoosterTrainer trainer(Machine(), base);
  int group = 0;
  for (int64_t size : {16, 40, 100, 250, 600}) {
    const Workload w = ToyProduct(size);
    for (const Config& c : Configs(w)) EXPECT_TRUE(trainer.Add(w, group, "toy.knobs", c, Seconds(w, c)).ok());
    ++group;
  }
  auto trained = trainer.Train({.least_weight = 1}, 10);
  EXPECT_TRUE(trained.ok()) << trained.status();
  return trained.ok() ? *std::move(trained) : std::vector<Booster>();
}

// The share of pairs of a task's configs that are ordered rightly.
double PairsRight(const Workload& w, std::span<const Booster> boosters) {
  double right = 0, all = 0;
  for (const Config& a : Configs(w)) {
    for (const Config& b : Configs(w)) {
      if (Seconds(w, a) * 1.05 >= Seconds(w, b)) continue;
      const TemplateDef& def = *FindTemplate("toy.knobs");
      ++all;
      right += CorrectedDraft(boosters, w, def, a, Machine()) < CorrectedDraft(boosters, w, def, b, Machine());
    }
  }
  return right / all;
}

TEST(Booster, KnowsShapesThatItWasNotTrainedOn) {
  const std::vector<Booster> boosters = Trained();
  ASSERT_EQ(boosters.size(), 1u);
  EXPECT_EQ(boosters[0].template_name, "toy.knobs");
  EXPECT_EQ(boosters[0].template_version, 7);
  EXPECT_EQ(boosters[0].isa, "avx2");
  EXPECT_EQ(boosters[0].tasks, 5);
  EXPECT_EQ(boosters[0].samples, 75);
  EXPECT_LT(PairsRight(ToyProduct(150), {}), 0.85);
  EXPECT_GT(PairsRight(ToyProduct(150), boosters), 0.9);
}

TEST(Booster, OfAnotherTemplateChangesNothing) {
  std::vector<Booster> boosters = Trained();
  boosters[0].template_name = "toy.other";
  EXPECT_EQ(PairsRight(ToyProduct(150), boosters), PairsRight(ToyProduct(150), {}));
}

TEST(Booster, TrainingGoesOnFromABase) {
  const std::vector<Booster> base = Trained();
  BoosterTrainer trainer(Machine(), base);
  const Workload w = ToyProduct(90);
  // Only order 0 is new; by what the base says of the others they need no correction.
  for (const Config& c : Configs(w)) ASSERT_TRUE(trainer.Add(w, 0, "toy.knobs", c, Seconds(w, c)).ok());
  auto more = trainer.Train({.rounds = 20, .least_weight = 1}, 10);
  ASSERT_TRUE(more.ok());
  more->insert(more->end(), base.begin(), base.end());
  EXPECT_GT(PairsRight(ToyProduct(150), *more), 0.9) << "the two add up";
}

TEST(BoosterTrainer, TrainsOnlyWhereThereIsEnoughAndForgetsTheOldest) {
  RegisterToy();
  BoosterTrainer trainer(Machine(), {});
  const Workload w = ToyProduct(50);
  for (const Config& c : Configs(w)) ASSERT_TRUE(trainer.Add(w, 0, "toy.knobs", c, Seconds(w, c)).ok());
  EXPECT_EQ(trainer.samples("toy.knobs"), 15u);
  EXPECT_EQ(trainer.samples("unheard of"), 0u);
  EXPECT_EQ(trainer.Train({}, 15)->size(), 1u);
  EXPECT_TRUE(trainer.Train({}, 16)->empty());
  trainer.Forget(10);
  EXPECT_EQ(trainer.samples("toy.knobs"), 10u);
}

TEST(BoosterTrainer, RefusesWhatIsNoSample) {
  RegisterToy();
  BoosterTrainer trainer(Machine(), {});
  const Workload w = ToyProduct(50);
  const Config c = Configs(w)[0];
  EXPECT_TRUE(absl::IsNotFound(trainer.Add(w, 0, "unheard of", c, 1)));
  EXPECT_TRUE(absl::IsInvalidArgument(trainer.Add(w, 0, "toy.knobs", c, 0)));
  EXPECT_TRUE(absl::IsInvalidArgument(trainer.Add(w, 0, "toy.knobs", c, std::nan(""))));
  EXPECT_FALSE(trainer.Add(w, 0, "toy.knobs", *ParseConfig("unheard=1"), 1).ok()) << "no config of the space";
  EXPECT_EQ(trainer.samples("toy.knobs"), 0u);
  EXPECT_TRUE(trainer.Add(w, 0, "toy.knobs", c, kNever).ok());
}

TEST(BoosterFile, GivesBackWhatWasWritten) {
  const Booster b = Trained().at(0);
  const auto read = ParseBooster(Text(b));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(Text(*read), Text(b));
  EXPECT_EQ(read->knobs, b.knobs);
  EXPECT_EQ(read->template_version, b.template_version);
  const TemplateDef& def = *FindTemplate("toy.knobs");
  for (const Config& c : Configs(ToyProduct(33))) {
    const double written = CorrectedDraft({&b, 1}, ToyProduct(33), def, c, Machine());
    EXPECT_NEAR(CorrectedDraft({&*read, 1}, ToyProduct(33), def, c, Machine()) / written, 1, 1e-4);
  }
}

// With a digest that fits, as who edits a file by hand would leave it.
std::string Sealed(std::string text) {
  text = text.substr(0, text.rfind("digest "));
  return absl::StrCat(text, "digest ", HashText(StableHash(text)), "\n");
}

TEST(BoosterFile, RefusesOneOfOtherFeatures) {
  std::string text = Text(Trained().at(0));
  const size_t at = text.find("features ") + 9;
  text[at] = text[at] == '9' ? '8' : '9';
  EXPECT_TRUE(absl::IsFailedPrecondition(ParseBooster(Sealed(text)).status()));
}

TEST(BoosterFile, RefusesADamagedOne) {
  const std::string sound = Text(Trained().at(0));
  ASSERT_TRUE(ParseBooster(Sealed(sound)).ok());
  for (size_t cut = 0; cut < sound.size(); cut += 37) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseBooster(sound.substr(0, cut)).status())) << cut;
    // Without its end, but sealed: the lines that are left may be whole trees, but a tree cut in two is none.
    (void)ParseBooster(Sealed(sound.substr(0, cut) + "digest "));
    std::string flipped = sound;
    flipped[cut] ^= 1;
    EXPECT_FALSE(ParseBooster(flipped).ok()) << cut;
  }
  const size_t trees = sound.find("samples ");
  const std::string header = sound.substr(0, sound.find('\n', trees) + 1);
  EXPECT_TRUE(ParseBooster(Sealed(header + "=0.5\ndigest ")).ok());
  for (const char* tree : {"", "0<1", "0<1 =1", "0<1 =1 =2 =3", "9999<1 =1 =2", "-1<1 =1 =2", "0<x =1 =2",
                           "0<nan =1 =2", "=1 =2", "0!1 =1 =2", "x=1", "0< =1 =2"}) {
    const auto read = ParseBooster(Sealed(absl::StrCat(header, tree, "\ndigest ")));
    if (*tree == '\0')
      EXPECT_TRUE(read.ok()) << "no trees at all say nothing, and are no damage";
    else
      EXPECT_TRUE(absl::IsInvalidArgument(read.status())) << tree;
  }
}

TEST(ShippedBoosters, OfOtherVersionsArePassedOver) {
  Booster b = Trained().at(0);
  const std::string sound = Text(b);
  b.template_version = 6;
  const std::string old = Text(b);
  b.template_name = "toy.gone";
  const std::string gone = Text(b);
  const std::pair<std::string_view, std::string_view> files[] = {
      {"old", old}, {"gone", gone}, {"damaged", "temper-booster"}, {"sound", sound}};
  const std::vector<Booster> usable = UsableBoosters(files);
  ASSERT_EQ(usable.size(), 1u);
  EXPECT_EQ(usable[0].template_version, 7);
}

TEST(ShippedBoosters, AreSound) {
  for (const Booster& b : ShippedBoosters()) EXPECT_FALSE(b.forest.empty()) << b.template_name;
}

TEST(IsaFamily, IsTheWidestThatCodeIsMadeFor) {
  const auto family = [](std::vector<std::string> features) {
    return IsaFamily(Target{.device = CpuTarget{.features = std::move(features)}});
  };
  EXPECT_EQ(family({"avx", "avx2", "avx512f", "sse4.2"}), "avx512");
  EXPECT_EQ(family({"avx", "avx2", "sse4.2"}), "avx2");
  EXPECT_EQ(family({"sse4.2"}), "sse42");
  EXPECT_EQ(family({}), "llvm");
  EXPECT_EQ(IsaFamily(*ParseTarget("interpreter")), "interpreter");
  EXPECT_EQ(IsaFamily(*ParseTarget("cuda:sm_90")), "sm_90");
  EXPECT_EQ(IsaFamily(*ParseTarget("opencl")), "opencl");
}

}  // namespace
}  // namespace temper
