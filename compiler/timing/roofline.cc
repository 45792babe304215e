#include "compiler/timing/roofline.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <initializer_list>

#include "compiler/timing/timing.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace temper {
namespace {

constexpr int kSteps = 20000;

// n accumulators, each changed once a step by `multiply_add`; the asm keeps the compiler from folding the loop.
#define TEMPER_FMA_LOOP(name, attributes, vector, set, multiply_add)                            \
  template <int n>                                                                              \
  __attribute__((attributes, noinline)) void name() {                                           \
    vector acc[n], x = set(0.999f), y = set(0.001f);                                            \
    _Pragma("GCC unroll 32") for (int i = 0; i < n; ++i) acc[i] = set(1.0f);                    \
    for (int step = 0; step < kSteps; ++step) {                                                 \
      _Pragma("GCC unroll 32") for (int i = 0; i < n; ++i) acc[i] = multiply_add(acc[i], x, y); \
      _Pragma("GCC unroll 32") for (int i = 0; i < n; ++i) TEMPER_KEEP(acc[i]);                 \
    }                                                                                           \
  }

#if defined(__x86_64__)
#define TEMPER_KEEP(v) __asm__ volatile("" : "+v"(v))
// Without fused instructions the product is no part of the chain through the accumulator, nor may it leave the loop.
#define TEMPER_ADD_MUL(acc, x, y, add, mul) \
  ({                                        \
    TEMPER_KEEP(x);                         \
    add(acc, mul(x, y));                    \
  })
#define TEMPER_ADD_MUL_256(acc, x, y) TEMPER_ADD_MUL(acc, x, y, _mm256_add_ps, _mm256_mul_ps)
#define TEMPER_ADD_MUL_128(acc, x, y) TEMPER_ADD_MUL(acc, x, y, _mm_add_ps, _mm_mul_ps)
TEMPER_FMA_LOOP(Fma512, target("avx512f"), __m512, _mm512_set1_ps, _mm512_fmadd_ps)
TEMPER_FMA_LOOP(Fma256, target("avx2,fma"), __m256, _mm256_set1_ps, _mm256_fmadd_ps)
TEMPER_FMA_LOOP(AddMul256, target("avx"), __m256, _mm256_set1_ps, TEMPER_ADD_MUL_256)
TEMPER_FMA_LOOP(AddMul128, target("sse2"), __m128, _mm_set1_ps, TEMPER_ADD_MUL_128)
#else
#define TEMPER_KEEP(v) __asm__ volatile("" : "+w"(v))
typedef float Float4 __attribute__((vector_size(16)));
Float4 Set4(float v) { return Float4{v, v, v, v}; }
#define TEMPER_MUL_ADD(acc, x, y) ((acc) * (x) + (y))
TEMPER_FMA_LOOP(Fma128, optimize("fp-contract=fast"), Float4, Set4, TEMPER_MUL_ADD)
#endif

struct Loop {
  void (*run)();
  int accumulators;
};

void RunLoop(void* loop, int64_t begin, int64_t end, int32_t) {
  for (int64_t i = begin; i < end; ++i) static_cast<const Loop*>(loop)->run();
}

double Best(temper_launcher* launcher, std::initializer_list<Loop> loops, int lanes, double seconds) {
  double best = 0;
  const double share = seconds / static_cast<double>(loops.size());
  for (Loop loop : loops) {
    const double flops = 2.0 * lanes * loop.accumulators * kSteps * launcher->threads;
    for (const int64_t start = MonotonicNs(); static_cast<double>(MonotonicNs() - start) < share * 1e9;) {
      const int64_t t = MonotonicNs();
      launcher->parallel_for(launcher, launcher->threads, RunLoop, &loop);
      best = std::max(best, flops / (static_cast<double>(MonotonicNs() - t) * 1e-9));
    }
  }
  return best;
}

typedef float Line __attribute__((vector_size(64)));

struct Reading {
  const Line* lines;
  std::atomic<float> sum{0};
};

// Reads the share in `streams` pieces side by side: how many keep most requests in flight depends on the machine.
template <int streams>
void ReadLines(void* closure, int64_t begin, int64_t end, int32_t) {
  auto* reading = static_cast<Reading*>(closure);
  const int64_t length = (end - begin) / streams;
  const Line* at = reading->lines + begin;
  Line sum[streams] = {};
  for (int64_t i = 0; i < length; ++i) {
    for (int s = 0; s < streams; ++s) sum[s] += at[s * length + i];
  }
  for (const Line& s : sum) reading->sum.store(s[0], std::memory_order_relaxed);
}

}  // namespace

