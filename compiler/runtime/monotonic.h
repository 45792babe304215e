/* The runtime's clock. Plain C: it is compiled into every package. */
#pragma once

#include <stdint.h>
#include <time.h>

static inline int64_t temper_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
