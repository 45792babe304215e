/* Shapes of runs: which variant takes them, and what lies where in inputs that have less than there is room for. Plain
 * C: it is compiled into every package. Thread-safe. */
#pragma once

#include <stddef.h>

#include "compiler/runtime/plan.h"
#include "include/temper/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a hidden output tells where the model itself takes no inputs of such lengths. */
#define TEMPER_LENGTHS_DIFFER INT64_MIN

/* What an input of this shape takes, which lies in its range; all of it where it takes no range. */
int64_t temper_bytes_of(const temper_io* io, const int64_t* shape);

/* An input that a caller gives dense, where its elements lie in the largest: `times` pieces of `bytes`, which follow
 * one another at `from`, go to `to` and to each `stride` bytes from there. Behind each are zeros, up to the next one;
 * behind the last one are `zeros`. */
typedef struct temper_piece {
  int64_t from, to, bytes, times, stride, zeros;
} temper_piece;
static inline int64_t temper_zeros_behind(const temper_piece* p, int64_t i) {
  return i + 1 < p->times ? p->stride - p->bytes : p->zeros;
}
/* The pieces in order. Their bytes and zeros are those of the largest input. */
typedef struct temper_pieces {
  const temper_io* io;
  int64_t shape[TEMPER_MAX_RANK], stride[TEMPER_MAX_RANK], index[TEMPER_MAX_RANK]; /* of the first `axes` */
  int64_t axes; /* those around the pieces of one `times` */
  temper_piece next;
} temper_pieces;
temper_pieces temper_pieces_of(const temper_io* io, const int64_t* shape);
/* 0: there is none left. */
int temper_next_piece(temper_pieces* p, temper_piece* piece);

/* The first variant that takes inputs of these types and shapes, one for each that callers give. NULL: there is none,
 * and `line`, of `size` bytes, says what the model takes. Plans have no inputs of more than TEMPER_MAX_RANK dimensions;
 * an input that says it has more is taken by none, and the line has its first TEMPER_MAX_RANK. */
const temper_variant* temper_find_variant(const temper_plan* plan, const temper_tensor* inputs, char* line,
                                          size_t size);

#ifdef __cplusplus
}
#endif
