#include "compiler/codegen/llvm/kernel.h"

#include <llvm-c/Core.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/raw_ostream.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/llvm/emit_object.h"
#include "compiler/codegen/llvm/generator.h"
#include "compiler/ir/launch.h"

namespace temper {

llvm::Function* MakePart(KernelContext& context, const std::string& name, const std::vector<ir::Buffer>& buffers,
                         size_t integers, size_t pointers) {
  llvm::LLVMContext& c = context.module.getContext();
  llvm::Type* pointer = llvm::PointerType::getUnqual(c);
  std::vector<llvm::Type*> types(buffers.size(), pointer);
  types.insert(types.end(), integers, llvm::Type::getInt64Ty(c));
  types.insert(types.end(), pointers, pointer);
  auto* function = llvm::Function::Create(llvm::FunctionType::get(llvm::Type::getVoidTy(c), types, false),
                                          llvm::GlobalValue::InternalLinkage, name, context.module);
  SetTargetAttributes(*function, context.target);
  function->addFnAttr(llvm::Attribute::NoInline);
  const bool aligned = !context.target.TakesUnaligned();  // see Emitter::AlignmentOf
  for (unsigned i = 0; i < buffers.size(); ++i) {
    if (!context.aliasing.contains(buffers[i].get())) function->addParamAttr(i, llvm::Attribute::NoAlias);
    const int64_t bytes = BytesOf(buffers[i]->dtype, NumElements(buffers[i]->shape));
    if (bytes > 0) function->addDereferenceableParamAttr(i, static_cast<uint64_t>(bytes));
    if (aligned) function->addParamAttr(i, llvm::Attribute::getWithAlignment(c, llvm::Align(64)));
  }
  llvm::BasicBlock::Create(c, "", function);
  return function;
}

namespace {

// A loop that is run by all threads, and nothing beside it: all loads and stores are in its body, a part of its own.
bool IsParallelLoop(const ir::Stmt& s) {
  return s->kind == ir::StmtKind::kFor && s->for_kind == ir::ForKind::kParallel && s->extent > 1;
}

// The fields of temper_call, each of 8 bytes.
enum CallField : unsigned { kArgs = 0, kWorkspace = 2, kLauncher = 3 };

// kernel(call) loads the pointers and calls the part that has each of them as a parameter, where they are known not to
// alias. Where that would do nothing but start a parallel loop, the kernel does it itself.
absl::Status BuildKernel(llvm::Module& module, const CodegenInput& input, const CpuTarget& target,
                         CompiledKernel& compiled) {
  if (ir::HasLaunches(input.func)) {
    return absl::UnimplementedError("the nest is for devices with thread groups, of which code for CPUs knows nothing");
  }
  const FunctionPlan plan = PlanFunction(input.func);
  KernelContext context{module, target, plan, input.symbol, {}};
  if (input.in_place >= 0)
    context.aliasing = {input.func.params[static_cast<size_t>(input.in_place)].get(), input.func.params.back().get()};
  std::vector<ir::Buffer> buffers = input.func.params;
  buffers.insert(buffers.end(), plan.workspace_buffers.begin(), plan.workspace_buffers.end());
  const auto emit = [&](llvm::Function* into, const std::vector<llvm::Value*>& args) {
    const size_t n = buffers.size();
    Emitter emitter(context, into, args[n], args[n + 1]);
    for (size_t i = 0; i < n; ++i) emitter.BindPointer(buffers[i], args[i]);
    emitter.Emit(input.func.body);
    emitter.Return();
    return emitter.status();
  };

  llvm::LLVMContext& c = module.getContext();
  llvm::Type* pointer = llvm::PointerType::getUnqual(c);
  auto* type = llvm::FunctionType::get(llvm::Type::getInt32Ty(c), {pointer}, false);
  auto* kernel = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, input.symbol, module);
  SetTargetAttributes(*kernel, target);
  llvm::IRBuilder<> b(llvm::BasicBlock::Create(c, "", kernel));
  const auto field = [&](CallField f) {
    return b.CreateLoad(pointer, b.CreateConstGEP1_64(pointer, kernel->getArg(0), f));
  };
  llvm::Value *operands = field(kArgs), *workspace = field(kWorkspace);
  std::vector<llvm::Value*> args;
  for (size_t i = 0; i < input.func.params.size(); ++i) {
    args.push_back(b.CreateLoad(pointer, b.CreateConstGEP1_64(pointer, operands, i)));
  }
  for (const ir::Buffer& buffer : plan.workspace_buffers) {
    args.push_back(
        b.CreateConstGEP1_64(b.getInt8Ty(), workspace, static_cast<uint64_t>(plan.placements.at(buffer.get()).offset)));
  }
  args.push_back(workspace);
  args.push_back(field(kLauncher));
  if (IsParallelLoop(input.func.body)) {
    TEMPER_RETURN_IF_ERROR(emit(kernel, args));
  } else {
    llvm::Function* main = MakePart(context, absl::StrCat(input.symbol, ".main"), buffers, 0, 2);
    std::vector<llvm::Value*> parameters;
    for (llvm::Argument& arg : main->args()) parameters.push_back(&arg);
    TEMPER_RETURN_IF_ERROR(emit(main, parameters));
    b.CreateCall(main, args);
    b.CreateRet(b.getInt32(0));
  }
  compiled = {input.symbol, plan.workspace_bytes, plan.thread_workspace_bytes, {}};
  return absl::OkStatus();
}

struct Built {
  llvm::LLVMContext context;
  llvm::Module module{"temper", context};
  std::vector<CompiledKernel> kernels;
};

absl::Status BuildModule(const std::vector<CodegenInput>& kernels, const Target& target, Built& built) {
  if (target.cpu() == nullptr) return absl::UnimplementedError("LLVM generates code for CPUs alone here");
  const CpuTarget& cpu = *target.cpu();
  TEMPER_RETURN_IF_ERROR(PrepareModule(built.module, cpu));
  std::set<std::string> symbols;
  for (const CodegenInput& input : kernels) {
    if (!symbols.insert(input.symbol).second || input.symbol.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("kernel symbol '", input.symbol, "' is empty or given twice"));
    }
    CompiledKernel compiled;
    absl::Status status = BuildKernel(built.module, input, cpu, compiled);
    if (!status.ok()) return absl::Status(status.code(), absl::StrCat(input.symbol, ": ", status.message()));
    built.kernels.push_back(std::move(compiled));
  }
  return absl::OkStatus();
}

}  // namespace

