// Functions of a kernel: the exported one and its internal parts.
#pragma once

#include <llvm/IR/Function.h>

#include <string>
#include <vector>

#include "compiler/codegen/llvm/emitter.h"

namespace temper {

// An internal function with an empty entry block: a pointer for each buffer, which aliases nothing, then `integers` of
// i64, then `pointers` plain ones.
llvm::Function* MakePart(KernelContext& context, const std::string& name, const std::vector<ir::Buffer>& buffers,
                         size_t integers, size_t pointers);

}  // namespace temper
