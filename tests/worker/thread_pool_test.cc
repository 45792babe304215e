// The thread pool under stress: every index is run once, by a thread in range, in few calls; a thread that is late is
// helped.
#include "compiler/runtime/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/rng.h"

// The pool asks for affinity masks here. With `kernel_cpus` above 0, a kernel of so many CPUs has the first and the
// last.
static size_t kernel_cpus = 0;
extern "C" int sched_getaffinity(pid_t pid, size_t size, cpu_set_t* mask) noexcept {
  std::memset(mask, 0, size);
  if (kernel_cpus == 0) return syscall(SYS_sched_getaffinity, pid, size, mask) < 0 ? -1 : 0;
  if (size * 8 < kernel_cpus) {
    errno = EINVAL;
    return -1;
  }
  CPU_SET_S(0, size, mask);
  CPU_SET_S(kernel_cpus - 1, size, mask);
  return 0;
}

namespace temper {
namespace {

struct PoolDeleter {
  void operator()(temper_pool* pool) const { temper_pool_destroy(pool); }
};
using Pool = std::unique_ptr<temper_pool, PoolDeleter>;

struct Region {
  std::vector<std::atomic<int>> hits;
  std::vector<std::atomic<int>> bodies;
  explicit Region(int64_t n, int threads) : hits(n), bodies(threads) {}
  static void Body(void* self, int64_t begin, int64_t end, int32_t thread) {
    auto* region = static_cast<Region*>(self);
    region->bodies.at(thread).fetch_add(1);
    for (int64_t i = begin; i < end; ++i) region->hits[i].fetch_add(1);
  }
};

void RunAndCheck(temper_launcher* launcher, int64_t n) {
  Region region(n, launcher->threads);
  launcher->parallel_for(launcher, n, &Region::Body, &region);
  for (int64_t i = 0; i < n; ++i) ASSERT_EQ(region.hits[i].load(), 1) << "index " << i << " of " << n;
  int bodies = 0;
  for (const auto& b : region.bodies) bodies += b.load();
  EXPECT_LE(bodies, std::min<int64_t>(n, 16 * launcher->threads));
}

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, RunsEveryIndexOnce) {
  Pool pool(temper_pool_create(GetParam()));
  ASSERT_NE(pool, nullptr);
  temper_launcher* launcher = temper_pool_launcher(pool.get());
  ASSERT_EQ(launcher->threads, GetParam());
  for (int64_t n : {0, 1, 2, 3, 5, 7, 63, 64, 65, 1000}) RunAndCheck(launcher, n);
  Rng rng(GetParam());
  for (int i = 0; i < 300; ++i) RunAndCheck(launcher, rng.Below(97));
}

TEST_P(ThreadPoolTest, ManyTinyRegionsSumRight) {
  Pool pool(temper_pool_create(GetParam()));
  temper_launcher* launcher = temper_pool_launcher(pool.get());
  std::vector<int64_t> cells(64 * GetParam(), 0);  // a line for each thread, no atomics: regions order the writes
  struct Closure {
    int64_t* cells;
  } closure{cells.data()};
  constexpr int kRegions = 3000;
  for (int i = 0; i < kRegions; ++i) {
    launcher->parallel_for(
        launcher, 10,
        [](void* c, int64_t begin, int64_t end, int32_t thread) {
          static_cast<Closure*>(c)->cells[64 * thread] += end - begin;
        },
        &closure);
  }
  int64_t sum = 0;
  for (int64_t c : cells) sum += c;
  EXPECT_EQ(sum, 10 * kRegions);
}

// The others spin meanwhile, or offer their core, or sleep; if it is the caller that is late, so do they before the
// next.
TEST_P(ThreadPoolTest, WaitsForAThreadThatIsLate) {
  Pool pool(temper_pool_create(GetParam()));
  temper_launcher* launcher = temper_pool_launcher(pool.get());
  struct Closure {
    int32_t late;
    std::chrono::microseconds by;
    std::atomic<int64_t> done{0};
  };
  for (const int by_us : {20, 300, 4000}) {
    for (const int32_t late : {0, launcher->threads - 1}) {
      Closure closure{late, std::chrono::microseconds(by_us)};
      launcher->parallel_for(
          launcher, 64,
          [](void* p, int64_t begin, int64_t end, int32_t thread) {
            auto* c = static_cast<Closure*>(p);
            const auto until = std::chrono::steady_clock::now() + c->by;
            while (thread == c->late && std::chrono::steady_clock::now() < until) {
            }
            c->done.fetch_add(end - begin);
          },
          &closure);
      EXPECT_EQ(closure.done.load(), 64) << by_us << " us, thread " << late;
      RunAndCheck(launcher, 64);
    }
  }
}

// It would wait for ever if its first call had the whole of its share, or if nobody took what it has not begun.
TEST_P(ThreadPoolTest, OthersRunWhatALateThreadHasNotBegun) {
  Pool pool(temper_pool_create(GetParam()));
  temper_launcher* launcher = temper_pool_launcher(pool.get());
  constexpr int64_t kN = 1000;
  struct Closure {
    int32_t late;
    std::atomic<int64_t> done{0};
  };
  for (int32_t late = 0; late < launcher->threads; ++late) {
    Closure closure{late};
    launcher->parallel_for(
        launcher, kN,
        [](void* p, int64_t begin, int64_t end, int32_t thread) {
          auto* c = static_cast<Closure*>(p);
          while (thread == c->late && c->done.load() < kN - (end - begin)) std::this_thread::yield();
          c->done.fetch_add(end - begin);
        },
        &closure);
    EXPECT_EQ(closure.done.load(), kN);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 5, 16));

TEST(ThreadPool, WritesOfARegionAreSeenByTheNext) {
  Pool pool(temper_pool_create(4));
  temper_launcher* launcher = temper_pool_launcher(pool.get());
  constexpr int64_t kN = 103;
  std::vector<int64_t> from(kN), to(kN);
  for (int64_t i = 0; i < kN; ++i) from[i] = i;
  struct Closure {
    int64_t *from, *to;
  };
  for (int round = 0; round < 500; ++round) {
    Closure c{from.data(), to.data()};
    launcher->parallel_for(
        launcher, kN,
        [](void* p, int64_t begin, int64_t end, int32_t) {
          auto* c = static_cast<Closure*>(p);
          for (int64_t i = begin; i < end; ++i) c->to[i] = c->from[kN - 1 - i] + 1;
        },
        &c);
    std::swap(from, to);
  }
  for (int64_t i = 0; i < kN; ++i) ASSERT_EQ(from[i], i + 500);  // an even number of reversals
}

TEST(ThreadPool, SeveralPoolsTakeTurnsAndRunSideBySide) {
  Pool a(temper_pool_create(2)), b(temper_pool_create(3));
  for (int i = 0; i < 200; ++i) {
    RunAndCheck(temper_pool_launcher(a.get()), 17);
    RunAndCheck(temper_pool_launcher(b.get()), 19);
  }
  std::thread other([&] {
    for (int i = 0; i < 200; ++i) RunAndCheck(temper_pool_launcher(a.get()), 23);
  });
  for (int i = 0; i < 200; ++i) RunAndCheck(temper_pool_launcher(b.get()), 29);
  other.join();
}

TEST(ThreadPool, DestroyedWhileIdleAsleepOrNeverUsed) {
  for (int i = 0; i < 100; ++i) {
    Pool pool(temper_pool_create(1 + i % 5));
    if (i % 2 == 0) RunAndCheck(temper_pool_launcher(pool.get()), 8);
  }
  temper_pool_destroy(nullptr);
}

TEST(ThreadPool, LeavesTheCallersAffinityAlone) {
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  {
    Pool pool(temper_pool_create(CPU_COUNT(&before)));
    for (int i = 0; i < 50; ++i) {
      temper_pool_settle_caller(pool.get());
      RunAndCheck(temper_pool_launcher(pool.get()), 100);
    }
    ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
    EXPECT_TRUE(CPU_EQUAL(&before, &after));
  }
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(ThreadPool, MachinesMayHaveMoreCpusThanAMaskOfFixedSize) {
  unsetenv("TEMPER_NUM_THREADS");
  kernel_cpus = 1500;
  const int32_t threads = temper_pool_resolve_threads(0);
  // As many threads as CPUs: one would be pinned to a CPU that this machine does not have, and runs anywhere instead.
  Pool pool(temper_pool_create(0));
  kernel_cpus = 0;
  EXPECT_EQ(threads, 2);
  ASSERT_NE(pool, nullptr);
  EXPECT_EQ(temper_pool_launcher(pool.get())->threads, 2);
  temper_pool_settle_caller(pool.get());
  RunAndCheck(temper_pool_launcher(pool.get()), 100);
}

TEST(ThreadPool, ThreadCountComesFromTheArgumentThenTheEnvironmentThenTheMask) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  unsetenv("TEMPER_NUM_THREADS");
  EXPECT_EQ(temper_pool_resolve_threads(0), CPU_COUNT(&mask));
  setenv("TEMPER_NUM_THREADS", "3", 1);
  EXPECT_EQ(temper_pool_resolve_threads(0), 3);
  EXPECT_EQ(temper_pool_resolve_threads(7), 7);
  for (const char* nonsense : {"", "0", "-2", "many", "3x"}) {
    setenv("TEMPER_NUM_THREADS", nonsense, 1);
    EXPECT_EQ(temper_pool_resolve_threads(0), CPU_COUNT(&mask)) << nonsense;
  }
  unsetenv("TEMPER_NUM_THREADS");
}

}  // namespace
}  // namespace temper