double Roofline::Seconds(double flops, double bytes) const {
  return std::max(flops / flops_per_s, bytes / bytes_per_s);
}

void Roofline::Raise(const Roofline& other) {
  flops_per_s = std::max(flops_per_s, other.flops_per_s);
  bytes_per_s = std::max(bytes_per_s, other.bytes_per_s);
}

double MeasureFlops(temper_launcher* launcher, int vector_bits, double seconds) {
#if defined(__x86_64__)
  if (vector_bits >= 512 && __builtin_cpu_supports("avx512f")) {
    return Best(launcher, {{Fma512<8>, 8}, {Fma512<12>, 12}, {Fma512<16>, 16}, {Fma512<24>, 24}, {Fma512<28>, 28}}, 16,
                seconds);
  }
  // Sixteen registers: two hold the constants.
  if (vector_bits >= 256 && __builtin_cpu_supports("fma")) {
    return Best(launcher, {{Fma256<8>, 8}, {Fma256<10>, 10}, {Fma256<12>, 12}, {Fma256<14>, 14}}, 8, seconds);
  }
  if (vector_bits >= 256 && __builtin_cpu_supports("avx"))
    return Best(launcher, {{AddMul256<8>, 8}, {AddMul256<10>, 10}, {AddMul256<12>, 12}}, 8, seconds);
  return Best(launcher, {{AddMul128<8>, 8}, {AddMul128<10>, 10}, {AddMul128<12>, 12}}, 4, seconds);
#else
  return Best(launcher, {{Fma128<8>, 8}, {Fma128<16>, 16}, {Fma128<24>, 24}}, 4, seconds);
#endif
}

double MeasureBandwidth(temper_launcher* launcher, int64_t array_bytes, double seconds) {
  constexpr size_t kHugePage = 2 << 20;
  const size_t bytes = static_cast<size_t>(array_bytes) / kHugePage * kHugePage;
  void* mapped = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return 0;
  char* memory = static_cast<char*>(mapped) + (kHugePage - reinterpret_cast<uintptr_t>(mapped) % kHugePage);
  madvise(memory, bytes, MADV_HUGEPAGE);
  // Pages that were never written are all the same one.
  for (size_t i = 0; i < bytes; i += 4096) memory[i] = 1;
  Reading reading{reinterpret_cast<const Line*>(memory)};
  double best = 0;
  const int64_t start = MonotonicNs();
  do {
    for (temper_body read : {ReadLines<1>, ReadLines<2>, ReadLines<4>}) {
      const int64_t t = MonotonicNs();
      launcher->parallel_for(launcher, static_cast<int64_t>(bytes / sizeof(Line)), read, &reading);
      best = std::max(best, static_cast<double>(bytes) / (static_cast<double>(MonotonicNs() - t) * 1e-9));
    }
  } while (static_cast<double>(MonotonicNs() - start) < seconds * 1e9);
  munmap(mapped, bytes + kHugePage);
  return best;
}

Roofline MeasureRoofline(temper_launcher* launcher, int vector_bits, int64_t l3_bytes, double seconds) {
  constexpr int64_t kLeastArray = 256 << 20;
  Roofline r;
  r.flops_per_s = MeasureFlops(launcher, vector_bits, seconds / 2);
  r.bytes_per_s = MeasureBandwidth(launcher, std::max(kLeastArray, 4 * l3_bytes), seconds / 2);
  return r;
}

}  // namespace temper
