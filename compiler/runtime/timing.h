// Durations and what is made of them. Pure but for MonotonicNs.
#pragma once

#include <cstdint>
#include <span>

namespace temper {

int64_t MonotonicNs();

// How often to call something that takes `seconds_per_call` so that one sample lasts at least `min_sample_us`; at
// least 1, at most a million (calls too short to be seen by the clock would never end).
int64_t CallsForSample(double seconds_per_call, int64_t min_sample_us);

// The middle one, or the mean of the two in the middle. Of nothing: 0.
double Median(std::span<const double> values);
double Mean(std::span<const double> values);
double StandardDeviation(std::span<const double> values);  // of the sample (n - 1); 0 below two values

}  // namespace temper
