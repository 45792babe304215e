// What this machine is: CPUID, or what the kernel says, for the ISA, sysfs for the caches, the affinity mask for the
// threads.
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "compiler/target/table.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace temper {
namespace {

std::string FirstWord(const std::string& path) {
  std::ifstream in(path);
  std::string word;
  in >> word;
  return word;
}

#if defined(__x86_64__)

struct Regs {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Regs Cpuid(unsigned leaf, unsigned subleaf = 0) {
  Regs r;
  if (!__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d)) return Regs{};
  return r;
}

uint64_t Xcr0() {
  unsigned lo = 0, hi = 0;
  __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  return (static_cast<uint64_t>(hi) << 32) | lo;
}

struct Bit {
  std::string_view feature;
  unsigned leaf, subleaf;
  char reg;  // a, b, c or d
  int bit;
  uint64_t xcr0;  // state that the system must save for it
};

constexpr uint64_t kYmm = 0x6, kZmm = 0xe6, kTiles = 0x60000;
constexpr Bit kBits[] = {
    {"ssse3", 1, 0, 'c', 9, 0},
    {"sse4.1", 1, 0, 'c', 19, 0},
    {"sse4.2", 1, 0, 'c', 20, 0},
    {"popcnt", 1, 0, 'c', 23, 0},
    {"lzcnt", 0x80000001, 0, 'c', 5, 0},
    {"bmi", 7, 0, 'b', 3, 0},
    {"bmi2", 7, 0, 'b', 8, 0},
    {"gfni", 7, 0, 'c', 8, 0},
    {"avx", 1, 0, 'c', 28, kYmm},
    {"f16c", 1, 0, 'c', 29, kYmm},
    {"fma", 1, 0, 'c', 12, kYmm},
    {"avx2", 7, 0, 'b', 5, kYmm},
    {"vaes", 7, 0, 'c', 9, kYmm},
    {"vpclmulqdq", 7, 0, 'c', 10, kYmm},
    {"avxvnni", 7, 1, 'a', 4, kYmm},
    {"avx512f", 7, 0, 'b', 16, kZmm},
    {"avx512dq", 7, 0, 'b', 17, kZmm},
    {"avx512ifma", 7, 0, 'b', 21, kZmm},
    {"avx512cd", 7, 0, 'b', 28, kZmm},
    {"avx512bw", 7, 0, 'b', 30, kZmm},
    {"avx512vl", 7, 0, 'b', 31, kZmm},
    {"avx512vbmi", 7, 0, 'c', 1, kZmm},
    {"avx512vbmi2", 7, 0, 'c', 6, kZmm},
    {"avx512vnni", 7, 0, 'c', 11, kZmm},
    {"avx512bitalg", 7, 0, 'c', 12, kZmm},
    {"avx512vpopcntdq", 7, 0, 'c', 14, kZmm},
    {"avx512fp16", 7, 0, 'd', 23, kZmm},
    {"avx512bf16", 7, 1, 'a', 5, kZmm},
    {"amx-bf16", 7, 0, 'd', 22, kTiles},
    {"amx-tile", 7, 0, 'd', 24, kTiles},
    {"amx-int8", 7, 0, 'd', 25, kTiles},
};

// Linux lets a process use the tiles' registers once it has asked for them.
bool MayUseTiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

std::vector<std::string> Features() {
  const bool osxsave = (Cpuid(1).c >> 27) & 1;
  const uint64_t xcr0 = osxsave ? Xcr0() : 0;
  std::vector<std::string> out;
  for (const Bit& b : kBits) {
    if ((xcr0 & b.xcr0) != b.xcr0 || (b.xcr0 == kTiles && !MayUseTiles())) continue;
    const Regs r = Cpuid(b.leaf, b.subleaf);
    const unsigned word = b.reg == 'a' ? r.a : b.reg == 'b' ? r.b : b.reg == 'c' ? r.c : r.d;
    if ((word >> b.bit) & 1) out.emplace_back(b.feature);
  }
  std::sort(out.begin(), out.end());
  return out;
}

struct Model {
  bool amd;
  unsigned family, first, last;  // models [first, last]
  std::string_view cpu;
};

// Where a model is not listed, its features choose a psABI level: right code, a plainer scheduling model.
constexpr Model kModels[] = {
    {true, 0x17, 0x30, 0xff, "znver2"},       {true, 0x17, 0x00, 0x2f, "znver1"},
    {true, 0x19, 0x10, 0x1f, "znver4"},       {true, 0x19, 0x60, 0xaf, "znver4"},
    {true, 0x19, 0x00, 0x5f, "znver3"},       {true, 0x1a, 0x00, 0xff, "znver4"},
    {false, 6, 0x3c, 0x3c, "haswell"},        {false, 6, 0x3f, 0x3f, "haswell"},
    {false, 6, 0x45, 0x46, "haswell"},        {false, 6, 0x3d, 0x3d, "broadwell"},
    {false, 6, 0x47, 0x47, "broadwell"},      {false, 6, 0x4f, 0x4f, "broadwell"},
    {false, 6, 0x56, 0x56, "broadwell"},      {false, 6, 0x4e, 0x4e, "skylake"},
    {false, 6, 0x5e, 0x5e, "skylake"},        {false, 6, 0x8e, 0x8e, "skylake"},
    {false, 6, 0x9e, 0x9e, "skylake"},        {false, 6, 0x6a, 0x6c, "icelake-server"},
    {false, 6, 0x7d, 0x7e, "icelake-client"}, {false, 6, 0x8c, 0x8d, "tigerlake"},
    {false, 6, 0x8f, 0x8f, "sapphirerapids"}, {false, 6, 0xcf, 0xcf, "emeraldrapids"},
    {false, 6, 0xad, 0xae, "graniterapids"},  {false, 6, 0x97, 0x97, "alderlake"},
    {false, 6, 0x9a, 0x9a, "alderlake"},      {false, 6, 0xb7, 0xb7, "raptorlake"},
    {false, 6, 0x1a, 0x2f, "nehalem"},
};

std::string Cpu(const CpuTarget& t, int) {
  const unsigned eax = Cpuid(1).a;
  unsigned family = (eax >> 8) & 0xf, model = (eax >> 4) & 0xf;
  if (family == 6 || family == 15) model |= ((eax >> 16) & 0xf) << 4;
  if (family == 15) family += (eax >> 20) & 0xff;
  const unsigned vendor = Cpuid(0).b;
  const bool amd = vendor == 0x68747541, intel = vendor == 0x756e6547;  // "Auth", "Genu"
  if (intel && family == 6 && model == 0x55) return t.Has("avx512vnni") ? "cascadelake" : "skylake-avx512";
  for (const Model& m : kModels) {
    if ((amd || intel) && m.amd == amd && m.family == family && m.first <= model && model <= m.last) {
      return std::string(m.cpu);
    }
  }
  if (t.Has("avx512vl") && t.Has("avx512bw") && t.Has("avx512dq")) return "x86-64-v4";
  if (t.Has("avx2") && t.Has("fma")) return "x86-64-v3";
  return t.Has("sse4.2") ? "x86-64-v2" : "x86-64";
}

#elif defined(__aarch64__)

// By Linux's bits of both words, all of which must be set.
struct Bits {
  std::string_view feature;
  unsigned long first, second;
};
constexpr Bits kBits[] = {{"bf16", 0, 1UL << 14},
                          {"dotprod", 1UL << 20, 0},
                          {"fullfp16", 1UL << 9 | 1UL << 10, 0},
                          {"i8mm", 0, 1UL << 13},
                          {"neon", 1UL << 1, 0}};

std::vector<std::string> Features() {
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  std::vector<std::string> out;
  for (const Bits& b : kBits) {
    if ((first & b.first) == b.first && (second & b.second) == b.second) out.emplace_back(b.feature);
  }
  return out;
}

struct Model {
  unsigned implementer, part;
  std::string_view cpu;
};

// Where a model is not listed, its features make right code, with a plainer scheduling model.
constexpr unsigned kArm = 0x41, kApple = 0x61, kAmpere = 0xc0, kQualcomm = 0x51, kHuawei = 0x48;
constexpr Model kModels[] = {
    {kArm, 0xd03, "cortex-a53"},   {kArm, 0xd04, "cortex-a35"},      {kArm, 0xd05, "cortex-a55"},
    {kArm, 0xd07, "cortex-a57"},   {kArm, 0xd08, "cortex-a72"},      {kArm, 0xd09, "cortex-a73"},
    {kArm, 0xd0a, "cortex-a75"},   {kArm, 0xd0b, "cortex-a76"},      {kArm, 0xd0c, "neoverse-n1"},
    {kArm, 0xd0d, "cortex-a77"},   {kArm, 0xd40, "neoverse-v1"},     {kArm, 0xd41, "cortex-a78"},
    {kArm, 0xd44, "cortex-x1"},    {kArm, 0xd46, "cortex-a510"},     {kArm, 0xd47, "cortex-a710"},
    {kArm, 0xd48, "cortex-x2"},    {kArm, 0xd49, "neoverse-n2"},     {kArm, 0xd4d, "cortex-a715"},
    {kArm, 0xd4e, "cortex-x3"},    {kArm, 0xd4f, "neoverse-v2"},     {kArm, 0xd80, "cortex-a520"},
    {kArm, 0xd81, "cortex-a720"},  {kArm, 0xd82, "cortex-x4"},       {kArm, 0xd84, "neoverse-v3"},
    {kArm, 0xd8e, "neoverse-n3"},  {kApple, 0x022, "apple-m1"},      {kApple, 0x023, "apple-m1"},
    {kApple, 0x024, "apple-m1"},   {kApple, 0x025, "apple-m1"},      {kApple, 0x028, "apple-m1"},
    {kApple, 0x029, "apple-m1"},   {kAmpere, 0xac3, "ampere1"},      {kAmpere, 0xac4, "ampere1a"},
    {kQualcomm, 0x001, "oryon-1"}, {kQualcomm, 0x802, "cortex-a75"}, {kQualcomm, 0x804, "cortex-a76"},
    {kHuawei, 0xd01, "tsv110"},
};

// What the processor says of itself: Linux tells, or lets programs ask it. The cores of a machine may differ.
uint64_t Identification(int processor) {
  constexpr unsigned long kMayAsk = 1UL << 11;
  const std::string text =
      FirstWord(absl::StrCat("/sys/devices/system/cpu/cpu", processor, "/regs/identification/midr_el1"));
  uint64_t id = 0;
  if (text.starts_with("0x")) {
    std::from_chars(text.data() + 2, text.data() + text.size(), id, 16);
  } else if ((getauxval(AT_HWCAP) & kMayAsk) != 0) {
    __asm__ volatile("mrs %0, midr_el1" : "=r"(id));
  }
  return id;
}

std::string Cpu(const CpuTarget&, int processor) {
  const uint64_t id = Identification(processor);
  const unsigned implementer = id >> 24 & 0xff, part = id >> 4 & 0xfff;
  for (const Model& m : kModels) {
    if (m.implementer == implementer && m.part == part) return std::string(m.cpu);
  }
  return "generic";
}

#else
#error "it is not known what such a machine is"

#endif

int64_t Bytes(std::string_view text) {  // "32K"
  int64_t unit = 1;
  if (text.ends_with('K')) unit = 1 << 10;
  if (text.ends_with('M')) unit = 1 << 20;
  if (unit != 1) text.remove_suffix(1);
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  return error == std::errc() ? n * unit : 0;
}

// Sizes stay as the defaults say where sysfs does not tell.
void FindCaches(int cpu, CpuTarget& t) {
  for (int i = 0; i < 8; ++i) {
    const std::string dir = absl::StrCat("/sys/devices/system/cpu/cpu", cpu, "/cache/index", i, "/");
    const std::string level = FirstWord(dir + "level");
    const int64_t bytes = Bytes(FirstWord(dir + "size"));
    if (level.empty() || bytes <= 0 || FirstWord(dir + "type") == "Instruction") continue;
    if (level == "1") t.l1_bytes = bytes;
    if (level == "2") t.l2_bytes = bytes;
    if (level == "3") t.l3_bytes = bytes;
  }
}

}  // namespace

Target HostTarget() {
  CpuTarget t;
  t.features = Features();
  DeriveVectors(t);
  t.threads = std::max(1u, std::thread::hardware_concurrency());
  int first = 0;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    t.threads = std::max(1, CPU_COUNT(&set));
    while (first < CPU_SETSIZE - 1 && !CPU_ISSET(first, &set)) ++first;
    if (!CPU_ISSET(first, &set)) first = 0;
  }
  t.cpu = Cpu(t, first);
  FindCaches(first, t);
  return Target{.device = std::move(t)};
}

}  // namespace temper
