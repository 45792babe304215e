/* What generated kernels and the runtime agree on. Plain C: it is compiled into every package. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The work of iterations [begin, end) of a parallel loop, on thread `thread` of [0, threads). */
typedef void (*temper_body)(void* closure, int64_t begin, int64_t end, int32_t thread);

/* Runs body over [0, n) on the pool's threads and returns when all is done. Each thread begins at an even contiguous
 * share, which it gets in a few calls; one that is done takes from the ends of others' shares. A thread that does not
 * come takes no part: the others run its share. Not reentrant: a body never launches. */
typedef struct temper_launcher {
  void (*parallel_for)(struct temper_launcher* self, int64_t n, temper_body body, void* closure);
  int32_t threads;
} temper_launcher;

/* One call of a kernel. */
typedef struct temper_call {
  /* The buffers in parameter order, not aliasing but for a result in the place of an operand. They are 64-byte aligned,
     a model's inputs and outputs as its plan's caller_alignment says. */
  void* const* args;
  /* Extents that are known only at run time, in the order of the kernel's parameters. NULL: there are none. */
  const int64_t* dims;
  /* 64-byte aligned scratch of workspace_bytes + launcher->threads * thread_workspace_bytes. */
  void* workspace;
  /* The host's threads; NULL for a kernel that runs on a device. */
  temper_launcher* launcher;
  /* Not NULL where args and workspace are parts of a device's memory: the call may return before the kernel is done. */
  void* stream;
} temper_call;

/* A kernel: 0, or the TEMPER_* of model.h that ends the run. */
typedef int32_t (*temper_kernel)(const temper_call* call);

/* Who runs kernels that are not the host's code, for packages; whoever loads these provides it. Thread-safe. What is
 * asked of it happens in that order. Numbers returned are 0 or the TEMPER_* of model.h that ends the run. */
typedef struct temper_device {
  /* Calls the kernel `symbol` of the code. */
  int32_t (*launch)(const char* code, int64_t bytes, const char* symbol, const temper_call* call);
  /* The rest is NULL where kernels run on the host's memory. NULL is returned where there is no more memory. */
  void* (*allocate)(int64_t bytes);
  /* Bytes of it, as a launch takes them. They begin at a multiple of TEMPER_DEVICE_ALIGNMENT. */
  void* (*part)(void* memory, int64_t offset, int64_t bytes);
  void (*release)(void* memory_or_part); /* parts before their memory */
  /* All wait until they are done, and with them all that was asked before. */
  int32_t (*write)(void* memory, int64_t offset, const void* from, int64_t bytes);
  int32_t (*read)(void* memory, int64_t offset, void* to, int64_t bytes);
  int32_t (*copy)(void* from, int64_t from_offset, void* to, int64_t to_offset, int64_t bytes);
  /* What `steps` launches and copies, on this thread and in memory that stays, is kept instead of done, for replays.
   * NULL: it is neither; the device cannot, or `steps` returned something but 0. */
  void* (*record)(int32_t (*steps)(void* closure), void* closure);
  int32_t (*replay)(void* recording); /* may return before it is done */
  void (*forget)(void* recording);    /* waits until it is done */
  /* Nanoseconds, by the device's clock, of what `steps` launches and copies on this thread; waits until it is done. */
  int32_t (*time)(int32_t (*steps)(void* closure), void* closure, int64_t* ns);
  /* Why this thread's latest request failed, in one line, until its next one; empty: it did not. */
  const char* (*error)(void);
} temper_device;

/* Rises when temper_device changes. A package exports that of its runtime as temper_model_device_version. */
#define TEMPER_DEVICE_VERSION 2
/* What libtemper-devices exports as "temper_find_device": the device of that generator, such as "cuda". NULL: the
 * library has none, or temper_device has another version there. */
typedef const temper_device* (*temper_find_device_fn)(const char* generator, int32_t version);

enum { TEMPER_DEVICE_ALIGNMENT = 512 };

static inline int32_t temper_call_on_host(temper_kernel kernel, void* const* args, void* workspace,
                                          temper_launcher* launcher) {
  const temper_call call = {args, 0, workspace, launcher, 0};
  return kernel(&call);
}

#ifdef __cplusplus
}
#endif
