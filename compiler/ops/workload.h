// A workload: what one kernel computes, and all that its speed may depend on. An anchor operator with shapes, dtypes,
// attributes, physical layouts and which operands are constant, plus what is fused around it. It is a little
// program of operator calls with one result; its canonical text is the database's key and travels on the wire.
#pragma once

#include <string>
#include <vector>

#include "compiler/ops/attrs.h"

namespace temper {

struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;            // logical, ONNX order
  std::vector<int> perm;  // perm[i] = logical axis stored as physical dimension i; the identity is always empty
  Shape PhysicalShape() const;
  bool operator==(const TensorType&) const = default;
};
std::string Text(const TensorType& t);  // "f32[1,64,56,56]" or "f32[1,64,56,56]@0231"

struct Workload {
  struct Operand {
    TensorType type;
    bool constant = false;  // known when the package is made: may be packed
  };
  struct Call {
    std::string op;  // Temper's operator name, see ops/registry.cc
    Attrs attrs;
    std::vector<int> args;  // < inputs.size(): an operand; else the result of call arg - inputs.size(). -1: absent
    TensorType type;        // of the result
  };
  std::vector<Operand> inputs;
  std::vector<Call> calls;  // in order; the last one's result is the workload's
  int anchor = 0;           // index into calls: the operator that the templates schedule

  const TensorType& TypeOf(int arg) const;
  const TensorType& output() const { return calls.back().type; }
};

// One line, here broken in two:
//   (f32[1,64,56,56]@0231, const f32[64,64,3,3], const f32[64,1,1]) conv2d(0,1; group=1 pads=[1,1,1,1])
//   -> f32[1,64,56,56]@0231; add(3,2) -> f32[1,64,56,56]@0231; anchor=0
// An absent operand is written "_".
std::string Text(const Workload& w);
inline constexpr int kMaxWorkloadItems = 1024;  // inputs, and calls
// Checks operators, argument positions, types (by inference) and that no call is more work than machines can do: the
// text may come from anywhere.
absl::StatusOr<Workload> ParseWorkload(std::string_view text);
uint64_t Hash(const Workload& w);  // of the text
// The text of the anchor call alone (its operands as inputs): what config spaces depend on, and `borrowed` records
// match.
std::string AnchorText(const Workload& w);

}  // namespace temper
