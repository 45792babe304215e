// Pools by powers, maxima with their indices, and what undoes them, against their definitions.
#include <gmock/gmock.h>

#include <cmath>
#include <optional>

#include "base/rng.h"
#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using testing::Array;
using testing::ExpectArray;
using ::testing::HasSubstr;
using testing::ModelBuilder;
using Ints = std::vector<int64_t>;

struct Pooling {
  Shape image;
  Ints kernel, strides, pads, dilations;
  bool ceil = false;

  size_t Axes() const { return kernel.size(); }
  int64_t Span(size_t d) const { return (kernel[d] - 1) * dilations[d] + 1; }
  Shape Result() const {
    Shape shape = {image[0], image[1]};
    for (size_t d = 0; d < Axes(); ++d) {
      const int64_t room = image[d + 2] + pads[d] + pads[d + Axes()] - Span(d);
      int64_t count = (room + (ceil ? strides[d] - 1 : 0)) / strides[d] + 1;
      if ((count - 1) * strides[d] >= image[d + 2] + pads[d]) --count;
      shape.push_back(count);
    }
    return shape;
  }
  Ints Extents() const { return {image.begin() + 2, image.end()}; }
  void SetAttributes(onnx::NodeProto& node) const {
    ModelBuilder::SetInts(node, "kernel_shape", kernel);
    ModelBuilder::SetInts(node, "strides", strides);
    ModelBuilder::SetInts(node, "pads", pads);
    ModelBuilder::SetInts(node, "dilations", dilations);
    ModelBuilder::SetInt(node, "ceil_mode", ceil ? 1 : 0);
  }
};

Ints Unravelled(int64_t i, const Ints& shape) {
  Ints index(shape.size());
  for (size_t d = shape.size(); d-- > 0; i /= shape[d]) index[d] = i % shape[d];
  return index;
}
int64_t Ravelled(const Ints& index, const Ints& shape) {
  int64_t i = 0;
  for (size_t d = 0; d < shape.size(); ++d) i = i * shape[d] + index[d];
  return i;
}

// The pixels that the window sees for an element of the result, each an index of the image; those outside are left out.
std::vector<Ints> Seen(const Pooling& p, const Ints& at) {
  std::vector<Ints> seen;
  for (int64_t tap = 0; tap < NumElements(p.kernel); ++tap) {
    const Ints t = Unravelled(tap, p.kernel);
    Ints pixel = {at[0], at[1]};
    bool inside = true;
    for (size_t d = 0; d < p.Axes(); ++d) {
      pixel.push_back(at[d + 2] * p.strides[d] - p.pads[d] + t[d] * p.dilations[d]);
      inside = inside && pixel.back() >= 0 && pixel.back() < p.image[d + 2];
    }
    if (inside) seen.push_back(pixel);
  }
  return seen;
}

const std::vector<Pooling>& Poolings() {
  static const std::vector<Pooling> all = {
      {{2, 3, 9}, {3}, {1}, {0, 0}, {1}},
      {{2, 3, 10}, {3}, {2}, {1, 1}, {2}, true},
      {{1, 2, 5}, {2}, {3}, {0, 1}, {1}, true},  // the third window would start in the pad
      {{2, 2, 6, 7}, {2, 3}, {2, 1}, {0, 0, 0, 0}, {1, 1}},
      {{1, 2, 6, 5}, {3, 2}, {2, 2}, {1, 0, 2, 1}, {1, 2}},
      {{1, 1, 5, 6}, {2, 2}, {2, 3}, {0, 1, 0, 0}, {1, 1}, true},
      {{1, 2, 4, 5, 6}, {2, 3, 2}, {1, 2, 2}, {1, 1, 0, 0, 1, 0}, {1, 1, 2}},
  };
  return all;
}

NDArray DrawnImage(const Shape& shape, DType dtype = DType::kF32) {
  Rng rng(11);
  NDArray x(dtype, shape);
  for (int64_t i = 0; i < x.size(); ++i)
    x.Set(i, IsFloat(dtype) ? 4 * rng.Uniform() - 2 : static_cast<double>(rng.Below(4)));
  return x;
}

// --- powers ---

TEST(OnnxPool, LpPoolIsTheRootOfASumOfPowers) {
  for (const Pooling& p : Poolings()) {
    for (const int64_t power : {1, 2, 3}) {
      SCOPED_TRACE(ShapeText(p.image) + " p = " + std::to_string(power));
      ModelBuilder m(18);
      m.Input("x", p.image);
      auto& node = m.Node("LpPool", {"x"}, {"y"});
      p.SetAttributes(node);
      ModelBuilder::SetInt(node, "p", power);
      m.Output("y");
      const NDArray x = DrawnImage(p.image);
      const Shape result = p.Result();
      std::vector<double> want;
      for (int64_t i = 0; i < NumElements(result); ++i) {
        double sum = 0;
        for (const Ints& pixel : Seen(p, Unravelled(i, result)))
          sum += std::pow(std::fabs(x.At(Ravelled(pixel, p.image))), static_cast<double>(power));
        want.push_back(std::pow(sum, 1 / static_cast<double>(power)));
      }
      ExpectArray(m.Run({x})[0], result, want);
    }
  }
}

