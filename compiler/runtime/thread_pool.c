#define _GNU_SOURCE
#include "compiler/runtime/thread_pool.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "compiler/runtime/monotonic.h"

/* SPIN_NS is long enough to bridge the serial stretches between the kernels of a model. WAIT_NS, with the spinning,
 * bridges what one thread may be late by in a kernel, as waking one that sleeps makes the next kernels late too; it is
 * short enough not to heat an idle model. */
enum { SPIN_NS = 80000, WAIT_NS = 1000000, SPIN_NS_CROWDED = 2000 };
enum { LOOKS_BY_CLOCK = 16, MAX_THREADS = 1024, CACHE_LINE = 64, MAX_CPUS = 1 << 20 };
/* Into how many units a thread's share of a region falls: what is handed over to a thread that is done. Sixteen bits
 * hold those of all threads. */
enum { SHARE_UNITS = 16 };

/* The units of a thread's share that no thread has begun: the number of the region, the first unit and the end, of 32,
 * 16 and 16 bits. With the number of an older region the share is whole. */
typedef struct share {
  _Alignas(CACHE_LINE) _Atomic uint64_t left;
} share;

typedef struct worker {
  /* futex: whether it looks at a region, and may be running some of it. */
  _Alignas(CACHE_LINE) _Atomic uint32_t busy;
  temper_pool* pool;
  pthread_t thread;
  int32_t index;
} worker;

struct temper_pool {
  temper_launcher launcher; /* first: the launcher's address is the pool's */
  int32_t spin_ns, wait_ns; /* how long a thread that waits spins; when it goes to sleep */
  int32_t pinned;
  int32_t started;   /* workers to join */
  size_t mask_bytes; /* of each of the masks */
  cpu_set_t* mask;   /* of the thread that made the pool; NULL: not known */
  cpu_set_t* caller_mask;
  cpu_set_t* scratch_mask; /* a run takes no memory */
  int32_t caller_cpu;
  worker* workers;
  share* shares; /* by thread */

  /* The region, written by the caller while none is open and no worker is busy. */
  _Alignas(CACHE_LINE) temper_body body;
  void* closure;
  int64_t n;
  int64_t units;   /* that n falls into */
  uint32_t region; /* counts regions */
  int32_t stop;
  _Atomic uint32_t epoch; /* futex: odd while a region is open, which a worker may join */

  _Alignas(CACHE_LINE) _Atomic int32_t sleepers; /* workers about to wait on `epoch`, or waiting */
  _Alignas(CACHE_LINE) _Atomic int32_t caller_sleeps;
};

