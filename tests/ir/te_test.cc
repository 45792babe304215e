#include "compiler/ir/te.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace temper::ir {
namespace {

using ::testing::HasSubstr;

NDArray Counting(Shape shape) {
  NDArray a(DType::kF32, std::move(shape));
  for (int64_t i = 0; i < a.size(); ++i) a.Set(i, static_cast<double>(i % 13) - 5);
  return a;
}

TEST(TensorTest, APermutedBufferIsReadByItsLogicalIndex) {
  Buffer nhwc = MakeBuffer("x", DType::kF32, {1, 5, 6, 3});
  Tensor x = Tensor::OfBuffer(nhwc, {0, 2, 3, 1});  // logical NCHW
  EXPECT_EQ(x.shape(), (Shape{1, 3, 5, 6}));
  Var n = MakeVar("n"), c = MakeVar("c"), h = MakeVar("h"), w = MakeVar("w");
  EXPECT_EQ(Text(x({n, c, h, w})), "x[n, h, w, c]");
  EXPECT_EQ(Text(Tensor::OfBuffer(nhwc)({n, c, h, w})), "x[n, c, h, w]");
}

TEST(CombinerTest, IdentitiesAreNeutral) {
  for (DType dtype : {DType::kF32, DType::kF64, DType::kI64, DType::kI32, DType::kU8, DType::kI8}) {
    for (Combiner c : {Combiner::kSum, Combiner::kMax, Combiner::kMin, Combiner::kProd}) {
      Expr identity = Identity(c, dtype);
      EXPECT_EQ(identity->dtype, dtype);
      for (int v : {0, 1, 100})
        EXPECT_EQ(Text(Combine(c, identity, Const(v, dtype))), Text(Const(v, dtype))) << Name(dtype);
    }
  }
}

TEST(ProgramBuilderTest, MatmulWithEpilogueComputesWhatItSays) {
  ProgramBuilder p("matmul");
  Buffer a = p.Input("A", DType::kF32, {4, 6}), b = p.Input("B", DType::kF32, {6, 5});
  Buffer c = p.Reduce("C", DType::kF32, {4, 5}, {6}, Combiner::kSum, [&](const auto& i, const auto& r) {
    return Load(a, {i[0], r[0]}) * Load(b, {r[0], i[1]});
  });
  Buffer d = p.Compute("D", DType::kF32, {4, 5}, [&](const auto& i) { return Max(Load(c, i), Float(0)); });
  p.MarkOutput(d);
  auto f = p.Finish();
  ASSERT_TRUE(f.ok()) << f.status();
  std::vector<NDArray> args = {Counting({4, 6}), Counting({6, 5}), NDArray(DType::kF32, {4, 5})};
  ASSERT_TRUE(Interpret(*f, args).ok());
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t j = 0; j < 5; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < 6; ++k) sum += args[0].At(i * 6 + k) * args[1].At(k * 5 + j);
      EXPECT_EQ(args[2].At(i * 5 + j), std::max(sum, 0.0));
    }
  }
}

TEST(ProgramBuilderTest, EveryCombinerReduces) {
  const double values[] = {3, -2, 5, 1};
  struct Case {
    Combiner combiner;
    double expected;
  };
  for (const Case& c :
       {Case{Combiner::kSum, 7}, Case{Combiner::kMax, 5}, Case{Combiner::kMin, -2}, Case{Combiner::kProd, -30}}) {
    ProgramBuilder p("reduce");
    Buffer x = p.Input("x", DType::kF32, {2, 2});
    p.MarkOutput(
        p.Reduce("y", DType::kF32, {}, {2, 2}, c.combiner, [&](const auto&, const auto& r) { return Load(x, r); }));
    auto f = p.Finish();
    ASSERT_TRUE(f.ok()) << f.status();
    std::vector<NDArray> args = {NDArray(DType::kF32, {2, 2}), NDArray(DType::kF32, {})};
    for (int64_t i = 0; i < 4; ++i) args[0].Set(i, values[i]);
    ASSERT_TRUE(Interpret(*f, args).ok());
    EXPECT_EQ(args[1].At(0), c.expected);
  }
}

TEST(ProgramBuilderTest, MaterializeStoresInThePhysicalOrderAndReadsBackLogically) {
  ProgramBuilder p("transpose");
  Buffer x = p.Input("x", DType::kF32, {3, 4});
  Tensor t = p.Materialize("t", Tensor::OfBuffer(x), {1, 0});
  EXPECT_EQ(t.shape(), (Shape{3, 4}));
  EXPECT_EQ(p.last()->shape, (Shape{4, 3}));
  Buffer y = p.Compute("y", DType::kF32, {3, 4}, [&](const auto& i) { return t({i[0], i[1]}) * 2; });
  p.MarkOutput(y);
  auto f = p.Finish();
  ASSERT_TRUE(f.ok()) << f.status();
  std::vector<NDArray> args = {Counting({3, 4}), NDArray(DType::kF32, {3, 4})};
  ASSERT_TRUE(Interpret(*f, args).ok());
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(args[1].At(i), 2 * args[0].At(i));
}

TEST(ProgramBuilderTest, NamesAreMadeUniqueAndIntermediatesAreAllocated) {
  ProgramBuilder p("twice");
  Buffer x = p.Input("x", DType::kF32, {4});
  Buffer first = p.Compute("t", DType::kF32, {4}, [&](const auto& i) { return Load(x, i) + 1; });
  Buffer second = p.Compute("t", DType::kF32, {4}, [&](const auto& i) { return Load(first, i) + 1; });
  EXPECT_EQ(second->name, "t_1");
  p.MarkOutput(second);
  auto f = p.Finish();
  ASSERT_TRUE(f.ok()) << f.status();
  EXPECT_EQ(f->body->kind, StmtKind::kAlloc);
  EXPECT_EQ(f->body->buffer, first);
  EXPECT_EQ(f->params, (std::vector<Buffer>{x, second}));
}

TEST(ProgramBuilderTest, OutputsAreMarkedStages) {
  ProgramBuilder none("none");
  EXPECT_THAT(std::string(none.Finish().status().message()), HasSubstr("marks no output"));
  ProgramBuilder input("input");
  input.MarkOutput(input.Input("x", DType::kF32, {4}));
  EXPECT_THAT(std::string(input.Finish().status().message()), HasSubstr("x is no stage"));
}

}  // namespace
}  // namespace temper::ir
