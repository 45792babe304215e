// Each rewrite: what it makes, that results stay, and every reason for which it refuses.
#include "compiler/schedule/schedule.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "tests/schedule/programs.h"

namespace temper {
namespace {

using ir::Expr;
using ir::Load;
using ir::Scope;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ScheduleTest : public ::testing::Test {
 protected:
  // Starts over with the program; later checks compare with it.
  void Use(ir::Func program) {
    program_ = std::move(program);
    s_ = Schedule(program_);
    ASSERT_TRUE(s_.status().ok()) << s_.status();
  }
  Loop L(const std::string& block, size_t i) { return s_.Loops(block).at(i); }
  std::string Text() { return ir::Text(s_.func().body); }
  std::string LoweredText() {
    absl::StatusOr<ir::Func> lowered = Lower(s_.func());
    return lowered.ok() ? ir::Text(lowered->body) : lowered.status().ToString();
  }
  std::vector<std::string> LoopNames(const std::string& block) {
    std::vector<std::string> names;
    for (const Loop& loop : s_.Loops(block)) names.push_back(loop->name);
    return names;
  }

  void ExpectSame() {
    ASSERT_TRUE(s_.status().ok()) << s_.status();
    ASSERT_TRUE(ir::Verify(s_.func()).ok()) << ir::Verify(s_.func());
    EXPECT_TRUE(SameResults(program_, s_.func()));
    absl::StatusOr<ir::Func> lowered = Lower(s_.func());
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    EXPECT_TRUE(SameResults(program_, *lowered));
  }
  // The last rewrite was refused with this message, and nothing changed; the schedule goes on from there.
  void ExpectRefused(const ir::Stmt& before, const std::string& message) {
    EXPECT_THAT(std::string(s_.status().message()), HasSubstr(message));
    EXPECT_EQ(s_.func().body, before);
    s_ = Schedule(s_.func());
  }

  ir::Func program_;
  Schedule s_{Matmul(1, 1, 1)};
};

#define EXPECT_REFUSED(rewrite, message)    \
  do {                                      \
    const ir::Stmt before = s_.func().body; \
    rewrite;                                \
    ExpectRefused(before, message);         \
  } while (false)

// x -> double -> plus: double[i, j] = 2 x[i, j]; out[i, j] = double[i, j] + double[i, j - 1] (0 outside).
ir::Func Neighbours(int64_t rows, int64_t columns) {
  ir::ProgramBuilder b("neighbours");
  ir::Buffer x = b.Input("x", DType::kF32, {rows, columns});
  ir::Buffer twice =
      b.Compute("twice", DType::kF32, {rows, columns}, [&](auto& i) { return Load(x, i) * ir::Float(2); });
  b.MarkOutput(b.Compute("out", DType::kF32, {rows, columns}, [&](auto& i) {
    return Load(twice, i) + Select(Expr(1) <= i[1], Load(twice, {i[0], i[1] - Expr(1)}), ir::Float(0));
  }));
  return *b.Finish();
}

// sum[i, j] = x[i - 1, j] + x[i, j] + x[i + 1, j], rows outside counting nothing.
ir::Func PaddedSum(int64_t rows, int64_t columns) {
  ir::ProgramBuilder b("padded_sum");
  ir::Buffer x = b.Input("x", DType::kF32, {rows, columns});
  b.MarkOutput(b.Reduce("sum", DType::kF32, {rows, columns}, {3}, ir::Combiner::kSum, [&](auto& i, auto& r) {
    Expr row = i[0] + r[0] - Expr(1);
    return Select(And(Expr(0) <= row, row < Expr(rows)), Load(x, {row, i[1]}), ir::Float(0));
  }));
  return *b.Finish();
}

// x -> twice -> out, element by element.
ir::Func Elementwise(int64_t rows, int64_t columns) {
  ir::ProgramBuilder b("elementwise");
  ir::Buffer x = b.Input("x", DType::kF32, {rows, columns});
  ir::Buffer twice =
      b.Compute("twice", DType::kF32, {rows, columns}, [&](auto& i) { return Load(x, i) * ir::Float(2); });
  b.MarkOutput(b.Compute("out", DType::kF32, {rows, columns}, [&](auto& i) { return Load(twice, i) + ir::Float(1); }));
  return *b.Finish();
}

TEST_F(ScheduleTest, ErrorsAreSticky) {
  Use(Matmul(4, 4, 4));
  Loop row = L("c", 0);
  auto [outer, inner] = s_.Split(row, 0);
  EXPECT_EQ(outer, nullptr);
  EXPECT_EQ(inner, nullptr);
  const std::string message(s_.status().message());
  EXPECT_EQ(message, "split(loop 'c.i0', factor 0): factor must be at least 1");
  s_.Parallel(row);
  EXPECT_TRUE(s_.Loops("c").empty());
  EXPECT_EQ(s_.Extent(row), 0);
  EXPECT_EQ(s_.DecomposeReduction("c", row), "");
  EXPECT_EQ(s_.status().message(), message);
  EXPECT_EQ(s_.func().body, program_.body);
}

TEST_F(ScheduleTest, LooksThingsUp) {
  Use(Elementwise(3, 5));
  EXPECT_THAT(s_.Blocks(), ElementsAre("twice", "out"));
  EXPECT_THAT(LoopNames("out"), ElementsAre("out.i0", "out.i1"));
  EXPECT_EQ(s_.Extent(L("out", 1)), 5);
  EXPECT_REFUSED(s_.Loops("none"), "loops(block 'none'): block 'none' is not in the function");
  EXPECT_REFUSED(s_.Extent(nullptr), "extent(no loop): an empty handle stands for no loop");
  EXPECT_REFUSED(s_.Extent(ir::MakeVar("i")), "extent(loop 'i'): loop 'i' is not in the function");
}

TEST_F(ScheduleTest, SplitThatDividesNeedsNoPredicate) {
  Use(Matmul(6, 4, 3));
  auto [outer, inner] = s_.Split(L("c", 0), 3);
  EXPECT_EQ(s_.Extent(outer), 2);
  EXPECT_EQ(s_.Extent(inner), 3);
  EXPECT_THAT(Text(), ::testing::Not(HasSubstr("where")));
  ExpectSame();
}

TEST_F(ScheduleTest, SplitThatDoesNotDivideHasAPredicate) {
  Use(Matmul(7, 4, 3));
  auto [outer, inner] = s_.Split(L("c", 0), 3);
  EXPECT_EQ(s_.Extent(outer), 3);
  EXPECT_THAT(Text(), HasSubstr("where c.i0.o*3 + c.i0.i < 7"));
  ExpectSame();
  s_.Split(inner, 2);
  ExpectSame();
  s_.Split(L("c", 0), 10);
  ExpectSame();
}

TEST_F(ScheduleTest, SplitKeepsUnrolledAndParallelLoops) {
  Use(Matmul(8, 4, 3));
  s_.Parallel(L("c", 0));
  s_.Split(L("c", 0), 2);
  EXPECT_THAT(Text(), HasSubstr("parallel c.i0.o"));
  EXPECT_THAT(Text(), HasSubstr("for c.i0.i"));
  s_.Unroll(L("c", 3));
  s_.Split(L("c", 3), 2);
  EXPECT_THAT(Text(), HasSubstr("unroll c.r0.i"));
  ExpectSame();
}

TEST_F(ScheduleTest, SplitRefusals) {
  Use(Elementwise(4, 4));
  s_.Vectorize(L("out", 1));
  Loop lane = L("out", 1);
  EXPECT_REFUSED(s_.Split(lane, 2), "split(loop 'out.i1', factor 2): the loop is vectorized");
  EXPECT_REFUSED(s_.Split(lane, -1), "factor must be at least 1");
  EXPECT_REFUSED(s_.Split(nullptr, 2), "split(no loop, factor 2)");
}

TEST_F(ScheduleTest, FuseDividesTheFusedLoopAgain) {
  Use(Elementwise(4, 6));
  Loop fused = s_.Fuse(L("out", 0), L("out", 1));
  EXPECT_EQ(fused->name, "out.i0.i1");
  EXPECT_EQ(s_.Extent(fused), 24);
  ExpectSame();
  // Split back along the same line, the div and mod vanish.
  s_.Split(fused, 6);
  ExpectSame();
  EXPECT_THAT(LoweredText(), HasSubstr("out[out.i0.i1.o, out.i0.i1.i]"));
}

TEST_F(ScheduleTest, FuseRefusals) {
  Use(Matmul(4, 4, 4));
  Loop i = L("c", 0), j = L("c", 1), k = L("c", 2);
  EXPECT_REFUSED(s_.Fuse(i, k),
                 "fuse(loop 'c.i0', loop 'c.r0'): loop 'c.r0' is not directly and solely inside loop 'c.i0'");
  EXPECT_REFUSED(s_.Fuse(j, i), "is not directly and solely inside");
  s_.Parallel(i);
  EXPECT_REFUSED(s_.Fuse(i, j), "a parallel and a serial loop can not be fused");
}

TEST_F(ScheduleTest, WhatStandsInNoLoopGetsOne) {
  ir::ProgramBuilder b("one");
  ir::Buffer in = b.Input("in", DType::kF32, {});
  b.MarkOutput(b.Compute("out", DType::kF32, {}, [&](auto&) { return Load(in, {}) + ir::Float(1); }));
  Use(*b.Finish());
  s_.Bind(s_.AddLoop("out"), ir::ForKind::kGroupX);
  EXPECT_THAT(LoopNames("out"), ElementsAre("out.once"));
  EXPECT_REFUSED(s_.AddLoop("other"), "add_loop(block 'other'): ");
  s_.Bind(s_.AddLoop("out"), ir::ForKind::kThreadX);
  ExpectSame();
}

TEST_F(ScheduleTest, ReorderPutsNamedLoopsInNamedPlaces) {
  Use(Matmul(3, 4, 5));
  s_.Reorder({L("c", 2), L("c", 0)});
  EXPECT_THAT(LoopNames("c"), ElementsAre("c.r0", "c.i1", "c.i0"));
  ExpectSame();
  s_.Reorder({L("c", 1)});
  EXPECT_THAT(LoopNames("c"), ElementsAre("c.r0", "c.i1", "c.i0"));
}

TEST_F(ScheduleTest, ReorderRefusals) {
  Use(Elementwise(4, 4));
  Loop i = L("out", 0), j = L("out", 1), other = L("twice", 1);
  EXPECT_REFUSED(s_.Reorder({}), "reorder(): no loops are named");
  EXPECT_REFUSED(s_.Reorder({i, i}), "loop 'out.i0' is named twice");
  EXPECT_REFUSED(s_.Reorder({i, other}), "is not on the path to");
  EXPECT_REFUSED(s_.Reorder({i, nullptr}), "an empty handle");
  s_.ComputeAt("twice", i);
  EXPECT_REFUSED(s_.Reorder({j, i}), "there is more than loops between loop 'out.i0' and loop 'out.i1'");
  Use(Elementwise(4, 4));
  i = L("out", 0), j = L("out", 1);
  s_.Vectorize(j);
  EXPECT_REFUSED(s_.Reorder({j, i}), "loop 'out.i1' is vectorized and must stay innermost");
}

// Every pair sums two rows, so most rows are summed twice, each time from the start.
TEST_F(ScheduleTest, RepeatedPointsAreInitialisedEachTime) {
  ir::ProgramBuilder b("overlap");
  ir::Buffer x = b.Input("x", DType::kF32, {6, 3});
  ir::Buffer sum = b.Reduce("sum", DType::kF32, {6}, {3}, ir::Combiner::kSum, [&](auto& i, auto& r) {
    return Load(x, {i[0], r[0]});
  });
  ir::Buffer pair =
      b.Compute("pair", DType::kF32, {5}, [&](auto& i) { return Load(sum, {i[0]}) + Load(sum, {i[0] + Expr(1)}); });
  b.MarkOutput(b.Compute("out", DType::kF32, {5}, [&](auto& i) { return Load(pair, i); }));
  Use(*b.Finish());
  Loop row = L("pair", 0);
  s_.ComputeAt("sum", row);
  EXPECT_REFUSED(s_.DecomposeReduction("sum", row), "loops below compute the same points more than once");
  ExpectSame();
}

TEST_F(ScheduleTest, ReductionsComeToTheirFirstStepFirst) {
  Use(Matmul(2, 8, 3));
  Loop fused = s_.Fuse(L("c", 1), L("c", 2));
  auto [outer, inner] = s_.Split(fused, 4);
  EXPECT_REFUSED(s_.Reorder({inner, outer}), "is fused of reduction and other iterators of block 'c'");
  const std::string init = s_.DecomposeReduction("c", outer);
  EXPECT_REFUSED(s_.Vectorize(inner), "is fused of reduction and other iterators of block 'c'");
  s_.Reorder({inner, outer});
  ExpectSame();
}

TEST_F(ScheduleTest, AnnotationsAndTheirRefusals) {
  Use(Matmul(4, 4, 4));
  Loop i = L("c", 0), j = L("c", 1), k = L("c", 2);
  EXPECT_REFUSED(s_.Parallel(k), "parallel(loop 'c.r0'): parallel loop 'c.r0' binds a reduction iterator of block 'c'");
  EXPECT_REFUSED(
      s_.Vectorize(j),
      "vectorize(loop 'c.i1'): loop 'c.i1' is vectorized and must stay innermost, but loop 'c.r0' is inside");
  EXPECT_REFUSED(s_.Vectorize(k), "whose initialisation has to be decomposed first");
  s_.Parallel(i);
  EXPECT_REFUSED(s_.Parallel(j), "parallel loop 'c.i1' is inside parallel loop 'c.i0'");
  EXPECT_REFUSED(s_.Unroll(i), "unroll(loop 'c.i0'): the loop is parallel already");
  s_.Unroll(j);
  s_.DecomposeReduction("c", k);
  s_.Vectorize(k);
  EXPECT_THAT(Text(), HasSubstr("parallel c.i0"));
  EXPECT_THAT(Text(), HasSubstr("unroll c.i1"));
  EXPECT_THAT(Text(), HasSubstr("vectorize c.r0"));
  ExpectSame();
}

// Neighbouring tiles compute the columns that they share twice: into scratch of their own they may, in parallel.
TEST_F(ScheduleTest, ParallelIterationsMayRepeatTheirOwnScratch) {
  Use(Neighbours(3, 8));
  auto [tile, column] = s_.Split(L("out", 1), 4);
  s_.Reorder({tile, L("out", 0), column});
  s_.ComputeAt("twice", tile);
  s_.Parallel(tile);
  ExpectSame();
}

TEST_F(ScheduleTest, ParallelRefusesIterationsThatWriteTheSame) {
  ir::ProgramBuilder b("scaled");
  ir::Buffer x = b.Input("x", DType::kF32, {4, 6});
  ir::Buffer sum = b.Reduce("sum", DType::kF32, {4}, {6}, ir::Combiner::kSum, [&](auto& i, auto& r) {
    return Load(x, {i[0], r[0]});
  });
  b.MarkOutput(b.Compute("out", DType::kF32, {4, 6}, [&](auto& i) { return Load(x, i) * Load(sum, {i[0]}); }));
  Use(*b.Finish());
  Loop row = L("out", 0), column = L("out", 1);
  s_.ComputeAt("sum", column);
  // Below the sum the whole row is written, again in each of the old columns.
  s_.ReverseComputeAt("out", L("sum", 2));
  ExpectSame();
  EXPECT_REFUSED(s_.Parallel(column),
                 "iterations of parallel loop 'out.i1' may write the same elements in block 'out'");
  s_.Parallel(row);
  ExpectSame();
}

TEST_F(ScheduleTest, ParallelSeesThroughFusedAndSplitLoops) {
  for (int64_t factor : {2, 4, 7, 8, 14, 16, 35, 64, 100}) {
    ir::ProgramBuilder b("copy");
    ir::Buffer x = b.Input("x", DType::kF32, {300, 5, 7});
    b.MarkOutput(b.Compute("out", DType::kF32, {300, 5, 7}, [&](auto& i) { return Load(x, i); }));
    Use(*b.Finish());
    Loop fused = s_.Fuse(s_.Fuse(L("out", 0), L("out", 1)), L("out", 2));
    auto [outer, lane] = s_.Split(fused, factor);
    s_.Vectorize(lane);
    s_.Parallel(outer);
    EXPECT_TRUE(s_.status().ok()) << s_.status();
    Use(program_);
    fused = s_.Fuse(s_.Fuse(L("out", 0), L("out", 1)), L("out", 2));
    s_.Parallel(fused);
    EXPECT_TRUE(s_.status().ok()) << s_.status();
  }
}

TEST_F(ScheduleTest, PartitionLeavesNoPredicateInFullIterations) {
  Use(Elementwise(2, 11));
  auto [outer, inner] = s_.Split(L("out", 1), 4);
  s_.Partition(outer);
  ExpectSame();
  const std::string text = LoweredText();
  EXPECT_THAT(text, ::testing::Not(HasSubstr("if")));
  EXPECT_THAT(text, HasSubstr("for out.i1.o in 0..2"));
  EXPECT_THAT(text, HasSubstr("in 0..3"));
  EXPECT_THAT(s_.Blocks(), ElementsAre("twice", "out", "out_tail"));
}

TEST_F(ScheduleTest, PartitionMasksOnlyTheLastVector) {
  Use(Elementwise(2, 11));
  auto [tile, column] = s_.Split(L("out", 1), 8);
  auto [vector, lane] = s_.Split(column, 2);
  s_.Vectorize(lane);
  s_.Partition(tile);
  ExpectSame();
  const std::string text = LoweredText();
  EXPECT_THAT(text, HasSubstr("if out.i1.i.i_2 < 1"));
  EXPECT_EQ(text.find("if"), text.rfind("if")) << text;
}

TEST_F(ScheduleTest, PartitionOfOneTileIsStatic) {
  Use(Elementwise(3, 5));
  auto [tile, column] = s_.Split(L("out", 1), 8);
  s_.Partition(tile);
  ExpectSame();
  EXPECT_THAT(LoweredText(), ::testing::Not(HasSubstr("if")));
  EXPECT_THAT(LoweredText(), HasSubstr("in 0..5"));
}

TEST_F(ScheduleTest, PartitionWithoutPredicatesChangesNothing) {
  Use(Elementwise(3, 5));
  const std::string before = Text();
  s_.Partition(L("out", 0));
  EXPECT_EQ(Text(), before);
  EXPECT_REFUSED(s_.Partition(nullptr), "partition(no loop)");
}

TEST_F(ScheduleTest, AnnotationsOfPartitionedLoopsReachTheirCopies) {
  Use(Elementwise(2, 11));
  auto [outer, inner] = s_.Split(L("out", 1), 4);
  s_.Partition(outer);
  s_.Unroll(inner);
  ExpectSame();
  EXPECT_THAT(Text(), ::testing::Not(HasSubstr("for out.i1.i")));
}

// A reduction split unevenly: the tail sums up just what is left.
TEST_F(ScheduleTest, PartitionCutsReductions) {
  Use(Matmul(2, 4, 7));
  auto [outer, inner] = s_.Split(L("c", 2), 4);
  s_.Partition(outer);
  ExpectSame();
  s_ = Schedule(program_);
  std::tie(outer, inner) = s_.Split(L("c", 2), 4);
  s_.Reorder({outer, L("c", 0), L("c", 1), inner});
  std::string init = s_.DecomposeReduction("c", outer);
  s_.Partition(outer);
  ExpectSame();
  EXPECT_THAT(LoweredText(), ::testing::Not(HasSubstr("if")));
}

TEST_F(ScheduleTest, PeelGivesTheEndsLoopsOfTheirOwn) {
  Use(Neighbours(2, 9));
  s_.Inline("twice");
  auto [first, middle, last] = s_.Peel(L("out", 1), 1, 2);
  EXPECT_EQ(s_.Extent(first), 1);
  EXPECT_EQ(s_.Extent(middle), 6);
  EXPECT_EQ(s_.Extent(last), 2);
  EXPECT_THAT(s_.Blocks(), ElementsAre("out", "out_part", "out_part1"));
  ExpectSame();
  // Only the first column asks whether it has a neighbour, and knows.
  EXPECT_THAT(LoweredText(), ::testing::Not(HasSubstr("select")));
  s_.Unroll(last);
  s_.Vectorize(middle);
  EXPECT_THAT(Text(), HasSubstr("unroll out.i1.last"));
  EXPECT_THAT(Text(), HasSubstr("vectorize out.i1.middle"));
  ExpectSame();
}

TEST_F(ScheduleTest, PeelOfAllIterationsLeavesNoMiddle) {
  Use(Elementwise(2, 4));
  auto [first, middle, last] = s_.Peel(L("out", 1), 0, 4);
  EXPECT_EQ(first, nullptr);
  EXPECT_EQ(middle, nullptr);
  EXPECT_EQ(s_.Extent(last), 4);
  ExpectSame();
}

// Scratch of one tile is that of each part, so a part can put it into registers.
TEST_F(ScheduleTest, PeeledPartsHaveScratchOfTheirOwn) {
  Use(PackedMatmul(3, 12, 5, 4));
  auto [tile, column] = s_.Split(L("out", 1), 4);
  s_.ComputeAt("acc", tile);
  s_.SetScope("acc", Scope::kRegister);
  const std::string init = s_.DecomposeReduction("acc", s_.Loops("acc").back());
  s_.Peel(tile, 1, 1);
  ExpectSame();
  for (const char* name : {"acc", "acc_1", "acc_2"})
    EXPECT_THAT(LoweredText(), HasSubstr(absl::StrCat("alloc ", name, ": f32[1,4] register")));
}

// Loops below the peeled one were copied: the handles stand for all of them.
TEST_F(ScheduleTest, AnnotationsAndPeelingReachTheCopiesOfPeeledLoops) {
  Use(Elementwise(6, 8));
  Loop column = L("out", 1);
  s_.Peel(L("out", 0), 1, 1);
  auto [first, middle, last] = s_.Peel(column, 2, 1);
  s_.Unroll(first);
  s_.Vectorize(middle);
  ExpectSame();
  const std::string text = Text();
  EXPECT_THAT(text, ::testing::Not(HasSubstr("for out.i1.first")));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("for out.i1.middle")));
  EXPECT_THAT(text, HasSubstr("for out.i1.last"));
}

