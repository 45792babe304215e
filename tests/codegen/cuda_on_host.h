// What generated CUDA C++ calls, for a host's compiler: it stands before the generated text. Blocks run one after
// another, and a block's threads as fibres: each goes on to its next barrier, then the next thread does, first to last
// or last to first. So in one of these orders a thread that does not wait reads what others have not written yet, or
// have already overwritten. Shared memory holds NaN when a block begins.
//
// What the lanes of a warp do together has a Meeting at its beginning, to which all of them come before one goes on.
// Products of teams read shared memory by descriptors, as the PTX ISA has them: when their thread ends them, where
// threads run first to last, and at once where they run last to first. All threads of a team give the same ones.
//
// Asynchronous copies land when their thread waits for them, where threads run first to last, and at once where they
// run last to first: so a wait that is missing, or a copy to where others still read, shows in one of the orders.
#pragma once

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

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

constexpr unsigned int kWarp = 32;

constexpr unsigned int kTeam = 4 * kWarp;

struct Product {
  float* c;
  unsigned long a, b;  // descriptors
  int columns;
  bool turned_a, turned_b, is_bf16;
};
struct Copy {
  void* to;
  const void* from;  // null: zeros
  std::size_t bytes;
};
enum class State { kRuns, kMeets, kAtBarrier, kDone };
struct Fibre {
  ucontext_t context;
  Index index;
  State state;
  const char* meeting;      // whose name it waits at
  const void* brought;      // to the meeting
  std::vector<Copy> begun;  // of no group yet
  std::vector<std::vector<Copy>> groups;
  std::vector<Product> products;  // that are on their way
  std::size_t given = 0;          // products, until now
  bool makes;                     // whether products have begun
};
static Fibre fibres[kMostThreads];
static unsigned int num_threads;
static ucontext_t scheduler;
static Fibre* running;
static bool copies_wait;
static std::vector<Product> given_by[kMostThreads / kTeam];  // each team: by whoever came first
static bool teams_part;
static void (*body)(void** arguments);
static void** arguments;

static void Start() {
  body(arguments);
  running->state = State::kDone;
  swapcontext(&running->context, &scheduler);
}

static void Wait(State state) {
  running->state = state;
  swapcontext(&running->context, &scheduler);
}

static unsigned int Lane() { return static_cast<unsigned int>(running - fibres) % kWarp; }

// All lanes of a warp come to meetings of the same names in the same order. Each brings something, which the others see
// while it lives.
class Meeting {
 public:
  Meeting(const char* name, const void* mine) : name_(name) {
    running->brought = mine;
    Meet();
  }
  ~Meeting() { Meet(); }
  template <typename T>
  const T* From(unsigned int lane) const {
    return static_cast<const T*>((running - Lane() + lane)->brought);
  }

 private:
  void Meet() {
    running->meeting = name_;
    Wait(State::kMeets);
  }
  const char* name_;
};

