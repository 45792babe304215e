#include "bench/search/known_gpus.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "absl/strings/str_cat.h"

namespace temper {
namespace {

// From the makers' data sheets. Of names that begin alike, the longer comes first.
constexpr KnownGpu kGpus[] = {
    {"p100pcie", "sm_60", 56, 1.303, 732, 4},
    {"p100", "sm_60", 56, 1.480, 732, 4},
    {"p40", "sm_61", 30, 1.531, 346, 3},
    {"p4", "sm_61", 20, 0.810, 192, 2},
    {"gtx1080ti", "sm_61", 28, 1.582, 484, 2.75},
    {"titanv", "sm_70", 80, 1.455, 653, 4.5},
    {"v100pcie", "sm_70", 80, 1.380, 900, 6},
    {"v100", "sm_70", 80, 1.530, 900, 6},
    {"rtx2080ti", "sm_75", 68, 1.545, 616, 5.5},
    {"t4", "sm_75", 40, 0.585, 320, 4},
    {"a10080gb", "sm_80", 108, 1.410, 1935, 40},
    {"a100sxm480gb", "sm_80", 108, 1.410, 2039, 40},
    {"a100", "sm_80", 108, 1.410, 1555, 40},
    {"a30", "sm_80", 56, 1.440, 933, 24},
    {"rtx3090", "sm_86", 82, 1.695, 936, 6},
    {"rtx3080", "sm_86", 68, 1.710, 760, 5},
    {"rtx3070", "sm_86", 46, 1.725, 448, 4},
    {"a6000", "sm_86", 84, 1.800, 768, 6},
    {"a5000", "sm_86", 64, 1.695, 768, 6},
    {"a4000", "sm_86", 48, 1.560, 448, 4},
    {"a40", "sm_86", 84, 1.740, 696, 6},
    {"a10", "sm_86", 72, 1.695, 600, 6},
    {"rtx4090", "sm_89", 128, 2.520, 1008, 72},
    {"rtx4080", "sm_89", 76, 2.505, 717, 64},
    {"rtx6000ada", "sm_89", 142, 2.505, 960, 96},
    {"l40", "sm_89", 142, 2.490, 864, 96},
    {"l4", "sm_89", 58, 0.795, 300, 48},
    {"h100pcie", "sm_90", 114, 1.755, 2000, 50},
    {"h100", "sm_90", 132, 1.980, 3350, 50},
    {"gh200", "sm_90", 132, 1.980, 4000, 50},
    {"h200", "sm_90", 132, 1.980, 4800, 50},
    {"b200", "sm_100", 148, 1.965, 8000, 126},
    {"rtx5090", "sm_120", 170, 2.407, 1792, 96},
    // AMD's units have 64 lanes; the last cache is counted, and of two dies one.
    {"mi100", "", 120, 1.502, 1229, 8},
    {"mi210", "", 104, 1.700, 1638, 8},
    {"mi250x", "", 110, 1.700, 1638, 8},
    {"mi250", "", 104, 1.700, 1638, 8},
    {"w6600", "", 28, 2.903, 224, 32},
    {"w7800", "", 70, 2.499, 576, 64},
};

std::string Plain(std::string_view name) {
  std::string plain;
  for (const unsigned char c : name) {
    if (std::isalnum(c)) plain += static_cast<char>(std::tolower(c));
  }
  return plain;
}

// Of OpenCL, as AMD's have it.
GpuTarget Other() {
  GpuTarget t;
  t.shared_bytes = 64 << 10;
  t.group_threads = 1024;
  t.warp_width = 32;
  t.unit_shared_bytes = 64 << 10;
  t.unit_fmas = 64;
  return t;
}

}  // namespace

absl::StatusOr<const KnownGpu*> FindKnownGpu(std::string_view device_name) {
  const std::string plain = Plain(device_name);
  for (const KnownGpu& gpu : kGpus) {
    if (plain.find(gpu.name) != std::string::npos) return &gpu;
  }
  std::string names;
  for (const KnownGpu& gpu : kGpus) absl::StrAppend(&names, names.empty() ? "" : ", ", gpu.name);
  return absl::NotFoundError(
      absl::StrCat("nothing is known of device '", std::string(device_name.substr(0, 64)), "'; known: ", names));
}

Target TargetOf(const KnownGpu& gpu) {
  Target target;
  target.generator = *gpu.arch == '\0' ? "opencl" : "cuda";
  target.device = *gpu.arch == '\0' ? Other() : *ParseTarget(absl::StrCat("cuda:", gpu.arch))->gpu();
  GpuTarget& t = *target.gpu();
  t.compute_units = gpu.units;
  t.unit_memory_bytes = gpu.memory_gbs / gpu.ghz / gpu.units;
  t.l2_bytes = static_cast<int64_t>(gpu.l2_mib * (1 << 20));
  return target;
}

}  // namespace temper
