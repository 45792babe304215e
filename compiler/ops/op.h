// An operator: its type rule, what it computes (twice: as tensor expressions, and as a plain reference that knows
// nothing of them), and how much work it is. One file per operator family in ops/, one line each in registry.cc.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "compiler/ir/te.h"
#include "compiler/ops/workload.h"

namespace temper {

// What fusion may do with it.
enum class OpPattern : uint8_t {
  kElementwise,  // one output element from the elements at the same (broadcast) index of the operands
  // Moves data: each output element is one input element or a constant (reshape, transpose, concat, slice, gather).
  kInjective,
  kReduction,  // reduces axes of one operand (mean, softmax, layer norm, pooling)
  kAnchor,     // contraction with templates of its own: conv2d, matmul
  kOpaque,     // no tensor expression: `reference` is what runs (TopK)
};

// What it does with its operands' elements.
enum class OpTypes : uint8_t {
  kComputes,   // it computes: types without arithmetic reach it widened (widen.h)
  kContracts,  // it sums products: operands reach it in the type of the sums
  kMoves,      // it copies them bit by bit, whatever they are
  kConverts,   // it knows every type itself
};

struct OpDef {
  std::string_view name;  // Temper's: lower case, "conv2d", "matmul", "add"
  OpPattern pattern;
  // An absent optional operand has rank-0 shape and is an empty Tensor or NDArray. infer checks the number.
  int min_inputs, max_inputs;
  // Output's dtype and logical shape. Errors name the rule that is broken. (All Temper operators have one output;
  // the frontend splits operators of several, such as Split, into several calls.)
  std::function<absl::StatusOr<TensorType>(const Attrs&, std::span<const TensorType> inputs)> infer;
  // Operands and result by logical index; `b` takes stages that must be materialised (reductions).
  std::function<absl::StatusOr<ir::Tensor>(ir::ProgramBuilder& b, const Attrs&, std::span<const ir::Tensor> inputs,
                                           const TensorType& output)>
      compute;
  // Logical, row-major NDArrays in and out. Fast enough for verification (blocked loops), independent of `compute`.
  std::function<absl::StatusOr<NDArray>(const Attrs&, std::span<const NDArray> inputs, const TensorType& output)>
      reference;
  // Floating-point operations (a multiply-add is two).
  std::function<double(const Attrs&, std::span<const TensorType> inputs, const TensorType& output)> flops;
  OpTypes types = OpTypes::kComputes;
};

std::span<const OpDef> AllOps();             // the table in registry.cc
const OpDef* FindOp(std::string_view name);  // null if there is none

// The whole workload by references alone (logical arrays, one per input). This is what kernels are verified against.
absl::StatusOr<NDArray> RunReference(const Workload& w, std::span<const NDArray> inputs);
double Flops(const Workload& w);  // sum over calls
// Bytes that must move at least once: what is read of every input, and the output.
double CompulsoryBytes(const Workload& w);

}  // namespace temper
