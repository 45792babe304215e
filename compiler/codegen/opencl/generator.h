// The generator "opencl": OpenCL C 1.2 as source, which the device's driver compiles. See CodeGenerator for what the
// functions do.
#pragma once

#include "compiler/codegen/codegen.h"

namespace temper {

std::string OpenclId(const Target& target);
// The code is JSON: the program's source, and what a caller has to know of its kernels (OpenclCode). A function without
// launches is refused (kUnimplemented), and launches that exceed the target (kInvalidArgument).
absl::StatusOr<Artifact> CompileForOpencl(const std::vector<CodegenInput>& kernels, const Target& target);
// The source ("cl").
absl::StatusOr<std::string> EmitOpenclText(const std::vector<CodegenInput>& kernels, const Target& target,
                                           std::string_view form);
// Arguments are the host's; they are copied to the device and back. Thread-safe.
int32_t LaunchByOpencl(const char* code, int64_t bytes, const char* symbol, const temper_call* call);

// A kernel of the code, for those who launch it themselves.
struct OpenclKernel {
  struct Launch {
    std::string function;
    std::array<size_t, 3> groups, threads;
  };
  std::vector<int64_t> parameter_bytes;
  size_t outputs = 1;           // the last parameters
  int64_t workspace_bytes = 0;  // of the functions' last argument; 0: they have none
  std::vector<Launch> launches;
};
struct OpenclCode {
  std::string source;
  std::vector<std::pair<std::string, OpenclKernel>> kernels;  // by symbol

  const OpenclKernel* Find(std::string_view symbol) const;  // null: there is none
};
// kInvalidArgument: it is not what CompileForOpencl makes.
absl::StatusOr<OpenclCode> ReadOpenclCode(std::string_view code);

}  // namespace temper
