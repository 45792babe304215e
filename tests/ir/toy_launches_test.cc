// The execution model proved on toys: launches compute what plain nests do, and each missing barrier is found.
#include "tests/ir/toy_launches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace temper::ir {
namespace {

using ::testing::HasSubstr;

bool SameBytes(const NDArray& a, const NDArray& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0;
}

class ToyRun {
 public:
  ToyRun(const Func& f, uint64_t seed) {
    Rng rng(seed);
    args_ = DrawArguments(f, rng);
    status_ = Interpret(f, args_, &traffic_);
  }
  const absl::Status& status() const { return status_; }
  const NDArray& result() const { return args_.back(); }
  const SharedTraffic& traffic() const { return traffic_; }

 private:
  std::vector<NDArray> args_;
  absl::Status status_;
  SharedTraffic traffic_;
};

TEST(ToyLaunches, AThousandSchedulesComputeWhatThePlainNestsDo) {
  Rng rng(16);
  for (int i = 0; i < 1000; ++i) {
    const Toy toy = DrawToy(rng);
    SCOPED_TRACE(toy.name);
    ASSERT_TRUE(Verify(toy.plain).ok());
    ASSERT_TRUE(Verify(toy.launch).ok()) << Verify(toy.launch) << "\n" << Text(toy.launch);
    const uint64_t seed = rng.Next();
    const ToyRun plain(toy.plain, seed), launch(toy.launch, seed);
    ASSERT_TRUE(plain.status().ok()) << plain.status();
    ASSERT_TRUE(launch.status().ok()) << launch.status() << "\n" << Text(toy.launch);
    ASSERT_TRUE(SameBytes(plain.result(), launch.result())) << Text(toy.launch);
  }
}

// A nest of the CPU that goes from barrier to barrier in either order of the threads is another way to run a launch.
// Where the orders differ, the barrier that was taken out was needed, and the interpreter has to say so; where it says
// nothing, all ways have to agree.
TEST(ToyLaunches, EveryMissingBarrierThatWasNeededIsReported) {
  Rng rng(17);
  int needed = 0, spare = 0, unseen = 0;  // unseen: reported, but neither order of the threads shows it
  for (int i = 0; i < 250; ++i) {
    const Toy toy = DrawToy(rng);
    const uint64_t seed = rng.Next();
    const ToyRun plain(toy.plain, seed);
    for (int b = 0; b < CountBarriers(toy.launch); ++b) {
      const Func broken = WithoutBarrier(toy.launch, b);
      SCOPED_TRACE(toy.name + " without\n" + Text(broken));
      bool wrong = false;
      for (bool reverse : {false, true}) {
        const ToyRun serialized(Serialized(broken, reverse), seed);
        ASSERT_TRUE(serialized.status().ok()) << serialized.status();
        wrong = wrong || !SameBytes(serialized.result(), plain.result());
      }
      const ToyRun run(broken, seed);
      if (run.status().ok()) {
        ASSERT_FALSE(wrong);
        ASSERT_TRUE(SameBytes(run.result(), plain.result()));
        ++spare;
        continue;
      }
      // Without its barrier a thread may also find what was not written yet.
      ASSERT_THAT(std::string(run.status().message()), ::testing::AnyOf(HasSubstr("race"), HasSubstr("nothing wrote")));
      wrong ? ++needed : ++unseen;
    }
  }
  EXPECT_GE(needed, 400);
  EXPECT_GE(spare, 100);
  EXPECT_LT(unseen, needed / 4);
}

// With all barriers, both ways to run launches agree as well.
TEST(ToyLaunches, SerializedLaunchesComputeTheSame) {
  Rng rng(18);
  for (int i = 0; i < 100; ++i) {
    const Toy toy = DrawToy(rng);
    SCOPED_TRACE(toy.name);
    const uint64_t seed = rng.Next();
    const ToyRun launch(toy.launch, seed);
    for (bool reverse : {false, true}) {
      EXPECT_TRUE(SameBytes(ToyRun(Serialized(toy.launch, reverse), seed).result(), launch.result()));
    }
  }
}

// Where every barrier is known to be needed, or not to be.
TEST(ToyLaunches, EachBarrierOfEachToyIsJudgedAlone) {
  auto verdicts = [](const Toy& toy) {
    std::vector<bool> reported;
    for (int b = 0; b < CountBarriers(toy.launch); ++b) {
      reported.push_back(!ToyRun(WithoutBarrier(toy.launch, b), 1).status().ok());
    }
    return reported;
  };
  using Verdicts = std::vector<bool>;
  EXPECT_EQ(verdicts(Reduction({.threads = 16})), (Verdicts{true, true, true, true, false}));  // the last is spare
  EXPECT_EQ(verdicts(Transpose({.tiles_a_group = 1})), (Verdicts{true, false}));  // nothing is written behind the last
  EXPECT_EQ(verdicts(Transpose({.tiles_a_group = 2})), (Verdicts{true, true}));
  EXPECT_EQ(verdicts(Matmul({.buffers = 1})), (Verdicts{true, true}));
  EXPECT_EQ(verdicts(Matmul({.k = 4, .depth = 4, .buffers = 1})), (Verdicts{true, false}));  // of one step
  EXPECT_EQ(verdicts(Matmul({.buffers = 2})), (Verdicts{true, true}));
}

TEST(ToyLaunches, PaddingTakesTheConflictsOutOfATranspose) {
  auto traffic = [](int64_t padding, bool turn_early) {
    const Toy toy = Transpose({.rows = 64,
                               .columns = 64,
                               .tile = 32,
                               .rows_a_pass = 8,
                               .padding = padding,
                               .tiles_a_group = 1,
                               .turn_early = turn_early});
    return ToyRun(toy.launch, 1).traffic();
  };
  for (bool turn_early : {false, true}) {
    // 4 tiles of 32 rows, each written by a warp and read by one; 32 lanes meet in a bank where the tile is turned.
    EXPECT_EQ(traffic(0, turn_early).requests, 4 * 32 * 2);
    EXPECT_EQ(traffic(0, turn_early).conflicts, 4 * 32 * 31);
    EXPECT_EQ(traffic(2, turn_early).conflicts, 4 * 32 * 1);  // two by two
    EXPECT_EQ(traffic(1, turn_early).conflicts, 0);
  }
}

TEST(ToyLaunches, TwoBuffersWaitOnceAStep) {
  const Toy one = Matmul({.buffers = 1}), two = Matmul({.buffers = 2});
  EXPECT_THAT(Text(two.launch.body), HasSubstr("alloc tile_a: f32[2,8,4] shared"));
  auto in_loop = [](const Toy& toy) {
    int count = 0;
    VisitStmt(toy.launch.body, [&](const Stmt& s) {
      if (s->kind == StmtKind::kFor && s->var->name == "s") count = CountBarriers({"loop", {}, 0, s});
    });
    return count;
  };
  EXPECT_EQ(in_loop(one), 2);
  EXPECT_EQ(in_loop(two), 1);
  EXPECT_EQ(LaunchesOf(two.launch)->front().shared_bytes(), 2 * (8 * 4 + 4 * 12) * 4);
}

}  // namespace
}  // namespace temper::ir
