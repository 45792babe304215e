#include <algorithm>

#include "compiler/target/table.h"

namespace temper {
namespace {

constexpr std::string_view kKnownOfX86[] = {
    "amx-bf16",   "amx-int8",        "amx-tile", "avx",        "avx2",       "avx512bf16", "avx512bitalg", "avx512bw",
    "avx512cd",   "avx512dq",        "avx512f",  "avx512fp16", "avx512ifma", "avx512vbmi", "avx512vbmi2",  "avx512vl",
    "avx512vnni", "avx512vpopcntdq", "avxvnni",  "bmi",        "bmi2",       "f16c",       "fma",          "gfni",
    "lzcnt",      "popcnt",          "sse4.1",   "sse4.2",     "ssse3",      "vaes",       "vpclmulqdq"};

// Scalable vectors (SVE) are not used: templates know the length of a vector when they make a loop.
constexpr std::string_view kKnownOfArm[] = {"bf16", "dotprod", "fullfp16", "i8mm", "neon"};

#define TEMPER_V2 "ssse3,sse4.1,sse4.2,popcnt"
#define TEMPER_V3 TEMPER_V2 ",avx,avx2,fma,f16c,bmi,bmi2,lzcnt"
#define TEMPER_V4 TEMPER_V3 ",avx512f,avx512bw,avx512cd,avx512dq,avx512vl"
#define TEMPER_ICX \
  TEMPER_V4 ",avx512vnni,avx512ifma,avx512vbmi,avx512vbmi2,avx512bitalg,avx512vpopcntdq,gfni,vaes,vpclmulqdq"

#define TEMPER_ARM_DOT "neon,fullfp16,dotprod"
#define TEMPER_ARM_MATRIX TEMPER_ARM_DOT ",i8mm,bf16"

constexpr int64_t kKiB = 1 << 10, kMiB = 1 << 20;

// Cache sizes are those of common parts of the line; a named target is for building elsewhere, detection is exact.
constexpr NamedCpu kCpus[] = {
    {"nehalem", "nehalem", TEMPER_V2, 32 * kKiB, 256 * kKiB, 8 * kMiB},
    {"x86-64-v2", "x86-64-v2", TEMPER_V2, 32 * kKiB, 256 * kKiB, 8 * kMiB},
    {"haswell", "haswell", TEMPER_V3, 32 * kKiB, 256 * kKiB, 8 * kMiB},
    {"x86-64-v3", "x86-64-v3", TEMPER_V3, 32 * kKiB, 256 * kKiB, 8 * kMiB},
    {"skylake-avx512", "skylake-avx512", TEMPER_V4, 32 * kKiB, 1 * kMiB, 32 * kMiB},
    {"x86-64-v4", "x86-64-v4", TEMPER_V4, 32 * kKiB, 1 * kMiB, 32 * kMiB},
    {"cascadelake", "cascadelake", TEMPER_V4 ",avx512vnni", 32 * kKiB, 1 * kMiB, 32 * kMiB},
    {"icelake-server", "icelake-server", TEMPER_ICX, 48 * kKiB, 1280 * kKiB, 48 * kMiB},
    {"sapphirerapids", "sapphirerapids", TEMPER_ICX ",avx512bf16,avx512fp16,avxvnni,amx-tile,amx-int8,amx-bf16",
     48 * kKiB, 2 * kMiB, 60 * kMiB},
    {"znver2", "znver2", TEMPER_V3, 32 * kKiB, 512 * kKiB, 16 * kMiB},
    {"znver3", "znver3", TEMPER_V3 ",vaes,vpclmulqdq", 32 * kKiB, 512 * kKiB, 32 * kMiB},
    {"znver4", "znver4", TEMPER_ICX ",avx512bf16", 32 * kKiB, 1 * kMiB, 32 * kMiB},
    // LLVM 19 knows Zen 5 only by its predecessor's scheduling model.
    {"znver5", "znver4", TEMPER_ICX ",avx512bf16,avxvnni", 48 * kKiB, 1 * kMiB, 32 * kMiB},
    // Those of 64-bit ARM. Where all cores of a cluster share the L2 cache, it is the whole.
    {"armv8-a", "generic", "neon", 32 * kKiB, 512 * kKiB, 0},
    {"armv8.2-a", "generic", TEMPER_ARM_DOT, 32 * kKiB, 256 * kKiB, 2 * kMiB},
    {"armv8.6-a", "generic", TEMPER_ARM_MATRIX, 64 * kKiB, 512 * kKiB, 4 * kMiB},
    {"cortex-a53", "cortex-a53", "neon", 32 * kKiB, 512 * kKiB, 0},
    {"cortex-a55", "cortex-a55", TEMPER_ARM_DOT, 32 * kKiB, 128 * kKiB, 1 * kMiB},
    {"cortex-a72", "cortex-a72", "neon", 32 * kKiB, 1 * kMiB, 0},
    {"cortex-a76", "cortex-a76", TEMPER_ARM_DOT, 64 * kKiB, 512 * kKiB, 2 * kMiB},
    {"neoverse-n1", "neoverse-n1", TEMPER_ARM_DOT, 64 * kKiB, 1 * kMiB, 32 * kMiB},
    {"neoverse-n2", "neoverse-n2", TEMPER_ARM_MATRIX, 64 * kKiB, 1 * kMiB, 32 * kMiB},
    {"neoverse-v1", "neoverse-v1", TEMPER_ARM_MATRIX, 64 * kKiB, 1 * kMiB, 32 * kMiB},
    {"neoverse-v2", "neoverse-v2", TEMPER_ARM_MATRIX, 64 * kKiB, 2 * kMiB, 36 * kMiB},
    {"apple-m1", "apple-m1", TEMPER_ARM_DOT, 128 * kKiB, 12 * kMiB, 0},
};

}  // namespace

std::span<const std::string_view> KnownFeatures(CpuArch arch) {
  if (arch == CpuArch::kArm) return kKnownOfArm;
  return kKnownOfX86;
}
std::span<const NamedCpu> NamedCpus() { return kCpus; }

const NamedCpu* FindCpu(std::string_view name) {
  for (const NamedCpu& c : kCpus) {
    if (c.name == name) return &c;
  }
  return nullptr;
}

std::string CpuNames() {
  std::string out;
  for (const NamedCpu& c : kCpus) out.append(out.empty() ? "" : ", ").append(c.name);
  return out;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end > 0) out.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::vector<std::string> SplitFeatures(std::string_view list) {
  std::vector<std::string> out;
  for (std::string_view word : Split(list, ',')) out.emplace_back(word);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

void DeriveVectors(CpuTarget& t) {
  t.vector_bits = t.Has("avx512f") ? 512 : t.Has("avx") ? 256 : 128;
  t.vector_registers = t.Has("avx512f") || t.Has("neon") ? 32 : 16;
}

}  // namespace temper
