// Linear attention and the convolution before it, token by token.
#include <gmock/gmock.h>

#include <cmath>

#include "base/rng.h"
#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using testing::Array, testing::ExpectArray, testing::ModelBuilder, testing::Refusal;
using ::testing::HasSubstr;
using Doubles = std::vector<double>;

struct LinearCall {
  std::string rule;
  int64_t tokens = 5, batch = 2, queries = 2, heads = 2, key_size = 3, value_size = 4;
  int64_t decays = 1, betas = 2;  // numbers a head, numbers a token
  bool past = false, contrib = false;
  float scale = 0;

  bool gates() const { return rule == "gated" || rule == "gated_delta"; }
  bool corrects() const { return rule == "delta" || rule == "gated_delta"; }
  Shape state() const { return {batch, heads, key_size, value_size}; }
};

NDArray Drawn(Rng& rng, const Shape& shape, double low, double high) {
  NDArray x(DType::kF32, shape);
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, low + (high - low) * rng.Uniform());
  return x;
}

ModelBuilder ModelOf(const LinearCall& c) {
  ModelBuilder m(27);
  m.Input("q", {c.batch, c.tokens, c.queries * c.key_size});
  m.Input("k", {c.batch, c.tokens, c.heads * c.key_size});
  m.Input("v", {c.batch, c.tokens, c.heads * c.value_size});
  if (c.past) m.Input("past", c.state());
  if (c.gates()) m.Input("decay", {c.batch, c.tokens, c.heads * c.decays});
  if (c.corrects()) m.Input("beta", {c.batch, c.tokens, c.betas});
  auto& node = m.Node("LinearAttention",
                      {"q", "k", "v", c.past ? "past" : "", c.gates() ? "decay" : "", c.corrects() ? "beta" : ""},
                      {"y", "present"});
  if (c.contrib) node.set_domain("com.microsoft");
  ModelBuilder::SetString(node, "update_rule", c.rule);
  ModelBuilder::SetInt(node, "q_num_heads", c.queries);
  ModelBuilder::SetInt(node, "kv_num_heads", c.heads);
  ModelBuilder::SetFloat(node, "scale", c.scale);
  m.Output("y");
  m.Output("present");
  return m;
}

// What one head of keys makes of its state, token by token; each of its heads of queries asks it.
struct Want {
  NDArray y, state;
};
Want Wanted(const LinearCall& c, const std::vector<NDArray>& feeds) {
  const size_t decay_at = c.past ? 4 : 3, beta_at = decay_at + (c.gates() ? 1 : 0);
  const int64_t out = std::max(c.queries, c.heads), dk = c.key_size, dv = c.value_size;
  Want w{NDArray(DType::kF32, {c.batch, c.tokens, out * dv}), NDArray(DType::kF32, c.state())};
  const double scale = c.scale == 0 ? 1 / std::sqrt(static_cast<double>(dk)) : c.scale;
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t h = 0; h < c.heads; ++h) {
      Doubles s(static_cast<size_t>(dk * dv));
      const auto at = [&](int64_t i, int64_t j) -> double& { return s[static_cast<size_t>(i * dv + j)]; };
      for (int64_t i = 0; c.past && i < dk * dv; ++i)
        s[static_cast<size_t>(i)] = feeds[3].At((b * c.heads + h) * dk * dv + i);
      for (int64_t t = 0; t < c.tokens; ++t) {
        const int64_t token = b * c.tokens + t;
        const auto key = [&](int64_t i) { return feeds[1].At((token * c.heads + h) * dk + i); };
        for (int64_t i = 0; c.gates() && i < dk; ++i) {
          const double g = feeds[decay_at].At((token * c.heads + h) * c.decays + (c.decays > 1 ? i : 0));
          for (int64_t j = 0; j < dv; ++j) at(i, j) *= std::exp(g);
        }
        for (int64_t j = 0; j < dv; ++j) {
          double u = feeds[2].At((token * c.heads + h) * dv + j);
          if (c.corrects()) {
            for (int64_t i = 0; i < dk; ++i) u -= at(i, j) * key(i);
            u *= feeds[beta_at].At(token * c.betas + (c.betas > 1 ? h : 0));
          }
          for (int64_t i = 0; i < dk; ++i) at(i, j) += key(i) * u;
        }
        for (int64_t o = 0; o < out; ++o) {
          if (o / (out / c.heads) != h) continue;
          const int64_t query = o / (out / c.queries);
          for (int64_t j = 0; j < dv; ++j) {
            double y = 0;
            for (int64_t i = 0; i < dk; ++i) y += feeds[0].At((token * c.queries + query) * dk + i) * at(i, j);
            w.y.Set((token * out + o) * dv + j, scale * y);
          }
        }
      }
      for (int64_t i = 0; i < dk * dv; ++i) w.state.Set((b * c.heads + h) * dk * dv + i, s[static_cast<size_t>(i)]);
    }
  }
  return w;
}

