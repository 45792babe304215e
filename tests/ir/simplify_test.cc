#include "compiler/ir/simplify.h"

#include <gtest/gtest.h>

namespace temper::ir {
namespace {

class SimplifyTest : public ::testing::Test {
 protected:
  Var Bind(const std::string& name, int64_t extent) {
    Var v = MakeVar(name);
    facts_.Bind(v, extent);
    return v;
  }
  std::string Simple(const Expr& e) { return Text(facts_.Simplify(e)); }

  Simplifier facts_;
};

TEST_F(SimplifyTest, SumsCollectCoefficientsAndPutTheConstantLast) {
  Var i = Bind("i", 10), j = Bind("j", 10);
  EXPECT_EQ(Simple(3 + Expr(j) + Expr(i) * 4 + j), "i*4 + j*2 + 3");
  EXPECT_EQ(Simple(Expr(i) - i), "0");
  EXPECT_EQ(Simple((Expr(i) + 2) * 3 - 6), "i*3");
  EXPECT_EQ(Simple(15 - Expr(i)), "15 - i");
  EXPECT_EQ(Simple(Expr(i) - (Expr(j) + 3)), "i - j - 3");
}

TEST_F(SimplifyTest, VariablesStandInTheOrderTheyWereBound) {
  Var z = Bind("z", 10), a = Bind("a", 10);
  EXPECT_EQ(Simple(Expr(a) + z), "z + a");
}

TEST_F(SimplifyTest, DivisionTakesMultiplesOut) {
  Var i = Bind("i", 100), j = Bind("j", 16);
  EXPECT_EQ(Simple((Expr(i) * 32 + j) / 16), "i*2");
  EXPECT_EQ(Simple((Expr(i) * 32 + j) % 16), "j");
  EXPECT_EQ(Simple((Expr(i) * 14 + j) / 14), "i + j/14");
  EXPECT_EQ(Simple((Expr(i) * 4 + 2) / 8), "i/2");
  EXPECT_EQ(Simple((Expr(i) * 4 + 2) % 8), "i%2*4 + 2");
  EXPECT_EQ(Simple((Expr(i) - 200) / 16), "(i + 8)/16 - 13");
}

TEST_F(SimplifyTest, RangeWithinOnePeriodDecides) {
  Var i = Bind("i", 14);
  EXPECT_EQ(Simple(Expr(i) / 14), "0");
  EXPECT_EQ(Simple((Expr(i) + 28) / 14), "2");
  EXPECT_EQ(Simple((Expr(i) - 14) / 14), "-1");
  EXPECT_EQ(Simple((Expr(i) - 14) % 14), "i");
  EXPECT_EQ(Simple((Expr(i) + 1) / 14), "(i + 1)/14");
}

TEST_F(SimplifyTest, NestedDivisionsFlatten) {
  Var m = Bind("m", 100000);
  EXPECT_EQ(Simple(Expr(m) / 4 / 7), "m/28");
  EXPECT_EQ(Simple((Expr(m) / 4 + 1) / 7), "(m + 4)/28");
  EXPECT_EQ(Simple(Expr(m) % 28 % 7), "m%7");
  EXPECT_EQ(Simple(Expr(m) % 28 / 7), "m/7%4");
}

TEST_F(SimplifyTest, QuotientAndRemainderRecombine) {
  Var m = Bind("m", 100000);
  Expr q = Expr(m) / 15, r = Expr(m) % 15;
  EXPECT_EQ(Simple(q * 15 + r), "m");
  EXPECT_EQ(Simple(q * 60 + r * 4 + 1), "m*4 + 1");
  EXPECT_EQ(Simple(Expr(m) - q * 15), "m%15");
  EXPECT_EQ(Simple(q - q / 4 * 4), "m/15%4");
  EXPECT_EQ(Simple(q % 15 * 15 + r), "m%225");
  EXPECT_EQ(Simple(Expr(m) / 225 * 225 + q % 15 * 15 + r), "m");
}

TEST_F(SimplifyTest, SplitAndFuseCancel) {
  Var o = Bind("o", 8), i = Bind("i", 16);
  Expr original = Expr(o) * 16 + i;
  Expr fused_again = original / 16 * 16 + original % 16;
  EXPECT_EQ(Simple(fused_again), "o*16 + i");
  Var f = Bind("f", 6 * 7 * 8);
  Expr a = Expr(f) / 56, b = Expr(f) / 8 % 7, c = Expr(f) % 8;
  EXPECT_EQ(Simple(a * 56 + b * 8 + c), "f");
  EXPECT_EQ(Simple((a * 7 + b) * 8 + c), "f");
}

// The flattened rows of a convolution: m = mo*14 + i becomes (n, oh, ow) and is linearised again.
TEST_F(SimplifyTest, ConvolutionRowsStayAffineWhenTheTileDividesTheRow) {
  for (int64_t width : {14, 28, 56, 112}) {
    Simplifier facts;
    Var mo = MakeVar("mo"), i = MakeVar("i");
    int64_t area = width * width;
    facts.Bind(mo, 4 * area / 14);
    facts.Bind(i, 14);
    Expr m = Expr(mo) * 14 + i;
    Expr n = m / area, oh = m % area / width, ow = m % width;
    EXPECT_EQ(Text(facts.Simplify(n * area + oh * width + ow)), "mo*14 + i") << width;
    Expr column = facts.Simplify(ow);
    EXPECT_TRUE(AsLinear(column, {i}).has_value()) << Text(column);
    EXPECT_FALSE(UsesVar(facts.Simplify(oh), i));
    EXPECT_FALSE(UsesVar(facts.Simplify(n), i));
  }
}

TEST_F(SimplifyTest, ConvolutionRowsRecombineWhenTheTileDoesNotDivideTheRow) {
  for (int64_t width : {7, 10, 15, 32, 40}) {
    Simplifier facts;
    Var mo = MakeVar("mo"), i = MakeVar("i");
    int64_t area = width * 5;
    facts.Bind(mo, 50);
    facts.Bind(i, 14);
    Expr m = Expr(mo) * 14 + i;
    Expr n = m / area, oh = m % area / width, ow = m % width;
    EXPECT_EQ(Text(facts.Simplify((n * 5 + oh) * width + ow)), "mo*14 + i") << width;
    EXPECT_EQ(Text(facts.Simplify(oh * width + ow)), Text(facts.Simplify(m % area))) << width;
  }
}

TEST_F(SimplifyTest, OneByOneConvolutionReadsItsInputInOrder) {
  Var mo = Bind("mo", 4 * 784 / 14), i = Bind("i", 14), c = Bind("c", 64);
  Expr m = Expr(mo) * 14 + i;
  Buffer x = MakeBuffer("x", DType::kF32, {4, 28, 28, 64});
  EXPECT_EQ(Simple(FlatIndex(x, {m / 784, m % 784 / 28, m % 28, c})), "mo*896 + i*64 + c");
}

TEST_F(SimplifyTest, ComparisonsAreDecidedByRange) {
  Var i = Bind("i", 14), o = Bind("o", 7);
  EXPECT_EQ(Simple(Expr(i) < 14), "true");
  EXPECT_EQ(Simple(14 <= Expr(i)), "false");
  EXPECT_EQ(Simple(Expr(o) * 14 + i < 98), "true");
  EXPECT_EQ(Simple(Eq(Expr(i) + 1, 0)), "false");
  EXPECT_EQ(Simple(Eq(Expr(i) * 2, 7)), "false");
  EXPECT_EQ(Simple(Expr(i) < 3), "i < 3");
  EXPECT_EQ(Simple(Not(Expr(i) < 3)), "2 < i");
  EXPECT_EQ(Simple(Expr(o) + 3 < Expr(i)), "o < i - 3");
}

TEST_F(SimplifyTest, TailTestsDropTheInnerLoopWhereItCanNotMatter) {
  Var o = Bind("o", 8), i = Bind("i", 14);
  EXPECT_EQ(Simple(Expr(o) * 14 + i < 98), "o < 7");
  EXPECT_EQ(Simple(Expr(o) * 14 + i < 100), "o*14 + i < 100");
  EXPECT_EQ(Simple(97 < Expr(o) * 14 + i), "6 < o");
}

// Where a quotient passes a constant, the dividend passes a constant too.
TEST_F(SimplifyTest, OrdersOfQuotientsLoseTheDivision) {
  Var m = Bind("m", 1000), o = Bind("o", 100), i = Bind("i", 8);
  EXPECT_EQ(Simple(Expr(m) / 7 < 3), "m < 21");
  EXPECT_EQ(Simple(Expr(m) / 7 <= 3), "m < 28");
  EXPECT_EQ(Simple(3 < Expr(m) / 7), "27 < m");
  EXPECT_EQ(Simple(3 <= Expr(m) / 7), "20 < m");
  EXPECT_EQ(Simple((Expr(m) - 500) / 7 < -3), "m < 479");
  EXPECT_EQ(Simple(-3 < (Expr(m) - 500) / 7), "485 < m");
  EXPECT_EQ(Simple(Expr(m) / 7 * 2 < 5), "m < 21");
  EXPECT_EQ(Simple((Expr(m) / 7 + Expr(m) % 3) / 5 < 2), "m%3*7 + m < 70");
  EXPECT_EQ(Simple((Expr(o) * 8 + i) / 7 < 16), "o < 14");
  EXPECT_EQ(Simple((Expr(o) * 8 + i) / 7 < 15), "o*8 + i < 105");
  EXPECT_EQ(Simple(Expr(m) / 7 < Expr(o)), "m/7 < o");
  facts_.Assume(Expr(m) / 7 < 3);
  EXPECT_TRUE(facts_.CanProve(Expr(m) < 21));
  EXPECT_TRUE(facts_.CanProve(Expr(m) / 7 < 3));
  EXPECT_FALSE(facts_.CanProve(Expr(m) < 20));
}

TEST_F(SimplifyTest, MinAndMaxAreDecidedByRange) {
  Var i = Bind("i", 14);
  EXPECT_EQ(Simple(Min(Expr(i), Expr(13))), "i");
  EXPECT_EQ(Simple(Max(Expr(i) - 20, Expr(-3))), "-3");
  EXPECT_EQ(Simple(Min(5, Expr(i))), "min(i, 5)");
}

TEST_F(SimplifyTest, LogicDropsDecidedAndRepeatedParts) {
  Var i = Bind("i", 14);
  EXPECT_EQ(Simple(And(Expr(i) < 14, Expr(i) < 3)), "i < 3");
  EXPECT_EQ(Simple(And(Expr(i) < 3, Expr(i) + 1 < 4)), "i < 3");
  EXPECT_EQ(Simple(Or(Expr(i) < 3, Expr(i) < 14)), "true");
  EXPECT_EQ(Simple(Select(Expr(i) < 14, i, 7)), "i");
}

TEST_F(SimplifyTest, FloatsAreKeptButForTheirIndices) {
  Var i = Bind("i", 14);
  Buffer a = MakeBuffer("a", DType::kF32, {14});
  Expr load = Load(a, {(Expr(i) + 14) % 14});
  EXPECT_EQ(Simple(load + load), "a[i] + a[i]");
  EXPECT_EQ(Simple(Cast((Expr(i) + 14) % 14, DType::kF32)), "f32(i)");
}

TEST_F(SimplifyTest, BoundsFollowTheRanges) {
  Var i = Bind("i", 14), j = Bind("j", 5);
  auto bounds = facts_.Bounds(Expr(i) * 3 - Expr(j) * 2 + 1);
  ASSERT_TRUE(bounds.has_value());
  EXPECT_EQ(bounds->min, -7);
  EXPECT_EQ(bounds->max, 40);
  EXPECT_FALSE(facts_.Bounds(Expr(MakeVar("free"))).has_value());
  Buffer a = MakeBuffer("a", DType::kI64, {14});
  EXPECT_FALSE(facts_.Bounds(Load(a, {i})).has_value());
  EXPECT_TRUE(facts_.CanProve(Expr(i) + j < 18));
  EXPECT_FALSE(facts_.CanProve(Expr(i) + j < 17));
}

TEST_F(SimplifyTest, UnbindForgetsTheRangeAndWhatWasAssumed) {
  Var i = Bind("i", 14);
  facts_.Assume(Expr(i) / 5 < 2);
  EXPECT_TRUE(facts_.CanProve(Expr(i) / 5 < 2));
  facts_.Unbind(i);
  EXPECT_FALSE(facts_.CanProve(Expr(i) < 14));
  facts_.Bind(i, 14);
  EXPECT_FALSE(facts_.CanProve(Expr(i) / 5 < 2));
}

TEST_F(SimplifyTest, AssumptionsNarrowVariablesAndLinearForms) {
  Var o = Bind("o", 8), i = Bind("i", 14);
  facts_.Assume(And(Expr(o) * 14 + i < 100, 3 <= Expr(i)));
  EXPECT_TRUE(facts_.CanProve(Expr(o) * 14 + i < 100));
  EXPECT_TRUE(facts_.CanProve(Expr(o) * 28 + Expr(i) * 2 < 199));
  EXPECT_FALSE(facts_.CanProve(Expr(o) * 14 + i < 99));
  EXPECT_TRUE(facts_.CanProve(2 < Expr(i)));
}

TEST(AsLinearTest, SplitsCoefficientsFromTheRest) {
  Var i = MakeVar("i"), j = MakeVar("j"), k = MakeVar("k");
  auto linear = AsLinear((Expr(i) + Expr(k) / 2) * 4 - Expr(j) + 3, {i, j});
  ASSERT_TRUE(linear.has_value());
  EXPECT_EQ(linear->coefficients, (std::vector<int64_t>{4, -1}));
  Simplifier facts;
  EXPECT_EQ(Text(facts.Simplify(linear->rest)), "k/2*4 + 3");
  EXPECT_FALSE(AsLinear(Expr(i) / 2, {i}).has_value());
  EXPECT_FALSE(AsLinear(Expr(i) * j, {i}).has_value());
}

TEST(FlatIndexTest, IsTheRowMajorSum) {
  Var i = MakeVar("i"), j = MakeVar("j");
  EXPECT_EQ(Text(FlatIndex(MakeBuffer("a", DType::kF32, {4, 6, 8}), {i, 2, j})), "i*48 + 16 + j");
  EXPECT_EQ(Text(FlatIndex(MakeBuffer("s", DType::kF32, {}), {})), "0");
}

class SimplifyStmtTest : public ::testing::Test {
 protected:
  Buffer a_ = MakeBuffer("a", DType::kF32, {16});
  Var i_ = MakeVar("i"), j_ = MakeVar("j");
  Stmt StoreAt(const Expr& index) { return Store(a_, {index}, Float(1)); }
};

TEST_F(SimplifyStmtTest, SingleTripAndEmptyLoopsVanish) {
  Stmt nest = For(i_, 16, ForKind::kSerial, For(j_, 1, ForKind::kParallel, StoreAt(Expr(i_) + j_)));
  EXPECT_EQ(Text(Simplify(nest)), "for i in 0..16\n  a[i] = 1.0\n");
  EXPECT_EQ(Text(Simplify(For(i_, 0, ForKind::kSerial, StoreAt(i_)))), "");
}

TEST_F(SimplifyStmtTest, DecidedIfsVanish) {
  Stmt nest = For(i_, 16, ForKind::kSerial, If(Expr(i_) < 16, StoreAt(i_), StoreAt(0)));
  EXPECT_EQ(Text(Simplify(nest)), "for i in 0..16\n  a[i] = 1.0\n");
  nest = For(i_, 16, ForKind::kSerial, If(Expr(i_) < 0, StoreAt(i_)));
  EXPECT_EQ(Text(Simplify(nest)), "");
}

TEST_F(SimplifyStmtTest, ConditionsNarrowWhatIsBelowThem) {
  Stmt nest = For(i_, 16, ForKind::kSerial,
                  If(Expr(i_) < 4, If(Expr(i_) < 9, StoreAt(Expr(i_) / 4)), If(Expr(i_) < 4, StoreAt(0), StoreAt(i_))));
  EXPECT_EQ(Text(Simplify(nest)), "for i in 0..16\n  if i < 4\n    a[0] = 1.0\n  else\n    a[i] = 1.0\n");
}

TEST_F(SimplifyStmtTest, AnIfWithOnlyAnElseIsTurnedRound) {
  Stmt nest = For(i_, 16, ForKind::kSerial, If(Expr(i_) < 4, Seq({}), StoreAt(i_)));
  EXPECT_EQ(Text(Simplify(nest)), "for i in 0..16\n  if 3 < i\n    a[i] = 1.0\n");
}

TEST_F(SimplifyStmtTest, BlocksUseLoopsInBindingsAndIteratorsInside) {
  Var v = MakeVar("v");
  BlockInfo info{"b", {{v, 16, false}}, {Expr(i_) * 4 + j_}, Expr(i_) * 4 + j_ < 16, Expr()};
  Stmt block = BlockStmt(info, a_, {Expr(v) % 16}, Float(2));
  Stmt nest = For(i_, 4, ForKind::kSerial, For(j_, 4, ForKind::kSerial, block));
  EXPECT_EQ(Text(Simplify(nest)), "for i in 0..4\n  for j in 0..4\n    block b(v: 16 = i*4 + j)\n      a[v] = 2.0\n");
}

TEST_F(SimplifyStmtTest, AnUnchangedStatementIsTheSameNode) {
  Stmt nest = For(i_, 16, ForKind::kSerial, Seq({StoreAt(i_), If(Expr(i_) < 3, StoreAt(Expr(i_) * 4 + 1))}));
  EXPECT_EQ(Simplify(nest), nest);
}

// Doubling by sharing: 2^60 paths through 60 nodes must cost 60 steps.
TEST_F(SimplifyTest, SharedSubexpressionsAreVisitedOnce) {
  Var i = Bind("i", 1000);
  Buffer a = MakeBuffer("a", DType::kF32, {1000});
  Expr e = Load(a, {(Expr(i) + 1000) % 1000});
  for (int n = 0; n < 60; ++n) e = Max(e, Exp(e));
  Expr simple = facts_.Simplify(e);
  while (!simple->args.empty() && simple->kind != ExprKind::kLoad) simple = simple->args[0];
  EXPECT_EQ(Text(simple), "a[i]");
}

TEST_F(SimplifyTest, SharedIndicesAreVisitedOnce) {
  Expr sum = Bind("i", 4), bounded = Bind("j", 4), plain = Bind("k", 4);
  const Expr k = plain;
  for (int n = 0; n < 60; ++n) {
    sum = sum + sum;
    bounded = Min(bounded, bounded * bounded);
    plain = Max(plain + plain, k * plain);
  }
  EXPECT_EQ(Text(facts_.Simplify(sum)), absl::StrCat("i*", int64_t{1} << 60));
  EXPECT_EQ(Flatten(sum).terms.at(0).coefficient, int64_t{1} << 60);
  EXPECT_TRUE(facts_.CanProve(bounded < 4));
  EXPECT_FALSE(facts_.CanProve(plain < 4));
}

}  // namespace
}  // namespace temper::ir
