#define _GNU_SOURCE
#include "include/temper/model.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/runtime/busy_launcher.h"
#include "compiler/runtime/failure.h"
#include "compiler/runtime/monotonic.h"
#include "compiler/runtime/on_device.h"
#include "compiler/runtime/plan.h"
#include "compiler/runtime/plan_check.h"
#include "compiler/runtime/region.h"
#include "compiler/runtime/shapes.h"
#include "compiler/runtime/thread_pool.h"
#include "compiler/runtime/weights.h"

enum { ALIGNMENT = 64 };

typedef struct io_buffer {
  char* staging;                  /* for callers' buffers that are not aligned */
  char* caller;                   /* of this run */
  char* current;                  /* the one that kernels meet: the caller's, or staging */
  int64_t told;                   /* of what callers do not see: it lies here */
  int64_t shape[TEMPER_MAX_RANK]; /* of an input of ranges: what it has in this run */
} io_buffer;

struct temper_model {
  const temper_plan* plan;
  const temper_variant* chosen;  /* that functions without shapes speak of */
  const temper_variant* variant; /* of the latest run, or of the one under way */
  const temper_sequence* run;    /* its first */
  temper_pool* pool;
  temper_weights* weights;      /* NULL: the plan has none */
  temper_on_device** on_device; /* by variant; NULL: all is the host's */
  void* device_arena;           /* of all variants */
  temper_region arena, workspace, staging;
  io_buffer* inputs;
  io_buffer* outputs;
  void** args; /* of the call being made */
  atomic_flag running;
  char error[TEMPER_ERROR_BYTES];
};

static _Thread_local char create_error[TEMPER_ERROR_BYTES];

static int64_t round_up(int64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

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
  if (!m->args || !temper_region_map(&m->arena, n->arena) || !temper_region_map(&m->workspace, n->workspace)) {
    return temper_fail(create_error, TEMPER_NO_RESOURCES, "no memory for %lld bytes of activations and scratch",
                       (long long)(n->arena + n->workspace));
  }
  temper_pool_settle_caller(m->pool);
  temper_region_touch(&m->arena, n->arena, m->pool);
  temper_region_touch(&m->workspace, n->workspace, m->pool);
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
  temper_fail(create_error, TEMPER_NO_RESOURCES, "the device has no %lld bytes for activations and scratch",
              (long long)n->arena);
  return temper_device_failed(plan, create_error, TEMPER_NO_RESOURCES);
}

