// Operators that choose elements by indices, lengths or values, against loops over the elements.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using testing::Array;
using testing::ExpectArray;
using ::testing::HasSubstr;
using testing::ModelBuilder;
using testing::Refusal;
using Ints = std::vector<int64_t>;

NDArray Numbered(const Shape& shape) {
  NDArray x(DType::kF32, shape);
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, static_cast<double>(i + 1));
  return x;
}

NDArray IntArray(const Shape& shape, const Ints& values) {
  NDArray x(DType::kI64, shape);
  std::copy(values.begin(), values.end(), x.as<int64_t>().begin());
  return x;
}

ModelBuilder GatherNd(const Shape& data, const Shape& indices, int64_t batch) {
  ModelBuilder m(13);
  m.Input("x", data);
  m.Input("at", indices, onnx::TensorProto::INT64);
  ModelBuilder::SetInt(m.Node("GatherND", {"x", "at"}, {"y"}), "batch_dims", batch);
  m.Output("y");
  return m;
}

TEST(OnnxIndex, GatherNdLooksWithinItsBatchElement) {
  const NDArray x = Numbered({2, 3, 4});
  // y[b][i] = x[b][at[b][i]], a row of four.
  std::vector<double> rows;
  const Ints at = {2, 0, -1, 1};
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t k = 0; k < 4; ++k) rows.push_back(x.At((i / 2 * 3 + (at[static_cast<size_t>(i)] + 3) % 3) * 4 + k));
  }
  ExpectArray(GatherNd({2, 3, 4}, {2, 2, 1}, 1).Run({x, IntArray({2, 2, 1}, at)})[0], {2, 2, 4}, rows);
  // y[b] = x[b][at[b][0]][at[b][1]]
  ExpectArray(GatherNd({2, 3, 4}, {2, 2}, 1).Run({x, IntArray({2, 2}, {1, 3, -1, 0})})[0], {2}, {8, 21});
  // y[a][b] = x[a][b][at[a][b][0]]
  ExpectArray(GatherNd({2, 3, 4}, {2, 3, 1}, 2).Run({x, IntArray({2, 3, 1}, {0, 1, 2, 3, -1, -4})})[0], {2, 3},
              {1, 6, 11, 16, 20, 21});
}

TEST(OnnxIndex, GatherNdWantsTheSameBatchInBoth) {
  EXPECT_EQ(Refusal(GatherNd({2, 3, 4}, {2, 2, 1}, 1)), "");
  for (const int64_t batch : {-1, 3})
    EXPECT_THAT(Refusal(GatherNd({2, 3, 4}, {2, 2, 1}, batch)), HasSubstr("batch_dims"));
  EXPECT_THAT(Refusal(GatherNd({2, 3, 4}, {3, 2, 1}, 1)), HasSubstr("batch_dims"));
  EXPECT_THAT(Refusal(GatherNd({2, 3, 4}, {2, 2, 3}, 1)), HasSubstr("as long as the axes that they name"));
}

ModelBuilder ReverseSequence(const Shape& shape, int64_t time, const Ints& lengths, bool known) {
  ModelBuilder m(13);
  m.Input("x", shape);
  if (known)
    m.Ints("lengths", lengths);
  else
    m.Input("lengths", {std::ssize(lengths)}, onnx::TensorProto::INT64);
  auto& node = m.Node("ReverseSequence", {"x", "lengths"}, {"y"});
  ModelBuilder::SetInt(node, "time_axis", time);
  ModelBuilder::SetInt(node, "batch_axis", 1 - time);
  m.Output("y");
  return m;
}

TEST(OnnxIndex, ReverseSequenceTurnsTheFirstStepsOfEach) {
  for (const int64_t time : {0, 1}) {
    for (const bool known : {false, true}) {
      SCOPED_TRACE(std::to_string(time) + (known ? " known" : ""));
      const Shape shape = time == 0 ? Shape{4, 3, 2} : Shape{3, 4, 2};
      const Ints lengths = {4, 1, 3};
      const NDArray x = Numbered(shape);
      std::vector<double> want;
      for (int64_t i = 0; i < x.size(); ++i) {
        const int64_t first = i / 2 / shape[1], second = i / 2 % shape[1], step = time == 0 ? first : second;
        const int64_t sequence = time == 0 ? second : first, length = lengths[static_cast<size_t>(sequence)];
        const int64_t from = step < length ? length - 1 - step : step;
        want.push_back(x.At((time == 0 ? from * shape[1] + sequence : sequence * shape[1] + from) * 2 + i % 2));
      }
      std::vector<NDArray> feeds = {x};
      if (!known) feeds.push_back(IntArray({3}, lengths));
      ExpectArray(ReverseSequence(shape, time, lengths, known).Run(feeds)[0], shape, want);
    }
  }
}

