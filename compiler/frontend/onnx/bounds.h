// What numbers a value can be, whatever the inputs are: a count that is made of such numbers has a largest one, which
// is the room that there is for what is counted.
#pragma once

#include "compiler/frontend/onnx/context.h"

namespace temper::onnx_frontend {

struct Bounds {
  double least, most;  // perhaps infinite
};
// Of all elements, but for those that are no numbers.
Bounds BoundsOf(const Context& c, ValueId v);

}  // namespace temper::onnx_frontend
