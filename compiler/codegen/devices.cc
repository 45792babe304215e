// libtemper-devices: the devices of packages whose kernels are not the host's code, for those who load packages without
// Temper's programs. It needs neither LLVM nor NVRTC.
#include <string_view>

#include "compiler/codegen/cuda/launch.h"
#include "compiler/codegen/opencl/launch.h"
#include "include/temper/model.h"

// As temper_find_device_fn has it.
extern "C" TEMPER_API const temper_device* temper_find_device(const char* generator, int32_t version) {
  if (generator == nullptr || version != TEMPER_DEVICE_VERSION) return nullptr;
  const std::string_view name = generator;
  if (name == "cuda") return &temper::kCudaDevice;
  return name == "opencl" ? &temper::kOpenclDevice : nullptr;
}
