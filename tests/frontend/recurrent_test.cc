// LSTM, GRU and RNN as ONNX writes their equations, a step and an element at a time, against what the importer unrolls.
#include <cmath>
#include <functional>

#include "base/rng.h"
#include "gmock/gmock.h"
#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using testing::Array;
using testing::ExpectArray;
using ::testing::HasSubstr;
using testing::ModelBuilder;
using Vector = std::vector<double>;

struct Case {
  std::string op;
  std::string direction = "forward";
  bool batch_first = false, biases = true, initial = true, linear_before_reset = false;
};

constexpr int64_t kSteps = 3, kBatch = 2, kInputs = 4, kHidden = 3;

int64_t Gates(const Case& k) { return k.op == "LSTM" ? 4 : k.op == "GRU" ? 3 : 1; }
int64_t Directions(const Case& k) { return k.direction == "bidirectional" ? 2 : 1; }

std::vector<float> Draw(Rng& rng, int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(2 * rng.Uniform() - 1));
  return values;
}

struct Operands {
  std::vector<float> x, w, r, b, h, c;
};
Operands Draw(const Case& k, uint64_t seed) {
  Rng rng(seed);
  const int64_t rows = Directions(k) * Gates(k) * kHidden;
  Operands o{Draw(rng, kSteps * kBatch * kInputs),
             Draw(rng, rows * kInputs),
             Draw(rng, rows * kHidden),
             Draw(rng, 2 * rows),
             Draw(rng, Directions(k) * kBatch * kHidden),
             Draw(rng, Directions(k) * kBatch * kHidden)};
  if (!k.biases) o.b.assign(o.b.size(), 0);
  if (!k.initial) o.h.assign(o.h.size(), 0), o.c.assign(o.c.size(), 0);
  return o;
}

double Sigmoid(double v) { return 1 / (1 + std::exp(-v)); }

struct Results {
  Vector y, h, c;  // [steps, directions, batch, hidden], [directions, batch, hidden]
};

// One sample of one direction: `gate(g, u, h)` is what unit u of gate g sums up.
struct Weights {
  const Operands& o;
  int64_t gates, direction;
  double FromInput(int64_t g, int64_t u, const float* x) const {
    const int64_t row = (direction * gates + g) * kHidden + u;
    double sum = o.b[static_cast<size_t>((2 * direction * gates + g) * kHidden + u)];
    for (int64_t i = 0; i < kInputs; ++i)
      sum += static_cast<double>(o.w[static_cast<size_t>(row * kInputs + i)]) * x[i];
    return sum;
  }
  double FromState(int64_t g, int64_t u, const Vector& h) const {
    const int64_t row = (direction * gates + g) * kHidden + u;
    double sum = o.b[static_cast<size_t>(((2 * direction + 1) * gates + g) * kHidden + u)];
    for (int64_t i = 0; i < kHidden; ++i)
      sum += o.r[static_cast<size_t>(row * kHidden + i)] * h[static_cast<size_t>(i)];
    return sum;
  }
};

void Step(const Case& k, const Weights& w, const float* x, Vector& h, Vector& c) {
  const Vector old = h;
  const auto gate = [&](int64_t g, size_t u) {
    return w.FromInput(g, static_cast<int64_t>(u), x) + w.FromState(g, static_cast<int64_t>(u), old);
  };
  Vector reset(old);
  for (size_t u = 0; u < reset.size(); ++u) reset[u] *= k.op == "GRU" ? Sigmoid(gate(1, u)) : 1;
  for (size_t u = 0; u < h.size(); ++u) {
    if (k.op == "RNN") {
      h[u] = std::tanh(gate(0, u));
    } else if (k.op == "LSTM") {
      c[u] = Sigmoid(gate(2, u)) * c[u] + Sigmoid(gate(0, u)) * std::tanh(gate(3, u));
      h[u] = Sigmoid(gate(1, u)) * std::tanh(c[u]);
    } else {
      const int64_t unit = static_cast<int64_t>(u);
      const double state =
          k.linear_before_reset ? Sigmoid(gate(1, u)) * w.FromState(2, unit, old) : w.FromState(2, unit, reset);
      const double z = Sigmoid(gate(0, u));
      h[u] = (1 - z) * std::tanh(w.FromInput(2, unit, x) + state) + z * old[u];
    }
  }
}

