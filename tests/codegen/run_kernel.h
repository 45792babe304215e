// Compiling and calling one function in a test.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "compiler/codegen/codegen.h"
#include "compiler/runtime/kernel_abi.h"

namespace temper {

// Runs the threads' shares one after the other on the caller.
struct SerialLauncher {
  explicit SerialLauncher(int32_t threads) : base{&ParallelFor, threads} {}
  static void ParallelFor(temper_launcher* self, int64_t n, temper_body body, void* closure) {
    for (int32_t t = 0; t < self->threads; ++t) {
      body(closure, n * t / self->threads, n * (t + 1) / self->threads, t);
    }
    ++reinterpret_cast<SerialLauncher*>(self)->launches;
  }
  temper_launcher base;
  int launches = 0;
};

class RunnableKernel {
 public:
  static absl::StatusOr<RunnableKernel> Make(const ir::Func& func, const Target& target) {
    RunnableKernel k;
    TEMPER_ASSIGN_OR_RETURN(Artifact compiled, CompileKernels({{"kernel", func}}, target));
    TEMPER_ASSIGN_OR_RETURN(k.module_, LoadObject(compiled.code));
    TEMPER_ASSIGN_OR_RETURN(void* address, k.module_->Symbol("kernel"));
    k.call_ = reinterpret_cast<temper_kernel>(address);
    k.info_ = compiled.kernels[0];
    return k;
  }

  // Scratch starts as NaN, and its ends are checked to be untouched. Returns the number of launches, or -1 where that,
  // or the kernel itself, failed.
  int Run(std::vector<NDArray>& args, int32_t threads = 2) const {
    SerialLauncher launcher(threads);
    std::vector<void*> pointers;
    for (NDArray& a : args) pointers.push_back(a.MutableData());
    const int64_t bytes = info_.workspace_bytes + threads * info_.thread_workspace_bytes;
    constexpr int64_t kGuard = 256;
    NDArray scratch(DType::kU8, {bytes + kGuard});
    std::fill_n(static_cast<uint8_t*>(scratch.MutableData()), bytes + kGuard, uint8_t{0xff});
    if (temper_call_on_host(call_, pointers.data(), scratch.MutableData(), &launcher.base) != 0) return -1;
    const auto* after = static_cast<const uint8_t*>(scratch.data()) + bytes;
    return std::all_of(after, after + kGuard, [](uint8_t b) { return b == 0xff; }) ? launcher.launches : -1;
  }
  const CompiledKernel& info() const { return info_; }

 private:
  std::shared_ptr<LoadedModule> module_;
  temper_kernel call_ = nullptr;
  CompiledKernel info_;
};

}  // namespace temper
