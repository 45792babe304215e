// The generator "interpreter": kernels are nests, run by the interpreter of ir/. Slow and exact; it shows what a device
// needs, and finds what generated code would hide. See CodeGenerator for what the functions do.
#pragma once

#include "compiler/codegen/codegen.h"

namespace temper {

std::string InterpreterId(const Target& target);
// The code is JSON: a nest (nest_json.h) by symbol.
absl::StatusOr<Artifact> CompileForInterpreter(const std::vector<CodegenInput>& kernels, const Target& target);
// The printed nests ("ir").
absl::StatusOr<std::string> EmitNestText(const std::vector<CodegenInput>& kernels, const Target& target,
                                         std::string_view form);
extern const temper_device kInterpreterDevice;  // its memory is the host's

// The kernel's nest, for those who run it themselves. kNotFound: the code has no such kernel.
absl::StatusOr<ir::Func> NestOf(std::string_view code, const std::string& symbol);
// Runs the nest on the call's arguments: dense arrays of its parameters' types.
absl::Status RunNest(const ir::Func& nest, void* const* args);

}  // namespace temper
