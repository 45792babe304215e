// GroupQueryAttention of com.microsoft, against its definition written out.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using testing::Array, testing::ExpectArray, testing::ModelBuilder, testing::Random;
using ::testing::HasSubstr;
using Doubles = std::vector<double>;
using Floats = std::vector<float>;

struct GroupCall {
  int64_t batch = 1, steps = 1, past = 0, total = 1, heads = 4, kv_heads = 2, size = 6;
  std::vector<int> lengths = {};  // seqlens_k
  bool packed = false, rotary = false, interleaved = false, positions = false, bias = false, empty_past = false;
  int64_t turned = 6, window = -1;
  float scale = 0, softcap = 0;
  int64_t smooth = 0;
  Floats sinks = {};
  bool causal = true, normed = false;
  int64_t shows = 0;  // qk_output
  int64_t cached() const { return std::max(past, total); }
  bool has_past() const { return past > 0 || empty_past; }
};

// What a call reads, as [batch, steps, heads, size] and [batch, heads, past, size].
struct GroupOperands {
  Floats q, k, v, past_k, past_v, cosines, sines, bias;
  explicit GroupOperands(const GroupCall& c)
      : q(Random(c.batch * c.steps * c.heads * c.size, 1)),
        k(Random(c.batch * c.steps * c.kv_heads * c.size, 2)),
        v(Random(c.batch * c.steps * c.kv_heads * c.size, 3)),
        past_k(Random(c.batch * c.kv_heads * c.past * c.size, 4)),
        past_v(Random(c.batch * c.kv_heads * c.past * c.size, 5)),
        cosines(Random(16 * c.turned / 2, 6)),
        sines(Random(16 * c.turned / 2, 7)),
        bias(Random(c.heads * c.steps * c.cached(), 8)) {}
};

size_t At(std::initializer_list<int64_t> index, std::initializer_list<int64_t> shape) {
  int64_t at = 0;
  for (auto i = index.begin(), d = shape.begin(); i != index.end(); ++i, ++d) at = at * *d + *i;
  return static_cast<size_t>(at);
}

int64_t FirstOf(const GroupCall& c, int64_t b) {
  return c.steps == c.total ? 0 : c.lengths[static_cast<size_t>(b)] + 1 - c.steps;
}

constexpr double kEpsilon = 0.25;

// A head of a step over its root mean square, times weights that count up.
void Norm(Doubles& row, bool is_key) {
  double squares = 0;
  for (const double x : row) squares += x * x;
  const double root = std::sqrt(squares / static_cast<double>(row.size()) + kEpsilon);
  for (size_t i = 0; i < row.size(); ++i) row[i] *= (is_key ? 2 + 0.5 * static_cast<double>(i) : 1) / root;
}

// The heads of a step, turned by its position.
Doubles Turned(const GroupCall& c, const GroupOperands& o, const Floats& x, int64_t heads, int64_t b, int64_t step,
               int64_t h) {
  Doubles row;
  for (int64_t i = 0; i < c.size; ++i) row.push_back(x[At({b, step, h, i}, {c.batch, c.steps, heads, c.size})]);
  if (c.normed) Norm(row, &x == &o.k);
  if (!c.rotary) return row;
  const int64_t half = c.turned / 2, position = c.positions ? (3 * b + step) % 16 : FirstOf(c, b) + step;
  const Doubles before = row;
  for (int64_t i = 0; i < half; ++i) {
    const size_t one = static_cast<size_t>(c.interleaved ? 2 * i : i), two = one + (c.interleaved ? 1 : half);
    const double cosine = o.cosines[static_cast<size_t>(position * half + i)],
                 sine = o.sines[static_cast<size_t>(position * half + i)];
    row[one] = before[one] * cosine - before[two] * sine;
    row[two] = before[two] * cosine + before[one] * sine;
  }
  return row;
}

struct GroupResults {
  Doubles y, keys, values;
  Doubles scores, shares;  // of what is seen, and nothing of the rest: [batch, heads, steps, total]
};

