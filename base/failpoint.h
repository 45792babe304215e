// Places in the code where a test may kill the process, to see what the next one makes of what is left.
#pragma once

#include <atomic>
#include <string_view>

namespace temper {

namespace failpoint_internal {
extern std::atomic<bool> armed;
void Pass(std::string_view name);
}  // namespace failpoint_internal

// Arms what the environment names: TEMPER_FAILPOINT=NAME:N kills this process (SIGKILL) when NAME is passed for the
// N-th time. Once, from main; without it, and without the variable, no failpoint does anything.
void ArmFailpoint();

// Costs one relaxed load unless armed. Thread-safe.
inline void Failpoint(std::string_view name) {
  if (failpoint_internal::armed.load(std::memory_order_relaxed)) failpoint_internal::Pass(name);
}

}  // namespace temper
