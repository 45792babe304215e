// Whose scales make 8 bits of them again: sums of products of integers.
#pragma once

#include <algorithm>
#include <functional>

#include "compiler/ops/op.h"

namespace temper {

// The contraction of integers whose sums value `v` holds, as floats or before they are; null if it holds no such sums.
// `maker_of(v)`: the call that makes a value, null where none does; `operands_of`: its values, negative where absent;
// `dtype_of(v)`. Of a graph or a workload.
template <typename MakerOf, typename OperandsOf, typename DtypeOf>
auto IntegerSumsIn(int v, const MakerOf& maker_of, const OperandsOf& operands_of, const DtypeOf& dtype_of)
    -> decltype(maker_of(v)) {
  constexpr int kSteps = 4;  // casts, zero points, biases
  for (int i = 0; i < kSteps; ++i) {
    const auto maker = maker_of(v);
    if (maker == nullptr) return nullptr;
    const bool contracts = FindOp(maker->op)->terms != nullptr;
    const auto& operands = std::invoke(operands_of, *maker);
    const auto next = std::ranges::find_if(
        operands, [&](int operand) { return operand >= 0 && (contracts || maker_of(operand) != nullptr); });
    if (next == operands.end() || IsFloat(dtype_of(*next))) return nullptr;
    if (contracts) return maker;
    v = *next;
  }
  return nullptr;
}

}  // namespace temper
