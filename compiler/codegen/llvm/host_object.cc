// The host's side of kernels whose code is not the host's: data, and functions that hand it on.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/link.h"
#include "compiler/codegen/llvm/emit_object.h"
#include "include/temper/model.h"

namespace temper {
namespace {

// int32_t symbol(const temper_call* call) {
//   return device != NULL ? device->launch(code, bytes, "symbol", call) : TEMPER_NO_PACKAGE;
// }
void EmitStub(llvm::Module& module, const std::string& symbol, llvm::Constant* device, llvm::Constant* code,
              int64_t bytes) {
  llvm::LLVMContext& c = module.getContext();
  llvm::Type *pointer = llvm::PointerType::getUnqual(c), *i32 = llvm::Type::getInt32Ty(c);
  auto* stub = llvm::Function::Create(llvm::FunctionType::get(i32, {pointer}, false),
                                      llvm::GlobalValue::ExternalLinkage, symbol, module);
  llvm::IRBuilder<> b(llvm::BasicBlock::Create(c, "", stub));
  llvm::Value* set = b.CreateLoad(pointer, device);
  auto* call = llvm::BasicBlock::Create(c, "", stub);
  auto* none = llvm::BasicBlock::Create(c, "", stub);
  b.CreateCondBr(b.CreateIsNull(set), none, call);
  b.SetInsertPoint(none);
  b.CreateRet(b.getInt32(TEMPER_NO_PACKAGE));
  b.SetInsertPoint(call);
  auto* type = llvm::FunctionType::get(i32, {pointer, b.getInt64Ty(), pointer, pointer}, false);
  static_assert(offsetof(temper_device, launch) == 0);
  llvm::Value* launch = b.CreateLoad(pointer, set);
  b.CreateRet(b.CreateCall(
      type, launch, {code, b.getInt64(static_cast<uint64_t>(bytes)), b.CreateGlobalString(symbol), stub->getArg(0)}));
}

}  // namespace

llvm::Constant* DevicePointer(llvm::Module& module, std::string_view generator) {
  llvm::Type* pointer = llvm::PointerType::getUnqual(module.getContext());
  return new llvm::GlobalVariable(module, pointer, false, llvm::GlobalValue::WeakAnyLinkage,
                                  llvm::Constant::getNullValue(pointer),
                                  absl::StrCat("temper_model_device_", std::string(generator)));
}

absl::StatusOr<std::string> HostObject(const Artifact& artifact, const Target& target) {
  TEMPER_ASSIGN_OR_RETURN(const CodeGenerator* generator, GeneratorFor(target));
  if (generator->device == nullptr) return artifact.code;
  llvm::LLVMContext context;
  llvm::Module module("stubs", context);
  const CpuTarget host = PlainCpu(HostArch());
  TEMPER_RETURN_IF_ERROR(PrepareModule(module, host));
  llvm::Constant* device = DevicePointer(module, generator->name);
  llvm::Constant* text = llvm::ConstantDataArray::getString(context, artifact.code, false);
  auto* code = new llvm::GlobalVariable(module, text->getType(), true, llvm::GlobalValue::PrivateLinkage, text);
  for (const CompiledKernel& kernel : artifact.kernels)
    EmitStub(module, kernel.symbol, device, code, static_cast<int64_t>(artifact.code.size()));
  return EmitObject(module, host);
}

}  // namespace temper
