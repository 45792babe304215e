// What generated CUDA C++ calls, for a host's compiler: it stands before the generated text. Blocks run one after
// another, and a block's threads as fibres: each goes on to its next barrier, then the next thread does, first to last
// or last to first. So in one of these orders a thread that does not wait reads what others have not written yet, or
// have already overwritten. Shared memory holds NaN when a block begins.
#pragma once

#include <sys/mman.h>
#include <ucontext.h>

#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__

struct Index {
  unsigned int x, y, z;
};
static Index blockIdx, threadIdx;

constexpr std::size_t kSharedBytes = 256 << 10;
extern "C" {
__align__(128)
    __attribute__((visibility("hidden"))) unsigned char temper_bytes[kSharedBytes];  // as functions declare it
}

static inline unsigned int __float_as_uint(const float x) { return __builtin_bit_cast(unsigned int, x); }
static inline float __uint_as_float(const unsigned int x) { return __builtin_bit_cast(float, x); }
static inline long long __double_as_longlong(const double x) { return __builtin_bit_cast(long long, x); }
static inline double __longlong_as_double(const long long x) { return __builtin_bit_cast(double, x); }
template <typename T>
static inline T min(const T a, const T b) {
  return b < a ? b : a;
}
template <typename T>
static inline T max(const T a, const T b) {
  return a < b ? b : a;
}
using std::abs;
using std::isnan;

namespace on_host {

constexpr std::size_t kStackBytes = 64 << 10;
constexpr unsigned int kMostThreads = 1024;

struct Fibre {
  ucontext_t context;
  Index index;
  bool done;
};
static Fibre fibres[kMostThreads];
static ucontext_t scheduler;
static Fibre* running;
static void (*body)(void** arguments);
static void** arguments;

static void Start() {
  body(arguments);
  running->done = true;
  swapcontext(&running->context, &scheduler);
}

static char* Stacks() {
  static char* const stacks = static_cast<char*>(mmap(nullptr, kStackBytes * kMostThreads, PROT_READ | PROT_WRITE,
                                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return stacks;
}

// 0, or 1 where only some of the block's threads came to a barrier.
static int RunBlock(const unsigned int* threads, bool forwards) {
  const unsigned int count = threads[0] * threads[1] * threads[2];
  std::memset(temper_bytes, 0xff, kSharedBytes);
  for (unsigned int i = 0; i < count; ++i) {
    Fibre& f = fibres[i];
    f.index = {i % threads[0], i / threads[0] % threads[1], i / threads[0] / threads[1]};
    f.done = false;
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = Stacks() + i * kStackBytes;
    f.context.uc_stack.ss_size = kStackBytes;
    f.context.uc_link = nullptr;
    makecontext(&f.context, Start, 0);
  }
  for (;;) {
    unsigned int done = 0;
    for (unsigned int i = 0; i < count; ++i) {
      running = &fibres[forwards ? i : count - 1 - i];
      threadIdx = running->index;
      swapcontext(&scheduler, &running->context);
      done += running->done ? 1 : 0;
    }
    if (done == count) return 0;
    if (done != 0) return 1;
  }
}

static int Run(void (*function)(void**), void** given, const unsigned int* groups, const unsigned int* threads,
               bool forwards) {
  body = function;
  arguments = given;
  for (blockIdx.z = 0; blockIdx.z < groups[2]; ++blockIdx.z) {
    for (blockIdx.y = 0; blockIdx.y < groups[1]; ++blockIdx.y) {
      for (blockIdx.x = 0; blockIdx.x < groups[0]; ++blockIdx.x)
        if (RunBlock(threads, forwards) != 0) return 1;
    }
  }
  return 0;
}

template <typename... T, std::size_t... kAt>
static void Call(void (*function)(T...), void** given, std::index_sequence<kAt...>) {
  function(static_cast<T>(given[kAt])...);
}
template <typename... T>
static void Call(void (*function)(T...), void** given) {
  Call(function, given, std::index_sequence_for<T...>());
}

}  // namespace on_host

static inline void __syncthreads() { swapcontext(&on_host::running->context, &on_host::scheduler); }

// Makes "run_NAME" of a kernel: 0 if all is well.
#define RUNNER(name)                                                                                             \
  extern "C" int run_##name(void** arguments, const unsigned int* groups, const unsigned int* threads,           \
                            bool forwards) {                                                                     \
    return on_host::Run([](void** given) { on_host::Call(name, given); }, arguments, groups, threads, forwards); \
  }
