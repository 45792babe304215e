// A kernel through a temper_device alone, as a package's runtime calls it.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <string_view>
#include <vector>

#include "base/ndarray.h"
#include "compiler/runtime/kernel_abi.h"
#include "include/temper/model.h"

namespace temper {

// An array in the device's memory, as a part of an allocation of its own; nothing where it has no bytes.
class DeviceArray {
 public:
  DeviceArray(const temper_device& device, int64_t bytes) : device_(device), bytes_(bytes) {
    if (bytes == 0) return;
    memory_ = device.allocate(bytes);
    if (memory_ != nullptr) part_ = device.part(memory_, 0, bytes);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() {
    if (part_ != nullptr) device_.release(part_);
    if (memory_ != nullptr) device_.release(memory_);
  }
  bool made() const { return bytes_ == 0 || part_ != nullptr; }
  void* part() const { return part_; }
  int32_t Write(const void* from) { return device_.write(memory_, 0, from, bytes_); }
  int32_t Read(void* to) { return device_.read(memory_, 0, to, bytes_); }

 private:
  const temper_device& device_;
  const int64_t bytes_;
  void* memory_ = nullptr;
  void* part_ = nullptr;
};

inline std::span<std::byte> BytesOf(NDArray& array) {
  return {static_cast<std::byte*>(array.MutableData()), static_cast<size_t>(array.bytes())};
}

// Calls the kernel `symbol` of the code on the bytes of `args`, which hold afterwards what the parameters do. Returns
// the first TEMPER_* that is not TEMPER_OK.
inline int32_t CallOnDevice(const temper_device& device, std::string_view code, const char* symbol,
                            std::span<const std::span<std::byte>> args, int64_t workspace_bytes = 0) {
  std::deque<DeviceArray> there;
  std::vector<void*> parts;
  for (const std::span<std::byte> arg : args) {
    DeviceArray& argument = there.emplace_back(device, std::ssize(arg));
    if (!argument.made()) return TEMPER_NO_RESOURCES;
    if (const int32_t failed = argument.Write(arg.data()); failed != TEMPER_OK) return failed;
    parts.push_back(argument.part());
  }
  DeviceArray workspace(device, workspace_bytes);
  if (!workspace.made()) return TEMPER_NO_RESOURCES;
  int queue = 0;
  const temper_call call = {parts.data(), nullptr, workspace.part(), nullptr, &queue};
  const int32_t failed = device.launch(code.data(), std::ssize(code), symbol, &call);
  if (failed != TEMPER_OK) return failed;
  for (size_t i = 0; i < args.size(); ++i) {
    if (const int32_t unread = there[i].Read(args[i].data()); unread != TEMPER_OK) return unread;
  }
  return TEMPER_OK;
}

}  // namespace temper
