// Drawn weights keep the scale of activations, so that a network of many layers is timed on ordinary numbers.
#include <cmath>
#include <set>

#include "compiler/graph/fill_constants.h"
#include "tests/graph/builder.h"

namespace temper {
namespace {

using testing::Builder;
using testing::RandomArray;

const Shape kImage = {2, 256, 8, 8};
// Shapes of weights for it, of which each operator takes the first that its type rule accepts.
const std::vector<Shape> kWeights = {{64, 256, 3, 3}, {256, 64, 3, 3}, {8, 16}, {256}, {256, 8, 8}};

double Deviation(const NDArray& x) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    sum += x.At(i);
    squares += x.At(i) * x.At(i);
  }
  const double mean = sum / static_cast<double>(x.size());
  return std::sqrt(squares / static_cast<double>(x.size()) - mean * mean);
}

// x op weights, without the weights' data; nothing if no weights of the shapes above suit it.
std::optional<Graph> WithOpenWeights(const OpDef& op) {
  for (const Shape& shape : kWeights) {
    Builder b;
    const ValueId x = b.Input(kImage);
    std::vector<ValueId> inputs = {x};
    while (inputs.size() < static_cast<size_t>(op.min_inputs)) {
      inputs.push_back(b.g.AddValue({"w" + std::to_string(inputs.size()), {DType::kF32, shape, {}}, {}, true}));
    }
    const absl::StatusOr<ValueId> y = b.g.AddNode(std::string(op.name), {}, inputs);
    if (!y.ok()) continue;
    b.Output(*y);
    return std::move(b.g);
  }
  return std::nullopt;
}

TEST(FillConstants, ActivationsKeepTheirScaleThroughEveryOperator) {
  // They take no floats alone, or those of other shapes.
  const std::set<std::string_view> others = {"and",
                                             "or",
                                             "where",
                                             "gather",
                                             "gather_elements",
                                             "mod",
                                             "matmul_nbits",
                                             "matmul_nbits_i8",
                                             "compact",
                                             "scatter",
                                             "scatter_reduce",
                                             "non_max_suppression"};
  for (const OpDef& op : AllOps()) {
    if (op.min_inputs < 2) continue;
    std::optional<Graph> g = WithOpenWeights(op);
    EXPECT_EQ(g.has_value(), !others.contains(op.name)) << op.name << " is not checked";
    if (!g.has_value() || g->values[g->outputs[0]].type.dtype != DType::kF32) continue;
    FillConstants(*g, 7);
    Rng rng(1);
    const NDArray x = RandomArray(rng, kImage, op.NumbersOf(0) == Numbers::kPositive ? 0.25 : -2, 2);
    const absl::StatusOr<std::vector<NDArray>> y = RunReference(*g, std::vector<NDArray>{x});
    ASSERT_TRUE(y.ok()) << y.status();
    const double scale = Deviation((*y)[0]) / Deviation(x);
    EXPECT_GT(scale, 0.4) << op.name;
    EXPECT_LT(scale, 2.5) << op.name;
  }
}

// A layer that dequantises, multiplies and quantises: steps of 8 bits, which spread over their range.
TEST(FillConstants, SumsOfIntegersBecomeNumbersOfEightBitsAgain) {
  for (const int64_t channels : {16, 256}) {
    Builder b;
    const ValueId x = b.Input({1, channels, 12, 12}, DType::kI16);
    const auto open = [&](DType dtype, Shape shape) {
      return b.g.AddValue({"w", {dtype, std::move(shape), {}}, {}, true});
    };
    Attrs whole, floats;
    whole.Set("result", std::string("i32"));
    floats.Set("to", std::string("f32"));
    ValueId v = b.Call("conv2d", {x, open(DType::kI16, {channels, channels, 3, 3})}, whole);
    v = b.Call(
        "sub",
        {v, b.g.AddValue({"zero", {DType::kI32, {channels, 1, 1}, {}}, NDArray(DType::kI32, {channels, 1, 1}), true})});
    b.Output(b.Call("mul", {open(DType::kF32, {channels, 1, 1}), b.Call("cast", {v}, floats)}));
    FillConstants(b.g, 7);
    Rng rng(1);
    NDArray image(DType::kI16, {1, channels, 12, 12});
    for (int64_t i = 0; i < image.size(); ++i) image.Set(i, static_cast<double>(rng.Below(128)));
    const absl::StatusOr<std::vector<NDArray>> y = RunReference(b.g, std::vector<NDArray>{image});
    ASSERT_TRUE(y.ok()) << y.status();
    EXPECT_GT(Deviation((*y)[0]), 16) << channels;
    EXPECT_LT(Deviation((*y)[0]), 64) << channels;
  }
}

}  // namespace
}  // namespace temper
