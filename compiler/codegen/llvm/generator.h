// The generator "llvm": machine code of CPUs. See CodeGenerator for what the functions do.
#pragma once

#include "compiler/codegen/codegen.h"

namespace temper {

std::string LlvmId(const Target& target);
std::string LlvmTools();
absl::StatusOr<Artifact> CompileByLlvm(const std::vector<CodegenInput>& kernels, const Target& target);
// LLVM IR ("ir") or assembly ("asm").
absl::StatusOr<std::string> EmitTextByLlvm(const std::vector<CodegenInput>& kernels, const Target& target,
                                           std::string_view form);

}  // namespace temper
