#include "compiler/package/run_kernel.h"

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "compiler/codegen/codegen.h"
#include "compiler/package/weights.h"
#include "compiler/runtime/kernel_abi.h"

namespace temper {
namespace {

void RunOnOneThread(temper_launcher*, int64_t n, temper_body body, void* closure) { body(closure, 0, n, 0); }
// What two threads would do, without their timing.
void RunInTwoShares(temper_launcher*, int64_t n, temper_body body, void* closure) {
  body(closure, 0, n / 2, 0);
  body(closure, n / 2, n, 1);
}

}  // namespace

absl::StatusOr<NDArray> RunKernel(const Workload& w, const Kernel& kernel, const Target& t,
                                  std::span<const NDArray> logical) {
  std::vector<CodegenInput> inputs = {{"main", kernel.main}};
  for (size_t i = 0; i < kernel.packs.size(); ++i) {
    if (!kernel.packs[i].params.empty()) inputs.push_back({"pack" + std::to_string(i), kernel.packs[i]});
  }
  TEMPER_ASSIGN_OR_RETURN(Artifact compiled, CompileKernels(inputs, t));
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<LoadedModule> module, LoadObject(compiled.code));
  auto call = [&](size_t k, std::vector<void*> args, temper_launcher launcher) -> absl::Status {
    TEMPER_ASSIGN_OR_RETURN(void* symbol, module->Symbol(compiled.kernels[k].symbol));
    NDArray workspace(DType::kU8,
                      {compiled.kernels[k].workspace_bytes + 2 * compiled.kernels[k].thread_workspace_bytes});
    std::memset(workspace.MutableData(), 0xff, static_cast<size_t>(workspace.bytes()));  // NaN, whatever the width
    temper_call_on_host(reinterpret_cast<temper_kernel>(symbol), args.data(), workspace.MutableData(), &launcher);
    return absl::OkStatus();
  };
  std::vector<NDArray> arrays;
  std::vector<void*> args;
  size_t pack = 1;
  for (size_t i = 0; i < w.inputs.size(); ++i) {
    NDArray physical = ToPhysical(logical[i], w.inputs[i].type.perm);
    if (i < kernel.packs.size() && !kernel.packs[i].params.empty()) {
      const ir::Buffer& out = kernel.packs[i].params.back();
      NDArray packed(out->dtype, out->shape);
      TEMPER_RETURN_IF_ERROR(
          call(pack++, {const_cast<void*>(physical.data()), packed.MutableData()}, {RunOnOneThread, 1}));
      physical = packed;
    }
    arrays.push_back(physical);
    args.push_back(arrays.back().MutableData());
  }
  NDArray result(w.output().dtype, w.output().PhysicalShape());
  for (int64_t i = 0; i < result.size() && IsFloat(result.dtype()); ++i)
    result.Set(i, std::numeric_limits<double>::quiet_NaN());
  args.push_back(result.MutableData());
  TEMPER_RETURN_IF_ERROR(call(0, args, {RunInTwoShares, 2}));
  return result;
}

std::vector<NDArray> RandomInputs(const Workload& w, Rng& rng) {
  std::vector<NDArray> result;
  for (const Workload::Operand& operand : w.inputs) {
    NDArray array(operand.type.dtype, operand.type.shape);
    for (int64_t i = 0; i < array.size(); ++i)
      array.Set(i, IsFloat(array.dtype()) ? 2 * rng.Uniform() - 1 : static_cast<double>(rng.Below(2)));
    result.push_back(array);
  }
  return result;
}

}  // namespace temper
