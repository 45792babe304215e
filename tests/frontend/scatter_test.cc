// Scatters against loops that write one update after the other.
#include <gmock/gmock.h>

#include <algorithm>
#include <tuple>

#include "base/rng.h"
#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using ::testing::HasSubstr;
using testing::ModelBuilder;

struct Indices {
  Shape shape;
  std::vector<int64_t> at;
  bool known;
};

// Whole numbers, so that sums and products are the same in any order.
NDArray Drawn(Rng& rng, const Shape& shape, DType dtype = DType::kF32) {
  NDArray x(dtype, shape);
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, static_cast<double>(rng.Below(9)) - 4);
  return x;
}

std::vector<int64_t> DrawnIndices(Rng& rng, int64_t count, int64_t extent) {
  std::vector<int64_t> at;
  for (int64_t i = 0; i < count; ++i) at.push_back(rng.Below(2 * extent) - extent);
  return at;
}

NDArray ArrayOf(const Indices& indices) {
  NDArray at(DType::kI64, indices.shape);
  std::copy(indices.at.begin(), indices.at.end(), at.as<int64_t>().begin());
  return at;
}

// "at" is a constant or an input of the model.
void AddIndices(ModelBuilder& m, const Indices& indices) {
  if (!indices.known) return m.Input("at", indices.shape, onnx::TensorProto::INT64);
  m.Ints("flat", indices.at);
  m.Ints("index_shape", indices.shape);
  m.Node("Reshape", {"flat", "index_shape"}, {"at"});
}

ModelBuilder Scatter(const char* op, const NDArray& data, const Indices& indices, const Shape& updates,
                     const std::string& reduction, int64_t axis = 0) {
  const int type = data.dtype() == DType::kI64    ? onnx::TensorProto::INT64
                   : data.dtype() == DType::kBool ? onnx::TensorProto::BOOL
                                                  : onnx::TensorProto::FLOAT;
  ModelBuilder m(18);
  m.Input("x", data.shape(), type);
  AddIndices(m, indices);
  m.Input("updates", updates, type);
  auto& node = m.Node(op, {"x", "at", "updates"}, {"y"});
  ModelBuilder::SetString(node, "reduction", reduction);
  if (op != std::string("ScatterND")) ModelBuilder::SetInt(node, "axis", axis);
  m.Output("y");
  return m;
}

NDArray Outcome(const ModelBuilder& m, const NDArray& data, const Indices& indices, const NDArray& updates) {
  return indices.known ? m.Run({data, updates})[0] : m.Run({data, ArrayOf(indices), updates})[0];
}

double Combined(const std::string& reduction, double old, double update) {
  if (reduction == "add") return old + update;
  if (reduction == "mul") return old * update;
  if (reduction == "min") return std::min(old, update);
  if (reduction == "max") return std::max(old, update);
  return update;
}

int64_t FromFront(int64_t at, int64_t extent) { return at < 0 ? at + extent : at; }

NDArray ElementsOneByOne(const NDArray& data, const Indices& indices, const NDArray& updates, int64_t axis,
                         const std::string& reduction) {
  NDArray y = data.Clone();
  const Shape& shape = data.shape();
  for (int64_t i = 0; i < updates.size(); ++i) {
    std::vector<int64_t> at(shape.size());
    int64_t rest = i, place = 0;
    for (size_t d = shape.size(); d-- > 0; rest /= indices.shape[d]) at[d] = rest % indices.shape[d];
    at[static_cast<size_t>(axis)] = FromFront(indices.at[static_cast<size_t>(i)], shape[static_cast<size_t>(axis)]);
    for (size_t d = 0; d < shape.size(); ++d) place = place * shape[d] + at[d];
    y.Set(place, Combined(reduction, y.At(place), updates.At(i)));
  }
  return y;
}

NDArray SlicesOneByOne(const NDArray& data, const Indices& indices, const NDArray& updates,
                       const std::string& reduction) {
  NDArray y = data.Clone();
  const size_t names = static_cast<size_t>(indices.shape.back());
  const int64_t slice = NumElements(std::span(data.shape()).subspan(names));
  for (size_t i = 0; i < indices.at.size() / names; ++i) {
    int64_t place = 0;
    for (size_t d = 0; d < names; ++d)
      place = place * data.shape()[d] + FromFront(indices.at[i * names + d], data.shape()[d]);
    for (int64_t k = 0; k < slice; ++k) {
      const double update = updates.At(static_cast<int64_t>(i) * slice + k);
      y.Set(place * slice + k, Combined(reduction, y.At(place * slice + k), update));
    }
  }
  return y;
}

