// A kernel's result as a part of a larger array, or in the place of an operand.
#pragma once

#include "compiler/ir/stmt.h"

namespace temper {

// A lowered function with one output, writing it into a larger array instead: of every `total` elements that are
// neighbours there, `inner` from `offset` on, and nothing else. Dimensions of the output, from some on, must have
// `inner` elements together.
absl::StatusOr<ir::Func> EmbedOutput(const ir::Func& func, int64_t inner, int64_t total, int64_t offset);

// Whether a lowered function reads of parameter `param` only elements that the very store writes which the value read
// goes into, so that the output may take the parameter's bytes.
bool ReadsWhatItWrites(const ir::Func& func, size_t param);

}  // namespace temper
