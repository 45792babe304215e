#include "compiler/runtime/on_device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

struct temper_on_device {
  const temper_device* api;
  const temper_variant* variant;
  const temper_sequence* run;
  void *weights, *arena; /* not its own */
  void** inputs;
  void** outputs;
  void** parts;     /* of all steps, one behind the other: each kernel's arguments, then its workspace */
  int64_t* first;   /* by step: its parts begin there; the last is their count */
  int64_t stepwise; /* whole runs, step by step */
  void* recording;  /* NULL: there is none */
};

const temper_device* temper_on_device_find(const temper_plan* plan, char* why, size_t size) {
  const temper_device* device = __atomic_load_n(plan->device, __ATOMIC_ACQUIRE);
  if (device && device->allocate) return device;
  const char* named = getenv("TEMPER_DEVICES");
  const char* path = named && *named ? named : TEMPER_DEVICES_LIBRARY;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* it stays: drivers do not bear to be unloaded */
  if (!library) {
    snprintf(why, size, "kernels of a package for %s are launched by Temper's libtemper-devices: %s", plan->generator,
             dlerror());
    return NULL;
  }
  const temper_find_device_fn find = (temper_find_device_fn)dlsym(library, "temper_find_device");
  device = find ? find(plan->generator, TEMPER_DEVICE_VERSION) : NULL;
  if (!device) {
    snprintf(why, size, "%s is of another version of Temper, or has no device for %s", path, plan->generator);
    return NULL;
  }
  __atomic_store_n(plan->device, device, __ATOMIC_RELEASE);
  return device;
}

static void* memory_of(const temper_on_device* d, const temper_arg* a) {
  switch (a->kind) {
    case TEMPER_ARG_INPUT:
      return d->inputs[a->index];
    case TEMPER_ARG_OUTPUT:
      return d->outputs[a->index];
    case TEMPER_ARG_ARENA:
      return d->arena;
    default:
      return d->weights;
  }
}

/* A place for each, or NULL in the last that was tried. */
static void** allocate_all(const temper_device* api, const temper_io* ios, int64_t count) {
  void** places = calloc((size_t)count + 1, sizeof *places);
  for (int64_t i = 0; places && i < count; ++i) {
    const int64_t bytes = ios[i].bytes > 0 ? ios[i].bytes : 1; /* drivers have no places of no size */
    if (!(places[i] = api->allocate(bytes))) break;
  }
  return places;
}

static int have_all(void* const* places, int64_t count) { return places && (count == 0 || places[count - 1]); }

static int make_parts(temper_on_device* d) {
  const int64_t steps = d->run->num_steps;
  d->first = calloc((size_t)steps + 1, sizeof *d->first);
  if (!d->first) return 0;
  for (int64_t i = 0; i < steps; ++i) {
    const temper_step* s = &d->run->steps[i];
    d->first[i + 1] = d->first[i] + (s->kind == TEMPER_STEP_KERNEL ? s->num_args + 1 : 0);
  }
  d->parts = calloc((size_t)d->first[steps] + 1, sizeof *d->parts);
  if (!d->parts) return 0;
  for (int64_t i = 0; i < steps; ++i) {
    const temper_step* s = &d->run->steps[i];
    if (s->kind != TEMPER_STEP_KERNEL) continue;
    void** parts = d->parts + d->first[i];
    for (int64_t a = 0; a < s->num_args; ++a) {
      const temper_arg* arg = &s->args[a];
      if (!(parts[a] = d->api->part(memory_of(d, arg), arg->offset, arg->bytes))) return 0;
    }
    if (s->workspace_bytes == 0) continue;
    if (!(parts[s->num_args] = d->api->part(d->arena, s->workspace_offset, s->workspace_bytes))) return 0;
  }
  return 1;
}

temper_on_device* temper_on_device_create(const temper_device* api, const temper_variant* v, void* weights,
                                          void* arena) {
  temper_on_device* d = calloc(1, sizeof *d);
  if (!d) return NULL;
  d->api = api;
  d->variant = v;
  d->run = v->sequences;
  d->weights = weights;
  d->arena = arena;
  d->inputs = allocate_all(api, v->inputs, v->num_inputs);
  d->outputs = allocate_all(api, v->outputs, v->num_outputs);
  if (have_all(d->inputs, v->num_inputs) && have_all(d->outputs, v->num_outputs) && make_parts(d)) return d;
  temper_on_device_destroy(d);
  return NULL;
}

static void release_all(const temper_device* api, void** places, int64_t count) {
  for (int64_t i = 0; places && i < count; ++i) {
    if (places[i]) api->release(places[i]);
  }
  free(places);
}

void temper_on_device_destroy(temper_on_device* d) {
  if (!d) return;
  if (d->recording) d->api->forget(d->recording);
  release_all(d->api, d->parts, d->parts ? d->first[d->run->num_steps] : 0);
  release_all(d->api, d->inputs, d->variant->num_inputs);
  release_all(d->api, d->outputs, d->variant->num_outputs);
  free(d->first);
  free(d);
}

int temper_on_device_write_input(temper_on_device* d, int64_t index, int64_t offset, const void* from, int64_t bytes) {
  return bytes > 0 ? d->api->write(d->inputs[index], offset, from, bytes) : 0;
}

int temper_on_device_run_step(temper_on_device* d, int64_t index) {
  const temper_step* s = &d->run->steps[index];
  if (s->kind == TEMPER_STEP_COPY) {
    const temper_arg *from = &s->args[0], *to = &s->args[1];
    return d->api->copy(memory_of(d, from), from->offset, memory_of(d, to), to->offset, s->bytes);
  }
  void** parts = d->parts + d->first[index];
  const temper_call call = {parts, NULL, parts[s->num_args], NULL, d};
  return s->kernel(&call);
}

typedef struct {
  temper_on_device* d;
  int64_t index;
} one_step;

static int32_t step_of(void* closure) {
  const one_step* s = closure;
  return temper_on_device_run_step(s->d, s->index);
}

int temper_on_device_time_step(temper_on_device* d, int64_t index, int64_t* ns) {
  one_step step = {d, index};
  return d->api->time(step_of, &step, ns);
}

static int run_stepwise(temper_on_device* d, int64_t* failed) {
  int code = 0;
  for (*failed = 0; *failed < d->run->num_steps; ++*failed) {
    if ((code = temper_on_device_run_step(d, *failed)) != 0) break;
  }
  return code;
}

static int32_t steps_of(void* closure) {
  int64_t failed;
  return run_stepwise(closure, &failed);
}

int temper_on_device_run(temper_on_device* d, int64_t* failed) {
  /* Not the first run: that one also loads the kernels' code. */
  if (d->stepwise == 1 && !d->recording && d->api->record) d->recording = d->api->record(steps_of, d);
  if (d->recording) {
    *failed = -1;
    return d->api->replay(d->recording);
  }
  const int code = run_stepwise(d, failed);
  d->stepwise += code == 0;
  return code;
}

int temper_on_device_read_output(temper_on_device* d, int64_t index, void* to) {
  const int64_t bytes = d->variant->outputs[index].bytes;
  return bytes > 0 ? d->api->read(d->outputs[index], 0, to, bytes) : 0;
}