void ExpectEqual(const NDArray& got, const NDArray& want) {
  ASSERT_EQ(got.shape(), want.shape());
  ASSERT_EQ(got.dtype(), want.dtype());
  for (int64_t i = 0; i < want.size(); ++i) EXPECT_EQ(got.At(i), want.At(i)) << "element " << i;
}

class OnnxScatter : public ::testing::TestWithParam<std::tuple<bool, std::string, DType>> {
 protected:
  bool known() const { return std::get<0>(GetParam()); }
  std::string reduction() const { return std::get<1>(GetParam()); }
  DType dtype() const { return std::get<2>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(All, OnnxScatter,
                         ::testing::Combine(::testing::Bool(), ::testing::Values("none", "add", "mul", "min", "max"),
                                            ::testing::Values(DType::kF32, DType::kI64)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) ? "Known" : "AtRun") + "_" +
                                  std::get<1>(info.param) + "_" + std::string(Name(std::get<2>(info.param)));
                         });

// Places are named many times, and some never.
TEST_P(OnnxScatter, OfElementsIsOneWriteAfterTheOther) {
  struct Case {
    Shape data, indices;
    int64_t axis;
  };
  const Case cases[] = {
      {{5}, {9}, 0}, {{3, 4}, {5, 4}, 0}, {{3, 4}, {2, 7}, 1}, {{2, 3, 4}, {2, 6, 3}, 1}, {{2, 3, 4}, {1, 1, 1}, 2}};
  Rng rng(3);
  for (const Case& k : cases) {
    SCOPED_TRACE(ShapeText(k.data) + " axis " + std::to_string(k.axis));
    const NDArray data = Drawn(rng, k.data, dtype()), updates = Drawn(rng, k.indices, dtype());
    const int64_t extent = k.data[static_cast<size_t>(k.axis)];
    const Indices indices = {k.indices, DrawnIndices(rng, updates.size(), extent), known()};
    const ModelBuilder m = Scatter("ScatterElements", data, indices, k.indices, reduction(), k.axis);
    ExpectEqual(Outcome(m, data, indices, updates), ElementsOneByOne(data, indices, updates, k.axis, reduction()));
  }
}

TEST_P(OnnxScatter, OfSlicesIsOneWriteAfterTheOther) {
  struct Case {
    Shape data, indices, updates;
  };
  const Case cases[] = {{{4}, {7, 1}, {7}},
                        {{3, 5}, {4, 1}, {4, 5}},
                        {{3, 3}, {2, 6, 2}, {2, 6}},
                        {{3, 3, 2}, {8, 2}, {8, 2}},
                        {{2, 2}, {2}, {}}};
  Rng rng(4);
  for (const Case& k : cases) {
    SCOPED_TRACE(ShapeText(k.data) + " by " + ShapeText(k.indices));
    const NDArray data = Drawn(rng, k.data, dtype()), updates = Drawn(rng, k.updates, dtype());
    // Indices that all named axes have.
    const Indices indices = {
        k.indices,
        DrawnIndices(rng, NumElements(k.indices), *std::min_element(k.data.begin(), k.data.begin() + k.indices.back())),
        known()};
    const ModelBuilder m = Scatter("ScatterND", data, indices, k.updates, reduction());
    ExpectEqual(Outcome(m, data, indices, updates), SlicesOneByOne(data, indices, updates, reduction()));
  }
}

TEST(OnnxScatterAtRun, WhatIsOutsideIsTakenToTheNearestPlace) {
  const NDArray data = testing::Array({4}, {1, 2, 3, 4}), updates = testing::Array({2}, {10, 20});
  const Indices indices = {{2}, {99, -99}, false};
  const ModelBuilder m = Scatter("ScatterElements", data, indices, {2}, "none");
  ExpectEqual(Outcome(m, data, indices, updates), testing::Array({4}, {20, 2, 3, 10}));
}

TEST(OnnxScatterErrors, WhatCanNotBeIsSaidInOneLine) {
  const auto error = [](const Shape& data, const Indices& indices, const Shape& updates, const char* reduction,
                        DType dtype = DType::kF32) {
    const ModelBuilder m = Scatter("ScatterElements", NDArray(dtype, data), indices, updates, reduction);
    const absl::Status status = m.Import().status();
    return std::string(absl::StatusCodeToString(status.code())) + " " + std::string(status.message());
  };
  const Indices two = {{2}, {0, 2}, true}, outside = {{2}, {0, 3}, true};
  EXPECT_THAT(error({3}, two, {2}, "none"), HasSubstr("OK"));
  EXPECT_THAT(error({3}, two, {3}, "none"), HasSubstr("INVALID_ARGUMENT"));
  EXPECT_THAT(error({3}, outside, {2}, "add"), HasSubstr("an index is out of range"));
  EXPECT_THAT(error({3}, two, {2}, "mean"), HasSubstr("reduction is"));
  EXPECT_THAT(error({3}, two, {2}, "max", DType::kBool), HasSubstr("of booleans is not supported"));
}

