#include "compiler/codegen/opencl/launch.h"

#include <nlohmann/json.hpp>

#include "compiler/codegen/package_programs.h"
#include "compiler/driver/opencl.h"

namespace temper {
namespace {

absl::StatusOr<driver::Session*> OpenDevice() { return opencl::Open(opencl::PackageDevice()); }

PackagePrograms& Programs() {
  static auto* const programs = new PackagePrograms(OpenDevice, ReadOpenclProgram);
  return *programs;
}

absl::Status NotOurs() { return absl::InvalidArgumentError("this is not OpenCL code of Temper's"); }

}  // namespace

absl::StatusOr<driver::Program> ReadOpenclProgram(std::string_view code) {
  try {
    const auto json = nlohmann::json::parse(code);
    driver::Program result;
    result.code.images.push_back(json.at("source").get<std::string>());
    for (const auto& [symbol, told] : json.at("kernels").items()) {
      driver::Kernel& kernel = result.kernels.emplace_back(symbol, driver::Kernel{}).second;
      kernel.parameter_bytes = told.at("parameter_bytes").get<std::vector<int64_t>>();
      kernel.workspace_bytes = told.at("workspace_bytes").get<int64_t>();
      for (const auto& launch : told.at("launches")) {
        kernel.launches.push_back({launch.at("function").get<std::string>(),
                                   launch.at("groups").get<std::array<size_t, 3>>(),
                                   launch.at("threads").get<std::array<size_t, 3>>()});
      }
      if (!kernel.possible()) return NotOurs();
    }
    return result;
  } catch (const nlohmann::json::exception&) {
    return NotOurs();
  }
}

const temper_device kOpenclDevice = kDeviceOf<Programs>;

}  // namespace temper
