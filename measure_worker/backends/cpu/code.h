// Functions compiled and loaded into this process.
#pragma once

#include <memory>

#include "compiler/codegen/codegen.h"
#include "compiler/runtime/kernel_abi.h"

namespace temper::worker {

// One lowered function, ready to be called. Immutable.
class Code {
 public:
  static absl::StatusOr<std::shared_ptr<const Code>> Compile(const ir::Func& func, const Target& t);

  void Call(void* const* args, void* workspace, temper_launcher* launcher) const {
    temper_call_on_host(entry_, args, workspace, launcher);
  }
  int64_t WorkspaceBytes(int threads) const { return info_.workspace_bytes + threads * info_.thread_workspace_bytes; }
  int64_t ParameterBytes(size_t i) const { return parameter_bytes_[i]; }
  size_t parameters() const { return parameter_bytes_.size(); }

 private:
  std::unique_ptr<LoadedModule> module_;
  CompiledKernel info_;
  temper_kernel entry_ = nullptr;
  std::vector<int64_t> parameter_bytes_;
};

// Compile, but the latest functions are kept, and those that recur are not compiled again: how constants are packed, of
// which the candidates of a task agree, and candidates that are measured again. Thread-safe.
absl::StatusOr<std::shared_ptr<const Code>> CompileOnce(const ir::Func& func, const Target& t);

}  // namespace temper::worker
