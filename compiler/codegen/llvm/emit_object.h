// From LLVM IR to bytes: the passes, the target machine, the object. Inside codegen/llvm only.
#pragma once

#include <string>

#include "base/status.h"
#include "compiler/target/target.h"

namespace llvm {
class Constant;
class Function;
class Module;
}  // namespace llvm

namespace temper {

// Sets the module's triple and data layout for the target. Called before functions are built.
absl::Status PrepareModule(llvm::Module& module, const CpuTarget& target);
// Without any feature that a CPU of its architecture may lack: what data and plain calls are compiled for.
CpuTarget PlainCpu(CpuArch arch);
// Target attributes that every function of ours carries.
void SetTargetAttributes(llvm::Function& function, const CpuTarget& target);
// Runs the short list of passes over every function.
absl::Status OptimizeModule(llvm::Module& module, const CpuTarget& target);
// A relocatable object, or assembly text. Prepares the module if that has not been done.
absl::StatusOr<std::string> EmitObject(llvm::Module& module, const CpuTarget& target);
absl::StatusOr<std::string> EmitAssembly(llvm::Module& module, const CpuTarget& target);

// temper_model_device_<generator> (see HostObject). Several objects of a package define it, and the linker makes them
// one.
llvm::Constant* DevicePointer(llvm::Module& module, std::string_view generator);

}  // namespace temper