GroupResults Wanted(const GroupCall& c, const GroupOperands& o) {
  GroupResults r;
  const int64_t cached = c.cached();
  for (const bool is_key : {true, false}) {
    for (int64_t b = 0; b < c.batch; ++b) {
      for (int64_t h = 0; h < c.kv_heads; ++h) {
        for (int64_t j = 0; j < cached; ++j) {
          const int64_t step = j - FirstOf(c, b);
          for (int64_t i = 0; i < c.size; ++i) {
            double x = 0;
            if (step >= 0 && step < c.steps) {
              x = is_key ? Turned(c, o, o.k, c.kv_heads, b, step, h)[static_cast<size_t>(i)]
                         : double{o.v[At({b, step, h, i}, {c.batch, c.steps, c.kv_heads, c.size})]};
            } else if (j < c.past) {
              x = (is_key ? o.past_k : o.past_v)[At({b, h, j, i}, {c.batch, c.kv_heads, c.past, c.size})];
            }
            (is_key ? r.keys : r.values).push_back(x);
          }
        }
      }
    }
  }
  r.scores.resize(static_cast<size_t>(c.batch * c.heads * c.steps * c.total));
  r.shares = r.scores;
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t step = 0; step < c.steps; ++step) {
      for (int64_t h = 0; h < c.heads; ++h) {
        const Doubles q = Turned(c, o, o.q, c.heads, b, step, h);
        const int64_t own = FirstOf(c, b) + step, group = h / (c.heads / c.kv_heads);
        Doubles weights;
        const bool sinks = c.smooth == 1 || !c.sinks.empty();
        double sum = !sinks ? 0 : std::exp(c.sinks.empty() ? 0.0 : double{c.sinks[static_cast<size_t>(h)]});
        for (int64_t j = 0; j < cached; ++j) {
          double score = 0;
          for (int64_t i = 0; i < c.size; ++i)
            score += q[static_cast<size_t>(i)] * r.keys[At({b, group, j, i}, {c.batch, c.kv_heads, cached, c.size})];
          score *= c.scale == 0 ? 1 / std::sqrt(static_cast<double>(c.size)) : c.scale;
          if (c.softcap > 0) score = c.softcap * std::tanh(score / c.softcap);
          if (c.bias) score += o.bias[At({h, step, j}, {c.heads, c.steps, cached})];
          const bool seen =
              c.causal ? j <= own && (c.window < 0 || own - j < c.window) : j <= c.lengths[static_cast<size_t>(b)];
          weights.push_back(seen ? std::exp(score) : 0);
          sum += weights.back();
          if (j < c.total) r.scores[At({b, h, step, j}, {c.batch, c.heads, c.steps, c.total})] = seen ? score : 0;
        }
        for (int64_t j = 0; j < c.total; ++j)
          r.shares[At({b, h, step, j}, {c.batch, c.heads, c.steps, c.total})] = weights[static_cast<size_t>(j)] / sum;
        for (int64_t i = 0; i < c.size; ++i) {
          double y = 0;
          for (int64_t j = 0; j < cached; ++j)
            y += weights[static_cast<size_t>(j)] / sum *
                 r.values[At({b, group, j, i}, {c.batch, c.kv_heads, cached, c.size})];
          r.y.push_back(y);
        }
      }
    }
  }
  return r;
}

Floats Packed(const GroupCall& c, const GroupOperands& o) {
  Floats all;
  for (int64_t step = 0; step < c.batch * c.steps; ++step) {
    for (const auto& [x, heads] : {std::pair{&o.q, c.heads}, {&o.k, c.kv_heads}, {&o.v, c.kv_heads}}) {
      const auto row = x->begin() + step * heads * c.size;
      all.insert(all.end(), row, row + heads * c.size);
    }
  }
  return all;
}

void AddInts(ModelBuilder& m, const std::string& name, const std::vector<int>& data, std::vector<int64_t> shape) {
  onnx::TensorProto* t = m.model.mutable_graph()->add_initializer();
  t->set_name(name);
  t->set_data_type(onnx::TensorProto::INT32);
  for (const int64_t d : shape) t->add_dims(d);
  for (const int x : data) t->add_int32_data(x);
}