TEST(OnnxPool, GlobalLpPoolSeesTheWholePlane) {
  ModelBuilder m(18);
  m.Input("x", {1, 2, 2, 2});
  ModelBuilder::SetInt(m.Node("GlobalLpPool", {"x"}, {"y"}), "p", 3);
  m.Node("GlobalLpPool", {"x"}, {"z"});
  m.Output("y");
  m.Output("z");
  const std::vector<NDArray> out = m.Run({Array({1, 2, 2, 2}, {1, -2, 3, -4, 0, 0, -5, 0})});
  ExpectArray(out[0], {1, 2, 1, 1}, {std::cbrt(100.0), 5});
  ExpectArray(out[1], {1, 2, 1, 1}, {std::sqrt(30.0), 5});
}

// --- maxima and their indices ---

NDArray RunMaxPool(const Pooling& p, const NDArray& x, bool columns_first, NDArray* indices) {
  ModelBuilder m(12);
  m.Input("x", p.image, x.dtype() == DType::kU8 ? onnx::TensorProto::UINT8 : onnx::TensorProto::FLOAT);
  auto& node = m.Node("MaxPool", {"x"}, {"y", "at"});
  p.SetAttributes(node);
  if (columns_first) ModelBuilder::SetInt(node, "storage_order", 1);
  m.Output("y");
  m.Output("at");
  const std::vector<NDArray> out = m.Run({x});
  *indices = out[1];
  return out[0];
}

TEST(OnnxPool, MaxPoolNamesTheFirstOfTheLargest) {
  for (const Pooling& p : Poolings()) {
    for (const DType dtype : {DType::kF32, DType::kU8}) {
      for (const bool columns_first : {false, true}) {
        SCOPED_TRACE(ShapeText(p.image) + " of " + std::string(Name(dtype)) + (columns_first ? " by columns" : ""));
        const NDArray x = DrawnImage(p.image, dtype);
        const Shape result = p.Result();
        std::vector<double> values, places;
        for (int64_t i = 0; i < NumElements(result); ++i) {
          const Ints at = Unravelled(i, result);
          Ints most;
          for (const Ints& pixel : Seen(p, at)) {
            if (most.empty() || x.At(Ravelled(pixel, p.image)) > x.At(Ravelled(most, p.image))) most = pixel;
          }
          values.push_back(x.At(Ravelled(most, p.image)));
          Ints in_plane(most.begin() + 2, most.end()), extents = p.Extents();
          if (columns_first) {
            std::reverse(in_plane.begin(), in_plane.end());
            std::reverse(extents.begin(), extents.end());
          }
          const int64_t plane = at[0] * p.image[1] + at[1];
          places.push_back(static_cast<double>(plane * NumElements(extents) + Ravelled(in_plane, extents)));
        }
        NDArray indices;
        const NDArray y = RunMaxPool(p, x, columns_first, &indices);
        EXPECT_EQ(y.dtype(), dtype);
        EXPECT_EQ(indices.dtype(), DType::kI64);
        ExpectArray(y, result, values);
        ExpectArray(indices, result, places);
      }
    }
  }
}

TEST(OnnxPool, MaxPoolNamesNoPadWhereAllIsLow) {
  const Pooling p{{1, 1, 2, 2}, {2, 2}, {2, 2}, {1, 1, 1, 1}, {1, 1}};
  NDArray at;
  const float low = -INFINITY;
  ExpectArray(RunMaxPool(p, NDArray(DType::kU8, {1, 1, 2, 2}), false, &at), {1, 1, 2, 2}, {0, 0, 0, 0});
  ExpectArray(at, {1, 1, 2, 2}, {0, 1, 2, 3});
  RunMaxPool(p, Array({1, 1, 2, 2}, {low, low, low, low}), false, &at);
  ExpectArray(at, {1, 1, 2, 2}, {0, 1, 2, 3});
}

TEST(OnnxPool, MaxPoolSeesAsManyOnBothSidesAsAutoPadAsksFor) {
  ModelBuilder m(12);
  m.Input("x", {1, 1, 3});
  auto& node = m.Node("MaxPool", {"x"}, {"y", "at"});
  ModelBuilder::SetInts(node, "kernel_shape", {2});
  ModelBuilder::SetString(node, "auto_pad", "SAME_LOWER");
  m.Output("y");
  m.Output("at");
  const std::vector<NDArray> out = m.Run({Array({1, 1, 3}, {1, 5, 3})});
  ExpectArray(out[0], {1, 1, 3}, {1, 5, 5});
  ExpectArray(out[1], {1, 1, 3}, {0, 1, 1});
}

