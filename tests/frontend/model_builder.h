// ONNX models made in memory.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "base/rng.h"
#include "compiler/frontend/onnx/importer.h"
#include "onnx/onnx_pb.h"

namespace temper::testing {

class ModelBuilder {
 public:
  explicit ModelBuilder(int opset) {
    model.set_ir_version(8);
    model.add_opset_import()->set_version(opset);
    model.mutable_graph()->set_name("test");
  }

  // Dimensions of -1 are open and called "n".
  void Input(const std::string& name, const std::vector<int64_t>& shape, int type = onnx::TensorProto::FLOAT) {
    auto* tensor = model.mutable_graph()->add_input()->mutable_type()->mutable_tensor_type();
    model.mutable_graph()->mutable_input(model.graph().input_size() - 1)->set_name(name);
    tensor->set_elem_type(type);
    tensor->mutable_shape();
    for (int64_t d : shape) {
      auto* dim = tensor->mutable_shape()->add_dim();
      if (d < 0)
        dim->set_dim_param("n");
      else
        dim->set_dim_value(d);
    }
  }
  void Output(const std::string& name) { model.mutable_graph()->add_output()->set_name(name); }
  void Floats(const std::string& name, const std::vector<int64_t>& shape, const std::vector<float>& data) {
    onnx::TensorProto* t = Tensor(name, shape, onnx::TensorProto::FLOAT);
    for (float v : data) t->add_float_data(v);
  }
  void Ints(const std::string& name, const std::vector<int64_t>& data) {
    onnx::TensorProto* t = Tensor(name, {static_cast<int64_t>(data.size())}, onnx::TensorProto::INT64);
    t->set_raw_data(data.data(), data.size() * sizeof(int64_t));
  }
  onnx::NodeProto& Node(const std::string& op, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs) {
    onnx::NodeProto* node = model.mutable_graph()->add_node();
    node->set_op_type(op);
    node->set_name(op + "_" + std::to_string(model.graph().node_size()));
    for (const std::string& s : inputs) node->add_input(s);
    for (const std::string& s : outputs) node->add_output(s);
    return *node;
  }
  static onnx::AttributeProto& Attr(onnx::NodeProto& node, const std::string& name) {
    onnx::AttributeProto* a = node.add_attribute();
    a->set_name(name);
    return *a;
  }
  static void SetInt(onnx::NodeProto& node, const std::string& name, int64_t v) {
    onnx::AttributeProto& a = Attr(node, name);
    a.set_type(onnx::AttributeProto::INT);
    a.set_i(v);
  }
  static void SetFloat(onnx::NodeProto& node, const std::string& name, float v) {
    onnx::AttributeProto& a = Attr(node, name);
    a.set_type(onnx::AttributeProto::FLOAT);
    a.set_f(v);
  }
  static void SetString(onnx::NodeProto& node, const std::string& name, const std::string& v) {
    onnx::AttributeProto& a = Attr(node, name);
    a.set_type(onnx::AttributeProto::STRING);
    a.set_s(v);
  }
  static void SetInts(onnx::NodeProto& node, const std::string& name, const std::vector<int64_t>& values) {
    onnx::AttributeProto& a = Attr(node, name);
    a.set_type(onnx::AttributeProto::INTS);
    for (int64_t v : values) a.add_ints(v);
  }

  std::string Bytes() const { return model.SerializeAsString(); }
  absl::StatusOr<Graph> Import(const ImportOptions& options = {}) const {
    return ImportOnnxBytes(Bytes(), "test", options);
  }
  // The outputs for these inputs; a failure of the test if there are none.
  std::vector<NDArray> Run(const std::vector<NDArray>& inputs) const {
    absl::StatusOr<Graph> g = Import();
    if (!g.ok()) {
      ADD_FAILURE() << g.status();
      return {};
    }
    absl::StatusOr<std::vector<NDArray>> outputs = RunReference(*g, inputs);
    if (!outputs.ok()) ADD_FAILURE() << outputs.status() << "\n" << Text(*g);
    return outputs.ok() ? *outputs : std::vector<NDArray>();
  }

  onnx::ModelProto model;

 private:
  onnx::TensorProto* Tensor(const std::string& name, const std::vector<int64_t>& shape, int type) {
    onnx::TensorProto* t = model.mutable_graph()->add_initializer();
    t->set_name(name);
    t->set_data_type(type);
    for (int64_t d : shape) t->add_dims(d);
    return t;
  }
};

// A name in words, as names of tests may be.
inline std::string TestName(std::string name) {
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(c); }, '_');
  return name;
}

// Why the model is refused; empty if it is not.
inline std::string Refusal(const ModelBuilder& m) { return std::string(m.Import().status().message()); }

// Numbers of -1 to 1.
inline std::vector<float> Random(int64_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(2 * rng.Uniform() - 1));
  return values;
}

inline NDArray Array(Shape shape, const std::vector<float>& values) {
  NDArray a(DType::kF32, std::move(shape));
  for (size_t i = 0; i < values.size(); ++i) a.Set(static_cast<int64_t>(i), values[i]);
  return a;
}

inline void ExpectArray(const NDArray& got, const Shape& shape, const std::vector<double>& values,
                        double bound = 1e-5) {
  ASSERT_EQ(got.shape(), shape);
  ASSERT_EQ(got.size(), static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(got.At(static_cast<int64_t>(i)), values[i], bound) << "element " << i;
}

}  // namespace temper::testing
