#define _GNU_SOURCE
#include "compiler/runtime/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compiler/runtime/failure.h"
#include "compiler/runtime/plan_check.h"
#include "include/temper/model.h"

static int64_t weight_bytes(const temper_plan* plan) { return plan->weight_bytes[temper_memory_of(plan)]; }

/* Of every create, so that it does not depend on who came before. The size is that of the file that was opened: the
   path may name another one at any time, and pages behind a file's end end the process. */
static int open_weights(const temper_plan* plan, const char* path, int* fd, char* line) {
  const int64_t bytes = weight_bytes(plan);
  struct stat info;
  *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (*fd < 0 || fstat(*fd, &info) != 0)
    return temper_fail(line, TEMPER_NO_PACKAGE, "cannot open %s: %s", path, strerror(errno));
  if (info.st_size == bytes) return TEMPER_OK;
  return temper_fail(line, TEMPER_NO_PACKAGE, "%s is not the weights of this model: it should have %lld bytes", path,
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
static int map_weights(const temper_plan* plan, const char* path, int fd, temper_pool* pool, temper_region* weights,
                       char* line) {
  weights_file f = {.bytes = weight_bytes(plan)};
  void* mapped = mmap(NULL, (size_t)f.bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (mapped == MAP_FAILED)
    return temper_fail(line, TEMPER_NO_RESOURCES, "cannot map %lld bytes of weights", (long long)f.bytes);
  *weights = (temper_region){.base = mapped, .mapped = (size_t)f.bytes, .data = mapped};
  f.data = mapped;
  uint64_t hash = 0;
  if (!hash_whole(&f, pool, &hash)) return temper_fail(line, TEMPER_NO_PACKAGE, "cannot read %s", path);
  if (hash != plan->weight_hash)
    return temper_fail(line, TEMPER_NO_PACKAGE, "%s is damaged, or of another compilation of this model", path);
  return 0;
}

static void free_weights(temper_weights* w) {
  if (w->on_device) (*w->plan->device)->release(w->on_device);
  temper_region_unmap(&w->region);
  free(w);
}

/* From the host's memory, which they leave. */
static int move_to_device(temper_weights* w, char* line) {
  const temper_device* device = *w->plan->device;
  const int64_t bytes = weight_bytes(w->plan);
  w->on_device = device->allocate(bytes);
  const int code = w->on_device ? device->write(w->on_device, 0, w->region.data, bytes) : TEMPER_NO_RESOURCES;
  if (code != 0) {
    temper_fail(line, code, "the device does not take %lld bytes of weights", (long long)bytes);
    return temper_device_failed(w->plan, line, code);
  }
  temper_region_unmap(&w->region);
  w->region = (temper_region){0};
  return 0;
}

static pthread_mutex_t weights_lock = PTHREAD_MUTEX_INITIALIZER;
static temper_weights* all_weights; /* of all models that live, by plan */

/* Whoever comes first maps the file and checks its hash; who comes meanwhile waits for it. */
static int share_weights(const temper_plan* plan, const char* path, int fd, temper_pool* pool, temper_weights** weights,
                         char* line) {
  int code = 0;
  pthread_mutex_lock(&weights_lock);
  temper_weights* w = all_weights;
  while (w && w->plan != plan) w = w->next;
  if (!w) {
    w = calloc(1, sizeof *w);
    if (w) w->plan = plan;
    code =
        w ? map_weights(plan, path, fd, pool, &w->region, line) : temper_fail(line, TEMPER_NO_RESOURCES, "no memory");
    if (code == 0 && plan->device) code = move_to_device(w, line);
    if (code == 0) {
      w->next = all_weights;
      all_weights = w;
    } else if (w) {
      free_weights(w);
    }
  }
  if (code == 0) {
    ++w->users;
    *weights = w;
  }
  pthread_mutex_unlock(&weights_lock);
  return code;
}

int temper_weights_take(const temper_plan* plan, const char* path, temper_pool* pool, temper_weights** weights,
                        char* line) {
  *weights = NULL;
  if (weight_bytes(plan) == 0) return 0;
  int fd = -1;
  int code = open_weights(plan, path, &fd, line);
  if (code == 0) code = share_weights(plan, path, fd, pool, weights, line);
  if (fd >= 0) close(fd);
  return code;
}

void temper_weights_release(temper_weights* w) {
  if (!w) return;
  pthread_mutex_lock(&weights_lock);
  const int last = --w->users == 0;
  if (last) {
    temper_weights** link = &all_weights;
    while (*link != w) link = &(*link)->next;
    *link = w->next;
  }
  pthread_mutex_unlock(&weights_lock);
  if (last) free_weights(w);
}