TEST_F(ScheduleTest, PeelCutsReductions) {
  Use(Matmul(2, 3, 7));
  Loop k = L("c", 2);
  EXPECT_REFUSED(s_.Peel(k, 2, 1), "it reduces in block 'c', whose initialisation has to be decomposed first");
  s_.DecomposeReduction("c", k);
  s_.Peel(k, 2, 1);
  ExpectSame();
  EXPECT_THAT(s_.Blocks(), ElementsAre("c_init", "c", "c_part", "c_part1"));
}

TEST_F(ScheduleTest, PeelRefusals) {
  Use(Elementwise(4, 4));
  Loop row = L("out", 0), column = L("out", 1);
  EXPECT_REFUSED(s_.Peel(column, 3, 2), "peel(loop 'out.i1', first 3, last 2): a loop of 4 iterations has no 3 first");
  EXPECT_REFUSED(s_.Peel(column, -1, 0), "has no -1 first");
  EXPECT_REFUSED(s_.Peel(nullptr, 1, 1), "an empty handle");
  s_.Vectorize(column);
  s_.Parallel(row);
  EXPECT_REFUSED(s_.Peel(column, 1, 0), "only loops that run one iteration after another can be peeled");
  EXPECT_REFUSED(s_.Peel(row, 1, 0), "only loops that run one iteration after another can be peeled");
}

