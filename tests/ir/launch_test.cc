#include "compiler/ir/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "compiler/ir/simplify.h"

namespace temper::ir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LaunchTest : public ::testing::Test {
 protected:
  Func Of(const Stmt& body) { return {"f", {in_, out_}, 1, body}; }
  std::string Complaint(const Stmt& body) { return std::string(LaunchesOf(Of(body)).status().message()); }
  Stmt Copy() { return Store(out_, {t_}, Load(in_, {t_})); }
  Stmt Groups(Stmt body) { return For(g_, 4, ForKind::kGroupX, std::move(body)); }
  Stmt Threads(Stmt body, int64_t n = 64) { return For(t_, n, ForKind::kThreadX, std::move(body)); }

  Buffer in_ = MakeBuffer("in", DType::kF32, {64}), out_ = MakeBuffer("out", DType::kF32, {64});
  Buffer tile_ = MakeBuffer("tile", DType::kF32, {33}, Scope::kShared);
  Var g_ = MakeVar("g"), t_ = MakeVar("t"), i_ = MakeVar("i");
};

TEST_F(LaunchTest, GeometryFollowsFromTheLoopsInAnyOrder) {
  Buffer second = MakeBuffer("second", DType::kI8, {3}, Scope::kShared);
  Stmt code = Seq({Store(tile_, {0}, Float(1)), Barrier(), Copy()});
  Stmt threads = For(MakeVar("u"), 2, ForKind::kThreadZ, Threads(code, 32));
  Stmt groups = For(MakeVar("h"), 7, ForKind::kGroupY, Groups(Alloc(tile_, Alloc(second, threads))));
  auto launches = LaunchesOf(Of(groups));
  ASSERT_TRUE(launches.ok()) << launches.status();
  ASSERT_EQ(launches->size(), 1u);
  const Launch& launch = launches->front();
  EXPECT_THAT(launch.groups, ElementsAre(4, 7, 1));
  EXPECT_THAT(launch.threads, ElementsAre(32, 1, 2));
  EXPECT_EQ(launch.num_groups(), 28);
  EXPECT_EQ(launch.num_threads(), 64);
  EXPECT_THAT(launch.shared, ElementsAre(tile_, second));
  EXPECT_EQ(launch.shared_bytes(), 256 + 128);
  EXPECT_EQ(launch.body, code);
  EXPECT_EQ(Text(groups),
            "group.y h in 0..7\n"
            "  group.x g in 0..4\n"
            "    alloc tile: f32[33] shared\n"
            "    alloc second: i8[3] shared\n"
            "    thread.z u in 0..2\n"
            "      thread.x t in 0..32\n"
            "        tile[0] = 1.0\n"
            "        barrier\n"
            "        out[t] = in[t]\n");
}

TEST_F(LaunchTest, LaunchesFollowOneAnotherWithinTheirMemory) {
  Buffer between = MakeBuffer("between", DType::kF32, {64});
  Var g = MakeVar("g"), t = MakeVar("t");
  Stmt second = For(g, 2, ForKind::kGroupX, For(t, 8, ForKind::kThreadX, Store(out_, {t}, Load(between, {t}))));
  auto launches = LaunchesOf(Of(Alloc(between, Seq({Groups(Threads(Copy())), second}))));
  ASSERT_TRUE(launches.ok()) << launches.status();
  ASSERT_EQ(launches->size(), 2u);
  EXPECT_EQ(launches->at(0).num_groups(), 4);
  EXPECT_EQ(launches->at(1).num_groups(), 2);
}

TEST_F(LaunchTest, NestsForCpusHaveNoLaunches) {
  Func f = Of(For(t_, 64, ForKind::kParallel, Copy()));
  EXPECT_FALSE(HasLaunches(f));
  EXPECT_EQ(LaunchesOf(f)->size(), 0u);
  EXPECT_TRUE(HasLaunches(Of(Barrier())));
}