// What a length at run says must not lead into another sequence.
TEST(OnnxIndex, ReverseSequenceStaysInItsSequence) {
  const NDArray y = ReverseSequence({2, 2}, 1, {9, -9}, false).Run({Numbered({2, 2}), IntArray({2}, {9, -9})})[0];
  ExpectArray(y, {2, 2}, {2, 1, 3, 4});
  EXPECT_THAT(Refusal(ReverseSequence({2, 2}, 1, {3, 1}, true)), HasSubstr("beyond the time axis"));
  EXPECT_THAT(Refusal(ReverseSequence({2, 2}, 1, {1}, true)), HasSubstr("one length a batch element"));
  EXPECT_THAT(Refusal(ReverseSequence({2, 2}, 2, {1, 1}, true)), HasSubstr("the first two"));
}

ModelBuilder Compress(const Ints& condition, std::optional<int64_t> axis) {
  ModelBuilder m(13);
  m.Input("x", {2, 3});
  m.Ints("numbers", condition);
  ModelBuilder::SetInt(m.Node("Cast", {"numbers"}, {"condition"}), "to", onnx::TensorProto::BOOL);
  auto& node = m.Node("Compress", {"x", "condition"}, {"y"});
  if (axis.has_value()) ModelBuilder::SetInt(node, "axis", *axis);
  m.Output("y");
  return m;
}

TEST(OnnxIndex, CompressTakesWhatTheConditionHas) {
  const NDArray x = Numbered({2, 3});
  ExpectArray(Compress({1, 0, 1}, 1).Run({x})[0], {2, 2}, {1, 3, 4, 6});
  ExpectArray(Compress({0, 1}, -1).Run({x})[0], {2, 1}, {2, 5});
  ExpectArray(Compress({0, 1}, 0).Run({x})[0], {1, 3}, {4, 5, 6});
  ExpectArray(Compress({0, 1, 0, 0, 1}, std::nullopt).Run({x})[0], {2}, {2, 5});
  EXPECT_THAT(Refusal(Compress({1, 1, 1}, 0)), HasSubstr("longer than the axis"));
}

// The outputs of an operator on a constant.
std::vector<NDArray> OfKnown(const char* op, const Shape& shape, const std::vector<float>& x, int outputs,
                             const std::function<void(onnx::NodeProto&)>& change = nullptr) {
  ModelBuilder m(13);
  m.Input("unused", {1});
  m.Floats("x", shape, x);
  std::vector<std::string> names;
  for (int i = 0; i < outputs; ++i) names.push_back("y" + std::to_string(i));
  auto& node = m.Node(op, {"x"}, names);
  if (change != nullptr) change(node);
  for (const std::string& name : names) m.Output(name);
  return m.Run({Array({1}, {0})});
}

TEST(OnnxIndex, NonZeroHasAColumnForEach) {
  ExpectArray(OfKnown("NonZero", {2, 2, 2}, {0, 1, 0, 0, -2, 0, 3, std::nanf("")}, 1)[0], {3, 4},
              {0, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0, 1});
  ExpectArray(OfKnown("NonZero", {3}, {5, 0, 7}, 1)[0], {1, 2}, {0, 2});
}

// The specification's examples.
TEST(OnnxIndex, UniqueSortedAndAsTheyCome) {
  const auto unsorted = [](onnx::NodeProto& n) { ModelBuilder::SetInt(n, "sorted", 0); };
  std::vector<NDArray> y = OfKnown("Unique", {6}, {2, 1, 1, 3, 4, 3}, 4, unsorted);
  ExpectArray(y[0], {4}, {2, 1, 3, 4});
  ExpectArray(y[1], {4}, {0, 1, 3, 4});
  ExpectArray(y[2], {6}, {0, 1, 1, 2, 3, 2});
  ExpectArray(y[3], {4}, {1, 2, 2, 1});
  y = OfKnown("Unique", {2, 2}, {1, 3, 2, 3}, 4);
  ExpectArray(y[0], {3}, {1, 2, 3});
  ExpectArray(y[1], {3}, {0, 2, 1});
  ExpectArray(y[2], {4}, {0, 2, 1, 2});
  ExpectArray(y[3], {3}, {1, 1, 2});
}

