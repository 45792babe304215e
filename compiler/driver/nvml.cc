#include "compiler/driver/nvml.h"

#include <dlfcn.h>

#include <array>

#include "absl/strings/str_cat.h"
#include "compiler/driver/library.h"

namespace temper::nvml {
namespace {

using driver::Find;

// After the public reference of NVML.
using DeviceHandle = struct DeviceOf*;
constexpr int kOk = 0, kMultiprocessorClock = 1, kMemoryClock = 2, kCoreSensor = 0;
struct MemoryInfo {
  unsigned long long total, free, used;
};

struct Api {
  int (*Init)() = nullptr;
  int (*DriverVersion)(char* text, unsigned bytes) = nullptr;
  int (*HandleByUuid)(const char* uuid, DeviceHandle* device) = nullptr;
  int (*ClockInfo)(DeviceHandle device, int clock, unsigned* mhz) = nullptr;
  int (*Temperature)(DeviceHandle device, int sensor, unsigned* celsius) = nullptr;
  int (*MemoryInfoOf)(DeviceHandle device, MemoryInfo* info) = nullptr;
};

std::optional<Api> Load() {
  void* lib = dlopen(driver::LibraryPath("TEMPER_NVML", "libnvidia-ml.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
  Api api;
  const bool found =
      lib != nullptr && Find(lib, "nvmlInit_v2", api.Init) &&
      Find(lib, "nvmlSystemGetDriverVersion", api.DriverVersion) &&
      Find(lib, "nvmlDeviceGetHandleByUUID", api.HandleByUuid) && Find(lib, "nvmlDeviceGetClockInfo", api.ClockInfo) &&
      Find(lib, "nvmlDeviceGetTemperature", api.Temperature) && Find(lib, "nvmlDeviceGetMemoryInfo", api.MemoryInfoOf);
  if (!found || api.Init() != kOk) return std::nullopt;
  return api;
}

const std::optional<Api>& TheApi() {
  static const auto* const api = new std::optional<Api>(Load());
  return *api;
}

}  // namespace

std::optional<State> Look(const std::string& uuid) {
  const std::optional<Api>& api = TheApi();
  DeviceHandle device = nullptr;
  if (!api.has_value() || api->HandleByUuid(uuid.c_str(), &device) != kOk) return std::nullopt;
  unsigned multiprocessor = 0, memory = 0, celsius = 0;
  MemoryInfo info{};
  if (api->ClockInfo(device, kMultiprocessorClock, &multiprocessor) != kOk ||
      api->ClockInfo(device, kMemoryClock, &memory) != kOk || api->Temperature(device, kCoreSensor, &celsius) != kOk ||
      api->MemoryInfoOf(device, &info) != kOk) {
    return std::nullopt;
  }
  return State{static_cast<int>(multiprocessor), static_cast<int>(memory), static_cast<int>(celsius),
               static_cast<int64_t>(info.free)};
}

std::string Text(const State& state) {
  return absl::StrCat(state.multiprocessor_mhz, " MHz, memory ", state.memory_mhz, " MHz, ", state.celsius, " C, ",
                      state.free_bytes >> 20, " MiB free");
}

std::string DriverText() {
  std::array<char, 96> text{};
  if (!TheApi().has_value() || TheApi()->DriverVersion(text.data(), text.size() - 1) != kOk) return "";
  return text.data();
}

}  // namespace temper::nvml
