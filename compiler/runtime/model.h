/* A compiled model. This header is all that a program needs besides the package's directory: link or dlopen its
 * model.so. Every call returns 0, or one of TEMPER_* below, and then temper_model_error has a line that says why. */
#ifndef TEMPER_MODEL_H_
#define TEMPER_MODEL_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TEMPER_API __attribute__((visibility("default")))
#else
#define TEMPER_API
#endif

enum {
  TEMPER_OK = 0,
  TEMPER_INVALID_ARGUMENT = 1, /* a null pointer, an index out of range */
  TEMPER_NO_PACKAGE = 2,       /* weights.bin is missing, or not the one that belongs to this model.so */
  TEMPER_WRONG_CPU = 3,        /* the package was compiled for features that this CPU lacks */
  TEMPER_NO_RESOURCES = 4,     /* memory or threads */
  TEMPER_BUSY = 5              /* another thread is inside temper_model_run of this model */
};

typedef struct temper_model temper_model;

/* `threads`: 0 means TEMPER_NUM_THREADS if set, else the CPUs of the process's affinity mask. */
TEMPER_API int temper_model_create(const char* package_dir, int threads, temper_model** model);

TEMPER_API int temper_model_io_count(const temper_model* model, int is_output);

/* `dtype` is ONNX's TensorProto.DataType (1 f32, 2 u8, 3 i8, 6 i32, 7 i64, 9 bool, 10 f16, 11 f64, 16 bf16, ...).
 * Elements of less than a byte are packed, the first in the low bits. What the pointers show lives as long as the
 * model. Any of them may be NULL. */
TEMPER_API int temper_model_io(const temper_model* model, int is_output, int index, const char** name, int* dtype,
                               int* rank, const int64_t** shape);

/* Buffers are the caller's, dense, row-major, in the order of temper_model_io; outputs do not overlap inputs or each
 * other. Nothing is kept across calls. Buffers aligned to 64 bytes are used in place, others are copied. One call at a
 * time for each model; it allocates nothing. */
TEMPER_API int temper_model_run(temper_model* model, const void* const* inputs, void* const* outputs);

/* For profilers: the steps that a run takes, in order; manifest.json lists them as `steps`. */
TEMPER_API int temper_model_step_count(const temper_model* model);

/* temper_model_run, with each step's nanoseconds left in `step_ns`, an array of temper_model_step_count. */
TEMPER_API int temper_model_run_timed(temper_model* model, const void* const* inputs, void* const* outputs,
                                      int64_t* step_ns);

TEMPER_API void temper_model_destroy(temper_model* model);

/* The line of this model's last failed call; with NULL, of the last failed create on this thread. */
TEMPER_API const char* temper_model_error(const temper_model* model);

#ifdef __cplusplus
}
#endif

#endif