TEST(OnnxIndex, UniqueSlicesAlongAnAxis) {
  const auto along = [](int64_t axis) { return [axis](onnx::NodeProto& n) { ModelBuilder::SetInt(n, "axis", axis); }; };
  std::vector<NDArray> y = OfKnown("Unique", {3, 3}, {1, 0, 0, 1, 0, 0, 2, 3, 4}, 4, along(0));
  ExpectArray(y[0], {2, 3}, {1, 0, 0, 2, 3, 4});
  ExpectArray(y[1], {2}, {0, 2});
  ExpectArray(y[2], {3}, {0, 0, 1});
  ExpectArray(y[3], {2}, {2, 1});
  const std::vector<float> x = {1, 1, 0, 1, 2, 1, 0, 1};
  std::vector<float> twice = x;
  twice.insert(twice.end(), x.begin(), x.end());
  y = OfKnown("Unique", {2, 4, 2}, twice, 4, along(-2));
  ExpectArray(y[0], {2, 3, 2}, {0, 1, 1, 1, 2, 1, 0, 1, 1, 1, 2, 1});
  ExpectArray(y[1], {3}, {1, 0, 2});
  ExpectArray(y[2], {4}, {1, 0, 2, 0});
  ExpectArray(y[3], {3}, {2, 1, 1});
}

// Neither doubles nor comparisons with what is no number tell these apart, or together.
TEST(OnnxIndex, UniqueOfLargeIntegersAndOfNoNumbers) {
  ModelBuilder m(13);
  m.Input("unused", {1});
  constexpr int64_t kLarge = int64_t{1} << 60;
  m.Ints("x", {kLarge + 1, kLarge, kLarge + 1});
  m.Node("Unique", {"x"}, {"y"});
  m.Output("y");
  const NDArray y = m.Run({Array({1}, {0})})[0];
  ASSERT_EQ(y.shape(), Shape{2});
  EXPECT_EQ(y.as<int64_t>()[0], kLarge);
  EXPECT_EQ(y.as<int64_t>()[1], kLarge + 1);
  const float nan = std::nanf("");
  ExpectArray(OfKnown("Unique", {5}, {nan, 2, nan, -1, 2}, 4)[3], {3}, {1, 2, 2});
}

TEST(OnnxIndex, NothingIsUniqueInNothing) {
  const std::vector<NDArray> y = OfKnown("Unique", {0}, {}, 4);
  ASSERT_EQ(y.size(), 4u);
  for (const NDArray& output : y) EXPECT_EQ(output.shape(), Shape{0});
}

ModelBuilder Pad(const Shape& shape, const Ints& pads) {
  ModelBuilder m(19);
  m.Input("x", shape);
  m.Ints("pads", pads);
  ModelBuilder::SetString(m.Node("Pad", {"x", "pads"}, {"y"}), "mode", "wrap");
  m.Output("y");
  return m;
}

TEST(OnnxIndex, PadWrapsRound) {
  const NDArray x = Numbered({2, 3});
  std::vector<double> want;
  for (int64_t i = 0; i < 5; ++i) {
    for (int64_t j = 0; j < 9; ++j) want.push_back(x.At((i + 1) % 2 * 3 + (j + 2) % 3));
  }
  ExpectArray(Pad({2, 3}, {3, 1, 0, 5}).Run({x})[0], {5, 9}, want);
  // The first column is gone, then the other two go round.
  ExpectArray(Pad({2, 3}, {0, -1, -1, 3}).Run({x})[0], {1, 5}, {2, 3, 2, 3, 2});
  EXPECT_THAT(Refusal(Pad({2, 3}, {0, 0, 0, -4})), HasSubstr("pads are out of range"));
  EXPECT_THAT(Refusal(Pad({2, 3}, {0, -2, 0, -1})), HasSubstr("nothing to repeat"));
  EXPECT_THAT(Refusal(Pad({2, 3}, {0, 0})), HasSubstr("two elements an axis"));
}

ModelBuilder CenterCropPad(const Shape& shape, const Ints& target, const Ints& axes) {
  ModelBuilder m(18);
  m.Input("x", shape);
  m.Ints("shape", target);
  auto& node = m.Node("CenterCropPad", {"x", "shape"}, {"y"});
  if (!axes.empty()) ModelBuilder::SetInts(node, "axes", axes);
  m.Output("y");
  return m;
}

