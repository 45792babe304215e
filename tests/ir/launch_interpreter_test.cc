// What the interpreter finds in launches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/ir/launch.h"

namespace temper::ir {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kThreads = 64, kGroups = 2;

class LaunchInterpreterTest : public ::testing::Test {
 protected:
  // `code` by kGroups groups of kThreads threads, with `tile_` in shared memory.
  absl::Status Run(const Stmt& code, const Shape& threads = {kThreads, 1}) {
    Stmt nest = For(u_, threads[1], ForKind::kThreadY, For(t_, threads[0], ForKind::kThreadX, code));
    Func f{"f", {in_, out_}, 1, For(g_, kGroups, ForKind::kGroupX, Alloc(tile_, nest))};
    traffic_ = {};
    return Interpret(f, args_, &traffic_);
  }
  std::string Finding(const Stmt& code) {
    absl::Status status = Run(code);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    return std::string(status.message());
  }
  std::vector<float> Result() const {
    auto span = std::as_const(args_[1]).as<float>();
    return {span.begin(), span.end()};
  }
  Expr Own() const { return Expr(g_) * Expr(kThreads) + Expr(t_); }  // an element of in_ and out_ for each thread
  Stmt Put(const Expr& at, const Expr& value = Float(1)) { return Store(tile_, {at}, value); }
  Stmt Get(const Expr& from) { return Store(out_, {Own()}, Load(tile_, {from})); }
  Stmt IfFirst(Stmt s) { return If(Expr(t_) < 1, std::move(s)); }

  Buffer in_ = MakeBuffer("in", DType::kF32, {kGroups * kThreads}),
         out_ = MakeBuffer("out", DType::kF32, {kGroups * kThreads});
  Buffer tile_ = MakeBuffer("tile", DType::kF32, {4096}, Scope::kShared);
  Var g_ = MakeVar("g"), t_ = MakeVar("t"), u_ = MakeVar("u"), i_ = MakeVar("i");
  std::vector<NDArray> args_ = {NDArray(DType::kF32, {kGroups * kThreads}), NDArray(DType::kF32, {kGroups * kThreads})};
  SharedTraffic traffic_;
};

TEST_F(LaunchInterpreterTest, ThreadsExchangeThroughSharedMemoryAtABarrier) {
  for (int64_t i = 0; i < kGroups * kThreads; ++i) args_[0].Set(i, static_cast<double>(i));
  ASSERT_TRUE(Run(Seq({Put(t_, Load(in_, {Own()})), Barrier(), Get(Expr(kThreads - 1) - Expr(t_))})).ok());
  for (int64_t i = 0; i < kGroups * kThreads; ++i) {
    EXPECT_EQ(Result()[static_cast<size_t>(i)],
              static_cast<float>(i / kThreads * kThreads + kThreads - 1 - i % kThreads));
  }
}

TEST_F(LaunchInterpreterTest, RegistersLiveAcrossBarriersAndAreAThreadsOwn) {
  Buffer r = MakeBuffer("r", DType::kF32, {1}, Scope::kRegister);
  Stmt step = Seq({Store(r, {0}, Load(r, {0}) + Cast(t_, DType::kF32)), Barrier()});
  ASSERT_TRUE(Run(Alloc(r, Seq({Store(r, {0}, Float(0)), For(i_, 3, ForKind::kSerial, step),
                                Store(out_, {Own()}, Load(r, {0}))})))
                  .ok());
  for (int64_t i = 0; i < kGroups * kThreads; ++i) {
    EXPECT_EQ(Result()[static_cast<size_t>(i)], static_cast<float>(3 * (i % kThreads)));
  }
}

TEST_F(LaunchInterpreterTest, LanesExchangeWhatTheyHold) {
  const Buffer mine = MakeBuffer("mine", DType::kF32, {1}, Scope::kRegister);
  const auto exchanged = [&](int64_t lanes) {  // in place: all is read before anything is written
    return Alloc(mine, Seq({Store(mine, {0}, Cast(t_, DType::kF32)), Exchange(mine, {0}, Load(mine, {0}), lanes),
                            Store(out_, {Own()}, Load(mine, {0}))}));
  };
  for (const int64_t lanes : {1, 16, 31}) {
    ASSERT_TRUE(Run(exchanged(lanes)).ok());
    for (int64_t i = 0; i < kGroups * kThreads; ++i)
      EXPECT_EQ(Result()[static_cast<size_t>(i)], static_cast<float>((i % kThreads) ^ lanes)) << lanes;
  }
  EXPECT_THAT(Finding(exchanged(32)), HasSubstr("thread (0,0,0) exchanges with a lane that its warp does not have"));
  EXPECT_THAT(Finding(Alloc(
                  mine, Seq({Store(mine, {0}, Float(1)), If(Expr(t_) < 40, Exchange(mine, {0}, Load(mine, {0}), 1))}))),
              HasSubstr("threads (0,0,0) and (40,0,0) of group (0,0,0) part"));
  EXPECT_THAT(std::string(Run(exchanged(16), {24, 1}).message()), HasSubstr("thread (8,0,0) exchanges with a lane"));
}

// The product of 8 ones and 8 numbers in the middle between two of TF32.
TEST_F(LaunchInterpreterTest, AMultiplicationDropsOfF32WhatTf32DoesNotHold) {
  const Buffer a = MakeBuffer("a", DType::kF32, {4}, Scope::kRegister),
               b = MakeBuffer("b", DType::kF32, {4}, Scope::kRegister),
               sums = MakeBuffer("sums", DType::kF32, {8}, Scope::kRegister);
  const Expr lane = Expr(t_) % Expr(32);
  const Stmt put = For(i_, 4, ForKind::kSerial, Put(Expr(t_) * Expr(4) + Expr(i_), Load(in_, {Own()})));
  const Var e = MakeVar("e");
  for (const bool rounds : {false, true}) {
    for (int64_t i = 0; i < kGroups * kThreads; ++i) args_[0].Set(i, i % kThreads < 32 ? 1 + 0x1p-11 : 1);
    const Stmt round = For(e, 4, ForKind::kUnrolled, Store(a, {Expr(e)}, Tf32(Load(a, {Expr(e)}))));
    const Stmt multiply =
        Seq({put, Barrier(), Store(sums, {0}, Float(0)), LoadMatrix(a, {0}, Load(tile_, {lane * Expr(4)}), false),
             LoadMatrix(b, {0}, Load(tile_, {Expr(128) + lane * Expr(4)}), false), rounds ? round : Seq({}),
             Multiply(sums, {0}, Load(a, {0}), Load(b, {0})), Store(out_, {Own()}, Load(sums, {0}))});
    const absl::Status status = Run(Alloc(a, Alloc(b, Alloc(sums, multiply))));
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_THAT(Result(), Each(static_cast<float>(rounds ? 8 + 0x1p-7 : 8)));
  }
}

// A team multiplies a matrix of 64 rows, whose tiles lie beside each other, by one of 16 columns, which is turned.
class ProductInterpreterTest : public ::testing::Test {
 protected:
  static constexpr int64_t kSharedA = 1024 + 8, kSharedB = 256 + 64;
  // Where an element lies, as `tiled_` has it.
  static int64_t InA(int64_t row, int64_t k) { return row / 8 * 64 + k / 8 * 520 + row % 8 * 8 + k % 8; }
  static int64_t InB(int64_t column, int64_t k) { return column / 8 * 192 + k / 8 * 64 + k % 8 * 8 + column % 8; }