TEST_F(LaunchTest, WhatHasNoPlaceInALaunchIsNamed) {
  EXPECT_THAT(Complaint(Threads(Copy())), HasSubstr("nothing else but memory around them; found in: thread.x t"));
  EXPECT_THAT(Complaint(For(i_, 2, ForKind::kSerial, Groups(Threads(Copy())))), HasSubstr("found in: for i in 0..2"));
  EXPECT_THAT(Complaint(Seq({Groups(Threads(Copy())), Barrier()})), HasSubstr("found in: barrier"));
  EXPECT_THAT(Complaint(Alloc(tile_, Groups(Threads(Copy())))), HasSubstr("found in: alloc tile: f32[33] shared"));
  EXPECT_THAT(Complaint(Groups(Store(out_, {g_}, Float(1)))),
              HasSubstr("hold shared arrays and thread loops alone; found in: out[g] = 1.0"));
  EXPECT_THAT(Complaint(Groups(Seq({Threads(Copy()), Barrier()}))),
              HasSubstr("thread loops alone; found in: thread.x"));
  EXPECT_THAT(Complaint(Groups(For(MakeVar("h"), 2, ForKind::kGroupX, Threads(Copy())))),
              HasSubstr("one loop of an axis in: group.x h"));
  EXPECT_THAT(Complaint(Groups(Threads(Copy(), 0))), HasSubstr("one thread at least in: thread.x t in 0..0"));
  EXPECT_THAT(Complaint(Groups(Threads(For(i_, 2, ForKind::kThreadY, Copy()), 1024))),
              HasSubstr("2048 threads of a group where 1024 are possible"));
}

TEST_F(LaunchTest, WhatAThreadCanNotRunIsNamed) {
  for (ForKind kind : {ForKind::kParallel, ForKind::kOutlined, ForKind::kGroupY}) {
    EXPECT_THAT(Complaint(Groups(Threads(For(i_, 2, ForKind::kSerial, For(MakeVar("k"), 2, kind, Copy()))))),
                HasSubstr("a thread runs its code alone"));
  }
  for (Scope scope : {Scope::kMemory, Scope::kShared}) {
    Buffer own = MakeBuffer("own", DType::kF32, {4}, scope);
    EXPECT_THAT(Complaint(Groups(Threads(Seq({Copy(), Alloc(own, Copy())})))),
                HasSubstr("own arrays are in registers, but one is not in: alloc own"));
  }
  Buffer r = MakeBuffer("r", DType::kF32, {64}, Scope::kRegister);
  EXPECT_THAT(Complaint(Groups(Threads(Alloc(r, Store(r, {t_}, Float(1)))))),
              HasSubstr("which element of register array r depends on the thread in: r[t] = 1.0"));
  EXPECT_THAT(Complaint(Groups(Threads(Alloc(r, Store(out_, {t_}, Load(r, {t_})))))),
              HasSubstr("depends on the thread"));
}

class VerifyLaunchTest : public LaunchTest {
 protected:
  std::string Verdict(const Stmt& body) { return std::string(Verify(Of(body)).message()); }
  Stmt InThreads(Stmt body) { return Groups(Alloc(tile_, Threads(std::move(body)))); }
};

TEST_F(VerifyLaunchTest, LaunchesAreCheckedWithTheNest) {
  EXPECT_EQ(Verdict(InThreads(Seq({Store(tile_, {0}, Float(1)), Barrier(), Copy()}))), "");
  EXPECT_THAT(Verdict(Threads(Copy())), HasSubstr("nothing else but memory around them"));
  EXPECT_THAT(Verdict(Store(tile_, {0}, Float(1))), HasSubstr("buffer tile is not in scope"));
  EXPECT_THAT(std::string(Verify(Func{"f", {tile_}, 1, Store(tile_, {0}, Float(1))}).message()),
              HasSubstr("parameter tile can not live in shared memory"));
}

TEST_F(VerifyLaunchTest, BarriersAreForAllThreads) {
  EXPECT_EQ(Verdict(InThreads(For(i_, 3, ForKind::kSerial, If(Expr(i_) + Expr(g_) < 2, Barrier())))), "");
  EXPECT_THAT(Verdict(InThreads(If(Expr(t_) < 2, Barrier()))),
              HasSubstr("threads may disagree whether they come to a barrier in: if t < 2"));
  EXPECT_THAT(Verdict(InThreads(If(Expr(t_) < 2, Copy(), Seq({Copy(), For(i_, 2, ForKind::kUnrolled, Barrier())})))),
              HasSubstr("threads may disagree"));
  EXPECT_THAT(Verdict(InThreads(If(Float(0) < Load(in_, {0}), Barrier()))), HasSubstr("threads may disagree"));
  EXPECT_THAT(Verdict(InThreads(For(i_, 4, ForKind::kVectorized, Barrier()))),
              HasSubstr("a barrier is inside a vectorised loop in: vectorize i"));
}