// What adds nothing under a condition is not computed where it does not hold.
TEST_F(ScheduleTest, ConditionsOfAddendsLeaveTheLoopsThatDoNotChangeThem) {
  Use(PaddedSum(5, 6));
  s_.DecomposeReduction("sum", s_.Loops("sum")[2]);
  ExpectSame();
  EXPECT_THAT(LoweredText(), ::testing::Not(HasSubstr("select")));
  EXPECT_THAT(LoweredText(), HasSubstr("if"));
}

TEST_F(ScheduleTest, InlinePutsTheProducerIntoItsReaders) {
  Use(Neighbours(3, 4));
  s_.Inline("twice");
  EXPECT_THAT(s_.Blocks(), ElementsAre("out"));
  EXPECT_THAT(Text(), ::testing::Not(HasSubstr("alloc")));
  ExpectSame();
}

TEST_F(ScheduleTest, InlineRefusals) {
  Use(PackedMatmul(3, 4, 5, 2));
  EXPECT_REFUSED(s_.Inline("acc"), "inline(block 'acc'): it is a reduction");
  EXPECT_REFUSED(s_.Inline("out"), "inline(block 'out'): 'out' is an output of the function");
  Use(Elementwise(2, 11));
  auto [outer, inner] = s_.Split(L("twice", 1), 4);
  s_.Partition(outer);
  EXPECT_REFUSED(s_.Inline("twice"), "'twice' is written by 2 blocks");
  Use(Elementwise(2, 4));
  s_.TransformLayout("twice", {2, 2, 2}, [](auto& i) {
    return std::vector<Expr>{i[0], i[1] / Expr(2), i[1] % Expr(2)};
  });
  EXPECT_REFUSED(s_.Inline("twice"), "is not an iterator of its own");
}

