// A device that builds and runs nothing: for tests of all that is around a device, servers under load included. A
// config may ask it to misbehave: "fault=segv" and so on, see null_backend.cc; "cost_ns=N" says what a call takes.
#pragma once

#include <memory>

#include "measure_worker/backend.h"

namespace temper::worker {

std::unique_ptr<Backend> NewNullBackend();

}  // namespace temper::worker
