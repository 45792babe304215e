#include "compiler/runtime/busy_launcher.h"

#include <stdlib.h>
#include <string.h>

#include "compiler/runtime/monotonic.h"

enum { SLOT = 8 }; /* a cache line of int64_t */

static void timed_body(void* closure, int64_t begin, int64_t end, int32_t thread) {
  temper_busy_launcher* busy = closure;
  const int64_t start = temper_now_ns();
  busy->body(busy->closure, begin, end, thread);
  busy->threads_ns[thread * SLOT] += temper_now_ns() - start;
}

static void parallel_for(temper_launcher* self, int64_t n, temper_body body, void* closure) {
  temper_busy_launcher* busy = (temper_busy_launcher*)self;
  busy->body = body;
  busy->closure = closure;
  const int64_t start = temper_now_ns();
  busy->pool->parallel_for(busy->pool, n, timed_body, busy);
  busy->launch_ns += temper_now_ns() - start;
}

int temper_busy_launcher_open(temper_busy_launcher* busy, temper_launcher* pool) {
  memset(busy, 0, sizeof *busy);
  busy->launcher.parallel_for = parallel_for;
  busy->launcher.threads = pool->threads;
  busy->pool = pool;
  busy->threads_ns = calloc((size_t)pool->threads * SLOT, sizeof *busy->threads_ns);
  return busy->threads_ns ? 0 : -1;
}

void temper_busy_launcher_close(temper_busy_launcher* busy) { free(busy->threads_ns); }

void temper_busy_launcher_reset(temper_busy_launcher* busy) {
  busy->launch_ns = 0;
  memset(busy->threads_ns, 0, (size_t)busy->launcher.threads * SLOT * sizeof *busy->threads_ns);
}

int64_t temper_busy_launcher_mean(const temper_busy_launcher* busy, int64_t ns) {
  int64_t sum = ns - busy->launch_ns;
  for (int32_t i = 0; i < busy->launcher.threads; ++i) sum += busy->threads_ns[i * SLOT];
  return sum / busy->launcher.threads;
}
