// The temper_device of packages on a device that a driver::Session is for. A PackagePrograms is never destroyed, as
// sessions are not.
#pragma once

#include <map>
#include <mutex>

#include "compiler/driver/program.h"
#include "compiler/runtime/kernel_abi.h"

namespace temper {

// Each program is compiled once in a process, by what its code says. Thread-safe. Functions are as temper_device has
// them.
class PackagePrograms {
 public:
  using OpenFn = absl::StatusOr<driver::Session*> (*)();
  using ReadFn = absl::StatusOr<driver::Program> (*)(std::string_view code);
  PackagePrograms(OpenFn open, ReadFn read) : open_(open), read_(read) {}

  int32_t Launch(std::string_view code, std::string_view symbol, const temper_call* call);
  void* Allocate(int64_t bytes);
  void* Part(void* memory, int64_t offset, int64_t bytes);
  void Release(void* memory);
  int32_t Write(void* memory, int64_t offset, const void* from, int64_t bytes);
  int32_t Read(void* memory, int64_t offset, void* to, int64_t bytes);
  int32_t Copy(void* from, int64_t from_offset, void* to, int64_t to_offset, int64_t bytes);
  void* Record(int32_t (*steps)(void*), void* closure);
  int32_t Replay(void* recording);
  void Forget(void* recording);
  int32_t Time(int32_t (*steps)(void*), void* closure, int64_t* ns);
  static const char* LatestError();

 private:
  struct Entry {
    std::map<std::string, driver::Loaded, std::less<>> kernels;
    int64_t used = 0;
  };
  absl::StatusOr<driver::Session*> TheSession();
  // For what is not done within Ask, because each of its steps asks by itself.
  absl::StatusOr<driver::Session*> OpenSession();
  absl::Status Run(std::string_view code, std::string_view symbol, const temper_call& call);
  absl::StatusOr<Entry*> Find(std::string_view code);
  absl::StatusOr<Entry> Load(std::string_view code);
  absl::Status Submit(const driver::Loaded& kernel, const temper_call& call);
  // Asks the session while nobody else does.
  template <typename F>
  absl::Status Ask(const F& f);
  // Asks it for memory; null: there is none.
  template <typename F>
  void* Make(const F& f);

  const OpenFn open_;
  const ReadFn read_;
  std::mutex mutex_;
  driver::Session* session_ = nullptr;
  std::map<std::string, Entry, std::less<>> programs_;  // by code
  int64_t clock_ = 0;
};

template <PackagePrograms& (*kPrograms)()>
inline constexpr temper_device kDeviceOf = {
    .launch =
        [](const char* code, int64_t bytes, const char* symbol, const temper_call* call) {
          return kPrograms().Launch({code, static_cast<size_t>(bytes)}, symbol, call);
        },
    .allocate = [](int64_t bytes) { return kPrograms().Allocate(bytes); },
    .part = [](void* memory, int64_t offset, int64_t bytes) { return kPrograms().Part(memory, offset, bytes); },
    .release = [](void* memory) { kPrograms().Release(memory); },
    .write = [](void* memory, int64_t offset, const void* from,
                int64_t bytes) { return kPrograms().Write(memory, offset, from, bytes); },
    .read = [](void* memory, int64_t offset, void* to,
               int64_t bytes) { return kPrograms().Read(memory, offset, to, bytes); },
    .copy = [](void* from, int64_t from_offset, void* to, int64_t to_offset,
               int64_t bytes) { return kPrograms().Copy(from, from_offset, to, to_offset, bytes); },
    .record = [](int32_t (*steps)(void*), void* closure) { return kPrograms().Record(steps, closure); },
    .replay = [](void* recording) { return kPrograms().Replay(recording); },
    .forget = [](void* recording) { kPrograms().Forget(recording); },
    .time = [](int32_t (*steps)(void*), void* closure, int64_t* ns) { return kPrograms().Time(steps, closure, ns); },
    .error = PackagePrograms::LatestError,
};

}  // namespace temper
