// The canary by itself, and in a session with a device that is a formula.
#include "measure_worker/sandbox/canary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "measure_worker/sandbox/session.h"

namespace temper::worker {
namespace {

using testing::_;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(Canary, TellsHowMuchSlowerThanItsFastestItIsHereOrWasBefore) {
  Canary canary;
  EXPECT_EQ(canary.Look(2e-3, 0), 1);
  EXPECT_EQ(canary.Look(1e-3, 1), 1);  // faster than ever is as usual
  EXPECT_EQ(canary.Look(1.5e-3, 2), 1.5);
  EXPECT_EQ(canary.Look(1e-3, 3), 1.5) << "slow before what was measured in between";
  EXPECT_EQ(canary.Look(1e-3, 4), 1);
}

TEST(Canary, ADeviceThatStaysSlowerIsUsualAfterAWhile) {
  Canary canary;
  canary.Look(1e-3, 0);
  int looks = 0;
  while (canary.Look(1.5e-3, 0) > 1 && looks < 10000) ++looks;
  EXPECT_GT(looks, 50);
  EXPECT_LT(looks, 1000);
}

TEST(Canary, IsDueAtFirstAndThenAfterItsInterval) {
  Canary canary(100);
  EXPECT_TRUE(canary.Due(0));
  canary.Look(1e-3, 1000);
  EXPECT_FALSE(canary.Due(1099));
  EXPECT_TRUE(canary.Due(1100));
}

// Candidates take what their config says in microseconds, "300/350" 300 when they are measured first and 350 later;
// canaries what the script says, 0: they fail.
class FakeKernels : public KernelBench {
 public:
  class FakeProgram : public Program {
   public:
    FakeProgram(double seconds, double later_s, int& measured, FakeKernels& kernels)
        : seconds_(seconds), later_s_(later_s), measured_(measured), kernels_(kernels) {}
    absl::StatusOr<double> Verify() override {
      if (++measured_ > 1) seconds_ = later_s_;
      if (kernels_.room < seconds_) return absl::ResourceExhaustedError("no memory for its scratch");
      if (measured_ == kernels_.lost_at) kernels_.is_lost = true;
      if (kernels_.is_lost) return absl::InternalError("the device does not answer");
      return seconds_;
    }
    double Time(int64_t calls) override { return seconds_ * static_cast<double>(calls); }
    absl::Status CheckAfterwards() override { return absl::OkStatus(); }

   private:
    double seconds_;
    const double later_s_;
    int& measured_;
    FakeKernels& kernels_;
  };
  absl::Status Prepare(const BatchWork&) override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<Program>> Build(const Candidate& candidate) override {
    if (candidate.config.empty()) return absl::InvalidArgumentError("no config");
    if (candidate.config == "huge") return absl::ResourceExhaustedError("no memory for its code");
    if (candidate.config == "lose") is_lost = true;
    if (is_lost) return absl::InternalError("the device does not answer");
    const std::string& config = candidate.config;
    const double seconds = std::stod(config) * 1e-6, later_s = std::stod(config.substr(config.find('/') + 1)) * 1e-6;
    return std::make_unique<FakeProgram>(seconds, later_s, measured[config], *this);
  }
  absl::StatusOr<double> TimeCanary() override {
    const double seconds = canaries.empty() ? 1 : canaries.front();
    if (!canaries.empty()) canaries.pop_front();
    if (seconds == 0 || is_lost) return absl::DataLossError("the canary kernel failed");
    return seconds;
  }
  int build_threads() const override { return 1; }
  void MakeRoom() override { room += more_room; }
  void Forget() override {}
  bool lost() const override { return is_lost; }

  double room = 1, more_room = 0;  // of what lasts no longer
  int lost_at = 0;                 // whoever is verified so often loses the device
  bool is_lost = false;

