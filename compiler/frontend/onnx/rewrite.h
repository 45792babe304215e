// Nodes of ONNX's operators that are added in place of one node.
#pragma once

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/nodes.h"

namespace temper::onnx_frontend {

using NodeNames = std::vector<std::string>;

// Nodes over the operands "0", "1", ... of a call, which are bound to them; one that is left out has no name.
class Rewrite {
 public:
  Rewrite(Context& c, const OnnxNode& n) : c_(c), n_(n) {}

  std::string Operand(size_t i) const { return n_.Input(i) == kNoValue ? "" : absl::StrCat(i); }
  // A node with one result, whose name it returns.
  std::string Add(const char* op, NodeNames inputs) {
    onnx::NodeProto* node = nodes_.Add();
    node->set_op_type(op);
    node->set_name(absl::StrCat(n_.proto.name(), ".", op));
    for (std::string& name : inputs) *node->add_input() = std::move(name);
    *node->add_output() = absl::StrCat("made", nodes_.size());
    return node->output(0);
  }
  // A further result of the node that was added last.
  std::string Further() {
    onnx::NodeProto& node = nodes_[nodes_.size() - 1];
    *node.add_output() = absl::StrCat(node.output(0), ".", node.output_size());
    return node.output(node.output_size() - 1);
  }
  // Attributes of that node.
  Rewrite& With(const char* name, int64_t value) {
    onnx::AttributeProto& a = Attribute(name, onnx::AttributeProto::INT);
    a.set_i(value);
    return *this;
  }
  Rewrite& With(const char* name, double value) {
    onnx::AttributeProto& a = Attribute(name, onnx::AttributeProto::FLOAT);
    a.set_f(static_cast<float>(value));
    return *this;
  }
  Rewrite& With(const char* name, const std::string& value) {
    onnx::AttributeProto& a = Attribute(name, onnx::AttributeProto::STRING);
    a.set_s(value);
    return *this;
  }
  Rewrite& With(const char* name, const std::vector<int64_t>& values) {
    onnx::AttributeProto& a = Attribute(name, onnx::AttributeProto::INTS);
    a.mutable_ints()->Assign(values.begin(), values.end());
    return *this;
  }
  // Those that the call has under the same names, but for these.
  void WithCalls(const NodeNames& but = {}) {
    onnx::NodeProto& node = nodes_[nodes_.size() - 1];
    for (const onnx::AttributeProto& a : n_.proto.attribute()) {
      if (std::ranges::find(but, a.name()) == but.end()) *node.add_attribute() = a;
    }
  }
  // Nodes that move an image's last axis behind its first, and back.
  std::string ChannelsSecond(const std::string& image, int64_t rank) {
    std::vector<int64_t> perm = AxesFrom(0, rank);
    std::rotate(perm.begin() + 1, perm.end() - 1, perm.end());
    return Transposed(image, perm);
  }
  std::string ChannelsLast(const std::string& image, int64_t rank) {
    std::vector<int64_t> perm = AxesFrom(0, rank);
    std::rotate(perm.begin() + 1, perm.begin() + 2, perm.end());
    return Transposed(image, perm);
  }
  std::string Number(double value) {
    const std::string name = absl::StrCat("number", numbers_.size());
    numbers_.emplace_back(name, value);
    return name;
  }

  // Adds the nodes; what has these names, and kNoValue for "".
  absl::StatusOr<std::vector<ValueId>> Values(const NodeNames& results) {
    std::vector<ValueId> values;
    Context::Scope scope(c_, /*closed=*/true);
    for (size_t i = 0; i < n_.inputs.size(); ++i) c_.Bind(absl::StrCat(i), n_.inputs[i]);
    for (const auto& [name, value] : numbers_) c_.Bind(name, c_.Scalar(DType::kF32, value));
    TEMPER_RETURN_IF_ERROR(AddNodes(c_, nodes_, kOpset));
    for (const std::string& name : results) {
      values.push_back(kNoValue);
      if (name.empty()) continue;
      TEMPER_ASSIGN_OR_RETURN(values.back(), ValueOf(c_, name, nodes_));
    }
    return values;
  }

  // The same; the call's outputs become what has these names.
  absl::Status Finish(const NodeNames& results) {
    TEMPER_ASSIGN_OR_RETURN(const std::vector<ValueId> values, Values(results));
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] == kNoValue) continue;
      TEMPER_RETURN_IF_ERROR(c_.Set(n_, values[i], static_cast<int>(i)));
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int kOpset = 23;  // of the nodes that are added

  std::string Transposed(const std::string& v, const std::vector<int64_t>& perm) {
    const std::string y = Add("Transpose", {v});
    With("perm", perm);
    return y;
  }
  onnx::AttributeProto& Attribute(const char* name, onnx::AttributeProto::AttributeType type) {
    onnx::AttributeProto* a = nodes_[nodes_.size() - 1].add_attribute();
    a->set_name(name);
    a->set_type(type);
    return *a;
  }

  Context& c_;
  const OnnxNode& n_;
  Nodes nodes_;
  std::vector<std::pair<std::string, double>> numbers_;
};

}  // namespace temper::onnx_frontend
