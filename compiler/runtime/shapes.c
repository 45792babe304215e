#include "compiler/runtime/shapes.h"

#include <stdio.h>
#include <string.h>

int64_t temper_bytes_of(const temper_io* io, const int64_t* shape) {
  int64_t most = 1, there = 1;
  for (int64_t d = 0; d < io->rank && io->num_extents > 0; ++d) {
    most *= io->shape[d];
    there *= shape[d];
  }
  return most > 0 ? io->bytes / most * there : 0;
}

temper_pieces temper_pieces_of(const temper_io* io, const int64_t* shape) {
  temper_pieces p = {.io = io, .next = {.bytes = temper_bytes_of(io, shape), .times = 1}};
  if (p.next.bytes == 0 || p.next.bytes == io->bytes) return p;
  int64_t axis = 0; /* along which pieces lie */
  for (int64_t d = 0; d < io->rank; ++d) {
    if (shape[d] < io->shape[d]) axis = d;
  }
  int64_t stride = io->bytes;
  for (int64_t d = 0; d < axis; ++d) {
    p.shape[d] = shape[d];
    p.stride[d] = stride /= io->shape[d];
    p.next.bytes /= shape[d];
  }
  if (axis == 0) return p;
  p.axes = axis - 1;
  p.next.times = shape[axis - 1];
  p.next.stride = stride;
  return p;
}

int temper_next_piece(temper_pieces* p, temper_piece* piece) {
  if (p->next.to >= p->io->bytes) return 0;
  *piece = p->next;
  int64_t d = p->axes - 1;
  for (; d >= 0; --d) {
    p->next.to += p->stride[d];
    if (++p->index[d] < p->shape[d]) break;
    p->next.to -= p->index[d] * p->stride[d];
    p->index[d] = 0;
  }
  if (d < 0) p->next.to = p->io->bytes;
  p->next.from += piece->times * piece->bytes;
  piece->zeros = p->next.to - piece->to - (piece->times - 1) * piece->stride - piece->bytes;
  return 1;
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

/* Whether what the extent tells of input `i` is what inputs up to that one say of it. */
static int agrees(const temper_variant* v, const temper_tensor* inputs, int64_t i, const temper_extent* extent) {
  for (int64_t k = 0; k <= i; ++k) {
    for (int64_t e = 0; e < v->inputs[k].num_extents; ++e) {
      const temper_extent* other = &v->inputs[k].extents[e];
      if (other->told_by == extent->told_by && inputs[k].shape[other->axis] != inputs[i].shape[extent->axis]) return 0;
    }
  }
  return 1;
}

/* How many of the inputs the variant takes, from the first on; those of one range have one extent. */
static int64_t taken_by(const temper_variant* v, const temper_tensor* inputs) {
  for (int64_t i = 0; i < v->num_given; ++i) {
    const temper_io* io = &v->inputs[i];
    if (!is_of(&inputs[i], io)) return i;
    for (int64_t e = 0; e < io->num_extents; ++e) {
      if (!agrees(v, inputs, i, &io->extents[e])) return i;
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

/* Whether a variant takes this input beside those before it, but for lengths that it shares with them or has twice. */
static int differs_in_lengths(const temper_plan* plan, const temper_tensor* inputs, int64_t input) {
  int differs = 0;
  for (int64_t i = 0; i < plan->num_variants && !differs; ++i) {
    const temper_variant* v = &plan->variants[i];
    differs = taken_by(v, inputs) == input && is_of(&inputs[input], &v->inputs[input]);
  }
  return differs;
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
  snprintf(line, size, "input %s has %s; the model takes %s%s", plan->variants->inputs[furthest].name, given, taken,
           differs_in_lengths(plan, inputs, furthest) ? ", and dimensions of one name have one length" : "");
  return NULL;
}
