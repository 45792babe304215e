// Operators of com.microsoft that are ONNX's under another name, with channels last, or of quantised numbers: each
// gives what the nodes of ONNX's own give that it stands for.
#include <gmock/gmock.h>

#include <functional>

#include "base/rng.h"
#include "tests/frontend/range_chain.h"

namespace temper {
namespace {

using testing::Array;
using testing::ModelBuilder;
using testing::Permuted;
using Ints = std::vector<int64_t>;

struct Form {
  const char* name;
  Ints shape;                              // of x
  std::function<void(ModelBuilder&)> own;  // from "x" to "own"
  std::function<void(ModelBuilder&)> as;   // the same in ONNX's operators, to "as"
};
std::ostream& operator<<(std::ostream& out, const Form& form) { return out << form.name; }

onnx::NodeProto& Contrib(ModelBuilder& m, const char* op, const std::vector<std::string>& inputs) {
  onnx::NodeProto& node = m.Node(op, inputs, {"own"});
  node.set_domain("com.microsoft");
  return node;
}
void Bytes(ModelBuilder& m, const std::string& name, const Ints& shape, int64_t first = 0) {
  onnx::TensorProto* t = m.model.mutable_graph()->add_initializer();
  t->set_name(name);
  t->set_data_type(onnx::TensorProto::UINT8);
  for (const int64_t d : shape) t->add_dims(d);
  std::string raw;
  for (int64_t i = 0; i < NumElements(shape); ++i) raw.push_back(static_cast<char>(first + i * 37 % 101));
  t->set_raw_data(raw);
}
// "numbers" of x with "scale" and "zero".
void Quantised(ModelBuilder& m) {
  m.Floats("scale", {}, {0.02F});
  Bytes(m, "zero", {}, 120);
  m.Node("QuantizeLinear", {"x", "scale", "zero"}, {"numbers"});
}
void Window(onnx::NodeProto& node) {
  ModelBuilder::SetInts(node, "kernel_shape", {3, 3});
  ModelBuilder::SetInts(node, "pads", {1, 1, 1, 1});
  ModelBuilder::SetInts(node, "strides", {2, 1});
}
// What is behind "numbers" with its channels second, to "as" with them last.
void BetweenMoves(ModelBuilder& m, const char* op, const std::vector<std::string>& more, bool has_window) {
  Permuted(m, "numbers", "first", {0, 3, 1, 2});
  std::vector<std::string> inputs = {"first"};
  inputs.insert(inputs.end(), more.begin(), more.end());
  onnx::NodeProto& node = m.Node(op, inputs, {"moved"});
  if (has_window) Window(node);
  Permuted(m, "moved", "as", {0, 2, 3, 1});
}
void Dequantised(ModelBuilder& m, const std::string& name) {
  m.Node("DequantizeLinear", {name, "scale", "zero"}, {name + " as floats"});
}

const Form kForms[] = {
    {"a maximum with channels last",
     {1, 4, 5, 3},
     [](ModelBuilder& m) {
       Quantised(m);
       Window(Contrib(m, "NhwcMaxPool", {"numbers"}));
     },
     [](ModelBuilder& m) { BetweenMoves(m, "MaxPool", {}, true); }},
    {"a convolution with channels last",
     {1, 4, 5, 3},
     [](ModelBuilder& m) {
       Quantised(m);
       Bytes(m, "filter", {2, 3, 3, 3});
       onnx::NodeProto& node =
           Contrib(m, "QLinearConv", {"numbers", "scale", "zero", "filter", "scale", "zero", "scale", "zero"});
       ModelBuilder::SetInt(node, "channels_last", 1);
       Window(node);
     },
     [](ModelBuilder& m) {
       BetweenMoves(m, "QLinearConv", {"scale", "zero", "filter", "scale", "zero", "scale", "zero"}, true);
     }},
    {"a mean with channels last",
     {1, 4, 5, 3},
     [](ModelBuilder& m) {
       Quantised(m);
       ModelBuilder::SetInt(Contrib(m, "QLinearGlobalAveragePool", {"numbers", "scale", "zero", "scale", "zero"}),
                            "channels_last", 1);
     },
     [](ModelBuilder& m) {
       Dequantised(m, "numbers");
       Permuted(m, "numbers as floats", "first", {0, 3, 1, 2});
       m.Node("GlobalAveragePool", {"first"}, {"mean"});
       Permuted(m, "mean", "last", {0, 2, 3, 1});
       m.Node("QuantizeLinear", {"last", "scale", "zero"}, {"as"});
     }},
    {"a choice",
     {2, 3},
     [](ModelBuilder& m) {
       Quantised(m);
       Bytes(m, "others", {1, 3});
       m.Floats("half", {}, {0.5F});
       m.Node("Less", {"x", "half"}, {"chosen"});
       Contrib(m, "QLinearWhere", {"chosen", "numbers", "scale", "zero", "others", "scale", "zero", "scale", "zero"});
     },
     [](ModelBuilder& m) {
       m.Node("Where", {"chosen", "numbers", "others"}, {"as"});
     }},
    {"a triangle",
     {3, 3},
     [](ModelBuilder& m) { ModelBuilder::SetInt(Contrib(m, "Trilu", {"x"}), "upper", 0); },
     [](ModelBuilder& m) { ModelBuilder::SetInt(m.Node("Trilu", {"x"}, {"as"}), "upper", 0); }},
    {"pads",
     {2, 3},
     [](ModelBuilder& m) {
       m.Ints("pads", {1, 0, 0, 2});
       Contrib(m, "Pad", {"x", "pads"});
     },
     [](ModelBuilder& m) {
       m.Node("Pad", {"x", "pads"}, {"as"});
     }},
    {"a new axis",
     {2, 3},
     [](ModelBuilder& m) {
       m.Ints("axis", {1});
       Contrib(m, "ExpandDims", {"x", "axis"});
     },
     [](ModelBuilder& m) {
       m.Node("Unsqueeze", {"x", "axis"}, {"as"});
     }},
    {"embeddings",
     {2, 3},
     [](ModelBuilder& m) {
       ModelBuilder::SetInt(m.Node("Cast", {"x"}, {"ids"}), "to", onnx::TensorProto::INT32);
       m.Floats("scale", {}, {0.02F});
       Bytes(m, "zero", {}, 120);
       for (const char* table : {"words", "places"}) Bytes(m, table, {5, 4}, table[0] % 7);
       for (const char* weights : {"gamma", "beta"}) Bytes(m, weights, {4}, weights[0] % 7);
       Contrib(m, "QEmbedLayerNormalization",
               {"ids", "", "words", "places", "", "gamma", "beta", "", "scale", "scale", "", "scale", "scale", "zero",
                "zero", "", "zero", "zero"});
     },
     [](ModelBuilder& m) {
       for (const char* numbers : {"words", "places", "gamma", "beta"}) Dequantised(m, numbers);
       onnx::NodeProto& node =
           m.Node("EmbedLayerNormalization",
                  {"ids", "", "words as floats", "places as floats", "", "gamma as floats", "beta as floats"}, {"as"});
       node.set_domain("com.microsoft");
     }},
};

class ContribForms : public ::testing::TestWithParam<Form> {};

TEST_P(ContribForms, GivesWhatOnnxGives) {
  const Form& form = GetParam();
  ModelBuilder m(17);
  m.Input("x", form.shape);
  form.own(m);
  form.as(m);
  m.Output("own");
  m.Output("as");
  Rng rng(4);
  std::vector<float> x(static_cast<size_t>(NumElements(form.shape)));
  for (float& v : x) v = static_cast<float>(rng.Uniform());
  const std::vector<NDArray> out = m.Run({Array(form.shape, x)});
  ASSERT_EQ(out.size(), 2u);
  ASSERT_EQ(out[0].shape(), out[1].shape());
  for (int64_t i = 0; i < out[0].size(); ++i) EXPECT_NEAR(out[0].At(i), out[1].At(i), 1e-6) << i;
}

INSTANTIATE_TEST_SUITE_P(Forms, ContribForms, ::testing::ValuesIn(kForms),
                         [](const auto& info) { return testing::TestName(info.param.name); });

}  // namespace
}  // namespace temper
