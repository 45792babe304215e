// The parts that tuners are made of.
#include <algorithm>
#include <cmath>
#include <set>

#include "gtest/gtest.h"
#include "tests/search/toy.h"
#include "tuner_server/search/annealer.h"
#include "tuner_server/search/ranking.h"
#include "tuner_server/search/walk.h"

namespace temper {
namespace {

class Parts : public testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterToys(); }
  static std::shared_ptr<const TaskSpace> Task(const std::string& spaces) {
    auto task = TaskSpace::Make(ToyContext(spaces));
    EXPECT_TRUE(task.ok()) << task.status();
    return *task;
  }
};

TEST_F(Parts, APermutationMeetsEachNumberOnce) {
  for (int64_t size : {1, 2, 3, 4, 5, 16, 17, 100, 1000, 4097}) {
    const Permutation order(size, 7);
    std::set<int64_t> met;
    for (int64_t i = 0; i < size; ++i) met.insert(order.At(i));
    EXPECT_EQ(static_cast<int64_t>(met.size()), size);
    EXPECT_EQ(*met.begin(), 0);
    EXPECT_EQ(*met.rbegin(), size - 1);
  }
}

TEST_F(Parts, APermutationReachesFarInHugeSpaces) {
  const int64_t size = (int64_t{1} << 62) - 57;
  const Permutation order(size, 7);
  double mean = 0;
  for (int i = 0; i < 1000; ++i) mean += static_cast<double>(order.At(i)) / static_cast<double>(size) / 1000;
  EXPECT_NEAR(mean, 0.5, 0.05);
}

TEST_F(Parts, AWalkVisitsTemplatesBySize) {
  Walk walk(Task("two"), 1);
  PointSet seen;
  int small = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto point = walk.Next(seen);
    ASSERT_TRUE(point.has_value());
    small += (*Task("two")).At(*point).template_name == "toy.small";
  }
  EXPECT_NEAR(small / 20000.0, 200.0 / 123000, 0.002);
}

TEST_F(Parts, AMoveChangesOneKnob) {
  const auto task = Task("gemm");
  Rng rng(1);
  Point p{0, 4242};
  for (int i = 0; i < 1000; ++i) {
    const Point moved = task->Move(p, rng);
    ASSERT_EQ(task->Distance(p, moved), 1);
    ASSERT_GE(moved.index, 0);
    ASSERT_LT(moved.index, task->size(0));
    p = moved;
  }
  const auto one = Task("point");
  EXPECT_EQ(one->Move({0, 0}, rng), (Point{0, 0}));
}

TEST_F(Parts, PointsAndCandidatesAreTheSame) {
  const auto task = Task("two");
  Rng rng(1);
  for (int space = 0; space < task->count(); ++space) {
    for (int i = 0; i < 200; ++i) {
      const Point p{space, rng.Below(task->size(space))};
      EXPECT_EQ(task->Find(task->At(p)), p);
    }
  }
  EXPECT_EQ(task->Find({"toy.point", Config({{"only", 7}})}), std::nullopt) << "a template of another workload";
}

TEST_F(Parts, RowsTellTemplatesApart) {
  const auto task = Task("two");
  Rows rows = task->NewRows();
  task->AppendRow({0, 0}, rows);
  task->AppendRow({1, 20}, rows);
  ASSERT_EQ(rows.features.size(), 2 * rows.width);
  const size_t which = task->space_column();
  EXPECT_NE(rows.features[which], rows.features[rows.width + which]);
  int missing = 0;  // each lacks the knobs of the other
  for (size_t i = which + 1; i < rows.width; ++i) {
    const bool first = std::isnan(rows.features[i]), second = std::isnan(rows.features[rows.width + i]);
    EXPECT_TRUE(first != second) << "these two share no knob";
    missing += first + second;
  }
  EXPECT_EQ(missing, 9);
}

