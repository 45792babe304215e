// The kept table of bests against a search from end to end: random records, random questions, the same answers.
#include "base/rng.h"
#include "tests/storage/testing.h"

namespace temper {
namespace {

std::string Pick(Rng& rng, const char* name, int choices) { return name + std::to_string(rng.Below(choices)); }

Record RandomRecord(Rng& rng) {
  Record r = GoodRecord();
  r.anchor = Pick(rng, "anchor", 2);
  r.workload = r.anchor + Pick(rng, "+epilogue", 3);
  r.target = Pick(rng, "target", 2);
  r.device_key = Pick(rng, "key", 3);
  r.fingerprint = Pick(rng, "cpu", 3);
  r.threads = 1 + static_cast<int>(rng.Below(2));
  r.template_name = Pick(rng, "template", 2);
  r.template_version = 1 + static_cast<int>(rng.Below(2));
  r.config = Pick(rng, "config", 8);
  r.codegen_id = Pick(rng, "generator", 2);
  r.time_unix_ms = 1700000000000 + rng.Below(4);
  static constexpr const char* kPurposes[] = {"search", "search", "search", "final", "revalidate", "canary"};
  r.purpose = kPurposes[rng.Below(6)];
  static constexpr Outcome kOutcomes[] = {Outcome::kOk,       Outcome::kOk,          Outcome::kOk,
                                          Outcome::kRacedOut, Outcome::kBuildFailed, Outcome::kInfrastructure};
  r.outcome = kOutcomes[rng.Below(6)];
  static constexpr const char* kOrigins[] = {"measured", "measured", "put", "trusted"};
  r.origin = kOrigins[rng.Below(4)];
  if (rng.Below(2) == 0) r.job = 0;
  if (rng.Below(3) == 0) r.candidate = 1 + rng.Below(200), r.attempt = 1;
  r.costs_s.assign(1 + rng.Below(5), 0);
  for (double& cost : r.costs_s) cost = 1e-6 * (1 + rng.Below(20));  // few values: ties happen
  return r;
}

BestQuery RandomQuery(Rng& rng) {
  BestQuery q = QueryFor(RandomRecord(rng));
  if (rng.Below(4) == 0) q.device_key = "";
  if (rng.Below(4) == 0) q.fingerprint = "";
  if (rng.Below(4) == 0) q.anchor = "";
  if (rng.Below(2) == 0) {
    q.default_template = Pick(rng, "template", 2);
    q.default_config = Pick(rng, "config", 8);
  }
  if (rng.Below(2) == 0) q.templates = {{Pick(rng, "template", 3), 1}, {Pick(rng, "template", 2), 2}};
  return q;
}

std::string Answer(Store& store, const BestQuery& q) {
  const auto answer = store.Best(q);
  if (!answer.ok()) return std::string(answer.status().message());
  return answer->has_value() ? (*answer)->level + " " + Line((*answer)->record) : "nothing";
}

std::string Lines(const std::vector<Record>& records) {
  std::string text;
  for (const Record& r : records) text += Line(r) + "\n";
  return text;
}

TEST(StoreFuzz, SqliteAnswersAsTheListDoes) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    Rng rng(seed);
    TempFolder folder;
    auto opened = OpenStore(folder.File("records.db"));
    ASSERT_TRUE(opened.ok()) << opened.status();
    const std::unique_ptr<Store> sqlite = std::move(*opened), memory = *OpenStore("memory:");
    int answered = 0;
    for (int round = 0; round < 25; ++round) {
      std::vector<Record> batch(1 + rng.Below(8));
      for (Record& r : batch) r = RandomRecord(rng);
      if (rng.Below(2) == 0) batch.push_back(batch.front());
      const bool imported = rng.Below(2) == 0;
      const auto fast = imported ? sqlite->Import(batch) : sqlite->Append(batch);
      const auto simple = imported ? memory->Import(batch) : memory->Append(batch);
      ASSERT_TRUE(fast.ok() && simple.ok());
      ASSERT_EQ(*fast, *simple);
      for (int i = 0; i < 6; ++i) {
        const BestQuery q = RandomQuery(rng);
        const std::string expected = Answer(*memory, q);
        ASSERT_EQ(Answer(*sqlite, q), expected) << "seed " << seed << " round " << round;
        answered += expected != "nothing";
      }
      RecordFilter filter;
      if (rng.Below(2) == 0) filter.workload = RandomRecord(rng).workload;
      if (rng.Below(2) == 0) filter.device_key = Pick(rng, "key", 3);
      if (rng.Below(2) == 0) filter.after_id = rng.Below(50);
      if (rng.Below(2) == 0) filter.limit = 1 + rng.Below(5);
      ASSERT_EQ(Lines(All(*sqlite, filter)), Lines(All(*memory, filter)));
      ASSERT_EQ(Lines(AllBest(*sqlite, filter)), Lines(AllBest(*memory, filter)));
    }
    EXPECT_GT(answered, 50) << "the questions must mostly have answers, or this proves nothing";
  }
}

}  // namespace
}  // namespace temper
