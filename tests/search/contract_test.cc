// Every registered tuner keeps the contract; and each way to break it is caught, shown by tuners that do.
#include "tests/search/contract.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/search/toy.h"

namespace temper {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Names = std::set<std::string>;

class Search : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    static const bool once = [] {
      RegisterToys();
      return true;
    }();
    (void)once;
  }
};

TEST_F(Search, EveryTunerKeepsTheContract) {
  ASSERT_FALSE(AllTuners().empty());
  for (const TunerDef& def : AllTuners()) EXPECT_THAT(Breaches(def), IsEmpty()) << def.name;
}

TEST_F(Search, TunersAreFoundByName) {
  for (const TunerDef& def : AllTuners()) EXPECT_EQ(FindTuner(def.name), &def);
  EXPECT_EQ(FindTuner("magic"), nullptr);
}

TEST_F(Search, NoTunerWithoutATemplate) {
  for (const TunerDef& def : AllTuners())
    EXPECT_TRUE(absl::IsUnimplemented(def.make(ToyContext("nothing")).status())) << def.name;
}

// A sound tuner that a test can spoil.
class Spoiled : public Tuner {
 public:
  explicit Spoiled(const TunerContext& context) : context_(context), sound_(*FindTuner("random")->make(context)) {}
  absl::StatusOr<std::vector<Proposal>> Propose(int n) override { return sound_->Propose(n); }
  absl::Status Observe(std::span<const Observation> observations) override { return sound_->Observe(observations); }

 protected:
  TunerContext context_;
  std::unique_ptr<Tuner> sound_;
};

template <typename T>
TunerDef Def(std::string_view name) {
  return {name, [](const TunerContext& c) -> absl::StatusOr<std::unique_ptr<Tuner>> { return std::make_unique<T>(c); }};
}

TEST_F(Search, TheSuiteCatchesRepeats) {
  struct Repeats : Spoiled {
    using Spoiled::Spoiled;
    absl::StatusOr<std::vector<Proposal>> Propose(int n) override {
      auto batch = Spoiled::Propose(n);
      if (!batch->empty() && first_.template_name.empty())
        first_ = batch->front();
      else if (!batch->empty())
        batch->back() = first_;
      return batch;
    }
    Proposal first_;
  };
  EXPECT_THAT(Breaches(Def<Repeats>("repeats")), testing::Contains("repeats"));
}

TEST_F(Search, TheSuiteCatchesEndlessness) {
  struct Endless : Spoiled {
    using Spoiled::Spoiled;
    absl::StatusOr<std::vector<Proposal>> Propose(int n) override {
      auto batch = Spoiled::Propose(n);
      if (!batch->empty()) last_ = *batch;
      return n == 0 ? batch : last_;
    }
    std::vector<Proposal> last_;
  };
  EXPECT_THAT(Breaches(Def<Endless>("endless")), testing::Contains("repeats"));
}

TEST_F(Search, TheSuiteCatchesIllegalCandidates) {
  struct Careless : Spoiled {
    using Spoiled::Spoiled;
    absl::StatusOr<std::vector<Proposal>> Propose(int n) override {
      auto batch = Spoiled::Propose(n);
      const ConfigSpace space =
          TemplatesFor(context_.workload, context_.target)[0]->space(context_.workload, context_.target);
      for (int64_t i = next_; i < space.product_size() && !batch->empty(); ++i) {
        if (space.Check(space.At(i)).ok()) continue;
        batch->front().config = space.At(i);
        next_ = i + 1;
        break;
      }
      return batch;
    }
    int64_t next_ = 0;
  };
  EXPECT_THAT(Breaches(Def<Careless>("careless")), ElementsAre("illegal"));
}

TEST_F(Search, TheSuiteCatchesForgetfulness) {
  struct Forgetful : Spoiled {
    using Spoiled::Spoiled;
    absl::Status Observe(std::span<const Observation> observations) override {
      for (const Observation& o : observations) TEMPER_RETURN_IF_ERROR(CheckObservation(o));
      return absl::OkStatus();
    }
  };
  EXPECT_THAT(Breaches(Def<Forgetful>("forgetful")), ElementsAre("proposes observed"));
}

