// A kernel through a device's own calls alone, with inputs and a comparison of the suite's own.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/ndarray.h"
#include "base/rng.h"
#include "compiler/ops/template.h"
#include "compiler/package/weights.h"
#include "measure_worker/device.h"
#include "measure_worker/kernels/code_cache.h"

namespace temper::conformance {

// Logical arrays: floats of both signs away from 0, integers that are valid indices of small tables.
inline std::vector<NDArray> DrawInputs(const Workload& w, uint64_t seed) {
  Rng rng(seed);
  std::vector<NDArray> inputs;
  for (const Workload::Operand& operand : w.inputs) {
    NDArray& a = inputs.emplace_back(operand.type.dtype, operand.type.shape);
    for (int64_t i = 0; i < a.size(); ++i) {
      const double magnitude = 0.125 + rng.Uniform();
      a.Set(i, IsFloat(a.dtype()) ? (rng.Below(2) == 0 ? magnitude : -magnitude) : static_cast<double>(rng.Below(8)));
    }
  }
  return inputs;
}

// `array` as the kernel wants it, on the device.
inline absl::StatusOr<std::unique_ptr<worker::Block>> Pack(worker::Device& device, const worker::Code& pack,
                                                           const NDArray& array) {
  worker::Device& packer = device.packer();
  const int64_t bytes = pack.parameter_bytes.back();
  TEMPER_ASSIGN_OR_RETURN(const auto from, packer.AllocateGuarded({{array.bytes()}}));
  TEMPER_RETURN_IF_ERROR(from->Write(0, array.data()));
  TEMPER_ASSIGN_OR_RETURN(const auto packed, packer.AllocateGuarded({{bytes}}));
  TEMPER_ASSIGN_OR_RETURN(const auto scratch, packer.AllocateGuarded({{pack.scratch_bytes}}));
  TEMPER_RETURN_IF_ERROR(packer.Launch(pack, {from->address(0), packed->address(0)}, scratch->address(0)).status());
  TEMPER_ASSIGN_OR_RETURN(auto there, device.AllocateGuarded({{bytes}}));
  TEMPER_ASSIGN_OR_RETURN(const void* data, packed->Read(0));
  TEMPER_RETURN_IF_ERROR(there->Write(0, data));
  return there;
}

// The output, in physical order. kDataLoss: an input was written, or what lies around an array.
inline absl::StatusOr<NDArray> RunOnDevice(worker::Device& device, worker::CodeCache& code, const Workload& w,
                                           const Kernel& kernel, const std::vector<NDArray>& logical) {
  TEMPER_ASSIGN_OR_RETURN(const worker::LoadedKernel loaded, code.Load(kernel));
  std::vector<NDArray> physical;
  std::vector<std::unique_ptr<worker::Block>> inputs, packed;
  worker::Arguments args;
  for (size_t i = 0; i < w.inputs.size(); ++i) {
    const NDArray& array = physical.emplace_back(ToPhysical(logical[i], w.inputs[i].type.perm));
    TEMPER_ASSIGN_OR_RETURN(inputs.emplace_back(), device.AllocateGuarded({{array.bytes()}}));
    TEMPER_RETURN_IF_ERROR(inputs.back()->Write(0, array.data()));
    args.push_back(inputs.back()->address(0));
    if (i >= loaded.packs.size() || loaded.packs[i] == nullptr) continue;
    TEMPER_ASSIGN_OR_RETURN(packed.emplace_back(), Pack(device, *loaded.packs[i], array));
    args.back() = packed.back()->address(0);
  }
  NDArray result(w.output().dtype, w.output().PhysicalShape());
  TEMPER_ASSIGN_OR_RETURN(const auto output, device.AllocateGuarded({{result.bytes()}}));
  TEMPER_ASSIGN_OR_RETURN(const auto scratch, device.AllocateGuarded({{loaded.main->scratch_bytes}}));
  constexpr uint8_t kNan = 0xff;
  TEMPER_RETURN_IF_ERROR(output->Fill(kNan));
  TEMPER_RETURN_IF_ERROR(scratch->Fill(kNan));
  args.push_back(output->address(0));
  TEMPER_RETURN_IF_ERROR(device.Launch(*loaded.main, args, scratch->address(0)).status());
  for (size_t i = 0; i < inputs.size(); ++i) {
    TEMPER_RETURN_IF_ERROR(inputs[i]->CheckEdges());
    TEMPER_ASSIGN_OR_RETURN(const void* now, inputs[i]->Read(0));
    if (std::memcmp(now, physical[i].data(), static_cast<size_t>(physical[i].bytes())) != 0)
      return absl::DataLossError(absl::StrCat("input ", i, " was written"));
  }
  TEMPER_RETURN_IF_ERROR(output->CheckEdges());
  TEMPER_RETURN_IF_ERROR(scratch->CheckEdges());
  TEMPER_ASSIGN_OR_RETURN(const void* got, output->Read(0));
  std::memcpy(result.MutableData(), got, static_cast<size_t>(result.bytes()));
  return result;
}

}  // namespace temper::conformance
