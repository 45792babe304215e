// The table of code generators: one line each.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/cuda/generator.h"
#include "compiler/codegen/cuda/launch.h"
#include "compiler/codegen/interpreter/generator.h"
#include "compiler/codegen/llvm/generator.h"
#include "compiler/codegen/opencl/generator.h"
#include "compiler/codegen/opencl/launch.h"

namespace temper {
namespace {

constexpr CodeGenerator kGenerators[] = {
    {"llvm", LlvmId, CompileByLlvm, EmitTextByLlvm, nullptr, LlvmTools},
    {"interpreter", InterpreterId, CompileForInterpreter, EmitNestText, &kInterpreterDevice},
    {"opencl", OpenclId, CompileForOpencl, EmitOpenclText, &kOpenclDevice},
    {"cuda", CudaId, CompileForCuda, EmitCudaText, &kCudaDevice},
};

}  // namespace

std::span<const CodeGenerator> AllCodeGenerators() { return kGenerators; }

absl::StatusOr<const CodeGenerator*> GeneratorFor(const Target& target) {
  const auto* found = std::ranges::find(kGenerators, target.generator, &CodeGenerator::name);
  if (found == std::end(kGenerators))
    return absl::UnimplementedError(absl::StrCat("no code generator for targets of kind ", target.generator));
  return found;
}

absl::StatusOr<Artifact> CompileKernels(const std::vector<CodegenInput>& kernels, const Target& target) {
  TEMPER_ASSIGN_OR_RETURN(const CodeGenerator* generator, GeneratorFor(target));
  return generator->compile(kernels, target);
}

absl::StatusOr<std::string> EmitText(const std::vector<CodegenInput>& kernels, const Target& target,
                                     std::string_view form) {
  TEMPER_ASSIGN_OR_RETURN(const CodeGenerator* generator, GeneratorFor(target));
  return generator->emit_text(kernels, target, form);
}

std::string CodegenId(const Target& target) {
  const absl::StatusOr<const CodeGenerator*> generator = GeneratorFor(target);
  return generator.ok() ? (*generator)->id(target) : "";
}

std::string CodegenTools(const Target& target) {
  const absl::StatusOr<const CodeGenerator*> generator = GeneratorFor(target);
  return generator.ok() && (*generator)->tools != nullptr ? (*generator)->tools() : "";
}

}  // namespace temper
