// Samples and racing, with a timer that is a formula.
#include "measure_worker/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/rng.h"
#include "base/statistics.h"
#include "compiler/timing/timing.h"

namespace temper::worker {
namespace {

using testing::DoubleNear;
using testing::Each;

// A device whose calls take `seconds`, the first one `cold` times that.
struct FakeDevice {
  double seconds;
  double cold = 1;
  int64_t calls = 0;
  std::vector<double> samples;
  double Time(int64_t n) {
    const double total = seconds * static_cast<double>(n) + (calls == 0 ? (cold - 1) * seconds : 0);
    calls += n;
    samples.push_back(total);
    return total;
  }
  TimeFn Fn() {
    return [this](int64_t n) { return Time(n); };
  }
};

TEST(FindCalls, MakesASampleLongEnoughButNotLonger) {
  for (double seconds : {1e-7, 3e-6, 4e-5, 1.9e-4, 2e-4, 5e-3, 0.5}) {
    FakeDevice device{seconds};
    const int64_t calls = FindCalls(device.Fn(), 200);
    EXPECT_GE(static_cast<double>(calls) * seconds, 200e-6 * 0.999) << seconds;
    EXPECT_LE(static_cast<double>(calls - 1) * seconds, 200e-6 * 1.001) << seconds;
  }
}

TEST(FindCalls, IsNotFooledByAColdFirstCall) {
  FakeDevice device{1e-6, 150};
  EXPECT_GE(FindCalls(device.Fn(), 200), 199);
}

TEST(FindCalls, EndsWhenTheClockSaysNothing) {
  EXPECT_GE(FindCalls([](int64_t) { return 0.0; }, 200), 1);
}

TEST(FindCalls, ALongCallIsCalledOnce) {
  FakeDevice device{0.1};
  EXPECT_EQ(FindCalls(device.Fn(), 200), 1);
  EXPECT_EQ(device.calls, 1);
}

constexpr double kFast = 1e-9;  // a verification that testifies against nobody

TEST(Racing, AContenderEarnsAllItsSamples) {
  SamplingPlan plan;
  plan.repeats = 5;
  plan.race_factor = 1.3;
  FakeDevice device{1.01e-3};
  const Samples samples = MeasureRacing(plan, 1e-3, kFast, device.Fn());
  EXPECT_FALSE(samples.raced_out);
  EXPECT_EQ(samples.costs_s.size(), 5u);
  EXPECT_THAT(samples.costs_s, Each(DoubleNear(1.01e-3, 1e-9)));
}

TEST(Racing, ALoserIsOutAfterAWarmUpAndTwoSamplesAHopelessOneAfterOne) {
  SamplingPlan plan;
  plan.race_factor = 1.3;
  FakeDevice device{0.4e-3}, hopeless{0.45e-3};
  const Samples samples = MeasureRacing(plan, 0.3e-3, kFast, device.Fn());
  EXPECT_TRUE(samples.raced_out);
  EXPECT_EQ(device.calls, 3);
  EXPECT_TRUE(MeasureRacing(plan, 0.05e-3, kFast, hopeless.Fn()).raced_out);
  EXPECT_EQ(hopeless.calls, 2);
}

TEST(Racing, ALongCallsFirstTimeIsASample) {
  SamplingPlan plan;
  plan.race_factor = 1.3;
  FakeDevice loser{1.4e-3}, hopeless{9e-3}, contender{1e-3};
  EXPECT_TRUE(MeasureRacing(plan, 1e-3, kFast, loser.Fn()).raced_out);
  EXPECT_EQ(loser.calls, 2);
  EXPECT_TRUE(MeasureRacing(plan, 1e-3, kFast, hopeless.Fn()).raced_out);
  EXPECT_EQ(hopeless.calls, 1);
  EXPECT_EQ(MeasureRacing(plan, 1e-3, kFast, contender.Fn()).costs_s.size(), 3u);
  EXPECT_EQ(contender.calls, 3);
}

TEST(Racing, ALongLosersVerificationIsItsSecondSample) {
  SamplingPlan plan;
  plan.race_factor = 1.3;
  FakeDevice loser{1.4e-3}, lucky{1.4e-3}, contender{1.01e-3}, shorter{0.4e-3};
  const Samples samples = MeasureRacing(plan, 1e-3, 1.4e-3, loser.Fn());
  EXPECT_TRUE(samples.raced_out);
  EXPECT_EQ(loser.calls, 1);
  EXPECT_THAT(samples.costs_s, testing::ElementsAre(1.4e-3));
  // One of the two was near: a sample more decides.
  EXPECT_TRUE(MeasureRacing(plan, 1e-3, 1.05e-3, lucky.Fn()).raced_out);
  EXPECT_EQ(lucky.calls, 2);
  // A verification is colder, and alone proves nothing.
  EXPECT_EQ(MeasureRacing(plan, 1e-3, 9e-3, contender.Fn()).costs_s.size(), 3u);
  // How much colder, for a short call nobody knows.
  EXPECT_TRUE(MeasureRacing(plan, 0.3e-3, 9e-3, shorter.Fn()).raced_out);
  EXPECT_EQ(shorter.calls, 3);
}

TEST(Racing, AColdFirstCallDoesNotDecide) {
  SamplingPlan plan;
  plan.race_factor = 1.3;
  FakeDevice device{0.9e-3, 6};
  const Samples samples = MeasureRacing(plan, 1e-3, kFast, device.Fn());
  EXPECT_FALSE(samples.raced_out);
  EXPECT_EQ(samples.costs_s.size(), 3u);
  EXPECT_NEAR(Median(samples.costs_s), 0.9e-3, 1e-9);
}

TEST(Racing, ALoserIsKnownByItsFastestSample) {
  SamplingPlan plan;
  plan.race_factor = 1.3;
  FakeDevice device{1.5e-3, 4};
  const Samples samples = MeasureRacing(plan, 1e-3, kFast, device.Fn());
  EXPECT_TRUE(samples.raced_out);
  EXPECT_THAT(samples.costs_s, testing::ElementsAre(DoubleNear(1.5e-3, 1e-9)));
}

TEST(Racing, TheSecondSampleMustComeNearer) {
  SamplingPlan plan;
  plan.race_factor = 1.3;
  FakeDevice device{1.2e-3};  // between the fourth root and the factor itself
  EXPECT_TRUE(MeasureRacing(plan, 1e-3, kFast, device.Fn()).raced_out);
  EXPECT_EQ(device.calls, 2);
}

TEST(Racing, OneSlowSampleDoesNotDecideAfterAFastOne) {
  SamplingPlan plan;
  plan.race_factor = 1.3;
  std::vector<double> times{1.05e-3, 9e-3, 1e-3};
  size_t next = 0;
  const Samples samples = MeasureRacing(plan, 1e-3, kFast, [&](int64_t) { return times[next++]; });
  EXPECT_FALSE(samples.raced_out);
  EXPECT_EQ(samples.costs_s, times);
}

TEST(Racing, NobodyIsOutWithoutAnIncumbentOrAFactor) {
  SamplingPlan plan;
  plan.race_factor = 1.3;
  FakeDevice slow{1};
  EXPECT_FALSE(MeasureRacing(plan, 0, kFast, slow.Fn()).raced_out);
  plan.race_factor = 0;
  EXPECT_FALSE(MeasureRacing(plan, 1e-9, kFast, slow.Fn()).raced_out);
}

TEST(CloseCalls, AreThoseOnWhichTheRoundsDisagree) {
  const std::vector<double> rounds = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  for (int faster = 0; faster <= 10; ++faster) {
    std::vector<double> other = rounds;
    for (int i = 0; i < 10; ++i) other[i] *= i < faster ? 0.99 : 1.5;
    EXPECT_EQ(IsCloseCall(rounds, other), faster > 2 && faster < 8) << faster;
    EXPECT_EQ(IsCloseCall(other, rounds), faster > 2 && faster < 8) << faster;
  }
}

TEST(CloseCalls, AreDecidedOnceFiveRoundsAgree) {
  const std::vector<double> rounds = {1, 2, 3, 4, 5, 6};
  for (size_t count = 0; count <= rounds.size(); ++count) {
    const std::vector<double> a(rounds.begin(), rounds.begin() + static_cast<std::ptrdiff_t>(count));
    std::vector<double> b = a;
    for (double& x : b) x *= 1.01;
    EXPECT_EQ(IsDecided(a, b), count >= 5) << count;
    EXPECT_EQ(IsDecided(b, a), count >= 5) << count;
    if (count == 0) continue;
    b.back() = a.back() / 2;
    EXPECT_FALSE(IsDecided(a, b)) << "one disagrees";
  }
}

TEST(Interleaving, EachRoundHasEachContenderOnceAndReverses) {
  for (int n = 1; n < 6; ++n) {
    for (int round = 0; round < 4; ++round) {
      std::set<int> seen;
      for (int turn = 0; turn < n; ++turn) seen.insert(InterleavedIndex(round, turn, n));
      EXPECT_EQ(static_cast<int>(seen.size()), n);
      EXPECT_EQ(*seen.rbegin(), n - 1);
      EXPECT_EQ(InterleavedIndex(round, 0, n), InterleavedIndex(round + 1, n - 1, n));
    }
  }
}

TEST(Statistics, AgreeWithTheirDefinitions) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(StandardDeviation(std::vector<double>{3}), 0);
  Rng rng(5);
  for (int round = 0; round < 100; ++round) {
    std::vector<double> v(static_cast<size_t>(1 + rng.Below(20)));
    for (double& x : v) x = rng.Uniform();
    const double median = Median(v);
    const auto below = std::count_if(v.begin(), v.end(), [&](double x) { return x < median - 1e-15; });
    const auto above = std::count_if(v.begin(), v.end(), [&](double x) { return x > median + 1e-15; });
    EXPECT_LE(below, static_cast<long>(v.size() / 2));
    EXPECT_LE(above, static_cast<long>(v.size() / 2));
    double sum = 0, squares = 0;
    for (double x : v) sum += x, squares += x * x;
    const double n = static_cast<double>(v.size());
    EXPECT_NEAR(Mean(v), sum / n, 1e-12);
    if (v.size() > 1) {
      EXPECT_NEAR(StandardDeviation(v), std::sqrt((squares - sum * sum / n) / (n - 1)), 1e-9);
    }
  }
  EXPECT_EQ(Median(std::vector<double>{5, 1}), 3);
  EXPECT_EQ(CallsForSample(1e-5, 200), 20);
  EXPECT_EQ(CallsForSample(1, 200), 1);
  EXPECT_EQ(CallsForSample(0, 0), 1);
}

}  // namespace
}  // namespace temper::worker
