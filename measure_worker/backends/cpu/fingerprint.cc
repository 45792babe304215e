#include "measure_worker/backends/cpu/fingerprint.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/hash.h"
#include "compiler/timing/timing.h"
#include "compiler/target/target.h"

namespace temper::worker {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 20000;  // of a loop with kAccumulators independent multiply-adds
constexpr int kAccumulators = 16;
constexpr int kTries = 5;
constexpr size_t kStreamBytes = 64 << 20;

std::string CpuModel(const CpuTarget& t) {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const std::pair<absl::string_view, absl::string_view> field = absl::StrSplit(line, absl::MaxSplits(':', 1));
    const absl::string_view name = absl::StripAsciiWhitespace(field.first);
    if (name == "model name" || name == "Model") return std::string(absl::StripAsciiWhitespace(field.second));
  }
  return t.cpu;  // what Linux says of ARM
}

std::string BytesText(int64_t bytes) {
  constexpr int64_t kKilo = 1024;
  return bytes >= kKilo * kKilo ? absl::StrCat(bytes / kKilo / kKilo, "M") : absl::StrCat(bytes / kKilo, "K");
}

// Two significant digits: what a fingerprint needs, and what repeats.
std::string Rounded(double value) { return absl::StrFormat("%.2g", value > 99 ? std::round(value / 10) * 10 : value); }

// Each returns the floating-point operations it did.
double MultiplyAddScalar() {
  volatile double keep = 0;
  double a[kAccumulators] = {};
  for (int i = 0; i < kSteps; ++i) {
    for (double& x : a) x = x * 0.5 + 1.0;
  }
  for (double x : a) keep = keep + x;
  return 2.0 * kSteps * kAccumulators;
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) double MultiplyAdd512() {
  __m512 a[kAccumulators];
  const __m512 half = _mm512_set1_ps(0.5f), one = _mm512_set1_ps(1.0f);
  for (__m512& x : a) x = one;
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kAccumulators; ++j) a[j] = _mm512_fmadd_ps(a[j], half, one);
  }
  volatile float keep = 0;
  for (const __m512& x : a) keep = keep + _mm512_cvtss_f32(x);
  return 2.0 * 16 * kSteps * kAccumulators;
}

__attribute__((target("avx2,fma"))) double MultiplyAdd256() {
  constexpr int kHere = 12;  // sixteen registers: twelve accumulators and the constants
  __m256 a[kHere];
  const __m256 half = _mm256_set1_ps(0.5f), one = _mm256_set1_ps(1.0f);
  for (__m256& x : a) x = one;
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kHere; ++j) a[j] = _mm256_fmadd_ps(a[j], half, one);
  }
  volatile float keep = 0;
  for (const __m256& x : a) keep = keep + _mm256_cvtss_f32(x);
  return 2.0 * 8 * kSteps * kHere;
}
#elif defined(__aarch64__)
typedef float Float4 __attribute__((vector_size(16)));

__attribute__((optimize("fp-contract=fast"))) double MultiplyAdd128() {
  Float4 a[kAccumulators];
  const Float4 half = {0.5f, 0.5f, 0.5f, 0.5f}, one = {1.0f, 1.0f, 1.0f, 1.0f};
  for (Float4& x : a) x = one;
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kAccumulators; ++j) a[j] = a[j] * half + one;
  }
  volatile float keep = 0;
  for (const Float4& x : a) keep = keep + x[0];
  return 2.0 * 4 * kSteps * kAccumulators;
}
#endif

double PeakGflops(const CpuTarget& t) {
  double (*loop)() = MultiplyAddScalar;
#if defined(__x86_64__)
  if (t.Has("avx512f"))
    loop = MultiplyAdd512;
  else if (t.Has("avx2") && t.Has("fma"))
    loop = MultiplyAdd256;
#elif defined(__aarch64__)
  loop = MultiplyAdd128;
#endif
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    const int64_t start = MonotonicNs();
    const double operations = loop();
    best = std::max(best, operations / static_cast<double>(std::max<int64_t>(MonotonicNs() - start, 1)));
  }
  return best;
}

double BandwidthGb() {
  std::vector<uint64_t> data(kStreamBytes / sizeof(uint64_t), 1);
  constexpr int kLanes = 8;
  double best = 0;
  for (int i = 0; i < 3; ++i) {
    uint64_t sums[kLanes] = {};
    const int64_t start = MonotonicNs();
    for (size_t at = 0; at < data.size(); at += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) sums[lane] += data[at + lane];
    }
    volatile uint64_t keep = sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
    (void)keep;
    best = std::max(
        best, static_cast<double>(kStreamBytes) / static_cast<double>(std::max<int64_t>(MonotonicNs() - start, 1)));
  }
  return best;
}

}  // namespace

std::string FingerprintDirectory() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache) return absl::StrCat(cache, "/temper");
  if (const char* home = std::getenv("HOME"); home && *home) return absl::StrCat(home, "/.cache/temper");
  return "";
}

std::string Fingerprint(const std::string& cache_directory) {
  const Target host = HostTarget();
  const CpuTarget& t = *host.cpu();
  const std::string stable = absl::StrCat(CpuModel(t), "; ", t.threads, " threads; L1 ", BytesText(t.l1_bytes), " L2 ",
                                          BytesText(t.l2_bytes), " L3 ", BytesText(t.l3_bytes));
  const std::string path = absl::StrCat(cache_directory, "/device-", HashText(StableHash(stable)));
  if (!cache_directory.empty()) {
    std::string line;
    if (std::ifstream in(path); std::getline(in, line) && line.starts_with(stable)) return line;
  }
  const std::string line =
      absl::StrCat(stable, "; ", Rounded(PeakGflops(t)), " GFLOP/s; ", Rounded(BandwidthGb()), " GB/s");
  if (!cache_directory.empty()) {
    std::error_code ignored;
    fs::create_directories(cache_directory, ignored);
    std::ofstream(path) << line << "\n";
  }
  return line;
}

}  // namespace temper::worker
