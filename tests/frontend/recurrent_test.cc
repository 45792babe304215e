// LSTM, GRU and RNN as ONNX writes their equations, a step and an element at a time, against what the importer unrolls.
#include <algorithm>
#include <cmath>
#include <functional>

#include "base/rng.h"
#include "compiler/graph/pipeline.h"
#include "gmock/gmock.h"
#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using testing::Array;
using testing::ExpectArray;
using ::testing::HasSubstr;
using testing::ModelBuilder;
using Vector = std::vector<double>;

struct RecurrentCase {
  std::string op;
  std::string direction = "forward";
  bool batch_first = false, biases = true, initial = true, linear_before_reset = false;
  std::vector<int64_t> lengths = {};  // of the sequences; empty: of all steps
  bool lengths_at_run = false;
  bool peepholes = false, peepholes_at_run = false, input_forget = false;
  float clip = 0;
  std::vector<std::string> activations = {};
  std::vector<float> alpha = {}, beta = {};
};

constexpr int64_t kSteps = 3, kBatch = 2, kInputs = 4, kHidden = 3;

int64_t Gates(const RecurrentCase& k) { return k.op == "LSTM" ? 4 : k.op == "GRU" ? 3 : 1; }
int64_t Directions(const RecurrentCase& k) { return k.direction == "bidirectional" ? 2 : 1; }

std::vector<float> Draw(Rng& rng, int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(2 * rng.Uniform() - 1));
  return values;
}

struct RecurrentOperands {
  std::vector<float> x, w, r, b, h, c, p;
};
RecurrentOperands Draw(const RecurrentCase& k, uint64_t seed) {
  Rng rng(seed);
  const int64_t rows = Directions(k) * Gates(k) * kHidden;
  RecurrentOperands o{Draw(rng, kSteps * kBatch * kInputs),
                      Draw(rng, rows * kInputs),
                      Draw(rng, rows * kHidden),
                      Draw(rng, 2 * rows),
                      Draw(rng, Directions(k) * kBatch * kHidden),
                      Draw(rng, Directions(k) * kBatch * kHidden),
                      Draw(rng, Directions(k) * 3 * kHidden)};
  if (!k.biases) o.b.assign(o.b.size(), 0);
  if (!k.peepholes) o.p.assign(o.p.size(), 0);
  if (!k.initial) o.h.assign(o.h.size(), 0), o.c.assign(o.c.size(), 0);
  return o;
}

double Logistic(double v) { return 1 / (1 + std::exp(-v)); }

// The i-th of one direction's functions. Tests give each of them an alpha and a beta, or none.
double Activated(const RecurrentCase& k, int64_t direction, size_t i, double v) {
  if (k.clip > 0) v = std::min<double>(std::max<double>(v, -k.clip), k.clip);
  const size_t functions = k.op == "LSTM" ? 3 : k.op == "GRU" ? 2 : 1;
  const size_t at = static_cast<size_t>(direction) * functions + i;
  const std::string name = k.activations.empty() ? (functions > 1 && i == 0 ? "Sigmoid" : "Tanh") : k.activations[at];
  const double alpha = k.alpha.empty() ? 0 : k.alpha[at], beta = k.beta.empty() ? 0 : k.beta[at];
  if (name == "Relu") return std::max(v, 0.0);
  if (name == "Sigmoid") return Logistic(v);
  if (name == "Affine") return alpha * v + beta;
  if (name == "LeakyRelu") return v >= 0 ? v : alpha * v;
  if (name == "ThresholdedRelu") return v >= alpha ? v : 0;
  if (name == "ScaledTanh") return alpha * std::tanh(beta * v);
  if (name == "HardSigmoid") return std::min(std::max(alpha * v + beta, 0.0), 1.0);
  if (name == "Elu") return v >= 0 ? v : alpha * (std::exp(v) - 1);
  if (name == "Softsign") return v / (1 + std::abs(v));
  if (name == "Softplus") return std::log(1 + std::exp(v));
  EXPECT_EQ(name, "Tanh");
  return std::tanh(v);
}

