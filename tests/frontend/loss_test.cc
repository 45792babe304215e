// Losses of classifications against their definitions, sample by sample.
#include <gmock/gmock.h>

#include <cmath>
#include <optional>

#include "base/rng.h"
#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using testing::ExpectArray;
using ::testing::HasSubstr;
using testing::ModelBuilder;

struct Loss {
  Shape scores;
  std::string reduction = "mean";
  bool has_weights = false;
  std::optional<int64_t> ignored;
  bool softmax = false;
};

Shape TargetShape(const Loss& l) {
  Shape shape = l.scores;
  shape.erase(shape.begin() + 1);
  return shape;
}

ModelBuilder LossModel(const Loss& l) {
  ModelBuilder m(13);
  m.Input("x", l.scores);
  m.Input("target", TargetShape(l), onnx::TensorProto::INT64);
  std::vector<std::string> inputs = {"x", "target"}, outputs = {"loss"};
  if (l.has_weights) {
    m.Input("weights", {l.scores[1]});
    inputs.push_back("weights");
  }
  if (l.softmax) outputs.push_back("log_prob");
  auto& node = m.Node(l.softmax ? "SoftmaxCrossEntropyLoss" : "NegativeLogLikelihoodLoss", inputs, outputs);
  ModelBuilder::SetString(node, "reduction", l.reduction);
  if (l.ignored.has_value()) ModelBuilder::SetInt(node, "ignore_index", *l.ignored);
  for (const std::string& output : outputs) m.Output(output);
  return m;
}

// Every third sample is of the class that is ignored.
std::vector<NDArray> DrawnFeeds(const Loss& l) {
  Rng rng(5);
  NDArray x(DType::kF32, l.scores), target(DType::kI64, TargetShape(l)), weights(DType::kF32, {l.scores[1]});
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, 4 * rng.Uniform() - 2);
  for (int64_t i = 0; i < target.size(); ++i) target.Set(i, static_cast<double>(rng.Below(l.scores[1])));
  for (int64_t i = 0; l.ignored.has_value() && i < target.size(); i += 3)
    target.Set(i, static_cast<double>(*l.ignored));
  for (int64_t i = 0; i < weights.size(); ++i) weights.Set(i, 0.5 + rng.Uniform());
  std::vector<NDArray> feeds = {x, target};
  if (l.has_weights) feeds.push_back(weights);
  return feeds;
}

// log(softmax(x)) over the classes.
std::vector<double> LogProb(const NDArray& x) {
  const int64_t classes = x.shape()[1], inner = NumElements(std::span(x.shape()).subspan(2));
  std::vector<double> result;
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t first = i / (classes * inner) * classes * inner + i % inner;
    double sum = 0;
    for (int64_t k = 0; k < classes; ++k) sum += std::exp(x.At(first + k * inner));
    result.push_back(x.At(i) - std::log(sum));
  }
  return result;
}

std::vector<double> ExpectedLoss(const Loss& l, const std::vector<NDArray>& feeds) {
  const int64_t classes = l.scores[1], inner = NumElements(std::span(l.scores).subspan(2));
  std::vector<double> scores = LogProb(feeds[0]), losses;
  double sum = 0, weights = 0;
  for (int64_t i = 0; i < feeds[1].size(); ++i) {
    const int64_t target = static_cast<int64_t>(feeds[1].At(i));
    if (l.ignored == target) {
      losses.push_back(0);
      continue;
    }
    const int64_t place = (i / inner * classes + target) * inner + i % inner;
    const double weight = l.has_weights ? feeds[2].At(target) : 1;
    losses.push_back(-weight * (l.softmax ? scores[static_cast<size_t>(place)] : feeds[0].At(place)));
    sum += losses.back();
    weights += weight;
  }
  if (l.reduction == "none") return losses;
  return {l.reduction == "sum" ? sum : sum / weights};
}

TEST(OnnxLoss, OfEverySampleAndReduced) {
  for (const Shape& scores : {Shape{6, 5}, Shape{3, 5, 2}, Shape{2, 3, 2, 3}, Shape{2, 3, 1, 2, 2, 2}}) {
    for (const char* reduction : {"none", "sum", "mean"}) {
      for (const bool has_weights : {false, true}) {
        for (const std::optional<int64_t> ignored : {std::optional<int64_t>(), std::optional<int64_t>(1),
                                                     std::optional<int64_t>(-5), std::optional<int64_t>(100)}) {
          for (const bool softmax : {false, true}) {
            SCOPED_TRACE(ShapeText(scores) + " " + reduction + " ignores " + std::to_string(ignored.value_or(-1)));
            const Loss l{scores, reduction, has_weights, ignored, softmax};
            const std::vector<NDArray> feeds = DrawnFeeds(l), out = LossModel(l).Run(feeds);
            ASSERT_EQ(out.size(), softmax ? 2u : 1u);
            ExpectArray(out[0], l.reduction == "none" ? TargetShape(l) : Shape{}, ExpectedLoss(l, feeds));
            if (softmax) ExpectArray(out[1], scores, LogProb(feeds[0]));
          }
        }
      }
    }
  }
}

TEST(OnnxLoss, WhereAllIsIgnoredThereIsNoMean) {
  const Loss l{{2, 3}, "mean", false, 1};
  NDArray target(DType::kI64, {2});
  for (int64_t i = 0; i < 2; ++i) target.Set(i, 1);
  EXPECT_TRUE(std::isnan(LossModel(l).Run({DrawnFeeds(l)[0], target})[0].At(0)));
}

// The sum is beyond what an f16 holds, the mean is not.
TEST(OnnxLoss, NarrowFloatsAreSummedInWiderOnes) {
  ModelBuilder m(13);
  m.Input("x", {4096, 1}, onnx::TensorProto::FLOAT16);
  m.Input("target", {4096}, onnx::TensorProto::INT64);
  ModelBuilder::SetInt(m.Node("NegativeLogLikelihoodLoss", {"x", "target"}, {"y"}), "ignore_index", -1);
  m.Output("y");
  NDArray x(DType::kF16, {4096, 1});
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, -32);
  const NDArray y = m.Run({x, NDArray(DType::kI64, {4096})})[0];
  EXPECT_EQ(y.dtype(), DType::kF16);
  EXPECT_EQ(y.At(0), 32);
}

TEST(OnnxLoss, WhatCanNotBeIsSaidInOneLine) {
  EXPECT_THAT(LossModel({{2, 3}, "most"}).Import().status().ToString(), HasSubstr("reduction is 'none'"));
  const auto error = [](const Shape& scores, int type, const Shape& target, const Shape& weights) {
    ModelBuilder m(13);
    m.Input("x", scores, type);
    m.Input("target", target, onnx::TensorProto::INT64);
    m.Input("weights", weights);
    m.Node("NegativeLogLikelihoodLoss", {"x", "target", "weights"}, {"y"});
    m.Output("y");
    return m.Import().status().ToString();
  };
  constexpr int kFloat = onnx::TensorProto::FLOAT;
  EXPECT_THAT(error({3}, kFloat, {}, {3}), HasSubstr("scores are floats, [n, classes, ...]"));
  EXPECT_THAT(error({2, 3}, onnx::TensorProto::INT64, {2}, {3}), HasSubstr("scores are floats"));
  EXPECT_THAT(error({2, 3}, kFloat, {3}, {3}), HasSubstr("one class, an integer, for each sample"));
  EXPECT_THAT(error({2, 3}, kFloat, {2}, {2}), HasSubstr("one weight for each of the 3 classes"));
}

}  // namespace
}  // namespace temper