static void futex_wait(_Atomic uint32_t* word, uint32_t value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t* word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void pause_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

/* A region is open, and the worker has not seen it yet. */
static int is_new(uint32_t epoch, uint32_t seen) { return (epoch & 1) && epoch != seen; }
static int is_idle(uint32_t busy, uint32_t unused) { return (void)unused, !busy; }

/* Whether `word` became what is waited for before it was time to sleep. Having spun, a thread offers its core to others
 * as it waits. */
static int wait_awake(const temper_pool* pool, _Atomic uint32_t* word, int (*done)(uint32_t, uint32_t), uint32_t seen) {
  const int64_t start = temper_now_ns();
  for (int64_t waited = 0; waited < pool->wait_ns; waited = temper_now_ns() - start) {
    for (int i = 0; i < LOOKS_BY_CLOCK; ++i) {
      if (done(atomic_load_explicit(word, memory_order_acquire), seen)) return 1;
      if (waited < pool->spin_ns) {
        pause_cpu();
      } else {
        sched_yield();
      }
    }
  }
  return 0;
}

/* Where the i-th of `parts` even parts of [0, n) begins. */
static int64_t part_begin(int64_t n, int64_t parts, int64_t i) {
  const int64_t quotient = n / parts, rest = n % parts;
  return i * quotient + (i < rest ? i : rest);
}

static void run_units(const temper_pool* pool, int64_t first, int64_t end, int32_t thread) {
  pool->body(pool->closure, part_begin(pool->n, pool->units, first), part_begin(pool->n, pool->units, end), thread);
}

/* Runs half of what is left of the share of thread `of`: a thread begins at the front of its own, so that iterations
 * beside each other stay together, and at the end of another's. False if nothing is left. */
static int run_half(const temper_pool* pool, int32_t of, int32_t thread) {
  _Atomic uint64_t* word = &pool->shares[of].left;
  uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
  for (;;) {
    const int whole = seen >> 32 != pool->region;
    uint64_t first = whole ? (uint64_t)part_begin(pool->units, pool->launcher.threads, of) : seen >> 16 & 0xffff;
    uint64_t end = whole ? (uint64_t)part_begin(pool->units, pool->launcher.threads, of + 1) : seen & 0xffff;
    if (first == end) return 0;
    const uint64_t half = (end - first + 1) / 2;
    const uint64_t begun = of == thread ? first : end - half;
    if (of == thread) {
      first += half;
    } else {
      end -= half;
    }
    const uint64_t left = (uint64_t)pool->region << 32 | first << 16 | end;
    if (atomic_compare_exchange_weak_explicit(word, &seen, left, memory_order_relaxed, memory_order_relaxed)) {
      run_units(pool, (int64_t)begun, (int64_t)(begun + half), thread);
      return 1;
    }
  }
}

/* A thread that is done helps the others, as cores are not equally fast: one may run hot, or serve somebody else. A
 * worker looks at few of them, since each look costs a line of another core. The caller looks at all, and runs what
 * nobody came for. */
static void run_region(const temper_pool* pool, int32_t thread) {
  const int32_t threads = pool->launcher.threads;
  while (run_half(pool, thread, thread)) {
  }
  for (int32_t bit = 1; bit < threads; bit <<= 1) {
    const int32_t other = thread ^ bit;
    while (other < threads && run_half(pool, other, thread)) {
    }
  }
  for (int32_t other = 1; thread == 0 && other < threads; ++other) {
    while (run_half(pool, other, thread)) {
    }
  }
}

static void await_region(temper_pool* pool, uint32_t seen) {
  if (wait_awake(pool, &pool->epoch, is_new, seen)) return;
  /* The caller raises `epoch` and then reads `sleepers`; here the order is the other way round, so one sees the other.
   */
  atomic_fetch_add_explicit(&pool->sleepers, 1, memory_order_seq_cst);
  for (;;) {
    const uint32_t epoch = atomic_load_explicit(&pool->epoch, memory_order_seq_cst);
    if (is_new(epoch, seen)) break;
    futex_wait(&pool->epoch, epoch);
  }
  atomic_fetch_sub_explicit(&pool->sleepers, 1, memory_order_relaxed);
}

/* A worker says that it is busy and then looks whether the region is still open; the caller closes it and then looks
 * who is busy. So one sees the other, and who comes late runs nothing and holds up nobody. */
static void* worker_main(void* argument) {
  worker* self = argument;
  temper_pool* pool = self->pool;
  for (uint32_t seen = 0;;) {
    await_region(pool, seen);
    atomic_store_explicit(&self->busy, 1, memory_order_seq_cst);
    const uint32_t epoch = atomic_load_explicit(&pool->epoch, memory_order_seq_cst);
    const int open = is_new(epoch, seen);
    if (open && pool->stop) return NULL;
    if (open) {
      run_region(pool, self->index);
      seen = epoch;
    }
    atomic_store_explicit(&self->busy, 0, memory_order_seq_cst);
    if (atomic_load_explicit(&pool->caller_sleeps, memory_order_seq_cst)) futex_wake_all(&self->busy);
  }
}

static void open_region(temper_pool* pool) {
  atomic_fetch_add_explicit(&pool->epoch, 1, memory_order_seq_cst);
  if (atomic_load_explicit(&pool->sleepers, memory_order_seq_cst) > 0) futex_wake_all(&pool->epoch);
}

static void await_worker(temper_pool* pool, worker* w) {
  if (wait_awake(pool, &w->busy, is_idle, 0)) return;
  atomic_store_explicit(&pool->caller_sleeps, 1, memory_order_seq_cst);
  while (atomic_load_explicit(&w->busy, memory_order_seq_cst)) futex_wait(&w->busy, 1);
  atomic_store_explicit(&pool->caller_sleeps, 0, memory_order_relaxed);
}

static void close_region(temper_pool* pool) {
  atomic_fetch_add_explicit(&pool->epoch, 1, memory_order_seq_cst);
  for (int32_t i = 0; i < pool->started; ++i) {
    worker* w = &pool->workers[i];
    if (atomic_load_explicit(&w->busy, memory_order_seq_cst)) await_worker(pool, w);
  }
}

static void parallel_for(temper_launcher* launcher, int64_t n, temper_body body, void* closure) {
  temper_pool* pool = (temper_pool*)launcher;
  if (n <= 0) return;
  if (n == 1 || launcher->threads == 1) {
    body(closure, 0, n, 0);
    return;
  }
  pool->body = body;
  pool->closure = closure;
  pool->n = n;
  const int64_t most = (int64_t)launcher->threads * SHARE_UNITS;
  pool->units = n < most ? n : most;
  ++pool->region;
  open_region(pool);
  run_region(pool, 0);
  close_region(pool);
}

/* The calling thread's affinity mask, for CPU_FREE; NULL: it is not known. A cpu_set_t ends at 1024 CPUs, and the
 * kernel writes into no less than it has. */
static cpu_set_t* affinity_mask(size_t* bytes) {
  for (int cpus = CPU_SETSIZE; cpus <= MAX_CPUS; cpus *= 2) {
    *bytes = CPU_ALLOC_SIZE(cpus);
    cpu_set_t* mask = CPU_ALLOC(cpus);
    if (!mask) return NULL;
    if (sched_getaffinity(0, *bytes, mask) == 0) return mask;
    const int error = errno;
    CPU_FREE(mask);
    if (error != EINVAL) return NULL;
  }
  return NULL;
}

int32_t temper_pool_resolve_threads(int32_t threads) {
  if (threads <= 0) {
    const char* text = getenv("TEMPER_NUM_THREADS");
    char* end = NULL;
    const long value = text ? strtol(text, &end, 10) : 0;
    if (value > 0 && *end == '\0') threads = value < MAX_THREADS ? (int32_t)value : MAX_THREADS;
  }
  if (threads <= 0) {
    size_t bytes = 0;
    cpu_set_t* mask = affinity_mask(&bytes);
    threads = mask ? CPU_COUNT_S(bytes, mask) : 1;
    CPU_FREE(mask);
  }
  if (threads > MAX_THREADS) threads = MAX_THREADS;
  return threads > 0 ? threads : 1;
}

/* The CPU of worker `index`: the index-th of the mask, the 0th being the caller's. */
static int nth_cpu(const temper_pool* pool, int32_t index) {
  for (size_t cpu = 0; cpu < 8 * pool->mask_bytes; ++cpu) {
    if (CPU_ISSET_S(cpu, pool->mask_bytes, pool->mask) && index-- == 0) return (int)cpu;
  }
  return -1;
}

static void set_one(const temper_pool* pool, cpu_set_t* mask, int cpu) {
  CPU_ZERO_S(pool->mask_bytes, mask);
  CPU_SET_S((size_t)cpu, pool->mask_bytes, mask);
}

static void choose_places(temper_pool* pool) {
  pool->mask = affinity_mask(&pool->mask_bytes);
  pool->caller_mask = malloc(pool->mask_bytes);
  pool->scratch_mask = malloc(pool->mask_bytes);
  const int has_masks = pool->mask && pool->caller_mask && pool->scratch_mask;
  const int cpus = has_masks ? CPU_COUNT_S(pool->mask_bytes, pool->mask) : 0;
  const int crowded = pool->launcher.threads > cpus;
  pool->spin_ns = crowded ? SPIN_NS_CROWDED : SPIN_NS;
  pool->wait_ns = crowded ? SPIN_NS_CROWDED : WAIT_NS;
  pool->pinned = pool->launcher.threads == cpus && cpus > 1;
  if (!pool->pinned) return;
  pool->caller_cpu = nth_cpu(pool, 0);
  set_one(pool, pool->caller_mask, pool->caller_cpu);
}

static int start_worker(temper_pool* pool, worker* w) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return -1;
  const int cpu = pool->pinned ? nth_cpu(pool, w->index) : -1;
  if (cpu >= 0) {
    set_one(pool, pool->scratch_mask, cpu);
    pthread_attr_setaffinity_np(&attributes, pool->mask_bytes, pool->scratch_mask);
  }
  int error = pthread_create(&w->thread, &attributes, worker_main, w);
  pthread_attr_destroy(&attributes);
  if (error == EINVAL && cpu >= 0) error = pthread_create(&w->thread, NULL, worker_main, w); /* the CPU went away */
  return error;
}

