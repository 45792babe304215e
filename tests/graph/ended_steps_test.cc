// Which steps of an unrolled loop a run does without.
#include "compiler/graph/ended_steps.h"

#include <gmock/gmock.h>

#include "compiler/graph/memory_plan.h"
#include "compiler/graph/pipeline.h"
#include "tests/graph/builder.h"

namespace temper {
namespace {

using testing::Builder;
using ::testing::ElementsAre;

constexpr int64_t kMostSteps = 4, kUnits = 8;

class EndedStepsTest : public ::testing::Test {
 protected:
  EndedStepsTest() : x(b.Input({kMostSteps, kUnits})), extent(b.Input({}, DType::kI64)) {
    b.g.input_extents = {{0, 0, 1, 1}};
    b.g.hidden_inputs = 1;
    inside = b.IsInside(kMostSteps, extent);
  }
  ValueId At(ValueId v, int64_t i, Shape shape) {
    Attrs attrs = Builder::Ints("axes", {0});
    attrs.Set("starts", std::vector<int64_t>{i});
    attrs.Set("ends", std::vector<int64_t>{i + 1});
    attrs.Set("steps", std::vector<int64_t>{1});
    return b.Reshape(b.Call("slice", {v}, std::move(attrs)), std::move(shape));
  }
  // Rows that each step makes, of a state that they replace, but for those that a run does not have; the last state.
  ValueId LastState(bool keeps) {
    const ValueId weights = b.Random({kUnits, kUnits});
    ValueId state = b.Random({1, kUnits});
    std::vector<ValueId> rows;
    for (int64_t i = 0; i < kMostSteps; ++i) {
      rows.push_back(b.Call("tanh", {b.Call("add", {b.Call("matmul", {state, weights}), At(x, i, {1, kUnits})})}));
      state = b.Call("where", {At(inside, i, {1, 1}), rows.back(), keeps ? state : b.Scalar(0)});
    }
    b.Output(b.Call("concat", rows, Builder::Int("axis", 0)));
    b.Output(b.Call("identity", {state}));
    b.Output(b.Call("identity", {extent}));
    b.g.extents = {{0, 0, 2}};
    b.g.hidden = 1;
    return state;
  }
  // By group of the operator, in order: the least extent of runs that need it; 0: all do.
  std::vector<int64_t> Least(std::string_view op) {
    const std::vector<std::optional<NeededFrom>> steps = EndedSteps(b.g, BehindOf(b.g), InPlaceOperands(b.g));
    std::vector<int64_t> least;
    for (size_t i = 0; i < steps.size(); ++i) {
      const Group& group = b.g.groups[i];
      const Node& anchor = b.g.nodes[static_cast<size_t>(group.nodes[static_cast<size_t>(group.anchor)])];
      if (anchor.op == op) least.push_back(steps[i] ? steps[i]->least : 0);
    }
    return least;
  }

  Builder b;
  ValueId x, extent, inside = kNoValue;
};

// The first step's product is of constants alone, and its state is made in each run.
TEST_F(EndedStepsTest, StepsBehindTheEndOfASequenceAreLeftOut) {
  LastState(/*keeps=*/true);
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  EXPECT_THAT(Least("matmul"), ElementsAre(2, 3, 4));
  EXPECT_THAT(Least("where"), ElementsAre(0, 2, 3, 0)) << "the last one is written to an output";
}

// A sequence may say besides where it ends, in numbers that no kernel knows.
TEST_F(EndedStepsTest, StepsBehindTheEndOfAllSequencesAreLeftOut) {
  const ValueId going = b.Input({kMostSteps}, DType::kBool);
  b.g.inputs = {x, going, extent};
  b.g.input_extents = {{0, 0, 2, 1}};
  inside = b.Call("and", {going, inside});
  LastState(/*keeps=*/true);
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  EXPECT_THAT(Least("matmul"), ElementsAre(2, 3, 4));
  EXPECT_THAT(Least("where"), ElementsAre(0, 2, 3, 0)) << "the last one is written to an output";
}

TEST_F(EndedStepsTest, AStateThatBecomesAnotherIsMade) {
  LastState(/*keeps=*/false);
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  const std::vector<int64_t> where = Least("where");
  ASSERT_FALSE(where.empty());
  EXPECT_EQ(where.back(), 0);
}

}  // namespace
}  // namespace temper