struct RecurrentResults {
  Vector y, h, c;  // [steps, directions, batch, hidden], [directions, batch, hidden]
};

// One sample of one direction: `gate(g, u, h)` is what unit u of gate g sums up.
struct GateWeights {
  const RecurrentOperands& o;
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

void Step(const RecurrentCase& k, const GateWeights& w, const float* x, Vector& h, Vector& c) {
  const Vector old = h;
  const auto gate = [&](int64_t g, size_t u) {
    return w.FromInput(g, static_cast<int64_t>(u), x) + w.FromState(g, static_cast<int64_t>(u), old);
  };
  const auto activated = [&](size_t i, double v) { return Activated(k, w.direction, i, v); };
  const auto peephole = [&](int64_t g, size_t u) {
    return w.o.p[static_cast<size_t>((w.direction * 3 + g) * kHidden) + u];
  };
  Vector reset(old);
  for (size_t u = 0; u < reset.size(); ++u) reset[u] *= k.op == "GRU" ? activated(0, gate(1, u)) : 1;
  for (size_t u = 0; u < h.size(); ++u) {
    if (k.op == "RNN") {
      h[u] = activated(0, gate(0, u));
    } else if (k.op == "LSTM") {
      const double in = activated(0, gate(0, u) + peephole(0, u) * c[u]);
      const double forget = k.input_forget ? 1 - in : activated(0, gate(2, u) + peephole(2, u) * c[u]);
      c[u] = forget * c[u] + in * activated(1, gate(3, u));
      h[u] = activated(0, gate(1, u) + peephole(1, u) * c[u]) * activated(2, c[u]);
    } else {
      const int64_t unit = static_cast<int64_t>(u);
      const double state =
          k.linear_before_reset ? activated(0, gate(1, u)) * w.FromState(2, unit, old) : w.FromState(2, unit, reset);
      const double z = activated(0, gate(0, u));
      h[u] = (1 - z) * activated(1, w.FromInput(2, unit, x) + state) + z * old[u];
    }
  }
}

RecurrentResults Expected(const RecurrentCase& k, const RecurrentOperands& o) {
  const int64_t directions = Directions(k);
  RecurrentResults all{Vector(static_cast<size_t>(kSteps * directions * kBatch * kHidden)),
                       Vector(static_cast<size_t>(directions * kBatch * kHidden)),
                       Vector(static_cast<size_t>(directions * kBatch * kHidden))};
  for (int64_t d = 0; d < directions; ++d) {
    for (int64_t n = 0; n < kBatch; ++n) {
      const auto first = static_cast<std::ptrdiff_t>((d * kBatch + n) * kHidden);
      Vector h(o.h.begin() + first, o.h.begin() + first + kHidden);
      Vector c(o.c.begin() + first, o.c.begin() + first + kHidden);
      const int64_t length = k.lengths.empty() ? kSteps : k.lengths[static_cast<size_t>(n)];
      for (int64_t i = 0; i < length; ++i) {
        const bool reverse = k.direction == "reverse" || d == 1;
        const int64_t t = reverse ? length - 1 - i : i;
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

void SetAttributes(onnx::NodeProto& node, const RecurrentCase& k) {
  ModelBuilder::SetString(node, "direction", k.direction);
  ModelBuilder::SetInt(node, "hidden_size", kHidden);
  if (k.batch_first) ModelBuilder::SetInt(node, "layout", 1);
  if (k.linear_before_reset) ModelBuilder::SetInt(node, "linear_before_reset", 1);
  if (k.input_forget) ModelBuilder::SetInt(node, "input_forget", 1);
  if (k.clip > 0) ModelBuilder::SetFloat(node, "clip", k.clip);
  const auto list = [&](const char* name, onnx::AttributeProto::AttributeType type) -> onnx::AttributeProto& {
    onnx::AttributeProto& a = ModelBuilder::Attr(node, name);
    a.set_type(type);
    return a;
  };
  if (!k.activations.empty()) {
    onnx::AttributeProto& names = list("activations", onnx::AttributeProto::STRINGS);
    for (const std::string& name : k.activations) names.add_strings(name);
  }
  if (!k.alpha.empty()) {
    onnx::AttributeProto& alpha = list("activation_alpha", onnx::AttributeProto::FLOATS);
    for (const float v : k.alpha) alpha.add_floats(v);
  }
  if (!k.beta.empty()) {
    onnx::AttributeProto& beta = list("activation_beta", onnx::AttributeProto::FLOATS);
    for (const float v : k.beta) beta.add_floats(v);
  }
}

// The node of the case with its operands; those that only the run knows are added to `feeds`.
ModelBuilder Model(const RecurrentCase& k, const RecurrentOperands& o, std::vector<NDArray>& feeds) {
  const int64_t d = Directions(k), rows = Gates(k) * kHidden;
  const Shape states = k.batch_first ? Shape{kBatch, d, kHidden} : Shape{d, kBatch, kHidden};
  const auto state = [&](const std::vector<float>& v) {
    return k.batch_first ? Permuted(v, {d, kBatch, kHidden}, {1, 0, 2}) : v;
  };
  ModelBuilder m(14);
  m.Input("x", k.batch_first ? Shape{kBatch, kSteps, kInputs} : Shape{kSteps, kBatch, kInputs});
  feeds.push_back(k.batch_first ? Array({kBatch, kSteps, kInputs}, Permuted(o.x, {kSteps, kBatch, kInputs}, {1, 0, 2}))
                                : Array({kSteps, kBatch, kInputs}, o.x));
  m.Floats("w", {d, rows, kInputs}, o.w);
  m.Floats("r", {d, rows, kHidden}, o.r);
  m.Floats("b", {d, 2 * rows}, o.b);
  const std::vector<int64_t> lengths = k.lengths.empty() ? std::vector<int64_t>(kBatch, kSteps) : k.lengths;
  if (k.lengths_at_run) {
    m.Input("lengths", {kBatch}, onnx::TensorProto::INT32);
    feeds.emplace_back(DType::kI32, Shape{kBatch});
    for (int64_t i = 0; i < kBatch; ++i) feeds.back().Set(i, static_cast<double>(lengths[static_cast<size_t>(i)]));
  } else {
    m.Ints("lengths", lengths);
  }
  m.Floats("h", states, state(o.h));
  m.Floats("c", states, state(o.c));
  if (k.peepholes_at_run) {
    m.Input("p", {d, 3 * kHidden});
    feeds.push_back(Array({d, 3 * kHidden}, o.p));
  } else {
    m.Floats("p", {d, 3 * kHidden}, o.p);
  }
  const bool has_lengths = k.initial || !k.lengths.empty();
  std::vector<std::string> inputs = {
      "x", "w", "r", k.biases ? "b" : "", has_lengths ? "lengths" : "", k.initial ? "h" : ""};
  std::vector<std::string> outputs = {"y", "y_h"};
  if (k.op == "LSTM") {
    inputs.push_back(k.initial ? "c" : "");
    inputs.push_back("p");
    outputs.push_back("y_c");
  }
  SetAttributes(m.Node(k.op, inputs, outputs), k);
  for (const std::string& name : outputs) m.Output(name);
  return m;
}

void Check(const RecurrentCase& k) {
  SCOPED_TRACE(k.op + " " + k.direction + (k.batch_first ? " batch first" : "") + (k.biases ? "" : " no biases") +
               (k.initial ? "" : " no initial state") + (k.linear_before_reset ? " linear before reset" : "") +
               (k.lengths.empty() ? "" : " of lengths") + (k.lengths_at_run ? " at run" : "") +
               (k.peepholes ? " with peepholes" : "") + (k.activations.empty() ? "" : " " + k.activations[0]));
  const RecurrentOperands o = Draw(k, 7);
  const int64_t d = Directions(k);
  const Shape states = k.batch_first ? Shape{kBatch, d, kHidden} : Shape{d, kBatch, kHidden};
  std::vector<NDArray> feeds;
  const ModelBuilder m = Model(k, o, feeds);
  const RecurrentResults want = Expected(k, o);
  const std::vector<NDArray> got = m.Run(feeds);
  ASSERT_EQ(got.size(), k.op == "LSTM" ? 3u : 2u);
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

TEST(OnnxRecurrent, SequencesEndEarly) {
  for (const bool at_run : {false, true}) {
    for (const char* op : {"LSTM", "GRU", "RNN"}) {
      for (const char* direction : {"forward", "reverse", "bidirectional"}) {
        Check({.op = op, .direction = direction, .lengths = {1, kSteps}, .lengths_at_run = at_run});
        Check({.op = op, .direction = direction, .batch_first = true, .lengths = {2, 0}, .lengths_at_run = at_run});
      }
    }
  }
}

TEST(OnnxRecurrent, AnLstmLooksAtItsCell) {
  for (const bool at_run : {false, true}) {
    for (const char* direction : {"forward", "bidirectional"})
      Check({.op = "LSTM", .direction = direction, .peepholes = true, .peepholes_at_run = at_run});
    Check({.op = "LSTM", .peepholes = at_run, .input_forget = true});
  }
}

TEST(OnnxRecurrent, ClipsWhatGoesIntoItsFunctions) {
  for (const char* op : {"LSTM", "GRU", "RNN"}) Check({.op = op, .peepholes = true, .clip = 0.3f});
}

TEST(OnnxRecurrent, HasTheFunctionsThatItIsGiven) {
  for (const char* name : {"Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh",
                           "HardSigmoid", "Elu", "Softsign", "Softplus"}) {
    Check({.op = "RNN",
           .direction = "bidirectional",
           .activations = {name, "Tanh"},
           .alpha = {0.4f, 0},
           .beta = {0.3f, 0}});
  }
  Check({.op = "GRU",
         .direction = "bidirectional",
         .activations = {"HardSigmoid", "Elu", "Sigmoid", "LeakyRelu"},
         .alpha = {0.3f, 0.7f, 0, 0.2f},
         .beta = {0.4f, 0, 0, 0}});
  Check({.op = "LSTM",
         .activations = {"HardSigmoid", "Softsign", "Affine"},
         .alpha = {0.3f, 0, 0.6f},
         .beta = {0.4f, 0, 0.1f}});
}

// Numbers may be those of the functions that have one alone, and are ONNX's where there are none.
TEST(OnnxRecurrent, FunctionsTakeTheirNumbersInOrder) {
  const auto y = [](const std::vector<std::string>& names, const std::vector<float>& alpha,
                    const std::vector<float>& beta) {
    const RecurrentCase k = {.op = "LSTM", .activations = names, .alpha = alpha, .beta = beta};
    std::vector<NDArray> feeds;
    const ModelBuilder m = Model(k, Draw(k, 7), feeds);
    return m.Run(feeds)[0];
  };
  const std::vector<std::string> names = {"Sigmoid", "LeakyRelu", "HardSigmoid"};
  EXPECT_EQ(RelativeError(y(names, {0.3f, 0.4f}, {0.6f}), y(names, {0, 0.3f, 0.4f}, {0, 0, 0.6f})), 0);
  EXPECT_LT(RelativeError(y(names, {}, {}), y(names, {0, 0.01f, 0.2f}, {0, 0, 0.5f})), 1e-6);
  EXPECT_GT(RelativeError(y(names, {}, {}), y(names, {0.3f, 0.4f}, {0.6f})), 1e-3);
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
  const auto with = [](const RecurrentCase& k) {
    return WhyRefused([&](ModelBuilder&, onnx::NodeProto& n) { SetAttributes(n, k); });
  };
  EXPECT_THAT(WhyRefused([](ModelBuilder&, onnx::NodeProto& n) { ModelBuilder::SetFloat(n, "clip", -3); }),
              HasSubstr("clip is a bound above 0"));
  EXPECT_THAT(with({.op = "LSTM", .activations = {"Sigmoid", "Tanh"}}), HasSubstr("there are 3 activations"));
  EXPECT_THAT(with({.op = "LSTM", .activations = {"Sigmoid", "Tanh", "Sine"}}), HasSubstr("no activation 'Sine'"));
  EXPECT_THAT(with({.op = "LSTM", .activations = {"Elu", "Tanh", "Tanh"}, .alpha = {1, 2}}),
              HasSubstr("activation_alpha has more numbers"));
  const auto with_lengths = [](const std::vector<int64_t>& lengths) {
    return WhyRefused([&](ModelBuilder& m, onnx::NodeProto& n) {
      m.Ints("lengths", lengths);
      n.add_input("");
      n.add_input("lengths");
    });
  };
  EXPECT_EQ(with_lengths({kSteps, kSteps - 1}), "");
  EXPECT_THAT(with_lengths({kSteps + 1, 1}), HasSubstr("longer than the input"));
  EXPECT_THAT(with_lengths({-1, 1}), HasSubstr("longer than the input"));
  EXPECT_THAT(with_lengths({1}), HasSubstr("one length a sequence"));
  EXPECT_THAT(WhyRefused([](ModelBuilder& m, onnx::NodeProto& n) {
                m.Floats("p", {1, kHidden}, std::vector<float>(kHidden));
                for (const char* name : {"", "", "", "", "p"}) n.add_input(name);
              }),
              HasSubstr("P has one weight each of three gates"));
  EXPECT_THAT(WhyRefused([](ModelBuilder&, onnx::NodeProto&) {}, 3), HasSubstr("do not fit one another"));
}

// DynamicQuantizeLSTM with numbers for its weights, or the LSTM of the floats that these mean.
ModelBuilder OfBytes(bool bytes, bool by_column, int64_t width = kInputs, int64_t hidden = kHidden) {
  constexpr int64_t kDirections = 2;
  const int64_t gates = 4 * hidden;
  ModelBuilder m(17);
  m.Input("x", {kSteps, kBatch, width});
  Rng rng(1);
  m.Floats("b", {kDirections, 2 * gates}, Draw(rng, kDirections * 2 * gates));
  for (const auto& [name, inputs] : {std::pair{std::string("w"), width}, {std::string("r"), hidden}}) {
    const Shape scales_shape = by_column ? Shape{kDirections, gates} : Shape{kDirections};
    std::vector<float> scales = Draw(rng, NumElements(scales_shape));
    onnx::TensorProto* zeros = m.model.mutable_graph()->add_initializer();
    onnx::TensorProto* numbers = m.model.mutable_graph()->add_initializer();
    for (onnx::TensorProto* t : {zeros, numbers}) t->set_data_type(onnx::TensorProto::UINT8);
    zeros->set_name(name + "_zero");
    numbers->set_name(bytes ? name : name + "_numbers");
    for (const int64_t d : scales_shape) zeros->add_dims(d);
    for (const int64_t d : {kDirections, inputs, gates}) numbers->add_dims(d);
    for (size_t i = 0; i < scales.size(); ++i) zeros->add_int32_data(static_cast<int>(100 + i % 30));
    std::vector<float> floats(static_cast<size_t>(kDirections * inputs * gates));
    for (int64_t i = 0; i < std::ssize(floats); ++i) {
      const int64_t direction = i / (inputs * gates), k = i / gates % inputs, gate = i % gates;
      const size_t scale = static_cast<size_t>(by_column ? direction * gates + gate : direction);
      const int number = static_cast<int>(90 + rng.Below(40));
      numbers->add_int32_data(number);
      floats[static_cast<size_t>((direction * gates + gate) * inputs + k)] =
          scales[scale] / 16 * static_cast<float>(number - zeros->int32_data(static_cast<int>(scale)));
    }
    for (float& scale : scales) scale /= 16;
    m.Floats(name + "_scale", scales_shape, scales);
    if (!bytes) m.Floats(name, {kDirections, gates, inputs}, floats);
  }
  std::vector<std::string> operands = {"x", "w", "r", "b"};
  if (bytes) operands.insert(operands.end(), {"", "", "", "", "w_scale", "w_zero", "r_scale", "r_zero"});
  onnx::NodeProto& n = m.Node(bytes ? "DynamicQuantizeLSTM" : "LSTM", operands, {"y", "last_h", "last_c"});
  if (bytes) n.set_domain("com.microsoft");
  ModelBuilder::SetString(n, "direction", "bidirectional");
  ModelBuilder::SetInt(n, "hidden_size", hidden);
  for (const char* name : {"y", "last_h", "last_c"}) m.Output(name);
  return m;
}

TEST(OnnxRecurrent, WeightsOfBytesAreTheFloatsThatTheyMean) {
  Rng rng(2);
  const NDArray x = Array({kSteps, kBatch, kInputs}, Draw(rng, kSteps * kBatch * kInputs));
  for (const bool by_column : {false, true}) {
    const auto got = OfBytes(true, by_column).Run({x}), want = OfBytes(false, by_column).Run({x});
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].shape(), want[i].shape());
      for (int64_t at = 0; at < got[i].size(); ++at) EXPECT_NEAR(got[i].At(at), want[i].At(at), 1e-5);
    }
  }
}

TEST(OnnxRecurrent, ProductsKeepWeightsOfBytes) {
  constexpr int64_t kWide = 128;
  const absl::StatusOr<Target> target = ParseTarget("llvm:skylake-avx512");
  ASSERT_TRUE(target.ok()) << target.status();
  for (const bool by_column : {false, true}) {
    absl::StatusOr<Graph> g = OfBytes(true, by_column, kWide, kWide).Import();
    ASSERT_TRUE(g.ok()) << g.status();
    ASSERT_TRUE(Optimize(*g, *target).ok());
    // By direction one of all inputs, and one a step of a state that is not known.
    EXPECT_EQ(std::ranges::count(g->nodes, "matmul_nbits", &Node::op), 2 * kSteps);
    EXPECT_EQ(std::ranges::count(g->nodes, "matmul", &Node::op), 0);
  }
}

TEST(OnnxRecurrent, WeightsOfBytesHaveScales) {
  for (const auto& [operand, by] : {std::pair{8, ""}, {10, "w_zero"}}) {
    ModelBuilder m = OfBytes(true, false);
    m.model.mutable_graph()->mutable_node(0)->set_input(operand, by);
    EXPECT_THAT(testing::Refusal(m), HasSubstr("W and R have scales"));
  }
  for (const auto& [operand, by] : {std::pair{8, "b"}, {11, "r"}}) {
    ModelBuilder m = OfBytes(true, true);
    m.model.mutable_graph()->mutable_node(0)->set_input(operand, by);
    EXPECT_THAT(testing::Refusal(m), HasSubstr("a scale and a zero point for each direction, or for each column"));
  }
  ModelBuilder m = OfBytes(true, true);
  m.model.mutable_graph()->mutable_node(0)->set_input(1, "w_zero");
  EXPECT_THAT(testing::Refusal(m), HasSubstr("W and R have rank 3"));
}

TEST(OnnxRecurrent, DirectionsAreThree) {
  EXPECT_THAT(
      WhyRefused([](ModelBuilder&, onnx::NodeProto& n) { ModelBuilder::SetString(n, "direction", "sideways"); }),
      HasSubstr("direction is 'forward', 'reverse' or 'bidirectional'"));
}

}  // namespace
}  // namespace temper