Results Expected(const Case& k, const Operands& o) {
  const int64_t directions = Directions(k);
  Results all{Vector(static_cast<size_t>(kSteps * directions * kBatch * kHidden)),
              Vector(static_cast<size_t>(directions * kBatch * kHidden)),
              Vector(static_cast<size_t>(directions * kBatch * kHidden))};
  for (int64_t d = 0; d < directions; ++d) {
    for (int64_t n = 0; n < kBatch; ++n) {
      const auto first = static_cast<std::ptrdiff_t>((d * kBatch + n) * kHidden);
      Vector h(o.h.begin() + first, o.h.begin() + first + kHidden);
      Vector c(o.c.begin() + first, o.c.begin() + first + kHidden);
      for (int64_t i = 0; i < kSteps; ++i) {
        const bool reverse = k.direction == "reverse" || d == 1;
        const int64_t t = reverse ? kSteps - 1 - i : i;
        Step(k, {o, Gates(k), d}, &o.x[static_cast<size_t>((t * kBatch + n) * kInputs)], h, c);
        std::copy(h.begin(), h.end(), all.y.begin() + ((t * directions + d) * kBatch + n) * kHidden);
      }
      std::copy(h.begin(), h.end(), all.h.begin() + first);
      std::copy(c.begin(), c.end(), all.c.begin() + first);
    }
  }
  return all;
}

// `values` of the shape, its axes put in another order.
template <typename T>
std::vector<T> Permuted(const std::vector<T>& values, const Shape& shape, const std::vector<size_t>& axes) {
  std::vector<T> result;
  std::vector<int64_t> at(shape.size());
  const std::function<void(size_t)> walk = [&](size_t i) {
    if (i == axes.size()) {
      int64_t offset = 0;
      for (size_t a = 0; a < shape.size(); ++a) offset = offset * shape[a] + at[a];
      result.push_back(values[static_cast<size_t>(offset)]);
      return;
    }
    for (at[axes[i]] = 0; at[axes[i]] < shape[axes[i]]; ++at[axes[i]]) walk(i + 1);
  };
  walk(0);
  return result;
}

void Check(const Case& k) {
  SCOPED_TRACE(k.op + " " + k.direction + (k.batch_first ? " batch first" : "") + (k.biases ? "" : " no biases") +
               (k.initial ? "" : " no initial state") + (k.linear_before_reset ? " linear before reset" : ""));
  const Operands o = Draw(k, 7);
  const int64_t d = Directions(k), rows = Gates(k) * kHidden;
  const Shape states = k.batch_first ? Shape{kBatch, d, kHidden} : Shape{d, kBatch, kHidden};
  const auto state = [&](const std::vector<float>& v) {
    return k.batch_first ? Permuted(v, {d, kBatch, kHidden}, {1, 0, 2}) : v;
  };
  ModelBuilder m(14);
  m.Input("x", k.batch_first ? Shape{kBatch, kSteps, kInputs} : Shape{kSteps, kBatch, kInputs});
  m.Floats("w", {d, rows, kInputs}, o.w);
  m.Floats("r", {d, rows, kHidden}, o.r);
  m.Floats("b", {d, 2 * rows}, o.b);
  m.Ints("lengths", std::vector<int64_t>(kBatch, kSteps));
  m.Floats("h", states, state(o.h));
  m.Floats("c", states, state(o.c));
  std::vector<std::string> inputs = {
      "x", "w", "r", k.biases ? "b" : "", k.initial ? "lengths" : "", k.initial ? "h" : ""};
  std::vector<std::string> outputs = {"y", "y_h"};
  if (k.op == "LSTM") inputs.push_back(k.initial ? "c" : ""), outputs.push_back("y_c");
  auto& node = m.Node(k.op, inputs, outputs);
  ModelBuilder::SetString(node, "direction", k.direction);
  ModelBuilder::SetInt(node, "hidden_size", kHidden);
  if (k.batch_first) ModelBuilder::SetInt(node, "layout", 1);
  if (k.linear_before_reset) ModelBuilder::SetInt(node, "linear_before_reset", 1);
  for (const std::string& name : outputs) m.Output(name);

  const Results want = Expected(k, o);
  const std::vector<NDArray> got =
      m.Run({k.batch_first ? Array({kBatch, kSteps, kInputs}, Permuted(o.x, {kSteps, kBatch, kInputs}, {1, 0, 2}))
                           : Array({kSteps, kBatch, kInputs}, o.x)});
  ASSERT_EQ(got.size(), outputs.size());
  const Shape all = {kSteps, d, kBatch, kHidden}, last = {d, kBatch, kHidden};
  if (!k.batch_first) {
    ExpectArray(got[0], all, want.y);
    ExpectArray(got[1], last, want.h);
    if (k.op == "LSTM") ExpectArray(got[2], last, want.c);
    return;
  }
  ExpectArray(got[0], {kBatch, kSteps, d, kHidden}, Permuted(want.y, all, {2, 0, 1, 3}));
  ExpectArray(got[1], states, Permuted(want.h, last, {1, 0, 2}));
  if (k.op == "LSTM") ExpectArray(got[2], states, Permuted(want.c, last, {1, 0, 2}));
}