// The model, whose inputs are the floats that change from run to run.
ModelBuilder ModelOf(const GroupCall& c, const GroupOperands& o) {
  ModelBuilder m(17);
  const int64_t own = c.kv_heads * c.size, hidden = c.heads * c.size;
  m.Input("q", {c.batch, c.steps, c.packed ? hidden + 2 * own : hidden});
  if (!c.packed) m.Input("k", {c.batch, c.steps, own});
  if (!c.packed) m.Input("v", {c.batch, c.steps, own});
  if (c.has_past()) m.Input("past_k", {c.batch, c.kv_heads, c.past, c.size});
  if (c.has_past()) m.Input("past_v", {c.batch, c.kv_heads, c.past, c.size});
  m.Input("lengths", {c.batch}, onnx::TensorProto::INT32);
  AddInts(m, "total", {static_cast<int>(c.total)}, {});
  m.Floats("cosines", {16, c.turned / 2}, o.cosines);
  m.Floats("sines", {16, c.turned / 2}, o.sines);
  m.Floats("bias", {1, c.heads, c.steps, c.cached()}, o.bias);
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < c.batch * c.steps; ++i) positions.push_back((3 * (i / c.steps) + i % c.steps) % 16);
  onnx::TensorProto* t = m.model.mutable_graph()->add_initializer();
  t->set_name("positions");
  t->set_data_type(onnx::TensorProto::INT64);
  for (const int64_t d : {c.batch, c.steps}) t->add_dims(d);
  for (const int64_t p : positions) t->add_int64_data(p);
  const bool past = c.has_past(), sinks = !c.sinks.empty();
  m.Floats("sinks", {c.heads}, sinks ? c.sinks : Floats(static_cast<size_t>(c.heads)));
  Floats rising;
  for (int64_t i = 0; i < c.size; ++i) rising.push_back(2 + 0.5F * static_cast<float>(i));
  m.Floats("ones", {c.size}, Floats(static_cast<size_t>(c.size), 1));
  m.Floats("rising", {c.size}, rising);
  onnx::NodeProto& node =
      m.Node("GroupQueryAttention",
             {"q", c.packed ? "" : "k", c.packed ? "" : "v", past ? "past_k" : "", past ? "past_v" : "", "lengths",
              "total", "cosines", "sines", c.positions ? "positions" : "", c.bias ? "bias" : "", sinks ? "sinks" : "",
              "", "", c.normed ? "ones" : "", c.normed ? "rising" : ""},
             {"y", "keys", "values"});
  node.set_domain("com.microsoft");
  for (const char* name : {"y", "keys", "values"}) m.Output(name);
  ModelBuilder::SetInt(node, "num_heads", c.heads);
  ModelBuilder::SetInt(node, "kv_num_heads", c.kv_heads);
  ModelBuilder::SetInt(node, "do_rotary", c.rotary ? 1 : 0);
  ModelBuilder::SetInt(node, "rotary_interleaved", c.interleaved ? 1 : 0);
  ModelBuilder::SetInt(node, "local_window_size", c.window);
  ModelBuilder::SetFloat(node, "scale", c.scale);
  ModelBuilder::SetFloat(node, "softcap", c.softcap);
  ModelBuilder::SetInt(node, "smooth_softmax", c.smooth);
  ModelBuilder::SetInt(node, "causal", c.causal ? 1 : 0);
  if (c.shows > 0) {
    node.add_output("scores");
    m.Output("scores");
    ModelBuilder::SetInt(node, "qk_output", c.shows);
  }
  ModelBuilder::SetFloat(node, "qk_norm_epsilon", 2);  // those of queries and of keys come first
  ModelBuilder::SetFloat(node, "q_norm_epsilon", kEpsilon);
  ModelBuilder::SetFloat(node, "k_norm_epsilon", kEpsilon);
  return m;
}

void Check(const GroupCall& c) {
  const GroupOperands o(c);
  ModelBuilder m = ModelOf(c, o);
  const int64_t own = c.kv_heads * c.size, hidden = c.heads * c.size;
  std::vector<NDArray> inputs;
  if (c.packed) {
    inputs.push_back(Array({c.batch, c.steps, hidden + 2 * own}, Packed(c, o)));
  } else {
    inputs = {Array({c.batch, c.steps, hidden}, o.q), Array({c.batch, c.steps, own}, o.k),
              Array({c.batch, c.steps, own}, o.v)};
  }
  if (c.has_past()) {
    inputs.push_back(Array({c.batch, c.kv_heads, c.past, c.size}, o.past_k));
    inputs.push_back(Array({c.batch, c.kv_heads, c.past, c.size}, o.past_v));
  }
  NDArray lengths(DType::kI32, {c.batch});
  for (int64_t b = 0; b < c.batch; ++b) lengths.Set(b, c.lengths[static_cast<size_t>(b)]);
  inputs.push_back(lengths);
  const std::vector<NDArray> out = m.Run(inputs);
  const GroupResults want = Wanted(c, o);
  ExpectArray(out[0], {c.batch, c.steps, hidden}, want.y);
  ExpectArray(out[1], {c.batch, c.kv_heads, c.cached(), c.size}, want.keys);
  ExpectArray(out[2], {c.batch, c.kv_heads, c.cached(), c.size}, want.values);
  if (c.shows > 0) ExpectArray(out[3], {c.batch, c.heads, c.steps, c.total}, c.shows == 1 ? want.scores : want.shares);
}

