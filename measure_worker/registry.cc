// The table of backends: one line each.
#include "measure_worker/backend.h"
#include "measure_worker/backends/cpu/cpu_backend.h"
#include "measure_worker/backends/null/null_backend.h"

namespace temper::worker {
namespace {

constexpr BackendDef kBackends[] = {
    {"cpu", NewCpuBackend},
    {"null", NewNullBackend, true},
};

}  // namespace

std::span<const BackendDef> AllBackends() { return kBackends; }

const BackendDef* FindBackend(std::string_view name) {
  for (const BackendDef& def : kBackends) {
    if (def.name == name) return &def;
  }
  return nullptr;
}

}  // namespace temper::worker