// --- back to where maxima were ---

struct Unpooling {
  Shape elements;
  Ints kernel, strides, pads;
  std::optional<Shape> wanted;
};

ModelBuilder MaxUnpool(const Unpooling& u) {
  ModelBuilder m(11);
  m.Input("x", u.elements);
  m.Input("at", u.elements, onnx::TensorProto::INT64);
  if (u.wanted.has_value()) m.Ints("wanted", *u.wanted);
  auto& node = m.Node("MaxUnpool", {"x", "at", u.wanted.has_value() ? "wanted" : ""}, {"y"});
  ModelBuilder::SetInts(node, "kernel_shape", u.kernel);
  ModelBuilder::SetInts(node, "strides", u.strides);
  ModelBuilder::SetInts(node, "pads", u.pads);
  m.Output("y");
  return m;
}

// Indices are drawn, so that some name one place and the last of them stays.
TEST(OnnxPool, MaxUnpoolPutsEachElementWhereItsIndexSays) {
  const Unpooling cases[] = {{{2, 3, 4}, {2}, {2}, {0, 0}, {}},
                             {{2, 2, 3, 4}, {2, 3}, {2, 1}, {0, 1, 1, 0}, {}},
                             {{1, 2, 2, 2}, {2, 2}, {2, 2}, {0, 0, 0, 0}, Shape{1, 2, 5, 6}},
                             {{1, 2, 2, 2, 2}, {2, 2, 2}, {2, 2, 1}, {0, 0, 0, 0, 0, 0}, {}}};
  for (const Unpooling& u : cases) {
    SCOPED_TRACE(ShapeText(u.elements));
    Shape made = {u.elements[0], u.elements[1]};
    for (size_t d = 0; d < u.kernel.size(); ++d)
      made.push_back((u.elements[d + 2] - 1) * u.strides[d] + u.kernel[d] - u.pads[d] - u.pads[d + u.kernel.size()]);
    const int64_t planes = made[0] * made[1], room = NumElements(made) / planes;
    const NDArray x = DrawnImage(u.elements);
    NDArray at(DType::kI64, u.elements);
    Rng rng(2);
    const Shape result = u.wanted.value_or(made);
    std::vector<double> want(static_cast<size_t>(NumElements(result)), 0);
    for (int64_t i = 0; i < x.size(); ++i) {
      const int64_t place = i / (x.size() / planes) * room + rng.Below(room);
      at.Set(i, static_cast<double>(place));
      want[static_cast<size_t>(Ravelled(Unravelled(place, made), result))] = x.At(i);
    }
    ExpectArray(MaxUnpool(u).Run({x, at})[0], result, want, 0);
  }
}

TEST(OnnxPool, MaxUnpoolPutsInfinityNextToZero) {
  const Unpooling u{{1, 1, 2}, {2}, {2}, {0, 0}, {}};
  NDArray at(DType::kI64, {1, 1, 2});
  at.Set(0, 1);
  at.Set(1, 2);
  const NDArray y = MaxUnpool(u).Run({Array({1, 1, 2}, {INFINITY, 7}), at})[0];
  EXPECT_EQ(y.At(0), 0);
  EXPECT_EQ(y.At(1), INFINITY);
  EXPECT_EQ(y.At(2), 7);
  EXPECT_EQ(y.At(3), 0);
}

// --- columns to images ---

ModelBuilder Col2Im(const Pooling& p, const Shape& columns) {
  ModelBuilder m(18);
  m.Input("x", columns);
  m.Ints("image", p.Extents());
  m.Ints("block", p.kernel);
  auto& node = m.Node("Col2Im", {"x", "image", "block"}, {"y"});
  ModelBuilder::SetInts(node, "strides", p.strides);
  ModelBuilder::SetInts(node, "pads", p.pads);
  ModelBuilder::SetInts(node, "dilations", p.dilations);
  m.Output("y");
  return m;
}