TEST(GroupQueryAttention, APromptWithoutACache) {
  Check({.batch = 2, .steps = 5, .total = 5, .lengths = {4, 2}});
  Check({.steps = 4, .total = 4, .lengths = {3}, .packed = true, .rotary = true, .scale = 0.3F});
}

TEST(GroupQueryAttention, APromptBehindAnEmptyCache) {
  Check({.batch = 2, .steps = 4, .total = 4, .lengths = {3, 3}, .rotary = true, .empty_past = true});
  Check({.steps = 1, .total = 1, .lengths = {0}, .packed = true, .empty_past = true});
}

TEST(GroupQueryAttention, APromptIntoACacheOfMore) {
  Check({.steps = 3, .past = 8, .total = 3, .lengths = {2}, .rotary = true, .interleaved = true});
  Check({.steps = 5, .past = 5, .total = 5, .kv_heads = 4, .lengths = {4}});
}

TEST(GroupQueryAttention, AStepBehindEarlierOnes) {
  Check({.past = 6, .total = 7, .lengths = {6}, .rotary = true});                    // the cache grows by it
  Check({.batch = 3, .past = 9, .total = 7, .lengths = {6, 0, 3}, .packed = true});  // or has room for it
  Check({.batch = 2, .steps = 3, .past = 9, .total = 9, .lengths = {8, 5}, .rotary = true, .turned = 4});
  Check({.batch = 2, .steps = 2, .past = 5, .total = 7, .lengths = {6, 4}, .rotary = true, .positions = true});
}

TEST(GroupQueryAttention, WindowsCapsAndBiases) {
  Check({.steps = 6, .total = 6, .lengths = {5}, .window = 2});
  Check({.steps = 6, .total = 6, .lengths = {5}, .window = std::numeric_limits<int64_t>::max()});
  Check({.past = 9, .total = 9, .lengths = {7}, .window = 3, .softcap = 0.5F});
  Check({.steps = 2, .past = 5, .total = 7, .kv_heads = 1, .lengths = {6}, .bias = true, .softcap = 2});
}

TEST(GroupQueryAttention, SinksTakeAShareOfEachHead) {
  Check({.steps = 5, .total = 5, .lengths = {4}, .smooth = 1});
  for (const int64_t other : {-1, 0, 2}) Check({.steps = 5, .total = 5, .lengths = {4}, .smooth = other});
  Check({.steps = 4, .total = 4, .lengths = {3}, .bias = true, .sinks = {0.5F, -2, 3, 90}});
  Check({.batch = 2, .past = 9, .total = 7, .lengths = {6, 3}, .rotary = true, .window = 3, .sinks = {1, 0, -80, 2}});
  const float infinite = std::numeric_limits<float>::infinity();
  Check({.steps = 2, .past = 5, .total = 7, .lengths = {6}, .softcap = 2, .smooth = 1, .sinks = {1, 0, -infinite, 2}});
}

// ONNX Runtime 1.32 gives these numbers for one step behind two, whose operands count up to a few quarters.
TEST(GroupQueryAttention, SinksAreThoseOfOnnxRuntime) {
  const auto quarters = [](Shape shape, int period) {
    NDArray a(DType::kF32, std::move(shape));
    for (int64_t i = 0; i < a.size(); ++i) a.Set(i, static_cast<double>(i % period) / 4);
    return a;
  };
  const auto result = [&](Floats sinks, int64_t smooth) {
    const GroupCall c{.past = 2,
                      .total = 3,
                      .heads = 2,
                      .kv_heads = 1,
                      .size = 8,
                      .lengths = {2},
                      .smooth = smooth,
                      .sinks = std::move(sinks)};
    NDArray lengths(DType::kI32, {1});
    lengths.Set(0, 2);
    return ModelOf(c, GroupOperands(c))
        .Run({quarters({1, 1, 16}, 5), quarters({1, 1, 8}, 3), quarters({1, 1, 8}, 7), quarters({1, 1, 2, 8}, 6),
              quarters({1, 1, 2, 8}, 9), lengths})[0];
  };
  ExpectArray(result({}, 1), {1, 1, 16},
              {0.660049, 0.1285714, 0.339649, 0.5507265, 0.761804, 0.9728816, 1.183959, 1.047611, 0.6661879, 0.127442,
               0.3381576, 0.5488731, 0.7595886, 0.9703041, 1.18102, 1.033244});
  ExpectArray(result({-1, 2}, 0), {1, 1, 16},
              {0.7320983, 0.142606, 0.3767242, 0.6108425, 0.8449606, 1.079079, 1.313197, 1.161966, 0.3324353,
               0.06359502, 0.1687445, 0.2738939, 0.3790433, 0.4841928, 0.5893422, 0.5156004});
}

