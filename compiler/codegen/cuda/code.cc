#include "compiler/codegen/cuda/code.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace temper {
namespace {

constexpr std::string_view kMagic = "temcuda1";
constexpr size_t kHead = kMagic.size() + 8;

nlohmann::json ToJson(const CudaKernel::Launch& l) {
  return {{"function", l.function},
          {"groups", l.groups},
          {"threads", l.threads},
          {"dynamic_shared_bytes", l.dynamic_shared_bytes},
          {"static_shared_bytes", l.static_shared_bytes},
          {"registers", l.registers},
          {"spill_bytes", l.spill_bytes},
          {"stack_bytes", l.stack_bytes}};
}

CudaKernel::Launch LaunchOf(const nlohmann::json& json) {
  CudaKernel::Launch l;
  l.function = json.at("function").get<std::string>();
  json.at("groups").get_to(l.groups);
  json.at("threads").get_to(l.threads);
  json.at("dynamic_shared_bytes").get_to(l.dynamic_shared_bytes);
  json.at("static_shared_bytes").get_to(l.static_shared_bytes);
  json.at("registers").get_to(l.registers);
  json.at("spill_bytes").get_to(l.spill_bytes);
  json.at("stack_bytes").get_to(l.stack_bytes);
  return l;
}

CudaKernel KernelOf(const nlohmann::json& json) {
  CudaKernel kernel;
  json.at("parameter_bytes").get_to(kernel.parameter_bytes);
  json.at("outputs").get_to(kernel.outputs);
  json.at("workspace_bytes").get_to(kernel.workspace_bytes);
  for (const auto& launch : json.at("launches")) kernel.launches.push_back(LaunchOf(launch));
  return kernel;
}

absl::Status NotOurs() { return absl::InvalidArgumentError("this is not CUDA code of Temper's"); }

}  // namespace

const CudaKernel* CudaCode::Find(std::string_view symbol) const {
  const auto found = std::ranges::find(kernels, symbol, &std::pair<std::string, CudaKernel>::first);
  return found == kernels.end() ? nullptr : &found->second;
}

std::string WriteCudaCode(const CudaCode& code) {
  nlohmann::json kernels = nlohmann::json::object(), images = nlohmann::json::array();
  for (const auto& [symbol, kernel] : code.kernels) {
    nlohmann::json launches = nlohmann::json::array();
    for (const CudaKernel::Launch& launch : kernel.launches) launches.push_back(ToJson(launch));
    kernels[symbol] = {{"parameter_bytes", kernel.parameter_bytes},
                       {"outputs", kernel.outputs},
                       {"workspace_bytes", kernel.workspace_bytes},
                       {"launches", launches}};
  }
  std::string rest;
  for (const CudaImage& image : code.images) {
    images.push_back({{"kind", image.kind}, {"offset", rest.size()}, {"bytes", image.bytes.size()}});
    rest += image.bytes;
  }
  const nlohmann::json table = {{"arch", code.arch}, {"nvrtc", code.nvrtc}, {"images", images}, {"kernels", kernels}};
  const std::string text = table.dump();
  std::string bytes(kMagic);
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(text.size() >> (8 * i) & 0xff);
  return bytes + text + rest;
}

absl::StatusOr<CudaCode> ReadCudaCode(std::string_view bytes) {
  if (bytes.size() < kHead || !bytes.starts_with(kMagic)) return NotOurs();
  uint64_t length = 0;
  for (size_t i = 0; i < 8; ++i) length |= uint64_t{static_cast<uint8_t>(bytes[kMagic.size() + i])} << (8 * i);
  if (length > bytes.size() - kHead) return NotOurs();
  const std::string_view rest = bytes.substr(kHead + length);
  try {
    const auto table = nlohmann::json::parse(bytes.substr(kHead, length));
    CudaCode code;
    table.at("arch").get_to(code.arch);
    table.at("nvrtc").get_to(code.nvrtc);
    for (const auto& image : table.at("images")) {
      const size_t offset = image.at("offset").get<size_t>(), size = image.at("bytes").get<size_t>();
      if (offset > rest.size() || size > rest.size() - offset) return NotOurs();
      code.images.push_back({image.at("kind").get<std::string>(), std::string(rest.substr(offset, size))});
    }
    for (const auto& [symbol, kernel] : table.at("kernels").items()) {
      code.kernels.emplace_back(symbol, KernelOf(kernel));
      if (code.kernels.back().second.outputs > code.kernels.back().second.parameter_bytes.size()) return NotOurs();
    }
    return code;
  } catch (const nlohmann::json::exception&) {
    return NotOurs();
  }
}

}  // namespace temper