  std::deque<double> canaries;
  std::map<std::string, int> measured;  // how often, by config
};

class Trials : public Reporter {
 public:
  void OnBegin(Phase, int) override {}
  void OnBuilt(int) override {}
  void OnTrial(int index, const TrialResult& result) override {
    EXPECT_TRUE(told.emplace(index, result).second) << "told twice: " << index;
  }
  std::vector<std::string> Outcomes() const {
    std::vector<std::string> list;
    for (const auto& [index, result] : told) list.emplace_back(Text(result.outcome));
    return list;
  }
  std::vector<double> Drifts() const {
    std::vector<double> list;
    for (const auto& [index, result] : told) list.push_back(result.drift);
    return list;
  }
  std::map<int, TrialResult> told;
};

BatchOrder Order(const std::vector<std::string>& configs) {
  BatchOrder order;
  order.work.plan.race_factor = 0;
  for (const std::string& config : configs) order.work.candidates.push_back(Candidate{.config = config});
  return order;
}

TEST(WatchedSession, TellsEachTrialTheDriftAroundIt) {
  FakeKernels backend;
  backend.canaries = {1, 1, 1.1, 1, 1};  // before the first, and after each
  Canary canary(0);
  Trials trials;
  CarryOut(backend, Order({"300", "301", "302", "303"}), canary, trials);
  EXPECT_THAT(trials.Drifts(), ElementsAre(1, 1.1, 1.1, 1));
  EXPECT_THAT(trials.Outcomes(), ElementsAre("ok", "ok", "ok", "ok"));
  EXPECT_THAT(backend.measured, Each(Pair(_, 1)));
}

TEST(WatchedSession, LackOfMemoryIsTriedAgainWithMoreRoomAndIsNoCandidatesFault) {
  FakeKernels backend;
  backend.room = 100e-6, backend.more_room = 150e-6;
  Canary canary(0);
  Trials trials;
  CarryOut(backend, Order({"90", "240", "900", "huge"}), canary, trials);
  EXPECT_THAT(trials.Outcomes(), ElementsAre("ok", "ok", "infrastructure", "infrastructure"));
  EXPECT_THAT(trials.told.at(2).error, HasSubstr("no memory for its scratch"));
  EXPECT_EQ(backend.measured["240"], 2);
  EXPECT_EQ(backend.measured["900"], 2) << "not for ever";
}

TEST(WatchedSession, OnceTheDeviceIsLostNobodyIsToldOfUntilAnotherChildGoesOn) {
  for (const bool building : {false, true}) {
    FakeKernels backend;
    backend.lost_at = building ? 0 : 2;
    Canary canary(0);
    Trials trials;
    CarryOut(backend, Order({"300", "", building ? "lose" : "300", "302"}), canary, trials);
    std::vector<std::string> told{"illegal_config"};
    if (!building) told.insert(told.begin(), "ok");
    EXPECT_EQ(trials.Outcomes(), told);
  }
}

TEST(WatchedSession, WhatTheDeviceWasSlowAroundForAMomentIsMeasuredAgainAtOnceIfItMayBeTheBest) {
  FakeKernels backend;
  // Before the first, after each; slow after the second, no longer when it is looked at again, nor after the
  // repetition.
  backend.canaries = {1, 1, 1.5, 1, 1, 1, 1.5, 1, 1, 1};
  Canary canary(0);
  Trials trials;
  CarryOut(backend, Order({"300", "301", "302", "900"}), canary, trials);
  EXPECT_THAT(trials.Drifts(), ElementsAre(1, 1, 1, 1.5));
  EXPECT_THAT(backend.measured, ElementsAre(Pair("300", 1), Pair("301", 2), Pair("302", 1), Pair("900", 1)));
}

TEST(WatchedSession, WhatIsMeasuredAgainDoesNotRaceAgainstItsFormerSelf) {
  FakeKernels backend;
  backend.canaries = {1, 1.5, 1, 1, 1};  // slow after all were measured
  Canary canary(INT64_MAX / 2);
  Trials trials;
  BatchOrder order = Order({"300/350", "290/340", "300/500"});
  order.work.plan.race_factor = 1.3;
  CarryOut(backend, order, canary, trials);
  EXPECT_THAT(backend.measured, Each(Pair(_, 2)));
  EXPECT_THAT(trials.Outcomes(), ElementsAre("ok", "ok", "raced_out"));
}

TEST(WatchedSession, ADeviceThatStaysSlowIsNotWaitedFor) {
  FakeKernels backend;
  backend.canaries = {1, 1.5, 1.5, 1.5, 1.5};  // after each of two, and once more
  Canary canary(0);
  Trials trials;
  CarryOut(backend, Order({"300", "301"}), canary, trials);
  EXPECT_THAT(trials.Drifts(), ElementsAre(1.5, 1.5));
  EXPECT_THAT(backend.measured, Each(Pair(_, 1)));
}

TEST(WatchedSession, ACanaryThatFailsIsNoCandidatesFault) {
  FakeKernels backend;
  backend.canaries = {1, 1, 0};
  Canary canary(0);
  Trials trials;
  CarryOut(backend, Order({"300", "", "300", "300"}), canary, trials);
  EXPECT_THAT(trials.Outcomes(), ElementsAre("ok", "illegal_config", "infrastructure", "infrastructure"));
  EXPECT_THAT(trials.told[3].error, HasSubstr("canary"));
}

TEST(WatchedSession, TheBestOfABatchIsRacedAgainstAtOnce) {
  FakeKernels backend;
  Canary canary;
  Trials trials;
  BatchOrder order = Order({"500", "300", "500", "310"});
  order.work.plan.race_factor = 1.3;
  CarryOut(backend, order, canary, trials);
  EXPECT_THAT(trials.Outcomes(), ElementsAre("ok", "ok", "raced_out", "ok"));
  EXPECT_THAT(trials.told[3].costs_s, Each(testing::DoubleNear(310e-6, 1e-9)));
}

}  // namespace
}  // namespace temper::worker