TEST(GroupQueryAttention, WhatIsNotCausalSeesAllThereIs) {
  Check({.batch = 2, .steps = 4, .total = 4, .lengths = {3, 1}, .causal = false});
  Check({.steps = 2, .past = 5, .total = 7, .lengths = {6}, .rotary = true, .smooth = 1, .causal = false});
  Check({.batch = 2, .past = 9, .total = 7, .lengths = {6, 3}, .causal = false});
}

TEST(GroupQueryAttention, HeadsOverTheirRootMeanSquareAreTurnedAndKept) {
  Check({.steps = 3, .total = 3, .lengths = {2}, .normed = true});
  Check({.batch = 2, .past = 9, .total = 7, .lengths = {6, 3}, .packed = true, .rotary = true, .normed = true});
}

void SetFloatOf(onnx::NodeProto& node, std::string_view name, float value) {
  for (onnx::AttributeProto& a : *node.mutable_attribute()) {
    if (a.name() == name) a.set_f(value);
  }
}

std::string Refused(const GroupCall& c, const std::function<void(onnx::NodeProto&)>& change) {
  ModelBuilder m = ModelOf(c, GroupOperands(c));
  change(*m.model.mutable_graph()->mutable_node(0));
  return std::string(m.Import().status().message());
}

TEST(GroupQueryAttention, ItsScoresAreAResultBeforeOrAfterTheSoftmax) {
  for (const int64_t shows : {1, 2}) {
    Check({.batch = 2, .steps = 5, .total = 5, .lengths = {4, 2}, .shows = shows});
    Check({.steps = 2, .past = 3, .total = 5, .lengths = {4}, .bias = true, .window = 2, .softcap = 2, .shows = shows});
    Check({.past = 8, .total = 4, .lengths = {3}, .shows = shows});
    Check({.past = 3, .total = 4, .lengths = {3}, .sinks = {0.5F, 1, -1, 0}, .shows = shows});
  }
}