TEST_F(VerifyLaunchTest, ExchangesAreOfRegistersByWholeWarps) {
  const auto exchange = [&](int64_t lanes, Scope scope = Scope::kRegister) {
    const Buffer r = MakeBuffer("r", DType::kF32, {1}, Scope::kRegister);
    const Buffer from = scope == Scope::kRegister ? r : tile_;
    return Alloc(r, Seq({Store(r, {0}, Float(1)), Exchange(r, {0}, Load(from, {0}), lanes)}));
  };
  EXPECT_EQ(Verdict(InThreads(exchange(16))), "");
  EXPECT_THAT(Verdict(InThreads(exchange(0))),
              HasSubstr("lanes that no warp has in: exchange r[0] = r[0] of lane ^ 0"));
  EXPECT_THAT(Verdict(InThreads(exchange(32))), HasSubstr("lanes that no warp has"));
  EXPECT_THAT(Verdict(InThreads(exchange(1, Scope::kShared))), HasSubstr("an exchange that is not of registers"));
  EXPECT_THAT(Verdict(InThreads(If(Expr(t_) < 32, exchange(1)))),
              HasSubstr("threads may disagree whether they come to an instruction of their warp"));
  EXPECT_THAT(Verdict(Groups(Threads(exchange(1), 48))), HasSubstr("needs groups of whole warps"));
}

TEST_F(VerifyLaunchTest, MatricesAreOfTypesThatTheInstructionsTake) {
  const Buffer sums = MakeBuffer("sums", DType::kF32, {8}, Scope::kRegister);
  const auto loads = [&](DType type, bool transposed) {
    const Buffer shared = MakeBuffer("shared", type, {256}, Scope::kShared);
    const Buffer fragment = MakeBuffer("fragment", type, {8}, Scope::kRegister);
    const Stmt load = LoadMatrix(fragment, {0}, Load(shared, {0}), transposed);
    return Verdict(Groups(Alloc(shared, Threads(Alloc(fragment, load)))));
  };
  const auto multiplies = [&](DType of_a, DType of_b) {
    const Buffer a = MakeBuffer("a", of_a, {8}, Scope::kRegister), b = MakeBuffer("b", of_b, {8}, Scope::kRegister);
    const Stmt multiply = Multiply(sums, {0}, Load(a, {0}), Load(b, {0}));
    return Verdict(InThreads(Alloc(sums, Alloc(a, Alloc(b, multiply)))));
  };
  const auto refused = HasSubstr("operands that the instruction does not take");
  for (const DType type : {DType::kF16, DType::kBF16, DType::kF32}) {
    EXPECT_EQ(loads(type, false), "");
    EXPECT_EQ(multiplies(type, type), "");
  }
  EXPECT_EQ(loads(DType::kF16, true), "");
  EXPECT_THAT(loads(DType::kF32, true), refused);
  EXPECT_THAT(loads(DType::kF64, false), refused);
  EXPECT_THAT(multiplies(DType::kF32, DType::kF16), refused);
  EXPECT_THAT(multiplies(DType::kI8, DType::kI8), refused);
}

