// The attribute list inside a longer text.
#pragma once

#include "compiler/ops/attrs.h"
#include "compiler/ops/text_cursor.h"

namespace temper::ops {

// Consumes "name=value name=value" up to what is no attribute any more.
absl::StatusOr<Attrs> ParseAttrs(TextCursor& cursor);

}  // namespace temper::ops
