#include "measure_worker/host/gpu_files.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace temper::worker {
namespace {

constexpr std::string_view kNvidia = "nvidia";

bool IsNvidiaGpu(std::string_view name) {
  if (!name.starts_with(kNvidia) || name == kNvidia) return false;
  return std::ranges::all_of(name.substr(kNvidia.size()), [](unsigned char c) { return absl::ascii_isdigit(c); });
}

}  // namespace

std::vector<std::string> GpuFiles() { return GpuFilesIn("/dev"); }

std::vector<std::string> GpuFilesIn(const std::string& devices) {
  // NVIDIA's driver gives its threads names there, and does not start if it may not.
  std::vector<std::string> files{"/proc/self/task"};
  for (const char* name : {"dri", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps"})
    files.push_back(absl::StrCat(devices, "/", name));
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(devices, error)) {
    if (IsNvidiaGpu(entry.path().filename().string())) files.push_back(entry.path());
  }
  return files;
}

}  // namespace temper::worker
