// Nodes that do not stand in the order in which they are computed.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using testing::Array, testing::ExpectArray, testing::ModelBuilder, testing::Refusal;

void Reverse(google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes) {
  for (int i = 0, j = nodes.size() - 1; i < j; ++i, --j) nodes.SwapElements(i, j);
}

std::vector<std::string> Operators(const ModelBuilder& m) {
  const absl::StatusOr<Graph> g = m.Import();
  EXPECT_TRUE(g.ok()) << g.status();
  std::vector<std::string> names;
  for (size_t i = 0; g.ok() && i < g->nodes.size(); ++i) names.push_back(g->nodes[i].op);
  return names;
}

// As tools write it that put conversions around a whole model.
TEST(NodeOrder, WhatIsAppendedMovesInFrontOfItsReaderAndNothingElseMoves) {
  ModelBuilder m(17);
  m.Input("x", {2});
  m.Node("Neg", {"x"}, {"a"});
  m.Node("Abs", {"half"}, {"b"});
  m.Node("Exp", {"x"}, {"c"});
  m.Node("Sum", {"a", "b", "c"}, {"y"});
  m.Node("Sqrt", {"x"}, {"h"});
  m.Node("Relu", {"h"}, {"half"});
  m.Output("y");
  EXPECT_EQ(Operators(m), (std::vector<std::string>{"neg", "sqrt", "relu", "abs", "exp", "add", "add"}));
  ExpectArray(m.Run({Array({2}, {0, 1})})[0], {2}, {0 + 0 + 1, -1 + 1 + 2.718282});
}

TEST(NodeOrder, ALongChainFromItsEnd) {
  ModelBuilder m(17);
  m.Input("v0", {1});
  m.Floats("one", {1}, {1});
  constexpr int kLength = 20000;
  for (int i = 0; i < kLength; ++i) m.Node("Add", {"v" + std::to_string(i), "one"}, {"v" + std::to_string(i + 1)});
  m.Output("v" + std::to_string(kLength));
  Reverse(*m.model.mutable_graph()->mutable_node());
  EXPECT_EQ(Operators(m).size(), static_cast<size_t>(kLength));
}

// A body reads what is computed around it, and is out of order itself.
TEST(NodeOrder, Bodies) {
  ModelBuilder body(17), m(17);
  body.Node("Add", {"twice", "around"}, {"result"});
  body.Node("Add", {"x", "x"}, {"twice"});
  body.Output("result");
  m.Input("x", {2});
  m.Input("condition", {}, onnx::TensorProto::BOOL);
  onnx::NodeProto& node = m.Node("If", {"condition"}, {"y"});
  for (const char* name : {"then_branch", "else_branch"}) {
    onnx::AttributeProto& a = ModelBuilder::Attr(node, name);
    a.set_type(onnx::AttributeProto::GRAPH);
    *a.mutable_g() = body.model.graph();
  }
  m.Node("Neg", {"x"}, {"around"});
  m.Output("y");
  ExpectArray(m.Run({Array({2}, {3, 5}), NDArray(DType::kBool, {})})[0], {2}, {3, 5});
}

TEST(NodeOrder, Functions) {
  ModelBuilder m(17);
  m.Input("x", {2});
  m.Node("Twice", {"x"}, {"y"}).set_domain("own");
  m.Output("y");
  onnx::FunctionProto* f = m.model.add_functions();
  f->set_name("Twice");
  f->set_domain("own");
  f->add_input("a");
  f->add_output("c");
  ModelBuilder inner(17);
  inner.Node("Add", {"b", "b"}, {"c"});
  inner.Node("Neg", {"a"}, {"b"});
  *f->mutable_node() = inner.model.graph().node();
  ExpectArray(m.Run({Array({2}, {3, 5})})[0], {2}, {-6, -10});
}

TEST(NodeOrder, ACycleIsRefused) {
  ModelBuilder m(17);
  m.Input("x", {2});
  m.Node("Add", {"x", "c"}, {"a"});
  m.Node("Neg", {"a"}, {"b"});
  m.Node("Abs", {"b"}, {"c"});
  m.Output("c");
  EXPECT_EQ(Refusal(m), "test: Add 'Add_1': it reads what is computed from its own results");
  ModelBuilder self(17);
  self.Input("x", {2});
  self.Node("Add", {"x", "a"}, {"a"});
  self.Output("a");
  EXPECT_EQ(Refusal(self), "test: Add 'Add_1': it reads what is computed from its own results");
}

TEST(NodeOrder, WhatNobodyComputesIsStillSaid) {
  ModelBuilder m(17);
  m.Input("x", {2});
  m.Node("Add", {"late", "nothing"}, {"y"});
  m.Node("Neg", {"x"}, {"late"});
  m.Output("y");
  EXPECT_EQ(Refusal(m), "test: Add 'Add_1': value 'nothing' is not computed before it is read");
}

}  // namespace
}  // namespace temper
