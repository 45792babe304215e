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
    std::vector<llvm::Constant*> features;
    for (const std::string& feature : plan.cpu_features) features.push_back(String(feature));
    std::vector<llvm::Constant*> variants;
    for (const PlanVariant& variant : plan.variants) variants.push_back(Variant(plan, variant));
    llvm::Constant* table =
        Struct({I64(TEMPER_PLAN_VERSION), Count(variants), Array(variants), InMemory(plan, plan.weight_bytes),
                I64(static_cast<int64_t>(plan.weight_hash)), InMemory(plan, 0), I64(plan.caller_alignment),
                Count(features), Array(features), plan.device.empty() ? Null() : DevicePointer(module_, plan.device),
                plan.device.empty() ? Null() : String(plan.device)});
    auto* global = new llvm::GlobalVariable(module_, table->getType(), true, llvm::GlobalValue::ExternalLinkage, table,
                                            "temper_package_plan");
    global->setVisibility(llvm::GlobalValue::HiddenVisibility);
    return module_;
  }

 private:
  llvm::Constant* I64(int64_t v) { return llvm::ConstantInt::getSigned(i64_, v); }
  llvm::Constant* I32(int32_t v) { return llvm::ConstantInt::getSigned(i32_, v); }
  llvm::Constant* Null() { return llvm::ConstantPointerNull::get(ptr_); }
  llvm::Constant* Count(const std::vector<llvm::Constant*>& items) { return I64(static_cast<int64_t>(items.size())); }
  llvm::Constant* Struct(llvm::ArrayRef<llvm::Constant*> fields) { return llvm::ConstantStruct::getAnon(fields); }
  // Bytes by memory: all are in one.
  llvm::Constant* InMemory(const Plan& plan, int64_t bytes) {
    const int64_t host = plan.device.empty() ? bytes : 0;
    return llvm::ConstantArray::get(llvm::ArrayType::get(i64_, TEMPER_NUM_MEMORIES), {I64(host), I64(bytes - host)});
  }
  llvm::Constant* Global(llvm::Constant* value) {
    return new llvm::GlobalVariable(module_, value->getType(), true, llvm::GlobalValue::PrivateLinkage, value);
  }
  llvm::Constant* String(const std::string& s) { return Global(llvm::ConstantDataArray::getString(context_, s)); }
  llvm::Constant* Array(const std::vector<llvm::Constant*>& items) {
    if (items.empty()) return Null();
    return Global(llvm::ConstantArray::get(llvm::ArrayType::get(items[0]->getType(), items.size()), items));
  }

  llvm::Constant* Variant(const Plan& plan, const PlanVariant& v) {
    std::vector<llvm::Constant*> steps;
    for (const PlanStep& step : v.steps) steps.push_back(Step(step));
    llvm::Constant* sequence = Struct({Count(steps), Array(steps)});
    const std::vector<llvm::Constant*> inputs = Ios(v.inputs), outputs = Ios(v.outputs);
    return Struct({Count(inputs), Array(inputs), I64(v.num_given), Count(outputs), Array(outputs), I64(v.num_results),
                   I64(1), Array({sequence}), InMemory(plan, v.arena_bytes), I64(plan.scratch_threads)});
  }

  llvm::Constant* Ints(const Shape& shape) {
    std::vector<llvm::Constant*> items;
    for (int64_t d : shape) items.push_back(I64(d));
    return Array(items);
  }

  std::vector<llvm::Constant*> Ios(const std::vector<PlanIo>& ios) {
    std::vector<llvm::Constant*> items;
    for (const PlanIo& io : ios) {
      std::vector<llvm::Constant*> extents;
      for (const PlanExtent& e : io.extents) extents.push_back(Struct({I64(e.axis), I64(e.told_by)}));
      items.push_back(Struct({String(io.name), I64(Info(io.dtype).onnx), I64(std::ssize(io.shape)), Ints(io.shape),
                              I64(BytesOf(io.dtype, NumElements(io.shape))), Ints(io.least), Count(extents),
                              Array(extents), I64(io.unread ? 1 : 0)}));
    }
    return items;
  }

  llvm::Constant* Step(const PlanStep& step) {
    std::vector<llvm::Constant*> args;
    for (const PlanArg& arg : step.args)
      args.push_back(Struct({I32(arg.kind), I32(arg.index), I64(arg.offset), I64(arg.bytes)}));
    const bool copies = step.symbol.empty();
    return Struct({String(step.name), I64(copies ? TEMPER_STEP_COPY : TEMPER_STEP_KERNEL), Array(args), Count(args),
                   I64(step.copy_bytes), copies ? Null() : Kernel(step.symbol), I64(step.workspace_bytes),
                   I64(step.thread_workspace_bytes), I64(step.workspace_offset), I64(0), I64(0), I64(step.extent),
                   I64(step.least)});
  }

  llvm::Constant* Kernel(const std::string& symbol) {
    auto* type = llvm::FunctionType::get(i32_, {ptr_}, false);
    auto* function = llvm::cast<llvm::Function>(module_.getOrInsertFunction(symbol, type).getCallee());
    function->setVisibility(llvm::GlobalValue::HiddenVisibility);
    return function;
  }

  llvm::LLVMContext context_;
  llvm::Module module_;
  llvm::Type *i64_, *i32_;
  llvm::PointerType* ptr_;
};

}  // namespace

absl::StatusOr<std::string> CompilePlan(const Plan& plan, CpuArch arch) {
  PlanModule module;
  return EmitObject(module.Build(plan), PlainCpu(arch));
}

}  // namespace temper