std::string LlvmId(const Target&) { return absl::StrCat(kCodegenVersion, "-llvm", LLVM_VERSION_MAJOR); }

// Asked of the library that is loaded, which may be of another patch level than its headers were.
std::string LlvmTools() {
  unsigned major = 0, minor = 0, patch = 0;
  LLVMGetVersion(&major, &minor, &patch);
  return absl::StrCat("LLVM ", major, ".", minor, ".", patch);
}

absl::StatusOr<Artifact> CompileByLlvm(const std::vector<CodegenInput>& kernels, const Target& target) {
  Built built;
  built.context.setDiscardValueNames(true);
  TEMPER_RETURN_IF_ERROR(BuildModule(kernels, target, built));
  TEMPER_RETURN_IF_ERROR(OptimizeModule(built.module, *target.cpu()));
  Artifact compiled;
  TEMPER_ASSIGN_OR_RETURN(compiled.code, EmitObject(built.module, *target.cpu()));
  compiled.kernels = std::move(built.kernels);
  return compiled;
}

absl::StatusOr<std::string> EmitTextByLlvm(const std::vector<CodegenInput>& kernels, const Target& target,
                                           std::string_view form) {
  if (form != "emitted" && form != "ir" && form != "asm")
    return absl::InvalidArgumentError("the forms of generated code are 'emitted', 'ir' and 'asm'");
  Built built;
  built.context.setDiscardValueNames(false);
  TEMPER_RETURN_IF_ERROR(BuildModule(kernels, target, built));
  if (form != "emitted") TEMPER_RETURN_IF_ERROR(OptimizeModule(built.module, *target.cpu()));
  if (form == "asm") return EmitAssembly(built.module, *target.cpu());
  std::string text;
  llvm::raw_string_ostream out(text);
  built.module.print(out, nullptr);
  return text;
}

}  // namespace temper
