/* What a package's generated part hands to the runtime: constants that say which kernels run on which bytes.
 * Plain C, exported by generated code as `temper_package_plan` (hidden: it stays inside model.so). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "compiler/runtime/kernel_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rises when a field below changes its place or meaning. */
#define TEMPER_PLAN_VERSION 10

/* Where bytes are. All of a plan's are in one of them. */
enum { TEMPER_MEMORY_HOST = 0, TEMPER_MEMORY_DEVICE = 1, TEMPER_NUM_MEMORIES = 2 };

enum {
  TEMPER_ARG_INPUT = 0,  /* the model's input `index` */
  TEMPER_ARG_OUTPUT = 1, /* the model's output `index` */
  TEMPER_ARG_ARENA = 2,  /* activations and scratch in the memory `index` */
  TEMPER_ARG_WEIGHT = 3, /* weights.bin in the memory `index` */
  TEMPER_ARG_STATE = 4   /* what is kept from one run to the next, in the memory `index`; not used yet */
};
typedef struct temper_arg {
  int32_t kind;
  int32_t index;
  int64_t offset; /* bytes from there: a multiple of 64, of TEMPER_DEVICE_ALIGNMENT for a device's kernel */
  int64_t bytes;  /* that a device's kernel may touch; 0 elsewhere */
} temper_arg;

enum {
  TEMPER_STEP_KERNEL = 0, /* one call of `kernel` */
  TEMPER_STEP_COPY = 1,   /* `bytes` from args[0] to args[1]: graph outputs that are constants, inputs, other outputs */
  TEMPER_STEP_BRANCH = 2, /* the sequence `first` if the bool args[0] holds, else `second`; not used yet */
  TEMPER_STEP_LOOP = 3    /* the sequence `first` while the bool args[0] holds, at most the i64 args[1] times; not used
                             yet */
};
typedef struct temper_step {
  const char* name; /* for people */
  int64_t kind;
  const temper_arg* args;
  int64_t num_args;
  int64_t bytes; /* of a copy */
  temper_kernel kernel;
  int64_t workspace_bytes;        /* the kernel's scratch: workspace_bytes + threads * thread_workspace_bytes */
  int64_t thread_workspace_bytes; /* a multiple of 64 */
  int64_t workspace_offset;       /* of the scratch in the arena, where it has room for `scratch_threads` */
  int64_t first, second;          /* of a branch or loop: indices of sequences */
  int64_t extent, least;          /* left out where the input `extent` tells less than `least`; 0: never */
} temper_step;

/* Steps in order of execution. */
typedef struct temper_sequence {
  int64_t num_steps;
  const temper_step* steps;
} temper_sequence;

/* An axis along which a run may have less than the largest shape. */
typedef struct temper_extent {
  int64_t axis;
  int64_t told_by; /* of an input: the input that is the extent, an i64; of an output: the output that is */
} temper_extent;

typedef struct temper_io {
  const char* name;
  int64_t dtype; /* ONNX TensorProto.DataType: 1 f32, 2 u8, 3 i8, 6 i32, 7 i64, 9 bool, 10 f16, 11 f64, 16 bf16, ... */
  int64_t rank;
  const int64_t* shape; /* the largest that there is room for */
  int64_t bytes;        /* of the dense array of that shape */
  const int64_t* least; /* of an input that has `extents`: the smallest shape; else NULL */
  int64_t num_extents;
  const temper_extent* extents; /* by ascending axis; along others there is as much as `shape` says */
  int64_t unread;               /* 1: whatever lies behind the ends of such an input; 0: kernels find zeros there */
} temper_io;

/* The model for some shapes of its inputs: all variants have the same inputs and results but for their shapes. */
typedef struct temper_variant {
  int64_t num_inputs;
  const temper_io* inputs;
  int64_t num_given; /* inputs that callers give: the first ones; the others are extents of theirs */
  int64_t num_outputs;
  const temper_io* outputs;
  int64_t num_results; /* outputs that callers see: the first ones; the others tell extents */
  int64_t num_sequences;
  const temper_sequence* sequences; /* a run is the first; branches and loops run the others */
  int64_t arena_bytes[TEMPER_NUM_MEMORIES];
  int64_t scratch_threads; /* runs on more of them have scratch apart from the arena */
} temper_variant;

typedef struct temper_plan {
  int64_t version; /* TEMPER_PLAN_VERSION */
  int64_t num_variants;
  const temper_variant* variants;
  int64_t weight_bytes[TEMPER_NUM_MEMORIES]; /* those of the host, then those of the device: weights.bin in all */
  uint64_t weight_hash;                      /* temper_weights_hash of it; where it is empty there need not be a file */
  int64_t state_bytes[TEMPER_NUM_MEMORIES];  /* zero when a model is created */
  int64_t caller_alignment; /* where callers' buffers begin that the host's kernels meet themselves, without a copy */
  int64_t num_cpu_features;
  const char* const* cpu_features; /* LLVM's names ("avx2", "avx512f"): what the kernels use */
  /* Where weights, arena, inputs and outputs are a device's: a pointer to it, which whoever loads the package sets, or
   * else the runtime, which asks libtemper-devices for that of `generator`. Inputs and outputs are copied to it and
   * back in each run. NULL: they are the host's. */
  const temper_device** device;
  const char* generator; /* "cuda"; NULL where device is */
} temper_plan;

extern const temper_plan temper_package_plan;

/* Fit to be persisted; about as fast as memory. */
uint64_t temper_weights_hash(const void* data, size_t bytes);
/* The same from chunks of TEMPER_HASH_CHUNK bytes, the last one shorter, which threads may hash at the same time: the
 * hashes are joined in order, the first to 0. */
enum { TEMPER_HASH_CHUNK = 1 << 20 };
uint64_t temper_weights_hash_chunk(const void* chunk, size_t bytes);
uint64_t temper_weights_hash_join(uint64_t before, uint64_t chunk);

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
