/* What generated kernels and the runtime agree on. Plain C: it is compiled into every package. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The work of iterations [begin, end) of a parallel loop, on thread `thread` of [0, threads). */
typedef void (*temper_body)(void* closure, int64_t begin, int64_t end, int32_t thread);

/* Runs body over [0, n) on the pool's threads, each an even contiguous share, and returns when all are done.
 * Not reentrant: a body never launches. */
typedef struct temper_launcher {
  void (*parallel_for)(struct temper_launcher* self, int64_t n, temper_body body, void* closure);
  int32_t threads;
} temper_launcher;

/* A kernel: args are the buffers in parameter order (64-byte aligned, not aliasing but for a
 * result in the place of an operand), workspace is 64-byte aligned
 * scratch of workspace_bytes + launcher->threads * thread_workspace_bytes. */
typedef void (*temper_kernel)(void* const* args, void* workspace, temper_launcher* launcher);

#ifdef __cplusplus
}
#endif
