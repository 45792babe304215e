// What the operators' tensor expressions share.
#pragma once

#include "compiler/ir/te.h"
#include "compiler/ops/workload.h"

namespace temper::ops {

using Index = std::vector<ir::Expr>;

// The index into an operand of `shape` that NumPy's broadcasting gives for an index of the result.
Index BroadcastIndex(const Index& index, const Shape& shape);

// A reduction stage whose result has `out`'s logical shape and physical order; `fn` takes logical indices.
ir::Tensor ReduceStage(ir::ProgramBuilder& b, const std::string& name, const TensorType& out,
                       std::vector<int64_t> reduce_extents, ir::Combiner combiner,
                       const std::function<ir::Expr(const Index& index, const Index& reduce)>& fn);

// `t` itself where reading it is a load or a constant, else a stage that holds it: for operands read many times.
ir::Tensor MaterializeFormula(ir::ProgramBuilder& b, const std::string& name, const ir::Tensor& t,
                              const TensorType& layout_like);

// Integer division that rounds toward zero, as C and ONNX have it (`/` on integer expressions floors).
ir::Expr TruncatedDiv(const ir::Expr& a, const ir::Expr& b);
// Conversion with the meaning of ONNX's Cast: to bool is "differs from zero", to most narrow floats is through f32.
ir::Expr ConvertTo(const ir::Expr& x, DType to, CastMode mode = {});
// `value` where all conditions hold, else `otherwise`; just `value` if there are none.
ir::Expr InBounds(const std::vector<ir::Expr>& conditions, const ir::Expr& value, const ir::Expr& otherwise);

}  // namespace temper::ops