void Check(const LinearCall& c) {
  SCOPED_TRACE(c.rule + " of " + std::to_string(c.tokens));
  Rng rng(7);
  std::vector<NDArray> feeds = {Drawn(rng, {c.batch, c.tokens, c.queries * c.key_size}, -1, 1),
                                Drawn(rng, {c.batch, c.tokens, c.heads * c.key_size}, -0.7, 0.7),
                                Drawn(rng, {c.batch, c.tokens, c.heads * c.value_size}, -1, 1)};
  if (c.past) feeds.push_back(Drawn(rng, c.state(), -1, 1));
  if (c.gates()) feeds.push_back(Drawn(rng, {c.batch, c.tokens, c.heads * c.decays}, -0.5, 0));
  if (c.corrects()) feeds.push_back(Drawn(rng, {c.batch, c.tokens, c.betas}, 0, 1));
  const std::vector<NDArray> got = ModelOf(c).Run(feeds);
  const Want want = Wanted(c, feeds);
  ASSERT_EQ(got[0].shape(), want.y.shape());
  ASSERT_EQ(got[1].shape(), want.state.shape());
  for (int64_t i = 0; i < want.y.size(); ++i) EXPECT_NEAR(got[0].At(i), want.y.At(i), 1e-4) << i;
  for (int64_t i = 0; i < want.state.size(); ++i) EXPECT_NEAR(got[1].At(i), want.state.At(i), 1e-4) << i;
}

TEST(LinearAttention, OfEachRule) {
  for (const char* rule : {"linear", "gated", "delta", "gated_delta"}) {
    Check({.rule = rule});
    Check({.rule = rule, .tokens = 1, .past = true});
    Check({.rule = rule, .past = true, .scale = 0.5F});
  }
}

// Chunks are of 64 tokens, or of 16 where each element of a key decays on its own: the last may be a part.
TEST(LinearAttention, ThroughSeveralChunks) {
  for (const char* rule : {"linear", "gated", "delta", "gated_delta"}) {
    Check({.rule = rule, .tokens = 64, .batch = 1, .past = true});
    Check({.rule = rule, .tokens = 150, .batch = 1});
  }
  Check({.rule = "gated", .tokens = 40, .decays = 3, .past = true});
  Check({.rule = "gated_delta", .tokens = 40, .decays = 3, .past = true});
}

TEST(LinearAttention, HeadsOfQueriesShareKeysAndTheOtherWayRound) {
  Check({.rule = "gated_delta", .tokens = 70, .queries = 6, .heads = 2});
  Check({.rule = "gated_delta", .queries = 4, .heads = 1, .betas = 1, .past = true});
  Check({.rule = "gated_delta", .queries = 2, .heads = 4, .betas = 4, .past = true, .contrib = true});
}

TEST(LinearAttention, WhatDoesNotFitIsSaidInOneLine) {
  const auto changed = [](const LinearCall& c, auto change) {
    ModelBuilder m = ModelOf(c);
    m.Floats("scalar", {}, {0.5F});
    change(*m.model.mutable_graph()->mutable_node(0));
    return Refusal(m);
  };
  const LinearCall fine{.rule = "gated_delta", .past = true};
  EXPECT_EQ(Refusal(ModelOf(fine)), "");
  EXPECT_THAT(Refusal(ModelOf({.rule = "other"})), HasSubstr("update_rule is"));
  EXPECT_THAT(changed(fine, [](auto& n) { n.set_input(4, ""); }), HasSubstr("a decay comes with"));
  EXPECT_THAT(changed(fine, [](auto& n) { n.set_input(5, ""); }), HasSubstr("beta comes with"));
  for (const char* other : {"v", "scalar"})
    EXPECT_THAT(changed(fine, [&](auto& n) { n.set_input(4, other); }), HasSubstr("the decay has a number a head"));
  EXPECT_THAT(changed(fine, [](auto& n) { n.set_input(5, "q"); }), HasSubstr("beta has a number a head"));
  EXPECT_THAT(changed(fine, [](auto& n) { n.set_input(3, "q"); }), HasSubstr("the state is [2x2x3x4]"));
  EXPECT_THAT(changed(fine, [](auto& n) { n.set_input(1, "v"); }), HasSubstr("takes queries, keys and values of"));
  EXPECT_THAT(Refusal(ModelOf({.rule = "linear", .queries = 3, .heads = 2})), HasSubstr("q_num_heads is a multiple"));
  EXPECT_THAT(changed(fine, [](auto& n) { ModelBuilder::SetInt(n, "state_window", 2); }),
              HasSubstr("state_window is not supported"));
  EXPECT_THAT(Refusal(ModelOf({.rule = "linear", .tokens = 1 << 20})), HasSubstr("tokens are not supported"));
}

