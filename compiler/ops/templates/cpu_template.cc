#include "compiler/ops/templates/cpu_template.h"

#include "compiler/schedule/lower.h"

namespace temper {
namespace {

absl::StatusOr<Kernel> Lowered(Kernel kernel) {
  if (kernel.scheduled.params.empty()) return kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.main, Lower(kernel.scheduled));
  return kernel;
}

}  // namespace

TemplateDef ForCpu(CpuTemplate t) {
  TemplateDef def = {
      t.name,
      t.version,
      &CpuSchema(),
      [matches = std::move(t.matches), feature = t.feature](const Workload& w, const Target& target) {
        return target.cpu() != nullptr && (feature.empty() || target.cpu()->Has(feature)) && matches(w);
      },
      [space = std::move(t.space)](const Workload& w, const Target& target) { return space(w, *target.cpu()); },
      [build = std::move(t.build)](const Workload& w, const Config& c, const Target& target) {
        absl::StatusOr<Kernel> kernel = build(w, c, *target.cpu());
        return kernel.ok() ? Lowered(*std::move(kernel)) : kernel;
      },
      [footprint = std::move(t.footprint)](const Workload& w, const Config& c, const Target& target) {
        return UnderCpuSchema(footprint(w, c, *target.cpu()), *target.cpu());
      }};
  def.feature = t.feature;
  return def;
}

}  // namespace temper
