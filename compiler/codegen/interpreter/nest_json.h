// Lowered functions as JSON: the code of targets whose kernels the interpreter runs.
#pragma once

#include <string>
#include <string_view>

#include "compiler/ir/stmt.h"

namespace temper {

// Of a lowered function; what several places share is written once. Functions that print alike may differ in it.
std::string NestToJson(const ir::Func& f);
// The function, verified: the text may come from a file that somebody changed. kInvalidArgument: what is wrong with it.
absl::StatusOr<ir::Func> NestFromJson(std::string_view json);

}  // namespace temper
