// Kernels compiled and loaded, the latest ones kept.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "compiler/ops/template.h"
#include "measure_worker/device.h"

namespace temper::worker {

// A kernel on the device: the main function and, for each input, how the device's packer packs it (null: it is not).
struct LoadedKernel {
  std::shared_ptr<const Code> main;
  std::vector<std::shared_ptr<const Code>> packs;
  double tolerance = 0;  // the kernel's
};

// Functions that recur are not compiled again: how constants are packed, of which the candidates of a task agree, and
// candidates that are measured again. Thread-safe.
class CodeCache {
 public:
  explicit CodeCache(Device& device) : device_(device) {}
  // For the targets that the device and its packer use. Errors of the compiler are kInternal, others those of
  // Device::Load.
  absl::StatusOr<LoadedKernel> Load(const Kernel& kernel);

 private:
  absl::StatusOr<std::shared_ptr<const Code>> LoadOnce(Device& device, const ir::Func& func);
  std::shared_ptr<const Code> Find(const std::string& key);  // null: not known
  // Returns what is kept: another thread's, if that was faster.
  std::shared_ptr<const Code> Add(const std::string& key, std::shared_ptr<const Code> code);

  Device& device_;
  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<const Code>>> latest_;  // used last, first
  std::map<std::string, decltype(latest_)::iterator> by_key_;
};

}  // namespace temper::worker
