#include "compiler/codegen/interpreter/generator.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/interpreter/nest_json.h"
#include "compiler/ir/launch.h"
#include "include/temper/model.h"

namespace temper {
namespace {

constexpr int kVersion = 2;  // raised by hand when a nest means something else to the interpreter, or its text does

bool HasInstructions(const ir::Func& f) {
  return ir::AnyOf(f.body, [](const ir::Stmt& s) { return s->kind == ir::StmtKind::kInstruction || s->ahead > 0; });
}

}  // namespace

std::string InterpreterId(const Target&) { return absl::StrCat(kVersion, "-interpreter"); }

absl::StatusOr<Artifact> CompileForInterpreter(const std::vector<CodegenInput>& kernels, const Target&) {
  Artifact artifact;
  nlohmann::json code = nlohmann::json::object();
  for (const CodegenInput& kernel : kernels) {
    if (kernel.symbol.empty() || code.contains(kernel.symbol))
      return absl::InvalidArgumentError(absl::StrCat("kernel symbol '", kernel.symbol, "' is empty or given twice"));
    TEMPER_RETURN_IF_ERROR(ir::Verify(kernel.func));
    TEMPER_ASSIGN_OR_RETURN(const std::vector<ir::Launch> launches, ir::LaunchesOf(kernel.func));
    if (HasInstructions(kernel.func))
      return absl::UnimplementedError("the interpreter's code has no instructions of warps");
    code[kernel.symbol] = NestToJson(kernel.func);
    CompiledKernel& compiled = artifact.kernels.emplace_back();
    compiled.symbol = kernel.symbol;
    for (const ir::Launch& launch : launches)
      compiled.launches.push_back({launch.groups, launch.threads, launch.shared_bytes()});
  }
  artifact.code = code.dump();
  return artifact;
}

absl::StatusOr<std::string> EmitNestText(const std::vector<CodegenInput>& kernels, const Target&,
                                         std::string_view form) {
  if (form != "ir") return absl::InvalidArgumentError("the interpreter's code has one form, 'ir'");
  std::string text;
  for (const CodegenInput& kernel : kernels) absl::StrAppend(&text, ir::Text(kernel.func));
  return text;
}

absl::StatusOr<ir::Func> NestOf(std::string_view code, const std::string& symbol) {
  const auto kernels = nlohmann::json::parse(code, nullptr, false);
  if (!kernels.is_object()) return absl::InvalidArgumentError("this is not the interpreter's code");
  const auto nest = kernels.find(symbol);
  if (nest == kernels.end() || !nest->is_string())
    return absl::NotFoundError(absl::StrCat("the code has no kernel ", symbol));
  return NestFromJson(nest->get_ref<const std::string&>());
}

// The interpreter has arrays of its own, so arguments are copied there and back.
absl::Status RunNest(const ir::Func& nest, void* const* args) {
  std::vector<NDArray> arrays;
  for (size_t i = 0; i < nest.params.size(); ++i) {
    NDArray& array = arrays.emplace_back(nest.params[i]->dtype, nest.params[i]->shape);
    std::memcpy(array.MutableData(), args[i], static_cast<size_t>(array.bytes()));
  }
  TEMPER_RETURN_IF_ERROR(ir::Interpret(nest, arrays));
  for (size_t i = arrays.size() - static_cast<size_t>(nest.num_outputs); i < arrays.size(); ++i)
    std::memcpy(args[i], arrays[i].data(), static_cast<size_t>(arrays[i].bytes()));
  return absl::OkStatus();
}

const temper_device kInterpreterDevice = {
    .launch = [](const char* code, int64_t bytes, const char* symbol, const temper_call* call) -> int32_t {
      const absl::StatusOr<ir::Func> nest = NestOf({code, static_cast<size_t>(bytes)}, symbol);
      const absl::Status status = nest.ok() ? RunNest(*nest, call->args) : nest.status();
      if (status.ok()) return TEMPER_OK;
      return nest.ok() ? TEMPER_NO_RESOURCES : TEMPER_NO_PACKAGE;
    }};

}  // namespace temper
