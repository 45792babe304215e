// The names of a package's library and of its functions. Inside this folder only.
#pragma once

#include <string>

#include "base/status.h"
#include "compiler/codegen/link.h"

namespace temper {

// OK for "", which stands for names as they are in include/temper/model.h.
absl::Status CheckPrefix(const std::string& prefix);
std::string LibraryName(const std::string& prefix);  // "model.so", "libresnet.so"
std::string FunctionName(const std::string& prefix,
                         const std::string& function);  // "run" -> "temper_model_run", "resnet_run"
Exports ExportsOf(const std::string& prefix);
// model.h with the functions' names. Headers of several packages may be included together.
std::string HeaderOf(const std::string& prefix);

}  // namespace temper
