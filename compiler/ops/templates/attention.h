// Attention: a product of queries and keys, what is made of its elements, softmax over the keys, what is made of that,
// and a product with the values. A workload that is one, as two batches of products.
#pragma once

#include <optional>

#include "compiler/ops/templates/gemm_view.h"

namespace temper {

struct Attention {
  int softmax = 0;        // the call
  DType factor, operand;  // element types of queries and keys, and of values
  DType score, share;     // of what softmax reads, and what it makes
  // Both with an index for each head of each example. `shares` has the values for B and the result's dimensions; who
  // schedules it makes its A.
  GemmView scores, shares;

  // The first call is the product of queries and keys, the anchor that with the values, which is read by elementwise
  // calls alone. Neither keys nor values are constant.
  static std::optional<Attention> Of(const Workload& w);
  int64_t batch() const { return scores.batch; }
  int64_t rows() const { return scores.rows; }     // queries of a head
  int64_t keys() const { return scores.columns; }  // of a head
};

// A score as softmax reads it: the calls before softmax, of the product's element. Adds no stage.
using ScoreElement =
    std::function<ir::Expr(const ir::Expr& product, const ir::Expr& batch, const ir::Expr& row, const ir::Expr& key)>;
absl::StatusOr<ScoreElement> ScoresOf(const Workload& w, const Attention& a, WorkloadProgram& program);
// A factor of the values: the calls between softmax and the anchor, of softmax's element.
absl::StatusOr<ScoreElement> SharesOf(const Workload& w, const Attention& a, WorkloadProgram& program);

}  // namespace temper