TEST(OnnxRecurrent, IsItsEquationsStepByStep) {
  for (const char* op : {"LSTM", "GRU", "RNN"}) {
    for (const char* direction : {"forward", "reverse", "bidirectional"}) {
      for (const bool batch_first : {false, true}) Check({op, direction, batch_first});
    }
    Check({.op = op, .biases = false});
    Check({.op = op, .initial = false});
  }
  for (const bool biases : {false, true}) Check({.op = "GRU", .biases = biases, .linear_before_reset = true});
}

std::string WhyRefused(const std::function<void(ModelBuilder&, onnx::NodeProto&)>& change, int64_t gates = 4) {
  ModelBuilder m(14);
  m.Input("x", {kSteps, kBatch, kInputs});
  m.Floats("w", {1, gates * kHidden, kInputs}, std::vector<float>(static_cast<size_t>(gates * kHidden * kInputs)));
  m.Floats("r", {1, gates * kHidden, kHidden}, std::vector<float>(static_cast<size_t>(gates * kHidden * kHidden)));
  change(m, m.Node("LSTM", {"x", "w", "r"}, {"y"}));
  m.Output("y");
  return std::string(m.Import().status().message());
}

TEST(OnnxRecurrent, RefusesWhatItWouldGetWrong) {
  EXPECT_EQ(WhyRefused([](ModelBuilder&, onnx::NodeProto&) {}), "");
  EXPECT_THAT(WhyRefused([](ModelBuilder&, onnx::NodeProto& n) { ModelBuilder::SetFloat(n, "clip", 3); }),
              HasSubstr("clip is not supported"));
  EXPECT_THAT(WhyRefused([](ModelBuilder&, onnx::NodeProto& n) { ModelBuilder::SetInt(n, "input_forget", 1); }),
              HasSubstr("input_forget is not supported"));
  EXPECT_THAT(WhyRefused([](ModelBuilder&, onnx::NodeProto& n) {
                for (const char* name : {"Relu", "Tanh", "Tanh"}) {
                  if (n.attribute().empty())
                    ModelBuilder::Attr(n, "activations").set_type(onnx::AttributeProto::STRINGS);
                  n.mutable_attribute(0)->add_strings(name);
                }
              }),
              HasSubstr("only the default activations"));
  EXPECT_THAT(WhyRefused([](ModelBuilder& m, onnx::NodeProto& n) {
                m.Ints("lengths", {kSteps, kSteps - 1});
                n.add_input("");
                n.add_input("lengths");
              }),
              HasSubstr("sequences shorter than the input"));
  EXPECT_THAT(WhyRefused([](ModelBuilder&, onnx::NodeProto&) {}, 3), HasSubstr("do not fit one another"));
}

}  // namespace
}  // namespace temper
