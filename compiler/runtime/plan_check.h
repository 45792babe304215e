/* What plans may ask of this runtime. Plain C: it is compiled into every package. */
#pragma once

#include "compiler/runtime/plan.h"

/* Which memory a plan's bytes are in. */
static inline int temper_memory_of(const temper_plan* plan) {
  return plan->device ? TEMPER_MEMORY_DEVICE : TEMPER_MEMORY_HOST;
}

/* What the plan wants of a runtime and this one does not have; NULL: nothing. */
const char* temper_plan_unsupported(const temper_plan* plan);
