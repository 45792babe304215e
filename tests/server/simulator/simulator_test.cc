// The server's core and its jobs under everything that may go wrong with a fleet, from seeds. A failure prints its
// seed, the promise that was broken, and the events before.
#include <gtest/gtest.h>

#include <cstdlib>
#include <ostream>
#include <string>

#include "base/log.h"
#include "tests/server/simulator/simulation.h"
#include "tests/server/toys.h"

namespace temper::simulator {
namespace {

struct FaultClass {
  const char* name;
  bool Faults::*fault;
  bool mended;  // the server holds its promises under it; no: its test is skipped, and it is not among the others
};
void PrintTo(const FaultClass& c, std::ostream* out) { *out << c.name; }

constexpr FaultClass kFaultClasses[] = {{"LossyNetwork", &Faults::lossy_network, true},
                                        {"Crash", &Faults::crash, true},
                                        {"Freeze", &Faults::freeze, true},
                                        {"WallClockJumps", &Faults::wall_jumps, true},
                                        {"StoreFails", &Faults::store_fails, true},
                                        {"EarlyCalls", &Faults::early_calls, true},
                                        {"SlowWorker", &Faults::slow, true},
                                        {"BrokenWorker", &Faults::broken, true},
                                        {"FlappingWorker", &Faults::flapping, true},
                                        {"TwinWorkers", &Faults::twins, true},
                                        {"UnfitDevice", &Faults::unfit, true},
                                        {"ZeroThreads", &Faults::zero_threads, true},
                                        {"NotFinite", &Faults::not_finite, true},
                                        {"VerboseWorker", &Faults::verbose, true},
                                        {"GreedyWorker", &Faults::greedy, true},
                                        {"HoardingWorker", &Faults::hoarder, true}};

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoll(value, nullptr, 10);
}

// TEMPER_SIM_SEEDS: how many seeds. TEMPER_SIM_FIRST: the first of them, to see one failure again.
void Hold(const Faults& faults, int64_t seeds) {
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

Faults AllThatAreMended() {
  Faults faults;
  for (const FaultClass& c : kFaultClasses) faults.*c.fault = c.mended;
  return faults;
}

TEST(Simulator, PromisesHoldWhereNothingGoesWrong) { Hold({}, 10); }

TEST(Simulator, PromisesHoldWhereEverythingGoesWrongAtOnce) { Hold(AllThatAreMended(), 1000); }

TEST(Simulator, TheSameSeedGivesTheSameEvents) {
  const RunResult first = RunSimulation(7, AllThatAreMended()), again = RunSimulation(7, AllThatAreMended());
  EXPECT_GT(first.events, 1000);
  EXPECT_EQ(first.events, again.events);
  EXPECT_EQ(first.trace_hash, again.trace_hash);
  EXPECT_NE(first.trace_hash, RunSimulation(8, AllThatAreMended()).trace_hash);
}

class SimulatorFault : public ::testing::TestWithParam<FaultClass> {};

TEST_P(SimulatorFault, PromisesHold) {
  if (!GetParam().mended && std::getenv("TEMPER_SIM_UNMENDED") == nullptr) GTEST_SKIP() << "not mended yet";
  Faults faults;
  faults.*GetParam().fault = true;
  Hold(faults, 20);
}

INSTANTIATE_TEST_SUITE_P(Each, SimulatorFault, ::testing::ValuesIn(kFaultClasses),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace temper::simulator

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  spdlog::set_level(spdlog::level::off);  // warnings of what goes wrong on purpose
  temper::RegisterToys();
  return RUN_ALL_TESTS();
}
