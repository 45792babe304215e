// What a supervisor believes of a child: every kind of message in every phase.
#include "measure_worker/sandbox/witness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/utf8.h"

namespace temper::worker {
namespace {

using testing::HasSubstr;

constexpr int64_t kMs = 1'000'000;

Expected Batch() { return {MessageKind::kBatch, 2, 3}; }

TEST(Witness, TakesInWhatAnHonestChildDoesAndTellsItsTimesByItsOwnClock) {
  Witness witness(Batch());
  EXPECT_TRUE(witness.OnBegin({Phase::kPrepare, -1}, 0).ok());
  EXPECT_TRUE(witness.OnBegin({Phase::kBuild, 0}, 10 * kMs).ok());
  EXPECT_TRUE(witness.OnBegin({Phase::kBuild, 1}, 12 * kMs).ok());
  EXPECT_TRUE(witness.OnBuilt(1, 20 * kMs).ok());
  EXPECT_TRUE(witness.OnBuilt(0, 25 * kMs).ok());
  EXPECT_TRUE(witness.OnBegin({Phase::kVerify, 0}, 30 * kMs).ok());
  EXPECT_TRUE(witness.OnBegin({Phase::kTime, 0}, 35 * kMs).ok());
  EXPECT_TRUE(witness.OnBegin({Phase::kVerify, 1}, 45 * kMs).ok());
  EXPECT_TRUE(witness.OnBegin({Phase::kTime, 1}, 50 * kMs).ok());
  EXPECT_TRUE(witness.OnBegin({Phase::kVerify, 1}, 55 * kMs).ok()) << "what was disturbed is measured again";
  EXPECT_TRUE(witness.OnBegin({Phase::kTime, 1}, 60 * kMs).ok());
  Trial first{0, {Outcome::kOk, "ignored", {1e-3, 2e-3, 1e-3}, 777'777, 888'888, 1}};
  ASSERT_TRUE(witness.OnTrial(first, 90 * kMs).ok());
  EXPECT_EQ(first.result.build_ms, 15);
  EXPECT_EQ(first.result.run_ms, 15);
  EXPECT_EQ(first.result.error, "");
  Trial second{1, {Outcome::kWrongAnswer, "off by one", {1e-3}, 0, 0, 1.5}};
  ASSERT_TRUE(witness.OnTrial(second, 90 * kMs).ok());
  EXPECT_EQ(second.result.build_ms, 8);
  EXPECT_EQ(second.result.run_ms, 45);
  EXPECT_TRUE(second.result.costs_s.empty()) << "there is no time of what failed";
}

// A witness that has seen all up to a phase of an order; candidate 0 is in it where it is one candidate's.
Witness After(MessageKind order, Phase phase) {
  Witness witness({order, order == MessageKind::kModel ? 0 : 2, 3});
  std::vector<Begin> begins;
  if (order == MessageKind::kBatch)
    begins = {{Phase::kPrepare, -1}, {Phase::kBuild, 0}, {Phase::kVerify, 0}, {Phase::kTime, 0}};
  else
    begins = {{Phase::kModelBuild, -1}, {Phase::kModelRun, -1}};
  for (const Begin& begin : begins) {
    EXPECT_TRUE(witness.OnBegin(begin, 0).ok());
    if (begin.phase == phase) break;
  }
  return witness;
}

// Letters of the messages that are believed: b a build begins, v a verification, t a timing, m a model's build, r its
// run, p preparations; B a build ended; k a result ok, f a failure; M a model's result.
std::string Believed(MessageKind order, Phase phase) {
  std::string letters;
  const auto note = [&](char letter, const absl::Status& status) {
    if (status.ok()) letters += letter;
  };
  const std::pair<char, Begin> begins[] = {{'p', {Phase::kPrepare, -1}},    {'b', {Phase::kBuild, 0}},
                                           {'v', {Phase::kVerify, 0}},      {'t', {Phase::kTime, 0}},
                                           {'m', {Phase::kModelBuild, -1}}, {'r', {Phase::kModelRun, -1}}};
  constexpr int64_t kLater = 1000 * kMs;
  for (const auto& [letter, begin] : begins) note(letter, After(order, phase).OnBegin(begin, kLater));
  note('B', After(order, phase).OnBuilt(0, kLater));
  Trial good{0, {Outcome::kOk, "", {1e-3}}}, bad{0, {Outcome::kBuildFailed, "x"}};
  note('k', After(order, phase).OnTrial(good, kLater));
  note('f', After(order, phase).OnTrial(bad, kLater));
  ModelResult model{Outcome::kOk, "", {1e-3}, {1e-3}, 0};
  note('M', After(order, phase).OnModel(model, kLater));
  return letters;
}

TEST(Witness, BelievesInEachPhaseOnlyWhatBelongsThere) {
  EXPECT_EQ(Believed(MessageKind::kBatch, Phase::kPrepare), "bvf");
  EXPECT_EQ(Believed(MessageKind::kBatch, Phase::kBuild), "vBf");
  EXPECT_EQ(Believed(MessageKind::kBatch, Phase::kVerify), "vtf");
  EXPECT_EQ(Believed(MessageKind::kBatch, Phase::kTime), "vkf");
  EXPECT_EQ(Believed(MessageKind::kFinals, Phase::kModelBuild), "rf");
  EXPECT_EQ(Believed(MessageKind::kFinals, Phase::kModelRun), "kf");
  EXPECT_EQ(Believed(MessageKind::kModel, Phase::kModelBuild), "r");
  EXPECT_EQ(Believed(MessageKind::kModel, Phase::kModelRun), "M");
}

TEST(Witness, RefusesIndicesThatThereAreNot) {
  for (int index : {-2, -1, 2, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
    Witness witness(Batch());
    EXPECT_FALSE(witness.OnBegin({Phase::kVerify, index}, 0).ok()) << index;
    EXPECT_FALSE(witness.OnBuilt(index, 0).ok()) << index;
    Trial trial{index, {Outcome::kIllegalConfig, "x"}};
    EXPECT_FALSE(witness.OnTrial(trial, 0).ok()) << index;
  }
}

TEST(Witness, ClocksAreNotWoundUpForEver) {
  Witness witness(Batch());
  EXPECT_TRUE(witness.OnBegin({Phase::kPrepare, -1}, 0).ok());
  EXPECT_FALSE(witness.OnBegin({Phase::kPrepare, -1}, 0).ok());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(witness.OnBegin({Phase::kVerify, 0}, 0).ok());
  EXPECT_FALSE(witness.OnBegin({Phase::kVerify, 0}, 0).ok());
}

TEST(Witness, ASecondResultIsRefused) {
  Witness witness(Batch());
  Trial trial{0, {Outcome::kIllegalConfig, "x"}};
  EXPECT_TRUE(witness.OnTrial(trial, 0).ok());
  EXPECT_FALSE(witness.OnTrial(trial, 0).ok());
  EXPECT_FALSE(witness.OnBegin({Phase::kVerify, 0}, 0).ok());
  Witness of_model({MessageKind::kModel, 0, 3});
  ModelResult failed{Outcome::kBuildFailed, "x"};
  EXPECT_TRUE(of_model.OnModel(failed, 0).ok());
  EXPECT_FALSE(of_model.OnModel(failed, 0).ok());
}

TEST(Witness, NoTimeIsLongerThanTheTimeThatPassed) {
  const auto took = [](std::vector<double> costs, int64_t ms, bool real_time) {
    Witness witness({MessageKind::kBatch, 2, 3, real_time});
    EXPECT_TRUE(witness.OnBegin({Phase::kVerify, 0}, 0).ok());
    EXPECT_TRUE(witness.OnBegin({Phase::kTime, 0}, 0).ok());
    EXPECT_TRUE(witness.OnBegin({Phase::kVerify, 1}, ms * kMs).ok()) << "what comes after is not its time";
    Trial trial{0, {Outcome::kOk, "", std::move(costs)}};
    return witness.OnTrial(trial, 100'000 * kMs);
  };
  EXPECT_TRUE(took({0.3, 0.3, 0.3}, 900, true).ok());
  EXPECT_THAT(std::string(took({0.5, 0.5, 0.5}, 900, true).message()), HasSubstr("samples of 1.5 s in 0.9 s"));
  EXPECT_TRUE(took({0.5, 0.5, 0.5}, 900, false).ok()) << "of a device that is a formula";
  EXPECT_FALSE(took({0.1, 0.1, 0.1, 0.1}, 900, true).ok()) << "more samples than were asked for";
  EXPECT_FALSE(took({}, 900, true).ok());
}

TEST(FirstLines, AreShortAndLegibleHoweverTheyAreCut) {
  EXPECT_EQ(FirstLines("a\tb\nc"), "a\tb\nc");
  EXPECT_EQ(FirstLines("\x1b[2J\xff"), "?[2J?");
  EXPECT_EQ(FirstLines("µs"), "µs");
  for (const size_t before : {1021, 1022, 1023, 1024}) {
    const std::string lines = FirstLines(std::string(before, 'a') + "€€");
    EXPECT_LE(lines.size(), kMaxErrorBytes);
    EXPECT_TRUE(IsUtf8(lines)) << before;
  }
}

}  // namespace
}  // namespace temper::worker
