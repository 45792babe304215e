#include "compiler/codegen/opencl/generator.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/opencl/emitter.h"

namespace temper {
namespace {

constexpr int kVersion = 1;  // raised by hand when the code generated for the same nest changes
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

struct Program {
  Prelude prelude;
  std::string functions;
  nlohmann::json table = nlohmann::json::object();
  std::vector<CompiledKernel> kernels;
};

bool UsesF64(std::string_view text) { return text.find("double") != text.npos; }

absl::Status AddKernel(const CodegenInput& input, const GpuTarget& target, Program& program) {
  TEMPER_RETURN_IF_ERROR(ir::Verify(input.func));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<ir::Launch> launches, ir::LaunchesOf(input.func));
  if (launches.empty()) return absl::UnimplementedError("no OpenCL code for a nest without group and thread loops");
  CompiledKernel compiled{.symbol = input.symbol};
  const std::vector<WorkspaceArray> workspace = PlaceArrays(input.func, compiled.workspace_bytes);
  nlohmann::json functions = nlohmann::json::array();
  for (const ir::Launch& launch : launches) {
    TEMPER_RETURN_IF_ERROR(CheckFits(launch, target));
    const std::string name = absl::StrCat(input.symbol, "_", functions.size());
    TEMPER_ASSIGN_OR_RETURN(const std::string text,
                            OpenclEmitter(input.func, workspace, input.in_place, program.prelude).Emit(launch, name));
    absl::StrAppend(&program.functions, "\n", text);
    functions.push_back({{"function", name}, {"groups", launch.groups}, {"threads", launch.threads}});
    compiled.launches.push_back({launch.groups, launch.threads, launch.shared_bytes()});
  }
  nlohmann::json parameters = nlohmann::json::array();
  for (const ir::Buffer& param : input.func.params)
    parameters.push_back(BytesOf(param->dtype, NumElements(param->shape)));
  program.table[input.symbol] = {{"parameter_bytes", parameters},
                                 {"outputs", input.func.num_outputs},
                                 {"workspace_bytes", compiled.workspace_bytes},
                                 {"launches", functions}};
  program.kernels.push_back(std::move(compiled));
  return absl::OkStatus();
}

absl::StatusOr<Program> MakeProgram(const std::vector<CodegenInput>& kernels, const Target& target) {
  if (target.gpu() == nullptr)
    return absl::UnimplementedError("OpenCL code is for targets whose threads come in groups");
  Program program;
  std::set<std::string> symbols;
  for (const CodegenInput& input : kernels) {
    if (!IsIdentifier(input.symbol) || !symbols.insert(input.symbol).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("kernel symbol '", input.symbol, "' is no name for a function, or given twice"));
    }
    const absl::Status status = AddKernel(input, *target.gpu(), program);
    if (!status.ok()) return absl::Status(status.code(), absl::StrCat(input.symbol, ": ", status.message()));
  }
  return program;
}

std::string SourceOf(const Program& program) {
  const std::string text = absl::StrCat(program.prelude.text(), program.functions);
  const bool f64 = UsesF64(text);
  return absl::StrCat(f64 ? "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n" : "", text);
}

absl::Status NotOurs() { return absl::InvalidArgumentError("this is not OpenCL code of Temper's"); }

}  // namespace

std::string OpenclId() { return absl::StrCat(kVersion, "-opencl"); }

absl::StatusOr<Artifact> CompileForOpencl(const std::vector<CodegenInput>& kernels, const Target& target) {
  TEMPER_ASSIGN_OR_RETURN(Program program, MakeProgram(kernels, target));
  const nlohmann::json code = {{"kernels", program.table}, {"source", SourceOf(program)}};
  return Artifact{code.dump(), std::move(program.kernels)};
}

absl::StatusOr<std::string> EmitOpenclText(const std::vector<CodegenInput>& kernels, const Target& target,
                                           std::string_view form) {
  if (form != "cl") return absl::InvalidArgumentError("OpenCL's code has one form, 'cl'");
  TEMPER_ASSIGN_OR_RETURN(const Program program, MakeProgram(kernels, target));
  return SourceOf(program);
}

absl::StatusOr<driver::Program> ReadOpenclCode(std::string_view code) {
  try {
    const auto json = nlohmann::json::parse(code);
    driver::Program result;
    result.code.images.push_back(json.at("source").get<std::string>());
    for (const auto& [symbol, told] : json.at("kernels").items()) {
      driver::Kernel& kernel = result.kernels.emplace_back(symbol, driver::Kernel{}).second;
      kernel.parameter_bytes = told.at("parameter_bytes").get<std::vector<int64_t>>();
      kernel.outputs = told.at("outputs").get<size_t>();
      kernel.workspace_bytes = told.at("workspace_bytes").get<int64_t>();
      for (const auto& launch : told.at("launches")) {
        kernel.launches.push_back({launch.at("function").get<std::string>(),
                                   launch.at("groups").get<std::array<size_t, 3>>(),
                                   launch.at("threads").get<std::array<size_t, 3>>()});
      }
      if (kernel.outputs > kernel.parameter_bytes.size()) return NotOurs();
    }
    return result;
  } catch (const nlohmann::json::exception&) {
    return NotOurs();
  }
}

}  // namespace temper
