// The mixture of experts of com.microsoft, token by token and expert by expert.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/rng.h"
#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using ::testing::HasSubstr;
using testing::ModelBuilder, testing::Refusal;
using Doubles = std::vector<double>;

struct ExpertsCall {
  std::string activation = "relu";
  int64_t k = 2, tokens = 5, experts = 4, fusion = 0;
  bool normalizes = false, third = false, bias = true;
  double limit = 0, alpha = 1, beta = 0;
  static constexpr int64_t kHidden = 6, kInner = 4;

  bool is_gated() const { return activation == "swiglu" || activation == "geglu"; }
  int64_t rows() const { return is_gated() && fusion != 0 ? 2 * kInner : kInner; }
  // Those of the operands; without elements where one is left out.
  std::vector<Shape> shapes() const {
    const Shape none;
    return {{1, tokens, kHidden},
            {tokens, experts},
            {experts, rows(), kHidden},
            bias ? Shape{experts, rows()} : none,
            {experts, kHidden, kInner},
            bias ? Shape{experts, kHidden} : none,
            third ? Shape{experts, kInner, kHidden} : none,
            third && bias ? Shape{experts, kInner} : none};
  }
};

ModelBuilder ModelOf(const ExpertsCall& c) {
  ModelBuilder m(17);
  std::vector<std::string> names;
  for (const Shape& shape : c.shapes()) {
    names.push_back(shape.empty() ? "" : "x" + std::to_string(names.size()));
    if (!shape.empty()) m.Input(names.back(), shape);
  }
  onnx::NodeProto& node = m.Node("MoE", names, {"y"});
  node.set_domain("com.microsoft");
  ModelBuilder::SetInt(node, "k", c.k);
  ModelBuilder::SetString(node, "activation_type", c.activation);
  ModelBuilder::SetInt(node, "normalize_routing_weights", c.normalizes ? 1 : 0);
  ModelBuilder::SetInt(node, "swiglu_fusion", c.fusion);
  ModelBuilder::SetFloat(node, "activation_alpha", static_cast<float>(c.alpha));
  ModelBuilder::SetFloat(node, "activation_beta", static_cast<float>(c.beta));
  if (c.limit > 0) ModelBuilder::SetFloat(node, "swiglu_limit", static_cast<float>(c.limit));
  m.Output("y");
  return m;
}

