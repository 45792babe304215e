#include "compiler/codegen/package_programs.h"

#include <algorithm>

#include "include/temper/model.h"

namespace temper {
namespace {

constexpr size_t kMostPrograms = 512;  // of several packages: those used longest ago go first

thread_local std::string latest_error;

}  // namespace

const std::string& LatestLaunchError() { return latest_error; }

int32_t PackagePrograms::Launch(std::string_view code, std::string_view symbol, const temper_call* call) {
  const absl::Status status = Run(code, symbol, call->args);
  latest_error = std::string(status.message());
  if (status.ok()) return TEMPER_OK;
  const bool not_ours =
      absl::IsNotFound(status) || absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status);
  return not_ours ? TEMPER_NO_PACKAGE : TEMPER_NO_RESOURCES;
}

absl::Status PackagePrograms::Run(std::string_view code, std::string_view symbol, void* const* args) {
  std::lock_guard lock(mutex_);
  TEMPER_ASSIGN_OR_RETURN(Entry * program, Find(code));
  const auto kernel = program->kernels.find(symbol);
  if (kernel == program->kernels.end()) return absl::NotFoundError("the code has no such kernel");
  return RunOn(kernel->second, args);
}

absl::StatusOr<PackagePrograms::Entry*> PackagePrograms::Find(std::string_view code) {
  if (session_ == nullptr) {
    TEMPER_ASSIGN_OR_RETURN(session_, open_());
  }
  auto found = programs_.find(code);
  if (found == programs_.end()) {
    TEMPER_ASSIGN_OR_RETURN(Entry loaded, Load(code));
    if (programs_.size() >= kMostPrograms)
      programs_.erase(std::ranges::min_element(programs_, {}, [](const auto& p) { return p.second.used; }));
    found = programs_.emplace(code, std::move(loaded)).first;
  }
  found->second.used = ++clock_;
  return &found->second;
}

absl::StatusOr<PackagePrograms::Entry> PackagePrograms::Load(std::string_view code) {
  TEMPER_ASSIGN_OR_RETURN(driver::Program program, read_(code));
  Entry entry;
  for (auto& [symbol, kernel] : program.kernels) {
    Placed placed;
    TEMPER_ASSIGN_OR_RETURN(placed.loaded, driver::Loaded::Make(*session_, program.code, std::move(kernel)));
    std::vector<int64_t> sizes = placed.loaded.kernel.parameter_bytes;
    if (placed.loaded.kernel.workspace_bytes > 0) sizes.push_back(placed.loaded.kernel.workspace_bytes);
    for (const int64_t size : sizes) {
      TEMPER_ASSIGN_OR_RETURN(driver::Memory memory, session_->Allocate(size));
      placed.arguments.push_back(std::move(memory));
    }
    entry.kernels.emplace(symbol, std::move(placed));
  }
  return entry;
}

absl::Status PackagePrograms::RunOn(const Placed& placed, void* const* args) {
  const driver::Kernel& kernel = placed.loaded.kernel;
  const std::vector<int64_t>& bytes = kernel.parameter_bytes;
  const size_t inputs = bytes.size() - kernel.outputs;
  std::vector<void*> handles;
  for (const driver::Memory& memory : placed.arguments) handles.push_back(memory.get());
  for (size_t i = 0; i < inputs; ++i) TEMPER_RETURN_IF_ERROR(session_->Write(handles[i], 0, args[i], bytes[i]));
  TEMPER_RETURN_IF_ERROR(
      session_->Run(std::ssize(kernel.launches), [&](int64_t launch) { return placed.loaded.Call(launch, handles); })
          .status());
  for (size_t i = inputs; i < bytes.size(); ++i)
    TEMPER_RETURN_IF_ERROR(session_->Read(handles[i], 0, args[i], bytes[i]));
  return absl::OkStatus();
}

}  // namespace temper
