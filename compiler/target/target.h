// What code is generated for: a self-contained value with a canonical text, sent over the wire and kept in records.
// What a device measured (peak, bandwidth) is not part of it; that belongs to the fingerprint.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace temper {

struct Target {
  std::string kind = "llvm";
  std::string cpu;                    // LLVM's name: "x86-64-v4", "haswell", ...
  std::vector<std::string> features;  // sorted, of the known ones: "avx2", "avx512f", "fma", ...
  int vector_bits = 128;              // 512 with avx512f, 256 with avx2 (or avx), else 128
  int vector_registers = 16;          // 32 with avx512f
  int64_t l1_bytes = 32 << 10;        // data cache of one core
  int64_t l2_bytes = 1 << 20;         // last private cache of one core
  int64_t l3_bytes = 0;               // shared, 0 if none
  int threads = 1;

  int lanes(int element_bytes = 4) const { return vector_bits / 8 / element_bytes; }
  bool Has(std::string_view feature) const;
  bool operator==(const Target&) const = default;
};

// "llvm -mcpu=x86-64-v4 -mattr=avx2,avx512f,fma -l1=32768 -l2=1048576 -l3=33554432 -threads=2"; round-trips.
std::string Text(const Target& t);
// Accepts the canonical text, "llvm" or "host" (this machine, found by cpuid and sysfs), and "llvm:NAME" with NAME of
// the table in targets.cc (haswell, skylake-avx512, znver4, nehalem, ...: x86-64-v2, -v3, -v4 too). Errors list the
// names.
absl::StatusOr<Target> ParseTarget(std::string_view text);
Target HostTarget();  // threads = the affinity mask's count
// OK, or a line naming the features of `t` that this machine lacks.
absl::Status CheckRunsHere(const Target& t);

}  // namespace temper