static char* Stacks() {
  static char* const stacks = static_cast<char*>(mmap(nullptr, kStackBytes * kMostThreads, PROT_READ | PROT_WRITE,
                                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return stacks;
}

// The threads [first, end) up to the block's next barrier. False: they part at a meeting, or it is no whole warp.
static bool RunWarp(unsigned int first, unsigned int end, bool forwards) {
  for (;;) {
    unsigned int meet = 0;
    const char* name = nullptr;
    bool same = true;
    for (unsigned int i = first; i < end; ++i) {
      running = &fibres[forwards ? i : first + end - 1 - i];
      threadIdx = running->index;
      swapcontext(&scheduler, &running->context);
      if (running->state != State::kMeets) continue;
      same &= meet++ == 0 || std::strcmp(running->meeting, name) == 0;
      name = running->meeting;
    }
    if (meet == 0) return true;
    if (meet != kWarp || !same) return false;
  }
}

// 0, or 1 where only some of the block's threads came to a barrier, or of a warp's to a meeting.
static int RunBlock(const unsigned int* threads, bool forwards) {
  num_threads = threads[0] * threads[1] * threads[2];
  copies_wait = forwards;
  std::memset(temper_bytes, 0xff, kSharedBytes);
  for (unsigned int i = 0; i < num_threads; ++i) {
    Fibre& f = fibres[i];
    f.index = {i % threads[0], i / threads[0] % threads[1], i / threads[0] / threads[1]};
    f.state = State::kRuns;
    f.begun.clear();
    f.groups.clear();
    f.products.clear();
    f.given = 0;
    f.makes = false;
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = Stacks() + i * kStackBytes;
    f.context.uc_stack.ss_size = kStackBytes;
    f.context.uc_link = nullptr;
    makecontext(&f.context, Start, 0);
  }
  for (std::vector<Product>& given : given_by) given.clear();
  teams_part = false;
  const unsigned int warps = (num_threads + kWarp - 1) / kWarp;
  for (;;) {
    for (unsigned int w = 0; w < warps; ++w) {
      const unsigned int first = (forwards ? w : warps - 1 - w) * kWarp;
      if (!RunWarp(first, std::min(first + kWarp, num_threads), forwards)) return 1;
    }
    unsigned int done = 0;
    for (unsigned int i = 0; i < num_threads; ++i) {
      done += fibres[i].state == State::kDone ? 1 : 0;
      teams_part |= fibres[i].given != given_by[i / kTeam].size();
    }
    if (teams_part) return 1;
    if (done == num_threads) return 0;
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

static inline void __syncthreads() { on_host::Wait(on_host::State::kAtBarrier); }

// --- the device functions of ours that the generated text has as PTX (compiler/codegen/cuda/functions.h)

namespace on_host {

static void Land(const Copy& copy) {
  if (copy.from == nullptr) {
    std::memset(copy.to, 0, copy.bytes);
  } else {
    std::memcpy(copy.to, copy.from, copy.bytes);
  }
}

static float RoundToTf32(const float x) {
  return std::isnan(x) ? x : __uint_as_float((__float_as_uint(x) + 0x1000u) & 0xffffe000u);
}

// PTX ISA, "ldmatrix": the lanes 8 i to 8 i + 7 give the rows of matrix i, and lane l gets of each of the four matrices
// the elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4; with .trans, of column l / 4.
static void LoadMatrices(const char* name, unsigned int* to, const void* row, bool transposed) {
  const Meeting meeting(name, row);
  const unsigned int lane = Lane();
  for (unsigned int i = 0; i < 4; ++i) {
    unsigned short pair[2];
    for (unsigned int half = 0; half < 2; ++half) {
      const unsigned int fast = 2 * (lane % 4) + half, slow = lane / 4;
      const unsigned int r = transposed ? fast : slow, c = transposed ? slow : fast;
      pair[half] = meeting.From<unsigned short>(8 * i + r)[c];
    }
    std::memcpy(&to[i], pair, sizeof(pair));
  }
}

static float FromF16(unsigned short bits) { return static_cast<float>(__builtin_bit_cast(_Float16, bits)); }
static float FromBf16(unsigned short bits) { return __builtin_bit_cast(float, static_cast<unsigned int>(bits) << 16); }

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".
static void MultiplyM16N8K16(float* c, const unsigned int* const (&a)[kWarp], const unsigned int* const (&b)[kWarp],
                             int b_first, float (*decode)(unsigned short)) {
  const auto half_of = [](const unsigned int word, int half) {
    return static_cast<unsigned short>(half == 0 ? word & 0xffffu : word >> 16);
  };
  const auto element_of_a = [&](int row, int k) {
    const unsigned int* words = a[row % 8 * 4 + k % 8 / 2];
    return decode(half_of(words[(row >= 8 ? 1 : 0) + (k >= 8 ? 2 : 0)], k % 2));
  };
  const auto element_of_b = [&](int k, int column) {
    const unsigned int* words = b[column * 4 + k % 8 / 2];
    return decode(half_of(words[b_first + (k >= 8 ? 1 : 0)], k % 2));
  };
  const int lane = static_cast<int>(Lane());
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + (i >= 2 ? 8 : 0), column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 16; ++k) c[i] += element_of_a(row, k) * element_of_b(k, column);
  }
}

// PTX ISA, "Matrix Fragments for mma.m16n8k8" with .tf32: what an f32 has beyond it is not looked at.
static void MultiplyM16N8K8(float* c, const float* const (&a)[kWarp], const float* const (&b)[kWarp], int b_first) {
  const auto seen = [](const float x) { return __uint_as_float(__float_as_uint(x) & 0xffffe000u); };
  const int lane = static_cast<int>(Lane());
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + (i >= 2 ? 8 : 0), column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 8; ++k) {
      const float of_a = a[row % 8 * 4 + k % 4][(row >= 8 ? 1 : 0) + (k >= 4 ? 2 : 0)];
      const float of_b = b[column * 4 + k % 4][b_first + (k >= 4 ? 1 : 0)];
      c[i] += seen(of_a) * seen(of_b);
    }
  }
}

// `multiply`: c, the fragments of a and b by lane, and which of b's it begins with.
template <typename T, typename Multiply>
static void MultiplyTwice(const char* name, float* c, const T* a, const T* b, const Multiply& multiply) {
  const T* const mine[] = {a, b};
  const Meeting meeting(name, mine);
  const T *all_a[kWarp], *all_b[kWarp];
  for (unsigned int lane = 0; lane < kWarp; ++lane) {
    all_a[lane] = meeting.From<const T*>(lane)[0];
    all_b[lane] = meeting.From<const T*>(lane)[1];
  }
  multiply(c, all_a, all_b, 0);
  multiply(c + 4, all_a, all_b, 2);
}

template <float (*kDecode)(unsigned short)>
static void MultiplyHalves(const char* name, float* c, const unsigned int* a, const unsigned int* b) {
  MultiplyTwice(name, c, a, b, [](float* sums, const auto& all_a, const auto& all_b, int b_first) {
    MultiplyM16N8K16(sums, all_a, all_b, b_first, kDecode);
  });
}

// PTX ISA, "Matrix Descriptor Format": the element of row `outer` of A (column of B) and step `k`. Without swizzling
// "core matrices" are eight rows of 16 bytes, one behind the other; the "leading dimension byte offset" is between two
// of them along the reduction, the "stride dimension byte offset" along the rows or columns. Transposed ("MN-major"),
// their rows go along these.
static unsigned short ByDescriptor(unsigned long d, bool turned, int outer, int k) {
  const auto decoded = [&](int bit) { return (d >> bit & 0x3fff) << 4; };
  const int row = turned ? k : outer, in_row = turned ? outer : k;
  const unsigned long at = decoded(0) + decoded(16) * static_cast<unsigned long>(k / 8) +
                           decoded(32) * static_cast<unsigned long>(outer / 8) +
                           static_cast<unsigned long>(row % 8 * 16 + in_row % 8 * 2);
  unsigned short bits;
  std::memcpy(&bits, temper_bytes + at % kSharedBytes, sizeof(bits));
  return d >> 46 == 0 ? bits : 0x7fff;  // not a number: another mode
}

// PTX ISA, "Matrix Fragments for wgmma.mma_async.m64nNk16": the warps have 16 rows each, and a lane of each 8 columns
// two neighbours in its row of the upper eight and of the lower.
static void Make(const Product& p) {
  const int number = static_cast<int>(static_cast<unsigned int>(running - fibres) % kTeam), lane = number % 32;
  const auto decode = p.is_bf16 ? FromBf16 : FromF16;
  for (int i = 0; i < p.columns / 2; ++i) {
    const int row = number / 32 * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    for (int k = 0; k < 16; ++k)
      p.c[i] += decode(ByDescriptor(p.a, p.turned_a, row, k)) * decode(ByDescriptor(p.b, p.turned_b, column, k));
  }
}

static void Add(const Product& p) {
  std::vector<Product>& given = given_by[static_cast<std::size_t>(running - fibres) / kTeam];
  if (running->given == given.size()) given.push_back(p);
  const Product& first = given[running->given++];
  teams_part |= !running->makes || first.a != p.a || first.b != p.b || first.columns != p.columns;
  if (copies_wait) {
    running->products.push_back(p);
  } else {
    Make(p);
  }
}

}  // namespace on_host

