#include "compiler/codegen/cuda/launch.h"

#include <algorithm>

#include "compiler/codegen/cuda/code.h"
#include "compiler/codegen/package_programs.h"
#include "compiler/driver/cuda.h"

namespace temper {
namespace {

driver::Kernel KernelOf(const CudaKernel& told) {
  driver::Kernel kernel{told.parameter_bytes, told.workspace_bytes, {}};
  for (const CudaKernel::Launch& l : told.launches) {
    driver::Kernel::Launch& launch = kernel.launches.emplace_back(driver::Kernel::Launch{l.function, {}, {}});
    std::ranges::copy(l.groups, launch.groups.begin());
    std::ranges::copy(l.threads, launch.threads.begin());
    launch.shared_bytes = l.dynamic_shared_bytes;
  }
  return kernel;
}

absl::StatusOr<driver::Session*> OpenDevice() { return cuda::Open(cuda::PackageDevice()); }

PackagePrograms& Programs() {
  static auto* const programs = new PackagePrograms(OpenDevice, ReadCudaProgram);
  return *programs;
}

}  // namespace

absl::StatusOr<driver::Program> ReadCudaProgram(std::string_view code) {
  TEMPER_ASSIGN_OR_RETURN(CudaCode read, ReadCudaCode(code));
  // A driver takes the code of every compiler of its own major version.
  driver::Program program{{{}, std::move(read.arch), 1000 * read.nvrtc[0]}, {}};
  for (CudaImage& image : read.images) program.code.images.push_back(std::move(image.bytes));
  for (const auto& [symbol, kernel] : read.kernels) {
    program.kernels.emplace_back(symbol, KernelOf(kernel));
    if (!program.kernels.back().second.possible())
      return absl::InvalidArgumentError("this is not CUDA code of Temper's");
  }
  return program;
}

const temper_device kCudaDevice = kDeviceOf<Programs>;

}  // namespace temper
