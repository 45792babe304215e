#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "compiler/ir/stmt.h"

namespace temper::ir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

NDArray Sequence(int64_t n) {
  NDArray a(DType::kF32, {n});
  for (int64_t i = 0; i < n; ++i) a.Set(i, static_cast<double>(i + 1));
  return a;
}

class InterpreterTest : public ::testing::Test {
 protected:
  absl::Status Run(const Stmt& body) { return Interpret(Func{"f", {in_, out_}, 1, body}, args_); }
  std::vector<float> Result() const {
    auto span = std::as_const(args_[1]).as<float>();
    return {span.begin(), span.end()};
  }

  Buffer in_ = MakeBuffer("in", DType::kF32, {6}), out_ = MakeBuffer("out", DType::kF32, {6});
  std::vector<NDArray> args_ = {Sequence(6), NDArray(DType::kF32, {6})};
  Var i_ = MakeVar("i"), j_ = MakeVar("j");
};

TEST_F(InterpreterTest, LoopsStoresAndIfs) {
  Stmt body =
      For(i_, 6, ForKind::kVectorized,
          If(Expr(i_) < 3, Store(out_, {i_}, Load(in_, {5 - Expr(i_)})), Store(out_, {i_}, Cast(i_, DType::kF32))));
  ASSERT_TRUE(Run(body).ok());
  EXPECT_THAT(Result(), ElementsAre(6, 5, 4, 3, 4, 5));
}

TEST_F(InterpreterTest, AReductionInitialisesAtItsFirstPointAndHonoursThePredicate) {
  Var v = MakeVar("v"), r = MakeVar("r");
  args_[1].Set(2, 99);
  // out[v] = sum of in[0..v], for v < 2 only.
  BlockInfo info{"b", {{v, 6, false}, {r, 6, true}}, {i_, j_}, Expr(i_) < 2, Float(0)};
  Expr value = Load(out_, {v}) + Select(Expr(r) <= Expr(v), Load(in_, {r}), Float(0));
  ASSERT_TRUE(Run(For(i_, 6, ForKind::kSerial, For(j_, 6, ForKind::kSerial, BlockStmt(info, out_, {v}, value)))).ok());
  EXPECT_THAT(Result(), ElementsAre(1, 3, 99, 0, 0, 0));
}

// 2^60 paths; each loop's turn computes the shared nodes anew.
TEST_F(InterpreterTest, NodesThatAreSharedAreComputedOnceATime) {
  Expr value = Load(in_, {i_}), index = i_, lazy = Load(in_, {i_});
  for (int n = 0; n < 60; ++n) {
    value = value + value;
    index = Max(index, index);
    lazy = Select(Expr(i_) < 3, lazy, lazy * lazy);
  }
  const Expr scaled = value * Float(std::ldexp(1.0, -60));
  const Stmt body = For(i_, 6, ForKind::kSerial, Store(out_, {index}, Select(Expr(i_) < 3, lazy, scaled)));
  ASSERT_TRUE(Run(body).ok());
  EXPECT_THAT(Result(), ElementsAre(1, 2, 3, 4, 5, 6));
  ASSERT_TRUE(
      Run(Seq({body, For(j_, 6, ForKind::kSerial, Store(out_, {j_}, Load(out_, {j_}) + Load(out_, {j_})))})).ok());
  EXPECT_THAT(Result(), ElementsAre(2, 4, 6, 8, 10, 12));
}

TEST_F(InterpreterTest, IteratorsOutsideTheirDomainAreErrors) {
  Var v = MakeVar("v");
  BlockInfo info{"b", {{v, 5, false}}, {i_}, Expr(), Expr()};
  absl::Status status = Run(For(i_, 6, ForKind::kSerial, BlockStmt(info, out_, {v}, Float(1))));
  EXPECT_THAT(std::string(status.message()), HasSubstr("block b: iterator v = 5 is outside [0, 5)"));
}

TEST_F(InterpreterTest, OutOfBoundsAccessesNameTheBufferAndTheIndices) {
  absl::Status status = Run(For(i_, 7, ForKind::kSerial, Store(out_, {i_}, Float(1))));
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), HasSubstr("f: out[6] is out of bounds 6"));
  EXPECT_THAT(std::string(Run(Store(out_, {0}, Load(in_, {-1}))).message()), HasSubstr("in[-1] is out of bounds 6"));
}

