#include "compiler/runtime/shapes.h"

#include <stdio.h>
#include <string.h>

temper_rows temper_rows_of(const temper_io* io) {
  temper_rows r = {.outer = 1, .most = io->shape[io->axis], .bytes = 0};
  for (int64_t d = 0; d < io->axis; ++d) r.outer *= io->shape[d];
  if (r.outer * r.most > 0) r.bytes = io->bytes / (r.outer * r.most);
  return r;
}

int64_t temper_rows_bytes(const temper_io* io, int64_t count) {
  if (!io->least) return io->bytes;
  const temper_rows r = temper_rows_of(io);
  return r.outer * count * r.bytes;
}

static const int64_t* least_of(const temper_io* io) { return io->least ? io->least : io->shape; }

/* "type 1 [2, 3..5]": types are told by ONNX's numbers. */
static void describe(char* line, size_t size, int64_t dtype, int64_t rank, const int64_t* least, const int64_t* most) {
  size_t used = (size_t)snprintf(line, size, "type %lld [", (long long)dtype);
  for (int64_t d = 0; d < rank && used < size; ++d) {
    used += (size_t)snprintf(line + used, size - used, d ? ", %lld" : "%lld", (long long)least[d]);
    if (most[d] != least[d] && used < size)
      used += (size_t)snprintf(line + used, size - used, "..%lld", (long long)most[d]);
  }
  if (used < size) snprintf(line + used, size - used, "]");
}

static int is_of(const temper_tensor* t, const temper_io* io) {
  const int64_t* least = least_of(io);
  int fits = t->dtype == io->dtype && t->rank == io->rank;
  for (int64_t d = 0; fits && d < io->rank; ++d) fits = t->shape[d] >= least[d] && t->shape[d] <= io->shape[d];
  return fits;
}

/* How many of the inputs the variant takes, from the first on; those of one range have one extent. */
static int64_t taken_by(const temper_variant* v, const temper_tensor* inputs) {
  for (int64_t i = 0; i < v->num_given; ++i) {
    const temper_io* io = &v->inputs[i];
    if (!is_of(&inputs[i], io)) return i;
    for (int64_t k = 0; io->least && k < i; ++k) {
      const temper_io* other = &v->inputs[k];
      if (other->least && other->told_by == io->told_by && inputs[k].shape[other->axis] != inputs[i].shape[io->axis])
        return i;
    }
  }
  return v->num_given;
}

static int is_same(const temper_io* a, const temper_io* b) {
  int same = a->dtype == b->dtype && a->rank == b->rank;
  for (int64_t d = 0; same && d < a->rank; ++d) same = a->shape[d] == b->shape[d] && least_of(a)[d] == least_of(b)[d];
  return same;
}

/* "type 1 [1, 3] or type 1 [4, 3]": as variants take this input that take those before it. "..." stands for what is
   beyond `size`. */
static void describe_all(char* line, size_t size, const temper_plan* plan, const temper_tensor* inputs, int64_t input) {
  const temper_io* told[16];
  size_t used = 0, count = 0;
  for (int64_t i = 0; i < plan->num_variants; ++i) {
    const temper_io* io = &plan->variants[i].inputs[input];
    size_t k = 0;
    while (k < count && !is_same(told[k], io)) ++k;
    if (k < count || taken_by(&plan->variants[i], inputs) != input) continue;
    char item[96];
    describe(item, sizeof item, io->dtype, io->rank, least_of(io), io->shape);
    if (count == sizeof told / sizeof *told || used + strlen(item) + sizeof " or ..." > size) {
      snprintf(line + used, size - used, " or ...");
      return;
    }
    told[count++] = io;
    used += (size_t)snprintf(line + used, size - used, used > 0 ? " or %s" : "%s", item);
  }
}

const temper_variant* temper_find_variant(const temper_plan* plan, const temper_tensor* inputs, char* line,
                                          size_t size) {
  int64_t furthest = 0; /* the first input that no variant takes beside those before it */
  for (int64_t i = 0; i < plan->num_variants; ++i) {
    const int64_t taken = taken_by(&plan->variants[i], inputs);
    if (taken == plan->variants[i].num_given) return &plan->variants[i];
    if (taken > furthest) furthest = taken;
  }
  char given[128], taken[256];
  const temper_tensor* t = &inputs[furthest];
  const int64_t rank = t->rank < 0 ? 0 : t->rank > TEMPER_MAX_RANK ? TEMPER_MAX_RANK : t->rank;
  describe(given, sizeof given, t->dtype, rank, t->shape, t->shape);
  describe_all(taken, sizeof taken, plan, inputs, furthest);
  snprintf(line, size, "input %s has %s; the model takes %s", plan->variants->inputs[furthest].name, given, taken);
  return NULL;
}
