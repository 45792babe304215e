// What is known of a graph's values behind the extent of an input.
#include "compiler/graph/behind.h"

#include <gmock/gmock.h>

#include <limits>

#include "compiler/graph/pipeline.h"
#include "tests/graph/builder.h"

namespace temper {
namespace {

using testing::Builder;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr int64_t kMost = 6, kWidth = 4;

class BehindTest : public ::testing::Test {
 protected:
  BehindTest() : x(b.Input({kMost, kWidth})), whole(b.Input({kMost, kWidth})), extent(b.Input({}, DType::kI64)) {
    b.g.input_extents = {{0, 0, 2, 1}};
    b.g.hidden_inputs = 1;
  }
  ValueId Inside() {
    NDArray positions(DType::kI64, {kMost});
    for (int64_t i = 0; i < kMost; ++i) positions.Set(i, static_cast<double>(i));
    return b.Call("less", {b.Constant(std::move(positions)), extent});
  }
  // Of the only output of the optimised graph.
  std::vector<std::string> Known(ValueId v) {
    b.Output(v);
    EXPECT_TRUE(Optimize(b.g, Target{}).ok());
    const std::vector<std::vector<Behind>> behind = BehindOf(b.g);
    std::vector<std::string> texts;
    for (const Behind& fact : behind[static_cast<size_t>(b.g.outputs[0])]) texts.push_back(Text(fact));
    return texts;
  }

  Builder b;
  ValueId x, whole, extent;
};

TEST_F(BehindTest, RowsGoThroughProductsAndWhatIsDoneToEach) {
  const ValueId product = b.Call("relu", {b.Call("matmul", {x, b.Random({kWidth, 3})})});
  EXPECT_THAT(Known(b.Call("softmax", {b.Transpose(product, {1, 0})}, Builder::Int("axis", 0))),
              ElementsAre("0:0:0:d1"));
}

TEST_F(BehindTest, SumsOverRowsAreRead) {
  EXPECT_THAT(Known(b.Call("reduce_sum", {x}, Builder::Ints("axes", {0}))), IsEmpty());
}

TEST_F(BehindTest, AValueOfTheFullLengthIsRead) { EXPECT_THAT(Known(b.Call("add", {x, whole})), IsEmpty()); }

TEST_F(BehindTest, AChoiceIsAValueBehindTheEnd) {
  EXPECT_THAT(Known(b.Call("where", {b.Reshape(Inside(), {kMost, 1}), x, b.Scalar(0)})), ElementsAre("1:0:0:d0"));
}

TEST_F(BehindTest, SharesOfWhatIsNotSeenAreZero) {
  const ValueId scores = b.Call("matmul", {x, b.Transpose(x, {1, 0})});
  const ValueId seen = b.Call("where", {Inside(), scores, b.Scalar(-std::numeric_limits<double>::infinity())});
  EXPECT_THAT(Known(b.Call("softmax", {seen}, Builder::Int("axis", 1))), UnorderedElementsAre("0:0:0:d0", "1:0:0:d1"));
}

TEST_F(BehindTest, AnExtentThatMayBeZeroSaysNothing) {
  b.g.input_extents[0].least = 0;
  EXPECT_THAT(Known(b.Call("where", {b.Reshape(Inside(), {kMost, 1}), b.Call("relu", {x}), b.Scalar(0)})), IsEmpty());
}

// Expressions share their nodes: a value that is read twice, again and again, is looked at once.
TEST_F(BehindTest, ValuesThatAreReadTwiceTakeNoLonger) {
  ValueId v = x;
  for (int i = 0; i < 60; ++i) v = b.Call("mul", {v, v});
  EXPECT_THAT(Known(v), ElementsAre("0:0:0:d0"));
}

}  // namespace
}  // namespace temper
