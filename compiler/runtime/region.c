#define _GNU_SOURCE
#include "compiler/runtime/region.h"

#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

int temper_region_map(temper_region* r, int64_t bytes) {
  if (bytes <= 0) return 1;
  const int huge = bytes >= HUGE_PAGE / 4;
  const size_t size = huge ? ((size_t)bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE : (size_t)bytes;
  r->mapped = size + (huge ? HUGE_PAGE : 0);
  r->base = mmap(NULL, r->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (r->base == MAP_FAILED) {
    r->base = NULL;
    return 0;
  }
  r->data = r->base;
  if (huge) {
    r->data = (char*)(((uintptr_t)r->base + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    madvise(r->data, size, MADV_HUGEPAGE);
  }
  return 1;
}

void temper_region_unmap(temper_region* r) {
  if (r->base) munmap(r->base, r->mapped);
}

/* A body of the launcher: the huge pages of the region that `closure` points to. */
static void zero_pages(void* closure, int64_t begin, int64_t end, int32_t thread) {
  (void)thread;
  const temper_region* r = closure;
  const int64_t room = r->base + r->mapped - r->data;
  for (int64_t at = begin * HUGE_PAGE; at < end * HUGE_PAGE && at < room; at += HUGE_PAGE)
    memset(r->data + at, 0, (size_t)(room - at < HUGE_PAGE ? room - at : HUGE_PAGE));
}

void temper_region_touch(temper_region* r, int64_t bytes, temper_pool* pool) {
  temper_launcher* launcher = temper_pool_launcher(pool);
  if (r->data) launcher->parallel_for(launcher, (bytes + HUGE_PAGE - 1) / HUGE_PAGE, zero_pages, r);
}