struct Cache {
  Shape past, update;
  int64_t axis;
  std::string mode;
  std::vector<int64_t> at;  // empty: none given
  bool known;
};

ModelBuilder TensorScatter(const Cache& k) {
  ModelBuilder m(24);
  m.Input("x", k.past);
  m.Input("update", k.update);
  std::vector<std::string> inputs = {"x", "update"};
  if (!k.at.empty()) {
    inputs.push_back("at");
    AddIndices(m, {{std::ssize(k.at)}, k.at, k.known});
  }
  auto& node = m.Node("TensorScatter", inputs, {"y"});
  ModelBuilder::SetInt(node, "axis", k.axis);
  ModelBuilder::SetString(node, "mode", k.mode);
  m.Output("y");
  return m;
}

NDArray CacheOneByOne(const Cache& k, const NDArray& past, const NDArray& update) {
  NDArray y = past.Clone();
  const size_t axis = static_cast<size_t>(k.axis < 0 ? k.axis + std::ssize(k.past) : k.axis);
  const int64_t inner = NumElements(std::span(k.past).subspan(axis + 1));
  const int64_t middle = NumElements(std::span(k.past).subspan(1, axis - 1));
  for (int64_t i = 0; i < update.size(); ++i) {
    const int64_t step = i / inner % k.update[axis], line = i / inner / k.update[axis];
    const int64_t begin = k.at.empty() ? 0 : k.at[static_cast<size_t>(line / middle)];
    y.Set((line * k.past[axis] + (begin + step) % k.past[axis]) * inner + i % inner, update.At(i));
  }
  return y;
}

TEST(OnnxTensorScatter, WritesARunOfStepsForEachBatchElement) {
  Rng rng(5);
  for (const bool known : {false, true}) {
    const Cache cases[] = {{{2, 5, 3}, {2, 2, 3}, -2, "linear", {3, 0}, known},
                           {{2, 5, 3}, {2, 2, 3}, 1, "linear", {}, known},
                           {{3, 2, 4, 2}, {3, 2, 3, 2}, 2, "circular", {1, 3, 0}, known},
                           {{2, 2, 4}, {2, 2, 4}, -1, "circular", {3, 9}, known}};
    for (const Cache& k : cases) {
      SCOPED_TRACE(ShapeText(k.past) + " " + k.mode + (known ? " known" : ""));
      const NDArray past = Drawn(rng, k.past), update = Drawn(rng, k.update);
      std::vector<NDArray> feeds = {past, update};
      if (!known && !k.at.empty()) feeds.push_back(ArrayOf({{std::ssize(k.at)}, k.at, false}));
      ExpectEqual(TensorScatter(k).Run(feeds)[0], CacheOneByOne(k, past, update));
    }
  }
}

TEST(OnnxTensorScatter, WhatCanNotBeIsSaidInOneLine) {
  const auto error = [](const Cache& k) { return std::string(TensorScatter(k).Import().status().message()); };
  EXPECT_EQ(error({{2, 5, 3}, {2, 2, 3}, 1, "linear", {3, 0}, true}), "");
  EXPECT_THAT(error({{2, 5, 3}, {2, 2, 3}, 1, "linear", {4, 0}, true}), HasSubstr("leads out of the cache"));
  EXPECT_THAT(error({{2, 5, 3}, {2, 2, 3}, 1, "linear", {0}, true}), HasSubstr("one write index a batch element"));
  EXPECT_THAT(error({{2, 5, 3}, {2, 6, 3}, 1, "linear", {}, true}), HasSubstr("but for fewer steps"));
  EXPECT_THAT(error({{2, 5, 3}, {2, 2, 2}, 1, "linear", {}, true}), HasSubstr("but for fewer steps"));
  EXPECT_THAT(error({{2, 5, 3}, {1, 5, 3}, 0, "linear", {}, true}), HasSubstr("the axis is not the batch's"));
  EXPECT_THAT(error({{2, 5, 3}, {2, 2, 3}, 1, "both", {}, true}), HasSubstr("mode is 'linear' or 'circular'"));
}

}  // namespace
}  // namespace temper
