#include "compiler/runtime/plan_check.h"

#include "include/temper/model.h"

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
  if (v->arena_bytes[TEMPER_NUM_MEMORIES - 1 - temper_memory_of(plan)] != 0)
    return "memory of the host and of a device";
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
    const temper_step* s = &v->sequences[0].steps[i];
    if (s->kind != TEMPER_STEP_KERNEL && s->kind != TEMPER_STEP_COPY) return "branches or loops";
    if (s->least > 0 && (s->extent < v->num_given || s->extent >= v->num_inputs))
      return "steps that no input's length leaves out";
  }
  return NULL;
}

const char* temper_plan_unsupported(const temper_plan* plan) {
  if (plan->num_variants < 1) return "no variant";
  if (plan->weight_bytes[TEMPER_NUM_MEMORIES - 1 - temper_memory_of(plan)] != 0)
    return "memory of the host and of a device";
  for (int memory = 0; memory < TEMPER_NUM_MEMORIES; ++memory) {
    if (plan->state_bytes[memory] != 0) return "state between runs";
  }
  const char* wanted = NULL;
  for (int64_t i = 0; i < plan->num_variants && !wanted; ++i) wanted = unsupported_of(plan, &plan->variants[i]);
  return wanted;
}