TEST_F(Parts, ATaskWithoutDraftsKnowsNoSeconds) {
  TunerContext context = ToyContext("gemm");
  context.draft = false;
  const auto task = TaskSpace::Make(context);
  ASSERT_TRUE(task.ok());
  Rows rows = (*task)->NewRows();
  for (int64_t index : {int64_t{0}, int64_t{4242}}) {
    EXPECT_EQ((*task)->DraftSeconds({0, index}), 1);
    (*task)->AppendRow({0, index}, rows);
  }
  const std::vector<std::string> names = FeatureNames((*task)->schema());
  const auto named = std::find(names.begin(), names.end(), "log_draft_s") - names.begin();
  EXPECT_EQ(rows.features[named], rows.features[rows.width + static_cast<size_t>(named)]);
}

TEST_F(Parts, MovesReachEveryTemplate) {
  const auto task = Task("two");
  Rng rng(1);
  int visits[2] = {0, 0};
  Point p{0, 0};
  for (int i = 0; i < 2000; ++i) {
    p = task->Move(p, rng);
    ASSERT_LT(p.index, task->size(p.space));
    ++visits[p.space];
  }
  EXPECT_GT(visits[0], 500);
  EXPECT_GT(visits[1], 500);
}

// The digits of a point of a space: which value each knob has.
std::vector<std::pair<std::string, int64_t>> Values(const TaskSpace& task, const Point& p) {
  return task.At(p).config.values();
}

TEST_F(Parts, ACrossedPointIsHeadAndTail) {
  const auto task = Task("gemm");
  Rng rng(3);
  for (int i = 0; i < 300; ++i) {
    const Point a{0, rng.Below(task->size(0))}, b{0, rng.Below(task->size(0))};
    const auto from_a = Values(*task, a), from_b = Values(*task, b);
    const auto child = Values(*task, task->Crossed(a, b, rng));
    size_t cut = 0;
    while (cut < child.size() && child[cut] == from_a[cut]) ++cut;
    for (size_t k = cut; k < child.size(); ++k) EXPECT_EQ(child[k], from_b[k]);
  }
  const auto two = Task("two");
  for (int i = 0; i < 100; ++i) {
    const Point child = two->Crossed({1, rng.Below(two->size(1))}, {0, rng.Below(two->size(0))}, rng);
    EXPECT_EQ(child.space, 1) << "of the first parent's template";
    EXPECT_LT(child.index, two->size(1));
  }
}

TEST_F(Parts, StepsAreTheNextValuesOfEachKnob) {
  const auto task = Task("gemm");
  const std::vector<Point> corner = task->Steps({0, 0}, 1);
  EXPECT_EQ(corner.size(), 7u) << "up only";
  for (int64_t step : {1, 2}) {
    for (const Point& p : task->Steps({0, 31234}, step)) {
      EXPECT_EQ(task->Distance(p, {0, 31234}), 1);
      const auto back = task->Steps(p, step);
      EXPECT_TRUE(std::find(back.begin(), back.end(), Point{0, 31234}) != back.end());
    }
  }
}

TEST_F(Parts, ARankingIsWholeWhereItMayBe) {
  const auto task = Task("two");
  Rng rng(1);
  const int small = task->size(0) < task->size(1) ? 0 : 1;
  const DraftRanking whole = RankByDraft(*task, small, rng), sample = RankByDraft(*task, 1 - small, rng);
  EXPECT_TRUE(whole.whole);
  EXPECT_EQ(whole.points.size(), 200u);
  EXPECT_FALSE(sample.whole);
  EXPECT_EQ(sample.points.size(), RankingLimits().sample);
  EXPECT_TRUE(std::is_sorted(sample.points.begin(), sample.points.end(), Before));
  EXPECT_FALSE(RankByDraft(*task, small, rng, {1 << 16, 199, 50}).whole) << "more are legal than may be listed";
}

