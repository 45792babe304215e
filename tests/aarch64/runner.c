/* Runs what was made for 64-bit ARM, in the emulator. usage: runner JOBS, a file of lines, each a job; arrays are
 * files, which have what the job left in them afterwards: kernel LIBRARY SYMBOL SCRATCH_BYTES THREAD_SCRATCH_BYTES
 * ARRAY ... package FOLDER THREADS NUMBER_OF_INPUTS ARRAY ... The first that fails ends it, with a line. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/runtime/kernel_abi.h"
#include "include/temper/model.h"

enum { MOST_ARRAYS = 64, LINE_BYTES = 1 << 16, ALIGNMENT = 64 };

typedef struct array {
  const char* path;
  void* data;
  size_t bytes;
} array;

static void fail(const char* what, const char* why) {
  fprintf(stderr, "%s: %s\n", what, why ? why : "failed");
  exit(1);
}

static const char* next_word(void) {
  const char* word = strtok(NULL, " \n");
  if (!word) fail("job", "it has too few words");
  return word;
}

static void* allocate(size_t bytes) { return aligned_alloc(ALIGNMENT, (bytes / ALIGNMENT + 1) * ALIGNMENT); }

/* Fills a.data; returns how many. */
static int read_arrays(array* arrays) {
  int count = 0;
  for (const char* path; count < MOST_ARRAYS && (path = strtok(NULL, " \n")); ++count) {
    array* a = &arrays[count];
    FILE* file = fopen(a->path = path, "rb");
    if (!file) fail(path, "cannot be opened");
    fseek(file, 0, SEEK_END);
    a->bytes = (size_t)ftell(file);
    rewind(file);
    a->data = allocate(a->bytes);
    if (fread(a->data, 1, a->bytes, file) != a->bytes) fail(path, "cannot be read");
    fclose(file);
  }
  return count;
}

static void write_array(const array* a) {
  FILE* file = fopen(a->path, "wb");
  if (!file || fwrite(a->data, 1, a->bytes, file) != a->bytes || fclose(file)) fail(a->path, "cannot be written");
}

static void* open_library(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) fail(path, dlerror());
  return library;
}

/* What two threads would do, without their timing. */
static void run_in_two_shares(temper_launcher* self, int64_t n, temper_body body, void* closure) {
  (void)self;
  body(closure, 0, n / 2, 0);
  body(closure, n / 2, n, 1);
}

static void run_kernel(void) {
  void* library = open_library(next_word());
  const char* symbol = next_word();
  const temper_kernel kernel = (temper_kernel)dlsym(library, symbol);
  if (!kernel) fail(symbol, dlerror());
  const size_t shared = strtoull(next_word(), NULL, 10), own = strtoull(next_word(), NULL, 10);
  array arrays[MOST_ARRAYS];
  void* args[MOST_ARRAYS];
  const int count = read_arrays(arrays);
  for (int i = 0; i < count; ++i) args[i] = arrays[i].data;
  void* scratch = allocate(shared + 2 * own);
  memset(scratch, 0xff, shared + 2 * own); /* NaN */
  temper_launcher launcher = {run_in_two_shares, 2};
  if (temper_call_on_host(kernel, args, scratch, &launcher)) fail(symbol, "it returned an error");
  for (int i = 0; i < count; ++i) write_array(&arrays[i]);
  dlclose(library);
}

static void run_package(void) {
  const char* folder = next_word();
  char path[4096];
  snprintf(path, sizeof path, "%s/model.so", folder);
  void* library = open_library(path);
  const __typeof__(&temper_model_create) create =
      (__typeof__(&temper_model_create))dlsym(library, "temper_model_create");
  const __typeof__(&temper_model_run) run = (__typeof__(&temper_model_run))dlsym(library, "temper_model_run");
  const __typeof__(&temper_model_error) error = (__typeof__(&temper_model_error))dlsym(library, "temper_model_error");
  const __typeof__(&temper_model_destroy) destroy =
      (__typeof__(&temper_model_destroy))dlsym(library, "temper_model_destroy");
  if (!create || !run || !error || !destroy) fail(path, "it is no model");
  const int threads = atoi(next_word()), inputs = atoi(next_word());
  array arrays[MOST_ARRAYS];
  void* args[MOST_ARRAYS];
  const int count = read_arrays(arrays);
  for (int i = 0; i < count; ++i) args[i] = arrays[i].data;
  temper_model* model = NULL;
  if (create(folder, threads, &model)) fail(folder, error(NULL));
  if (run(model, (const void* const*)args, args + inputs)) fail(folder, error(model));
  for (int i = inputs; i < count; ++i) write_array(&arrays[i]);
  destroy(model);
  dlclose(library);
}

int main(int argc, char** argv) {
  FILE* jobs = argc == 2 ? fopen(argv[1], "r") : NULL;
  if (!jobs) fail("usage", "runner JOBS");
  static char line[LINE_BYTES];
  while (fgets(line, sizeof line, jobs)) {
    const char* what = strtok(line, " \n");
    if (what && strcmp(what, "kernel") == 0)
      run_kernel();
    else if (what && strcmp(what, "package") == 0)
      run_package();
    else
      fail("job", "it is neither a kernel nor a package");
  }
  return 0;
}
