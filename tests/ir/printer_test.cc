#include <gtest/gtest.h>

#include <cmath>

#include "compiler/ir/stmt.h"
#include "compiler/ir/te.h"

namespace temper::ir {
namespace {

TEST(PrinterTest, ParenthesesOnlyWhereNeeded) {
  Expr i = Expr(MakeVar("i")), j = Expr(MakeVar("j")), k = Expr(MakeVar("k"));
  EXPECT_EQ(Text(i * 16 + j), "i*16 + j");
  EXPECT_EQ(Text((i + j) * 16), "(i + j)*16");
  EXPECT_EQ(Text(i - (j - k)), "i - (j - k)");
  EXPECT_EQ(Text(i - j - k), "i - j - k");
  EXPECT_EQ(Text(i / (j * k)), "i/(j*k)");
  EXPECT_EQ(Text(i / 4 % 2), "i/4%2");
  EXPECT_EQ(Text(i % 4 * 2), "i%4*2");
  EXPECT_EQ(Text(2 * (i % 4)), "2*(i%4)");
  EXPECT_EQ(Text(i + -3), "i - 3");
  EXPECT_EQ(Text(i + j * -3), "i - j*3");
  EXPECT_EQ(Text(Or(And(i < j, j <= k), Not(Eq(i, k)))), "i < j && j <= k || !(i == k)");
  EXPECT_EQ(Text(And(Or(i < j, j < k), i < k)), "(i < j || j < k) && i < k");
}

TEST(PrinterTest, ConstantsShowTheirDType) {
  EXPECT_EQ(Text(Int(3)), "3");
  EXPECT_EQ(Text(Int(3, DType::kI32)), "i32(3)");
  EXPECT_EQ(Text(Float(1.5)), "1.5");
  EXPECT_EQ(Text(Float(2)), "2.0");
  EXPECT_EQ(Text(Float(0.1)), "0.1");
  EXPECT_EQ(Text(Float(2, DType::kF64)), "f64(2.0)");
  EXPECT_EQ(Text(Float(-INFINITY)), "-inf");
  EXPECT_EQ(Text(Bool(true)), "true");
}

TEST(PrinterTest, FunctionsAndLoads) {
  Expr i = Expr(MakeVar("i"));
  Buffer a = MakeBuffer("A", DType::kF32, {8, 8});
  EXPECT_EQ(Text(Load(a, {i * 2, i + 1})), "A[i*2, i + 1]");
  EXPECT_EQ(Text(Max(Exp(Load(a, {i, i})), Cast(i, DType::kF32))), "max(exp(A[i, i]), f32(i))");
  EXPECT_EQ(Text(Select(i < 3, i, 0)), "select(i < 3, i, 0)");
}

TEST(PrinterTest, EqualNamesGetSuffixesInOrderOfAppearance) {
  Var first = MakeVar("i"), second = MakeVar("i"), third = MakeVar("i");
  EXPECT_EQ(Text(Expr(second) - first * Expr(third) + first), "i - i_1*i_2 + i_1");
}

TEST(PrinterTest, ScheduledFunction) {
  ProgramBuilder p("matmul");
  Buffer a = p.Input("A", DType::kF32, {64, 32}), b = p.Input("B", DType::kF32, {32, 16});
  Buffer c = p.Reduce("C", DType::kF32, {64, 16}, {32}, Combiner::kSum, [&](const auto& i, const auto& r) {
    return Load(a, {i[0], r[0]}) * Load(b, {r[0], i[1]});
  });
  p.Compute("D", DType::kF32, {64, 16}, [&](const auto& i) { return Max(Load(c, i), Float(0)); });
  p.MarkOutput(p.last());
  auto f = p.Finish();
  ASSERT_TRUE(f.ok()) << f.status();
  EXPECT_EQ(Text(*f),
            "func matmul(A: f32[64,32], B: f32[32,16]) -> (D: f32[64,16])\n"
            "  alloc C: f32[64,16]\n"
            "  for C.i0 in 0..64\n"
            "    for C.i1 in 0..16\n"
            "      for C.r0 in 0..32\n"
            "        block C(i0: 64 = C.i0, i1: 16 = C.i1, reduce r0: 32 = C.r0)\n"
            "          init C[i0, i1] = 0.0\n"
            "          C[i0, i1] = C[i0, i1] + A[i0, r0]*B[r0, i1]\n"
            "  for D.i0 in 0..64\n"
            "    for D.i1 in 0..16\n"
            "      block D(i0: 64 = D.i0, i1: 16 = D.i1)\n"
            "        D[i0, i1] = max(C[i0, i1], 0.0)\n");
}

TEST(PrinterTest, LoweredStatements) {
  Var i = MakeVar("i"), j = MakeVar("j");
  Buffer a = MakeBuffer("a", DType::kF32, {64}), t = MakeBuffer("t", DType::kF32, {4}, Scope::kRegister);
  Stmt inner = Alloc(t, Seq({For(j, 4, ForKind::kVectorized, Store(t, {j}, Load(a, {j}))), Prefetch(a, {Expr(i) + 8}),
                             Prefetch(a, {i}, true)}));
  Stmt s = For(
      i, 16, ForKind::kParallel,
      Seq({inner,
           If(Expr(i) < 8, Store(a, {i}, Float(1)), For(MakeVar("j"), 2, ForKind::kUnrolled, Store(a, {0}, Float(2)))),
           For(MakeVar("k"), 2, ForKind::kOutlined, Store(a, {1}, Float(3)))}));
  EXPECT_EQ(Text(s),
            "parallel i in 0..16\n"
            "  alloc t: f32[4] register\n"
            "    vectorize j in 0..4\n"
            "      t[j] = a[j]\n"
            "    prefetch a[i + 8]\n"
            "    prefetch for store a[i]\n"
            "  if i < 8\n"
            "    a[i] = 1.0\n"
            "  else\n"
            "    unroll j_1 in 0..2\n"
            "      a[0] = 2.0\n"
            "  outline k in 0..2\n"
            "    a[1] = 3.0\n");
}

}  // namespace
}  // namespace temper::ir