// A landscape of one big hill with bumps, on a line.
struct Line {
  int scored = 0;
  AnnealProblem Problem() {
    return {[](const Point& p, Rng& rng) {
              return Point{0, (p.index + 1 + rng.Below(99)) % 100000};
            },
            [](const Point& p) { return p.index % 7 != 0; },
            [this](std::span<const Point> points) -> absl::StatusOr<std::vector<float>> {
              scored += static_cast<int>(points.size());
              std::vector<float> scores;
              for (const Point& p : points) {
                EXPECT_NE(p.index % 7, 0) << "illegal points are not scored";
                scores.push_back(-1000.0f - std::abs(static_cast<float>(p.index) - 50000.0f) / 100 +
                                 static_cast<float>(p.index % 13));
              }
              return scores;
            }};
  }
};

TEST_F(Parts, AnnealingClimbsNegativeScoresToo) {
  Line line;
  Annealer annealer({}, 1);
  std::vector<Point> starts;
  for (int i = 0; i < 128; ++i) starts.push_back({0, 1 + 7 * 100 * i});
  const auto best = annealer.Run(line.Problem(), starts, 10, {});
  ASSERT_TRUE(best.ok());
  ASSERT_EQ(best->size(), 10u);
  EXPECT_LT(std::abs((*best)[0].point.index - 50000), 1000);
  EXPECT_TRUE(std::is_sorted(best->begin(), best->end(), Before));
}

TEST_F(Parts, AnnealingScoresNoPointTwiceAndKeepsToItsBudget) {
  Line line;
  std::set<int64_t> met;
  AnnealProblem problem = line.Problem();
  const auto score = problem.score;
  problem.score = [&](std::span<const Point> points) {
    for (const Point& p : points) EXPECT_TRUE(met.insert(p.index).second) << "scored again: " << p.index;
    return score(points);
  };
  AnnealOptions options;
  options.evaluations = 1000;
  Annealer annealer(options, 1);
  const Point start[] = {{0, 1}};
  ASSERT_TRUE(annealer.Run(problem, start, 10, {}).ok());
  EXPECT_LE(line.scored, options.evaluations + options.chains);
}

TEST_F(Parts, AnnealingLeavesOutWhatItIsTold) {
  Line line;
  PointSet without;
  for (int64_t i = 49000; i < 51000; ++i) without.insert({0, i});
  Annealer annealer({}, 1);
  const Point start[] = {{0, 1}, {0, 45001}, {0, 60001}};
  const auto best = annealer.Run(line.Problem(), start, 20, without);
  ASSERT_TRUE(best.ok());
  EXPECT_EQ(best->size(), 20u);
  for (const ScoredPoint& p : *best) EXPECT_FALSE(without.contains(p.point));
}

TEST_F(Parts, AnnealingEndsWhereNothingMoves) {
  const AnnealProblem stuck = {[](const Point& p, Rng&) { return p; }, [](const Point&) { return true; },
                               [](std::span<const Point> points) -> absl::StatusOr<std::vector<float>> {
                                 return std::vector<float>(points.size(), 1);
                               }};
  Annealer annealer({}, 1);
  EXPECT_TRUE(annealer.Run(stuck, {}, 5, {})->empty()) << "nowhere to begin";
  const Point start[] = {{0, 3}};
  const auto best = annealer.Run(stuck, start, 5, {});
  ASSERT_TRUE(best.ok());
  EXPECT_EQ(best->size(), 1u);
}

TEST_F(Parts, AnnealingGoesOnWhereItWas) {
  Line line;
  Annealer annealer({}, 1);
  const Point start[] = {{0, 1}};
  std::vector<int64_t> reached;
  for (int i = 0; i < 4; ++i) {
    const auto best = annealer.Run(line.Problem(), start, 1, {});
    ASSERT_TRUE(best.ok());
    reached.push_back((*best)[0].point.index);
  }
  // A run takes a chain some 25 steps of 50; the hill's top is far beyond four of them.
  for (int i = 1; i < 4; ++i) EXPECT_GT(reached[i], reached[i - 1] + 200);
}

}  // namespace
}  // namespace temper
