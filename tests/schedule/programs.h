// Small programs to be scheduled, and the check that a function still computes what it did.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/rng.h"
#include "compiler/ir/te.h"
#include "compiler/schedule/lower.h"
#include "compiler/schedule/schedule.h"

namespace temper {

ir::Expr Relu(const ir::Expr& x);
ir::Expr Silu(const ir::Expr& x);
// out[m, n] = activation(sum over k of a[m, k] * b[n / nr, k, n % nr] + bias[n]); b's last panel is padded with zeros.
ir::Func PackedMatmul(int64_t m, int64_t n, int64_t k, int64_t nr, ir::Expr (*activation)(const ir::Expr&) = Relu);
// c[m, n] = sum over k of a[m, k] * b[k, n]
ir::Func Matmul(int64_t m, int64_t n, int64_t k);
// Row-wise softmax in four stages: "largest", "power", "total", "out".
ir::Func Softmax(int64_t rows, int64_t columns);
// A channels-last 3x3 convolution of padding 1: stages "padded", "acc", "out" over [h, w, oc].
ir::Func PaddedConv(int64_t h, int64_t w, int64_t c, int64_t oc);

// The function's results on inputs drawn from `seed`: small integers, so that sums are exact in any order.
absl::StatusOr<std::vector<NDArray>> RunFunc(const ir::Func& f, uint64_t seed);
// Same results, bit for bit or, for `tolerance` > 0, within that relative error.
::testing::AssertionResult SameResults(const ir::Func& a, const ir::Func& b, double tolerance = 0, uint64_t seed = 1);

// The register-tiled schedule of PackedMatmul that the templates use.
void ScheduleTiles(Schedule& s, int64_t mr, int64_t nr, int64_t lanes, bool fuse_tiles = true);

}  // namespace temper
