/* A plan's weights, once for all of its models in this process. Plain C: it is compiled into every package. */
#pragma once

#include "compiler/runtime/plan.h"
#include "compiler/runtime/region.h"

typedef struct temper_weights {
  const temper_plan* plan;
  temper_region region; /* of the host */
  void* on_device;      /* or memory of the plan's device */
  int64_t users;
  struct temper_weights* next;
} temper_weights;

/* Of the file at `path`, which whoever comes first maps and checks, with the threads of `pool`. NULL where the plan has
 * none. An error has its line in `line`. Thread-safe, as is the release. */
int temper_weights_take(const temper_plan* plan, const char* path, temper_pool* pool, temper_weights** weights,
                        char* line);
void temper_weights_release(temper_weights* weights); /* NULL is allowed */
