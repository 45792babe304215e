// A record that changes what a lock pins.
#pragma once

#include <string>

#include "base/status.h"
#include "compiler/ops/template.h"
#include "lock/lock.h"
#include "storage/record.h"

namespace temper {

// Of the device: the last kernel of the lock's only entry, with another legal config than its own, in `seconds`.
inline absl::StatusOr<Record> RecordOfAnotherConfig(const std::string& lock_path, const std::string& device,
                                                    double seconds) {
  TEMPER_ASSIGN_OR_RETURN(const Lock lock, ReadLock(lock_path));
  const LockPins& pins = lock.entries.at(0).pins;
  const LockedKernel& kernel = pins.kernels.back();
  TEMPER_ASSIGN_OR_RETURN(const Workload w, ParseWorkload(kernel.workload));
  TEMPER_ASSIGN_OR_RETURN(const Target t, ParseTarget(pins.target));
  Record r;
  r.workload = kernel.workload;
  r.anchor = AnchorText(w);
  r.target = pins.target;
  r.device_key = device;
  r.threads = t.threads();
  r.template_name = kernel.template_name;
  r.template_version = kernel.template_version;
  for (const Config& c : FindTemplate(r.template_name)->space(w, t).Enumerate(4096)) {
    if (Text(c) != kernel.config) r.config = Text(c);
  }
  if (r.config.empty()) return absl::NotFoundError(kernel.workload + " has one config");
  r.codegen_id = pins.codegen_id;
  r.purpose = "final";
  r.costs_s = {seconds, seconds, seconds};
  return r;
}

}  // namespace temper
