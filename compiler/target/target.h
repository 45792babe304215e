// What code is generated for: a self-contained value with a canonical text, sent over the wire and kept in records.
// What a device measured (peak, bandwidth) is not part of it; that belongs to the fingerprint.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"

namespace temper {

// The machine languages that code of CPUs is generated in, both of 64 bits.
enum class CpuArch { kX86, kArm };
std::string_view Name(CpuArch arch);  // "x86-64", "aarch64"
CpuArch HostArch();

// A processor whose threads each run vector instructions and have caches.
struct CpuTarget {
  std::string cpu;                    // LLVM's name: "x86-64-v4", "haswell", ...; empty where LLVM has no say
  std::vector<std::string> features;  // sorted, of the known ones of its architecture: "avx2", "fma", "neon", ...
  int vector_bits = 128;              // 512 with avx512f, 256 with avx2 (or avx), else 128
  int vector_registers = 16;          // 32 with avx512f or neon
  int64_t l1_bytes = 32 << 10;        // data cache of one core
  int64_t l2_bytes = 1 << 20;         // last private cache of one core
  int64_t l3_bytes = 0;               // shared, 0 if none
  int threads = 1;

  int lanes(int element_bytes = 4) const { return vector_bits / 8 / element_bytes; }
  bool Has(std::string_view feature) const;
  // Each target of 64-bit ARM states "neon", and no other does: so its text says what it is.
  CpuArch arch() const { return Has("neon") ? CpuArch::kArm : CpuArch::kX86; }
  // Vectors are read and written wherever they lie, at no cost.
  bool TakesUnaligned() const { return Has("avx") || Has("neon"); }
  bool operator==(const CpuTarget&) const = default;
};

// A processor that runs launches: groups of threads that share memory (compiler/ir/launch.h). Launches keep its limits.
struct GpuTarget {
  std::string arch;                 // "sm_90"; empty where one code suits all
  int64_t shared_bytes = 32 << 10;  // memory of a group
  int group_threads = 256;          // most threads of a group; no target has more than 1024
  int warp_width = 1;               // threads that run in lock step; 1: nothing is known
  int compute_units = 1;            // run groups beside one another
  // Told by `arch`, each with what is usual:
  int unit_threads = 2048;               // that a unit has at once, of all its groups
  int unit_groups = 32;                  // that it has at once
  int64_t unit_shared_bytes = 96 << 10;  // of all its groups; at least one may have `shared_bytes`
  int unit_fmas = 128;                   // multiply-adds of f32 that it makes in a cycle
  int unit_tensor_fmas = 0;              // of f16, that its tensor cores make in a cycle
  int unit_team_fmas = 0;                // the same by products of teams of four warps (ir/launch.h); 0: it has none
  int unit_bank_bytes = 128;             // that its shared memory gives in a cycle
  double unit_memory_bytes = 10;  // its part of what memory gives in a cycle; differs among an architecture's parts
  int64_t l2_bytes = 4 << 20;     // of the cache in front of memory; differs likewise
  bool shuffles = false;          // lanes of a warp exchange what is in their registers
  bool tensor_cores = false;      // warps multiply matrices, threads copy asynchronously (ir/launch.h)

  bool operator==(const GpuTarget&) const = default;
};

struct Target {
  std::string generator = "llvm";  // who generates its code: a name in the table of generators.cc
  std::variant<CpuTarget, GpuTarget> device;

  const CpuTarget* cpu() const { return std::get_if<CpuTarget>(&device); }  // null: another kind of device
  const GpuTarget* gpu() const { return std::get_if<GpuTarget>(&device); }
  CpuTarget* cpu() { return std::get_if<CpuTarget>(&device); }
  GpuTarget* gpu() { return std::get_if<GpuTarget>(&device); }
  // Threads of this machine that share a kernel's loops: 1 where the device runs it alone.
  int threads() const { return cpu() != nullptr ? cpu()->threads : 1; }
  // For people: the CPU, the architecture, or else the generator.
  const std::string& name() const;
  bool operator==(const Target&) const = default;
};

// "llvm -mcpu=x86-64-v4 -mattr=avx2,avx512f,fma -l1=32768 -l2=1048576 -l3=33554432 -threads=2",
// "llvm -mcpu=cortex-a76 -mattr=dotprod,fullfp16,neon -l1=65536 -l2=524288 -l3=2097152 -threads=4",
// "interpreter -l1=16384 -l2=131072 -l3=0 -threads=1", "opencl -local=32768 -wg=256 -warp=1 -units=1",
// "cuda -arch=sm_90 -local=232448 -wg=1024 -warp=32 -units=132"; round-trips.
std::string Text(const Target& t);
// Accepts the canonical text, with options left out or not, and
//   "llvm" or "host"   this machine, found by what the CPU or the kernel says, and sysfs
//   "llvm:NAME"        NAME of the table in targets.cc (haswell, skylake-avx512, znver4, ...: x86-64-v2, -v3, -v4 too;
//                      of 64-bit ARM cortex-a72, neoverse-n1, ...: armv8-a, armv8.2-a, armv8.6-a too)
//   "interpreter"      a plain machine: vectors of four floats, small caches, one thread
//   "opencl"           the least that a device of its full profile has
//   "cuda:sm_90"       an architecture, with the shared memory that a group may ask for there; "cuda" alone is
//                      refused
// kInvalidArgument: one line that says what would do.
absl::StatusOr<Target> ParseTarget(std::string_view text);
Target HostTarget();  // threads = the affinity mask's count
// OK, or a line that says of which other architecture `t` is, or which of its features this machine lacks.
absl::Status CheckRunsHere(const Target& t);

}  // namespace temper
