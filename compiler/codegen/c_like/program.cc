#include "compiler/codegen/c_like/program.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/c_like/emitter.h"

namespace temper {
namespace {

// Where arrays of the workspace begin: what vectors and any device's rules ask for.
constexpr int64_t kAlignment = 256;

bool IsIdentifier(std::string_view symbol) {
  return !symbol.empty() && std::isdigit(static_cast<unsigned char>(symbol[0])) == 0 &&
         std::ranges::all_of(symbol, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

// Those around the launches, one behind the other.
std::vector<WorkspaceArray> PlaceArrays(const ir::Func& func, int64_t& bytes) {
  std::vector<WorkspaceArray> arrays;
  bytes = 0;
  ir::VisitStmt(func.body, [&](const ir::Stmt& s) {
    if (s->kind != ir::StmtKind::kAlloc || s->buffer->scope != ir::Scope::kMemory) return;
    arrays.push_back({s->buffer, bytes});
    const int64_t size = std::max<int64_t>(1, BytesOf(s->buffer->dtype, NumElements(s->buffer->shape)));
    bytes += (size + kAlignment - 1) / kAlignment * kAlignment;
  });
  return arrays;
}

absl::Status CheckFits(const ir::Launch& launch, const GpuTarget& target) {
  if (launch.num_threads() > target.group_threads) {
    return absl::InvalidArgumentError(absl::StrCat(
        "groups of ", launch.num_threads(), " threads, where the target has ", target.group_threads, " at most"));
  }
  if (launch.shared_bytes() > target.shared_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(launch.shared_bytes(), " bytes of shared memory, where the target has ", target.shared_bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<SourceKernel> WriteKernel(const CodegenInput& input, const GpuTarget& target, Prelude& prelude,
                                         std::string& text) {
  TEMPER_RETURN_IF_ERROR(ir::Verify(input.func));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<ir::Launch> launches, ir::LaunchesOf(input.func));
  if (launches.empty()) {
    return absl::UnimplementedError(
        absl::StrCat("no ", prelude.dialect().name, " code for a nest without group and thread loops"));
  }
  SourceKernel kernel{.compiled = {.symbol = input.symbol}, .outputs = input.func.num_outputs};
  const std::vector<WorkspaceArray> workspace = PlaceArrays(input.func, kernel.compiled.workspace_bytes);
  for (const ir::Launch& launch : launches) {
    TEMPER_RETURN_IF_ERROR(CheckFits(launch, target));
    kernel.functions.push_back(absl::StrCat(input.symbol, "_", kernel.functions.size()));
    TEMPER_ASSIGN_OR_RETURN(
        const std::string function,
        KernelEmitter(input.func, workspace, input.in_place, prelude).Emit(launch, kernel.functions.back()));
    absl::StrAppend(&text, "\n", function);
    kernel.compiled.launches.push_back({launch.groups, launch.threads, launch.shared_bytes()});
  }
  for (const ir::Buffer& param : input.func.params)
    kernel.parameter_bytes.push_back(BytesOf(param->dtype, NumElements(param->shape)));
  return kernel;
}

}  // namespace

absl::StatusOr<SourceProgram> WriteProgram(const std::vector<CodegenInput>& kernels, const Target& target,
                                           const Dialect& dialect) {
  if (target.gpu() == nullptr) {
    return absl::UnimplementedError(absl::StrCat(dialect.name, " code is for targets whose threads come in groups"));
  }
  SourceProgram program;
  Prelude prelude(dialect);
  std::set<std::string> symbols;
  for (const CodegenInput& input : kernels) {
    if (!IsIdentifier(input.symbol) || !symbols.insert(input.symbol).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("kernel symbol '", input.symbol, "' is no name for a function, or given twice"));
    }
    absl::StatusOr<SourceKernel> kernel = WriteKernel(input, *target.gpu(), prelude, program.text);
    if (!kernel.ok())
      return absl::Status(kernel.status().code(), absl::StrCat(input.symbol, ": ", kernel.status().message()));
    program.kernels.push_back(*std::move(kernel));
  }
  program.text.insert(0, prelude.text());
  return program;
}

}  // namespace temper
