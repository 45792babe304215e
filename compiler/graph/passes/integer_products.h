// The rules of the integers pass. It comes before constants are folded: it reads numbers of 8 bits, their scales and
// zero points, and those of weights are folded to floats later.
#pragma once

#include <map>

#include "compiler/graph/passes/rewriter.h"
#include "compiler/target/target.h"

namespace temper::passes {

// A product of dequantised numbers of 8 bits becomes a product of integers that is scaled, where a template multiplies
// integers and no faster algorithm of floats is known.
absl::StatusOr<bool> MultiplyDequantized(Rewriter& r, Node& node, const Target& t);
// The largest of dequantised numbers becomes the largest number, dequantised.
absl::StatusOr<bool> PoolDequantized(Rewriter& r, Node& node);
// Numbers that are dequantised, moved, and quantised as they were, are moved as they are.
absl::StatusOr<bool> MoveQuantized(Rewriter& r, Node& node);
// A transposed convolution of dequantised numbers becomes a plain one of them.
absl::StatusOr<bool> TransposeDequantized(Rewriter& r, Node& node);
// A product of floats by dequantised constants becomes one that keeps their numbers, of 4 or 8 bits; and one of
// integers where its left operand may be rounded (attribute left_bits) and the target multiplies those faster.
// Constants that products by one value share: by that value, and whether their left operands are rounded.
using NBitsConstants = std::map<std::pair<ValueId, bool>, std::vector<ValueId>>;
absl::StatusOr<bool> MultiplyNBits(Rewriter& r, Node& node, const Target& t, NBitsConstants& shared);
// What may be rounded and was not: it is a product like others.
absl::StatusOr<bool> ForgetLeftBits(Rewriter& r, Node& node);
// A product of numbers of 8 bits less their zero points becomes one of bytes, where the target multiplies four at once.
absl::StatusOr<bool> MultiplyBytes(Rewriter& r, Node& node, const Target& t);
// A product of integers that no template multiplies becomes one of floats, where that is exact.
absl::StatusOr<bool> MultiplyInFloats(Rewriter& r, Node& node, const Target& t);

// Numbers of at most 8 bits as floats, (q - zero) * scale; the zero point may be kNoValue, which is zero.
struct Dequantized {
  ValueId q, zero, scale;
};
std::optional<Dequantized> DequantizedAt(const Rewriter& r, ValueId v);

bool IsNumberOf8Bits(DType dtype);  // an integer of at most so many

bool MultipliesBytes(const Target& t);  // a CPU that multiplies four at once, in one instruction or two
// Whether the target has a template for the node (matmul or conv2d) over these operands of integers, summed in i32.
bool HasIntegerTemplate(const Node& node, Workload::Operand a, Workload::Operand b, TensorType sums, const Target& t);
// The same over bytes, where the target multiplies four at once; an image of few channels may be padded for it.
bool HasBytesTemplate(const Node& node, Workload::Operand a, Workload::Operand b, TensorType sums, const Target& t);
Workload::Operand OperandAt(const Rewriter& r, const Node& node, size_t i);  // as it is
// The data of what is a constant, or is made of constants by a few operators.
std::optional<NDArray> Known(const Rewriter& r, ValueId v);
bool LieBetween(const NDArray& numbers, double least, double most);
Attrs Without(const Attrs& attrs, std::string_view name);
// `attrs` without `result`, or with another one.
Attrs WithResult(const Attrs& attrs, std::optional<DType> result);
absl::StatusOr<ValueId> EmitCast(Rewriter& r, ValueId v, DType to);

}  // namespace temper::passes
