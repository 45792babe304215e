// A convolution as a product: rows are the output's pixels, the flattened (n, oh, ow), columns its channels, those of
// each group a batch of their own. What a row has of the image, and the filters, are the caller's.
#pragma once

#include "compiler/ops/templates/conv2d_shape.h"
#include "compiler/ops/templates/gemm.h"

namespace temper {

inline GemmView PixelsByFilters(const Conv2dShape& s) {
  GemmView v;
  v.batch = s.group;
  v.b_batched = s.group > 1;
  v.rows = s.n * s.oh * s.ow;
  v.columns = s.oc / s.group;
  v.out_dims = {{GemmAxis::kRow, v.rows, 1}};
  if (s.group > 1) v.out_dims.push_back({GemmAxis::kBatch, s.group, 1});
  v.out_dims.push_back({GemmAxis::kColumn, v.columns, 1});
  v.out_index = [s](const ir::Expr& g, const ir::Expr& row, const ir::Expr& column) {
    const ir::Expr pixel = row % ir::Expr(s.oh * s.ow);
    return std::vector<ir::Expr>{row / ir::Expr(s.oh * s.ow), g * ir::Expr(s.oc / s.group) + column,
                                 pixel / ir::Expr(s.ow), pixel % ir::Expr(s.ow)};
  };
  return v;
}

}  // namespace temper