TEST_F(InterpreterTest, SelectAndLogicAreLazy) {
  Stmt body =
      For(i_, 6, ForKind::kSerial,
          Store(out_, {i_},
                Select(And(0 < Expr(i_), Float(1) < Load(in_, {Expr(i_) - 1})), Load(in_, {Expr(i_) - 1}), Float(-1))));
  ASSERT_TRUE(Run(body).ok());
  EXPECT_THAT(Result(), ElementsAre(-1, -1, 2, 3, 4, 5));
}

TEST_F(InterpreterTest, AllocationsStartPoisonedAtEveryEntry) {
  Buffer t = MakeBuffer("t", DType::kF32, {1}), n = MakeBuffer("n", DType::kI64, {1});
  Stmt read_then_write = Seq({Store(out_, {i_}, Load(t, {0})), Store(t, {0}, Float(1))});
  ASSERT_TRUE(Run(For(i_, 2, ForKind::kSerial, Alloc(t, read_then_write))).ok());
  EXPECT_TRUE(std::isnan(Result()[0]));
  EXPECT_TRUE(std::isnan(Result()[1]));
  ASSERT_TRUE(Run(Alloc(n, Store(out_, {0}, Cast(Load(n, {0}), DType::kF32)))).ok());
  EXPECT_GT(std::abs(Result()[0]), 1e15);
}

TEST_F(InterpreterTest, F32ArithmeticRoundsEachStep) {
  Expr big = Load(in_, {0}) * 16777216;  // 2^24: adding 1 is lost in f32
  ASSERT_TRUE(Run(Store(out_, {0}, big + Load(in_, {0}) - big)).ok());
  EXPECT_EQ(Result()[0], 0);
}

TEST_F(InterpreterTest, FloatFunctions) {
  Expr x = Load(in_, {1}) / 3;
  double v = static_cast<double>(2.0f / 3.0f);
  struct Case {
    ExprKind kind;
    double expected;
  };
  const Case cases[] = {{ExprKind::kExp, std::exp(v)},   {ExprKind::kLog, std::log(v)},
                        {ExprKind::kTanh, std::tanh(v)}, {ExprKind::kErf, std::erf(v)},
                        {ExprKind::kSqrt, std::sqrt(v)}, {ExprKind::kAbs, v},
                        {ExprKind::kFloor, 0},           {ExprKind::kCeil, 1},
                        {ExprKind::kRound, 1},           {ExprKind::kSin, std::sin(v)},
                        {ExprKind::kCos, std::cos(v)}};
  for (const Case& c : cases) {
    ASSERT_TRUE(Run(Store(out_, {0}, Unary(c.kind, x))).ok());
    EXPECT_FLOAT_EQ(Result()[0], static_cast<float>(c.expected)) << Name(c.kind);
  }
  ASSERT_TRUE(Run(Store(out_, {0}, Unary(ExprKind::kRound, Load(in_, {0}) * Float(2.5)))).ok());
  EXPECT_EQ(Result()[0], 2);  // half to even
  ASSERT_TRUE(Run(Store(out_, {0}, Binary(ExprKind::kPow, Load(in_, {1}), Float(10)))).ok());
  EXPECT_EQ(Result()[0], 1024);
}

// To the nearest of 10 bits of mantissa, ties away from zero.
TEST_F(InterpreterTest, RoundsToTf32) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kLargest = std::numeric_limits<float>::max();
  const std::pair<double, double> cases[] = {{0, 0},
                                             {1 + 0x1p-10, 1 + 0x1p-10},
                                             {1 + 0x1p-11, 1 + 0x1p-10},
                                             {-1 - 0x1p-11, -1 - 0x1p-10},
                                             {1 + 0x1p-11 - 0x1p-23, 1},
                                             {1 + 0x3p-11, 1 + 0x1p-9},
                                             {2 - 0x1p-12, 2},
                                             {0x1p-137, 0x1p-136},  // no number below the normal ones is flushed
                                             {0x1p-138, 0},
                                             {kLargest, kInfinity},
                                             {-kInfinity, -kInfinity}};
  for (const auto& [x, rounded] : cases) {
    ASSERT_TRUE(Run(Store(out_, {0}, Tf32(Float(x)))).ok());
    EXPECT_EQ(Result()[0], rounded) << x;
  }
  ASSERT_TRUE(Run(Store(out_, {0}, Tf32(Float(std::nan(""))))).ok());
  EXPECT_TRUE(std::isnan(Result()[0]));
}

