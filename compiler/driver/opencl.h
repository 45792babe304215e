// OpenCL's devices: what they are, and sessions on them. A machine without libOpenCL gets one line. Thread-safe; errors
// as session.h has them.
#pragma once

#include "compiler/driver/session.h"

namespace temper::opencl {

struct DeviceInfo {
  std::string name, platform, driver;  // "pthread-haswell", "OpenCL 3.0 PoCL 3.1 ...", "3.1"
  std::string id;                      // of the piece of hardware, on this machine; the name where it tells no other
  bool is_cpu = false;                 // its kernels run on this machine's cores
  int64_t local_bytes = 0;             // memory of a group
  int64_t group_threads = 0;           // at most
  int64_t memory_bytes = 0;
  int64_t cache_bytes = 0;  // that all groups share
  int compute_units = 1;
  int warp_width = 1;  // 1: it does not say
};

// The devices of all platforms, numbered from 0 in their order. A device on the cores takes as many of them as this
// thread may run on when it is first called.
absl::StatusOr<std::vector<DeviceInfo>> ListDevices();

// A driver::Session whose programs are source; an error of Build has the compiler's first line.
class Session : public driver::Session {
 public:
  virtual const DeviceInfo& info() const = 0;
};

// The device of that number; the same session each time.
absl::StatusOr<Session*> Open(int number);
// Whose device packages run on: 0, or $TEMPER_OPENCL_DEVICE, until a number is set.
int PackageDevice();
void SetPackageDevice(int number);

}  // namespace temper::opencl
