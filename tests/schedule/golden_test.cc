// Lowered nests as texts: they have to stay as clean as they are.
#include "tests/golden.h"
#include "tests/schedule/programs.h"

namespace temper {
namespace {

void ExpectGolden(const ir::Func& program, Schedule& s, const std::string& name, double tolerance = 0) {
  ASSERT_TRUE(s.status().ok()) << s.status();
  absl::StatusOr<ir::Func> lowered = Lower(s.func());
  ASSERT_TRUE(lowered.ok()) << lowered.status() << "\n" << ir::Text(s.func());
  EXPECT_TRUE(SameResults(program, *lowered, tolerance));
  EXPECT_TRUE(MatchesGolden(ir::Text(*lowered), "schedule", name));
}

TEST(Golden, MatmulThatDividesHasNeitherPredicateNorDivision) {
  ir::Func program = PackedMatmul(12, 32, 5, 16);
  Schedule s(program);
  ScheduleTiles(s, 6, 16, 8);
  ExpectGolden(program, s, "matmul_full");
}

TEST(Golden, MatmulWithBothEdges) {
  ir::Func program = PackedMatmul(14, 43, 5, 16);
  Schedule s(program);
  ScheduleTiles(s, 6, 16, 4);
  ExpectGolden(program, s, "matmul_edges");
}

// The accumulators go to a tile in memory, whose elements the activation takes in a loop.
TEST(Golden, MatmulWithCostlyEpilogue) {
  ir::Func program = PackedMatmul(14, 43, 48, 16, Silu);
  Schedule s(program);
  ScheduleTiles(s, 6, 16, 4);
  ExpectGolden(program, s, "matmul_costly");
}

// One pass a row: all four stages under the row's loop, sums and maxima per lane, a tail of 3 elements.
TEST(Golden, SoftmaxByRows) {
  ir::Func program = Softmax(5, 19);
  Schedule s(program);
  Loop row = s.Loops("out")[0];
  s.ComputeAt("total", row);
  s.ComputeAt("power", row);
  s.ComputeAt("largest", row);
  for (const std::string& name : {std::string("largest"), std::string("total")}) {
    auto [rest, lane] = s.Split(s.Loops(name).back(), 4);
    auto [partial, last] = s.Rfactor(name, lane);
    s.DecomposeReduction(last, s.Loops(last).back());
    s.Vectorize(s.Loops(last).back());
    s.SetScope(partial, ir::Scope::kRegister);
    s.SetScope(last, ir::Scope::kRegister);
    std::string init = s.DecomposeReduction(partial, rest);
    s.Vectorize(lane);
    s.Vectorize(s.Loops(init).back());
    s.Partition(rest);
  }
  for (const std::string& name : {std::string("power"), std::string("out")}) {
    auto [rest, lane] = s.Split(s.Loops(name).back(), 4);
    s.Vectorize(lane);
    s.Partition(rest);
  }
  s.Parallel(row);
  ExpectGolden(program, s, "softmax", 1e-6);
}

// The padded rows that one output row needs are made beside it; tiles of 4 x 4 with edges in both directions.
TEST(Golden, PaddedConvolution) {
  ir::Func program = PaddedConv(5, 6, 3, 7);
  Schedule s(program);
  std::vector<Loop> loops = s.Loops("out");
  s.ComputeAt("padded", s.Loops("acc")[0]);
  auto [column_tile, column] = s.Split(loops[1], 4);
  auto [vector, lane] = s.Split(loops[2], 4);
  s.Reorder({column_tile, vector, column, lane});
  s.ComputeAt("acc", vector);
  s.SetScope("acc", ir::Scope::kRegister);
  s.ComputeAt("padded", loops[0]);
  std::vector<Loop> acc = s.Loops("acc");
  ASSERT_TRUE(s.status().ok()) << s.status();
  s.Reorder({acc[6], acc[7], acc[8], acc[4], acc[5]});
  std::string init = s.DecomposeReduction("acc", acc[6]);
  for (const std::string& name : {std::string("acc"), init, std::string("out")}) {
    std::vector<Loop> around = s.Loops(name);
    s.Vectorize(around[around.size() - 1]);
    s.Unroll(around[around.size() - 2]);
  }
  s.Parallel(loops[0]);
  s.Partition(vector);
  ExpectGolden(program, s, "conv_padded");
}

}  // namespace
}  // namespace temper