TEST_F(ScheduleTest, ComputeAtMakesWhatTheReadersNeed) {
  Use(Neighbours(3, 8));
  auto [outer, inner] = s_.Split(L("out", 1), 4);
  s_.ComputeAt("twice", outer);
  EXPECT_THAT(LoopNames("twice"), ElementsAre("out.i0", "out.i1.o", "twice.i0", "twice.i1"));
  EXPECT_EQ(s_.Extent(L("twice", 3)), 5);  // four elements and the left neighbour
  EXPECT_THAT(Text(), HasSubstr("where 0 <= out.i1.o*4 - 1 + twice.i1"));
  ExpectSame();
  EXPECT_THAT(LoweredText(), HasSubstr("alloc twice: f32[1,5]"));
  // And deeper still.
  s_.ComputeAt("twice", inner);
  EXPECT_EQ(s_.Extent(L("twice", 4)), 2);
  ExpectSame();
}

TEST_F(ScheduleTest, ComputeAtTakesTheWholeDimensionWhereIndicesAreNotAffine) {
  Use(PackedMatmul(4, 4, 2, 2));
  Loop fused = s_.Fuse(L("out", 0), L("out", 1));
  auto [outer, inner] = s_.Split(fused, 3);
  s_.ComputeAt("acc", outer);
  EXPECT_EQ(s_.Extent(L("acc", 1)), 4);
  EXPECT_EQ(s_.Extent(L("acc", 2)), 4);
  ExpectSame();
}

