// NVIDIA's GPUs: what they are, and sessions on them. A machine without a driver, or with one that is too old, gets one
// line. Thread-safe; errors as session.h has them.
#pragma once

#include <string_view>

#include "compiler/driver/session.h"

namespace temper::cuda {

struct DeviceInfo {
  std::string name;  // "NVIDIA H100 80GB HBM3"
  std::string uuid;  // "GPU-8c5e1b0a-...", on every machine; as NVML has it
  std::string arch;  // "sm_90"
  int driver = 0;    // CUDA's version: 12090
  int64_t memory_bytes = 0;
  int64_t cache_bytes = 0;   // L2
  int64_t shared_bytes = 0;  // of a group that asks for all it may have
  int64_t shared_bytes_multiprocessor = 0;
  int registers_multiprocessor = 0;  // of 32 bits
  int multiprocessors = 1;
  int group_threads = 1024;  // at most
  int warp_width = 32;
};

// The GPU of that number, as the driver numbers them from 0 on. Takes none of its memory. kNotFound: there is none.
absl::StatusOr<DeviceInfo> Describe(int number);

// OK where code for `arch`, such as "sm_90", runs on the device, else kFailedPrecondition: a line. Code runs on its own
// generation from its own number on; that for "sm_90a" on sm_90 alone. With `as_ptx`, on all later ones too.
absl::Status CheckArch(std::string_view arch, const DeviceInfo& info, bool as_ptx);

// Images are cubins or PTX; functions that want more shared memory than is usual get it.
class Session : public driver::Session {
 public:
  virtual const DeviceInfo& info() const = 0;
};

// The GPU of that number, with its primary context, which whoever else uses it in this process shares; the same session
// each time.
absl::StatusOr<Session*> Open(int number);
// The GPU that packages run on: 0, or $TEMPER_CUDA_DEVICE, until a number is set.
int PackageDevice();
void SetPackageDevice(int number);

}  // namespace temper::cuda