TEST_F(InterpreterTest, ArgumentsMustFit) {
  Func f{"f", {in_, out_}, 1, Store(out_, {0}, Float(1))};
  std::vector<NDArray> one = {Sequence(6)};
  EXPECT_THAT(std::string(Interpret(f, one).message()), HasSubstr("1 arguments for 2 parameters"));
  std::vector<NDArray> wrong = {Sequence(6), Sequence(5)};
  EXPECT_THAT(std::string(Interpret(f, wrong).message()), HasSubstr("out is 5 where 6 is needed"));
}

TEST(InterpreterIntegerTest, EveryDTypeIsReadAndWritten) {
  for (DType dtype : {DType::kF32, DType::kF64, DType::kI64, DType::kI32, DType::kU8, DType::kI8, DType::kBool}) {
    Buffer in = MakeBuffer("in", dtype, {2}), out = MakeBuffer("out", dtype, {2});
    Var i = MakeVar("i");
    std::vector<NDArray> args = {NDArray(dtype, {2}), NDArray(dtype, {2})};
    args[0].Set(0, 1);
    Func f{"f", {in, out}, 1, For(i, 2, ForKind::kSerial, Store(out, {i}, Load(in, {i})))};
    ASSERT_TRUE(Interpret(f, args).ok());
    EXPECT_EQ(args[1].At(0), 1) << Name(dtype);
    EXPECT_EQ(args[1].At(1), 0) << Name(dtype);
  }
}

TEST(InterpreterIntegerTest, FloorDivisionAndWrapping) {
  Buffer in = MakeBuffer("in", DType::kI32, {2}), out = MakeBuffer("out", DType::kI32, {4});
  std::vector<NDArray> args = {NDArray(DType::kI32, {2}), NDArray(DType::kI32, {4})};
  args[0].Set(0, -7);
  args[0].Set(1, 3);
  Expr a = Load(in, {0}), b = Load(in, {1});
  Expr big = Int(2147483647, DType::kI32);
  Func f{"f",
         {in, out},
         1,
         Seq({Store(out, {0}, a / b), Store(out, {1}, a % b), Store(out, {2}, a / (0 - b)), Store(out, {3}, big + b)})};
  ASSERT_TRUE(Interpret(f, args).ok());
  EXPECT_EQ(args[1].At(0), -3);
  EXPECT_EQ(args[1].At(1), 2);
  EXPECT_EQ(args[1].At(2), 2);
  EXPECT_EQ(args[1].At(3), -2147483646);
}

// What the constructors fold must be what the interpreter computes.
TEST(InterpreterIntegerTest, FoldingAndRunningAgree) {
  Rng rng(7);
  Buffer in = MakeBuffer("in", DType::kI64, {2}), out = MakeBuffer("out", DType::kI64, {1});
  std::vector<NDArray> args = {NDArray(DType::kI64, {2}), NDArray(DType::kI64, {1})};
  for (ExprKind kind : {ExprKind::kAdd, ExprKind::kSub, ExprKind::kMul, ExprKind::kDiv, ExprKind::kMod, ExprKind::kMin,
                        ExprKind::kMax, ExprKind::kLt, ExprKind::kLe, ExprKind::kEq}) {
    for (int n = 0; n < 50; ++n) {
      int64_t a = rng.Below(21) - 10, b = rng.Below(21) - 10;
      auto folded = AsInt(Binary(kind, Int(a), Int(b)));
      if (!folded) continue;
      args[0].Set(0, static_cast<double>(a));
      args[0].Set(1, static_cast<double>(b));
      Func f{"f", {in, out}, 1, Store(out, {0}, Cast(Binary(kind, Load(in, {0}), Load(in, {1})), DType::kI64))};
      ASSERT_TRUE(Interpret(f, args).ok());
      EXPECT_EQ(args[1].At(0), static_cast<double>(*folded)) << Name(kind) << " " << a << " " << b;
    }
  }
}

}  // namespace
}  // namespace temper::ir
