// The clock that measurements use, and how often to call what is measured.
#pragma once

#include <cstdint>

namespace temper {

int64_t MonotonicNs();

// How often to call something that takes `seconds_per_call` so that one sample lasts at least `min_sample_us`; at
// least 1, at most a million (calls too short to be seen by the clock would never end).
int64_t CallsForSample(double seconds_per_call, int64_t min_sample_us);

}  // namespace temper
