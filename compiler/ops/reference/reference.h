// References: plain loops over logical, row-major arrays, written without a look at the tensor expressions. They are
// what kernels are verified against, so they are fast enough for full-size operators and themselves proved against
// naive loops in tests/ops. Sums are kept in double, or in float in blocks of a few hundred terms.
#pragma once

#include <span>
#include <string_view>

#include "compiler/ops/workload.h"

namespace temper::reference {

using Arrays = std::span<const NDArray>;

// An operator's reference, by the operator's name. It takes valid operands (types as `infer` accepted them).
struct Reference {
  std::string_view op;
  absl::StatusOr<NDArray> (*run)(const Attrs&, Arrays inputs, const TensorType& output);
};

// A table at the end of each file; the registry of operators takes them from there.
std::span<const Reference> UnaryReferences();
std::span<const Reference> BinaryReferences();
std::span<const Reference> ConvReferences();
std::span<const Reference> MatmulReferences();
std::span<const Reference> PoolReferences();
std::span<const Reference> ReduceReferences();
std::span<const Reference> NormReferences();
std::span<const Reference> MovementReferences();
std::span<const Reference> ResizeReferences();
std::span<const Reference> SequentialReferences();
std::span<const Reference> BoxesReferences();

}  // namespace temper::reference
