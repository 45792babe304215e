// Kernels that several packages of a model share, compiled once.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "compiler/codegen/codegen.h"

namespace temper {

// Grows by every kernel that it is asked for, and lives as long as they may be asked for again. Thread-safe.
class CompileCache {
 public:
  // CompileKernels of this kernel alone. Who asks for what another is compiling waits for it; errors are kept too.
  absl::StatusOr<std::shared_ptr<const Artifact>> Compile(const CodegenInput& kernel, const Target& target);

 private:
  using Result = absl::StatusOr<std::shared_ptr<const Artifact>>;
  std::mutex mutex_;
  std::map<std::string, std::shared_future<Result>> known_;  // by everything that tells kernels apart
};

}  // namespace temper
