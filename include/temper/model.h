/* The C interface of a compiled model. A program needs this header and the package's directory: it links or dlopens
 * model.so. Functions that return int return TEMPER_OK or another code below; after a failure temper_model_error has a
 * line that says why, but for TEMPER_BUSY: the line is that of the thread inside. */
#ifndef TEMPER_MODEL_H_
#define TEMPER_MODEL_H_

#include <stdint.h>

#ifndef TEMPER_MODEL_TYPES_ /* headers of several packages may be included together */
#define TEMPER_MODEL_TYPES_

#if defined(__GNUC__)
#define TEMPER_API __attribute__((visibility("default")))
#else
#define TEMPER_API
#endif

enum {
  TEMPER_OK = 0,
  TEMPER_INVALID_ARGUMENT = 1, /* a null pointer, an index out of range */
  TEMPER_NO_PACKAGE = 2,       /* weights.bin is missing, or belongs to another library */
  TEMPER_WRONG_CPU = 3,        /* the package was compiled for features that this CPU lacks */
  TEMPER_NO_RESOURCES = 4,     /* memory or threads */
  TEMPER_BUSY = 5,             /* another thread is inside temper_model_run of this model; leaves no line */
  TEMPER_NO_ROOM = 6           /* an output is larger than the caller's buffer for it */
};

typedef struct temper_model temper_model;

/* A dense, row-major array that says its shape. `dtype` as in temper_model_io. Models have no inputs and outputs of
 * more than TEMPER_MAX_RANK dimensions: `temper compile` refuses them, and a tensor that says it has more is none that
 * a model takes. */
enum { TEMPER_MAX_RANK = 16 };
typedef struct temper_tensor {
  void* data;
  int64_t bytes; /* the room at `data` */
  int32_t dtype;
  int32_t rank;
  int64_t shape[TEMPER_MAX_RANK];
} temper_tensor;

/* Time of one step of a run: `ns` as the caller saw it, `busy_ns` as the mean over all threads of the time that a
 * thread worked. In the rest of the time threads started, waited, or had nothing to do. */
typedef struct temper_step_time {
  int64_t ns;
  int64_t busy_ns;
} temper_step_time;

#endif

#ifdef __cplusplus
extern "C" {
#endif

/* `package_dir` holds weights.bin; NULL means the folder of the library itself, wherever it was loaded from. `threads`:
 * 0 or less means TEMPER_NUM_THREADS if set, else the CPUs of the process's affinity mask. weights.bin is mapped, so
 * all models and processes share its pages: replace the file by a new one, never write into it. Each model has its own
 * threads and activations, so several models run at the same time. A forked child has none of the threads: it neither
 * runs nor destroys its parent's models, and creates its own. */
TEMPER_API int temper_model_create(const char* package_dir, int threads, temper_model** model);

/* A model that was compiled for several shapes of its inputs has a variant for each; others have one. Variants share
 * weights, threads and activations. */
TEMPER_API int temper_model_variant_count(const temper_model* model);

/* Chooses the variant, 0 at first, that functions without shapes speak of: temper_model_io, _run, _step_count and
 * _run_timed. temper_model_run_shaped needs no choice, and changes none. TEMPER_BUSY: in a run. No other thread may ask
 * temper_model_io meanwhile. */
TEMPER_API int temper_model_choose_variant(temper_model* model, int variant);

TEMPER_API int temper_model_io_count(const temper_model* model, int is_output);

/* `dtype` is ONNX's TensorProto.DataType (1 f32, 2 u8, 3 i8, 6 i32, 7 i64, 9 bool, 10 f16, 11 f64, 16 bf16, ...).
 * Elements of less than a byte are packed, the first in the low bits. The results stay valid as long as the model. Any
 * of the pointers may be NULL. May be called while another thread runs the model, so its line, and that of
 * temper_model_io_least, is temper_model_error(NULL)'s. */
TEMPER_API int temper_model_io(const temper_model* model, int is_output, int index, const char** name, int* dtype,
                               int* rank, const int64_t** shape);

/* The smallest shape that a run of the variant may have; `temper_model_io` has the largest. They differ along a
 * dimension of an input that was compiled for a range of lengths. Of an output it is the largest, too: what a run gives
 * of it depends on the inputs. */
TEMPER_API int temper_model_io_least(const temper_model* model, int is_output, int index, const int64_t** shape);

/* Runs the model. The caller owns the buffers: dense, row-major, in the order of temper_model_io. Outputs overlap
 * neither inputs nor each other. The model keeps no pointer after the call. Buffers that are aligned as the manifest's
 * caller_alignment says (16 bytes on CPUs with AVX, at most 64) are used in place, others are copied; a package for
 * CUDA copies all, also from and to memory of its GPU. A run waits for CUDA's default stream, and for no other. A run
 * allocates nothing. Only one call at a time for each model; a second one returns TEMPER_BUSY. */
TEMPER_API int temper_model_run(temper_model* model, const void* const* inputs, void* const* outputs);

/* Runs the model like temper_model_run, for a caller who states the inputs' shapes and wants to know the outputs'. The
 * variant is the first that takes these shapes. The caller fills in all fields of `inputs`; the run only reads them. In
 * `outputs` the caller fills in `data` and `bytes`, and the run fills in dtype, rank and shape. The shape of some
 * outputs depends on the inputs' values, such as of boxes that were found, or on how much of a range there is:
 * temper_model_io has the largest, which there must be room for, and the elements lie dense at the front.
 * TEMPER_INVALID_ARGUMENT: the model does not take such inputs, and the line says what it takes. TEMPER_NO_ROOM:
 * nothing has run, and the outputs say what they need. */
TEMPER_API int temper_model_run_shaped(temper_model* model, const temper_tensor* inputs, temper_tensor* outputs);

/* For profilers: the number of steps of a run. manifest.json lists them in order as `steps`. */
TEMPER_API int temper_model_step_count(const temper_model* model);

/* Runs the model like temper_model_run, and writes the times of each step to an array of temper_model_step_count. If
 * `again` is above 0, each step runs that many more times at once, on what it left in the caches. The times are then
 * those of the shortest of these repeats, and the outputs are undefined. */
TEMPER_API int temper_model_run_timed(temper_model* model, const void* const* inputs, void* const* outputs, int again,
                                      temper_step_time* times);

TEMPER_API void temper_model_destroy(temper_model* model);

/* The line of the last failed call of this model; with NULL, of the last failed create, temper_model_io or _io_least on
 * this thread. */
TEMPER_API const char* temper_model_error(const temper_model* model);

#ifdef __cplusplus
}
#endif

#endif
