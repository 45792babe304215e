// From lowered functions to machine code. One implementation a folder; chosen by Target::kind.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/ir/stmt.h"
#include "compiler/target/target.h"

namespace temper {

// Raised by hand when the code generated for the same nest changes.
inline constexpr int kCodegenVersion = 5;
std::string CodegenId();  // "1-llvm19": codegen version and LLVM's major

struct CodegenInput {
  std::string symbol;  // exported name of the kernel; see runtime/kernel_abi.h for its signature
  ir::Func func;       // lowered
  int in_place = -1;   // the parameter whose bytes may be the output's, if any; see ReadsWhatItWrites
};

struct CompiledKernel {
  std::string symbol;
  // Scratch shared by the call, and for each thread, placed after it:
  // total = workspace_bytes + threads * thread_workspace_bytes.
  int64_t workspace_bytes = 0;
  int64_t thread_workspace_bytes = 0;
};

struct CompiledModule {
  std::string object;                   // a relocatable ELF file; needs libc's math at most
  std::vector<CompiledKernel> kernels;  // in the order of the inputs
};

// Thread-safe (each call has a context of its own). Errors: kUnimplemented names the construct, kInternal LLVM's
// message.
absl::StatusOr<CompiledModule> CompileModule(const std::vector<CodegenInput>& kernels, const Target& target);
// For people: LLVM IR ("ir") or assembly ("asm") of the same.
absl::StatusOr<std::string> EmitText(const std::vector<CodegenInput>& kernels, const Target& target,
                                     std::string_view form);

// An object loaded into this process, ready to call. Symbols it needs beyond libc are refused.
class LoadedModule {
 public:
  virtual ~LoadedModule() = default;
  virtual absl::StatusOr<void*> Symbol(const std::string& name) = 0;
};
absl::StatusOr<std::unique_ptr<LoadedModule>> LoadObject(const std::string& object);

}  // namespace temper
