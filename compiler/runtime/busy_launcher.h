/* Launches for profilers: a pool's, with the time that its threads work. Plain C: it is compiled into every package. */
#pragma once

#include <stdint.h>

#include "compiler/runtime/kernel_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct temper_busy_launcher {
  temper_launcher launcher; /* first: the launcher's address is this one's */
  temper_launcher* pool;
  int64_t launch_ns;   /* in launches since the reset, as the caller sees it */
  int64_t* threads_ns; /* by thread, a cache line each: in their shares of these launches */
  temper_body body;    /* of the launch that runs */
  void* closure;
} temper_busy_launcher;

/* Over the launcher of a pool, which it does not own. 0, or -1 if memory is short. */
int temper_busy_launcher_open(temper_busy_launcher* busy, temper_launcher* pool);
void temper_busy_launcher_close(temper_busy_launcher* busy);
void temper_busy_launcher_reset(temper_busy_launcher* busy);
/* Of `ns` since the reset: how long a thread worked, as the mean over all threads. What the caller did between launches
 * is work of its own. */
int64_t temper_busy_launcher_mean(const temper_busy_launcher* busy, int64_t ns);

#ifdef __cplusplus
}
#endif