TEST(GroupQueryAttention, WhatIsNotSupportedOrDoesNotFitIsRefused) {
  const GroupCall c{.past = 6, .total = 7, .lengths = {6}};
  const auto set = [&](const char* name, int64_t value) {
    return Refused(c, [&](onnx::NodeProto& node) {
      for (onnx::AttributeProto& a : *node.mutable_attribute()) {
        if (a.name() == name) a.set_i(value);
      }
    });
  };
  EXPECT_THAT(set("num_heads", 3), HasSubstr("kv_num_heads divides num_heads"));
  EXPECT_THAT(set("kv_num_heads", 0), HasSubstr("kv_num_heads divides num_heads"));
  EXPECT_THAT(set("num_heads", 1 << 30), HasSubstr("kv_num_heads divides num_heads"));
  EXPECT_THAT(set("kv_num_heads", 4), HasSubstr("keys and values are"));
  const auto without = [&](int operand) {
    return Refused(c, [&](onnx::NodeProto& node) { node.set_input(operand, ""); });
  };
  EXPECT_THAT(without(4), HasSubstr("earlier keys and values are"));
  EXPECT_THAT(without(6), HasSubstr("total_sequence_length are missing"));
  EXPECT_THAT(without(2), HasSubstr("keys and values are"));
  const auto replaced = [&](int operand, const char* by) {
    return Refused(c, [&](onnx::NodeProto& node) { node.set_input(operand, by); });
  };
  EXPECT_THAT(replaced(11, "ones"), HasSubstr("head_sink is [4], one number a head"));
  EXPECT_THAT(replaced(14, "ones"), HasSubstr("q_norm_weight and k_norm_weight come together"));
  EXPECT_THAT(replaced(12, "ones"), HasSubstr("operand 12 is not supported"));
  EXPECT_THAT(Refused(c, [](onnx::NodeProto& node) { node.set_input(14, "ones"), node.set_input(15, "sinks"); }),
              HasSubstr("q_norm_weight and k_norm_weight are [6]"));
  EXPECT_THAT(set("causal", 2), HasSubstr("causal is 0 or 1"));
  GroupCall cut = c;
  cut.causal = false;
  cut.window = 3;
  EXPECT_THAT(Refused(cut, [](onnx::NodeProto&) {}), HasSubstr("local_window_size needs causal=1"));
  for (const char* name : {"scale", "softcap"}) {
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      EXPECT_THAT(Refused(c, [&](onnx::NodeProto& node) { SetFloatOf(node, name, value); }),
                  HasSubstr("scale and softcap are finite"));
    }
  }
  for (const float epsilon : {0.0F, -1.0F, std::numeric_limits<float>::quiet_NaN()}) {
    GroupCall normed = c;
    normed.normed = true;
    EXPECT_THAT(Refused(normed, [&](onnx::NodeProto& node) { SetFloatOf(node, "k_norm_epsilon", epsilon); }),
                HasSubstr("the norms' epsilon is above 0"));
  }
  EXPECT_THAT(Refused(c, [](onnx::NodeProto& node) { ModelBuilder::SetString(node, "k_quant_type", "PER_TENSOR"); }),
              HasSubstr("a quantized cache is not supported"));
  EXPECT_THAT(Refused({.steps = 4, .past = 6, .total = 3, .lengths = {6}}, [](onnx::NodeProto&) {}),
              HasSubstr("total_sequence_length 3 does not fit 4 steps behind 6"));
  EXPECT_THAT(Refused({.steps = 2, .past = 6, .total = 7, .lengths = {6}}, [](onnx::NodeProto&) {}),
              HasSubstr("total_sequence_length 7 does not fit 2 steps behind 6"));
  EXPECT_THAT(Refused({.past = 6, .total = 100, .lengths = {6}}, [](onnx::NodeProto&) {}), HasSubstr("does not fit"));
  for (const int64_t window : {0, -2}) {
    GroupCall windowed = c;
    windowed.window = window;
    EXPECT_THAT(Refused(windowed, [](onnx::NodeProto&) {}), HasSubstr("local_window_size is -1 or at least 1"));
  }
  EXPECT_THAT(Refused(c, [](onnx::NodeProto& node) { node.set_input(5, "q"); }), HasSubstr("are integers"));
  EXPECT_THAT(Refused(c, [](onnx::NodeProto& node) { ModelBuilder::SetInt(node, "qk_output", 3); }),
              HasSubstr("qk_output is 0, 1 or 2"));
  EXPECT_THAT(Refused(c, [](onnx::NodeProto& node) { node.add_output("scores"); }),
              HasSubstr("its scores are a result where qk_output says which"));
  EXPECT_THAT(Refused({.steps = 1, .total = 3, .lengths = {2}}, [](onnx::NodeProto&) {}),
              HasSubstr("does not fit 1 steps behind 0"));
  GroupCall rotary = c;
  rotary.rotary = true;
  EXPECT_THAT(Refused(rotary, [](onnx::NodeProto& node) { node.set_input(8, ""); }),
              HasSubstr("do_rotary needs cos_cache and sin_cache"));
  rotary.turned = 8;
  EXPECT_THAT(Refused(rotary, [](onnx::NodeProto&) {}), HasSubstr("of at most half a head"));
  for (const auto& [name, value] : {std::pair{"sliding_window_cache", 1}, {"of_a_later_version", 0}}) {
    EXPECT_THAT(Refused(c, [&](onnx::NodeProto& node) { ModelBuilder::SetInt(node, name, value); }),
                HasSubstr(std::string(name) + "=" + std::to_string(value) + " is not supported"));
  }
  EXPECT_EQ(Refused(c, [](onnx::NodeProto& node) { ModelBuilder::SetInt(node, "sliding_window_cache", 0); }), "");
  EXPECT_THAT(Refused(c,
                      [](onnx::NodeProto& node) {
                        while (node.input_size() < 16) *node.add_input() = "";
                        *node.add_input() = "q";
                      }),
              HasSubstr("operand 16 is not supported"));
  // The total is known only at run.
  ModelBuilder m = ModelOf(c, GroupOperands(c));
  m.Input("at_run", {}, onnx::TensorProto::INT32);
  m.model.mutable_graph()->mutable_node(0)->set_input(6, "at_run");
  EXPECT_THAT(std::string(m.Import().status().message()), HasSubstr("total_sequence_length"));
}

}  // namespace
}  // namespace temper
