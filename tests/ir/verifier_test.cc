#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/ir/stmt.h"

namespace temper::ir {
namespace {

using ::testing::HasSubstr;

class VerifierTest : public ::testing::Test {
 protected:
  std::string Complaint(const Stmt& body) {
    absl::Status status = Verify(Func{"f", {in_, out_}, 1, body});
    return std::string(status.message());
  }
  Stmt Copy(const Expr& index) { return Store(out_, {index}, Load(in_, {index})); }
  Stmt Block(std::string name, std::vector<Expr> bindings, bool reduce = false, Expr predicate = Expr()) {
    Var v = MakeVar("v");
    BlockInfo info{std::move(name), {{v, 16, reduce}}, std::move(bindings), predicate, Expr()};
    return BlockStmt(info, out_, {v}, Load(in_, {v}));
  }

  Buffer in_ = MakeBuffer("in", DType::kF32, {16}), out_ = MakeBuffer("out", DType::kF32, {16});
  Var i_ = MakeVar("i"), j_ = MakeVar("j");
};

TEST_F(VerifierTest, WellFormedNestsPass) {
  EXPECT_EQ(Complaint(For(i_, 16, ForKind::kParallel, Copy(i_))), "");
  EXPECT_EQ(Complaint(For(i_, 16, ForKind::kSerial, Block("b", {i_}, true))), "");
}

TEST_F(VerifierTest, NodesThatAreSharedAreCheckedOnce) {
  Expr value = Load(in_, {i_}), index = i_, stranger = j_;
  for (int i = 0; i < 60; ++i) {
    value = value + value;
    index = Max(index, index);
    stranger = stranger + stranger;
  }
  EXPECT_EQ(Complaint(For(i_, 16, ForKind::kSerial, Store(out_, {index}, value))), "");
  EXPECT_THAT(Complaint(For(i_, 16, ForKind::kSerial, Store(out_, {stranger}, value))),
              HasSubstr("variable j is not in scope"));
}

TEST_F(VerifierTest, VariablesAreBoundOnceAndInScope) {
  EXPECT_THAT(Complaint(Copy(i_)), HasSubstr("variable i is not in scope in: out[i] = in[i]"));
  EXPECT_THAT(Complaint(Seq({For(i_, 16, ForKind::kSerial, Copy(i_)), Copy(i_)})),
              HasSubstr("variable i is not in scope"));
  EXPECT_THAT(Complaint(For(i_, 4, ForKind::kSerial, For(i_, 4, ForKind::kSerial, Copy(i_)))),
              HasSubstr("variable i is bound twice"));
  EXPECT_THAT(Complaint(Seq({For(i_, 4, ForKind::kSerial, Copy(i_)), For(i_, 4, ForKind::kSerial, Copy(i_))})),
              HasSubstr("variable i is bound twice"));
}

TEST_F(VerifierTest, BlocksSeeTheirIteratorsAndNotTheLoops) {
  Var v = MakeVar("v");
  BlockInfo info{"b", {{v, 16, false}}, {i_}, Expr(), Expr()};
  Stmt leak = For(i_, 16, ForKind::kSerial, BlockStmt(info, out_, {v}, Load(in_, {i_})));
  EXPECT_THAT(Complaint(leak), HasSubstr("variable i is not in scope in: block b(v: 16 = i)"));
}

TEST_F(VerifierTest, BlocksBindEveryIterator) {
  EXPECT_THAT(Complaint(Block("b", {})), HasSubstr("1 iterators but 0 bindings"));
  EXPECT_THAT(Complaint(Block("b", {Float(1)})), HasSubstr("binding 1.0 is f32 where i64 is needed"));
}

TEST_F(VerifierTest, BlockNamesAreUnique) {
  EXPECT_THAT(Complaint(Seq({Block("b", {Int(0)}), Block("b", {Int(1)})})), HasSubstr("a second block named b"));
}

TEST_F(VerifierTest, ParallelLoopsBindNoReductionIterator) {
  EXPECT_THAT(
      Complaint(For(i_, 4, ForKind::kParallel, For(j_, 4, ForKind::kSerial, Block("b", {Expr(i_) * 4 + j_}, true)))),
      HasSubstr("parallel loop i binds reduction iterator v"));
}

TEST_F(VerifierTest, PredicatesAndConditionsAreBool) {
  EXPECT_THAT(Complaint(Block("b", {Int(0)}, false, Int(1))), HasSubstr("predicate 1 is i64 where bool is needed"));
  EXPECT_THAT(Complaint(If(Int(1), Copy(0))), HasSubstr("condition 1 is i64 where bool is needed"));
}

TEST_F(VerifierTest, IndexCountsAndDTypesAgree) {
  EXPECT_THAT(Complaint(Store(out_, {0, 0}, Float(1))), HasSubstr("2 indices into out of rank 1"));
  EXPECT_THAT(Complaint(Store(out_, {0}, Int(1))), HasSubstr("value 1 is i64 where f32 is needed"));
  EXPECT_THAT(Complaint(Store(out_, {Float(0)}, Float(1))), HasSubstr("index 0.0 is f32"));
  Expr mixed = Load(in_, {0}) + Cast(Load(in_, {0}), DType::kF64);
  EXPECT_THAT(Complaint(Store(out_, {0}, mixed)), HasSubstr("dtypes disagree at in[0] + f64(in[0])"));
  const Expr of_f64 = Cast(Tf32(Cast(Load(in_, {0}), DType::kF64)), DType::kF32);
  EXPECT_THAT(Complaint(Store(out_, {0}, of_f64)), HasSubstr("dtypes disagree at tf32(f64(in[0]))"));
}

TEST_F(VerifierTest, BuffersAreInScopeAndAllocatedOnce) {
  Buffer t = MakeBuffer("t", DType::kF32, {4}, Scope::kRegister);
  Stmt use = Store(t, {0}, Float(1));
  EXPECT_THAT(Complaint(use), HasSubstr("buffer t is not in scope"));
  EXPECT_EQ(Complaint(Alloc(t, use)), "");
  EXPECT_THAT(Complaint(Seq({Alloc(t, use), use})), HasSubstr("buffer t is not in scope"));
  EXPECT_THAT(Complaint(Seq({Alloc(t, use), Alloc(t, use)})), HasSubstr("t is allocated twice"));
  Buffer endless = MakeBuffer("endless", DType::kF32, {4, -1});
  EXPECT_THAT(Complaint(Alloc(endless, use)), HasSubstr("endless has no known size in: alloc endless: f32[4,-1]"));
}

TEST_F(VerifierTest, ParametersAreMemoryAndInputsAreNotWritten) {
  EXPECT_THAT(Complaint(Store(in_, {0}, Float(1))), HasSubstr("input in is written"));
  Buffer r = MakeBuffer("r", DType::kF32, {4}, Scope::kRegister);
  EXPECT_THAT(std::string(Verify(Func{"f", {r}, 1, Store(r, {0}, Float(1))}).message()),
              HasSubstr("can not live in registers"));
}

}  // namespace
}  // namespace temper::ir