  absl::Status Run(const Expr& first_of_a = Expr(0), bool waits = true, const Expr& first_of_b = Expr(0)) {
    const auto copy = [&](const Buffer& to, const Buffer& from, int64_t size) {
      const Expr at = Expr(i_) * Expr(kTeamThreads) + Expr(t_);
      return For(i_, (size + kTeamThreads - 1) / kTeamThreads, ForKind::kSerial,
                 If(at < Expr(size), Store(to, {at}, Load(from, {at}))));
    };
    const Expr own(e_);
    const Stmt zero = For(e_, 8, ForKind::kSerial, Store(sums_, {own}, Float(0)));
    const Stmt product = AddProduct(sums_, {0}, 16, Load(a_, {first_of_a}), Load(b_, {first_of_b}), tiled_);
    const Var e = MakeVar("e"), i = MakeVar("i");
    const Expr row =
        Expr(t_) / Expr(32) * Expr(16) + Expr(t_) % Expr(32) / Expr(4) + Expr(e) / Expr(2) % Expr(2) * Expr(8);
    const Expr column = Expr(t_) % Expr(4) * Expr(2) + Expr(e) % Expr(2) + Expr(e) / Expr(4) * Expr(8);
    const Stmt put = For(e, 8, ForKind::kSerial, Store(out_, {row, column}, Load(sums_, {Expr(e)})));
    const Stmt code = Seq({copy(a_, in_a_, kSharedA), copy(b_, in_b_, kSharedB), waits ? Barrier() : Seq({}), zero,
                           BeginProducts(sums_), product, product, EndProducts(sums_), put});
    const Stmt threads = For(t_, kTeamThreads, ForKind::kThreadX, Alloc(sums_, code));
    const Func f{"f", {in_a_, in_b_, out_}, 1, For(g_, 1, ForKind::kGroupX, Alloc(a_, Alloc(b_, threads)))};
    return Interpret(f, args_);
  }