TEST_F(ScheduleTest, ComputeAtRefusals) {
  Use(Softmax(3, 4));
  Loop row = L("out", 0);
  EXPECT_REFUSED(s_.ComputeAt("power", row),
                 "compute_at(block 'power', loop 'out.i0'): its reader 'total' is not below the loop");
  EXPECT_REFUSED(s_.ComputeAt("out", L("total", 0)), "'out' is an output of the function");
  EXPECT_REFUSED(s_.ComputeAt("none", row), "block 'none' is not in the function");
  s_.Vectorize(L("out", 1));
  EXPECT_REFUSED(s_.ComputeAt("total", L("out", 1)), "the loop is vectorized");
  Use(PackedMatmul(4, 4, 4, 2));
  s_.DecomposeReduction("acc", L("acc", 2));
  EXPECT_REFUSED(s_.ComputeAt("acc", L("out", 0)), "'acc' is written by 2 blocks");
}

TEST_F(ScheduleTest, ReverseComputeAtFollowsItsWriter) {
  Use(PackedMatmul(5, 8, 3, 4));
  auto [outer, inner] = s_.Split(L("acc", 0), 2);
  s_.ReverseComputeAt("out", outer);
  EXPECT_EQ(s_.Extent(L("out", 1)), 2);
  EXPECT_EQ(s_.Extent(L("out", 2)), 8);
  ExpectSame();
  EXPECT_THAT(LoweredText(), HasSubstr("alloc acc: f32[2,8]"));
}

