#include "compiler/package/try_operator.h"

#include "compiler/package/run_kernel.h"

namespace temper {

absl::StatusOr<std::vector<OperatorTrial>> TryOperator(std::string_view workload, int64_t most, uint64_t seed) {
  TEMPER_ASSIGN_OR_RETURN(const Workload w, ParseWorkload(workload));
  const Target target = HostTarget();
  const std::vector<const TemplateDef*> templates = TemplatesFor(w, target);
  if (templates.empty()) return NoTemplateFits(w, target);
  Rng rng(seed);
  const std::vector<NDArray> inputs = RandomInputs(w, rng);
  TEMPER_ASSIGN_OR_RETURN(const NDArray wanted, RunReference(w, inputs));
  std::vector<OperatorTrial> trials;
  for (const TemplateDef* def : templates) {
    for (const Config& config : def->space(w, target).Enumerate(most, seed)) {
      TEMPER_ASSIGN_OR_RETURN(const Kernel kernel, BuildKernel(w, def->name, config, target));
      TEMPER_ASSIGN_OR_RETURN(const NDArray got, RunKernel(w, kernel, target, inputs));
      trials.push_back({std::string(def->name), Text(config), RelativeError(got, wanted)});
    }
  }
  return trials;
}

}  // namespace temper
