// Whether an output is the reference's.
#pragma once

#include "base/ndarray.h"

namespace temper::worker {

// What an output may be off by, as RelativeError has it: integers and booleans not at all.
double ErrorBound(DType dtype);
// The largest magnitude of those that are finite, by which errors are relative.
double LargestOf(const NDArray& a);
// RelativeError of the dense array at `got` against `want`, fast where it matters.
double OutputError(const void* got, const NDArray& want);
// kDataLoss names the first element that is off, and by how much all are. `tolerance`: what floats may be off by if
// that is more than ErrorBound.
absl::Status CheckOutput(const void* got, const NDArray& want, double tolerance = 0);
// Whether each element is that of `want`, or lies between those of two others, or as far from them as CheckOutput
// allows floats.
bool IsBetween(const void* got, const NDArray& want, const NDArray& least, const NDArray& most, double tolerance = 0);
// Of a whole model's output, against another package's. A rounding on the way moves a whole number from time to time:
// the place of the largest of two floats that are nearly equal. So of integers and booleans one in a thousand may be
// off; floats are as in CheckOutput. Where the model `quantises`, floats are whole numbers of steps as well, and a
// step on the way may move some of them by many: one in a hundred may be off. None may be infinite or no number where
// the other package has a number.
absl::Status CheckModelOutput(const void* got, const NDArray& want, double tolerance = 0, bool quantises = false);

}  // namespace temper::worker