TEST_F(ScheduleTest, ReverseComputeAtRefusals) {
  Use(PackedMatmul(4, 4, 3, 2));
  Loop row = L("acc", 0), column = L("acc", 1), reduce = L("acc", 2);
  EXPECT_REFUSED(s_.ReverseComputeAt("out", reduce), "loop 'acc.r0' still reduces in 'acc'");
  EXPECT_REFUSED(s_.ReverseComputeAt("acc", row), "it is below the loop already");
  EXPECT_REFUSED(s_.ReverseComputeAt("acc", L("out", 0)), "it comes before the loop");
  Use(Neighbours(3, 4));
  EXPECT_REFUSED(s_.ReverseComputeAt("out", L("twice", 1)),
                 "which may lie outside what one iteration of the loop makes");
  Use(Softmax(3, 4));
  EXPECT_REFUSED(s_.ReverseComputeAt("out", L("largest", 0)), "it also reads what 'power' computes after the loop");
  EXPECT_REFUSED(s_.ReverseComputeAt("total", L("largest", 0)), "it also reads what 'power' computes after the loop");
  s_.ReverseComputeAt("power", L("largest", 0));
  EXPECT_REFUSED(s_.ReverseComputeAt("power", L("total", 0)), "it comes before the loop");
  s_.ReverseComputeAt("total", L("largest", 0));
  ASSERT_TRUE(s_.status().ok()) << s_.status();
  EXPECT_REFUSED(s_.ReverseComputeAt("out", L("total", 1)),
                 "it also reads what 'power' computes for one iteration of loop 'largest.i0'");
}

TEST_F(ScheduleTest, ReverseComputeAtWantsWholeBoxes) {
  Use(Elementwise(4, 6));
  Loop fused = s_.Fuse(L("twice", 0), L("twice", 1));
  auto [outer, inner] = s_.Split(fused, 4);
  EXPECT_REFUSED(s_.ReverseComputeAt("out", outer), "is no dense box");
}

TEST_F(ScheduleTest, CacheReadCopiesThroughABuffer) {
  Use(Matmul(4, 6, 3));
  const std::string copy = s_.CacheRead("c", "b", Scope::kMemory);
  EXPECT_EQ(copy, "b_cache");
  EXPECT_THAT(s_.Blocks(), ElementsAre("b_cache", "c"));
  ExpectSame();
  auto [outer, inner] = s_.Split(L("c", 1), 2);
  s_.Reorder({outer, L("c", 0), inner});
  s_.ComputeAt(copy, outer);
  ExpectSame();
  EXPECT_THAT(LoweredText(), HasSubstr("alloc b_cache: f32[3,2]"));
  EXPECT_REFUSED(s_.CacheRead("c", "x", Scope::kMemory),
                 "cache_read(block 'c', 'x'): the block does not read 'x', but 'a', 'b_cache'");
  EXPECT_REFUSED(s_.CacheRead("c", "c", Scope::kMemory), "the block does not read 'c'");
}

TEST_F(ScheduleTest, CacheReadOfAnIntermediateComesAfterItsWriter) {
  Use(Neighbours(3, 8));
  s_.ComputeAt("twice", L("out", 0));
  const std::string copy = s_.CacheRead("out", "twice", Scope::kRegister);
  EXPECT_THAT(s_.Blocks(), ElementsAre("twice", copy, "out"));
  EXPECT_THAT(LoopNames(copy).front(), "out.i0");
  ExpectSame();
}

