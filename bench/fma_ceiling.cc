#include "bench/fma_ceiling.h"

#include <immintrin.h>

#include <algorithm>
#include <utility>

#include "compiler/runtime/timing.h"

namespace temper {
namespace {

constexpr int kSteps = 20000;

// `acc[i] = acc[i] * x + y` for n accumulators; the asm keeps the compiler from folding the loop.
#define TEMPER_FMA_LOOP(name, isa, vector, set, fma)                                            \
  template <int n>                                                                              \
  __attribute__((target(isa), noinline)) void name() {                                          \
    vector acc[n], x = set(0.999f), y = set(0.001f);                                            \
    _Pragma("GCC unroll 32") for (int i = 0; i < n; ++i) acc[i] = set(1.0f);                    \
    for (int step = 0; step < kSteps; ++step) {                                                 \
      _Pragma("GCC unroll 32") for (int i = 0; i < n; ++i) acc[i] = fma(acc[i], x, y);          \
      _Pragma("GCC unroll 32") for (int i = 0; i < n; ++i) __asm__ volatile("" : "+v"(acc[i])); \
    }                                                                                           \
  }

#define TEMPER_MUL_ADD(a, x, y) _mm_add_ps(_mm_mul_ps(a, x), y)
TEMPER_FMA_LOOP(Fma512, "avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps)
TEMPER_FMA_LOOP(Fma256, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps)
TEMPER_FMA_LOOP(Fma128, "sse2", __m128, _mm_set1_ps, TEMPER_MUL_ADD)

struct Loop {
  void (*run)();
  int accumulators;
};

double Best(std::initializer_list<Loop> loops, int lanes, double seconds) {
  double best = 0;
  const double share = seconds / static_cast<double>(loops.size());
  for (const Loop& loop : loops) {
    for (const int64_t start = MonotonicNs(); static_cast<double>(MonotonicNs() - start) < share * 1e9;) {
      const int64_t t = MonotonicNs();
      loop.run();
      best = std::max(best, 2.0 * lanes * loop.accumulators * kSteps / static_cast<double>(MonotonicNs() - t));
    }
  }
  return best;
}

}  // namespace

double FmaCeilingGflops(double seconds) {
  if (__builtin_cpu_supports("avx512f")) {
    return Best({{Fma512<8>, 8}, {Fma512<12>, 12}, {Fma512<16>, 16}, {Fma512<24>, 24}, {Fma512<28>, 28}}, 16, seconds);
  }
  // Sixteen registers: two hold the constants.
  if (__builtin_cpu_supports("fma"))
    return Best({{Fma256<8>, 8}, {Fma256<10>, 10}, {Fma256<12>, 12}, {Fma256<14>, 14}}, 8, seconds);
  return Best({{Fma128<8>, 8}, {Fma128<12>, 12}}, 4, seconds);
}

}  // namespace temper