typedef const char* temper_row;
static inline temper_row temper_row_at(const void* shared) { return (temper_row)shared; }
static inline void temper_load_matrix(unsigned int* to, temper_row row) {
  on_host::LoadMatrices("temper_load_matrix", to, row, false);
}
static inline void temper_load_matrix_transposed(unsigned int* to, temper_row row) {
  on_host::LoadMatrices("temper_load_matrix_transposed", to, row, true);
}
static inline void temper_load_matrix_f32(float* to, temper_row row) {
  unsigned int words[4];
  on_host::LoadMatrices("temper_load_matrix_f32", words, row, false);
  std::memcpy(to, words, sizeof(words));
}
static inline void temper_multiply_f16(float* c, const unsigned int* a, const unsigned int* b) {
  on_host::MultiplyHalves<on_host::FromF16>("temper_multiply_f16", c, a, b);
}
static inline void temper_multiply_bf16(float* c, const unsigned int* a, const unsigned int* b) {
  on_host::MultiplyHalves<on_host::FromBf16>("temper_multiply_bf16", c, a, b);
}
static inline void temper_multiply_tf32(float* c, const float* a, const float* b) {
  on_host::MultiplyTwice("temper_multiply_tf32", c, a, b, on_host::MultiplyM16N8K8);
}
static inline float temper_load_f32(temper_row row) { return *(const float*)row; }
static inline float temper_round_to_tf32(const float x) { return on_host::RoundToTf32(x); }
template <typename T>
static inline T temper_exchange(const T mine, const int lanes) {
  const on_host::Meeting meeting("temper_exchange", &mine);
  return *meeting.From<T>(on_host::Lane() ^ static_cast<unsigned int>(lanes));
}
template <int kBytes>
static inline void temper_copy(void* to, const void* from, const bool inside) {
  const on_host::Copy copy = {to, inside ? from : nullptr, kBytes};
  if (on_host::copies_wait) {
    on_host::running->begun.push_back(copy);
  } else {
    on_host::Land(copy);
  }
}
static inline void temper_commit_copies() { on_host::running->groups.push_back(std::move(on_host::running->begun)); }
template <int kMost>
static inline void temper_wait_copies() {
  std::vector<std::vector<on_host::Copy>>& groups = on_host::running->groups;
  for (; groups.size() > kMost; groups.erase(groups.begin())) std::ranges::for_each(groups.front(), on_host::Land);
}

