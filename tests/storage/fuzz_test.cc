// The kept table of bests against a search from end to end: random records, random questions, the same answers.
#include "tests/storage/random.h"

namespace temper {
namespace {

std::string Answer(Store& store, const BestQuery& q) {
  const auto answer = store.Best(q);
  if (!answer.ok()) return std::string(answer.status().message());
  return answer->has_value() ? (*answer)->level + " " + Line((*answer)->record) : "nothing";
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
