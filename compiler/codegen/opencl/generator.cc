#include "compiler/codegen/opencl/generator.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/c_like/program.h"
#include "compiler/codegen/opencl/dialect.h"

namespace temper {
namespace {

constexpr int kVersion = 2;  // raised by hand when the code generated for the same nest changes

bool UsesF64(std::string_view text) { return text.find("double") != text.npos; }

std::string SourceOf(const SourceProgram& program) {
  return absl::StrCat(UsesF64(program.text) ? "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n" : "", program.text);
}

nlohmann::json TableOf(const SourceKernel& kernel) {
  nlohmann::json launches = nlohmann::json::array();
  for (size_t i = 0; i < kernel.functions.size(); ++i) {
    const LaunchGeometry& geometry = kernel.compiled.launches[i];
    launches.push_back({{"function", kernel.functions[i]}, {"groups", geometry.groups}, {"threads", geometry.threads}});
  }
  return {{"parameter_bytes", kernel.parameter_bytes},
          {"workspace_bytes", kernel.compiled.workspace_bytes},
          {"launches", launches}};
}

}  // namespace

std::string OpenclId(const Target&) { return absl::StrCat(kVersion, "-opencl"); }

absl::StatusOr<Artifact> CompileForOpencl(const std::vector<CodegenInput>& kernels, const Target& target) {
  TEMPER_ASSIGN_OR_RETURN(const SourceProgram program, WriteProgram(kernels, target, OpenclDialect()));
  Artifact artifact;
  nlohmann::json table = nlohmann::json::object();
  for (const SourceKernel& kernel : program.kernels) {
    table[kernel.compiled.symbol] = TableOf(kernel);
    artifact.kernels.push_back(kernel.compiled);
  }
  artifact.code = nlohmann::json{{"kernels", table}, {"source", SourceOf(program)}}.dump();
  return artifact;
}

absl::StatusOr<std::string> EmitOpenclText(const std::vector<CodegenInput>& kernels, const Target& target,
                                           std::string_view form) {
  if (form != "cl") return absl::InvalidArgumentError("OpenCL's code has one form, 'cl'");
  TEMPER_ASSIGN_OR_RETURN(const SourceProgram program, WriteProgram(kernels, target, OpenclDialect()));
  return SourceOf(program);
}

}  // namespace temper
