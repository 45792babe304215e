#include "compiler/codegen/llvm/emit_object.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/Analysis/AliasAnalysis.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/ADCE.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/SROA.h>

#include <map>
#include <memory>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/llvm/add_pairs.h"
#include "compiler/target/table.h"

namespace temper {
namespace {

// Every feature a target can state is switched on or off by name, so that a CPU's name never brings one in that the
// target did not state.
std::string FeatureString(const CpuTarget& target) {
  std::string off, on;
  for (std::string_view f : KnownFeatures(target.arch())) {
    std::string& list = target.Has(f) ? on : off;
    list.append(target.Has(f) ? "+" : "-").append(f).append(",");
  }
  std::string all = off + on;
  if (!all.empty()) all.pop_back();
  return all;
}

// Passes that cost more than they bring, and have no other switch than LLVM's command line. Loop strength reduction
// searches for what our addresses have already (invariant bases, constant displacements), and for that takes more time
// than all other passes together on a tile whose rows have bases of their own. Scheduling again after registers are
// given takes 7 % of the time and moves nothing that a processor which reorders by itself would notice.
void DisablePasses() {
  auto& options = llvm::cl::getRegisteredOptions();
  for (const char* name : {"disable-lsr", "disable-post-ra"}) {
    auto it = options.find(name);
    if (it != options.end()) static_cast<llvm::cl::opt<bool>*>(it->second)->setValue(true);
  }
}

// The passes that write one kind of file, and the bytes they write.
struct Writer {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream out{bytes};
  llvm::legacy::PassManager passes;
};

// What LLVM takes the CPU for. Of ARM a CPU's name brings features that no target states (SVE, atomics, SHA-3's
// three-way xor), so it only says in which order instructions are best.
std::string CodeNameOf(const CpuTarget& target) { return target.arch() == CpuArch::kArm ? "generic" : target.cpu; }

std::string TripleOf(CpuArch arch) {
  if (arch == HostArch()) return llvm::sys::getDefaultTargetTriple();
  return arch == CpuArch::kArm ? "aarch64-unknown-linux-gnu" : "x86_64-unknown-linux-gnu";
}

struct Machine {
  std::string key;  // architecture, cpu and features
  std::unique_ptr<llvm::TargetMachine> machine;
  std::map<llvm::CodeGenFileType, std::unique_ptr<Writer>> writers;
};

// Making a machine costs more than compiling a small kernel, and its passes a quarter of that: they are kept, and each
// is used by one thread at a time. Thread-safe.
class Machines {
 public:
  std::unique_ptr<Machine> Take(const std::string& key) {
    std::lock_guard lock(mutex_);
    auto found = idle_.find(key);
    if (found == idle_.end()) return nullptr;
    std::unique_ptr<Machine> machine = std::move(found->second);
    idle_.erase(found);
    return machine;
  }
  void Return(std::unique_ptr<Machine> machine) {
    std::lock_guard lock(mutex_);
    idle_.emplace(machine->key, std::move(machine));
  }

  static Machines& Get() {
    static auto* machines = new Machines;  // threads may still compile while the process ends
    return *machines;
  }

 private:
  std::mutex mutex_;
  std::multimap<std::string, std::unique_ptr<Machine>> idle_;
};

struct ReturnMachine {
  void operator()(Machine* machine) const { Machines::Get().Return(std::unique_ptr<Machine>(machine)); }
};
using BorrowedMachine = std::unique_ptr<Machine, ReturnMachine>;

absl::StatusOr<BorrowedMachine> MachineFor(const CpuTarget& target) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
    DisablePasses();
  });
  const std::string code = CodeNameOf(target);
  const std::string key = absl::StrCat(std::string(Name(target.arch())), " ", code, " ", FeatureString(target));
  if (std::unique_ptr<Machine> kept = Machines::Get().Take(key)) return BorrowedMachine(kept.release());
  std::string error;
  const std::string triple = TripleOf(target.arch());
  const llvm::Target* description = llvm::TargetRegistry::lookupTarget(triple, error);
  if (description == nullptr) return absl::InternalError(absl::StrCat("LLVM: ", error));
  llvm::TargetOptions options;
  auto made = std::make_unique<Machine>();
  made->key = key;
  made->machine.reset(description->createTargetMachine(triple, code, FeatureString(target), options, llvm::Reloc::PIC_,
                                                       llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default));
  if (made->machine == nullptr) return absl::InternalError(absl::StrCat("LLVM has no machine for ", triple));
  return BorrowedMachine(made.release());
}