double GeluByTanh(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

double Activated(const ExpertsCall& c, double gate, double value) {
  if (c.activation == "swiglu") {
    if (c.limit > 0) gate = std::min(gate, c.limit), value = std::clamp(value, -c.limit, c.limit);
    return gate / (1 + std::exp(-c.alpha * gate)) * (value + c.beta);
  }
  if (c.activation == "relu") gate = std::max(gate, 0.0);
  if (c.activation == "relu2") gate = std::pow(std::max(gate, 0.0), 2);
  if (c.activation == "silu") gate = gate / (1 + std::exp(-gate));
  if (c.activation == "gelu" || c.activation == "geglu") gate = GeluByTanh(gate);
  return c.is_gated() || c.third ? gate * value : gate;
}

void Check(const ExpertsCall& c) {
  SCOPED_TRACE(c.activation + " of " + std::to_string(c.experts));
  Rng rng(4);
  std::vector<NDArray> feeds, given;
  for (const Shape& shape : c.shapes()) {
    feeds.emplace_back(DType::kF32, shape);
    for (int64_t i = 0; i < feeds.back().size(); ++i) feeds.back().Set(i, 2 * rng.Uniform() - 1);
    if (!shape.empty()) given.push_back(feeds.back());
  }
  const NDArray y = ModelOf(c).Run(given)[0];
  ASSERT_EQ(y.shape(), c.shapes()[0]);
  constexpr int64_t kHidden = ExpertsCall::kHidden, kInner = ExpertsCall::kInner;
  const auto row = [&](size_t weight, int64_t expert, int64_t i, const Doubles& x) {
    const Shape shape = c.shapes()[weight];
    double sum = c.bias ? feeds[weight + 1].At(expert * shape[1] + i) : 0;
    for (int64_t k = 0; k < shape[2]; ++k)
      sum += feeds[weight].At((expert * shape[1] + i) * shape[2] + k) * x[static_cast<size_t>(k)];
    return sum;
  };
  for (int64_t t = 0; t < c.tokens; ++t) {
    Doubles x, shares, want(static_cast<size_t>(kHidden));
    for (int64_t i = 0; i < kHidden; ++i) x.push_back(feeds[0].At(t * kHidden + i));
    double all = 0, chosen = 0;
    for (int64_t e = 0; e < c.experts; ++e) shares.push_back(std::exp(feeds[1].At(t * c.experts + e)));
    for (double& share : shares) all += share;
    for (double& share : shares) share /= all;
    std::vector<int64_t> order(static_cast<size_t>(c.experts));
    std::iota(order.begin(), order.end(), 0);
    const auto share = [&](int64_t e) { return shares[static_cast<size_t>(e)]; };
    std::ranges::sort(order, std::greater(), share);
    order.resize(static_cast<size_t>(c.k));
    for (const int64_t e : order) chosen += share(e);
    for (const int64_t e : order) {
      Doubles inner;
      for (int64_t i = 0; i < kInner; ++i) {
        const bool fused = c.is_gated() && c.fusion != 0;
        const double gate = row(2, e, c.fusion == 1 ? 2 * i : i, x);
        const double value = fused     ? row(2, e, c.fusion == 1 ? 2 * i + 1 : kInner + i, x)
                             : c.third ? row(6, e, i, x)
                                       : 0;
        inner.push_back(Activated(c, gate, value));
      }
      for (int64_t i = 0; i < kHidden; ++i)
        want[static_cast<size_t>(i)] += share(e) / (c.normalizes ? chosen : 1) * row(4, e, i, inner);
    }
    for (int64_t i = 0; i < kHidden; ++i) EXPECT_NEAR(y.At(t * kHidden + i), want[static_cast<size_t>(i)], 1e-5);
  }
}

// All experts work for all tokens, or the weights of the chosen are gathered: of few tokens and many experts.
TEST(Experts, EachTokenGoesThroughThoseOfItsRouter) {
  for (const auto& [tokens, experts] : {std::pair(5, 4), std::pair(1, 8), std::pair(3, 9)}) {
    for (const char* activation : {"relu", "relu2", "gelu", "silu", "identity"})
      Check({.activation = activation, .tokens = tokens, .experts = experts});
    Check({.tokens = tokens, .experts = experts, .normalizes = true});
    Check({.k = 1, .tokens = tokens, .experts = experts, .bias = false});
    Check({.k = experts, .tokens = tokens, .experts = experts, .bias = false});
    Check({.activation = "silu", .tokens = tokens, .experts = experts, .third = true});
  }
}

TEST(Experts, GatesOfOneProductOrTwo) {
  for (const int64_t experts : {4, 16}) {
    for (const int64_t fusion : {0, 1, 2}) {
      const bool third = fusion == 0;
      Check({.activation = "swiglu", .experts = experts, .fusion = fusion, .third = third});
      Check({.activation = "swiglu",
             .experts = experts,
             .fusion = fusion,
             .third = third,
             .limit = 0.5,
             .alpha = 1.75,
             .beta = 1});
    }
    Check({.activation = "geglu", .experts = experts, .fusion = 1});
  }
}

TEST(Experts, WhatCanNotBeIsSaidInOneLine) {
  const auto changed = [](auto change) {
    ModelBuilder m = ModelOf({});
    change(*m.model.mutable_graph()->mutable_node(0));
    return Refusal(m);
  };
  EXPECT_THAT(Refusal(ModelOf({.activation = "tanh"})), HasSubstr("activation_type 'tanh' is not supported"));
  EXPECT_THAT(Refusal(ModelOf({.activation = "swiglu"})), HasSubstr("a third weight, or a fused first one"));
  EXPECT_THAT(Refusal(ModelOf({.fusion = 3})), HasSubstr("swiglu_fusion is 0, 1 or 2"));
  EXPECT_THAT(Refusal(ModelOf({.k = 5})), HasSubstr("k is at most the experts"));
  EXPECT_THAT(changed([](auto& n) { n.set_input(4, ""); }), HasSubstr("operand 4 is missing"));
  EXPECT_THAT(changed([](auto& n) { n.set_input(2, "x4"); }), HasSubstr("operand 2 is [4x4x6]"));
  EXPECT_THAT(changed([](auto& n) { n.set_input(3, "x5"); }), HasSubstr("operand 3 is [4x4]"));
  EXPECT_THAT(changed([](auto& n) { ModelBuilder::SetInt(n, "use_sparse_mixer", 1); }),
              HasSubstr("use_sparse_mixer is not supported"));
}

}  // namespace
}  // namespace temper
