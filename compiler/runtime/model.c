#define _GNU_SOURCE
#include "compiler/runtime/model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "compiler/runtime/plan.h"
#include "compiler/runtime/thread_pool.h"

enum { ALIGNMENT = 64, HUGE_PAGE = 2 << 20, ERROR_BYTES = 512 };

typedef struct region {
  char* base; /* what was mapped */
  size_t mapped;
  char* data; /* aligned */
} region;

typedef struct io_buffer {
  char* staging; /* for callers' buffers that are not aligned */
  char* current; /* the one of this run */
} io_buffer;

struct temper_model {
  const temper_plan* plan;
  temper_pool* pool;
  region weights, arena, workspace, staging;
  io_buffer* inputs;
  io_buffer* outputs;
  void** args; /* of the call being made */
  atomic_flag running;
  char error[ERROR_BYTES];
};

static _Thread_local char create_error[ERROR_BYTES];

static int fail(char* line, int code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, ERROR_BYTES, format, arguments);
  va_end(arguments);
  return code;
}

/* Zeroed memory; of whole huge pages where that wastes little, since kernels walk it in strides, and which sets of a
   cache small pages share is a matter of luck. */
static int map_region(region* r, int64_t bytes) {
  if (bytes <= 0) return 1;
  const int huge = bytes >= HUGE_PAGE / 4;
  const size_t size = huge ? ((size_t)bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE : (size_t)bytes;
  r->mapped = size + (huge ? HUGE_PAGE : 0);
  r->base = mmap(NULL, r->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (r->base == MAP_FAILED) {
    r->base = NULL;
    return 0;
  }
  r->data = r->base;
  if (huge) {
    r->data = (char*)(((uintptr_t)r->base + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    madvise(r->data, size, MADV_HUGEPAGE);
  }
  return 1;
}

static void unmap_region(region* r) {
  if (r->base) munmap(r->base, r->mapped);
}

enum { LANES = TEMPER_HASH_BLOCK / sizeof(uint64_t) };

void temper_weights_hash_begin(temper_weights_hasher* h) {
  static const uint64_t start[LANES] = {0x9e3779b97f4a7c15u, 0xbf58476d1ce4e5b9u, 0x94d049bb133111ebu,
                                        0xd6e8feb86659fd93u};
  memcpy(h->lanes, start, sizeof start);
  h->bytes = 0;
}

void temper_weights_hash_add(temper_weights_hasher* h, const void* data, size_t bytes) {
  const char* p = data;
  h->bytes += bytes;
  for (; bytes >= TEMPER_HASH_BLOCK; bytes -= TEMPER_HASH_BLOCK, p += TEMPER_HASH_BLOCK) {
    for (int i = 0; i < LANES; ++i) {
      uint64_t word;
      memcpy(&word, p + i * sizeof word, sizeof word);
      h->lanes[i] = (h->lanes[i] ^ word) * 0x9fb21c651e98df25u;
      h->lanes[i] ^= h->lanes[i] >> 32;
    }
  }
}

uint64_t temper_weights_hash_end(const temper_weights_hasher* h, const void* rest, size_t bytes) {
  uint64_t hash = h->bytes + bytes;
  for (int i = 0; i < LANES; ++i) hash = (hash ^ h->lanes[i]) * 0x9fb21c651e98df25u, hash ^= hash >> 29;
  for (const char* p = rest; bytes > 0; --bytes, ++p) hash = (hash ^ (unsigned char)*p) * 0x100000001b3u;
  return hash ^ hash >> 32;
}

uint64_t temper_weights_hash(const void* data, size_t bytes) {
  const size_t blocks = bytes / TEMPER_HASH_BLOCK * TEMPER_HASH_BLOCK;
  temper_weights_hasher h;
  temper_weights_hash_begin(&h);
  temper_weights_hash_add(&h, data, blocks);
  return temper_weights_hash_end(&h, (const char*)data + blocks, bytes - blocks);
}

static int64_t round_up(int64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static int read_weights(temper_model* m, const char* path) {
  const temper_plan* plan = m->plan;
  if (plan->weight_bytes == 0) return 0;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail(create_error, TEMPER_NO_PACKAGE, "cannot open %s: %s", path, strerror(errno));
  struct stat info;
  int code = 0;
  if (fstat(fd, &info) != 0 || info.st_size != plan->weight_bytes) {
    code = fail(create_error, TEMPER_NO_PACKAGE, "%s is not the weights of this model: it should have %lld bytes", path,
                (long long)plan->weight_bytes);
  } else if (!map_region(&m->weights, plan->weight_bytes)) {
    code =
        fail(create_error, TEMPER_NO_RESOURCES, "no memory for %lld bytes of weights", (long long)plan->weight_bytes);
  }
  for (int64_t done = 0; code == 0 && done < plan->weight_bytes;) {
    const ssize_t got = read(fd, m->weights.data + done, (size_t)(plan->weight_bytes - done));
    if (got > 0)
      done += got;
    else if (got == 0 || errno != EINTR)
      code = fail(create_error, TEMPER_NO_PACKAGE, "cannot read %s", path);
  }
  close(fd);
  if (code) return code;
  if (temper_weights_hash(m->weights.data, (size_t)plan->weight_bytes) != plan->weight_hash) {
    return fail(create_error, TEMPER_NO_PACKAGE, "%s is damaged, or of another compilation of this model", path);
  }
  mprotect(m->weights.base, m->weights.mapped, PROT_READ);
  return 0;
}

static int allocate(temper_model* m) {
  const temper_plan* plan = m->plan;
  const int64_t threads = temper_pool_launcher(m->pool)->threads;
  int64_t workspace = 0, staging = 0, max_args = 1;
  for (int64_t i = 0; i < plan->num_steps; ++i) {
    const temper_step* s = &plan->steps[i];
    const int64_t bytes = s->workspace_bytes + threads * s->thread_workspace_bytes;
    if (threads > plan->scratch_threads && bytes > workspace) workspace = bytes;
    if (s->num_args > max_args) max_args = s->num_args;
  }
  for (int64_t i = 0; i < plan->num_inputs; ++i) staging += round_up(plan->inputs[i].bytes);
  for (int64_t i = 0; i < plan->num_outputs; ++i) staging += round_up(plan->outputs[i].bytes);
  m->inputs = calloc((size_t)plan->num_inputs + 1, sizeof *m->inputs);
  m->outputs = calloc((size_t)plan->num_outputs + 1, sizeof *m->outputs);
  m->args = calloc((size_t)max_args, sizeof *m->args);
  if (!m->inputs || !m->outputs || !m->args || !map_region(&m->arena, plan->arena_bytes) ||
      !map_region(&m->workspace, workspace) || !map_region(&m->staging, staging)) {
    return fail(create_error, TEMPER_NO_RESOURCES, "no memory for %lld bytes of activations and scratch",
                (long long)(plan->arena_bytes + workspace + staging));
  }
  /* Page faults belong to create, not to the first run; staging is rarely needed and stays untouched. */
  if (m->arena.data) memset(m->arena.data, 0, (size_t)plan->arena_bytes);
  if (m->workspace.data) memset(m->workspace.data, 0, (size_t)workspace);
  char* next = m->staging.data;
  for (int64_t i = 0; i < plan->num_inputs; next += round_up(plan->inputs[i++].bytes)) m->inputs[i].staging = next;
  for (int64_t i = 0; i < plan->num_outputs; next += round_up(plan->outputs[i++].bytes)) m->outputs[i].staging = next;
  return 0;
}

int temper_model_create_from_plan(const temper_plan* plan, const char* weights, int threads, temper_model** model) {
  *model = NULL;
  if (plan->version != TEMPER_PLAN_VERSION) {
    return fail(create_error, TEMPER_NO_PACKAGE, "the package has plan version %lld, this runtime reads %d",
                (long long)plan->version, TEMPER_PLAN_VERSION);
  }
  char missing[ERROR_BYTES / 2];
  if (temper_cpu_lacks(plan->cpu_features, plan->num_cpu_features, missing, sizeof missing)) {
    return fail(create_error, TEMPER_WRONG_CPU, "this CPU lacks %s: compile the model for it", missing);
  }
  temper_model* m = calloc(1, sizeof *m);
  if (!m) return fail(create_error, TEMPER_NO_RESOURCES, "no memory");
  m->plan = plan;
  atomic_flag_clear(&m->running);
  int code = read_weights(m, weights);
  if (code == 0 && !(m->pool = temper_pool_create(threads))) {
    code = fail(create_error, TEMPER_NO_RESOURCES, "cannot start %d threads", temper_pool_resolve_threads(threads));
  }
  if (code == 0) code = allocate(m);
  if (code != 0) {
    temper_model_destroy(m);
    return code;
  }
  *model = m;
  return TEMPER_OK;
}

void temper_model_destroy(temper_model* m) {
  if (!m) return;
  temper_pool_destroy(m->pool);
  unmap_region(&m->weights);
  unmap_region(&m->arena);
  unmap_region(&m->workspace);
  unmap_region(&m->staging);
  free(m->inputs);
  free(m->outputs);
  free(m->args);
  free(m);
}

int temper_model_io_count(const temper_model* m, int is_output) {
  if (!m) return 0;
  return (int)(is_output ? m->plan->num_outputs : m->plan->num_inputs);
}

int temper_model_io(const temper_model* m, int is_output, int index, const char** name, int* dtype, int* rank,
                    const int64_t** shape) {
  if (!m) return fail(create_error, TEMPER_INVALID_ARGUMENT, "no model");
  if (index < 0 || index >= temper_model_io_count(m, is_output)) {
    return fail(((temper_model*)m)->error, TEMPER_INVALID_ARGUMENT, "there is no %s %d", is_output ? "output" : "input",
                index);
  }
  const temper_io* io = is_output ? &m->plan->outputs[index] : &m->plan->inputs[index];
  if (name) *name = io->name;
  if (dtype) *dtype = (int)io->dtype;
  if (rank) *rank = (int)io->rank;
  if (shape) *shape = io->shape;
  return TEMPER_OK;
}

static int is_aligned(const void* p) { return (uintptr_t)p % ALIGNMENT == 0; }

static int take_buffers(temper_model* m, const void* const* inputs, void* const* outputs) {
  const temper_plan* plan = m->plan;
  for (int64_t i = 0; i < plan->num_inputs; ++i) {
    if (!inputs || !inputs[i]) {
      return fail(m->error, TEMPER_INVALID_ARGUMENT, "input %s is null", plan->inputs[i].name);
    }
    m->inputs[i].current = is_aligned(inputs[i]) ? (char*)inputs[i] : m->inputs[i].staging;
    if (m->inputs[i].current != inputs[i]) memcpy(m->inputs[i].current, inputs[i], (size_t)plan->inputs[i].bytes);
  }
  for (int64_t i = 0; i < plan->num_outputs; ++i) {
    if (!outputs || !outputs[i]) {
      return fail(m->error, TEMPER_INVALID_ARGUMENT, "output %s is null", plan->outputs[i].name);
    }
    m->outputs[i].current = is_aligned(outputs[i]) ? (char*)outputs[i] : m->outputs[i].staging;
  }
  return TEMPER_OK;
}

static char* resolve(const temper_model* m, const temper_arg* a) {
  switch (a->kind) {
    case TEMPER_ARG_INPUT:
      return m->inputs[a->index].current + a->offset;
    case TEMPER_ARG_OUTPUT:
      return m->outputs[a->index].current + a->offset;
    case TEMPER_ARG_ARENA:
      return m->arena.data + a->offset;
    default:
      return m->weights.data + a->offset;
  }
}

static void run_step(temper_model* m, const temper_step* s, temper_launcher* launcher) {
  for (int64_t a = 0; a < s->num_args; ++a) m->args[a] = resolve(m, &s->args[a]);
  if (s->kernel)
    s->kernel(m->args, m->workspace.data ? m->workspace.data : m->arena.data + s->workspace_offset, launcher);
  else
    memcpy(m->args[1], m->args[0], (size_t)s->copy_bytes);
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* `step_ns` may be NULL: nothing is timed then. */
static void run_steps(temper_model* m, int64_t* step_ns) {
  const temper_plan* plan = m->plan;
  temper_launcher* launcher = temper_pool_launcher(m->pool);
  temper_pool_settle_caller(m->pool);
  if (!step_ns) {
    for (int64_t i = 0; i < plan->num_steps; ++i) run_step(m, &plan->steps[i], launcher);
    return;
  }
  for (int64_t i = 0, start = now_ns(); i < plan->num_steps; ++i) {
    run_step(m, &plan->steps[i], launcher);
    const int64_t end = now_ns();
    step_ns[i] = end - start;
    start = end;
  }
}

static int run(temper_model* m, const void* const* inputs, void* const* outputs, int64_t* step_ns) {
  if (atomic_flag_test_and_set_explicit(&m->running, memory_order_acquire)) return TEMPER_BUSY;
  const int code = take_buffers(m, inputs, outputs);
  if (code == 0) {
    run_steps(m, step_ns);
    for (int64_t i = 0; i < m->plan->num_outputs; ++i) {
      if (m->outputs[i].current != outputs[i]) {
        memcpy(outputs[i], m->outputs[i].current, (size_t)m->plan->outputs[i].bytes);
      }
    }
  }
  atomic_flag_clear_explicit(&m->running, memory_order_release);
  return code;
}

int temper_model_run(temper_model* m, const void* const* inputs, void* const* outputs) {
  if (!m) return fail(create_error, TEMPER_INVALID_ARGUMENT, "no model");
  return run(m, inputs, outputs, NULL);
}

int temper_model_step_count(const temper_model* m) { return m ? (int)m->plan->num_steps : 0; }

int temper_model_run_timed(temper_model* m, const void* const* inputs, void* const* outputs, int64_t* step_ns) {
  if (!m) return fail(create_error, TEMPER_INVALID_ARGUMENT, "no model");
  if (!step_ns) return fail(m->error, TEMPER_INVALID_ARGUMENT, "there is no place for the steps' times");
  return run(m, inputs, outputs, step_ns);
}

const char* temper_model_error(const temper_model* m) { return m ? m->error : create_error; }

int temper_model_set_create_error(int code, const char* line) { return fail(create_error, code, "%s", line); }