temper_pool* temper_pool_create(int32_t threads) {
  temper_pool* pool = aligned_alloc(CACHE_LINE, (sizeof *pool + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
  if (!pool) return NULL;
  memset(pool, 0, sizeof *pool);
  pool->launcher.parallel_for = parallel_for;
  pool->launcher.threads = temper_pool_resolve_threads(threads);
  choose_places(pool);
  const int32_t workers = pool->launcher.threads - 1;
  if (workers == 0) return pool;
  const size_t shares = sizeof *pool->shares * (size_t)pool->launcher.threads;
  const size_t all_workers = sizeof *pool->workers * (size_t)workers;
  pool->workers = aligned_alloc(CACHE_LINE, all_workers);
  pool->shares = aligned_alloc(CACHE_LINE, shares);
  if (!pool->workers || !pool->shares) {
    temper_pool_destroy(pool);
    return NULL;
  }
  memset(pool->workers, 0, all_workers);
  memset(pool->shares, 0, shares);
  /* Workers take no signals: the program's handlers run on the program's threads. */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = 0;
  for (int32_t i = 0; i < workers && !failed; ++i) {
    pool->workers[i].pool = pool;
    pool->workers[i].index = i + 1;
    failed = start_worker(pool, &pool->workers[i]) != 0;
    pool->started += !failed;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (failed) {
    temper_pool_destroy(pool);
    return NULL;
  }
  return pool;
}

void temper_pool_destroy(temper_pool* pool) {
  if (!pool) return;
  pool->stop = 1;
  open_region(pool);
  for (int32_t i = 0; i < pool->started; ++i) pthread_join(pool->workers[i].thread, NULL);
  CPU_FREE(pool->mask);
  free(pool->caller_mask);
  free(pool->scratch_mask);
  free(pool->shares);
  free(pool->workers);
  free(pool);
}

temper_launcher* temper_pool_launcher(temper_pool* pool) { return &pool->launcher; }

void temper_pool_settle_caller(temper_pool* pool) {
  if (!pool->pinned) return;
  const int cpu = sched_getcpu();
  const size_t bytes = pool->mask_bytes;
  if (cpu < 0 || cpu == pool->caller_cpu || !CPU_ISSET_S((size_t)cpu, bytes, pool->mask)) return;
  cpu_set_t* before = pool->scratch_mask;
  if (sched_getaffinity(0, bytes, before) != 0 || !CPU_ISSET_S((size_t)pool->caller_cpu, bytes, before)) return;
  if (sched_setaffinity(0, bytes, pool->caller_mask) == 0) sched_setaffinity(0, bytes, before);
}
