// Sums of products of bytes, where a CPU multiplies them in pairs: what it makes are i16, which are widened before they
// are added up. Those of several steps are added first, as long as they can not overflow together, and widened once.
#pragma once

#include <llvm/IR/PassManager.h>

namespace temper {

// Of code whose register arrays are SSA values.
class AddPairsPass : public llvm::PassInfoMixin<AddPairsPass> {
 public:
  llvm::PreservedAnalyses run(llvm::Function& f, llvm::FunctionAnalysisManager& analyses);
};

}  // namespace temper
