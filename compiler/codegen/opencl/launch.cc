// Kernels of packages: each program is compiled once in a process, by what its code says.
#include <algorithm>
#include <map>
#include <mutex>

#include "compiler/codegen/opencl/generator.h"
#include "compiler/driver/opencl.h"
#include "include/temper/model.h"

namespace temper {
namespace {

constexpr size_t kMostPrograms = 512;  // of several packages: those used longest ago go first

struct LoadedKernel {
  OpenclKernel told;
  std::vector<opencl::Function> functions;
  std::vector<opencl::Memory> arguments;  // copies of the host's, and the workspace
};

struct LoadedProgram {
  std::map<std::string, LoadedKernel, std::less<>> kernels;
  int64_t used = 0;
};

class Programs {
 public:
  absl::Status Run(std::string_view code, std::string_view symbol, void* const* args) {
    std::lock_guard lock(mutex_);
    TEMPER_ASSIGN_OR_RETURN(LoadedProgram * program, Find(code));
    const auto kernel = program->kernels.find(symbol);
    if (kernel == program->kernels.end()) return absl::NotFoundError("the code has no such kernel");
    return RunOn(**session_, kernel->second, args);
  }

 private:
  absl::StatusOr<LoadedProgram*> Find(std::string_view code) {
    if (!session_.ok() || *session_ == nullptr) session_ = opencl::Open(opencl::PackageDevice());
    TEMPER_RETURN_IF_ERROR(session_.status());
    auto found = programs_.find(code);
    if (found == programs_.end()) {
      TEMPER_ASSIGN_OR_RETURN(LoadedProgram loaded, Load(**session_, code));
      if (programs_.size() >= kMostPrograms)
        programs_.erase(std::ranges::min_element(programs_, {}, [](const auto& p) { return p.second.used; }));
      found = programs_.emplace(code, std::move(loaded)).first;
    }
    found->second.used = ++clock_;
    return &found->second;
  }

  static absl::StatusOr<LoadedProgram> Load(opencl::Session& session, std::string_view text) {
    TEMPER_ASSIGN_OR_RETURN(OpenclCode code, ReadOpenclCode(text));
    LoadedProgram program;
    for (auto& [symbol, told] : code.kernels) {
      LoadedKernel kernel{std::move(told), {}, {}};
      std::vector<std::string> names;
      for (const OpenclKernel::Launch& launch : kernel.told.launches) names.push_back(launch.function);
      TEMPER_ASSIGN_OR_RETURN(kernel.functions, session.Build(code.source, names));
      std::vector<int64_t> sizes = kernel.told.parameter_bytes;
      if (kernel.told.workspace_bytes > 0) sizes.push_back(kernel.told.workspace_bytes);
      for (const int64_t size : sizes) {
        TEMPER_ASSIGN_OR_RETURN(opencl::Memory memory, session.Allocate(size));
        kernel.arguments.push_back(std::move(memory));
      }
      program.kernels.emplace(symbol, std::move(kernel));
    }
    return program;
  }

  static absl::Status RunOn(opencl::Session& session, LoadedKernel& kernel, void* const* args) {
    const std::vector<int64_t>& bytes = kernel.told.parameter_bytes;
    const size_t inputs = bytes.size() - kernel.told.outputs;
    std::vector<void*> handles;
    for (const opencl::Memory& memory : kernel.arguments) handles.push_back(memory.handle());
    for (size_t i = 0; i < inputs; ++i) TEMPER_RETURN_IF_ERROR(session.Write(handles[i], 0, args[i], bytes[i]));
    const auto call = [&](int64_t i) {
      const OpenclKernel::Launch& launch = kernel.told.launches[static_cast<size_t>(i)];
      return opencl::LaunchCall{&kernel.functions[static_cast<size_t>(i)], {launch.groups, launch.threads}, handles};
    };
    TEMPER_RETURN_IF_ERROR(session.Run(std::ssize(kernel.told.launches), call).status());
    for (size_t i = inputs; i < bytes.size(); ++i)
      TEMPER_RETURN_IF_ERROR(session.Read(handles[i], 0, args[i], bytes[i]));
    return absl::OkStatus();
  }

  std::mutex mutex_;
  absl::StatusOr<opencl::Session*> session_ = nullptr;
  std::map<std::string, LoadedProgram, std::less<>> programs_;  // by code
  int64_t clock_ = 0;
};

}  // namespace

int32_t LaunchByOpencl(const char* code, int64_t bytes, const char* symbol, const temper_call* call) {
  static auto* const programs = new Programs;  // never destroyed, as sessions are not
  const absl::Status status = programs->Run({code, static_cast<size_t>(bytes)}, symbol, call->args);
  if (status.ok()) return TEMPER_OK;
  return absl::IsNotFound(status) || absl::IsInvalidArgument(status) ? TEMPER_NO_PACKAGE : TEMPER_NO_RESOURCES;
}

}  // namespace temper
