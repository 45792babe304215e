// The server's core and its jobs under everything that may go wrong with a fleet, from seeds. A failure prints its
// seed, the promise that was broken, and the events before.
#include <gtest/gtest.h>

#include <cstdlib>
#include <ostream>
#include <string>

#include "base/log.h"
#include "tests/server/simulator/simulation.h"

namespace temper::simulator {
namespace {

struct FaultClass {
  const char* name;
  bool Faults::*fault;
};
void PrintTo(const FaultClass& c, std::ostream* out) { *out << c.name; }

constexpr FaultClass kFaultClasses[] = {{"LossyNetwork", &Faults::lossy_network},
                                        {"Crash", &Faults::crash},
                                        {"Freeze", &Faults::freeze},
                                        {"WallClockJumps", &Faults::wall_jumps},
                                        {"StoreFails", &Faults::store_fails},
                                        {"EarlyCalls", &Faults::early_calls},
                                        {"MeddlingPeople", &Faults::meddling},
                                        {"SlowWorker", &Faults::slow},
                                        {"BrokenWorker", &Faults::broken},
                                        {"FlappingWorker", &Faults::flapping},
                                        {"TwinWorkers", &Faults::twins},
                                        {"UnfitDevice", &Faults::unfit},
                                        {"ZeroThreads", &Faults::zero_threads},
                                        {"NotFinite", &Faults::not_finite},
                                        {"VerboseWorker", &Faults::verbose},
                                        {"GreedyWorker", &Faults::greedy},
                                        {"HoardingWorker", &Faults::hoarder}};

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoll(value, nullptr, 10);
}

// TEMPER_SIM_SEEDS: how many seeds. TEMPER_SIM_FIRST: the first of them, to see one failure again.
void Hold(const Faults& faults, int64_t seeds) {
  spdlog::set_level(spdlog::level::off);  // warnings of what goes wrong on purpose
  const int64_t first = FromEnvironment("TEMPER_SIM_FIRST", 1);
  seeds = FromEnvironment("TEMPER_SIM_SEEDS", seeds);
  int64_t events = 0;
  for (int64_t seed = first; seed < first + seeds; ++seed) {
    const RunResult run = RunSimulation(static_cast<uint64_t>(seed), faults);
    ASSERT_TRUE(run.broken.empty()) << run.broken;
    events += run.events;
  }
  ::testing::Test::RecordProperty("events_a_seed", static_cast<int>(events / seeds));
}

Faults All() {
  Faults faults;
  for (const FaultClass& c : kFaultClasses) faults.*c.fault = true;
  return faults;
}

TEST(Simulator, PromisesHoldWhereNothingGoesWrong) { Hold({}, 10); }

TEST(Simulator, PromisesHoldWhereEverythingGoesWrongAtOnce) { Hold(All(), 300); }

TEST(Simulator, TheSameSeedGivesTheSameEvents) {
  const RunResult first = RunSimulation(7, All()), again = RunSimulation(7, All());
  EXPECT_GT(first.events, 1000);
  EXPECT_EQ(first.events, again.events);
  EXPECT_EQ(first.trace_hash, again.trace_hash);
  EXPECT_NE(first.trace_hash, RunSimulation(8, All()).trace_hash);
}

class SimulatorFault : public ::testing::TestWithParam<FaultClass> {};

TEST_P(SimulatorFault, PromisesHold) {
  Faults faults;
  faults.*GetParam().fault = true;
  Hold(faults, 20);
}

INSTANTIATE_TEST_SUITE_P(Each, SimulatorFault, ::testing::ValuesIn(kFaultClasses),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace temper::simulator
