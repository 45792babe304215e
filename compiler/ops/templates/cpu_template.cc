#include "compiler/ops/templates/cpu_template.h"

namespace temper {

TemplateDef ForCpu(CpuTemplate t) {
  return {t.name,
          t.version,
          &CpuSchema(),
          [matches = std::move(t.matches)](const Workload& w, const Target& target) {
            return target.cpu() != nullptr && matches(w);
          },
          [space = std::move(t.space)](const Workload& w, const Target& target) { return space(w, *target.cpu()); },
          [build = std::move(t.build)](const Workload& w, const Config& c, const Target& target) {
            return build(w, c, *target.cpu());
          },
          [footprint = std::move(t.footprint)](const Workload& w, const Config& c, const Target& target) {
            return UnderCpuSchema(footprint(w, c, *target.cpu()), *target.cpu());
          }};
}

}  // namespace temper
