// OpenCL's devices: what they are, memory, programs, launches. libOpenCL is loaded when it is first asked for, so that
// nothing links against it and a machine without it gets one line. Thread-safe but for a Function, which one thread
// uses at a time. Errors: kUnavailable: there is no OpenCL or no device here; kResourceExhausted: no memory;
// kInternal: what else OpenCL says.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

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

class Session;

// On the device; it must not outlive the session, which lives as long as the process.
class Memory {
 public:
  Memory() = default;
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();
  void* handle() const { return handle_; }  // what launches take; null: there is none

 private:
  friend class Session;
  explicit Memory(void* handle) : handle_(handle) {}
  void* handle_ = nullptr;
};

// One kernel function of a program.
class Function {
 public:
  Function(Function&& other) noexcept;
  Function& operator=(Function&& other) noexcept;
  ~Function();

 private:
  friend class Session;
  explicit Function(void* kernel) : kernel_(kernel) {}
  void* kernel_ = nullptr;
};

struct LaunchShape {
  std::array<size_t, 3> groups, threads;
};

struct LaunchCall {
  const Function* function;
  LaunchShape shape;
  std::span<void* const> arguments;  // memory handles
};

// A device at work. What is asked of it happens in that order.
class Session {
 public:
  virtual ~Session() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual absl::StatusOr<Memory> Allocate(int64_t bytes) = 0;
  // Bytes of `whole` under a handle of their own; they begin at a multiple of part_alignment().
  virtual absl::StatusOr<Memory> Part(const Memory& whole, int64_t offset, int64_t bytes) = 0;
  virtual int64_t part_alignment() const = 0;
  // These return when it is done. Offsets and sizes are bytes.
  virtual absl::Status Write(void* to, int64_t offset, const void* data, int64_t bytes) = 0;
  virtual absl::Status Read(void* from, int64_t offset, void* data, int64_t bytes) = 0;
  virtual absl::Status Fill(void* to, int64_t offset, uint8_t byte, int64_t bytes) = 0;
  virtual absl::Status Copy(void* from, void* to, int64_t bytes) = 0;

  // The functions of the source, in the order of `names`, ready to be launched. An error has the compiler's first line.
  virtual absl::StatusOr<std::vector<Function>> Build(const std::string& source,
                                                      std::span<const std::string> names) = 0;
  // Runs `count` launches one after another, to the end of the last. Seconds from the start of the first on.
  virtual absl::StatusOr<double> Run(int64_t count, const std::function<LaunchCall(int64_t)>& call) = 0;

 protected:
  static Memory Own(void* handle) { return Memory(handle); }
  static void* KernelOf(const Function& function) { return function.kernel_; }
  static Function OwnKernel(void* kernel) { return Function(kernel); }
};

// The device of that number; the same session each time.
absl::StatusOr<Session*> Open(int number);
// Whose device packages run on: 0, or $TEMPER_OPENCL_DEVICE, until a number is set.
int PackageDevice();
void SetPackageDevice(int number);

}  // namespace temper::opencl
