// Records as lines of JSON: what is written can be read, and what can not be read says why.
#include <limits>

#include "nlohmann/json.hpp"
#include "storage/check.h"
#include "tests/storage/testing.h"

namespace temper {
namespace {

std::string ErrorOf(const std::string& line) { return std::string(RecordFromJsonLine(line).status().message()); }

TEST(RecordJson, ReadsBackWhatItWrote) {
  Record r = GoodRecord();
  r.id = 42;
  r.costs_s = {0.1, 1.0 / 3, 5e-324};
  r.error = "tab\tquote\"\nnewline";
  const auto read = RecordFromJsonLine(ToJsonLine(r));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToJsonLine(*read), ToJsonLine(r));
  EXPECT_EQ(read->costs_s, r.costs_s);
  EXPECT_EQ(read->time_unix_ms, r.time_unix_ms);
  EXPECT_EQ(ToJsonLine(r).find('\n'), std::string::npos) << "one line";
}

TEST(RecordJson, KeepsTheNamesThatScriptsRelyOn) {
  const auto json = nlohmann::json::parse(ToJsonLine(GoodRecord()));
  for (const char* name : {"workload", "target", "device", "template", "config", "purpose", "outcome", "costs_s",
                           "tuner", "codegen_id", "time"}) {
    EXPECT_TRUE(json.contains(name)) << name;
  }
  EXPECT_EQ(json["time"], "2023-11-14T22:13:20.123Z");
  EXPECT_EQ(json["outcome"], "ok");
}

TEST(RecordJson, WritesBytesThatAreNoText) {
  const Record r = Failure(Outcome::kRunCrashed, "\xff\xfe");
  EXPECT_TRUE(RecordFromJsonLine(ToJsonLine(r)).ok());
}

TEST(RecordJson, TakesDefaultsForWhatIsOptional) {
  const auto read =
      RecordFromJsonLine(R"({"workload":"w","target":"t","template":"m","config":"","outcome":"run_timeout"})");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->purpose, "search");
  EXPECT_EQ(read->threads, 1);
}

// As many fields as a line has room for: with a search through all of them for each it took minutes.
TEST(RecordJson, ReadsALineOfManyFieldsAndNoneThatIsTooLong) {
  std::string line = R"({"workload":"w","target":"t","template":"m","config":"","outcome":"run_timeout")";
  for (int i = 0; line.size() < kMaxJsonLineBytes - 100; ++i) line += ",\"" + std::to_string(i) + "\":0";
  const auto read = RecordFromJsonLine(line + "}");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->workload, "w");
  line.insert(1, kMaxJsonLineBytes, ' ');
  EXPECT_EQ(ErrorOf(line + "}"), "not a record: the line is longer than 1 MiB");
}

TEST(RecordJson, ALineHasRoomForTheLargestRecord) {
  Record r = GoodRecord();
  r.workload = r.anchor = std::string(kMaxWorkloadBytes, '\x01');  // six bytes each as JSON
  r.target = std::string(kMaxTargetBytes, '\x01');
  r.config = std::string(kMaxConfigBytes, '\x01');
  r.fingerprint = std::string(kMaxFingerprintBytes, '\x01');
  r.costs_s.assign(kMaxSamples, 1.0 / 3);
  EXPECT_LE(ToJsonLine(r).size(), kMaxJsonLineBytes);
}

TEST(RecordJson, SaysWhatIsWrong) {
  EXPECT_NE(ErrorOf("").find("no JSON"), std::string::npos);
  EXPECT_NE(ErrorOf("[1]").find("no JSON object"), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"target":"t"})").find("\"workload\" is missing"), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"v":2,"workload":"w"})").find("version 2"), std::string::npos);
  const auto with = [](const std::string& field) {
    return ErrorOf(R"({"workload":"w","target":"t","template":"m","config":"","outcome":"ok",)" + field + "}");
  };
  EXPECT_NE(with(R"("threads":"two")").find("\"threads\" is not an integer"), std::string::npos);
  EXPECT_NE(with(R"("threads":99999999999)").find("\"threads\" is out of range"), std::string::npos);
  EXPECT_NE(with(R"("costs_s":[1,"2"])").find("\"costs_s\""), std::string::npos);
  EXPECT_NE(with(R"("costs_s":1)").find("\"costs_s\" is not an array"), std::string::npos);
  EXPECT_NE(with(R"("tuner":3)").find("\"tuner\" is not a string"), std::string::npos);
  EXPECT_NE(with(R"("time":"yesterday")").find("\"time\""), std::string::npos);
}

TEST(Record, MedianIsOfTheMiddleSamples) {
  EXPECT_EQ(MedianCost(WithCosts(GoodRecord(), {3, 1, 2})), 2);
  EXPECT_EQ(MedianCost(WithCosts(GoodRecord(), {4, 1, 2, 3})), 2.5);
  EXPECT_EQ(MedianCost(WithCosts(GoodRecord(), {})), std::numeric_limits<double>::infinity());
  EXPECT_EQ(MedianCost(Failure(Outcome::kBuildFailed, "")), std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace temper
