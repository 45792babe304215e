// Launches made from tensor programs by the rewrites: that they compute the same, and what Lower makes and refuses.
#include <gmock/gmock.h>

#include <functional>
#include <tuple>

#include "compiler/ir/launch.h"
#include "tests/golden.h"
#include "tests/schedule/programs.h"

namespace temper {
namespace {

using ir::ForKind;
using ir::Scope;
using ::testing::HasSubstr;

// The rewrites that templates for devices repeat.
std::pair<Loop, Loop> SplitBound(Schedule& s, const Loop& loop, int64_t factor, ForKind outer, ForKind inner) {
  auto [o, i] = s.Split(loop, factor);
  s.Bind(o, outer);
  s.Bind(i, inner);
  return {o, i};
}

// The copy into shared memory is dealt out to all threads of a group.
void Cooperate(Schedule& s, const std::string& copy, size_t first_loop, int64_t x, int64_t y, int64_t lanes = 1) {
  std::vector<Loop> loops = s.Loops(copy);
  if (loops.size() < first_loop + 2) return;
  Loop all = s.Fuse(loops[first_loop], loops[first_loop + 1]);
  Loop vector;
  if (lanes > 1) std::tie(all, vector) = s.Split(all, lanes);
  auto [rest, thread_x] = s.Split(all, x);
  auto [steps, thread_y] = s.Split(rest, y);
  s.Reorder({thread_y, thread_x, steps});
  s.Bind(thread_x, ForKind::kThreadX);
  s.Bind(thread_y, ForKind::kThreadY);
  if (lanes > 1) s.Vectorize(vector);
}

struct MatmulChoice {
  int64_t m, n, k;
  int64_t x, y;           // threads
  int64_t rows, columns;  // a thread's
  int64_t depth;
  bool cache_a, cache_b;
  int64_t lanes;  // of a copy to shared memory
  bool unroll;
  bool partition, peel;
};

// c in registers, a and b by way of shared memory.
void ScheduleMatmul(Schedule& s, const MatmulChoice& c) {
  const std::string out = s.CacheWrite("c", Scope::kRegister);
  std::vector<Loop> l = s.Loops("c");
  if (l.size() < 3) return;
  auto [gy, in_y] = s.Split(l[0], c.y * c.rows);
  auto [ty, i] = s.Split(in_y, c.rows);
  auto [gx, in_x] = s.Split(l[1], c.x * c.columns);
  auto [tx, j] = s.Split(in_x, c.columns);
  auto [ko, ki] = s.Split(l[2], c.depth);
  s.Reorder({gy, gx, ko, ty, tx, ki, i, j});
  s.Bind(gy, ForKind::kGroupY);
  s.Bind(gx, ForKind::kGroupX);
  s.ReverseComputeAt(out, gx);
  std::vector<Loop> o = s.Loops(out);
  if (o.size() < 4) return;
  auto [out_y, out_i] = s.Split(o[2], c.rows);
  auto [out_x, out_j] = s.Split(o[3], c.columns);
  s.Reorder({out_y, out_x, out_i, out_j});
  s.Bind(out_y, ForKind::kThreadY);
  s.Bind(out_x, ForKind::kThreadX);
  s.Bind(ty, ForKind::kThreadY);
  s.Bind(tx, ForKind::kThreadX);
  for (const char* operand : {"a", "b"}) {
    if (!(operand[0] == 'a' ? c.cache_a : c.cache_b)) continue;
    const std::string copy = s.CacheRead("c", operand, Scope::kShared);
    s.ComputeAt(copy, ko);
    Cooperate(s, copy, 3, c.x, c.y, c.lanes);
  }
  s.DecomposeReduction("c", ko);
  if (c.unroll) {
    s.Unroll(i);
    s.Unroll(j);
  }
  if (c.partition) s.Partition(tx);
  if (c.peel) s.Peel(ko, 1, 0);
}

ir::Func Turn(int64_t rows, int64_t columns) {
  ir::ProgramBuilder b("turn");
  ir::Buffer in = b.Input("in", DType::kF32, {rows, columns});
  b.MarkOutput(b.Compute("out", DType::kF32, {columns, rows}, [&](auto& i) { return Load(in, {i[1], i[0]}); }));
  return *b.Finish();
}

// A tile of out for each group, by way of shared memory.
void ScheduleTurn(Schedule& s, int64_t tile, int64_t y) {
  std::vector<Loop> l = s.Loops("out");
  auto [gy, row] = s.Split(l[0], tile);
  auto [gx, column] = s.Split(l[1], tile);
  s.Reorder({gy, gx, row, column});
  s.Bind(gy, ForKind::kGroupY);
  s.Bind(gx, ForKind::kGroupX);
  const std::string copy = s.CacheRead("out", "in", Scope::kShared);
  s.ComputeAt(copy, gx);
  auto [pass, ty] = s.Split(row, y);
  s.Bind(ty, ForKind::kThreadY);
  s.Bind(column, ForKind::kThreadX);
  Cooperate(s, copy, 2, tile, y);
}

ir::Func Sum(int64_t rows, int64_t columns) {
  ir::ProgramBuilder b("sum");
  ir::Buffer in = b.Input("in", DType::kF32, {rows, columns});
  b.MarkOutput(b.Reduce("out", DType::kF32, {rows}, {columns}, ir::Combiner::kSum, [&](auto& i, auto& r) {
    return Load(in, {i[0], r[0]});
  }));
  return *b.Finish();
}

// A group's threads share each row; one of them sums what they leave in shared memory.
void ScheduleSum(Schedule& s, int64_t rows, int64_t threads) {
  auto [gx, ty] = SplitBound(s, s.Loops("out")[0], rows, ForKind::kGroupX, ForKind::kThreadY);
  auto [k, lane] = s.Split(s.Loops("out").back(), threads);
  auto [partial, last] = s.Rfactor("out", lane);
  s.Reorder({lane, k});
  s.SetScope(partial, Scope::kShared);
  s.Bind(lane, ForKind::kThreadX);
}

int CountBarriers(const ir::Stmt& s) {
  int count = 0;
  ir::VisitStmt(s, [&](const ir::Stmt& node) { count += node->kind == ir::StmtKind::kBarrier ? 1 : 0; });
  return count;
}

ir::Func WithoutBarrier(const ir::Func& f, int which) {
  ir::Func result = f;
  int seen = 0;
  result.body = ir::RewriteStmt(f.body, [&](const ir::Stmt& s) -> ir::Stmt {
    return s->kind == ir::StmtKind::kBarrier && seen++ == which ? ir::Seq({}) : nullptr;
  });
  return result;
}

// The same result before Lower and after, where the interpreter finds nothing wrong. Without one of its barriers it is
// the same still, or the interpreter says why not: `*needed` counts those.
void ExpectLaunch(const ir::Func& program, Schedule& s, int* needed) {
  ASSERT_TRUE(s.status().ok()) << s.status();
  ASSERT_TRUE(SameResults(program, s.func())) << ir::Text(s.func());
  absl::StatusOr<ir::Func> lowered = Lower(s.func());
  ASSERT_TRUE(lowered.ok()) << lowered.status() << "\n" << ir::Text(s.func());
  ASSERT_EQ(ir::LaunchesOf(*lowered)->size(), 1u);
  ASSERT_TRUE(SameResults(program, *lowered)) << ir::Text(*lowered);
  for (int b = 0; b < CountBarriers(lowered->body); ++b) {
    const ir::Func broken = WithoutBarrier(*lowered, b);
    if (RunFunc(broken, 1).ok()) {
      ASSERT_TRUE(SameResults(program, broken)) << ir::Text(broken);
    } else {
      ++*needed;
    }
  }
}

TEST(LaunchSchedules, AnySchedulesComputeWhatTheirProgramsDo) {
  Rng rng(21);
  int needed = 0;
  auto coin = [&] { return rng.Below(2) == 0; };
  for (int i = 0; i < 350; ++i) {
    SCOPED_TRACE(i);
    const MatmulChoice c = {1 + rng.Below(20),
                            1 + rng.Below(20),
                            1 + rng.Below(12),
                            1 + rng.Below(4),
                            1 + rng.Below(4),
                            1 + rng.Below(3),
                            1 + rng.Below(3),
                            1 + rng.Below(5),
                            coin(),
                            coin(),
                            1 + rng.Below(2),
                            coin(),
                            coin(),
                            coin()};
    const ir::Func matmul = Matmul(c.m, c.n, c.k);
    Schedule s(matmul);
    ScheduleMatmul(s, c);
    ASSERT_NO_FATAL_FAILURE(ExpectLaunch(matmul, s, &needed));

    const ir::Func turn = Turn(1 + rng.Below(20), 1 + rng.Below(20));
    Schedule t(turn);
    ScheduleTurn(t, 1 + rng.Below(6), 1 + rng.Below(4));
    ASSERT_NO_FATAL_FAILURE(ExpectLaunch(turn, t, &needed));

    const ir::Func sum = Sum(1 + rng.Below(6), 1 + rng.Below(40));
    Schedule u(sum);
    ScheduleSum(u, 1 + rng.Below(3), 1 + rng.Below(12));
    ASSERT_NO_FATAL_FAILURE(ExpectLaunch(sum, u, &needed));
  }
  EXPECT_GE(needed, 600);
}

TEST(LaunchSchedules, MatmulByTilesInSharedMemory) {
  const ir::Func program = Matmul(32, 32, 16);
  Schedule s(program);
  ScheduleMatmul(s, {32, 32, 16, 8, 4, 2, 2, 4, true, true, 1, true, false, false});
  int needed = 0;
  ASSERT_NO_FATAL_FAILURE(ExpectLaunch(program, s, &needed));
  EXPECT_EQ(needed, 2);
  EXPECT_TRUE(MatchesGolden(ir::Text(*Lower(s.func())), "schedule", "launch_matmul"));
}

// out[g, i] = sum over s of 2 in[g, s, width - 1 - i], the elements of a step by way of a, and of fetch before it.
ir::Func Steps(int64_t groups, int64_t steps, int64_t width) {
  ir::ProgramBuilder b("steps");
  const Shape shape = {groups, steps, width};
  ir::Buffer in = b.Input("in", DType::kF32, shape);
  ir::Buffer fetch = b.Compute("fetch", DType::kF32, shape, [&](auto& i) { return Load(in, i) * ir::Float(2); });
  ir::Buffer a = b.Compute("a", DType::kF32, shape, [&](auto& i) { return Load(fetch, i); });
  b.MarkOutput(b.Reduce("out", DType::kF32, {groups, width}, {steps}, ir::Combiner::kSum, [&](auto& i, auto& r) {
    return Load(a, {i[0], r[0], ir::Expr(width - 1) - i[1]});
  }));
  return *b.Finish();
}

// Returns the loop over the steps.
Loop ScheduleSteps(Schedule& s) {
  const std::vector<Loop> l = s.Loops("out");
  s.Reorder({l[0], l[2], l[1]});
  s.Bind(l[0], ForKind::kGroupX);
  s.SetScope("a", Scope::kShared);
  s.SetScope("fetch", Scope::kRegister);
  s.ComputeAt("a", l[2]);
  s.ComputeAt("fetch", l[2]);
  for (const char* block : {"out", "a", "fetch"}) s.Bind(s.Loops(block).back(), ForKind::kThreadX);
  s.DecomposeReduction("out", l[2]);
  return l[2];
}

TEST(LaunchSchedules, TwoVersionsTakeOneBarrierAStep) {
  Rng rng(22);
  int needed = 0;
  for (int i = 0; i < 60; ++i) {
    const ir::Func program = Steps(1 + rng.Below(3), 2 + rng.Below(5), 2 + rng.Below(20));
    Schedule s(program);
    s.DoubleBuffer("a", ScheduleSteps(s));
    ASSERT_NO_FATAL_FAILURE(ExpectLaunch(program, s, &needed));
    EXPECT_EQ(CountBarriers(Lower(s.func())->body), 1) << ir::Text(*Lower(s.func()));
  }
  EXPECT_EQ(needed, 60);
  const ir::Func program = Steps(2, 3, 4);
  Schedule s(program);
  ScheduleSteps(s);
  ASSERT_NO_FATAL_FAILURE(ExpectLaunch(program, s, &needed));
  EXPECT_EQ(CountBarriers(Lower(s.func())->body), 2) << "one version is waited for twice";
}

TEST(LaunchSchedules, DoubleBufferRefusals) {
  const auto refusal = [](const std::function<void(Schedule&, const Loop&)>& rewrite) {
    Schedule s(Steps(2, 3, 4));
    rewrite(s, ScheduleSteps(s));
    return std::string(s.status().message());
  };
  EXPECT_EQ(
      refusal([](Schedule& s, const Loop& step) { s.DoubleBuffer("out", step); }),
      "double_buffer(block 'out', loop 'out.r0'): 'out' is not scratch that this block alone makes, in a nest of its "
      "own");
  EXPECT_THAT(refusal([](Schedule& s, const Loop&) { s.DoubleBuffer("a", s.Loops("out").front()); }),
              HasSubstr("only a serial loop has steps one after another"));
  EXPECT_THAT(refusal([](Schedule& s, const Loop& step) { s.DoubleBuffer("out_init", step); }),
              HasSubstr("the block is not below the loop"));
  // Elements of a step, but no dimension of its own.
  Schedule flat(Matmul(4, 4, 8));
  const std::vector<Loop> l = flat.Loops("c");
  auto [step, k] = flat.Split(l[2], 4);
  flat.Reorder({step, l[0], l[1], k});
  const std::string copy = flat.CacheRead("c", "a", Scope::kShared);
  flat.ComputeAt(copy, step);
  flat.DoubleBuffer(copy, step);
  EXPECT_THAT(std::string(flat.status().message()),
              HasSubstr("no dimension of 'a_cache' is the step of loop 'c.r0.o'"));
}

// out[i, k] = in[i, k] less the fold of row i.
ir::Func LessFold(int64_t rows, int64_t columns, ir::Combiner combiner) {
  ir::ProgramBuilder b("less");
  const ir::Buffer in = b.Input("in", DType::kF32, {rows, columns});
  const ir::Buffer fold = b.Reduce("fold", DType::kF32, {rows}, {columns}, combiner, [&](auto& i, auto& r) {
    return Load(in, {i[0], r[0]});
  });
  b.MarkOutput(
      b.Compute("out", DType::kF32, {rows, columns}, [&](auto& i) { return Load(in, i) - Load(fold, {i[0]}); }));
  return *b.Finish();
}

// Groups of `rows` rows, each of so many lanes; returns the loop over the lanes of the fold.
Loop ScheduleAcrossLanes(Schedule& s, int64_t rows, int64_t lanes) {
  const Loop row = s.Loops("out")[0];
  s.SetScope("fold", Scope::kRegister);
  s.ComputeAt("fold", row);
  auto [turn, lane] = s.Split(s.Loops("out").back(), lanes);
  s.Reorder({lane, turn});
  s.Bind(lane, ForKind::kThreadX);
  auto [k, own] = s.Split(s.Loops("fold").back(), lanes);
  const std::string share = s.Rfactor("fold", own).first;
  s.SetScope(share, Scope::kRegister);
  s.Reorder({own, k});
  s.Bind(own, ForKind::kThreadX);
  auto [group, mine] = s.Split(row, rows);
  s.Bind(group, ForKind::kGroupX);
  s.Bind(mine, ForKind::kThreadY);
  return s.Loops("fold").back();
}

TEST(LaunchSchedules, LanesReduceWhatTheyHoldWithoutBarriers) {
  Rng rng(23);
  for (int i = 0; i < 60; ++i) {
    constexpr ir::Combiner kFolds[] = {ir::Combiner::kSum, ir::Combiner::kMax, ir::Combiner::kMin};
    const ir::Func program = LessFold(1 + rng.Below(70), 1 + rng.Below(90), kFolds[rng.Below(3)]);
    const int64_t lanes = int64_t{2} << rng.Below(5);
    Schedule s(program);
    s.ReduceAcrossLanes(ScheduleAcrossLanes(s, 32 / lanes * (1 + rng.Below(2)), lanes));
    int needed = 0;
    ASSERT_NO_FATAL_FAILURE(ExpectLaunch(program, s, &needed));
    EXPECT_EQ(CountBarriers(Lower(s.func())->body), 0);
    int exchanges = 0;
    ir::VisitStmt(Lower(s.func())->body,
                  [&](const ir::Stmt& node) { exchanges += node->kind == ir::StmtKind::kInstruction ? 1 : 0; });
    EXPECT_EQ(int64_t{1} << exchanges, lanes);
  }
}

// --- what is refused

TEST(LaunchSchedules, ReduceAcrossLanesRefusals) {
  const auto refusal = [](int64_t rows, int64_t lanes, const std::function<void(Schedule&, const Loop&)>& change) {
    Schedule s(LessFold(64, 64, ir::Combiner::kSum));
    const Loop loop = ScheduleAcrossLanes(s, rows, lanes);
    change(s, loop);
    EXPECT_TRUE(s.status().ok()) << s.status();
    return std::string(Lower(s.func()).status().message());
  };
  const auto across = [](Schedule& s, const Loop& loop) { s.ReduceAcrossLanes(loop); };
  EXPECT_EQ(refusal(1, 32, across), "");
  EXPECT_THAT(refusal(1, 64, across), HasSubstr("its 64 lanes are not the threads along x"));
  EXPECT_THAT(refusal(1, 24, across), HasSubstr("its 24 lanes are not the threads along x"));
  EXPECT_THAT(refusal(1, 16, across), HasSubstr("needs groups of whole warps"));
  EXPECT_THAT(refusal(1, 32, [](Schedule& s, const Loop& loop) { s.ReduceAcrossLanes(s.Split(loop, 16).second); }),
              HasSubstr("its 16 lanes are not the threads along x"));
  EXPECT_THAT(refusal(1, 32, [](Schedule& s, const Loop&) { s.ReduceAcrossLanes(s.Loops("out").back()); }),
              HasSubstr("a loop along x is around it"));
  EXPECT_THAT(refusal(1, 32,
                      [](Schedule& s, const Loop& loop) {
                        s.SetScope("fold", Scope::kShared);
                        s.ReduceAcrossLanes(loop);
                      }),
              HasSubstr("its result is not in registers"));
  EXPECT_THAT(refusal(1, 32,
                      [](Schedule& s, const Loop& loop) {
                        s.DecomposeReduction("fold", loop);
                        s.ReduceAcrossLanes(loop);
                      }),
              HasSubstr("its block begins with nothing"));
  EXPECT_THAT(refusal(1, 32,
                      [](Schedule& s, const Loop& loop) {
                        s.SetScope("fold_rf", Scope::kShared);
                        s.ReduceAcrossLanes(loop);
                      }),
              HasSubstr("folds no registers of the lanes"));
}

class BindTest : public ::testing::Test {
 protected:
  std::string Refusal() const { return std::string(s_.status().message()); }
  std::string LowersTo() const { return std::string(Lower(s_.func()).status().message()); }

