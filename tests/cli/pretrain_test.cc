// temper pretrain on a database that is there already: what it trains, writes, says and refuses.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/codegen.h"
#include "cost_model/shipped.h"
#include "cost_model/training_shapes.h"
#include "gmock/gmock.h"
#include "storage/store.h"
#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

using cli_test::Temper;
using testing::HasSubstr;
namespace fs = std::filesystem;

class PretrainTest : public testing::Test {
 protected:
  PretrainTest() {
    std::string pattern = (fs::temp_directory_path() / "temper-pretrain-XXXXXX").string();
    dir_ = mkdtemp(pattern.data());
  }
  ~PretrainTest() override { fs::remove_all(dir_); }
  std::string File(const std::string& name) const { return dir_ + "/" + name; }
  std::string Command(const std::string& more) const {
    return absl::StrCat("pretrain --time-budget 0 --db ", File("p.db"), " -o ", File("out"), " ", more);
  }

  // Measurements of the first `shapes` shapes that seed 1 draws, on a machine that the draft is wrong about: it likes
  // tall register tiles.
  void Measure(int shapes, int configs) {
    auto store = OpenStore(File("p.db"));
    ASSERT_TRUE(store.ok()) << store.status();
    const Target target = HostTarget();
    ShapeGenerator generator(1, BenchShapes());
    std::vector<Record> records;
    for (int i = 0; i < shapes; ++i) {
      const Workload w = generator.Next();
      const TemplateDef* def = TemplatesFor(w, target)[0];
      std::vector<Config> all = def->space(w, target).Enumerate(1 << 12);
      for (int k = 0; k < configs; ++k) {
        const Config& c = all[static_cast<size_t>(k) * all.size() / static_cast<size_t>(configs)];
        const Footprint f = def->footprint(w, c, target);
        const double cost_s = f.draft_s * (1 + 3 / f["tile_rows"]);
        Record r;
        r.workload = Text(w);
        r.anchor = AnchorText(w);
        r.target = Text(target);
        r.device_key = "local";
        r.threads = target.threads();
        r.template_name = std::string(def->name);
        r.template_version = def->version;
        r.config = Text(c);
        r.codegen_id = CodegenId(target);
        r.costs_s = {cost_s};
        records.push_back(std::move(r));
      }
    }
    ASSERT_TRUE((*store)->Append(records).ok());
  }

  std::string dir_;
};

TEST_F(PretrainTest, WritesBoostersThatABuildCanUse) {
  Measure(60, 24);
  const cli_test::Result run = Temper(Command("--shapes 60"));
  ASSERT_EQ(run.code, 0) << run.out;
  EXPECT_THAT(run.out, HasSubstr("by the draft alone"));
  int boosters = 0;
  for (const auto& entry : fs::directory_iterator(File("out"))) {
    std::ifstream in(entry.path());
    std::stringstream text;
    text << in.rdbuf();
    const std::string file = text.str();
    const std::pair<std::string_view, std::string_view> files[] = {{"file", file}};
    const std::vector<Booster> usable = UsableBoosters(files);
    ASSERT_EQ(usable.size(), 1u) << entry.path();
    EXPECT_EQ(entry.path().filename(), absl::StrCat(usable[0].template_name, "-", usable[0].isa, ".booster"));
    EXPECT_EQ(usable[0].isa, IsaFamily(HostTarget()));
    ++boosters;
  }
  EXPECT_GE(boosters, 2);
}

TEST_F(PretrainTest, TrainsOnDrawnShapesAlone) {
  Measure(60, 24);
  const cli_test::Result run = Temper(Command("--shapes 60 --seed 2"));
  EXPECT_EQ(run.code, 1) << "what another seed drew is not there: " << run.out;
  EXPECT_THAT(run.out, HasSubstr("too little was measured"));
}

TEST_F(PretrainTest, SaysWhatIsMissing) {
  EXPECT_THAT(Temper(Command("")).out, HasSubstr("too little was measured"));
  const cli_test::Result bad = Temper(absl::StrCat("pretrain --db ", File("p.db"), " -o x --time-budget soon"));
  EXPECT_EQ(bad.code, 1);
  EXPECT_THAT(bad.out, HasSubstr("--time-budget soon"));
  EXPECT_EQ(Temper("pretrain").code, 2);
}

}  // namespace
}  // namespace temper