TEST(OnnxIndex, CenterCropPadKeepsTheMiddle) {
  struct Case {
    Shape shape;
    Ints target, axes;
  };
  const Case cases[] = {{{7, 4}, {4, 9}, {}}, {{6, 5}, {3, 8}, {}}, {{4, 5, 6}, {3, 8}, {-1, 0}}, {{3, 2}, {3, 2}, {}}};
  for (const Case& k : cases) {
    SCOPED_TRACE(ShapeText(k.shape));
    const NDArray x = Numbered(k.shape);
    Shape to = k.shape;
    for (size_t i = 0; i < k.target.size(); ++i) {
      const int64_t axis = k.axes.empty() ? static_cast<int64_t>(i) : k.axes[i];
      to[static_cast<size_t>(axis < 0 ? axis + std::ssize(to) : axis)] = k.target[i];
    }
    std::vector<double> want;
    for (int64_t i = 0; i < NumElements(to); ++i) {
      int64_t rest = i, place = 0, stride = 1;
      bool inside = true;
      for (size_t d = to.size(); d-- > 0; rest /= to[d], stride *= k.shape[d]) {
        const int64_t lost = to[d] < k.shape[d] ? (k.shape[d] - to[d]) / 2 : 0;
        const int64_t added = to[d] > k.shape[d] ? (to[d] - k.shape[d]) / 2 : 0;
        const int64_t from = rest % to[d] + lost - added;
        inside = inside && from >= 0 && from < k.shape[d];
        place += from * stride;
      }
      want.push_back(inside ? x.At(place) : 0);
    }
    ExpectArray(CenterCropPad(k.shape, k.target, k.axes).Run({x})[0], to, want);
  }
  EXPECT_THAT(Refusal(CenterCropPad({3, 2}, {3}, {})), HasSubstr("one length an axis"));
  EXPECT_THAT(Refusal(CenterCropPad({3, 2}, {3, -1}, {})), HasSubstr("a length is negative"));
}

TEST(OnnxIndex, WhatCanNotBeIsSaidInOneLine) {
  const auto error = [](const std::string& op, const std::vector<std::string>& operands, int outputs = 1) {
    ModelBuilder m(18);
    m.Input("x", {4});
    m.Input("at", {3}, onnx::TensorProto::INT64);
    m.Floats("two", {2}, {0, 1});
    m.Floats("half", {1}, {0.5F});
    m.Floats("nothing", {0}, {});
    m.Floats("infinite", {}, {INFINITY});
    m.Ints("huge", {int64_t{1} << 40});
    m.Ints("wraps", {int64_t{1} << 32, int64_t{1} << 32, 4});
    m.Ints("parts", {5, -1});
    onnx::NodeProto& node = m.Node(op, operands, {"y", "z"});
    if (op == "Split" && operands.size() == 1) ModelBuilder::SetInt(node, "num_outputs", outputs);
    m.Output("y");
    return std::string(m.Import().status().message());
  };
  EXPECT_THAT(error("OneHot", {"at", "huge", "two"}), HasSubstr("a depth of 1099511627776"));
  EXPECT_THAT(error("OneHot", {"at", "infinite", "two"}), HasSubstr("depth has inf, which is no integer"));
  EXPECT_THAT(error("GatherElements", {"nothing", "at"}), HasSubstr("nothing that an index can name"));
  EXPECT_THAT(error("Gather", {"x", "half"}), HasSubstr("indices are integers"));
  EXPECT_THAT(error("Concat", {"x", ""}), HasSubstr("an operand is missing"));
  EXPECT_THAT(error("Split", {"x", "parts"}), HasSubstr("do not add up"));
  EXPECT_THAT(error("Split", {"x"}, 1 << 30), HasSubstr("num_outputs"));
  EXPECT_THAT(error("Reshape", {"x", "wraps"}), HasSubstr("is too large"));
}

TEST(OnnxIndex, PlacesOfManyIndicesAreNoConstant) {
  constexpr int64_t kMany = int64_t{1} << 27;
  ModelBuilder m(18);
  m.Input("x", {1, kMany});
  m.Input("at", {1, kMany}, onnx::TensorProto::INT64);
  ModelBuilder::SetInt(m.Node("GatherElements", {"x", "at"}, {"y"}), "axis", 1);
  m.Output("y");
  const absl::StatusOr<Graph> g = m.Import();
  ASSERT_TRUE(g.ok()) << g.status();
  for (const Value& v : g->values) EXPECT_TRUE(!v.is_constant || NumElements(v.type.shape) == 1);
}

}  // namespace
}  // namespace temper
