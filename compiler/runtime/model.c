#define _GNU_SOURCE
#include "include/temper/model.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compiler/runtime/busy_launcher.h"
#include "compiler/runtime/monotonic.h"
#include "compiler/runtime/on_device.h"
#include "compiler/runtime/plan.h"
#include "compiler/runtime/shapes.h"
#include "compiler/runtime/thread_pool.h"

enum { ALIGNMENT = 64, HUGE_PAGE = 2 << 20, ERROR_BYTES = 512 };

typedef struct region {
  char* base; /* what was mapped */
  size_t mapped;
  char* data; /* aligned */
} region;

typedef struct io_buffer {
  char* staging;                  /* for callers' buffers that are not aligned */
  char* caller;                   /* of this run */
  char* current;                  /* the one that kernels meet: the caller's, or staging */
  int64_t told;                   /* of what callers do not see: it lies here */
  int64_t shape[TEMPER_MAX_RANK]; /* of an input of ranges: what it has in this run */
} io_buffer;

/* A plan's weights, for all of its models in this process. */
typedef struct shared_weights {
  const temper_plan* plan;
  region region;   /* of the host */
  void* on_device; /* or memory of the plan's device */
  int64_t users;
  struct shared_weights* next;
} shared_weights;

struct temper_model {
  const temper_plan* plan;
  const temper_variant* chosen;  /* that functions without shapes speak of */
  const temper_variant* variant; /* of the latest run, or of the one under way */
  const temper_sequence* run;    /* its first */
  temper_pool* pool;
  shared_weights* weights;      /* NULL: the plan has none */
  temper_on_device** on_device; /* by variant; NULL: all is the host's */
  void* device_arena;           /* of all variants */
  region arena, workspace, staging;
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

/* Of what a plan's device was asked in vain: what the device says of it stands behind the line. Returns `code`. */
static int device_failed(const temper_plan* plan, char* line, int code) {
  const char* why = (*plan->device)->error();
  const size_t used = strlen(line);
  if (*why) snprintf(line + used, ERROR_BYTES - used, ": %s", why);
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

static int64_t round_up(int64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static int memory_of(const temper_plan* plan) { return plan->device ? TEMPER_MEMORY_DEVICE : TEMPER_MEMORY_HOST; }
static int64_t weight_bytes(const temper_plan* plan) { return plan->weight_bytes[memory_of(plan)]; }

/* Of every create, so that it does not depend on who came before. The size is that of the file that was opened: the
   path may name another one at any time, and pages behind a file's end end the process. */
static int open_weights(const temper_plan* plan, const char* path, int* fd) {
  const int64_t bytes = weight_bytes(plan);
  struct stat info;
  *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (*fd < 0 || fstat(*fd, &info) != 0)
    return fail(create_error, TEMPER_NO_PACKAGE, "cannot open %s: %s", path, strerror(errno));
  if (info.st_size == bytes) return TEMPER_OK;
  return fail(create_error, TEMPER_NO_PACKAGE, "%s is not the weights of this model: it should have %lld bytes", path,
              (long long)bytes);
}

/* The file of a plan's weights, mapped. */
typedef struct weights_file {
  const char* data;
  int64_t bytes;
  uint64_t* hashes; /* of the chunks */
  atomic_int failed;
} weights_file;

/* A body of the launcher, for chunks of the weights that `closure` points to. Pages are mapped many at a time, and a
   disk that fails is told of here instead of by a signal; kernels older than Linux 5.14 can do neither, and map each
   page as it is touched. */
static void hash_chunks(void* closure, int64_t begin, int64_t end, int32_t thread) {
  (void)thread;
  weights_file* f = closure;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t at = i * TEMPER_HASH_CHUNK;
    const size_t bytes = (size_t)(f->bytes - at < TEMPER_HASH_CHUNK ? f->bytes - at : TEMPER_HASH_CHUNK);
    if (madvise((void*)(f->data + at), bytes, MADV_POPULATE_READ) != 0 && errno != EINVAL) {
      atomic_store(&f->failed, 1);
      return;
    }
    f->hashes[i] = temper_weights_hash_chunk(f->data + at, bytes);
  }
}

static int hash_whole(weights_file* f, temper_pool* pool, uint64_t* hash) {
  const int64_t chunks = (f->bytes + TEMPER_HASH_CHUNK - 1) / TEMPER_HASH_CHUNK;
  f->hashes = malloc((size_t)chunks * sizeof *f->hashes);
  if (!f->hashes) return 0;
  temper_launcher* launcher = temper_pool_launcher(pool);
  temper_pool_settle_caller(pool);
  launcher->parallel_for(launcher, chunks, hash_chunks, f);
  *hash = 0;
  for (int64_t i = 0; i < chunks && !f->failed; ++i) *hash = temper_weights_hash_join(*hash, f->hashes[i]);
  free(f->hashes);
  return !f->failed;
}

/* The file itself is the memory: what the page cache holds is not copied, and processes of one package share it. As the
   library's own file, it is replaced by a new one and never written, which `temper compile` keeps to. */
static int map_weights(const temper_plan* plan, const char* path, int fd, temper_pool* pool, region* weights) {
  weights_file f = {.bytes = weight_bytes(plan)};
  void* mapped = mmap(NULL, (size_t)f.bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (mapped == MAP_FAILED)
    return fail(create_error, TEMPER_NO_RESOURCES, "cannot map %lld bytes of weights", (long long)f.bytes);
  *weights = (region){.base = mapped, .mapped = (size_t)f.bytes, .data = mapped};
  f.data = mapped;
  uint64_t hash = 0;
  if (!hash_whole(&f, pool, &hash)) return fail(create_error, TEMPER_NO_PACKAGE, "cannot read %s", path);
  if (hash != plan->weight_hash)
    return fail(create_error, TEMPER_NO_PACKAGE, "%s is damaged, or of another compilation of this model", path);
  return 0;
}

static void free_weights(shared_weights* w) {
  if (w->on_device) (*w->plan->device)->release(w->on_device);
  unmap_region(&w->region);
  free(w);
}

/* From the host's memory, which they leave. */
static int move_to_device(shared_weights* w) {
  const temper_device* device = *w->plan->device;
  const int64_t bytes = weight_bytes(w->plan);
  w->on_device = device->allocate(bytes);
  const int code = w->on_device ? device->write(w->on_device, 0, w->region.data, bytes) : TEMPER_NO_RESOURCES;
  if (code != 0) {
    fail(create_error, code, "the device does not take %lld bytes of weights", (long long)bytes);
    return device_failed(w->plan, create_error, code);
  }
  unmap_region(&w->region);
  w->region = (region){0};
  return 0;
}

static pthread_mutex_t weights_lock = PTHREAD_MUTEX_INITIALIZER;
static shared_weights* all_weights; /* of all models that live, by plan */

/* Whoever comes first maps the file and checks its hash; who comes meanwhile waits for it. */
static int share_weights(temper_model* m, const char* path, int fd) {
  int code = 0;
  pthread_mutex_lock(&weights_lock);
  shared_weights* w = all_weights;
  while (w && w->plan != m->plan) w = w->next;
  if (!w) {
    w = calloc(1, sizeof *w);
    if (w) w->plan = m->plan;
    code =
        w ? map_weights(m->plan, path, fd, m->pool, &w->region) : fail(create_error, TEMPER_NO_RESOURCES, "no memory");
    if (code == 0 && m->plan->device) code = move_to_device(w);
    if (code == 0) {
      w->next = all_weights;
      all_weights = w;
    } else if (w) {
      free_weights(w);
    }
  }
  if (code == 0) {
    ++w->users;
    m->weights = w;
  }
  pthread_mutex_unlock(&weights_lock);
  return code;
}

static int take_weights(temper_model* m, const char* path) {
  if (weight_bytes(m->plan) == 0) return 0;
  int fd = -1;
  int code = open_weights(m->plan, path, &fd);
  if (code == 0) code = share_weights(m, path, fd);
  if (fd >= 0) close(fd);
  return code;
}

static void leave_weights(shared_weights* w) {
  if (!w) return;
  pthread_mutex_lock(&weights_lock);
  const int last = --w->users == 0;
  if (last) {
    shared_weights** link = &all_weights;
    while (*link != w) link = &(*link)->next;
    *link = w->next;
  }
  pthread_mutex_unlock(&weights_lock);
  if (last) free_weights(w);
}

/* A body of the launcher: the huge pages of the region that `closure` points to. */
static void zero_pages(void* closure, int64_t begin, int64_t end, int32_t thread) {
  (void)thread;
  const region* r = closure;
  const int64_t room = r->base + r->mapped - r->data;
  for (int64_t at = begin * HUGE_PAGE; at < end * HUGE_PAGE && at < room; at += HUGE_PAGE)
    memset(r->data + at, 0, (size_t)(room - at < HUGE_PAGE ? room - at : HUGE_PAGE));
}

/* Page faults belong to create, not to the first run; all threads take their part of them. */
static void touch(temper_pool* pool, region* r, int64_t bytes) {
  temper_launcher* launcher = temper_pool_launcher(pool);
  if (r->data) launcher->parallel_for(launcher, (bytes + HUGE_PAGE - 1) / HUGE_PAGE, zero_pages, r);
}

/* What runs of any variant need at most. */
typedef struct needs {
  int64_t arena, workspace, staging; /* bytes; the arena is the host's or the device's */
  int64_t args, inputs, outputs;
} needs;

static void raise_to(int64_t* most, int64_t value) {
  if (value > *most) *most = value;
}

static void add_needs(const temper_variant* v, int memory, int64_t threads, needs* n) {
  int64_t staging = 0;
  for (int64_t i = 0; i < v->sequences->num_steps; ++i) {
    const temper_step* s = &v->sequences->steps[i];
    if (threads > v->scratch_threads) raise_to(&n->workspace, s->workspace_bytes + threads * s->thread_workspace_bytes);
    raise_to(&n->args, s->num_args);
  }
  for (int64_t i = 0; i < v->num_inputs; ++i) staging += round_up(v->inputs[i].bytes);
  for (int64_t i = 0; i < v->num_outputs; ++i) staging += round_up(v->outputs[i].bytes);
  raise_to(&n->staging, staging);
  raise_to(&n->arena, v->arena_bytes[memory]);
  raise_to(&n->inputs, v->num_inputs);
  raise_to(&n->outputs, v->num_outputs);
}

static int allocate_on_host(temper_model* m, const needs* n) {
  m->args = calloc((size_t)n->args, sizeof *m->args);
  if (!m->args || !map_region(&m->arena, n->arena) || !map_region(&m->workspace, n->workspace)) {
    return fail(create_error, TEMPER_NO_RESOURCES, "no memory for %lld bytes of activations and scratch",
                (long long)(n->arena + n->workspace));
  }
  temper_pool_settle_caller(m->pool);
  touch(m->pool, &m->arena, n->arena);
  touch(m->pool, &m->workspace, n->workspace);
  return 0;
}

static int allocate_on_device(temper_model* m, const needs* n) {
  const temper_plan* plan = m->plan;
  m->on_device = calloc((size_t)plan->num_variants, sizeof *m->on_device);
  if (m->on_device && n->arena > 0) m->device_arena = (*plan->device)->allocate(n->arena);
  int whole = m->on_device && (n->arena == 0 || m->device_arena);
  for (int64_t i = 0; whole && i < plan->num_variants; ++i) {
    void* weights = m->weights ? m->weights->on_device : NULL;
    m->on_device[i] = temper_on_device_create(*plan->device, &plan->variants[i], weights, m->device_arena);
    whole = m->on_device[i] != NULL;
  }
  if (whole) return 0;
  fail(create_error, TEMPER_NO_RESOURCES, "the device has no %lld bytes for activations and scratch",
       (long long)n->arena);
  return device_failed(plan, create_error, TEMPER_NO_RESOURCES);
}

static int allocate(temper_model* m) {
  const temper_plan* plan = m->plan;
  needs n = {.args = 1};
  for (int64_t i = 0; i < plan->num_variants; ++i)
    add_needs(&plan->variants[i], memory_of(plan), temper_pool_launcher(m->pool)->threads, &n);
  m->inputs = calloc((size_t)n.inputs + 1, sizeof *m->inputs);
  m->outputs = calloc((size_t)n.outputs + 1, sizeof *m->outputs);
  /* Staging is rarely needed and stays untouched. */
  if (!m->inputs || !m->outputs || !map_region(&m->staging, n.staging))
    return fail(create_error, TEMPER_NO_RESOURCES, "no memory for %lld bytes of inputs and outputs",
                (long long)n.staging);
  return plan->device ? allocate_on_device(m, &n) : allocate_on_host(m, &n);
}

static temper_on_device* device_of(const temper_model* m) {
  return m->on_device ? m->on_device[m->variant - m->plan->variants] : NULL;
}

/* The run to come is of this variant. */
static void use(temper_model* m, const temper_variant* v) {
  if (m->variant == v) return;
  m->variant = v;
  m->run = v->sequences;
  char* next = m->staging.data;
  for (int64_t i = 0; i < v->num_inputs; next += round_up(v->inputs[i++].bytes)) m->inputs[i].staging = next;
  for (int64_t i = 0; i < v->num_outputs; next += round_up(v->outputs[i++].bytes)) m->outputs[i].staging = next;
  for (int64_t i = v->num_given; i < v->num_inputs; ++i) m->inputs[i].caller = (char*)&m->inputs[i].told;
  for (int64_t i = v->num_results; i < v->num_outputs; ++i) m->outputs[i].caller = (char*)&m->outputs[i].told;
}

/* The run to come has an input of this shape. */
static void use_shape(temper_model* m, int64_t input, const int64_t* shape) {
  const temper_io* io = &m->variant->inputs[input];
  if (io->num_extents == 0) return;
  memcpy(m->inputs[input].shape, shape, (size_t)io->rank * sizeof *shape);
  for (int64_t e = 0; e < io->num_extents; ++e) m->inputs[io->extents[e].told_by].told = shape[io->extents[e].axis];
}

static int has_high_rank(const temper_io* list, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (list[i].rank > TEMPER_MAX_RANK) return 1;
  }
  return 0;
}

/* Whether what callers see has extents along axes of it, and others tell them: from the `first` on. */
static int are_told(const temper_io* io, int is_seen, int64_t first, int64_t end) {
  for (int64_t e = 0; e < io->num_extents; ++e) {
    const temper_extent* extent = &io->extents[e];
    if (!is_seen || extent->told_by < first || extent->told_by >= end) return 0;
    if (extent->axis < (e > 0 ? extent[-1].axis + 1 : 0) || extent->axis >= io->rank) return 0;
  }
  return 1;
}

/* What a variant of the plan wants of a runtime and this one does not have; NULL: nothing. */
static const char* unsupported_of(const temper_plan* plan, const temper_variant* v) {
  if (v->num_given != plan->variants->num_given || v->num_results != plan->variants->num_results)
    return "variants of other inputs or outputs";
  if (v->arena_bytes[TEMPER_NUM_MEMORIES - 1 - memory_of(plan)] != 0) return "memory of the host and of a device";
  if (v->num_sequences != 1) return "branches or loops";
  if (has_high_rank(v->inputs, v->num_inputs) || has_high_rank(v->outputs, v->num_outputs))
    return "inputs or outputs of more dimensions than temper_tensor";
  for (int64_t i = 0; i < v->num_inputs; ++i) {
    const temper_io* io = &v->inputs[i];
    if (!io->least != !io->num_extents || !are_told(io, i < v->num_given, v->num_given, v->num_inputs))
      return "ranges that no input tells";
  }
  for (int64_t i = 0; i < v->num_outputs; ++i) {
    if (v->outputs[i].least) return "outputs of several shapes";
    if (!are_told(&v->outputs[i], i < v->num_results, v->num_results, v->num_outputs))
      return "extents that no output tells";
  }
  for (int64_t i = 0; i < v->sequences[0].num_steps; ++i) {
    const int64_t kind = v->sequences[0].steps[i].kind;
    if (kind != TEMPER_STEP_KERNEL && kind != TEMPER_STEP_COPY) return "branches or loops";
  }
  return NULL;
}

static const char* unsupported(const temper_plan* plan) {
  if (plan->num_variants < 1) return "no variant";
  if (plan->weight_bytes[TEMPER_NUM_MEMORIES - 1 - memory_of(plan)] != 0) return "memory of the host and of a device";
  for (int memory = 0; memory < TEMPER_NUM_MEMORIES; ++memory) {
    if (plan->state_bytes[memory] != 0) return "state between runs";
  }
  const char* wanted = NULL;
  for (int64_t i = 0; i < plan->num_variants && !wanted; ++i) wanted = unsupported_of(plan, &plan->variants[i]);
  return wanted;
}

int temper_model_create_from_plan(const temper_plan* plan, const char* weights, int threads, temper_model** model) {
  *model = NULL;
  if (plan->version != TEMPER_PLAN_VERSION) {
    return fail(create_error, TEMPER_NO_PACKAGE, "the package has plan version %lld, this runtime reads %d",
                (long long)plan->version, TEMPER_PLAN_VERSION);
  }
  const char* wanted = unsupported(plan);
  if (wanted) return fail(create_error, TEMPER_NO_PACKAGE, "the package has %s, which this runtime has not", wanted);
  char missing[ERROR_BYTES / 2];
  if (temper_cpu_lacks(plan->cpu_features, plan->num_cpu_features, missing, sizeof missing)) {
    return fail(create_error, TEMPER_WRONG_CPU, "this CPU lacks %s: compile the model for it", missing);
  }
  char why[ERROR_BYTES];
  if (plan->device && !temper_on_device_find(plan, why, sizeof why))
    return fail(create_error, TEMPER_NO_PACKAGE, "%s", why);
  temper_model* m = calloc(1, sizeof *m);
  if (!m) return fail(create_error, TEMPER_NO_RESOURCES, "no memory");
  m->plan = plan;
  m->chosen = plan->variants;
  atomic_flag_clear(&m->running);
  int code = 0;
  if (!(m->pool = temper_pool_create(plan->device ? 1 : threads)))
    code = fail(create_error, TEMPER_NO_RESOURCES, "cannot start %d threads", temper_pool_resolve_threads(threads));
  if (code == 0) code = take_weights(m, weights);
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
  for (int64_t i = 0; m->on_device && i < m->plan->num_variants; ++i) temper_on_device_destroy(m->on_device[i]);
  if (m->device_arena) (*m->plan->device)->release(m->device_arena);
  leave_weights(m->weights);
  unmap_region(&m->arena);
  unmap_region(&m->workspace);
  unmap_region(&m->staging);
  free(m->on_device);
  free(m->inputs);
  free(m->outputs);
  free(m->args);
  free(m);
}

static int enter(temper_model* m) { return !atomic_flag_test_and_set_explicit(&m->running, memory_order_acquire); }

static int leave(temper_model* m, int code) {
  atomic_flag_clear_explicit(&m->running, memory_order_release);
  return code;
}

int temper_model_variant_count(const temper_model* m) { return m ? (int)m->plan->num_variants : 0; }

int temper_model_choose_variant(temper_model* m, int variant) {
  if (!m) return fail(create_error, TEMPER_INVALID_ARGUMENT, "no model");
  if (!enter(m)) return TEMPER_BUSY;
  const int there_is = variant >= 0 && variant < m->plan->num_variants;
  if (there_is) m->chosen = &m->plan->variants[variant];
  return leave(m, there_is ? TEMPER_OK : fail(m->error, TEMPER_INVALID_ARGUMENT, "there is no variant %d", variant));
}

int temper_model_io_count(const temper_model* m, int is_output) {
  if (!m) return 0;
  return (int)(is_output ? m->chosen->num_results : m->chosen->num_given);
}

/* The model's own line is that of a run, which may be under way in another thread. */
static int find_io(const temper_model* m, int is_output, int index, const temper_io** io) {
  if (!m) return fail(create_error, TEMPER_INVALID_ARGUMENT, "no model");
  if (index < 0 || index >= temper_model_io_count(m, is_output))
    return fail(create_error, TEMPER_INVALID_ARGUMENT, "there is no %s %d", is_output ? "output" : "input", index);
  *io = is_output ? &m->chosen->outputs[index] : &m->chosen->inputs[index];
  return TEMPER_OK;
}

int temper_model_io(const temper_model* m, int is_output, int index, const char** name, int* dtype, int* rank,
                    const int64_t** shape) {
  const temper_io* io = NULL;
  const int code = find_io(m, is_output, index, &io);
  if (code != TEMPER_OK) return code;
  if (name) *name = io->name;
  if (dtype) *dtype = (int)io->dtype;
  if (rank) *rank = (int)io->rank;
  if (shape) *shape = io->shape;
  return TEMPER_OK;
}

int temper_model_io_least(const temper_model* m, int is_output, int index, const int64_t** shape) {
  const temper_io* io = NULL;
  const int code = find_io(m, is_output, index, &io);
  if (code == TEMPER_OK && shape) *shape = io->least ? io->least : io->shape;
  return code;
}

static int is_aligned(const temper_model* m, const void* p) { return (uintptr_t)p % m->plan->caller_alignment == 0; }

/* What has no elements may lie nowhere. */
static int lies(const io_buffer* b, int64_t bytes) { return b->caller || bytes == 0; }

static int check_buffers(temper_model* m) {
  const temper_variant* v = m->variant;
  for (int64_t i = 0; i < v->num_inputs; ++i) {
    if (!lies(&m->inputs[i], temper_bytes_of(&v->inputs[i], m->inputs[i].shape)))
      return fail(m->error, TEMPER_INVALID_ARGUMENT, "input %s is null", v->inputs[i].name);
  }
  for (int64_t i = 0; i < v->num_outputs; ++i) {
    if (!lies(&m->outputs[i], v->outputs[i].bytes))
      return fail(m->error, TEMPER_INVALID_ARGUMENT, "output %s is null", v->outputs[i].name);
  }
  return TEMPER_OK;
}

/* What there is of an input, and zeros behind it where they are met: places among them are places of something. */
static void copy_input(const temper_io* io, const io_buffer* b) {
  temper_pieces pieces = temper_pieces_of(io, b->shape);
  temper_piece p;
  while (temper_next_piece(&pieces, &p)) {
    for (int64_t i = 0; i < p.times; ++i) {
      char* to = b->staging + p.to + i * p.stride;
      if (p.bytes > 0) memcpy(to, b->caller + p.from + i * p.bytes, (size_t)p.bytes);
      if (!io->unread) memset(to + p.bytes, 0, (size_t)temper_zeros_behind(&p, i));
    }
  }
}

/* The callers' buffers become those that kernels meet. */
static void take_buffers(temper_model* m) {
  const temper_variant* v = m->variant;
  for (int64_t i = 0; i < v->num_inputs; ++i) {
    io_buffer* b = &m->inputs[i];
    const int is_whole = temper_bytes_of(&v->inputs[i], b->shape) == v->inputs[i].bytes;
    b->current = is_whole && is_aligned(m, b->caller) ? b->caller : b->staging;
    if (b->current != b->caller) copy_input(&v->inputs[i], b);
  }
  for (int64_t i = 0; i < v->num_outputs; ++i) {
    io_buffer* b = &m->outputs[i];
    b->current = is_aligned(m, b->caller) ? b->caller : b->staging;
  }
}

/* What lies in staging goes where the callers want it. */
static void give_buffers(temper_model* m) {
  for (int64_t i = 0; i < m->variant->num_outputs; ++i) {
    const io_buffer* b = &m->outputs[i];
    if (b->current != b->caller) memcpy(b->caller, b->current, (size_t)m->variant->outputs[i].bytes);
  }
}

/* As copy_input. The caller's may lie on the device already; staging is never written there, and so is zeros. */
static int write_input(temper_model* m, int64_t index) {
  const io_buffer* b = &m->inputs[index];
  const temper_io* io = &m->variant->inputs[index];
  temper_pieces pieces = temper_pieces_of(io, b->shape);
  temper_piece p;
  int code = TEMPER_OK;
  while (code == TEMPER_OK && temper_next_piece(&pieces, &p)) {
    for (int64_t i = 0; i < p.times && code == TEMPER_OK; ++i) {
      const int64_t to = p.to + i * p.stride, zeros = io->unread ? 0 : temper_zeros_behind(&p, i);
      code = temper_on_device_write_input(device_of(m), index, to, b->caller + p.from + i * p.bytes, p.bytes);
      if (code == TEMPER_OK)
        code = temper_on_device_write_input(device_of(m), index, to + p.bytes, m->staging.data, zeros);
    }
  }
  return code;
}

static int write_to_device(temper_model* m) {
  int code = TEMPER_OK;
  for (int64_t i = 0; i < m->variant->num_inputs && code == TEMPER_OK; ++i) {
    code = write_input(m, i);
    if (code != TEMPER_OK) fail(m->error, code, "the device does not take input %s", m->variant->inputs[i].name);
  }
  return code == TEMPER_OK ? code : device_failed(m->plan, m->error, code);
}

static int read_from_device(temper_model* m) {
  int code = TEMPER_OK;
  for (int64_t i = 0; i < m->variant->num_outputs && code == TEMPER_OK; ++i) {
    code = temper_on_device_read_output(device_of(m), i, m->outputs[i].caller);
    if (code != TEMPER_OK) fail(m->error, code, "the device does not give output %s", m->variant->outputs[i].name);
  }
  return code == TEMPER_OK ? code : device_failed(m->plan, m->error, code);
}

static char* resolve(const temper_model* m, const temper_arg* a) {
  switch (a->kind) {
    case TEMPER_ARG_INPUT:
      return m->inputs[a->index].current + a->offset;
    case TEMPER_ARG_OUTPUT:
      return m->outputs[a->index].current + a->offset;
    case TEMPER_ARG_ARENA:
      return m->arena.data + a->offset;
    default: /* constants without elements need no weights */
      return m->weights ? m->weights->region.data + a->offset : NULL;
  }
}

static int told(temper_model* m, const temper_step* s, int code) {
  if (code == TEMPER_OK) return code;
  fail(m->error, code, "kernel %s failed with code %d", s->name, code);
  return m->on_device ? device_failed(m->plan, m->error, code) : code;
}

static int run_step(temper_model* m, int64_t index, temper_launcher* launcher) {
  const temper_step* s = &m->run->steps[index];
  if (s->least > 0 && m->inputs[s->extent].told < s->least) return TEMPER_OK;
  for (int64_t a = 0; a < s->num_args; ++a) m->args[a] = resolve(m, &s->args[a]);
  if (s->kind == TEMPER_STEP_COPY) {
    memcpy(m->args[1], m->args[0], (size_t)s->bytes);
    return TEMPER_OK;
  }
  char* workspace = m->workspace.data ? m->workspace.data : m->arena.data + s->workspace_offset;
  return told(m, s, temper_call_on_host(s->kernel, m->args, workspace, launcher));
}

static int run_on_device(temper_model* m) {
  int64_t failed = 0;
  const int code = temper_on_device_run(device_of(m), &failed);
  if (code == TEMPER_OK) return code;
  if (failed >= 0) return told(m, &m->run->steps[failed], code);
  fail(m->error, code, "the device does not run its kernels again");
  return device_failed(m->plan, m->error, code);
}

static int run_steps(temper_model* m) {
  if (m->on_device) return run_on_device(m);
  temper_launcher* launcher = temper_pool_launcher(m->pool);
  temper_pool_settle_caller(m->pool);
  int code = TEMPER_OK;
  for (int64_t i = 0; i < m->run->num_steps && code == TEMPER_OK; ++i) code = run_step(m, i, launcher);
  return code;
}

static int time_step(temper_model* m, int64_t index, temper_busy_launcher* busy, temper_step_time* time) {
  temper_busy_launcher_reset(busy);
  int code = TEMPER_OK;
  time->ns = 0; /* where a device fails it tells none */
  if (m->on_device) {
    code = told(m, &m->run->steps[index], temper_on_device_time_step(device_of(m), index, &time->ns));
  } else {
    const int64_t start = temper_now_ns();
    code = run_step(m, index, &busy->launcher);
    time->ns = temper_now_ns() - start;
  }
  time->busy_ns = temper_busy_launcher_mean(busy, time->ns);
  return code;
}

static int time_steps(temper_model* m, int again, temper_step_time* times) {
  temper_busy_launcher busy;
  if (temper_busy_launcher_open(&busy, temper_pool_launcher(m->pool)) != 0)
    return fail(m->error, TEMPER_NO_RESOURCES, "no memory for the threads' times");
  temper_pool_settle_caller(m->pool);
  int code = TEMPER_OK;
  for (int64_t i = 0; i < m->run->num_steps && code == TEMPER_OK; ++i) {
    code = time_step(m, i, &busy, &times[i]);
    for (int k = 0; k < again && code == TEMPER_OK; ++k) {
      temper_step_time time;
      code = time_step(m, i, &busy, &time);
      if (k == 0 || time.ns < times[i].ns) times[i] = time;
    }
  }
  temper_busy_launcher_close(&busy);
  return code;
}

/* On the callers' buffers. `times` may be NULL: nothing is timed then. */
static int run(temper_model* m, int again, temper_step_time* times) {
  int code = check_buffers(m);
  if (code != TEMPER_OK) return code;
  if (m->on_device)
    code = write_to_device(m);
  else
    take_buffers(m);
  if (code == TEMPER_OK) code = times ? time_steps(m, again, times) : run_steps(m);
  if (code != TEMPER_OK) return code;
  if (m->on_device) return read_from_device(m);
  give_buffers(m);
  return TEMPER_OK;
}

static int run_plain(temper_model* m, const void* const* inputs, void* const* outputs, int again,
                     temper_step_time* times) {
  if (!enter(m)) return TEMPER_BUSY;
  use(m, m->chosen);
  for (int64_t i = 0; i < m->variant->num_given; ++i) {
    m->inputs[i].caller = inputs ? (char*)inputs[i] : NULL;
    use_shape(m, i, m->variant->inputs[i].shape);
  }
  for (int64_t i = 0; i < m->variant->num_results; ++i) m->outputs[i].caller = outputs ? (char*)outputs[i] : NULL;
  return leave(m, run(m, again, times));
}

int temper_model_run(temper_model* m, const void* const* inputs, void* const* outputs) {
  if (!m) return fail(create_error, TEMPER_INVALID_ARGUMENT, "no model");
  return run_plain(m, inputs, outputs, 0, NULL);
}

/* Uses the first variant that takes inputs of these types and shapes. */
static int use_variant_of(temper_model* m, const temper_tensor* inputs) {
  const temper_variant* v = temper_find_variant(m->plan, inputs, m->error, sizeof m->error);
  if (!v) return TEMPER_INVALID_ARGUMENT;
  use(m, v);
  for (int64_t i = 0; i < v->num_given; ++i) use_shape(m, i, inputs[i].shape);
  return TEMPER_OK;
}

/* Says what the output needs; whether there is room for it. */
static int fits(const temper_io* io, temper_tensor* t) {
  t->dtype = (int32_t)io->dtype;
  t->rank = (int32_t)io->rank;
  for (int64_t d = 0; d < io->rank; ++d) t->shape[d] = io->shape[d];
  return t->bytes >= io->bytes;
}

static int take_tensors(temper_model* m, const temper_tensor* inputs, temper_tensor* outputs) {
  if ((!inputs && m->chosen->num_given > 0) || (!outputs && m->chosen->num_results > 0))
    return fail(m->error, TEMPER_INVALID_ARGUMENT, "there are no inputs, or no outputs");
  const int code = use_variant_of(m, inputs);
  if (code != TEMPER_OK) return code;
  const temper_variant* v = m->variant;
  for (int64_t i = 0; i < v->num_given; ++i) {
    const temper_io* io = &v->inputs[i];
    const int64_t bytes = temper_bytes_of(io, m->inputs[i].shape);
    if (inputs[i].bytes < bytes) {
      return fail(m->error, TEMPER_INVALID_ARGUMENT, "input %s has %lld bytes; its shape needs %lld", io->name,
                  (long long)inputs[i].bytes, (long long)bytes);
    }
    m->inputs[i].caller = inputs[i].data;
  }
  const temper_io* small = NULL;
  for (int64_t i = 0; i < v->num_results; ++i) {
    if (!fits(&v->outputs[i], &outputs[i])) small = &v->outputs[i];
    m->outputs[i].caller = outputs[i].data;
  }
  if (small) return fail(m->error, TEMPER_NO_ROOM, "output %s needs %lld bytes", small->name, (long long)small->bytes);
  return TEMPER_OK;
}

/* Shapes as the run left them. */
static void tell_extents(const temper_model* m, temper_tensor* outputs) {
  for (int64_t i = 0; i < m->variant->num_results; ++i) {
    const temper_io* io = &m->variant->outputs[i];
    for (int64_t e = 0; e < io->num_extents; ++e) {
      const int64_t axis = io->extents[e].axis, told = m->outputs[io->extents[e].told_by].told, most = io->shape[axis];
      outputs[i].shape[axis] = told < 0 ? 0 : told > most ? most : told;
    }
  }
}

/* Where the model itself takes no inputs of such lengths, a hidden output says so. */
static int check_lengths(temper_model* m) {
  for (int64_t i = m->variant->num_results; i < m->variant->num_outputs; ++i) {
    if (m->outputs[i].told == TEMPER_LENGTHS_DIFFER)
      return fail(m->error, TEMPER_INVALID_ARGUMENT,
                  "the model takes no inputs of these lengths: parts of it do not fit");
  }
  return TEMPER_OK;
}

int temper_model_run_shaped(temper_model* m, const temper_tensor* inputs, temper_tensor* outputs) {
  if (!m) return fail(create_error, TEMPER_INVALID_ARGUMENT, "no model");
  if (!enter(m)) return TEMPER_BUSY;
  int code = take_tensors(m, inputs, outputs);
  if (code == TEMPER_OK) code = run(m, 0, NULL);
  if (code == TEMPER_OK) code = check_lengths(m);
  if (code == TEMPER_OK) tell_extents(m, outputs);
  return leave(m, code);
}

int temper_model_step_count(const temper_model* m) { return m ? (int)m->chosen->sequences->num_steps : 0; }

int temper_model_run_timed(temper_model* m, const void* const* inputs, void* const* outputs, int again,
                           temper_step_time* times) {
  if (!m) return fail(create_error, TEMPER_INVALID_ARGUMENT, "no model");
  if (times) return run_plain(m, inputs, outputs, again, times);
  if (!enter(m)) return TEMPER_BUSY;
  return leave(m, fail(m->error, TEMPER_INVALID_ARGUMENT, "there is no place for the steps' times"));
}

const char* temper_model_error(const temper_model* m) { return m ? m->error : create_error; }

int temper_model_set_create_error(int code, const char* line) { return fail(create_error, code, "%s", line); }
