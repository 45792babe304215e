// What is made of several measurements.
#pragma once

#include <span>

namespace temper {

// The middle one, or the mean of the two in the middle. Of nothing: 0.
double Median(std::span<const double> values);
double Mean(std::span<const double> values);
double StandardDeviation(std::span<const double> values);  // of the sample (n - 1); 0 below two values

}  // namespace temper
