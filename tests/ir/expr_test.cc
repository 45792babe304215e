#include "compiler/ir/expr.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiler/ir/walk.h"

namespace temper::ir {
namespace {

TEST(ExprTest, ConstantsFoldWithFloorSemantics) {
  for (int64_t a = -7; a <= 7; ++a) {
    for (int64_t b = -3; b <= 3; ++b) {
      if (b == 0) continue;
      auto quotient = AsInt(Int(a) / Int(b));
      if (b == -1) {  // not folded: the one division that may overflow
        EXPECT_FALSE(quotient.has_value());
        continue;
      }
      EXPECT_EQ(*quotient, static_cast<int64_t>(std::floor(static_cast<double>(a) / static_cast<double>(b))));
      EXPECT_EQ(*AsInt(Int(a) % Int(b)), a - b * *quotient);
    }
  }
}

TEST(ExprTest, WhatHasNoValueIsNotFolded) {
  EXPECT_FALSE(AsInt(Int(1) / Int(0)).has_value());
  EXPECT_FALSE(AsInt(Int(1) % Int(0)).has_value());
  EXPECT_FALSE(AsInt(Int(std::numeric_limits<int64_t>::max()) + Int(1)).has_value());
}

TEST(ExprTest, NarrowIntegersWrapWhenFolded) {
  EXPECT_EQ(AsInt(Int(127, DType::kI8) + Int(1, DType::kI8)), -128);
  EXPECT_EQ(AsInt(Int(200, DType::kU8) + Int(100, DType::kU8)), 44);
  EXPECT_EQ(AsInt(Cast(Int(300), DType::kU8)), 44);
}

TEST(ExprTest, NeutralElementsVanish) {
  Expr x = Expr(MakeVar("x"));
  for (const Expr& e : {x + 0, 0 + x, x - 0, x * 1, 1 * x, x / 1, And(Bool(true), Eq(x, x))->args[0]})
    EXPECT_EQ(Text(e), "x");
  EXPECT_EQ(Text(x * 0), "0");
  EXPECT_EQ(Text(x % 1), "0");
  EXPECT_EQ(Text(Or(x < 1, Bool(true))), "true");
}

TEST(ExprTest, FloatZerosAreKeptForTheSakeOfNaN) {
  Expr x = Load(MakeBuffer("x", DType::kF32, {}), {});
  EXPECT_EQ(Text(x * Float(0)), "x[]*0.0");
  EXPECT_EQ(Text(x * Float(1)), "x[]");
}

TEST(ExprTest, AnIndexConstantAdoptsTheOtherDType) {
  Expr x = Load(MakeBuffer("x", DType::kF32, {}), {});
  Expr e = x * 2;
  EXPECT_EQ(e->args[1]->kind, ExprKind::kFloat);
  EXPECT_EQ(e->args[1]->dtype, DType::kF32);
  EXPECT_EQ((1 - x)->dtype, DType::kF32);
}

TEST(ExprTest, ComparisonsAndLogicAreBool) {
  Expr x = Expr(MakeVar("x"));
  for (const Expr& e : {x < 1, x <= 1, Eq(x, 1), And(x < 1, x < 2), Or(x < 1, x < 2), Not(x < 1)})
    EXPECT_EQ(e->dtype, DType::kBool);
  EXPECT_EQ(Select(x < 1, Float(1), Float(2))->dtype, DType::kF32);
}

TEST(ExprTest, FloatConstantsAreRoundedToTheirDType) {
  EXPECT_EQ(Float(0.1)->float_value, static_cast<double>(0.1f));
  EXPECT_EQ(Float(0.1, DType::kF64)->float_value, 0.1);
}

TEST(ExprTest, SubstitutionIsSimultaneous) {
  Var x = MakeVar("x"), y = MakeVar("y");
  EXPECT_EQ(Text(Substitute(Expr(x) - y, {{x, y}, {y, x}})), "y - x");
  EXPECT_EQ(Text(Substitute(Expr(x) * 4 + y, {{x, 3}})), "12 + y");
}

TEST(ExprTest, RewriteKeepsWhatDoesNotChange) {
  Var x = MakeVar("x"), y = MakeVar("y");
  Expr left = Expr(x) * 4;
  Expr e = left + Expr(y) * 2;
  EXPECT_EQ(Substitute(e, {{y, 5}})->args[0].get(), left.get());
  EXPECT_EQ(Substitute(e, {{MakeVar("z"), 5}}).get(), e.get());
}

// Each a sum of the one before it with itself.
Expr Doublings(Expr e, int times) {
  for (int i = 0; i < times; ++i) e = Binary(ExprKind::kAdd, e, e);
  return e;
}

TEST(ExprTest, ASharedNodeIsLookedAtOnce) {
  const Var v = MakeVar("v");
  const Expr graph = Doublings(v, 60);
  int nodes = 0;
  EXPECT_FALSE(AnyNode(graph, [&](const Expr& e) {
    ++nodes;
    return e->kind == ExprKind::kLoad;
  }));
  EXPECT_EQ(nodes, 60 + 2) << "the sums, and the leaf for each of the two places that it has";
  EXPECT_FALSE(UsesVar(graph, MakeVar("v")));
  EXPECT_TRUE(UsesVar(graph, v));
  EXPECT_TRUE(StructurallyEqual(graph, Doublings(v, 60)));
  EXPECT_FALSE(StructurallyEqual(graph, Doublings(MakeVar("v"), 60)));
}

TEST(ExprTest, LoadsAreFoundWhereverTheyAre) {
  const Buffer a = MakeBuffer("a", DType::kI64, {4}), b = MakeBuffer("b", DType::kI64, {4});
  const Expr none = Doublings(MakeVar("v"), 60), nested = Load(a, {Load(b, {MakeVar("i")})});
  EXPECT_FALSE(HasLoad(none));
  EXPECT_TRUE(HasLoad(none + nested));
  EXPECT_TRUE(LoadsFrom(none + nested, b));
  EXPECT_FALSE(LoadsFrom(none + Load(b, {0}), a));
}

TEST(ExprTest, ATextHasAnEnd) {
  const std::string text = Text(Doublings(MakeVar("v"), 60));
  EXPECT_NE(text.find("..."), std::string::npos);
}

// 2^60 paths, 60 nodes.
TEST(ExprTest, RewriteRebuildsASharedNodeOnce) {
  Var x = MakeVar("x"), y = MakeVar("y");
  Expr e = Cast(x, DType::kF32);
  for (int i = 0; i < 60; ++i) e = e + e;
  Expr rewritten = Substitute(e, {{x, y}});
  EXPECT_EQ(rewritten->args[0].get(), rewritten->args[1].get());
}

TEST(ExprTest, StructuralEqualityComparesVariablesAndBuffersByIdentity) {
  Var x = MakeVar("x"), other_x = MakeVar("x");
  Buffer a = MakeBuffer("a", DType::kF32, {4}), other_a = MakeBuffer("a", DType::kF32, {4});
  EXPECT_TRUE(StructurallyEqual(Load(a, {Expr(x) + 1}), Load(a, {Expr(x) + 1})));
  EXPECT_FALSE(StructurallyEqual(Load(a, {x}), Load(a, {other_x})));
  EXPECT_FALSE(StructurallyEqual(Load(a, {x}), Load(other_a, {x})));
  EXPECT_FALSE(StructurallyEqual(Float(0.0), Float(-0.0)));
  EXPECT_TRUE(StructurallyEqual(Float(NAN), Float(NAN)));
}

TEST(ExprTest, UsesVarLooksIntoIndices) {
  Var x = MakeVar("x"), y = MakeVar("y");
  Expr load = Load(MakeBuffer("a", DType::kF32, {4}), {Expr(x) + 1});
  EXPECT_TRUE(UsesVar(Exp(load), x));
  EXPECT_FALSE(UsesVar(Exp(load), y));
}

}  // namespace
}  // namespace temper::ir