TEST_F(VerifyLaunchTest, ProductsAreOfWholeTeamsInTheirTurn) {
  const Buffer sums = MakeBuffer("sums", DType::kF32, {8}, Scope::kRegister);
  const Buffer other = MakeBuffer("other", DType::kF32, {8}, Scope::kRegister);
  const Stmt begin = BeginProducts(sums), end = EndProducts(sums);
  const auto add = [&](int64_t columns = 16, int64_t next = 64, DType type = DType::kF16, Buffer to = nullptr) {
    const Expr load = Load(MakeBuffer("shared", type, {2048}, Scope::kShared), {0});
    return AddProduct(to == nullptr ? sums : to, {0}, columns, load, load, {{{false, next, 64}, {true, 64, next}}});
  };
  const auto verdict = [&](const Stmt& code, int64_t threads = 128) {
    Stmt body = Threads(Alloc(sums, Alloc(other, code)), threads);
    std::set<Buffer> shared;
    VisitStmt(code, [&](const Stmt& s) {
      if (s->kind == StmtKind::kInstruction && s->instruction == Instruction::kAddProduct)
        shared.insert(FactorOf(s, 0)->buffer);
    });
    for (const Buffer& b : shared) body = Alloc(b, body);
    return Verdict(Groups(body));
  };
  EXPECT_EQ(verdict(Seq({begin, add(), For(i_, 3, ForKind::kUnrolled, add()), end, begin, end})), "");
  EXPECT_THAT(verdict(Seq({begin, add(), end}), 64), HasSubstr("needs groups of whole teams of 128 threads"));
  EXPECT_THAT(verdict(If(Expr(t_) < 64, Seq({begin, end}))), HasSubstr("threads may disagree"));
  for (const Stmt& code : {Seq({add(), end}), Seq({begin, begin}), Seq({begin, end, end}),
                           Seq({begin, EndProducts(other)}), Seq({begin, add(16, 64, DType::kF16, other), end})})
    EXPECT_THAT(verdict(code), HasSubstr("products out of their turn"));
  EXPECT_THAT(verdict(Seq({begin, add()})), HasSubstr("products that begin or end in a part of the code alone"));
  EXPECT_THAT(verdict(Seq({For(i_, 2, ForKind::kUnrolled, begin), end})),
              HasSubstr("products that begin or end in a part of the code alone in: unroll i in 0..2"));
  for (const Stmt& between : {Barrier(), Copy(), Store(sums, {0}, Float(0)), For(i_, 2, ForKind::kSerial, add())})
    EXPECT_THAT(verdict(Seq({begin, between, end})), HasSubstr("something else where products are made"));
  for (const int64_t columns : {0, 8, 24, 272})
    EXPECT_THAT(verdict(Seq({begin, add(columns), end})), HasSubstr("columns that no product has"));
  for (const Stmt& product : {add(16, 60), add(16, 0), add(16, int64_t{1} << 17), add(16, 64, DType::kF32)})
    EXPECT_THAT(verdict(Seq({begin, product, end})), HasSubstr("operands that the instruction does not take"));
}

// PTX ISA, "Matrix Fragments for wgmma.mma_async.m64nNk16": d[i] of a thread is in the row 16 * warp + lane / 4, and
// eight more where i / 2 is odd, and in column i / 4 * 8 + lane % 4 * 2 + i % 2.
TEST(Fragments, OfATeamAreThoseOfThePtxIsa) {
  for (int64_t lane = 0; lane < kTensorWarp; ++lane) {
    for (int64_t i = 0; i < kTeamColumns / 2; ++i) {
      const MatrixPlace place = SumPlace(lane, i % kFragmentLength);
      EXPECT_EQ(place.row, lane / 4 + (i / 2 % 2) * 8);
      EXPECT_EQ(i / kFragmentLength * kMatrixSide + place.column, i / 4 * 8 + lane % 4 * 2 + i % 2);
    }
  }
}

// PTX ISA, "Matrix Fragments for mma.m16n8k16" and "... for mma.m16n8k8 with .tf32": the row and column of register i
// of a lane. A fragment of b is that of two instructions, each of eight columns.
TEST(Fragments, AreThoseOfThePtxIsa) {
  const auto is_at = [](const MatrixPlace& place, int64_t row, int64_t column) {
    return place.row == row && place.column == column;
  };
  for (int64_t lane = 0; lane < kTensorWarp; ++lane) {
    SCOPED_TRACE(lane);
    const int64_t group = lane >> 2, in_group = lane % 4;
    for (int64_t i = 0; i < 8; ++i) {
      const int64_t half = i / 4, of_b = i % 4;  // of two instructions, and its own register
      const int64_t row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
      EXPECT_TRUE(is_at(FragmentPlace(lane, i, 8, false), row, in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0))) << i;
      EXPECT_TRUE(
          is_at(FragmentPlace(lane, i, 8, true), group + 8 * half, in_group * 2 + (of_b & 1) + (of_b >= 2 ? 8 : 0)))
          << i;
      EXPECT_TRUE(is_at(SumPlace(lane, i), of_b < 2 ? group : group + 8, in_group * 2 + (of_b & 1) + 8 * half)) << i;
    }
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t half = i / 2, of_b = i % 2;
      const int64_t row = i == 0 || i == 2 ? group : group + 8, column = i == 0 || i == 1 ? in_group : in_group + 4;
      EXPECT_TRUE(is_at(FragmentPlace(lane, i, 4, false), row, column)) << i;
      EXPECT_TRUE(is_at(FragmentPlace(lane, i, 4, true), group + 8 * half, of_b == 0 ? in_group : in_group + 4)) << i;
    }
  }
}