  static Buffer Shared(const char* name, int64_t size) { return MakeBuffer(name, DType::kF16, {size}, Scope::kShared); }
  Buffer in_a_ = MakeBuffer("in_a", DType::kF16, {kSharedA}), in_b_ = MakeBuffer("in_b", DType::kF16, {kSharedB}),
         out_ = MakeBuffer("out", DType::kF32, {64, 16}), a_ = Shared("a", kSharedA), b_ = Shared("b", kSharedB),
         sums_ = MakeBuffer("sums", DType::kF32, {8}, Scope::kRegister);
  Var g_ = MakeVar("g"), t_ = MakeVar("t"), i_ = MakeVar("i"), e_ = MakeVar("e");
  std::array<TiledMatrix, 2> tiled_ = {{{false, 520, 64}, {true, 64, 192}}};
  std::vector<NDArray> args_ = {NDArray(DType::kF16, {kSharedA}), NDArray(DType::kF16, {kSharedB}),
                                NDArray(DType::kF32, {64, 16})};
};

TEST_F(ProductInterpreterTest, ATeamAddsProductsOfMatricesInTiles) {
  const auto of_a = [](int64_t row, int64_t k) { return static_cast<double>((3 * row + 5 * k) % 7 - 3); };
  const auto of_b = [](int64_t column, int64_t k) { return static_cast<double>((2 * column + 11 * k) % 5 - 2); };
  for (int64_t k = 0; k < 16; ++k) {
    for (int64_t row = 0; row < 64; ++row) args_[0].Set(InA(row, k), of_a(row, k));
    for (int64_t column = 0; column < 16; ++column) args_[1].Set(InB(column, k), of_b(column, k));
  }
  const absl::Status status = Run();
  ASSERT_TRUE(status.ok()) << status;
  for (int64_t row = 0; row < 64; ++row) {
    for (int64_t column = 0; column < 16; ++column) {
      double sum = 0;
      for (int64_t k = 0; k < 16; ++k) sum += 2 * of_a(row, k) * of_b(column, k);
      EXPECT_EQ(args_[2].At(row * 16 + column), sum) << row << " " << column;
    }
  }
}

TEST_F(ProductInterpreterTest, WhatATeamCanNotReadIsFound) {
  const auto finding = [](const absl::Status& status) { return std::string(status.message()); };
  EXPECT_THAT(finding(Run(Expr(0), false)), HasSubstr("race: one writes and the other reads a["));
  EXPECT_THAT(finding(Run(Expr(t_) / Expr(64) * Expr(8))),
              HasSubstr("thread (64,0,0) names element 8 of a for its team, and the first of them 0"));
  EXPECT_THAT(finding(Run(Expr(4))), HasSubstr("names element 4 of a"));
  EXPECT_THAT(finding(Run(Expr(0), true, Expr(64))), HasSubstr("a product reads element 320 of b, which has fewer"));
}

TEST_F(LaunchInterpreterTest, BarriersUnderConditionsThatAllAnswerAlike) {
  Stmt code =
      For(i_, 4, ForKind::kSerial,
          If(Expr(i_) < 2, Seq({Put(t_, Cast(i_, DType::kF32)), Barrier(), Get((Expr(t_) + 1) % kThreads), Barrier()}),
             Barrier()));
  ASSERT_TRUE(Run(code).ok());
  EXPECT_THAT(Result(), Each(1.0f));
}

TEST_F(LaunchInterpreterTest, ThreadsThatRaceAreNamed) {
  const Expr next = (Expr(t_) + 1) % kThreads;
  // Written, then read by another thread; read, then written; written by two.
  EXPECT_THAT(
      Finding(Seq({Put(t_), Get(Expr(t_) / 2)})),
      HasSubstr("f: threads (0,0,0) and (1,0,0) of group (0,0,0) race: one writes and the other reads tile[0] with "
                "no barrier between"));
  EXPECT_THAT(Finding(Seq({Put(t_), Barrier(), Get(next), Put(t_)})),
              HasSubstr("threads (63,0,0) and (0,0,0) of group (0,0,0) race: one writes and the other reads tile[0]"));
  EXPECT_THAT(Finding(Put(Expr(t_) / 4)),
              HasSubstr("threads (0,0,0) and (1,0,0) of group (0,0,0) race: both write tile[0]"));
  EXPECT_EQ(Run(Seq({Put(t_), Barrier(), Get(next), Barrier(), Put(t_)})).message(), "");
  EXPECT_EQ(Run(Seq({IfFirst(Put(0)), Barrier(), Get(0)})).message(), "");  // many readers
  // The first reader writes itself, but there was another one.
  EXPECT_THAT(Finding(Seq({IfFirst(Put(0)), Barrier(), Get(0), Barrier(), Get(0), IfFirst(Put(0))})),
              HasSubstr("threads (63,0,0) and (0,0,0) of group (0,0,0) race: one writes and the other reads tile[0]"));
}

TEST_F(LaunchInterpreterTest, GlobalMemoryRacesWithinAGroupTooAndAcrossGroupsWhateverTheBarriers) {
  auto store = [&](const Expr& at) { return Store(out_, {at}, Float(1)); };
  EXPECT_THAT(Finding(store(Expr(g_) * kThreads + Expr(t_) / 2)),
              HasSubstr("threads (0,0,0) and (1,0,0) of group (0,0,0) race: both write out[0]"));
  EXPECT_THAT(Finding(store(t_)), HasSubstr("groups (0,0,0) and (1,0,0) race: both write out[0]"));
  EXPECT_THAT(Finding(Seq({store(Own()), Barrier(), Put(t_, Load(out_, {t_}))})),
              HasSubstr("groups (0,0,0) and (1,0,0) race: one writes and the other reads out[0]"));
  EXPECT_THAT(Finding(Seq({Put(t_, Load(out_, {Expr(kThreads) + Expr(t_)})), Barrier(), store(Own())})),
              HasSubstr("groups (0,0,0) and (1,0,0) race: one writes and the other reads out[64]"));
  EXPECT_EQ(Run(Seq({store(Own()), Barrier(), Put(t_, Load(out_, {Expr(g_) * kThreads + (Expr(t_) + 1) % kThreads}))}))
                .message(),
            "");
}

TEST_F(LaunchInterpreterTest, LaunchesSeeWhatEarlierOnesWrote) {
  auto launch = [&](const Stmt& code, const Var& g, const Var& t) {
    return Substitute(For(g, kGroups, ForKind::kGroupX, For(t, kThreads, ForKind::kThreadX, code)), {{g_, g}, {t_, t}});
  };
  Buffer between = MakeBuffer("between", DType::kF32, {kGroups * kThreads});
  Stmt first = launch(Store(between, {Own()}, Cast(Own(), DType::kF32)), MakeVar("g"), MakeVar("t"));
  Stmt second =
      launch(Store(out_, {Own()}, Load(between, {Expr(kGroups * kThreads - 1) - Own()})), MakeVar("g"), MakeVar("t"));
  ASSERT_TRUE(Interpret({"f", {in_, out_}, 1, Alloc(between, Seq({first, second}))}, args_).ok());
  EXPECT_EQ(Result()[3], kGroups * kThreads - 4);
}

TEST_F(LaunchInterpreterTest, ThreadsThatPartBeforeABarrierAreNamed) {
  EXPECT_THAT(Finding(If(Expr(t_) < 5, Seq({Put(t_), Barrier()}))),
              HasSubstr("f: threads (0,0,0) and (5,0,0) of group (0,0,0) part at a condition with a barrier inside"));
  EXPECT_THAT(Finding(If(Load(in_, {Own()}) < Cast(t_, DType::kF32), Put(t_), Barrier())),
              HasSubstr("threads (0,0,0) and (1,0,0) of group (0,0,0) part"));
}

TEST_F(LaunchInterpreterTest, SharedMemoryThatNothingWroteIsNotRead) {
  EXPECT_THAT(Finding(Get(t_)),
              HasSubstr("f: thread (0,0,0) of group (0,0,0) reads tile[0] of shared memory, which nothing wrote"));
  // What one group left there is nothing to the next.
  EXPECT_THAT(Finding(Seq({If(Expr(g_) < 1, Put(t_)), Barrier(), Get((Expr(t_) + 3) % kThreads)})),
              HasSubstr("thread (0,0,0) of group (1,0,0) reads tile[3]"));
}

TEST_F(LaunchInterpreterTest, BankConflictsAreCountedByTheWarp) {
  // Stores alone: two groups of two warps.
  struct Case {
    int64_t stride, conflicts;
  };
  for (Case c : {Case{1, 0}, {2, 1}, {3, 0}, {4, 3}, {32, 31}, {33, 0}}) {
    ASSERT_TRUE(Run(Put(Expr(t_) * Expr(c.stride))).ok());
    EXPECT_EQ(traffic_.requests, 4) << c.stride;
    EXPECT_EQ(traffic_.conflicts, 4 * c.conflicts) << c.stride;
  }
  // All lanes read one word, or 16 words twice: no conflict.
  for (const Expr& from : {Expr(0), Expr(t_) % 16}) {
    ASSERT_TRUE(Run(Seq({Put(t_), Barrier(), Get(from)})).ok());
    EXPECT_EQ(traffic_.requests, 8);
    EXPECT_EQ(traffic_.conflicts, 0);
  }
}

TEST_F(LaunchInterpreterTest, LanesThatSkipAStepStayInStep) {
  // Lane t runs steps t%2, t%2 + 2, ...: each request has 16 lanes, whose words are 4 apart.
  Stmt code = For(i_, 4, ForKind::kSerial, If(Eq(Expr(i_) % 2, Expr(t_) % 2), Put(Expr(t_) * 2 + Expr(i_) * 512)));
  ASSERT_TRUE(Run(code).ok());
  EXPECT_EQ(traffic_.requests, 4 * 4);
  EXPECT_EQ(traffic_.conflicts, 4 * 4 * 1);
}

TEST_F(LaunchInterpreterTest, VectorsAndWideElementsGoInPartsOfTheWarp) {
  // Four floats a lane: a quarter of the warp makes a request, without conflicts.
  Stmt vectors = For(i_, 4, ForKind::kVectorized, Put(Expr(t_) * 4 + Expr(i_)));
  ASSERT_TRUE(Run(vectors).ok());
  EXPECT_EQ(traffic_.requests, 4 * 4);
  EXPECT_EQ(traffic_.conflicts, 0);
  // One after another they are four requests that meet in banks.
  ASSERT_TRUE(Run(For(i_, 4, ForKind::kSerial, Put(Expr(t_) * 4 + Expr(i_)))).ok());
  EXPECT_EQ(traffic_.requests, 4 * 4);
  EXPECT_EQ(traffic_.conflicts, 4 * 4 * 3);
  // Eight bytes an element: half a warp.
  Buffer wide = MakeBuffer("wide", DType::kF64, {128}, Scope::kShared);
  auto run = [&](int64_t stride) {
    Stmt nest = For(t_, 32, ForKind::kThreadX, Store(wide, {Expr(t_) * Expr(stride)}, Float(1, DType::kF64)));
    Func f{"f", {in_, out_}, 1, For(g_, 1, ForKind::kGroupX, Alloc(wide, nest))};
    traffic_ = {};
    ASSERT_TRUE(Interpret(f, args_, &traffic_).ok());
  };
  run(1);
  EXPECT_EQ(traffic_.requests, 2);
  EXPECT_EQ(traffic_.conflicts, 0);
  run(2);
  EXPECT_EQ(traffic_.conflicts, 2);
}

TEST_F(LaunchInterpreterTest, WarpsFollowTheNumbersOfThreads) {
  // (x, y) of 16 x 4: a warp is two values of y.
  ASSERT_TRUE(Run(Put(Expr(u_) * 16 + Expr(t_)), {16, 4}).ok());
  EXPECT_EQ(traffic_.requests, 4);
  EXPECT_EQ(traffic_.conflicts, 0);
  ASSERT_TRUE(Run(Put(Expr(u_) * 32 + Expr(t_)), {16, 4}).ok());
  EXPECT_EQ(traffic_.conflicts, 4);
}

TEST_F(LaunchInterpreterTest, ScheduledNestsWithMarksRunInTheirOrder) {
  // Each thread takes what the one before left: wrong in a launch, right in program order.
  Var v = MakeVar("v");
  BlockInfo info{"b", {{v, kGroups * kThreads, false}}, {Own()}, Expr(), Expr()};
  Stmt block = BlockStmt(info, out_, {v}, Select(Expr(v) < 1, Float(0), Load(out_, {Max(Expr(v) - 1, 0)}) + Float(1)));
  Func f{"f", {in_, out_}, 1, For(g_, kGroups, ForKind::kGroupX, For(t_, kThreads, ForKind::kThreadX, block))};
  ASSERT_TRUE(Interpret(f, args_).ok());
  EXPECT_EQ(Result()[100], 100);
}

TEST_F(LaunchInterpreterTest, BadLaunchesDoNotRun) {
  Func f{"f", {in_, out_}, 1, For(t_, kThreads, ForKind::kThreadX, Store(out_, {t_}, Float(1)))};
  EXPECT_THAT(std::string(Interpret(f, args_).message()), HasSubstr("nothing else but memory around them"));
}

}  // namespace
}  // namespace temper::ir
