// An operator: its type rule, what it computes (twice: as tensor expressions, and as a plain reference that knows
// nothing of them), and how much work it is. One file per operator family in ops/, one line each in registry.cc.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "compiler/ir/te.h"
#include "compiler/ops/workload.h"

namespace temper {

// What fusion may do with it.
enum class OpPattern : uint8_t {
  // One output element from the elements at the same index of the operands, broadcast by NumPy's rule or `per_channel`.
  kElementwise,
  // Moves data: each output element is one input element or a constant (reshape, transpose, concat, slice, gather).
  kInjective,
  kReduction,   // reduces axes of one operand (mean, softmax, layer norm, pooling, arg max)
  kAnchor,      // contraction with templates of its own: conv2d, matmul
  kSequential,  // its steps follow one another, or its data says where they lead (scan, sort, scatter): nothing joins
                // it
  kOpaque,      // no tensor expression, and so no template: computed of constants alone; added from outside, if at all
};

// What it does with its operands' elements.
enum class OpTypes : uint8_t {
  kComputes,   // it computes: types without arithmetic reach it widened (widen.h)
  kContracts,  // it sums products: operands reach it in the type of the sums
  kMoves,      // it copies them bit by bit, whatever they are
  kConverts,   // it knows every type itself
};

// Where an operator that only moves elements takes each of them from, as far as others make use of it: who renames what
// lies in memory (graph/alias.h), writes concatenations in parts, orders layouts, draws indices.
enum class Move : uint8_t {
  kNone,          // it computes, or moves them in another way
  kSame,          // the same index
  kReshapes,      // the same place in the row-major sequence
  kTransposes,    // result axis i is operand axis perm[i] (attribute)
  kSlices,        // as SlicesOf(attributes) says (slice_util.h)
  kConcatenates,  // operands one behind another along the attribute axis
  kPicks,         // the positions along the attribute axis of the first operand that the second one holds
};

// Which numbers an operand wants where they are drawn, so that results are ordinary numbers: weights of a graph that
// came without them (graph/fill_constants.h), and what kernels are verified and timed with.
enum class Numbers : uint8_t {
  kAny,
  kFactor,    // it scales the result: as a weight, about 1
  kPositive,  // of zero or a negative number the result would be infinite or no number
  kPlace,     // a position along an axis of the first operand: the attribute `axis`, 0 where there is none
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
  // Floating-point operations (a multiply-add is two).
  std::function<double(const Attrs&, std::span<const TensorType> inputs, const TensorType& output)> flops;

  // Traits: what others may ask instead of the name. tests/ops/traits_test.cc holds each against what the operator
  // does.
  OpTypes types = OpTypes::kComputes;
  std::vector<Numbers> numbers = {};  // by operand; any for those past the end
  Move move = Move::kNone;
  bool windows = false;      // slides a window (dilations, pads, strides) over the last two axes of its first operand
  bool per_channel = false;  // operands after the first may hold one value for each index of axis 1
  bool steps = false;        // of floats it makes whole numbers: a small change may be a whole step
  bool counted = false;      // of its first operand it reads only what lies along "axis" before the second, a number
  bool exact = false;        // it computes, and rounds nothing: an element, its absolute value, a bound
  // Of a contraction: how many products one element of its result is the sum of, at most. Null for others.
  std::function<double(const Attrs&, std::span<const TensorType> inputs)> terms = nullptr;

  // Logical, row-major NDArrays in and out. Fast enough for verification (blocked loops), independent of `compute`.
  // The tree's own operators have theirs from the tables of reference/reference.h.
  std::function<absl::StatusOr<NDArray>(const Attrs&, std::span<const NDArray> inputs, const TensorType& output)>
      reference = nullptr;

  Numbers NumbersOf(size_t operand) const { return operand < numbers.size() ? numbers[operand] : Numbers::kAny; }
};

std::span<const OpDef> AllOps();             // the table in registry.cc
const OpDef* FindOp(std::string_view name);  // null if there is none

// The whole workload by references alone (logical arrays, one per input). This is what kernels are verified against.
// `on_result`, if set, sees the result of each call (index into w.calls) before others do, and may change it. Results
// are given up once no call reads them any more.
absl::StatusOr<NDArray> RunReference(const Workload& w, std::span<const NDArray> inputs,
                                     const std::function<void(int call, NDArray& result)>& on_result = nullptr);
// By value (inputs, then results): the last call that reads it; -1 if none does.
std::vector<int> LastReaders(const Workload& w);
// Whether a call of the operator makes whole numbers of floats, or integers of 16 bits or fewer: a small change of what
// it reads may be a whole step of what it makes. False for operators that there are not.
bool IsQuantisation(std::string_view op, const TensorType& operand, const TensorType& result);
double Flops(const Workload& w);  // sum over calls
// Bytes that must move at least once: what is read of every input, and the output.
double CompulsoryBytes(const Workload& w);

}  // namespace temper
