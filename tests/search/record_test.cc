// Recordings of spaces: every config once a pass, also where one was interrupted.
#include "bench/search/record.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include "bench/search/replay.h"
#include "gtest/gtest.h"

namespace temper {
namespace {

constexpr char kWorkload[] = "(f32[64,64]) relu(0) -> f32[64,64]; anchor=0";

class Record : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::path(testing::TempDir()) / (std::string(Name()) + ".jsonl");
    std::filesystem::remove(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  static const char* Name() { return testing::UnitTest::GetInstance()->current_test_info()->name(); }
  std::vector<std::string> Lines() const {
    std::ifstream in(path_);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  void Write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  absl::StatusOr<RecordedSpace> Parsed() const {
    std::ifstream in(path_);
    return ParseSpace(in);
  }

  std::filesystem::path path_;
};

TEST_F(Record, HoldsEveryConfigInEveryPass) {
  ASSERT_TRUE(RecordSpace(path_, kWorkload).ok());
  const auto space = Parsed();
  ASSERT_TRUE(space.ok()) << space.status();
  const TemplateDef* def = FindTemplate("default");
  const std::vector<Config> configs = def->space(space->workload, space->target).Enumerate(1 << 20);
  ASSERT_GT(configs.size(), 1u);
  EXPECT_EQ(space->costs.size(), configs.size());
  for (const Config& config : configs) {
    const auto found = space->costs.find({"default", Text(config)});
    ASSERT_NE(found, space->costs.end()) << Text(config);
    EXPECT_TRUE(std::isfinite(found->second.told_s) && found->second.scored_s > 0) << Text(config);
  }
}

TEST_F(Record, GoesOnWhereItWasKilled) {
  ASSERT_TRUE(RecordSpace(path_, kWorkload).ok());
  const std::vector<std::string> whole = Lines();
  for (const size_t kept : {size_t{1}, whole.size() / 2, whole.size() - 1}) {
    std::string text;
    for (size_t i = 0; i < kept; ++i) text += whole[i] + "\n";
    Write(text + whole[kept].substr(0, whole[kept].size() / 2));
    ASSERT_TRUE(RecordSpace(path_, "").ok());
    const std::vector<std::string> again = Lines();
    EXPECT_EQ(again.size(), whole.size()) << "none twice, none lost, " << kept << " kept";
    for (size_t i = 0; i < kept; ++i) EXPECT_EQ(again[i], whole[i]) << "measured again";
    EXPECT_TRUE(Parsed().ok()) << Parsed().status();
  }
}

TEST_F(Record, RefusesWhatItCanNotGoOnWith) {
  EXPECT_TRUE(absl::IsInvalidArgument(RecordSpace(path_, ""))) << "no file, no workload";
  Write("nonsense\n");
  EXPECT_TRUE(absl::IsInvalidArgument(RecordSpace(path_, "")));
  Write(std::string(R"({"workload":")") + kWorkload + R"(","target":"llvm:another"})" + "\n");
  EXPECT_TRUE(absl::IsFailedPrecondition(RecordSpace(path_, ""))) << "of another machine";
}

}  // namespace
}  // namespace temper
