/* Memory of a model on the host. Plain C: it is compiled into every package. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "compiler/runtime/thread_pool.h"

typedef struct temper_region {
  char* base; /* what was mapped; NULL: nothing was */
  size_t mapped;
  char* data; /* aligned */
} temper_region;

/* Zeroed memory; of whole huge pages where that wastes little, since kernels walk it in strides, and which sets of a
 * cache small pages share is a matter of luck. 0: there is none. */
int temper_region_map(temper_region* r, int64_t bytes);
void temper_region_unmap(temper_region* r);
/* Page faults belong to create, not to the first run; all threads take their part of them. */
void temper_region_touch(temper_region* r, int64_t bytes, temper_pool* pool);
