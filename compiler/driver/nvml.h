// What NVIDIA's management library says of a GPU at this moment. libnvidia-ml is loaded when it is first asked for
// ($TEMPER_NVML names another); where there is none, nothing is known. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace temper::nvml {

struct State {
  int multiprocessor_mhz = 0, memory_mhz = 0;
  int celsius = 0;
  int64_t free_bytes = 0;
};
std::optional<State> Look(const std::string& uuid);
std::string Text(const State& state);  // "1980 MHz, memory 2619 MHz, 45 C, 80000 MiB free"

std::string DriverText();  // "580.65.06"; empty: not known

}  // namespace temper::nvml
