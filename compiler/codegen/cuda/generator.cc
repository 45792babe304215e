#include "compiler/codegen/cuda/generator.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/c_like/program.h"
#include "compiler/codegen/cuda/code.h"
#include "compiler/codegen/cuda/dialect.h"
#include "compiler/codegen/cuda/nvrtc.h"
#include "compiler/target/gpu_registers.h"

namespace temper {
namespace {

constexpr int kVersion = 5;  // raised by hand when the code generated for the same nest changes

// Grids and blocks of every architecture, by axis.
constexpr int64_t kMostGroups[] = {std::numeric_limits<int32_t>::max(), 65535, 65535};
constexpr int64_t kMostThreads[] = {1024, 1024, 64};

absl::Status CheckGrid(const LaunchGeometry& launch) {
  for (size_t axis = 0; axis < 3; ++axis) {
    if (launch.groups[axis] <= kMostGroups[axis] && launch.threads[axis] <= kMostThreads[axis]) continue;
    return absl::InvalidArgumentError(absl::StrCat(launch.groups[axis], " groups of ", launch.threads[axis],
                                                   " threads along ", std::string(1, "xyz"[axis]), ", where CUDA has ",
                                                   kMostGroups[axis], " of ", kMostThreads[axis]));
  }
  return absl::OkStatus();
}

absl::StatusOr<SourceProgram> Write(const std::vector<CodegenInput>& kernels, const Target& target) {
  TEMPER_ASSIGN_OR_RETURN(SourceProgram program, WriteProgram(kernels, target, CudaDialect()));
  for (const SourceKernel& kernel : program.kernels)
    for (const LaunchGeometry& launch : kernel.compiled.launches) TEMPER_RETURN_IF_ERROR(CheckGrid(launch));
  return program;
}

bool AddsProducts(const CodegenInput& kernel) {
  return ir::AnyOf(kernel.func.body, [](const ir::Stmt& s) {
    return s->kind == ir::StmtKind::kInstruction && s->instruction == ir::Instruction::kAddProduct;
  });
}

// What the code is compiled for: products of teams are in code for the very architecture alone. `only`: it is no other
// generation's.
struct Arch {
  std::string name;
  bool only = false;
};
absl::StatusOr<Arch> ArchFor(const std::vector<CodegenInput>& kernels, const GpuTarget& target) {
  if (std::ranges::none_of(kernels, AddsProducts)) return Arch{target.arch};
  if (target.unit_team_fmas == 0)
    return absl::InvalidArgumentError(absl::StrCat(target.arch, " has no products of teams of warps"));
  return Arch{target.arch.ends_with("a") ? target.arch : absl::StrCat(target.arch, "a"), true};
}

// ptxas spills a few registers where a unit then has room for more blocks. It knows nothing of the shared memory that
// they ask for, and an access to local memory costs more than they bring: for such functions one block is enough.
absl::StatusOr<bool> GiveRegisters(SourceProgram& program, const std::string& log) {
  bool changed = false;
  for (const SourceKernel& kernel : program.kernels) {
    for (size_t i = 0; i < kernel.functions.size(); ++i) {
      TEMPER_ASSIGN_OR_RETURN(const nvrtc::FunctionUse use, nvrtc::UseOf(log, kernel.functions[i]));
      const auto& [x, y, z] = kernel.compiled.launches[i].threads;
      if (use.spill_bytes == 0 || use.registers >= MostRegisters(x * y * z)) continue;
      const size_t name = program.text.find(absl::StrCat("void ", kernel.functions[i], "("));
      program.text.insert(program.text.rfind(')', name), ", 1");  // of its __launch_bounds__
      changed = true;
    }
  }
  return changed;
}

// `program` is what was compiled in the end.
absl::StatusOr<nvrtc::Compiled> Compile(SourceProgram& program, const nvrtc::Compiler& compiler,
                                        const std::string& arch) {
  TEMPER_ASSIGN_OR_RETURN(nvrtc::Compiled compiled, compiler.Compile(program.text, arch));
  TEMPER_ASSIGN_OR_RETURN(const bool again, GiveRegisters(program, compiled.log));
  if (again) return compiler.Compile(program.text, arch);
  return compiled;
}

std::array<uint32_t, 3> Narrow(const std::array<int64_t, 3>& a) {
  return {static_cast<uint32_t>(a[0]), static_cast<uint32_t>(a[1]), static_cast<uint32_t>(a[2])};
}

absl::StatusOr<CudaKernel> Describe(const SourceKernel& kernel, const std::string& log) {
  CudaKernel described{.parameter_bytes = kernel.parameter_bytes,
                       .outputs = static_cast<size_t>(kernel.outputs),
                       .workspace_bytes = kernel.compiled.workspace_bytes};
  for (size_t i = 0; i < kernel.functions.size(); ++i) {
    const LaunchGeometry& geometry = kernel.compiled.launches[i];
    TEMPER_ASSIGN_OR_RETURN(const nvrtc::FunctionUse use, nvrtc::UseOf(log, kernel.functions[i]));
    described.launches.push_back({.function = kernel.functions[i],
                                  .groups = Narrow(geometry.groups),
                                  .threads = Narrow(geometry.threads),
                                  .dynamic_shared_bytes = geometry.shared_bytes,
                                  .static_shared_bytes = use.shared_bytes,
                                  .registers = use.registers,
                                  .spill_bytes = use.spill_bytes,
                                  .stack_bytes = use.stack_bytes});
  }
  return described;
}

}  // namespace

std::string CudaId(const Target& target) {
  const absl::StatusOr<const nvrtc::Compiler*> compiler =
      nvrtc::CompilerFor(target.gpu() == nullptr ? "" : target.gpu()->arch);
  if (!compiler.ok()) return absl::StrCat(kVersion, "-cuda");
  const auto [major, minor] = (*compiler)->version();
  return absl::StrCat(kVersion, "-nvrtc", major, ".", minor);
}

absl::StatusOr<Artifact> CompileForCuda(const std::vector<CodegenInput>& kernels, const Target& target) {
  TEMPER_ASSIGN_OR_RETURN(SourceProgram program, Write(kernels, target));
  TEMPER_ASSIGN_OR_RETURN(const Arch arch, ArchFor(kernels, *target.gpu()));
  TEMPER_ASSIGN_OR_RETURN(const nvrtc::Compiler* compiler, nvrtc::CompilerFor(arch.name));
  TEMPER_ASSIGN_OR_RETURN(nvrtc::Compiled compiled, Compile(program, *compiler, arch.name));
  CudaCode code{.arch = arch.name, .nvrtc = compiler->version()};
  code.images = {{"cubin", std::move(compiled.cubin)}};
  // No later device could do anything with the PTX.
  if (!arch.only) code.images.push_back({"ptx", std::move(compiled.ptx)});
  Artifact artifact;
  for (const SourceKernel& kernel : program.kernels) {
    TEMPER_ASSIGN_OR_RETURN(CudaKernel described, Describe(kernel, compiled.log));
    code.kernels.emplace_back(kernel.compiled.symbol, std::move(described));
    artifact.kernels.push_back(kernel.compiled);
  }
  artifact.code = WriteCudaCode(code);
  return artifact;
}

absl::StatusOr<std::string> EmitCudaText(const std::vector<CodegenInput>& kernels, const Target& target,
                                         std::string_view form) {
  if (form != "cu" && form != "ptx" && form != "ptxas")
    return absl::InvalidArgumentError("CUDA's code has the forms 'cu', 'ptx' and 'ptxas'");
  TEMPER_ASSIGN_OR_RETURN(SourceProgram program, Write(kernels, target));
  if (form == "cu") return program.text;
  TEMPER_ASSIGN_OR_RETURN(const Arch arch, ArchFor(kernels, *target.gpu()));
  TEMPER_ASSIGN_OR_RETURN(const nvrtc::Compiler* compiler, nvrtc::CompilerFor(arch.name));
  TEMPER_ASSIGN_OR_RETURN(const nvrtc::Compiled compiled, Compile(program, *compiler, arch.name));
  return form == "ptx" ? std::string(compiled.ptx.c_str()) : std::string(compiled.log.c_str());
}

}  // namespace temper
