// One run of a simulated fleet: a server, three jobs, six workers of different roles, and what may go wrong with them.
#pragma once

#include <cstdint>
#include <string>

#include "tests/server/simulator/faults.h"

namespace temper::simulator {

struct RunResult {
  std::string broken;  // the first promise that was broken, and the last events before; empty: none
  uint64_t trace_hash = 0;
  int64_t events = 0;
  int jobs_done = 0;
};

RunResult RunSimulation(uint64_t seed, const Faults& faults);

}  // namespace temper::simulator