absl::StatusOr<std::string> Emit(llvm::Module& module, const CpuTarget& target, llvm::CodeGenFileType type) {
  if (module.getTargetTriple().empty()) TEMPER_RETURN_IF_ERROR(PrepareModule(module, target));
  TEMPER_ASSIGN_OR_RETURN(BorrowedMachine machine, MachineFor(target));
  std::unique_ptr<Writer>& writer = machine->writers[type];
  if (writer == nullptr) {
    auto made = std::make_unique<Writer>();
    if (machine->machine->addPassesToEmitFile(made->passes, made->out, nullptr, type)) {
      return absl::InternalError("LLVM cannot write objects for this machine");
    }
    writer = std::move(made);
  }
  writer->bytes.clear();
  writer->passes.run(module);
  return std::string(writer->bytes.data(), writer->bytes.size());
}

}  // namespace

CpuTarget PlainCpu(CpuArch arch) {
  CpuTarget plain{.cpu = "generic"};
  if (arch == CpuArch::kArm) plain.features = {"neon"};
  return plain;
}

absl::Status PrepareModule(llvm::Module& module, const CpuTarget& target) {
  TEMPER_ASSIGN_OR_RETURN(BorrowedMachine borrowed, MachineFor(target));
  module.setTargetTriple(borrowed->machine->getTargetTriple().str());
  module.setDataLayout(borrowed->machine->createDataLayout());
  module.setPICLevel(llvm::PICLevel::BigPIC);
  return absl::OkStatus();
}

void SetTargetAttributes(llvm::Function& function, const CpuTarget& target) {
  // No "min-legal-vector-width": without it 512-bit vectors are legal whatever the CPU's tuning prefers.
  const std::string name = CodeNameOf(target);
  function.addFnAttr("target-cpu", name);
  if (name != target.cpu) function.addFnAttr("tune-cpu", target.cpu);
  function.addFnAttr("target-features", FeatureString(target));
  function.addFnAttr("frame-pointer", "none");
  function.addFnAttr(llvm::Attribute::NoUnwind);
}

absl::Status OptimizeModule(llvm::Module& module, const CpuTarget& target) {
  std::string message;
  llvm::raw_string_ostream out(message);
  if (llvm::verifyModule(module, &out)) return absl::InternalError(absl::StrCat("LLVM: bad module: ", out.str()));
  TEMPER_ASSIGN_OR_RETURN(BorrowedMachine borrowed, MachineFor(target));

  llvm::PassBuilder builder(borrowed->machine.get());
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager sccs;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(sccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, sccs, modules);

  // Addresses are hoisted where they are built, and tiles unrolled; so what is left is to make register arrays SSA
  // values, to share equal loads, and to move what loads and scalars are invariant out of the loops.
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::SROAPass(llvm::SROAOptions::PreserveCFG));
  passes.addPass(AddPairsPass());
  passes.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
  passes.addPass(llvm::InstCombinePass());
  passes.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()), /*UseMemorySSA=*/true));
  passes.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
  // No SimplifyCFG: it merges the preheaders of two tiles under one branch, and then both tiles' registers are live
  // there.
  passes.addPass(llvm::ADCEPass());
  for (llvm::Function& f : module) {
    if (!f.isDeclaration()) passes.run(f, functions);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> EmitObject(llvm::Module& module, const CpuTarget& target) {
  return Emit(module, target, llvm::CodeGenFileType::ObjectFile);
}

absl::StatusOr<std::string> EmitAssembly(llvm::Module& module, const CpuTarget& target) {
  return Emit(module, target, llvm::CodeGenFileType::AssemblyFile);
}

}  // namespace temper
