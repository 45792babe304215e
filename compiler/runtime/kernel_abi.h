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

/* One call of a kernel. */
typedef struct temper_call {
  /* The buffers in parameter order: 64-byte aligned, not aliasing but for a result in the place of an operand. */
  void* const* args;
  /* Extents that are known only at run time, in the order of the kernel's parameters. NULL: there are none. */
  const int64_t* dims;
  /* 64-byte aligned scratch of workspace_bytes + launcher->threads * thread_workspace_bytes. */
  void* workspace;
  /* The host's threads; NULL for a kernel that runs on a device. */
  temper_launcher* launcher;
  /* The device's queue, in which the kernel is put; NULL on the host, where the call returns when all is done. */
  void* stream;
} temper_call;

/* A kernel: 0, or the TEMPER_* of model.h that ends the run. */
typedef int32_t (*temper_kernel)(const temper_call* call);

static inline int32_t temper_call_on_host(temper_kernel kernel, void* const* args, void* workspace,
                                          temper_launcher* launcher) {
  const temper_call call = {args, 0, workspace, launcher, 0};
  return kernel(&call);
}

#ifdef __cplusplus
}
#endif
