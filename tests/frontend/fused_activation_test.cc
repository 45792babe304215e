// Convolutions and products of com.microsoft that end in an activation.
#include <gmock/gmock.h>

#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using testing::Array;
using testing::ExpectArray;
using testing::ModelBuilder;

TEST(Contrib, ConvolutionsWithActivations) {
  const auto model = [](const std::string& activation, const std::vector<float>& params) {
    ModelBuilder m(17);
    m.Input("x", {1, 1, 1, 3});
    m.Input("z", {1, 1, 1, 3});
    m.Floats("w", {1, 1, 1, 1}, {2});
    onnx::NodeProto& node = m.Node("FusedConv", {"x", "w", "", "z"}, {"y"});
    node.set_domain("com.microsoft");
    m.Output("y");
    ModelBuilder::SetString(node, "activation", activation);
    onnx::AttributeProto& a = ModelBuilder::Attr(node, "activation_params");
    a.set_type(onnx::AttributeProto::FLOATS);
    for (float p : params) a.add_floats(p);
    return m;
  };
  const std::vector<NDArray> in = {Array({1, 1, 1, 3}, {-2, 1, 4}), Array({1, 1, 1, 3}, {1, 1, 1})};  // -3 3 9
  ExpectArray(model("Relu", {}).Run(in)[0], {1, 1, 1, 3}, {0, 3, 9});
  ExpectArray(model("LeakyRelu", {0.5F}).Run(in)[0], {1, 1, 1, 3}, {-1.5, 3, 9});
  ExpectArray(model("Clip", {-1, 6}).Run(in)[0], {1, 1, 1, 3}, {-1, 3, 6});
  ExpectArray(model("HardSigmoid", {0.1F, 0.5F}).Run(in)[0], {1, 1, 1, 3}, {0.2, 0.8, 1});
  ExpectArray(model("HardSwish", {}).Run(in)[0], {1, 1, 1, 3}, {0, 3, 9});
  EXPECT_EQ(model("Strange", {}).Import().status().message(),
            "test: FusedConv 'FusedConv_1': activation 'Strange' is not supported");
}

// What ONNX Runtime 1.32 gives for -2, -0.5, 0.25 and 3.
TEST(Contrib, ProductsWithActivations) {
  const auto check = [](const std::string& activation, const std::vector<std::pair<std::string, float>>& numbers,
                        const std::vector<double>& want) {
    ModelBuilder m(17);
    m.Input("x", {1, 4});
    m.Floats("one", {4, 4}, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1});
    m.Floats("bias", {4}, {0, 0, 0, 0});
    onnx::NodeProto& node = m.Node("FusedGemm", {"x", "one", "bias"}, {"y"});
    node.set_domain("com.microsoft");
    m.Output("y");
    ModelBuilder::SetString(node, "activation", activation);
    for (const auto& [name, value] : numbers) ModelBuilder::SetFloat(node, "activation_" + name, value);
    SCOPED_TRACE(activation);
    ExpectArray(m.Run({Array({1, 4}, {-2, -0.5F, 0.25F, 3})})[0], {1, 4}, want);
  };
  check("LeakyRelu", {{"alpha", 0.125F}}, {-0.25, -0.0625, 0.25, 3});
  check("Elu", {{"alpha", 0.5F}}, {-0.4323324, -0.1967347, 0.25, 3});
  check("Celu", {{"alpha", 0.5F}}, {-0.4908422, -0.3160603, 0.25, 3});
  check("Selu", {{"alpha", 2}, {"gamma", 0.5F}}, {-0.8646647, -0.3934693, 0.125, 1.5});
  check("Softplus", {}, {0.126928, 0.474077, 0.8259395, 3.048587});
  check("Softsign", {}, {-0.6666667, -0.3333333, 0.2, 0.75});
  check("ThresholdedRelu", {{"alpha", 0.375F}}, {0, 0, 0, 3});
  check("ScaledTanh", {{"alpha", 0.5F}, {"beta", 2}}, {-0.4996646, -0.3807971, 0.2310586, 0.4999939});
  check("ParametricSoftplus", {{"alpha", 0.5F}, {"beta", 2}}, {0.009074981, 0.1566308, 0.4870385, 3.001238});
}

TEST(Contrib, TheOlderNameOfFusedMatMul) {
  ModelBuilder m(17);
  m.Input("x", {2, 1});
  m.Floats("w", {1, 2}, {3, 5});
  onnx::NodeProto& node = m.Node("TransposeMatMul", {"x", "w"}, {"y"});
  node.set_domain("com.microsoft");
  ModelBuilder::SetInt(node, "transA", 1);
  ModelBuilder::SetInt(node, "transB", 1);
  ModelBuilder::SetFloat(node, "alpha", 2);
  m.Output("y");
  ExpectArray(m.Run({Array({2, 1}, {1, 10})})[0], {1, 1}, {106});
}

}  // namespace
}  // namespace temper
