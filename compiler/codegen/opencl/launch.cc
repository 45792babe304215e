#include "compiler/codegen/opencl/generator.h"
#include "compiler/driver/opencl.h"
#include "compiler/codegen/package_programs.h"

namespace temper {
namespace {

absl::StatusOr<driver::Session*> OpenDevice() { return opencl::Open(opencl::PackageDevice()); }

PackagePrograms& Programs() {
  static auto* const programs = new PackagePrograms(OpenDevice, ReadOpenclCode);
  return *programs;
}

}  // namespace

const temper_device kOpenclDevice = kDeviceOf<Programs>;

}  // namespace temper
