// From lowered functions to code. A code generator is a folder and a line in generators.cc; Target::generator names it.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compiler/ir/stmt.h"
#include "compiler/runtime/kernel_abi.h"
#include "compiler/target/target.h"

namespace temper {

struct CodegenInput {
  std::string symbol;  // exported name of the kernel; see runtime/kernel_abi.h for its signature
  ir::Func func;       // lowered
  int in_place = -1;   // the parameter whose bytes may be the output's, if any; see ReadsWhatItWrites
};

// How a device starts one launch of a kernel (ir/launch.h): by axis, x first.
struct LaunchGeometry {
  std::array<int64_t, 3> groups = {1, 1, 1}, threads = {1, 1, 1};
  int64_t shared_bytes = 0;  // of each group
};

struct CompiledKernel {
  std::string symbol;
  // Scratch shared by the call, and for each thread, placed after it:
  // total = workspace_bytes + threads * thread_workspace_bytes.
  int64_t workspace_bytes = 0;
  int64_t thread_workspace_bytes = 0;
  std::vector<LaunchGeometry> launches;  // one after another; none where the kernel runs on the host's threads
};

// What a generator makes of kernels. Their constants are packed before they are called, on the host, as Kernel::packs
// says (ops/template.h).
struct Artifact {
  std::string code;                     // in the generator's form; of "llvm" a relocatable ELF file that needs libc's
                                        // math at most
  std::vector<CompiledKernel> kernels;  // in the order of the inputs
};

// All functions are thread-safe. Errors: kUnimplemented names the construct, kInternal has the message from below.
struct CodeGenerator {
  std::string_view name;  // Target::generator
  // "5-llvm19": its version and that of the tools that it has for the target. Records of another one are of other code.
  std::string (*id)(const Target& target);
  absl::StatusOr<Artifact> (*compile)(const std::vector<CodegenInput>& kernels, const Target& target);
  // For people; the forms that it knows, such as "asm", "ir", and "emitted": as it is before LLVM's own passes.
  absl::StatusOr<std::string> (*emit_text)(const std::vector<CodegenInput>& kernels, const Target& target,
                                           std::string_view form);
  // Runs the kernels of the artifact's code. Null where that is the host's own machine code, which needs nobody to run
  // it.
  const temper_device* device = nullptr;
  // "LLVM 19.1.7": the tools that it runs on, as they are in this process. The same nest may become other bytes under
  // others. Null: there are none.
  std::string (*tools)() = nullptr;
};
std::span<const CodeGenerator> AllCodeGenerators();
// kUnimplemented, one line that names the generator: nothing generates its code.
absl::StatusOr<const CodeGenerator*> GeneratorFor(const Target& target);

// The generator's, by target. The id is empty where there is none.
absl::StatusOr<Artifact> CompileKernels(const std::vector<CodegenInput>& kernels, const Target& target);
absl::StatusOr<std::string> EmitText(const std::vector<CodegenInput>& kernels, const Target& target,
                                     std::string_view form);
std::string CodegenId(const Target& target);
std::string CodegenTools(const Target& target);  // CodeGenerator::tools; empty: there are none

// Raised by hand when the code that "llvm" generates for the same nest changes; tests/codegen/golden_test.cc says when.
inline constexpr int kCodegenVersion = 15;

// An object loaded into this process, ready to call. Symbols it needs beyond libc are refused.
class LoadedModule {
 public:
  virtual ~LoadedModule() = default;
  virtual absl::StatusOr<void*> Symbol(const std::string& name) = 0;
};
absl::StatusOr<std::unique_ptr<LoadedModule>> LoadObject(const std::string& object);

}  // namespace temper
