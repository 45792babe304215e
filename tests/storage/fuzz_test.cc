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
  int64_t pruned = 0;
  for (uint64_t seed = 0; seed < 8; ++seed) {
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
      if (rng.Below(4) == 0) {
        const PruneOptions options{.keep_records = 1 + rng.Below(6), .dry_run = rng.Below(3) == 0};
        std::vector<BestQuery> questions;  // of builds that allow all templates: their answers depend on what is kept
        std::string before = Lines(AllBest(*memory));
        for (int i = 0; i < 30; ++i) {
          questions.push_back(RandomQuery(rng));
          questions.back().templates.clear();
          before += Answer(*memory, questions.back());
        }
        const auto fast_pruned = sqlite->Prune(options), simple_pruned = memory->Prune(options);
        ASSERT_TRUE(fast_pruned.ok() && simple_pruned.ok()) << fast_pruned.status();
        ASSERT_EQ(fast_pruned->records, simple_pruned->records);
        pruned += options.dry_run ? 0 : fast_pruned->records;
        for (Store* store : {sqlite.get(), memory.get()}) {
          std::string after = Lines(AllBest(*store));
          for (const BestQuery& q : questions) after += Answer(*store, q);
          ASSERT_EQ(after, before) << "seed " << seed << " round " << round;
        }
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
  EXPECT_GT(pruned, 30);
}

// One task, few devices and configs: what decides an answer is often old.
TEST(StoreFuzz, NoAnswerDependsOnWhatIsPruned) {
  int64_t pruned = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Rng rng(seed);
    const std::unique_ptr<Store> store = *OpenStore("memory:");
    std::vector<Record> records(30);
    for (Record& r : records) {
      r = RandomRecord(rng);
      r.workload = GoodRecord().workload;
      r.anchor = GoodRecord().anchor;
      r.target = GoodRecord().target;
      r.device_key = r.fingerprint = Pick(rng, "device", 2);
      r.threads = 2;
      r.template_version = 1;
      r.config = Pick(rng, "config", 3);
      r.candidate = r.attempt = 0;
      r.job = rng.Below(4) == 0 ? 1 : 0;
    }
    ASSERT_EQ(*store->CreateJob({.state = "running"}), 1);
    ASSERT_TRUE(store->Append(records).ok());
    std::vector<BestQuery> questions;
    for (const Record& r : records) {
      questions.push_back(QueryFor(r));
      questions.back().default_template = Pick(rng, "template", 2);
      questions.back().default_config = Pick(rng, "config", 3);
    }
    const auto answers = [&] {
      std::string all = Lines(AllBest(*store));
      for (const BestQuery& q : questions) all += Answer(*store, q);
      return all;
    };
    const std::string before = answers();
    const auto gone = store->Prune({.keep_records = 1 + rng.Below(4)});
    ASSERT_TRUE(gone.ok()) << gone.status();
    pruned += gone->records;
    ASSERT_EQ(answers(), before) << "seed " << seed;
  }
  EXPECT_GT(pruned, 1000);
}

}  // namespace
}  // namespace temper
