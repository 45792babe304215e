// The kernels of a program as source text, whatever compiles it.
#pragma once

#include "compiler/codegen/c_like/dialect.h"
#include "compiler/codegen/codegen.h"

namespace temper {

struct SourceKernel {
  CompiledKernel compiled;               // `launches` beside `functions`
  std::vector<std::string> functions;    // their names
  std::vector<int64_t> parameter_bytes;  // inputs, then outputs
  int outputs = 1;
};
struct SourceProgram {
  std::string text;
  std::vector<SourceKernel> kernels;  // in the order of the inputs
};

// Functions take one pointer a parameter, and then one to the workspace, if there is any. kUnimplemented: a function
// without launches, or a target whose threads do not come in groups; kInvalidArgument: launches that exceed the target,
// symbols that no function can have.
absl::StatusOr<SourceProgram> WriteProgram(const std::vector<CodegenInput>& kernels, const Target& target,
                                           const Dialect& dialect);

}  // namespace temper
