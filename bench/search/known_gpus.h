// GPUs that others measured on, as targets: what their makers publish of them, where an architecture alone tells less.
#pragma once

#include <string_view>

#include "base/status.h"
#include "compiler/target/target.h"

namespace temper {

struct KnownGpu {
  const char* name;  // part of what the device calls itself: small letters and digits alone
  const char* arch;  // of NVIDIA's; else empty
  int units;
  // At most: where a board has no more than 75 W, it falls back to its base clock in a moment, and that is here.
  double ghz;
  double memory_gbs;  // 1e9 bytes a second
  double l2_mib;
};

// kNotFound: the table has no such device; the line says which ones it has.
absl::StatusOr<const KnownGpu*> FindKnownGpu(std::string_view device_name);
// Its units' rates in each cycle of its clock.
Target TargetOf(const KnownGpu& gpu);

}  // namespace temper