  Schedule s_ = Schedule(Matmul(8, 8, 4));
  std::vector<Loop> l_ = s_.Loops("c");
};

TEST_F(BindTest, ReductionsAreNotBound) {
  s_.Bind(l_[2], ForKind::kThreadX);
  EXPECT_EQ(Refusal(), "bind(loop 'c.r0'): thread.x loop 'c.r0' binds a reduction iterator of block 'c'");
}

TEST_F(BindTest, AnAxisIsBoundOnce) {
  s_.Bind(l_[0], ForKind::kThreadX);
  s_.Bind(l_[1], ForKind::kThreadX);
  EXPECT_EQ(Refusal(), "bind(loop 'c.i1'): thread.x loop 'c.i1' is inside thread.x loop 'c.i0'");
}

TEST_F(BindTest, GroupsAreNotInsideThreads) {
  s_.Bind(l_[0], ForKind::kThreadX);
  s_.Bind(l_[1], ForKind::kGroupX);
  EXPECT_EQ(Refusal(), "bind(loop 'c.i1'): group.x loop 'c.i1' is inside thread.x loop 'c.i0'");
}

TEST_F(BindTest, LoopsAroundThreadsAreNotCut) {
  auto [o, i] = s_.Split(l_[1], 3);
  s_.Bind(i, ForKind::kThreadX);
  s_.Partition(l_[0]);
  EXPECT_EQ(Refusal(), "partition(loop 'c.i0'): thread.x loop 'c.i1.i' is inside, which can not be cut");
}

TEST_F(BindTest, GroupsAreNotPeeled) {
  s_.Bind(l_[0], ForKind::kGroupX);
  s_.Peel(l_[0], 1, 0);
  EXPECT_THAT(Refusal(), HasSubstr("only loops that run one iteration after another can be peeled"));
}

TEST_F(BindTest, BoundLoopsStayInOrder) {
  s_.Bind(l_[0], ForKind::kGroupX);
  s_.Bind(l_[1], ForKind::kThreadX);
  s_.Reorder({l_[1], l_[0]});
  EXPECT_THAT(Refusal(), HasSubstr("group.x loop 'c.i0' is inside thread.x loop 'c.i1'"));
}

TEST_F(BindTest, ThreadsNeedAGroup) {
  s_.Bind(l_[1], ForKind::kThreadX);
  EXPECT_THAT(LowersTo(), HasSubstr("nothing else but memory around them; found in: for c.i0 in 0..8"));
}

TEST_F(BindTest, AGroupHasSoManyThreads) {
  Schedule s(Matmul(64, 64, 1));
  s.Bind(s.Loops("c")[0], ForKind::kThreadY);
  s.Bind(s.Loops("c")[1], ForKind::kThreadX);
  EXPECT_THAT(std::string(Lower(s.func()).status().message()), HasSubstr("found in: thread.y"));
  Schedule t(Matmul(64, 65, 1));
  auto [o, i] = t.Split(t.Loops("c")[0], 64);
  t.Bind(o, ForKind::kGroupX);
  t.Bind(i, ForKind::kThreadY);
  t.Bind(t.Loops("c")[2], ForKind::kThreadX);
  EXPECT_THAT(std::string(Lower(t.func()).status().message()),
              HasSubstr("4160 threads of a group where 1024 are possible in: thread.y"));
}

// All threads would make the same row of a.
TEST_F(BindTest, SharedScratchIsNoThreadsOwn) {
  s_.ComputeAt(s_.CacheRead("c", "a", Scope::kShared), l_[1]);
  s_.Bind(l_[0], ForKind::kGroupX);
  s_.Bind(l_[1], ForKind::kThreadX);
  EXPECT_EQ(Refusal(),
            "bind(loop 'c.i1'): iterations of thread.x loop 'c.i1' may write the same elements in block 'a_cache'");
}

TEST_F(BindTest, RegistersAndNoMemoryAreAThreadsOwn) {
  s_.ComputeAt(s_.CacheRead("c", "a", Scope::kRegister), l_[1]);
  s_.Bind(l_[0], ForKind::kGroupX);
  s_.Bind(l_[1], ForKind::kThreadX);
  EXPECT_EQ(LowersTo(), "");
  Schedule s(Matmul(8, 8, 4));
  s.ComputeAt(s.CacheRead("c", "a", Scope::kMemory), s.Loops("c")[1]);
  s.Bind(s.Loops("c")[1], ForKind::kThreadX);
  EXPECT_THAT(std::string(s.status().message()), HasSubstr("may write the same elements in block 'a_cache'"));
}

// Memory is for all groups, shared arrays are a group's own.
TEST_F(BindTest, ScratchOfAGroupIsShared) {
  s_.ComputeAt(s_.CacheRead("c", "b", Scope::kShared), l_[0]);
  s_.Bind(l_[0], ForKind::kGroupX);
  s_.Bind(l_[1], ForKind::kThreadX);
  EXPECT_EQ(LowersTo(), "");
  Schedule s(Matmul(8, 8, 4));
  s.ComputeAt(s.CacheRead("c", "b", Scope::kMemory), s.Loops("c")[0]);
  s.Bind(s.Loops("c")[0], ForKind::kGroupX);
  EXPECT_THAT(std::string(s.status().message()),
              HasSubstr("iterations of group.x loop 'c.i0' may write the same elements in block 'b_cache'"));
}

TEST_F(BindTest, RegistersOfOneThreadAreNotReadByOthers) {
  // A few threads make an element of the row each, and all read it.
  const std::string row = s_.CacheRead("c", "a", Scope::kRegister);
  s_.ComputeAt(row, l_[0]);
  s_.Bind(l_[0], ForKind::kGroupX);
  s_.Bind(l_[1], ForKind::kThreadX);
  EXPECT_EQ(LowersTo(), "");  // each makes all of it
  s_.Bind(s_.Loops(row).back(), ForKind::kThreadX);
  EXPECT_EQ(
      LowersTo(),
      "threads of loop 'c.i1' read the same 'a_register[i0, r0]' in block 'c', which is in registers of one thread");
  // Each thread makes an element, and thread 0 reads them all.
  Schedule s(Matmul(8, 8, 4));
  const std::string out = s.CacheWrite("c", Scope::kRegister);
  std::vector<Loop> l = s.Loops("c");
  s.Bind(l[0], ForKind::kGroupX);
  s.ReverseComputeAt(out, l[0]);
  s.Bind(l[1], ForKind::kThreadX);
  EXPECT_THAT(std::string(Lower(s.func()).status().message()),
              HasSubstr("which element of register array c_register depends on the thread"));
}

}  // namespace
}  // namespace temper
