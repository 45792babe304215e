// Kernels of packages on a device. A CodeGenerator::launch is a PackagePrograms that is never destroyed, as sessions
// are not.
#pragma once

#include <map>
#include <mutex>

#include "compiler/driver/program.h"
#include "compiler/runtime/kernel_abi.h"

namespace temper {

// Each program is compiled once in a process, by what its code says. Thread-safe.
class PackagePrograms {
 public:
  using OpenFn = absl::StatusOr<driver::Session*> (*)();
  using ReadFn = absl::StatusOr<driver::Program> (*)(std::string_view code);
  PackagePrograms(OpenFn open, ReadFn read) : open_(open), read_(read) {}

  // As CodeGenerator::launch: arguments are the host's; they are copied to the device and back.
  int32_t Launch(std::string_view code, std::string_view symbol, const temper_call* call);

 private:
  struct Placed {
    driver::Loaded loaded;
    std::vector<driver::Memory> arguments;  // copies of the host's, and the workspace
  };
  struct Entry {
    std::map<std::string, Placed, std::less<>> kernels;
    int64_t used = 0;
  };
  absl::Status Run(std::string_view code, std::string_view symbol, void* const* args);
  absl::StatusOr<Entry*> Find(std::string_view code);
  absl::StatusOr<Entry> Load(std::string_view code);
  absl::Status RunOn(const Placed& kernel, void* const* args);

  const OpenFn open_;
  const ReadFn read_;
  std::mutex mutex_;
  driver::Session* session_ = nullptr;
  std::map<std::string, Entry, std::less<>> programs_;  // by code
  int64_t clock_ = 0;
};

// Why this thread's latest launch of a package's kernel failed; empty: it did not.
const std::string& LatestLaunchError();

}  // namespace temper
