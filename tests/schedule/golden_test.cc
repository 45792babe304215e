// Lowered nests as texts: they have to stay as clean as they are.
#include "tests/schedule/programs.h"

namespace temper {
namespace {

void ExpectGolden(const ir::Func& program, Schedule& s, const std::string& name, double tolerance = 0) {
  ASSERT_TRUE(s.status().ok()) << s.status();
  absl::StatusOr<ir::Func> lowered = Lower(s.func());
  ASSERT_TRUE(lowered.ok()) << lowered.status() << "\n" << ir::Text(s.func());
  EXPECT_TRUE(SameResults(program, *lowered, tolerance));
  EXPECT_TRUE(MatchesGolden(ir::Text(*lowered), name));
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

}  // namespace
}  // namespace temper
