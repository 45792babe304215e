/* Shapes of runs: which variant takes them, and what lies where in inputs that have less than there is room for. Plain
 * C: it is compiled into every package. Thread-safe. */
#pragma once

#include <stddef.h>

#include "compiler/runtime/plan.h"
#include "include/temper/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An input, as rows of `bytes` along its axis: `most` of them, `outer` times. */
typedef struct temper_rows {
  int64_t outer, most, bytes;
} temper_rows;
temper_rows temper_rows_of(const temper_io* io);
/* What an input takes of which a run has `count` rows; all of it where it takes no range. */
int64_t temper_rows_bytes(const temper_io* io, int64_t count);

/* The first variant that takes inputs of these types and shapes, one for each that callers give. NULL: there is none,
 * and `line`, of `size` bytes, says what the model takes. Plans have no inputs of more than TEMPER_MAX_RANK dimensions;
 * an input that says it has more is taken by none, and the line has its first TEMPER_MAX_RANK. */
const temper_variant* temper_find_variant(const temper_plan* plan, const temper_tensor* inputs, char* line,
                                          size_t size);

#ifdef __cplusplus
}
#endif
