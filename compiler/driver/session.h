// A device at work, whoever its driver is: memory, code, launches. Drivers are loaded when they are first asked for, so
// that nothing links against them. Thread-safe but for a Function, which one thread uses at a time. Errors:
// kUnavailable: no driver or no device here; kResourceExhausted: no memory; kFailedPrecondition: the code is not for
// this device; kUnimplemented: the driver or the device can not do it; kInternal: what else the driver says.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace temper::driver {

// What a driver gave out, and how it is given back. It must not outlive the session, which lives as long as the
// process.
class Handle {
 public:
  using ReleaseFn = std::function<void(void*)>;
  Handle() = default;
  Handle(void* handle, ReleaseFn release) : handle_(handle), release_(std::move(release)) {}
  Handle(Handle&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), release_(std::move(other.release_)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(release_, other.release_);
    return *this;
  }
  ~Handle() {
    if (handle_ != nullptr && release_) release_(handle_);
  }
  void* get() const { return handle_; }

 private:
  void* handle_ = nullptr;
  ReleaseFn release_ = nullptr;
};

using Memory = Handle;     // what launches take: an address of the device, or the driver's handle
using Function = Handle;   // one kernel function of a program
using Recording = Handle;  // what may be asked for again in one call; given back, it waits until it is done

struct LaunchShape {
  std::array<size_t, 3> groups, threads;
  int64_t shared_bytes = 0;  // of a group, beside what the function declares itself
};

struct LaunchCall {
  const Function* function;
  LaunchShape shape;
  std::span<void* const> arguments;  // memory
};

// What a driver makes functions of.
struct Code {
  std::vector<std::string> images;  // the same in several forms, best first: source, or what the driver loads
  std::string arch;                 // what it is for: "sm_90"; empty: for all
  int least_driver = 0;             // an older one may refuse it: 12090 is CUDA 12.9
};

// What made a session useless: nothing will work on it in this process any more.
enum class Loss : uint8_t {
  kNone,
  kByKernel,   // a kernel that was launched
  kByMachine,  // its hardware, or who serves it: no kernel is to blame
};

// What is asked of it happens in that order.
class Session {
 public:
  virtual ~Session() = default;
  virtual int64_t memory_bytes() const = 0;
  virtual int64_t cache_bytes() const = 0;  // that all groups share

  virtual absl::StatusOr<Memory> Allocate(int64_t bytes) = 0;
  // Bytes of `whole` under a handle of their own; they begin at a multiple of part_alignment().
  virtual absl::StatusOr<Memory> Part(const Memory& whole, int64_t offset, int64_t bytes) = 0;
  virtual int64_t part_alignment() const = 0;
  // These return when it is done. Offsets and sizes are bytes.
  virtual absl::Status Write(void* to, int64_t offset, const void* data, int64_t bytes) = 0;
  virtual absl::Status Read(void* from, int64_t offset, void* data, int64_t bytes) = 0;
  virtual absl::Status Fill(void* to, int64_t offset, uint8_t byte, int64_t bytes) = 0;
  virtual absl::Status Copy(void* from, int64_t from_offset, void* to, int64_t to_offset, int64_t bytes) = 0;
  virtual absl::Status Finish() = 0;

  // The functions, in the order of `names`, ready to be launched.
  virtual absl::StatusOr<std::vector<Function>> Build(const Code& code, std::span<const std::string> names) = 0;
  // Runs `count` launches one after another, to the end of the last. Seconds from the start of the first on.
  virtual absl::StatusOr<double> Run(int64_t count, const std::function<LaunchCall(int64_t)>& call) = 0;
  // Returns before they are done; what they say later, the next call that waits says.
  virtual absl::Status Submit(int64_t count, const std::function<LaunchCall(int64_t)>& call) = 0;
  // What `submit` submits, copies and fills on this thread is kept, instead of done, for Replay; it asks for nothing
  // else. The memory has to stay there; the functions do. kUnimplemented: this driver keeps nothing.
  virtual absl::StatusOr<Recording> Record(const std::function<absl::Status()>&) {
    return absl::UnimplementedError("the driver keeps no launches");
  }
  // Returns before it is done, as Submit.
  virtual absl::Status Replay(const Recording&) { return absl::UnimplementedError("the driver keeps no launches"); }
  // Seconds that what `submit` asks for takes, to its end. By the host's clock, where the driver has no better one.
  virtual absl::StatusOr<double> Time(const std::function<absl::Status()>& submit);
  virtual Loss loss() const { return Loss::kNone; }
  bool lost() const { return loss() != Loss::kNone; }
};

}  // namespace temper::driver