static inline unsigned int temper_tile_at(const void* shared) {
  return static_cast<unsigned int>((const unsigned char*)shared - temper_bytes) >> 4;
}
template <int kSums>
static inline void temper_begin_products(float*) {
  on_host::running->makes = true;
}
template <int kSums>
static inline void temper_end_products(float*) {
  std::ranges::for_each(on_host::running->products, on_host::Make);
  on_host::running->products.clear();
  on_host::running->makes = false;
}
static inline void temper_team_barrier() { __syncthreads(); }
#define PRODUCT(type, bf16, columns)                                                                     \
  template <int kTurnedA, int kTurnedB>                                                                  \
  static inline void temper_add_product_##type##_##columns(float* c, unsigned long a, unsigned long b) { \
    on_host::Add({c, a, b, columns, kTurnedA != 0, kTurnedB != 0, bf16});                                \
  }
#define PRODUCTS(columns) PRODUCT(f16, false, columns) PRODUCT(bf16, true, columns)
PRODUCTS(16)
PRODUCTS(32)
PRODUCTS(64)
PRODUCTS(128)
PRODUCTS(192)
PRODUCTS(256)

// Makes "run_NAME" of a kernel: 0 if all is well.
#define RUNNER(name)                                                                                             \
  extern "C" int run_##name(void** arguments, const unsigned int* groups, const unsigned int* threads,           \
                            bool forwards) {                                                                     \
    return on_host::Run([](void** given) { on_host::Call(name, given); }, arguments, groups, threads, forwards); \
  }
