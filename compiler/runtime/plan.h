/* What a package's generated part hands to the runtime: constants that say which kernels run on which bytes.
 * Plain C, exported by generated code as `temper_plan_v1` (hidden: it stays inside model.so). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "compiler/runtime/kernel_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rises when a field below changes its place or meaning. */
#define TEMPER_PLAN_VERSION 2

enum {
  TEMPER_ARG_INPUT = 0,  /* the model's input `index` */
  TEMPER_ARG_OUTPUT = 1, /* the model's output `index` */
  TEMPER_ARG_ARENA = 2,  /* activations; scratch too */
  TEMPER_ARG_WEIGHT = 3  /* weights.bin */
};
typedef struct temper_arg {
  int32_t kind;
  int32_t index;  /* of inputs and outputs, else 0 */
  int64_t offset; /* bytes from there; a multiple of 64 */
} temper_arg;

/* With a kernel: one call of it. Without (NULL): copies `copy_bytes` from args[0] to args[1], for graph outputs that
 * are constants, inputs or other outputs. */
typedef struct temper_step {
  const char* name; /* for people */
  temper_kernel kernel;
  const temper_arg* args;
  int64_t num_args;
  int64_t copy_bytes;
  int64_t workspace_bytes;        /* the kernel's scratch: workspace_bytes + threads * thread_workspace_bytes */
  int64_t thread_workspace_bytes; /* a multiple of 64 */
  int64_t workspace_offset;       /* of the scratch in the arena, where it has room for `scratch_threads` */
} temper_step;

typedef struct temper_io {
  const char* name;
  int64_t dtype; /* ONNX TensorProto.DataType: 1 f32, 2 u8, 3 i8, 6 i32, 7 i64, 9 bool, 10 f16, 11 f64, 16 bf16, ... */
  int64_t rank;
  const int64_t* shape;
  int64_t bytes; /* of the dense array */
} temper_io;

typedef struct temper_plan {
  int64_t version; /* TEMPER_PLAN_VERSION */
  int64_t num_inputs;
  const temper_io* inputs;
  int64_t num_outputs;
  const temper_io* outputs;
  int64_t num_steps;
  const temper_step* steps; /* in order of execution */
  int64_t arena_bytes;
  int64_t scratch_threads; /* runs on more of them have scratch apart from the arena */
  int64_t weight_bytes;    /* size of weights.bin; 0: there need not be one */
  uint64_t weight_hash;    /* temper_weights_hash of it */
  int64_t num_cpu_features;
  const char* const* cpu_features; /* LLVM's names ("avx2", "avx512f"): what the kernels use */
} temper_plan;

extern const temper_plan temper_plan_v1;

/* Fit to be persisted; about as fast as memory. */
uint64_t temper_weights_hash(const void* data, size_t bytes);
/* The same for bytes that come piece by piece: whole blocks, then fewer than one. */
enum { TEMPER_HASH_BLOCK = 32 };
typedef struct {
  uint64_t lanes[4];
  size_t bytes;
} temper_weights_hasher;
void temper_weights_hash_begin(temper_weights_hasher* h);
void temper_weights_hash_add(temper_weights_hasher* h, const void* blocks, size_t bytes);
uint64_t temper_weights_hash_end(const temper_weights_hasher* h, const void* rest, size_t bytes);

/* 1 if this CPU lacks one of the features, else 0. `missing` gets the lacking names, separated by spaces and cut to
 * `size`. Names that this runtime does not know count as lacking. */
int temper_cpu_lacks(const char* const* features, int64_t count, char* missing, size_t size);

/* temper_model_create for a plan of the caller's; `weights` is the path of weights.bin. */
struct temper_model;
int temper_model_create_from_plan(const temper_plan* plan, const char* weights, int threads,
                                  struct temper_model** model);
/* Leaves `line` for temper_model_error(NULL) on this thread; returns `code`. */
int temper_model_set_create_error(int code, const char* line);

#ifdef __cplusplus
}
#endif
