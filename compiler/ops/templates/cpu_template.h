// Templates for CPUs. They see what a CPU is and no other kind of device.
#pragma once

#include "compiler/ops/template.h"
#include "compiler/ops/templates/cpu_footprint.h"

namespace temper {

// A TemplateDef over CpuTarget.
struct CpuTemplate {
  std::string_view name;
  int version;
  std::function<bool(const Workload&)> matches;
  std::function<ConfigSpace(const Workload&, const CpuTarget&)> space;
  // Kernel::main or, which ForCpu lowers, Kernel::scheduled alone.
  std::function<absl::StatusOr<Kernel>(const Workload&, const Config&, const CpuTarget&)> build;
  std::function<CpuFootprint(const Workload&, const Config&, const CpuTarget&)> footprint;
  std::string_view feature = {};  // of the target, without which it matches nothing
};
// Matches nothing on another kind of device, whoever generates its code on this one.
TemplateDef ForCpu(CpuTemplate t);

}  // namespace temper