TEST_F(VerifyLaunchTest, GroupsHoldThreadsAndNeitherMixesWithParallelLoops) {
  Var v = MakeVar("v");
  auto marked = [&](ForKind outer, ForKind inner) {
    BlockInfo info{"b", {{v, 64, false}}, {Expr(i_) * 8 + Expr(t_)}, Expr(), Expr()};
    Stmt block = BlockStmt(info, out_, {v}, Load(in_, {v}));
    return Verdict(For(i_, 8, outer, For(t_, 8, inner, block)));
  };
  EXPECT_EQ(marked(ForKind::kGroupX, ForKind::kThreadX), "");
  EXPECT_EQ(marked(ForKind::kThreadX, ForKind::kThreadY), "");  // no launch yet: its group loops are still to come
  EXPECT_THAT(marked(ForKind::kThreadX, ForKind::kGroupX),
              HasSubstr("this loop can not be inside thread.x i in 0..8, but is in: group.x t in 0..8"));
  EXPECT_THAT(marked(ForKind::kThreadX, ForKind::kThreadX), HasSubstr("can not be inside thread.x i"));
  EXPECT_THAT(marked(ForKind::kGroupY, ForKind::kGroupY), HasSubstr("can not be inside group.y i"));
  EXPECT_THAT(marked(ForKind::kParallel, ForKind::kThreadX), HasSubstr("can not be inside parallel i"));
  EXPECT_THAT(marked(ForKind::kGroupX, ForKind::kParallel), HasSubstr("can not be inside group.x i"));
  EXPECT_EQ(marked(ForKind::kParallel, ForKind::kParallel), "");
}

TEST_F(VerifyLaunchTest, ScheduledNestsHaveNoBarriersAndThreadsReduceNothing) {
  Var v = MakeVar("v");
  BlockInfo info{"b", {{v, 64, true}}, {t_}, Expr(), Expr()};
  Stmt block = BlockStmt(info, out_, {0}, Load(in_, {v}));
  EXPECT_THAT(Verdict(Groups(Threads(block))), HasSubstr("thread.x loop t binds reduction iterator v"));
  EXPECT_THAT(Verdict(For(t_, 64, ForKind::kSerial, Seq({block, Barrier()}))),
              HasSubstr("a scheduled nest has no barriers"));
}

TEST_F(LaunchTest, SimplifyingKeepsLoopsThatAreTheLaunch) {
  Stmt one = For(g_, 1, ForKind::kGroupX,
                 For(t_, 1, ForKind::kThreadX, Seq({Store(out_, {Expr(g_) + Expr(t_)}, Float(1)), Barrier()})));
  EXPECT_EQ(Text(Simplify(one)),
            "group.x g in 0..1\n"
            "  thread.x t in 0..1\n"
            "    out[0] = 1.0\n"
            "    barrier\n");
}

TEST_F(LaunchTest, RewritesKeepTheKindsOfLoops) {
  Stmt nest = Groups(Alloc(tile_, Threads(Seq({Copy(), Barrier(), Copy()}))));
  Stmt twice = RewriteExprs(nest, [](const Expr& e) {
    return Rewrite(e, [](const Expr& n) { return n->kind == ExprKind::kLoad ? n + n : Expr(); });
  });
  EXPECT_EQ(Text(twice),
            "group.x g in 0..4\n"
            "  alloc tile: f32[33] shared\n"
            "  thread.x t in 0..64\n"
            "    out[t] = in[t] + in[t]\n"
            "    barrier\n"
            "    out[t] = in[t] + in[t]\n");
}

}  // namespace
}  // namespace temper::ir
