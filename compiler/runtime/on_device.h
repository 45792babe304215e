/* A model whose memory is a device's: what it has there, and its steps. Plain C: it is compiled into every package. */
#pragma once

#include "compiler/runtime/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of one variant: a place for each input and output, and the steps' arguments as launches take them. Used by one
 * thread at a time. */
typedef struct temper_on_device temper_on_device;

/* The device of the plan's kernels: the one that whoever loaded the package set, or else that of libtemper-devices,
 * which the loader finds unless $TEMPER_DEVICES names the file. The plan's pointer is set to it. NULL: there is none,
 * and `why`, of `size` bytes, has the line. Thread-safe. */
const temper_device* temper_on_device_find(const temper_plan* plan, char* why, size_t size);

/* `weights` and `arena` are memory of the device, which outlives it; NULL: there are none. NULL: the device or the host
 * has no memory for it. */
temper_on_device* temper_on_device_create(const temper_device* api, const temper_variant* v, void* weights,
                                          void* arena);
void temper_on_device_destroy(temper_on_device* d); /* NULL is allowed; no run may be under way */

/* These return 0, or the TEMPER_* that ends the run. */
int temper_on_device_write_input(temper_on_device* d, int64_t index, int64_t offset, const void* from, int64_t bytes);
int temper_on_device_run_step(temper_on_device* d, int64_t index); /* may return before the step is done */
/* The step, to its end, and its nanoseconds by the device's clock. */
int temper_on_device_time_step(temper_on_device* d, int64_t index, int64_t* ns);
/* All steps, as one where the device keeps them. `failed` is the step that failed; -1: all of them together. */
int temper_on_device_run(temper_on_device* d, int64_t* failed);
int temper_on_device_read_output(temper_on_device* d, int64_t index, void* to);

#ifdef __cplusplus
}
#endif
