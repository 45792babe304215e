// A device that builds and runs nothing: for tests of all that is around a device, servers under load included. A
// config may ask it to misbehave: "fault=segv", "fault=build_segv" and so on (faults.h); "cost_ns=N" says what a call
// takes, and with "real=1" that time passes. A workload or a model's target may ask for faults too.
#pragma once

#include "measure_worker/backend.h"

namespace temper::worker {

Backend NewNullBackend();  // BackendDef::simulate

}  // namespace temper::worker
