// The GPUs' draft beside what a vendor's library takes for f32 matmuls: the draft of the best config, times one factor
// a device, fitted on half of the shapes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace temper {

// A product of (rows x length) and (length x columns), so many times.
struct LibraryTime {
  std::string device;
  bool batched = false;  // "bmm"; else "linear", whose second operand is constant
  int64_t batch = 1, rows = 1, columns = 1, length = 1;
  double ms = 0;
};
// The text of a file with lines "device,op,batch,m,n,k,ms" below this very head. Of "bmm" n is the length and k the
// columns: files have m = 64, 96 and 128 take the same time, and k likewise, as sides of a tile do, and n does not.
// kInvalidArgument: one line that says what is wrong, and where.
absl::StatusOr<std::vector<LibraryTime>> ParseLibraryTimes(std::string_view text);

// Which configs of gpu.gemm stand for a library's kernel.
enum class LibraryConfigs {
  kLibraryTiles,  // those with tiles that the library's kernels have
  kAll,           // all legal ones
};
// Milliseconds by the draft of the best of them. kNotFound: nothing is known of the device.
absl::StatusOr<double> LibraryDraftMs(const LibraryTime& time, LibraryConfigs configs);

// The factor that makes the mean of |factor * drafts[i] / times[i] - 1| least.
double FittedFactor(const std::vector<double>& drafts, const std::vector<double>& times);
// Which of the shapes are for fitting: every second one by its hash, the same for all devices.
std::vector<bool> ForFitting(const std::vector<LibraryTime>& times);

}  // namespace temper