TEST_F(ScheduleTest, CacheWriteCopiesBack) {
  Use(Matmul(4, 6, 3));
  const std::string copy = s_.CacheWrite("c", Scope::kRegister);
  EXPECT_THAT(s_.Blocks(), ElementsAre("c", copy));
  ExpectSame();
  auto [rows, row] = s_.Split(L("c", 0), 2);
  auto [columns, column] = s_.Split(L("c", 2), 3);
  s_.Reorder({rows, columns, row, column});
  s_.ReverseComputeAt(copy, columns);
  ExpectSame();
  EXPECT_THAT(LoweredText(), HasSubstr("alloc c_register: f32[2,3] register"));
}

TEST_F(ScheduleTest, CacheWriteRefusals) {
  Use(Elementwise(4, 6));
  s_.ComputeAt("twice", L("out", 0));
  EXPECT_REFUSED(s_.CacheWrite("twice", Scope::kRegister), "is read inside loop 'out.i0' already");
  Use(Matmul(4, 6, 3));
  s_.DecomposeReduction("c", L("c", 0));
  EXPECT_REFUSED(s_.CacheWrite("c", Scope::kRegister), "'c' is written by other blocks too");
}

TEST_F(ScheduleTest, SetScopeMovesIntermediates) {
  Use(Elementwise(4, 6));
  s_.SetScope("twice", Scope::kRegister);
  EXPECT_THAT(Text(), HasSubstr("register"));
  ExpectSame();
  EXPECT_REFUSED(s_.SetScope("out", Scope::kRegister), "set_scope(block 'out'): 'out' is an output of the function");
}

TEST_F(ScheduleTest, DecomposeReductionInitialisesBeforeTheLoop) {
  Use(Matmul(3, 4, 5));
  s_.Reorder({L("c", 2), L("c", 1)});
  EXPECT_THAT(LoopNames("c"), ElementsAre("c.i0", "c.r0", "c.i1"));
  const std::string init = s_.DecomposeReduction("c", L("c", 1));
  EXPECT_EQ(init, "c_init");
  EXPECT_THAT(LoopNames(init), ElementsAre("c.i0", "c.i1"));
  EXPECT_THAT(s_.Blocks(), ElementsAre("c_init", "c"));
  ExpectSame();
  EXPECT_THAT(LoweredText(), ::testing::Not(HasSubstr("if")));
}

TEST_F(ScheduleTest, DecomposeReductionRefusals) {
  Use(PackedMatmul(3, 4, 5, 2));
  auto [outer, inner] = s_.Split(L("acc", 2), 2);
  EXPECT_REFUSED(s_.DecomposeReduction("acc", inner), "reduction loop 'acc.r0.o' is outside");
  EXPECT_REFUSED(s_.DecomposeReduction("acc", L("out", 0)), "the loop is not around the block");
  EXPECT_REFUSED(s_.DecomposeReduction("out", L("out", 0)), "the block has no initialisation");
  s_.DecomposeReduction("acc", outer);
  EXPECT_REFUSED(s_.DecomposeReduction("acc", outer), "the block has no initialisation");
}

TEST_F(ScheduleTest, RfactorKeepsPartialResults) {
  Use(Matmul(3, 4, 10));
  auto [outer, lane] = s_.Split(L("c", 2), 4);
  auto [partial, last] = s_.Rfactor("c", lane);
  EXPECT_EQ(partial, "c_rf");
  EXPECT_EQ(last, "c");
  EXPECT_THAT(Text(), HasSubstr("alloc c_rf: f32[3,4,4]"));
  ExpectSame();
  s_.Parallel(L("c", 0));
  s_.DecomposeReduction(partial, outer);
  s_.Vectorize(lane);
  s_.Partition(outer);
  ExpectSame();
  EXPECT_THAT(LoweredText(), HasSubstr("alloc c_rf: f32[1,1,4]"));
}

TEST_F(ScheduleTest, RfactorOfTheOnlyReductionLoop) {
  Use(Softmax(2, 6));
  s_.Rfactor("largest", L("largest", 1));
  ASSERT_TRUE(s_.status().ok()) << s_.status();
  absl::StatusOr<ir::Func> lowered = Lower(s_.func());
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_TRUE(SameResults(program_, *lowered));
}

TEST_F(ScheduleTest, RfactorRefusals) {
  Use(PackedMatmul(3, 4, 6, 2));
  EXPECT_REFUSED(s_.Rfactor("acc", L("acc", 0)), "rfactor(block 'acc', loop 'acc.i0'): the loop does not reduce");
  EXPECT_REFUSED(s_.Rfactor("acc", L("out", 0)), "the loop is not around the block");
  EXPECT_REFUSED(s_.Rfactor("out", L("out", 0)), "the block has no initialisation");
  s_.Fuse(L("acc", 1), L("acc", 2));
  EXPECT_REFUSED(s_.Rfactor("acc", L("acc", 1)), "is fused of reduction and other iterators");
}

TEST_F(ScheduleTest, TransformLayoutMovesElements) {
  Use(Neighbours(3, 10));
  s_.TransformLayout("twice", {3, 3, 4}, [](auto& i) {
    return std::vector<Expr>{i[1] / Expr(4), i[0], i[1] % Expr(4)};
  });
  EXPECT_THAT(Text(), HasSubstr("twice[i1/4, i0, i1%4]"));
  ExpectSame();
}

