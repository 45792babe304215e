/* The threads that kernels run on. Plain C: it is compiled into every package.
 *
 * The thread that launches is thread 0; the others spin for a moment after each region, offer their core for another,
 * and then sleep. A pool is used by one thread at a time; a process may hold several. Launching takes no lock and no
 * memory. */
#pragma once

#include <stdint.h>

#include "compiler/runtime/kernel_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct temper_pool temper_pool;

/* What `threads` (an argument of the user's) means: itself if positive, else TEMPER_NUM_THREADS if that is a positive
 * number, else the count of CPUs in the affinity mask. */
int32_t temper_pool_resolve_threads(int32_t threads);

/* NULL if memory or threads are short. With as many threads as CPUs in the affinity mask each thread but the caller is
 * pinned to one of them; with fewer or more the system places them, since pinned ones would collide with other pools'.
 * A forked child has none of the threads: it neither launches on the pool nor destroys it, and makes its own. */
temper_pool* temper_pool_create(int32_t threads);
void temper_pool_destroy(temper_pool* pool); /* joins; NULL is allowed; no region may be running */

temper_launcher* temper_pool_launcher(temper_pool* pool); /* lives as long as the pool */

/* Moves the calling thread off the CPUs of the pool's pinned threads, if it stands on one; its affinity mask is as
 * before on return. Call before a run of regions: two threads on one CPU would halve the speed until the system
 * notices. */
void temper_pool_settle_caller(temper_pool* pool);

#ifdef __cplusplus
}
#endif
