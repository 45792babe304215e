// The first elements along an axis, against a stable sort.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/rng.h"
#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using ::testing::HasSubstr;
using testing::ModelBuilder;

ModelBuilder TopK(const Shape& shape, int64_t axis, int64_t k, bool largest) {
  ModelBuilder m(13);
  m.Input("x", shape);
  m.Ints("k", {k});
  auto& node = m.Node("TopK", {"x", "k"}, {"values", "indices"});
  ModelBuilder::SetInt(node, "axis", axis);
  ModelBuilder::SetInt(node, "largest", largest ? 1 : 0);
  m.Output("values");
  m.Output("indices");
  return m;
}

bool Before(double a, double b, bool largest) {
  if (std::isnan(a) || std::isnan(b))
    return largest ? std::isnan(a) && !std::isnan(b) : !std::isnan(a) && std::isnan(b);
  return largest ? a > b : a < b;
}

// Many elements are equal, some infinite, some no numbers.
NDArray DrawnWithOdd(Rng& rng, const Shape& shape) {
  NDArray x(DType::kF32, shape);
  const double odd[] = {INFINITY, -INFINITY, NAN};
  for (int64_t i = 0; i < x.size(); ++i)
    x.Set(i, rng.Below(4) == 0 ? odd[rng.Below(3)] : static_cast<double>(rng.Below(5)));
  return x;
}

TEST(OnnxSort, TheFirstOfEveryLineInTheirOrder) {
  struct Case {
    Shape shape;
    int64_t axis, k;
  };
  const Case cases[] = {{{1}, 0, 1},    {{7}, -1, 7},      {{2, 9}, 1, 3},
                        {{5, 3}, 0, 2}, {{2, 6, 3}, 1, 6}, {{2, 16500}, 1, 40}};
  for (const Case& c : cases) {
    for (const bool largest : {true, false}) {
      Rng rng(7);
      const NDArray x = DrawnWithOdd(rng, c.shape);
      const std::vector<NDArray> out = TopK(c.shape, c.axis, c.k, largest).Run({x});
      ASSERT_EQ(out.size(), 2u);
      const size_t axis = static_cast<size_t>(c.axis < 0 ? c.axis + std::ssize(c.shape) : c.axis);
      const int64_t extent = c.shape[axis], inner = NumElements(std::span(c.shape).subspan(axis + 1));
      for (int64_t line = 0; line < x.size() / extent; ++line) {
        const auto at = [&](int64_t i, int64_t of) { return (line / inner * of + i) * inner + line % inner; };
        std::vector<int64_t> order(static_cast<size_t>(extent));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
          return Before(x.At(at(a, extent)), x.At(at(b, extent)), largest);
        });
        for (int64_t i = 0; i < c.k; ++i) {
          EXPECT_EQ(out[1].At(at(i, c.k)), static_cast<double>(order[static_cast<size_t>(i)]));
          const double want = x.At(at(order[static_cast<size_t>(i)], extent)), got = out[0].At(at(i, c.k));
          EXPECT_TRUE(got == want || (std::isnan(got) && std::isnan(want)));
        }
      }
    }
  }
}

TEST(OnnxSort, WhatCanNotBeIsSaidInOneLine) {
  EXPECT_THAT(TopK({2, 9}, 1, 0, true).Import().status().ToString(), HasSubstr("k is a number from 1 to the axis's 9"));
  EXPECT_THAT(TopK({2, 9}, 1, 10, true).Import().status().ToString(), HasSubstr("k is a number from 1"));
  EXPECT_THAT(TopK({2, 9}, 2, 1, true).Import().status().ToString(), HasSubstr("axis 2 is outside rank 2"));
}

}  // namespace
}  // namespace temper