TEST_F(ScheduleTest, TransformLayoutRefusals) {
  Use(Elementwise(3, 10));
  EXPECT_REFUSED(s_.TransformLayout("out", {30}, [](auto& i) { return i; }),
                 "transform_layout(block 'out', 30): 'out' is an output");
  EXPECT_REFUSED(s_.TransformLayout("twice", {30}, [](auto& i) { return i; }),
                 "the map gives 2 indices for 1 dimensions");
  EXPECT_REFUSED(s_.TransformLayout("twice", {3, 9}, [](auto& i) { return i; }), "leaves dimension 1");
  EXPECT_REFUSED(s_.TransformLayout("twice", {10}, [](auto& i) { return std::vector<Expr>{i[1]}; }),
                 "two elements at one place");
  Use(Elementwise(100, 100));
  EXPECT_REFUSED(s_.TransformLayout("twice", {100, 99}, [](auto& i) { return i; }), "may leave dimension 1");
}

TEST_F(ScheduleTest, PrefetchRunsAhead) {
  Use(Matmul(4, 4, 8));
  s_.Prefetch("c", "b", L("c", 2), 3);
  EXPECT_THAT(Text(), HasSubstr("prefetch b[c.r0 + 3, c.i1]"));
  ExpectSame();
  EXPECT_REFUSED(s_.Prefetch("c", "b", L("c", 2), 0), "distance must be at least 1");
  EXPECT_REFUSED(s_.Prefetch("c", "x", L("c", 2), 1), "the block does not read 'x'");
  Use(Elementwise(4, 4));
  EXPECT_REFUSED(s_.Prefetch("out", "twice", L("out", 0), 1), "'twice' is scratch");
  EXPECT_REFUSED(s_.Prefetch("twice", "x", L("out", 0), 1), "the loop is not around the block");
  s_.Vectorize(L("twice", 1));
  EXPECT_REFUSED(s_.Prefetch("twice", "x", L("twice", 1), 1), "the loop is vectorized");
}

TEST_F(ScheduleTest, PrefetchOfAnOuterLoopsNextIterationGoesThroughInnerLoops) {
  Use(Matmul(6, 4, 8));
  auto [tile, row] = s_.Split(L("c", 0), 3);
  const Loop column = L("c", 2), k = L("c", 3);
  s_.Reorder({tile, k, row, column});
  s_.Prefetch("c", "a", k, 1, tile, {row});
  EXPECT_THAT(Text(), HasSubstr("prefetch a[(c.i0.o + 1)*3 + c.i0.i, c.r0]"));
  EXPECT_THAT(Text(), HasSubstr("unroll c.i0.i in 0..3"));
  ExpectSame();
  EXPECT_REFUSED(s_.Prefetch("c", "a", k, 1, row), "loop 'c.i0.i' is not around loop 'c.r0'");
  EXPECT_REFUSED(s_.Prefetch("c", "a", k, 1, tile, {tile}), "a loop to go through is not between");
}

TEST_F(ScheduleTest, PrefetchAtFetchesWhatLoopsReadElsewhere) {
  Use(Matmul(6, 4, 8));
  const Loop row = L("c", 0), column = L("c", 1);
  auto [k, step] = s_.Split(L("c", 2), 2);
  s_.PrefetchAt("c", "b", k, {{k, ir::Expr(0)}, {step, ir::Expr(row) * ir::Expr(4) + ir::Expr(k)}});
  EXPECT_THAT(Text(), HasSubstr("prefetch b[c.i0*4 + c.r0.o, c.i1]"));
  ExpectSame();
  EXPECT_REFUSED(s_.PrefetchAt("c", "b", k, {{row, ir::Expr(step)}}), "loop 'c.r0.i' is not around loop 'c.r0.o'");
  EXPECT_REFUSED(s_.PrefetchAt("c", "b", k, {{row, ir::Expr(0)}}, {column}), "a loop to go through is not between");
}

TEST_F(ScheduleTest, PrefetchAtFetchesWhatABlockWritesToBeWritten) {
  Use(Elementwise(6, 8));
  auto [tile, row] = s_.Split(L("out", 0), 3);
  s_.PrefetchAt("out", "out", tile, {}, {row});
  EXPECT_THAT(Text(), HasSubstr("prefetch for store out[out.i0.o*3 + out.i0.i, 0]"));
  ExpectSame();
  EXPECT_REFUSED(s_.PrefetchAt("twice", "twice", L("twice", 0), {}), "'twice' is scratch");
}

TEST_F(ScheduleTest, PartitionLeavesNoPrefetchOfWhatIsNotComputed) {
  Use(Matmul(6, 4, 8));
  // Three tiles in chunks of two: the last chunk has one that is empty.
  auto [tiles, row] = s_.Split(L("c", 0), 2);
  auto [chunk, tile] = s_.Split(tiles, 2);
  s_.Reorder({chunk, tile, L("c", 4), row, L("c", 3)});
  s_.Prefetch("c", "b", L("c", 2), 1);
  s_.Partition(tile);
  ExpectSame();
  EXPECT_THAT(LoweredText(), HasSubstr("prefetch b["));
  EXPECT_THAT(LoweredText(), ::testing::Not(HasSubstr("else")));
}

// Accumulators that go to memory between blocks of the reduction.
TEST_F(ScheduleTest, SplitReductionWithAccumulatorsInMemory) {
  Use(Matmul(4, 8, 10));
  auto [block, k] = s_.Split(L("c", 2), 4);
  s_.Reorder({block, L("c", 0), L("c", 1), k});
  s_.DecomposeReduction("c", block);
  s_.Partition(block);
  ExpectSame();
  EXPECT_THAT(LoweredText(), ::testing::Not(HasSubstr("if")));
}

}  // namespace
}  // namespace temper
