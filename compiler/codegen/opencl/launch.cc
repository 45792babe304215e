#include "compiler/codegen/opencl/generator.h"
#include "compiler/driver/opencl.h"
#include "compiler/codegen/package_programs.h"

namespace temper {
namespace {

absl::StatusOr<driver::Session*> OpenDevice() { return opencl::Open(opencl::PackageDevice()); }

}  // namespace

int32_t LaunchByOpencl(const char* code, int64_t bytes, const char* symbol, const temper_call* call) {
  static auto* const programs = new PackagePrograms(OpenDevice, ReadOpenclCode);
  return programs->Launch({code, static_cast<size_t>(bytes)}, symbol, call);
}

}  // namespace temper