static int allocate(temper_model* m) {
  const temper_plan* plan = m->plan;
  needs n = {.args = 1};
  for (int64_t i = 0; i < plan->num_variants; ++i)
    add_needs(&plan->variants[i], temper_memory_of(plan), temper_pool_launcher(m->pool)->threads, &n);
  m->inputs = calloc((size_t)n.inputs + 1, sizeof *m->inputs);
  m->outputs = calloc((size_t)n.outputs + 1, sizeof *m->outputs);
  /* Staging is rarely needed and stays untouched. */
  if (!m->inputs || !m->outputs || !temper_region_map(&m->staging, n.staging))
    return temper_fail(create_error, TEMPER_NO_RESOURCES, "no memory for %lld bytes of inputs and outputs",
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

int temper_model_create_from_plan(const temper_plan* plan, const char* weights, int threads, temper_model** model) {
  *model = NULL;
  if (plan->version != TEMPER_PLAN_VERSION) {
    return temper_fail(create_error, TEMPER_NO_PACKAGE, "the package has plan version %lld, this runtime reads %d",
                       (long long)plan->version, TEMPER_PLAN_VERSION);
  }
  const char* wanted = temper_plan_unsupported(plan);
  if (wanted)
    return temper_fail(create_error, TEMPER_NO_PACKAGE, "the package has %s, which this runtime has not", wanted);
  char missing[TEMPER_ERROR_BYTES / 2];
  if (temper_cpu_lacks(plan->cpu_features, plan->num_cpu_features, missing, sizeof missing)) {
    return temper_fail(create_error, TEMPER_WRONG_CPU, "this CPU lacks %s: compile the model for it", missing);
  }
  char why[TEMPER_ERROR_BYTES];
  if (plan->device && !temper_on_device_find(plan, why, sizeof why))
    return temper_fail(create_error, TEMPER_NO_PACKAGE, "%s", why);
  temper_model* m = calloc(1, sizeof *m);
  if (!m) return temper_fail(create_error, TEMPER_NO_RESOURCES, "no memory");
  m->plan = plan;
  m->chosen = plan->variants;
  atomic_flag_clear(&m->running);
  int code = 0;
  if (!(m->pool = temper_pool_create(plan->device ? 1 : threads)))
    code =
        temper_fail(create_error, TEMPER_NO_RESOURCES, "cannot start %d threads", temper_pool_resolve_threads(threads));
  if (code == 0) code = temper_weights_take(plan, weights, m->pool, &m->weights, create_error);
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
  temper_weights_release(m->weights);
  temper_region_unmap(&m->arena);
  temper_region_unmap(&m->workspace);
  temper_region_unmap(&m->staging);
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
  if (!m) return temper_fail(create_error, TEMPER_INVALID_ARGUMENT, "no model");
  if (!enter(m)) return TEMPER_BUSY;
  const int there_is = variant >= 0 && variant < m->plan->num_variants;
  if (there_is) m->chosen = &m->plan->variants[variant];
  return leave(
      m, there_is ? TEMPER_OK : temper_fail(m->error, TEMPER_INVALID_ARGUMENT, "there is no variant %d", variant));
}

int temper_model_io_count(const temper_model* m, int is_output) {
  if (!m) return 0;
  return (int)(is_output ? m->chosen->num_results : m->chosen->num_given);
}

/* The model's own line is that of a run, which may be under way in another thread. */
static int find_io(const temper_model* m, int is_output, int index, const temper_io** io) {
  if (!m) return temper_fail(create_error, TEMPER_INVALID_ARGUMENT, "no model");
  if (index < 0 || index >= temper_model_io_count(m, is_output))
    return temper_fail(create_error, TEMPER_INVALID_ARGUMENT, "there is no %s %d", is_output ? "output" : "input",
                       index);
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
      return temper_fail(m->error, TEMPER_INVALID_ARGUMENT, "input %s is null", v->inputs[i].name);
  }
  for (int64_t i = 0; i < v->num_outputs; ++i) {
    if (!lies(&m->outputs[i], v->outputs[i].bytes))
      return temper_fail(m->error, TEMPER_INVALID_ARGUMENT, "output %s is null", v->outputs[i].name);
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
    if (code != TEMPER_OK) temper_fail(m->error, code, "the device does not take input %s", m->variant->inputs[i].name);
  }
  return code == TEMPER_OK ? code : temper_device_failed(m->plan, m->error, code);
}

static int read_from_device(temper_model* m) {
  int code = TEMPER_OK;
  for (int64_t i = 0; i < m->variant->num_outputs && code == TEMPER_OK; ++i) {
    code = temper_on_device_read_output(device_of(m), i, m->outputs[i].caller);
    if (code != TEMPER_OK)
      temper_fail(m->error, code, "the device does not give output %s", m->variant->outputs[i].name);
  }
  return code == TEMPER_OK ? code : temper_device_failed(m->plan, m->error, code);
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
  temper_fail(m->error, code, "kernel %s failed with code %d", s->name, code);
  return m->on_device ? temper_device_failed(m->plan, m->error, code) : code;
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
  temper_fail(m->error, code, "the device does not run its kernels again");
  return temper_device_failed(m->plan, m->error, code);
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
    return temper_fail(m->error, TEMPER_NO_RESOURCES, "no memory for the threads' times");
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
  if (!m) return temper_fail(create_error, TEMPER_INVALID_ARGUMENT, "no model");
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
    return temper_fail(m->error, TEMPER_INVALID_ARGUMENT, "there are no inputs, or no outputs");
  const int code = use_variant_of(m, inputs);
  if (code != TEMPER_OK) return code;
  const temper_variant* v = m->variant;
  for (int64_t i = 0; i < v->num_given; ++i) {
    const temper_io* io = &v->inputs[i];
    const int64_t bytes = temper_bytes_of(io, m->inputs[i].shape);
    if (inputs[i].bytes < bytes) {
      return temper_fail(m->error, TEMPER_INVALID_ARGUMENT, "input %s has %lld bytes; its shape needs %lld", io->name,
                         (long long)inputs[i].bytes, (long long)bytes);
    }
    m->inputs[i].caller = inputs[i].data;
  }
  const temper_io* small = NULL;
  for (int64_t i = 0; i < v->num_results; ++i) {
    if (!fits(&v->outputs[i], &outputs[i])) small = &v->outputs[i];
    m->outputs[i].caller = outputs[i].data;
  }
  if (small)
    return temper_fail(m->error, TEMPER_NO_ROOM, "output %s needs %lld bytes", small->name, (long long)small->bytes);
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
      return temper_fail(m->error, TEMPER_INVALID_ARGUMENT,
                         "the model takes no inputs of these lengths: parts of it do not fit");
  }
  return TEMPER_OK;
}

int temper_model_run_shaped(temper_model* m, const temper_tensor* inputs, temper_tensor* outputs) {
  if (!m) return temper_fail(create_error, TEMPER_INVALID_ARGUMENT, "no model");
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
  if (!m) return temper_fail(create_error, TEMPER_INVALID_ARGUMENT, "no model");
  if (times) return run_plain(m, inputs, outputs, again, times);
  if (!enter(m)) return TEMPER_BUSY;
  return leave(m, temper_fail(m->error, TEMPER_INVALID_ARGUMENT, "there is no place for the steps' times"));
}

const char* temper_model_error(const temper_model* m) { return m ? m->error : create_error; }

int temper_model_set_create_error(int code, const char* line) { return temper_fail(create_error, code, "%s", line); }