struct Conv {
  Shape x = {2, 3, 5};
  int64_t taps = 3, dilation = 1;
  bool bias = false, past = false, last = false;
  std::string activation = "none";
};
ModelBuilder ModelOf(const Conv& c) {
  ModelBuilder m(27);
  const int64_t channels = c.last ? NumElements(std::span(c.x).subspan(2)) : c.x[1];
  Shape state = c.x;
  state[c.last ? 1 : 2] = (c.taps - 1) * c.dilation;
  m.Input("x", c.x);
  m.Input("w", {channels, 1, c.taps});
  if (c.bias) m.Input("b", {channels});
  if (c.past) m.Input("past", state);
  auto& node = m.Node("CausalConvWithState", {"x", "w", c.bias ? "b" : "", c.past ? "past" : ""}, {"y", "present"});
  if (c.last || c.dilation != 1) node.set_domain("com.microsoft");
  if (c.last) ModelBuilder::SetInt(node, "channels_last", 1);
  if (c.dilation != 1) ModelBuilder::SetInt(node, "dilation", c.dilation);
  ModelBuilder::SetString(node, "activation", c.activation);
  m.Output("y");
  m.Output("present");
  return m;
}

void Check(const Conv& c) {
  Rng rng(8);
  const int64_t batch = c.x[0], kept = (c.taps - 1) * c.dilation;
  const int64_t length = c.x[c.last ? 1 : 2], channels = NumElements(c.x) / batch / length;
  Shape of_state = c.x;
  of_state[c.last ? 1 : 2] = kept;
  std::vector<NDArray> feeds = {Drawn(rng, c.x, -1, 1), Drawn(rng, {channels, 1, c.taps}, -1, 1)};
  if (c.bias) feeds.push_back(Drawn(rng, {channels}, -1, 1));
  if (c.past) feeds.push_back(Drawn(rng, of_state, -1, 1));
  const std::vector<NDArray> got = ModelOf(c).Run(feeds);
  ASSERT_EQ(got[0].shape(), c.x);
  ASSERT_EQ(got[1].shape(), of_state);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t k = 0; k < channels; ++k) {
      const auto place = [&](int64_t t, int64_t extent) {
        return c.last ? (b * extent + t) * channels + k : (b * channels + k) * extent + t;
      };
      Doubles all;
      for (int64_t t = 0; t < kept; ++t) all.push_back(c.past ? feeds.back().At(place(t, kept)) : 0);
      for (int64_t t = 0; t < length; ++t) all.push_back(feeds[0].At(place(t, length)));
      for (int64_t t = 0; t < length; ++t) {
        double y = c.bias ? feeds[2].At(k) : 0;
        for (int64_t i = 0; i < c.taps; ++i)
          y += feeds[1].At(k * c.taps + i) * all[static_cast<size_t>(t + i * c.dilation)];
        if (c.activation != "none") y /= 1 + std::exp(-y);
        EXPECT_NEAR(got[0].At(place(t, length)), y, 1e-5);
      }
      for (int64_t t = 0; t < kept; ++t)
        EXPECT_NEAR(got[1].At(place(t, kept)), all[static_cast<size_t>(length + t)], 1e-6);
    }
  }
}

TEST(CausalConv, SeesWhatIsBeforeAndKeepsIt) {
  Check(Conv{});
  Check(Conv{.bias = true, .past = true, .activation = "silu"});
  Check(Conv{.x = {1, 2, 1}, .taps = 4, .past = true, .activation = "swish"});
  Check(Conv{.x = {1, 2, 2}, .taps = 5});
  Check(Conv{.taps = 1});
}

TEST(CausalConv, OfMicrosoftsDomain) {
  Check(Conv{.dilation = 2, .past = true});
  Check(Conv{.x = {2, 5, 3}, .bias = true, .past = true, .last = true});
  Check(Conv{.x = {2, 5, 3, 2}, .dilation = 3, .past = true, .last = true, .activation = "silu"});
}

TEST(CausalConv, WhatDoesNotFitIsSaidInOneLine) {
  const auto changed = [](auto change) {
    ModelBuilder m = ModelOf(Conv{.bias = true, .past = true});
    change(*m.model.mutable_graph()->mutable_node(0));
    return Refusal(m);
  };
  EXPECT_THAT(Refusal(ModelOf(Conv{.activation = "relu"})), HasSubstr("activation is"));
  EXPECT_THAT(Refusal(ModelOf(Conv{.x = {2, 3, 5, 1}})), HasSubstr("takes [batch, channels, length]"));
  EXPECT_THAT(changed([](auto& n) { n.set_input(1, "x"); }), HasSubstr("the weight is [3, 1, taps]"));
  EXPECT_THAT(changed([](auto& n) { n.set_input(2, "x"); }), HasSubstr("the bias is [3]"));
  EXPECT_THAT(changed([](auto& n) { n.set_input(3, "x"); }), HasSubstr("the state is [2x3x2]"));
  EXPECT_THAT(changed([](auto& n) { ModelBuilder::SetInt(n, "ndim", 2); }), HasSubstr("only ndim=1"));
  EXPECT_THAT(changed([](auto& n) { ModelBuilder::SetInt(n, "state_window", 1); }), HasSubstr("state_window"));
}

}  // namespace
}  // namespace temper