TEST_F(Search, TheSuiteCatchesTooManyAtOnce) {
  struct Greedy : Spoiled {
    using Spoiled::Spoiled;
    absl::StatusOr<std::vector<Proposal>> Propose(int n) override { return Spoiled::Propose(n + 1); }
  };
  EXPECT_THAT(Breaches(Def<Greedy>("greedy")), ElementsAre("too many"));
}

TEST_F(Search, TheSuiteCatchesAnEarlyEnd) {
  struct Tired : Spoiled {
    using Spoiled::Spoiled;
    absl::StatusOr<std::vector<Proposal>> Propose(int n) override {
      return ++calls_ > 6 ? std::vector<Proposal>() : *Spoiled::Propose(n);
    }
    int calls_ = 0;
  };
  // It stops where everything fails, too, but no sooner than elsewhere on the spaces that end.
  EXPECT_THAT(Breaches(Def<Tired>("tired")), testing::Contains("ends early"));
}

TEST_F(Search, TheSuiteCatchesDespairAtFailures) {
  struct Fragile : Spoiled {
    using Spoiled::Spoiled;
    absl::StatusOr<std::vector<Proposal>> Propose(int n) override {
      return broken_ ? std::vector<Proposal>() : *Spoiled::Propose(n);
    }
    absl::Status Observe(std::span<const Observation> observations) override {
      broken_ = std::none_of(observations.begin(), observations.end(), [](const Observation& o) { return o.ok; });
      return Spoiled::Observe(observations);
    }
    bool broken_ = false;
  };
  EXPECT_THAT(Breaches(Def<Fragile>("fragile")), ElementsAre("stops on failures"));
}

TEST_F(Search, TheSuiteCatchesAnErrorAtFailures) {
  struct Throwing : Spoiled {
    using Spoiled::Spoiled;
    absl::Status Observe(std::span<const Observation> observations) override {
      if (std::none_of(observations.begin(), observations.end(), [](const Observation& o) { return o.ok; })) {
        return absl::InternalError("nothing to fit");
      }
      return Spoiled::Observe(observations);
    }
  };
  EXPECT_THAT(Breaches(Def<Throwing>("throwing")), testing::Contains("stops on failures"));
}

TEST_F(Search, TheSuiteCatchesHiddenState) {
  struct Moody : Spoiled {
    static TunerContext Stir(TunerContext context) {
      static uint64_t moods = 0;
      context.seed += ++moods;
      return context;
    }
    explicit Moody(const TunerContext& context) : Spoiled(Stir(context)) {}
  };
  EXPECT_THAT(Breaches(Def<Moody>("moody")), ElementsAre("not reproducible"));
}

TEST_F(Search, TheSuiteCatchesWhoMindsTheOrder) {
  struct Fussy : Spoiled {
    using Spoiled::Spoiled;
    absl::StatusOr<std::vector<Proposal>> Propose(int n) override {
      auto batch = Spoiled::Propose(n);
      if (swap_ && batch->size() > 1) std::swap(batch->front(), batch->back());
      return batch;
    }
    absl::Status Observe(std::span<const Observation> observations) override {
      swap_ =
          !observations.empty() && Text(observations[0].proposal.config) < Text(observations.back().proposal.config);
      return Spoiled::Observe(observations);
    }
    bool swap_ = false;
  };
  EXPECT_THAT(Breaches(Def<Fussy>("fussy")), ElementsAre("order matters"));
}

TEST_F(Search, TheSuiteCatchesWhoBelievesAnything) {
  struct Gullible : Spoiled {
    using Spoiled::Spoiled;
    absl::Status Observe(std::span<const Observation> observations) override {
      std::vector<Observation> cleaned(observations.begin(), observations.end());
      for (Observation& o : cleaned) o.ok = false;
      return Spoiled::Observe(cleaned);
    }
  };
  EXPECT_THAT(Breaches(Def<Gullible>("gullible")), ElementsAre("takes nonsense"));
}

}  // namespace
}  // namespace temper
