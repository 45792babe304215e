// Functions that leave out what lies behind an extent, beside those that do not.
#include "compiler/schedule/skip_behind.h"

#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "base/division.h"
#include "compiler/schedule/lower.h"
#include "compiler/schedule/nest.h"
#include "tests/schedule/programs.h"

namespace temper {
namespace {

using ir::Expr;

constexpr double kUntouched = -77;

Behind Along(Behind::Kind kind, const ir::Buffer& buffer, size_t dim) {
  Behind b{.kind = kind, .shape = buffer->shape, .index = {}, .place = {}};
  for (size_t i = 0; i < buffer->shape.size(); ++i) b.index.push_back(ir::MakeVar("x"));
  b.place = b.index[dim];
  return b;
}

// What a function with an extent as its last operand leaves in its output, which it finds untouched. Operands hold
// numbers that are exact in any sum; what `facts` say of them is so.
std::vector<double> RunTold(const ir::Func& func, const std::vector<OperandFacts>& facts, int64_t extent) {
  std::vector<NDArray> args;
  for (size_t p = 0; p < func.params.size(); ++p) {
    NDArray& a = args.emplace_back(func.params[p]->dtype, func.params[p]->shape);
    const bool is_output = p + 1 == func.params.size(), is_extent = p + 2 == func.params.size();
    for (int64_t i = 0; i < a.size(); ++i)
      a.Set(i, is_output ? kUntouched : is_extent ? static_cast<double>(extent) : static_cast<double>((i * 7) % 5 - 2));
    if (is_output || is_extent) continue;
    for (const Behind& b : facts[p].behind) {
      int64_t inner = 1;  // of the dimension that the facts are about
      size_t dim = 0;
      while (b.place->var != b.index[dim]) ++dim;
      for (size_t d = dim + 1; d < a.shape().size(); ++d) inner *= a.shape()[d];
      for (int64_t i = 0; i < a.size(); ++i) {
        const bool behind = i / inner % a.shape()[dim] >= extent;
        if (b.kind == Behind::kMask) a.Set(i, behind ? 0 : 1);
        if (b.kind == Behind::kValue && behind) a.Set(i, b.value);
        if (b.kind == Behind::kUnread && behind) a.Set(i, std::numeric_limits<double>::quiet_NaN());
      }
    }
  }
  const absl::Status status = ir::Interpret(func, args);
  EXPECT_TRUE(status.ok()) << status << "\n" << ir::Text(func);
  std::vector<double> result;
  for (int64_t i = 0; i < args.back().size(); ++i) result.push_back(args.back().At(i));
  return result;
}

// The function told an extent that it makes nothing of.
ir::Func WithExtent(ir::Func func) {
  func.params.insert(func.params.end() - 1, ir::MakeBuffer("unused", DType::kI64, {}));
  return func;
}

struct Skipped {
  ir::Func with, without;  // lowered
};
Skipped Skip(const ir::Func& scheduled, const std::vector<OperandFacts>& facts, const std::vector<Behind>& output) {
  const std::optional<Skipping> skipping = SkipBehind(scheduled, facts, output, {0});
  EXPECT_TRUE(skipping.has_value()) << ir::Text(scheduled);
  if (!skipping.has_value()) return {};
  EXPECT_EQ(skipping->func.params.size(), scheduled.params.size() + 1);
  const absl::StatusOr<ir::Func> with = Lower(skipping->func), without = Lower(scheduled);
  EXPECT_TRUE(with.ok() && without.ok()) << with.status() << without.status();
  return {*with, WithExtent(*without)};
}

int64_t Untouched(const std::vector<double>& results) { return std::count(results.begin(), results.end(), kUntouched); }

constexpr int64_t kRows = 23, kColumns = 37, kSteps = 5, kPanel = 16;

// How many rows are made of tiles of so many, if one of which few rows are left has but a quarter or a half of them.
int64_t Made(int64_t rows, int64_t tile) {
  const int64_t whole = (rows - 1) / tile * tile;
  for (const int64_t shorter : {(tile + 3) / 4, (tile + 1) / 2}) {
    if (tile >= 4 && rows - whole <= shorter) return whole + shorter;
  }
  return std::min(whole + tile, kRows);
}

// At each extent the rows that there are have what they have without, and most of the others are left alone.
void ExpectRows(const Skipped& f, const std::vector<OperandFacts>& facts, int64_t tile) {
  for (int64_t extent = 1; extent <= kRows; ++extent) {
    const std::vector<double> got = RunTold(f.with, facts, extent), want = RunTold(f.without, facts, extent);
    const auto end = static_cast<std::ptrdiff_t>(extent * kColumns);
    EXPECT_TRUE(std::equal(got.begin(), got.begin() + end, want.begin())) << extent << "\n" << ir::Text(f.with);
    EXPECT_EQ(Untouched(got), (kRows - Made(extent, tile)) * kColumns) << extent << "\n" << ir::Text(f.with);
  }
}

TEST(SkipBehindTest, TilesOfRowsThatAreNotThereAreNotComputed) {
  const ir::Func program = PackedMatmul(kRows, kColumns, kSteps, kPanel);
  std::vector<OperandFacts> facts(3);
  facts[0].behind = {Along(Behind::kUnread, program.params[0], 0)};
  facts[1].constant = facts[2].constant = true;
  for (const int64_t tile : {2, 4, 9}) {
    Schedule s(program);
    ScheduleTiles(s, tile, kPanel, 8);
    ASSERT_TRUE(s.status().ok()) << s.status();
    ExpectRows(Skip(s.func(), facts, {Along(Behind::kUnread, program.params.back(), 0)}), facts, tile);
  }
}

TEST(SkipBehindTest, RowsOfWholeNumbersAreLeftOutToo) {
  ir::ProgramBuilder b("integers");
  const ir::Buffer a = b.Input("a", DType::kI8, {kRows, kSteps}),
                   weights = b.Input("b", DType::kI8, {kSteps, kColumns});
  const ir::Buffer sum = b.Reduce("sum", DType::kI32, {kRows, kColumns}, {kSteps}, ir::Combiner::kSum,
                                  [&](const std::vector<Expr>& i, const std::vector<Expr>& k) {
                                    return ir::Cast(ir::Load(a, {i[0], k[0]}), DType::kI32) *
                                           ir::Cast(ir::Load(weights, {k[0], i[1]}), DType::kI32);
                                  });
  b.MarkOutput(b.Compute("out", DType::kI8, {kRows, kColumns}, [&](const std::vector<Expr>& i) {
    return ir::Cast(ir::Min(ir::Load(sum, i), ir::Const(100, DType::kI32)), DType::kI8);
  }));
  const absl::StatusOr<ir::Func> program = b.Finish();
  ASSERT_TRUE(program.ok()) << program.status();
  const std::vector<OperandFacts> facts(2);
  ExpectRows(Skip(*program, facts, {Along(Behind::kUnread, program->params.back(), 0)}), facts, 1);
}

TEST(SkipBehindTest, StagesOfARowAreLeftOutWithIt) {
  const ir::Func program = Softmax(kRows, kColumns);
  std::vector<OperandFacts> facts(1);
  facts[0].behind = {Along(Behind::kUnread, program.params[0], 0)};
  Schedule s(program);
  for (const char* stage : {"largest", "power", "total", "out"}) s.Split(s.Loops(stage)[0], 3);
  ExpectRows(Skip(s.func(), facts, {Along(Behind::kUnread, program.params.back(), 0)}), facts, 1);
}

// Where rows and columns are one loop, it ends with the vector that has the last element.
TEST(SkipBehindTest, AFusedLoopEndsWithTheLastRow) {
  ir::ProgramBuilder b("twice");
  const ir::Buffer in = b.Input("in", DType::kF32, {kRows, kColumns});
  b.MarkOutput(b.Compute("out", DType::kF32, {kRows, kColumns},
                         [&](const std::vector<Expr>& i) { return ir::Load(in, i) + ir::Load(in, i); }));
  const absl::StatusOr<ir::Func> program = b.Finish();
  ASSERT_TRUE(program.ok()) << program.status();
  Schedule s(*program);
  const std::vector<Loop> loops = s.Loops("out");
  const auto [vectors, lane] = s.Split(s.Fuse(loops[0], loops[1]), 8);
  s.Vectorize(lane);
  s.Parallel(vectors);
  std::vector<OperandFacts> facts(1);
  facts[0].behind = {Along(Behind::kUnread, program->params[0], 0)};
  const Skipped f = Skip(s.func(), facts, {Along(Behind::kUnread, program->params[1], 0)});
  for (int64_t extent = 1; extent <= kRows; ++extent) {
    const std::vector<double> got = RunTold(f.with, facts, extent), want = RunTold(f.without, facts, extent);
    const auto end = static_cast<std::ptrdiff_t>(extent * kColumns);
    EXPECT_TRUE(std::equal(got.begin(), got.begin() + end, want.begin())) << extent;
    EXPECT_EQ(Untouched(got), kRows * kColumns - std::min((extent * kColumns + 7) / 8 * 8, kRows * kColumns));
  }
}

// Sums over what there is, where the terms behind it are zero; and the whole result is there.
TEST(SkipBehindTest, TermsThatAreZeroAreNotAdded) {
  const ir::Func program = Matmul(4, kColumns, kRows);
  std::vector<OperandFacts> facts(2);
  facts[0].behind = {Along(Behind::kValue, program.params[0], 1)};
  facts[1].behind = {Along(Behind::kValue, program.params[1], 0)};
  Schedule s(program);
  const Skipped f = Skip(s.func(), facts, {});
  for (int64_t extent : {1, 2, 22, 23})
    EXPECT_EQ(RunTold(f.with, facts, extent), RunTold(f.without, facts, extent)) << extent;
  // Nothing is read behind the extent: with other numbers there the sums are the same.
  facts[0].behind[0].value = facts[1].behind[0].value = 3;
  const std::vector<double> other = RunTold(f.with, facts, 2);
  facts[0].behind[0].value = facts[1].behind[0].value = 0;
  EXPECT_EQ(other, RunTold(f.without, facts, 2));
}

TEST(SkipBehindTest, PartsOfASumBeginEachWithATermOfTheirOwn) {
  const ir::Func program = Matmul(4, kColumns, 24);
  std::vector<OperandFacts> facts(2);
  facts[0].behind = {Along(Behind::kValue, program.params[0], 1)};
  facts[1].behind = {Along(Behind::kValue, program.params[1], 0)};
  Schedule s(program);
  const std::string block = s.Blocks()[0];
  const auto [part, step] = s.Split(s.Loops(block).back(), 6);
  s.Rfactor(block, part);
  ASSERT_TRUE(s.status().ok()) << s.status();
  const std::optional<Skipping> skipping = SkipBehind(s.func(), facts, {}, {0});
  if (!skipping.has_value()) return;  // nor would that be wrong
  const absl::StatusOr<ir::Func> with = Lower(skipping->func), without = Lower(s.func());
  ASSERT_TRUE(with.ok() && without.ok());
  for (int64_t extent : {1, 6, 7, 24})
    EXPECT_EQ(RunTold(*with, facts, extent), RunTold(WithExtent(*without), facts, extent)) << extent;
}

// out[i, j] = inside[i] ? sum over k of a[i, k] * b[k, j] : 0
// The stage "sum": a[kRows, kSteps] times weights[kSteps, 4].
ir::Buffer SumOfProducts(ir::ProgramBuilder& b, const ir::Buffer& a, const ir::Buffer& weights) {
  return b.Reduce("sum", DType::kF32, {kRows, 4}, {kSteps}, ir::Combiner::kSum,
                  [&](const std::vector<Expr>& i, const std::vector<Expr>& k) {
                    return ir::Load(a, {i[0], k[0]}) * ir::Load(weights, {k[0], i[1]});
                  });
}

TEST(SkipBehindTest, WhatAMaskDoesNotTakeIsNotComputed) {
  ir::ProgramBuilder b("masked");
  const ir::Buffer a = b.Input("a", DType::kF32, {kRows, kSteps}), weights = b.Input("b", DType::kF32, {kSteps, 4}),
                   inside = b.Input("inside", DType::kBool, {kRows});
  const ir::Buffer sum = SumOfProducts(b, a, weights);
  b.MarkOutput(b.Compute("out", DType::kF32, {kRows, 4}, [&](const std::vector<Expr>& i) {
    return ir::Select(ir::Load(inside, {i[0]}), ir::Load(sum, i), ir::Float(0));
  }));
  const absl::StatusOr<ir::Func> program = b.Finish();
  ASSERT_TRUE(program.ok()) << program.status();
  std::vector<OperandFacts> facts(3);
  facts[1].constant = true;
  facts[2].behind = {Along(Behind::kMask, inside, 0)};
  for (const bool beside : {false, true}) {  // sums by themselves, and beside each row
    Schedule s(*program);
    if (beside) s.ComputeAt("sum", s.Loops("out")[0]);
    const Skipped f = Skip(s.func(), facts, {});
    for (int64_t extent : {1, 9, 23}) {
      EXPECT_EQ(RunTold(f.with, facts, extent), RunTold(f.without, facts, extent)) << extent << "\n"
                                                                                   << ir::Text(f.with);
    }
    // The sums' operand is not read where the mask is false.
    facts[0].behind = {Along(Behind::kUnread, a, 0)};
    for (const double x : RunTold(f.with, facts, 5)) EXPECT_FALSE(std::isnan(x));
    facts[0].behind.clear();
  }
}

// How many conditions a function has.
int64_t Conditions(const ir::Func& f) {
  int64_t conditions = 0;
  ir::VisitStmt(f.body, [&](const ir::Stmt& s) { conditions += s->kind == ir::StmtKind::kIf ? 1 : 0; });
  return conditions;
}

// Zeros are read a little further than the sums go that they stand for.
TEST(SkipBehindTest, SumsEndBeforeTheZerosBehindThem) {
  constexpr int64_t kFurther = 4;
  ir::ProgramBuilder b("zeros");
  const ir::Buffer a = b.Input("a", DType::kF32, {kRows, kSteps}), weights = b.Input("b", DType::kF32, {kSteps, 4}),
                   inside = b.Input("inside", DType::kBool, {kRows}), within = b.Input("within", DType::kBool, {kRows});
  const ir::Buffer sum = SumOfProducts(b, a, weights);
  const ir::Buffer out = b.Compute("out", DType::kF32, {kRows, 4}, [&](const std::vector<Expr>& i) {
    const Expr one = ir::Select(ir::Load(inside, {i[0]}), ir::Load(sum, i), ir::Float(0));
    return ir::Select(ir::Load(within, {i[0]}), one, ir::Float(0));
  });
  b.MarkOutput(out);
  const absl::StatusOr<ir::Func> program = b.Finish();
  ASSERT_TRUE(program.ok()) << program.status();
  std::vector<OperandFacts> facts(4);
  facts[1].constant = true;
  facts[2].behind = {Along(Behind::kMask, inside, 0)};
  Schedule s(*program);
  s.ComputeAt("sum", s.Loops("out")[0]);
  Behind unread = Along(Behind::kUnread, out, 0);
  unread.place = unread.place - Expr(kFurther);
  const Skipped f = Skip(s.func(), facts, {unread});
  for (const int64_t extent : {1, 9, 23}) {
    const std::vector<double> got = RunTold(f.with, facts, extent), want = RunTold(f.without, facts, extent);
    const int64_t end = std::min(kRows, extent + kFurther);
    EXPECT_TRUE(std::equal(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(end * 4), want.begin())) << extent;
    EXPECT_EQ(Untouched(got), (kRows - end) * 4) << extent << "\n" << ir::Text(f.with);
  }
  // One condition for the rows, and one for their sums; one more where another extent ends these, too.
  std::optional<Skipping> skipping = SkipBehind(s.func(), facts, {unread}, {0});
  EXPECT_EQ(Conditions(skipping->func), 2) << ir::Text(skipping->func);
  facts[3].behind = {Along(Behind::kMask, within, 0)};
  facts[3].behind[0].extent = 1;
  skipping = SkipBehind(s.func(), facts, {unread}, {0, 1});
  EXPECT_EQ(Conditions(skipping->func), 3) << ir::Text(skipping->func);
}

// What is fetched ahead is of no tile.
TEST(SkipBehindTest, LoopsThatOnlyFetchAheadMakeNoShortTiles) {
  const ir::Func program = PackedMatmul(kRows, kColumns, kSteps, kPanel);
  std::vector<OperandFacts> facts(3);
  facts[1].constant = facts[2].constant = true;
  Schedule s(program);
  ScheduleTiles(s, 4, kPanel, 8);
  ir::Func func = s.func();
  // Rows in pairs: a tile of four is two of them, too few for a short tile.
  Behind output = Along(Behind::kUnread, func.params.back(), 0);
  output.place = output.index[0] / Expr(2) * Expr(2);
  const auto short_tiles = [&] {
    return absl::StrContains(ir::Text(SkipBehind(func, facts, {output}, {0})->func), "_short");
  };
  ASSERT_FALSE(short_tiles());
  func.body = ir::RewriteStmt(func.body, [](const ir::Stmt& stmt) -> ir::Stmt {
    const bool makes = stmt->kind == ir::StmtKind::kFor && stmt->for_kind == ir::ForKind::kUnrolled;
    if (!makes) return nullptr;
    const ir::Var i = ir::MakeVar("ahead");
    const ir::Buffer& b = nest::BlocksIn(stmt).front()->buffer;
    std::vector<Expr> at(b->shape.size(), Expr(0));
    const ir::Stmt fetch = ir::For(i, 16, ir::ForKind::kUnrolled, ir::Prefetch(b, at, true));
    return ir::Seq({fetch, stmt});
  });
  EXPECT_FALSE(short_tiles());
}

// A step of a sequence that has ended: nothing of it.
TEST(SkipBehindTest, AFunctionAllOfWhichLiesBehindDoesNothing) {
  const ir::Func program = Matmul(4, kColumns, kSteps);
  const std::vector<OperandFacts> facts(2);
  Behind step = Along(Behind::kUnread, program.params.back(), 0);
  step.place = Expr(7);
  const Skipped f = Skip(program, facts, {step});
  for (int64_t extent : {1, 7})
    EXPECT_EQ(Untouched(RunTold(f.with, facts, extent)), 4 * kColumns) << extent << "\n" << ir::Text(f.with);
  EXPECT_EQ(RunTold(f.with, facts, 8), RunTold(f.without, facts, 8));
}

// Three lines of rows of which each ends behind the extent, where rows are `step` apart.
void ExpectLines(int64_t in_line, int64_t step, int64_t tile) {
  const int64_t rows = 3 * in_line;
  const ir::Func program = PackedMatmul(rows, kColumns, kSteps, kPanel);
  std::vector<OperandFacts> facts(3);
  facts[1].constant = facts[2].constant = true;
  Behind output = Along(Behind::kUnread, program.params.back(), 0);
  output.place = Expr(output.index[0]) % Expr(in_line) * Expr(step);
  Schedule s(program);
  ScheduleTiles(s, tile, kPanel, 8);
  ASSERT_TRUE(s.status().ok()) << s.status();
  const Skipped f = Skip(s.func(), facts, {output});
  for (int64_t extent = 1; extent <= in_line * step; ++extent) {
    const std::vector<double> got = RunTold(f.with, facts, extent), want = RunTold(f.without, facts, extent);
    for (int64_t row = 0; row < rows; ++row) {
      const auto at = static_cast<std::ptrdiff_t>(row * kColumns);
      const bool same = std::equal(got.begin() + at, got.begin() + at + kColumns, want.begin() + at);
      EXPECT_EQ(same, row % in_line < Made(CeilDiv(extent, step), tile)) << row << " of " << extent;
    }
  }
}

TEST(SkipBehindTest, TilesAreLeftOutInEachLine) { ExpectLines(16, 1, 4); }

TEST(SkipBehindTest, ATileThatIsAWholeLineHasShortOnes) { ExpectLines(8, 1, 8); }

// An extent may count in larger steps than elements, as that of an image does behind a window that stops at some.
TEST(SkipBehindTest, ShortTilesHaveAsManyElementsAsTheExtentHasSteps) {
  ExpectLines(16, 4, 4);
  ExpectLines(8, 4, 8);
}

// A long loop over lines each of which ends behind the extent goes over parts of lines, which are left out at once.
TEST(SkipBehindTest, PartsOfLinesAreLeftOutAtOnce) {
  constexpr int64_t kLines = 8, kInLine = 96, kWidth = 16, kLanes = 8;
  ir::ProgramBuilder b("twice");
  const ir::Buffer in = b.Input("in", DType::kF32, {kLines, kInLine, kWidth});
  b.MarkOutput(b.Compute("out", DType::kF32, {kLines, kInLine, kWidth},
                         [&](const std::vector<Expr>& i) { return ir::Load(in, i) + ir::Load(in, i); }));
  const absl::StatusOr<ir::Func> program = b.Finish();
  ASSERT_TRUE(program.ok()) << program.status();
  Schedule s(*program);
  const std::vector<Loop> loops = s.Loops("out");
  const auto [vectors, lane] = s.Split(s.Fuse(s.Fuse(loops[0], loops[1]), loops[2]), kLanes);
  s.Vectorize(lane);
  s.Parallel(vectors);
  ASSERT_TRUE(s.status().ok()) << s.status();
  const std::vector<OperandFacts> facts(1);
  const std::vector<Behind> output = {Along(Behind::kUnread, program->params[1], 1)};
  const std::optional<Skipping> skipping = SkipBehind(s.func(), facts, output, {0});
  ASSERT_TRUE(skipping.has_value());
  const auto is_part = [&](const ir::Stmt& loop) {
    return loop->kind == ir::StmtKind::kFor && loop->for_kind == ir::ForKind::kParallel &&
           loop->extent < kLines * kInLine * kWidth / kLanes;
  };
  EXPECT_TRUE(ir::AnyOf(skipping->func.body, is_part)) << ir::Text(skipping->func);
  const Skipped f = Skip(s.func(), facts, output);
  for (const int64_t extent : {int64_t{1}, int64_t{2}, int64_t{50}, kInLine - 1, kInLine}) {
    const std::vector<double> got = RunTold(f.with, facts, extent), want = RunTold(f.without, facts, extent);
    for (int64_t i = 0; i < std::ssize(got); ++i) {
      const bool before = i / kWidth % kInLine < extent;
      ASSERT_EQ(got[static_cast<size_t>(i)], before ? want[static_cast<size_t>(i)] : kUntouched) << i << " " << extent;
    }
  }
}

// Lines of lines: what one extent leaves in short tiles goes over the parts that another one's lines are cut into.
TEST(SkipBehindTest, ShortTilesOfOneExtentLieInPartsOfAnother) {
  constexpr int64_t kLines = 8, kInLine = 64, kTile = 4;
  const ir::Func program = PackedMatmul(8 * kLines * kInLine, kPanel, 2, kPanel);
  std::vector<OperandFacts> facts(3);
  facts[1].constant = facts[2].constant = true;
  Behind rows = Along(Behind::kUnread, program.params.back(), 0), lines = rows;
  rows.place = Expr(rows.index[0]) % Expr(kInLine);
  lines.extent = 1;
  lines.place = Expr(lines.index[0]) / Expr(kInLine) % Expr(kLines);
  Schedule s(program);
  ScheduleTiles(s, kTile, kPanel, 8);
  ASSERT_TRUE(s.status().ok()) << s.status();
  const std::optional<Skipping> skipping = SkipBehind(s.func(), facts, {rows, lines}, {0, 1});
  ASSERT_TRUE(skipping.has_value());
  EXPECT_EQ(skipping->extents, (std::vector<int>{0, 1}));
  const absl::StatusOr<ir::Func> lowered = Lower(skipping->func);
  EXPECT_TRUE(lowered.ok()) << lowered.status() << ir::Text(skipping->func);
}

// --- what is not read of operands

// out[i] = the sum of `taps` elements of x from stride * i - pad on
std::string UnreadOfWindow(int64_t stride, int64_t pad, int64_t taps) {
  ir::ProgramBuilder b("window");
  const ir::Buffer x = b.Input("x", DType::kF32, {32});
  b.MarkOutput(b.Reduce("out", DType::kF32, {32 / stride}, {taps}, ir::Combiner::kSum,
                        [&](const std::vector<Expr>& i, const std::vector<Expr>& k) {
                          const Expr at = i[0] * Expr(stride) + k[0] - Expr(pad);
                          const Expr inside = ir::And(Expr(0) <= at, at < Expr(32));
                          return ir::Select(inside, ir::Load(x, {at}), ir::Float(0));
                        }));
  const absl::StatusOr<ir::Func> program = b.Finish();
  EXPECT_TRUE(program.ok()) << program.status();
  const auto unread = UnreadOperands(*program, std::vector<OperandFacts>(1),
                                     {Along(Behind::kUnread, program->params[1], 0)}, 0, Schedules::kAny);
  return unread[0] ? Text(*unread[0]) : "";
}

TEST(UnreadOperandsTest, WindowsReadAsFarAsTheLastOfThemGoes) {
  // At each place that is said to be unread there is no window of an element before any end.
  for (int64_t stride : {1, 2, 3}) {
    for (int64_t taps : {1, 2, 3, 5}) {
      for (int64_t pad = 0; pad < taps; ++pad) {
        ASSERT_NE(UnreadOfWindow(stride, pad, taps), "") << stride << " " << taps << " " << pad;
      }
    }
  }
  EXPECT_EQ(UnreadOfWindow(1, 0, 1), "0:0:0:d0");
  EXPECT_EQ(UnreadOfWindow(1, 1, 3), "0:0:0:d0 - 1");
  EXPECT_EQ(UnreadOfWindow(2, 1, 3), "0:0:0:d0/2");
  EXPECT_EQ(UnreadOfWindow(2, 0, 2), "0:0:0:d0/2");
  EXPECT_EQ(UnreadOfWindow(2, 2, 5), "0:0:0:(d0 + 1)/2 - 1");
}

// out[i] = x[min(max(from[i], 0), last)], as a gather does it: an index below 0 would count from the end.
std::string UnreadByPlaces(bool may_be_negative) {
  ir::ProgramBuilder b("reflected");
  const ir::Buffer x = b.Input("x", DType::kF32, {9}), from = b.Input("from", DType::kI64, {20}),
                   last = b.Input("last", DType::kI64, {});
  const ir::Buffer at = b.Compute("at", DType::kI64, {20}, [&](const std::vector<Expr>& i) {
    const Expr place = ir::Load(from, i);
    return ir::Min(may_be_negative ? place : ir::Max(place, Expr(0)), ir::Load(last, {}));
  });
  b.MarkOutput(b.Compute("out", DType::kF32, {20}, [&](const std::vector<Expr>& i) {
    const Expr place = ir::Load(at, i), counted = ir::Select(place < Expr(0), place + Expr(9), place);
    return ir::Load(x, {ir::Min(ir::Max(counted, Expr(0)), Expr(8))});
  }));
  const absl::StatusOr<ir::Func> program = b.Finish();
  EXPECT_TRUE(program.ok()) << program.status();
  std::vector<OperandFacts> facts(3);
  const ir::Var position = ir::MakeVar("p");
  facts[2].limit = ExtentBound{0, 0, 8, position, Expr(position) + Expr(1)};  // the extent without one
  const auto unread = UnreadOperands(*program, facts, {}, 0, Schedules::kAny);
  EXPECT_FALSE(unread[1] || unread[2]);
  return unread[0] ? Text(*unread[0]) : "";
}

TEST(UnreadOperandsTest, PlacesUpToANumberReadNothingBehindIt) {
  EXPECT_EQ(UnreadByPlaces(false), "0:0:0:d0");
  EXPECT_EQ(UnreadByPlaces(true), "");
}

// out[i, j] = seen[j] ? sum over k of a[i, k] * b[j, k] : 0
TEST(UnreadOperandsTest, SumsAreReadBeforeBothEnds) {
  ir::ProgramBuilder b("scores");
  const ir::Buffer rows = b.Input("a", DType::kF32, {kRows, kSteps}), columns = b.Input("b", DType::kF32, {9, kSteps}),
                   seen = b.Input("seen", DType::kBool, {9});
  const ir::Buffer sum = b.Reduce("sum", DType::kF32, {kRows, 9}, {kSteps}, ir::Combiner::kSum,
                                  [&](const std::vector<Expr>& i, const std::vector<Expr>& k) {
                                    return ir::Load(rows, {i[0], k[0]}) * ir::Load(columns, {i[1], k[0]});
                                  });
  b.MarkOutput(b.Compute("out", DType::kF32, {kRows, 9}, [&](const std::vector<Expr>& i) {
    return ir::Select(ir::Load(seen, {i[1]}), ir::Load(sum, i), ir::Float(0));
  }));
  const absl::StatusOr<ir::Func> program = b.Finish();
  ASSERT_TRUE(program.ok()) << program.status();
  std::vector<OperandFacts> facts(3);
  facts[2].behind = {Along(Behind::kMask, seen, 0)};
  const std::vector<Behind> output = {Along(Behind::kUnread, program->params.back(), 0)};
  const auto unread = UnreadOperands(*program, facts, output, 0, Schedules::kAny);
  ASSERT_TRUE(unread[0] && unread[1]);
  EXPECT_EQ(Text(*unread[0]), "0:0:0:d0");
  EXPECT_EQ(Text(*unread[1]), "0:0:0:d0");
  const Skipped f = Skip(*program, facts, output);
  for (const int64_t extent : {1, 5, 9}) {
    const std::vector<double> got = RunTold(f.with, facts, extent), want = RunTold(f.without, facts, extent);
    EXPECT_TRUE(std::equal(got.begin(), got.begin() + extent * 9, want.begin())) << extent << ir::Text(f.with);
  }
}

// out[i, j] = sum over k of a[i, k] * copy[k, j], where both are zero behind the end: loops add up terms in steps.
TEST(UnreadOperandsTest, TermsThatLoopsLeaveOutAreNotRead) {
  constexpr int64_t kTerms = 24, kStep = 4;
  ir::ProgramBuilder b("product");
  const ir::Buffer a = b.Input("a", DType::kF32, {kRows, kTerms}), c = b.Input("b", DType::kF32, {kTerms, 8});
  const ir::Buffer copy =
      b.Compute("copy", DType::kF32, {kTerms, 8}, [&](const std::vector<Expr>& i) { return ir::Load(c, i); });
  b.MarkOutput(b.Reduce("out", DType::kF32, {kRows, 8}, {kTerms}, ir::Combiner::kSum,
                        [&](const std::vector<Expr>& i, const std::vector<Expr>& k) {
                          return ir::Load(a, {i[0], k[0]}) * ir::Load(copy, {k[0], i[1]});
                        }));
  const absl::StatusOr<ir::Func> program = b.Finish();
  ASSERT_TRUE(program.ok()) << program.status();
  std::vector<OperandFacts> facts(2);
  facts[0].behind = {Along(Behind::kValue, a, 1)};
  facts[1].behind = {Along(Behind::kValue, c, 0)};
  Schedule s(*program);
  s.Unroll(s.Split(s.Loops("out").back(), kStep).second);
  ASSERT_TRUE(s.status().ok()) << s.status();
  EXPECT_FALSE(UnreadOperands(s.func(), facts, {}, 0, Schedules::kAny)[1].has_value());
  const std::optional<Behind> unread = UnreadOperands(s.func(), facts, {}, 0, Schedules::kThisOne)[1];
  ASSERT_TRUE(unread.has_value()) << ir::Text(s.func());
  EXPECT_EQ(Text(*unread), absl::StrCat("0:0:0:d0 - ", kStep - 1));
  // What is so far behind may be no number.
  const Skipped f = Skip(s.func(), facts, {});
  facts[1].behind = {Along(Behind::kUnread, c, 0)};
  for (const int64_t extent : {int64_t{4}, int64_t{8}, kTerms}) {  // where steps end
    const std::vector<double> got = RunTold(f.with, facts, extent);
    EXPECT_TRUE(std::ranges::none_of(got, [](double x) { return std::isnan(x); })) << extent << ir::Text(f.with);
  }
}

// What says where another element lies has to say so wherever that is read, and a division by any number may end a run.
TEST(UnreadOperandsTest, PlacesAndPartsOfDivisionsAreRead) {
  const auto unread_of = [](bool divides) {
    ir::ProgramBuilder b("places");
    const ir::Buffer x = b.Input("x", DType::kI64, {kRows}), table = b.Input("table", DType::kI64, {5});
    const ir::Buffer next =
        b.Compute("next", DType::kI64, {kRows}, [&](const std::vector<Expr>& i) { return ir::Load(x, i) + Expr(1); });
    b.MarkOutput(b.Compute("out", DType::kI64, {kRows}, [&](const std::vector<Expr>& i) {
      return divides ? Expr(7) / ir::Load(next, i) : ir::Load(table, {ir::Load(next, i)});
    }));
    const absl::StatusOr<ir::Func> program = b.Finish();
    EXPECT_TRUE(program.ok()) << program.status();
    const std::vector<Behind> output = {Along(Behind::kUnread, program->params.back(), 0)};
    return UnreadOperands(*program, std::vector<OperandFacts>(2), output, 0, Schedules::kAny)[0].has_value();
  };
  EXPECT_FALSE(unread_of(true));
  EXPECT_FALSE(unread_of(false));
}

TEST(SkipBehindTest, NothingIsLeftOutThatSomebodyReads) {
  const ir::Func program = Matmul(4, kColumns, kRows);
  std::vector<OperandFacts> facts(2);
  facts[1].constant = true;
  EXPECT_FALSE(SkipBehind(program, facts, {}, {0}).has_value());
  facts[0].behind = {Along(Behind::kUnread, program.params[0], 1)};  // a sum of what is not there is no number
  EXPECT_FALSE(SkipBehind(program, facts, {}, {0}).has_value());
  // Of another extent.
  Behind other = Along(Behind::kUnread, program.params.back(), 0);
  other.extent = 1;
  EXPECT_FALSE(SkipBehind(program, facts, {other}, {0}).has_value());
}

// --- what is known of results

std::vector<std::string> KnownOf(const ir::Func& f, const std::vector<OperandFacts>& facts) {
  std::vector<std::string> texts;
  for (const Behind& b : BehindFacts(f, facts).Of(f.params.back())) texts.push_back(Text(b));
  return texts;
}
using Texts = std::vector<std::string>;

ir::Func Elementwise(const std::vector<ir::Buffer>& operands, const Shape& shape,
                     const std::function<Expr(const std::vector<Expr>&)>& value) {
  ir::Buffer out = ir::MakeBuffer("out", DType::kF32, shape);
  ir::BlockInfo info{.name = "out", .iters = {}, .bindings = {}, .predicate = {}, .init = {}};
  std::vector<Expr> index;
  std::vector<ir::Var> loops;
  for (int64_t extent : shape) {
    const ir::Var iter = ir::MakeVar("i"), loop = ir::MakeVar("l");
    info.iters.push_back({iter, extent, false});
    info.bindings.emplace_back(loop);
    index.emplace_back(iter);
    loops.push_back(loop);
  }
  ir::Stmt nest = ir::BlockStmt(info, out, index, value(index));
  for (size_t d = shape.size(); d-- > 0;) nest = ir::For(loops[d], shape[d], ir::ForKind::kSerial, nest);
  std::vector<ir::Buffer> params = operands;
  params.push_back(out);
  return {"f", params, 1, nest};
}

TEST(BehindFactsTest, WhatIsMadeOfUnreadElementsAndConstantsIsUnread) {
  const ir::Buffer x = ir::MakeBuffer("x", DType::kF32, {6, 4}), c = ir::MakeBuffer("c", DType::kF32, {6, 4});
  OperandFacts unread{.behind = {Along(Behind::kUnread, x, 0)}}, constant{.constant = true}, given;
  const auto sum = [&](const std::vector<Expr>& i) { return ir::Load(x, i) + ir::Load(c, i); };
  EXPECT_EQ(KnownOf(Elementwise({x, c}, {6, 4}, sum), {unread, constant}), Texts{"0:0:0:d0"});
  EXPECT_EQ(KnownOf(Elementwise({x, c}, {6, 4}, sum), {unread, given}), Texts{});
  // What does not go along with it does not matter.
  const auto across = [&](const std::vector<Expr>& i) { return ir::Load(x, i) + ir::Load(c, {Expr(0), i[1]}); };
  EXPECT_EQ(KnownOf(Elementwise({x, c}, {6, 4}, across), {unread, given}), Texts{"0:0:0:d0"});
  // An element that knows its own place may be one that is read.
  const auto placed = [&](const std::vector<Expr>& i) {
    return ir::Select(i[0] < Expr(3), ir::Load(x, i), ir::Float(0));
  };
  EXPECT_EQ(KnownOf(Elementwise({x}, {6, 4}, placed), {unread}), Texts{});
  // Rows that are moved: by a constant, and into a line of all.
  const auto turned = [&](const std::vector<Expr>& i) { return ir::Load(x, {i[1], i[0]}); };
  EXPECT_EQ(KnownOf(Elementwise({x}, {4, 6}, turned), {unread}), Texts{"0:0:0:d1"});
  const auto flat = [&](const std::vector<Expr>& i) { return ir::Load(x, {i[0] / Expr(4), i[0] % Expr(4)}); };
  EXPECT_EQ(KnownOf(Elementwise({x}, {24}, flat), {unread}), Texts{"0:0:0:d0/4"});
}

TEST(BehindFactsTest, AChoiceByTheExtentHasTheOtherValueBehindIt) {
  const ir::Buffer x = ir::MakeBuffer("x", DType::kF32, {6}), counts = ir::MakeBuffer("c", DType::kI64, {6}),
                   extent = ir::MakeBuffer("n", DType::kI64, {});
  const OperandFacts unread{.behind = {Along(Behind::kUnread, x, 0)}}, numbers{.constant = true, .counts = 6},
      told{.limit = ExtentItself(0, 1, 6)}, other{.constant = true};
  const auto choice = [&](double otherwise) {
    return [&, otherwise](const std::vector<Expr>& i) {
      return ir::Select(ir::Load(counts, i) < ir::Load(extent, {}), ir::Load(x, i), ir::Float(otherwise));
    };
  };
  const double lowest = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(KnownOf(Elementwise({x, counts, extent}, {6}, choice(0)), {unread, numbers, told}), Texts{"1:0:0:d0"});
  EXPECT_EQ(KnownOf(Elementwise({x, counts, extent}, {6}, choice(lowest)), {unread, numbers, told}),
            Texts{"1:-inf:0:d0"});
  // Numbers that count something else choose something else.
  EXPECT_EQ(KnownOf(Elementwise({x, counts, extent}, {6}, choice(0)), {unread, other, told}), Texts{});
  // So does a number that is made of the extent.
  EXPECT_EQ(KnownOf(Elementwise({x, counts, extent}, {6}, choice(0)), {unread, numbers, OperandFacts{}}), Texts{});
  // Numbers that grow with the extent: positions are below them where others are below the extent.
  const auto below = [&](const Expr& end) {
    return KnownOf(Elementwise({x, counts, extent}, {6},
                               [&](const std::vector<Expr>& i) {
                                 return ir::Select(ir::Load(counts, i) < end, ir::Load(x, i), ir::Float(0));
                               }),
                   {unread, numbers, told});
  };
  const Expr n = ir::Load(extent, {});
  EXPECT_EQ(below(n + Expr(2)), (Texts{"1:0:0:d0 - 2"}));
  EXPECT_EQ(below(n * Expr(3)), (Texts{"1:0:0:d0/3"}));
  EXPECT_EQ(below((n + Expr(1)) / Expr(2)), (Texts{"1:0:0:d0*2"}));
  EXPECT_EQ(below(ir::Max(n - Expr(1), Expr(0))), (Texts{"1:0:0:d0 + 1"}));
  EXPECT_EQ(below(ir::Max(n - Expr(1), Expr(1))), Texts{}) << "it does not grow all the way";
  EXPECT_EQ(below((n - Expr(4)) / Expr(2)), Texts{}) << "it may be negative";
  // A power of the lowest is zero.
  const OperandFacts low{.behind = {Along(Behind::kValue, x, 0)}};
  OperandFacts lows = low;
  lows.behind[0].value = lowest;
  const ir::Buffer most = ir::MakeBuffer("most", DType::kF32, {});
  const auto power = [&](const std::vector<Expr>& i) { return ir::Exp(ir::Load(x, i) - ir::Load(most, {})); };
  EXPECT_EQ(KnownOf(Elementwise({x, most}, {6}, power), {lows, OperandFacts{}}), Texts{"1:0:0:d0"});
}

TEST(BehindFactsTest, WhatAnUnreadPlaceNamesIsUnread) {
  const ir::Buffer ids = ir::MakeBuffer("ids", DType::kI64, {6}), table = ir::MakeBuffer("t", DType::kF32, {9, 4});
  const OperandFacts unread{.behind = {Along(Behind::kUnread, ids, 0)}};
  const auto row = [&](const std::vector<Expr>& i) { return ir::Load(table, {ir::Load(ids, {i[0]}), i[1]}); };
  EXPECT_EQ(KnownOf(Elementwise({ids, table}, {6, 4}, row), {unread, {.constant = true}}), Texts{"0:0:0:d0"});
}

TEST(BehindFactsTest, ASumOfExtentsIsANumberOfItsOwn) {
  ir::ProgramBuilder b("sum");
  const ir::Buffer x = b.Input("x", DType::kI64, {}), y = b.Input("y", DType::kI64, {}),
                   z = b.Input("z", DType::kI64, {});
  b.MarkOutput(b.Compute("out", DType::kI64, {}, [&](const std::vector<Expr>&) {
    return ir::Load(x, {}) + ir::Load(y, {}) + ir::Load(z, {});
  }));
  const absl::StatusOr<ir::Func> program = b.Finish();
  ASSERT_TRUE(program.ok()) << program.status();
  const OperandFacts one{.limit = ExtentItself(0, 1, 6)}, other{.limit = ExtentItself(1, 0, 9)}, number{.number = 5};
  const auto sum_of = [&](const std::vector<OperandFacts>& facts) {
    return BehindFacts(*program, facts).SumOf(program->params.back());
  };
  const std::optional<NumberRange> sum = sum_of({one, other, number});
  ASSERT_TRUE(sum.has_value());
  EXPECT_EQ(sum->least, 6);
  EXPECT_EQ(sum->most, 20);
  EXPECT_FALSE(sum_of({one, other, {}}).has_value()) << "a number that nothing is known of";
  EXPECT_FALSE(sum_of({one, number, number}).has_value()) << "it grows with one extent";
}

// Blocks that write a buffer may stand behind those that read it, as in copies of a loop's body.
TEST(BehindFactsTest, WhatAllCopiesOfABlockSayIsKnownInEachOfThem) {
  ir::ProgramBuilder b("copies");
  const ir::Buffer x = b.Input("x", DType::kF32, {kColumns}), inside = b.Input("inside", DType::kBool, {kColumns});
  const ir::Buffer chosen = b.Compute("chosen", DType::kF32, {kColumns}, [&](const std::vector<Expr>& i) {
    return ir::Select(ir::Load(inside, i), ir::Load(x, i), ir::Float(0));
  });
  b.MarkOutput(b.Compute("out", DType::kF32, {kColumns},
                         [&](const std::vector<Expr>& i) { return ir::Load(chosen, i) * ir::Float(2); }));
  const absl::StatusOr<ir::Func> program = b.Finish();
  ASSERT_TRUE(program.ok()) << program.status();
  Schedule s(*program);
  const auto [outer, inner] = s.Split(s.Loops("out")[0], 8);
  s.ComputeAt("chosen", outer);
  s.Partition(outer);
  ASSERT_TRUE(s.status().ok()) << s.status();
  std::vector<OperandFacts> facts(2);
  facts[1].behind = {Along(Behind::kMask, inside, 0)};
  EXPECT_EQ(KnownOf(s.func(), facts), Texts{"1:0:0:d0"}) << ir::Text(s.func());
}

}  // namespace
}  // namespace temper