TEST(OnnxPool, Col2ImAddsUpWhatTheColumnsHaveOfAPixel) {
  for (Pooling p : Poolings()) {
    p.ceil = false;
    SCOPED_TRACE(ShapeText(p.image));
    const Shape result = p.Result();
    const Ints blocks(result.begin() + 2, result.end());
    const int64_t taps = NumElements(p.kernel), count = NumElements(blocks);
    const Shape columns = {p.image[0], p.image[1] * taps, count};
    const NDArray x = DrawnImage(columns);
    std::vector<double> want(static_cast<size_t>(NumElements(p.image)), 0);
    for (int64_t i = 0; i < x.size(); ++i) {
      const Ints t = Unravelled(i / count % taps, p.kernel), b = Unravelled(i % count, blocks);
      Ints pixel = {i / (p.image[1] * taps * count), i / (taps * count) % p.image[1]};
      bool inside = true;
      for (size_t d = 0; d < p.Axes(); ++d) {
        pixel.push_back(b[d] * p.strides[d] - p.pads[d] + t[d] * p.dilations[d]);
        inside = inside && pixel.back() >= 0 && pixel.back() < p.image[d + 2];
      }
      if (inside) want[static_cast<size_t>(Ravelled(pixel, p.image))] += x.At(i);
    }
    ExpectArray(Col2Im(p, columns).Run({x})[0], p.image, want);
  }
}

TEST(OnnxPool, WhatCanNotBeIsSaidInOneLine) {
  const auto pool_error = [](const char* op, const Pooling& p) {
    ModelBuilder m(18);
    m.Input("x", p.image);
    p.SetAttributes(m.Node(op, {"x"}, {"y", "at"}));
    m.Output("y");
    return m.Import().status().ToString();
  };
  EXPECT_THAT(pool_error("LpPool", {{1, 1, 4}, {2, 2}, {1}, {0, 0}, {1}}), HasSubstr("one element a spatial axis"));
  EXPECT_THAT(pool_error("LpPool", {{1, 1, 4}, {5}, {1}, {0, 0}, {1}}), HasSubstr("larger than the padded input"));
  EXPECT_THAT(pool_error("MaxPool", {{1, 1, 4}, {5}, {1}, {0, 0}, {1}}), HasSubstr("larger than the padded input"));
  EXPECT_THAT(pool_error("MaxPool", {{1, 1, 4}, {2}, {1}, {-1, 0}, {1}}), HasSubstr("pads not negative"));
  EXPECT_THAT(pool_error("MaxPool", {{1, 1, 9000, 9000}, {2, 2}, {1, 1}, {0, 0, 0, 0}, {1, 1}}),
              HasSubstr("windows of 4 is too large"));
  const auto unpool_error = [](const Unpooling& u) { return MaxUnpool(u).Import().status().ToString(); };
  EXPECT_THAT(unpool_error({{1, 1, 2}, {2}, {2}, {2, 2}, {}}), HasSubstr("the pads leave nothing"));
  EXPECT_THAT(unpool_error({{1, 1, 2}, {2}, {2}, {0, 0}, Shape{1, 1, 3}}), HasSubstr("output_shape is not smaller"));
  EXPECT_THAT(unpool_error({{1, 1, 2}, {2, 2}, {2}, {0, 0}, {}}), HasSubstr("one element a spatial axis"));
  EXPECT_THAT(Col2Im({{1, 1, 5}, {2}, {1}, {0, 0}, {1}}, {1, 2, 5}).Import().status().ToString(),
              HasSubstr("takes [n, channels * 2, 4]"));
}

// Sizes whose products would overflow, and an image of which one column in many is read.
TEST(OnnxPool, NumbersOutOfRangeAreRefused) {
  const auto error = [](const Ints& image, const Ints& block, const Shape& x, const Ints& strides) {
    ModelBuilder m(18);
    m.Input("x", x);
    m.Ints("image", image);
    m.Ints("block", block);
    ModelBuilder::SetInts(m.Node("Col2Im", {"x", "image", "block"}, {"y"}), "strides", strides);
    m.Output("y");
    return m.Import().status().ToString();
  };
  constexpr int64_t kHuge = int64_t{1} << 32;
  EXPECT_THAT(error({kHuge, kHuge}, {kHuge, kHuge}, {1, 4, 1}, {1, 1}), HasSubstr("out of range"));
  EXPECT_THAT(error({kHuge, kHuge}, {1, 1}, {1, 4, 1}, {1, 1}), HasSubstr("too large"));
  EXPECT_THAT(error({4096, 4096}, {64, 1}, {1, 64, 4033}, {1, 4096}), HasSubstr("16777216 pixels, of 64 columns"));
  ModelBuilder m(18);
  m.Input("x", {1, 1, 4, 4});
  onnx::NodeProto& node = m.Node("MaxPool", {"x"}, {"y", "at"});
  ModelBuilder::SetInts(node, "kernel_shape", {kHuge + 1, 1});
  ModelBuilder::SetInts(node, "dilations", {kHuge, 1});
  m.Output("y");
  m.Output("at");
  EXPECT_THAT(m.Import().status().ToString(), HasSubstr("out of range"));
}

}  // namespace
}  // namespace temper
