// runtime/plan.h's structs as constants of an LLVM module. Every field there is 8 bytes, or two of 4, so struct
// layouts agree without further care; a test loads what comes out through the C headers.
#include <llvm/IR/Constants.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include "compiler/codegen/link.h"
#include "compiler/codegen/llvm/emit_object.h"
#include "compiler/runtime/plan.h"

namespace temper {
namespace {

class PlanModule {
 public:
  PlanModule()
      : module_("plan", context_),
        i64_(llvm::Type::getInt64Ty(context_)),
        i32_(llvm::Type::getInt32Ty(context_)),
        ptr_(llvm::PointerType::getUnqual(context_)) {}

  llvm::Module& Build(const Plan& plan) {
    std::vector<llvm::Constant*> steps, features;
    for (const PlanStep& step : plan.steps) steps.push_back(Step(step));
    for (const std::string& feature : plan.cpu_features) features.push_back(String(feature));
    llvm::Constant* fields[] = {I64(TEMPER_PLAN_VERSION),
                                I64(static_cast<int64_t>(plan.inputs.size())),
                                Ios(plan.inputs),
                                I64(static_cast<int64_t>(plan.outputs.size())),
                                Ios(plan.outputs),
                                I64(static_cast<int64_t>(steps.size())),
                                Array(steps),
                                I64(plan.arena_bytes),
                                I64(plan.scratch_threads),
                                I64(plan.weight_bytes),
                                I64(static_cast<int64_t>(plan.weight_hash)),
                                I64(static_cast<int64_t>(features.size())),
                                Array(features)};
    llvm::Constant* table = llvm::ConstantStruct::getAnon(fields);
    auto* global = new llvm::GlobalVariable(module_, table->getType(), true, llvm::GlobalValue::ExternalLinkage, table,
                                            "temper_plan_v1");
    global->setVisibility(llvm::GlobalValue::HiddenVisibility);
    return module_;
  }

 private:
  llvm::Constant* I64(int64_t v) { return llvm::ConstantInt::getSigned(i64_, v); }
  llvm::Constant* I32(int32_t v) { return llvm::ConstantInt::getSigned(i32_, v); }
  llvm::Constant* Null() { return llvm::ConstantPointerNull::get(ptr_); }
  llvm::Constant* Global(llvm::Constant* value) {
    return new llvm::GlobalVariable(module_, value->getType(), true, llvm::GlobalValue::PrivateLinkage, value);
  }
  llvm::Constant* String(const std::string& s) { return Global(llvm::ConstantDataArray::getString(context_, s)); }
  llvm::Constant* Array(const std::vector<llvm::Constant*>& items) {
    if (items.empty()) return Null();
    return Global(llvm::ConstantArray::get(llvm::ArrayType::get(items[0]->getType(), items.size()), items));
  }

  llvm::Constant* Ios(const std::vector<PlanIo>& ios) {
    std::vector<llvm::Constant*> items;
    for (const PlanIo& io : ios) {
      std::vector<llvm::Constant*> shape;
      for (int64_t d : io.shape) shape.push_back(I64(d));
      llvm::Constant* fields[] = {String(io.name), I64(Info(io.dtype).onnx), I64(static_cast<int64_t>(io.shape.size())),
                                  Array(shape), I64(BytesOf(io.dtype, NumElements(io.shape)))};
      items.push_back(llvm::ConstantStruct::getAnon(fields));
    }
    return Array(items);
  }

  llvm::Constant* Step(const PlanStep& step) {
    std::vector<llvm::Constant*> args;
    for (const PlanArg& arg : step.args) {
      llvm::Constant* fields[] = {I32(arg.kind), I32(arg.index), I64(arg.offset)};
      args.push_back(llvm::ConstantStruct::getAnon(fields));
    }
    llvm::Constant* kernel = Null();
    if (!step.symbol.empty()) {
      auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(context_), {ptr_, ptr_, ptr_}, false);
      auto* function = llvm::cast<llvm::Function>(module_.getOrInsertFunction(step.symbol, type).getCallee());
      function->setVisibility(llvm::GlobalValue::HiddenVisibility);
      kernel = function;
    }
    llvm::Constant* fields[] = {String(step.name),
                                kernel,
                                Array(args),
                                I64(static_cast<int64_t>(step.args.size())),
                                I64(step.copy_bytes),
                                I64(step.workspace_bytes),
                                I64(step.thread_workspace_bytes),
                                I64(step.workspace_offset)};
    return llvm::ConstantStruct::getAnon(fields);
  }

  llvm::LLVMContext context_;
  llvm::Module module_;
  llvm::Type *i64_, *i32_;
  llvm::PointerType* ptr_;
};

}  // namespace

absl::StatusOr<std::string> CompilePlan(const Plan& plan, const Target& target) {
  PlanModule module;
  return EmitObject(module.Build(plan), target);
}

}  // namespace temper
