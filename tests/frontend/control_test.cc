// Graphs within a graph: If, Loop, Scan, functions of the model, and sequences.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <functional>

#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using testing::Array, testing::ExpectArray, testing::ModelBuilder, testing::Refusal;
using ::testing::HasSubstr;

void SetBody(onnx::NodeProto& node, const std::string& name, const ModelBuilder& body) {
  onnx::AttributeProto& a = ModelBuilder::Attr(node, name);
  a.set_type(onnx::AttributeProto::GRAPH);
  *a.mutable_g() = body.model.graph();
}

void Truth(ModelBuilder& m, const std::string& name, bool value) {
  onnx::TensorProto* t = m.model.mutable_graph()->add_initializer();
  t->set_name(name);
  t->set_data_type(onnx::TensorProto::BOOL);
  t->add_int32_data(value ? 1 : 0);
}

void NumberWithoutAxes(ModelBuilder& m, const std::string& name, int64_t value) {
  onnx::TensorProto* t = m.model.mutable_graph()->add_initializer();
  t->set_name(name);
  t->set_data_type(onnx::TensorProto::INT64);
  t->add_int64_data(value);
}

NDArray Bool(bool value) {
  NDArray a(DType::kBool, {});
  a.Set(0, value ? 1 : 0);
  return a;
}

// out = OP(x, y) of names around.
ModelBuilder Branch(const std::string& op, const std::string& x, const std::string& y) {
  ModelBuilder b(16);
  b.Node(op, {x, y}, {"result"});
  b.Output("result");
  return b;
}

ModelBuilder IfModel(bool known, bool value) {
  ModelBuilder m(16);
  m.Input("x", {2});
  m.Input("y", {2});
  if (known) {
    Truth(m, "condition", value);
  } else {
    m.Input("condition", {}, onnx::TensorProto::BOOL);
  }
  onnx::NodeProto& node = m.Node("If", {"condition"}, {"z"});
  SetBody(node, "then_branch", Branch("Add", "x", "y"));
  SetBody(node, "else_branch", Branch("Sub", "x", "y"));
  m.Output("z");
  return m;
}

TEST(If, TakesTheBranchThatIsKnown) {
  for (bool value : {true, false}) {
    const ModelBuilder m = IfModel(true, value);
    ExpectArray(m.Run({Array({2}, {5, 7}), Array({2}, {1, 2})})[0], {2},
                value ? std::vector<double>{6, 9} : std::vector<double>{4, 5});
    EXPECT_EQ(m.Import()->nodes.size(), 1u) << "the other branch is gone";
  }
}

TEST(If, ChoosesWhereOnlyTheRunKnows) {
  const ModelBuilder m = IfModel(false, false);
  ExpectArray(m.Run({Array({2}, {5, 7}), Array({2}, {1, 2}), Bool(true)})[0], {2}, {6, 9});
  ExpectArray(m.Run({Array({2}, {5, 7}), Array({2}, {1, 2}), Bool(false)})[0], {2}, {4, 5});
}

TEST(If, RefusesBranchesOfDifferentRanks) {
  ModelBuilder m(16);
  m.Input("x", {2});
  m.Ints("axis", {0});
  m.Input("condition", {}, onnx::TensorProto::BOOL);
  onnx::NodeProto& node = m.Node("If", {"condition"}, {"z"});
  SetBody(node, "then_branch", Branch("Add", "x", "x"));
  ModelBuilder other(16);
  other.Node("Unsqueeze", {"x", "axis"}, {"result"});
  other.Output("result");
  SetBody(node, "else_branch", other);
  m.Output("z");
  EXPECT_EQ(m.Import().status().message(),
            "test: If 'If_1': its condition depends on the model's inputs, and so would the shape of a result; "
            "--value condition=... would choose one branch");
}

// A model of two rates: one within the other's branch.
TEST(If, SaysOnceWhichInputWouldChooseABranch) {
  ModelBuilder m(16);
  m.Input("x", {2});
  m.Input("rate", {}, onnx::TensorProto::INT64);
  NumberWithoutAxes(m, "high", 16);
  NumberWithoutAxes(m, "low", 8);
  m.Floats("other", {3}, {1, 2, 3});
  m.Node("Equal", {"rate", "high"}, {"is_high"});
  m.Node("Equal", {"rate", "low"}, {"is_low"});
  ModelBuilder inner(16);
  onnx::NodeProto& second = inner.Node("If", {"is_low"}, {"result"});
  SetBody(second, "then_branch", Branch("Add", "x", "x"));
  SetBody(second, "else_branch", Branch("Add", "x", "other"));
  inner.Output("result");
  onnx::NodeProto& first = m.Node("If", {"is_high"}, {"z"});
  SetBody(first, "then_branch", Branch("Sub", "x", "x"));
  SetBody(first, "else_branch", inner);
  m.Output("z");
  const std::string refused(m.Import().status().message());
  EXPECT_TRUE(refused.ends_with("; --value rate=... would choose one branch")) << refused;
  EXPECT_EQ(refused.find("--value"), refused.rfind("--value")) << refused;
  EXPECT_TRUE(m.Import({.values = {{"rate", {"16"}}}}).ok());
  EXPECT_TRUE(m.Import({.values = {{"rate", {"8"}}}}).ok());
}

// Carries a sum, which it doubles and adds the turn to; stacks what it was. Goes on while `goes_on` says.
ModelBuilder Doubling(const std::string& goes_on) {
  ModelBuilder b(16);
  b.Input("turn", {}, onnx::TensorProto::INT64);
  b.Input("before", {}, onnx::TensorProto::BOOL);
  b.Input("sum", {2});
  onnx::NodeProto& cast = b.Node("Cast", {"turn"}, {"t"});
  ModelBuilder::SetInt(cast, "to", onnx::TensorProto::FLOAT);
  b.Node("Add", {"sum", "sum"}, {"twice"});
  b.Node("Add", {"twice", "t"}, {"next"});
  b.Node("ReduceSum", {"next"}, {"total"});
  ModelBuilder::SetInt(*b.model.mutable_graph()->mutable_node(3), "keepdims", 0);
  b.Node("Less", {"total", "limit"}, {"small"});
  b.Output(goes_on);
  b.Output("next");
  return b;
}

TEST(Loop, TurnsAsOftenAsIsKnown) {
  ModelBuilder m(16);
  m.Input("x", {2});
  m.Floats("limit", {}, {1000});
  NumberWithoutAxes(m, "turns", 3);
  ModelBuilder body = Doubling("before");
  body.Output("sum");
  SetBody(m.Node("Loop", {"turns", "", "x"}, {"last", "all"}), "body", body);
  m.Output("last");
  m.Output("all");
  const std::vector<NDArray> out = m.Run({Array({2}, {1, 2})});
  ExpectArray(out[0], {2}, {12, 20});  // 1 2 -> 2 4 -> 5 9 -> 12 20
  ExpectArray(out[1], {3, 2}, {1, 2, 2, 4, 5, 9});
}

TEST(Loop, EndsWhereItsConditionIsKnownToFail) {
  ModelBuilder m(16);
  m.Floats("x", {2}, {1, 2});
  m.Floats("limit", {}, {10});
  Truth(m, "first", true);
  m.Input("y", {2});
  ModelBuilder body = Doubling("small");
  body.Output("sum");
  SetBody(m.Node("Loop", {"", "first", "x"}, {"last", "all"}), "body", body);
  m.Node("Add", {"last", "y"}, {"z"});
  m.Output("z");
  m.Output("all");
  const std::vector<NDArray> out = m.Run({Array({2}, {0, 0})});
  ExpectArray(out[0], {2}, {5, 9});
  ExpectArray(out[1], {2, 2}, {1, 2, 2, 4});
}

TEST(Loop, KeepsWhatItCarriesOnceTheRunEndsIt) {
  ModelBuilder m(16);
  m.Input("x", {2});
  m.Floats("limit", {}, {10});
  NumberWithoutAxes(m, "turns", 6);
  Truth(m, "first", true);
  SetBody(m.Node("Loop", {"turns", "first", "x"}, {"last"}), "body", Doubling("small"));
  m.Output("last");
  ExpectArray(m.Run({Array({2}, {1, 2})})[0], {2}, {5, 9});
  ExpectArray(m.Run({Array({2}, {100, 200})})[0], {2}, {200, 400});
  ExpectArray(m.Run({Array({2}, {-64, -64})})[0], {2}, {-4039, -4039});  // never reaches the limit
}

TEST(Loop, RefusesWhatWouldNotEnd) {
  ModelBuilder m(16);
  m.Input("x", {2});
  m.Floats("limit", {}, {10});
  Truth(m, "first", true);
  SetBody(m.Node("Loop", {"", "first", "x"}, {"last"}), "body", Doubling("small"));
  m.Output("last");
  EXPECT_EQ(m.Import().status().message(),
            "test: Loop 'Loop_1': its end depends on the model's inputs, and no number of turns bounds it");
  ModelBuilder forever(16);
  forever.Floats("x", {2}, {1, 2});
  forever.Floats("limit", {}, {10});
  SetBody(forever.Node("Loop", {"", "", "x"}, {"last"}), "body", Doubling("before"));
  forever.Output("last");
  EXPECT_EQ(forever.Import().status().message(), "test: Loop 'Loop_1': more than 4096 turns are not supported");
}

TEST(Loop, RefusesResultsWhoseLengthTheRunDecides) {
  ModelBuilder m(16);
  m.Input("x", {2});
  m.Floats("limit", {}, {10});
  NumberWithoutAxes(m, "turns", 6);
  Truth(m, "first", true);
  ModelBuilder body = Doubling("small");
  body.Output("sum");
  SetBody(m.Node("Loop", {"turns", "first", "x"}, {"last", "all"}), "body", body);
  m.Output("all");
  EXPECT_EQ(m.Import().status().message(),
            "test: Loop 'Loop_1': its end depends on the model's inputs, and so would the shape of a result");
}

TEST(Loop, StacksMoreTurnsThanOneConcatTakes) {
  constexpr int64_t kTurns = 1500;
  ModelBuilder m(16);
  m.Input("x", {1});
  NumberWithoutAxes(m, "turns", kTurns);
  ModelBuilder body(16);
  body.Input("turn", {}, onnx::TensorProto::INT64);
  body.Input("before", {}, onnx::TensorProto::BOOL);
  body.Input("sum", {1});
  body.Node("Add", {"sum", "x"}, {"next"});
  for (const char* name : {"before", "next", "sum"}) body.Output(name);
  SetBody(m.Node("Loop", {"turns", "", "x"}, {"last", "all"}), "body", body);
  m.Output("all");
  std::vector<double> want;
  for (int64_t i = 0; i < kTurns; ++i) want.push_back(static_cast<double>(i + 1));
  ExpectArray(m.Run({Array({1}, {1})})[0], {kTurns, 1}, want);
}

// Names of a body are its own: one that is around has its value again behind it.
TEST(Loop, HidesTheNamesOfItsBody) {
  ModelBuilder m(16);
  m.Input("x", {2});
  m.Floats("limit", {}, {10});
  m.Floats("twice", {2}, {100, 200});
  NumberWithoutAxes(m, "turns", 1);
  SetBody(m.Node("Loop", {"turns", "", "x"}, {"last"}), "body", Doubling("before"));
  m.Node("Add", {"last", "twice"}, {"z"});
  m.Output("z");
  ExpectArray(m.Run({Array({2}, {1, 2})})[0], {2}, {102, 204});
}

// The running sum of what it scans, in either direction, along either axis.
TEST(Scan, CarriesAStateAndStacksResults) {
  for (const bool back : {false, true}) {
    for (const int64_t axis : {0, 1}) {
      ModelBuilder m(16);
      m.Input("start", {2});
      m.Input("x", axis == 0 ? std::vector<int64_t>{3, 2} : std::vector<int64_t>{2, 3});
      ModelBuilder body(16);
      body.Input("state", {2});
      body.Input("element", {2});
      body.Node("Add", {"state", "element"}, {"sum"});
      body.Output("sum");
      body.Output("sum");
      onnx::NodeProto& node = m.Node("Scan", {"start", "x"}, {"last", "sums"});
      SetBody(node, "body", body);
      ModelBuilder::SetInt(node, "num_scan_inputs", 1);
      ModelBuilder::SetInts(node, "scan_input_axes", {axis});
      ModelBuilder::SetInts(node, "scan_output_axes", {axis - 2});
      ModelBuilder::SetInts(node, "scan_input_directions", {back});
      ModelBuilder::SetInts(node, "scan_output_directions", {back});
      m.Output("last");
      m.Output("sums");
      const double x[3][2] = {{1, 2}, {3, 4}, {5, 6}};
      std::vector<float> given(6);
      std::vector<double> want(6), state = {10, 20};
      const auto at = [&](int i, int j) { return static_cast<size_t>(axis == 0 ? 2 * i + j : 3 * j + i); };
      for (int step = 0; step < 3; ++step) {
        const int i = back ? 2 - step : step;
        for (int j = 0; j < 2; ++j) {
          given[at(i, j)] = static_cast<float>(x[i][j]);
          want[at(i, j)] = state[static_cast<size_t>(j)] += x[i][j];
        }
      }
      const Shape shape = axis == 0 ? Shape{3, 2} : Shape{2, 3};
      const std::vector<NDArray> out = m.Run({Array({2}, {10, 20}), Array(shape, given)});
      ExpectArray(out[0], {2}, state);
      ExpectArray(out[1], shape, want);
    }
  }
}

onnx::FunctionProto& Function(ModelBuilder& m, const std::string& name) {
  m.model.add_opset_import()->set_domain("ours");
  onnx::FunctionProto* f = m.model.add_functions();
  f->set_domain("ours");
  f->set_name(name);
  f->add_opset_import()->set_version(16);
  return *f;
}

void AddTo(onnx::FunctionProto& f, const ModelBuilder& nodes) {
  for (const onnx::NodeProto& node : nodes.model.graph().node()) *f.add_node() = node;
}

// leaky(a), with the slope that a function's call gives.
void AddLeaky(ModelBuilder& nodes, const std::string& result) {
  onnx::AttributeProto& slope = ModelBuilder::Attr(nodes.Node("LeakyRelu", {"a"}, {result}), "alpha");
  slope.set_type(onnx::AttributeProto::FLOAT);
  slope.set_ref_attr_name("slope");
}

// leaky(x) + x, with the slope of the call or, where it gives none, the operator's own.
TEST(Functions, AreInlinedWithTheAttributesOfTheirCall) {
  ModelBuilder m(16);
  m.Input("x", {2});
  onnx::FunctionProto& f = Function(m, "Leaky");
  f.add_input("a");
  f.add_output("b");
  f.add_attribute("slope");
  ModelBuilder nodes(16);
  AddLeaky(nodes, "x");
  nodes.Node("Add", {"x", "a"}, {"b"});
  AddTo(f, nodes);
  onnx::NodeProto& with = m.Node("Leaky", {"x"}, {"y"});
  with.set_domain("ours");
  ModelBuilder::SetFloat(with, "slope", 0.5F);
  m.Node("Leaky", {"x"}, {"z"}).set_domain("ours");
  m.Output("y");
  m.Output("z");
  const std::vector<NDArray> out = m.Run({Array({2}, {-2, 3})});
  ExpectArray(out[0], {2}, {-3, 6});
  ExpectArray(out[1], {2}, {-2.02, 6});
}

TEST(Functions, SeeNoNamesAroundTheirCall) {
  ModelBuilder m(16);
  m.Input("x", {2});
  onnx::FunctionProto& f = Function(m, "Leak");
  f.add_input("a");
  f.add_output("b");
  ModelBuilder nodes(16);
  nodes.Node("Add", {"a", "x"}, {"b"});
  AddTo(f, nodes);
  m.Node("Leak", {"x"}, {"y"}).set_domain("ours");
  m.Output("y");
  EXPECT_EQ(m.Import().status().message(),
            "test: Leak 'Leak_1': Add 'Add_1': value 'x' is not computed before it is read");
}

TEST(Functions, ThatCallThemselvesAreRefused) {
  ModelBuilder m(16);
  m.Input("x", {2});
  onnx::FunctionProto& f = Function(m, "Again");
  f.add_input("a");
  f.add_output("b");
  ModelBuilder nodes(16);
  nodes.Node("Again", {"a"}, {"b"}).set_domain("ours");
  AddTo(f, nodes);
  m.Node("Again", {"x"}, {"y"}).set_domain("ours");
  m.Output("y");
  EXPECT_NE(m.Import().status().message().find("its functions call each other without end"), std::string::npos);
}

TEST(Functions, AndBodiesTellUnsupportedOperators) {
  ModelBuilder m = IfModel(true, true);
  ModelBuilder strange(16);
  strange.Node("Strange", {"x"}, {"result"});
  strange.Output("result");
  onnx::NodeProto& node = m.Node("If", {"condition"}, {"other"});
  SetBody(node, "then_branch", strange);
  SetBody(node, "else_branch", Branch("Add", "x", "y"));
  EXPECT_EQ(m.Import().status().message(), "test: unsupported operators: Strange (Strange_1)");
}

TEST(Sequences, AreSplitChangedAndJoined) {
  ModelBuilder m(16);
  m.Input("x", {4, 2});
  m.Input("y", {1, 2});
  NumberWithoutAxes(m, "one", 1);
  NumberWithoutAxes(m, "last", -1);
  m.Ints("lengths", {1, 3});
  onnx::NodeProto& split = m.Node("SplitToSequence", {"x", "lengths"}, {"parts"});
  ModelBuilder::SetInt(split, "axis", 0);
  m.Node("SequenceInsert", {"parts", "y", "one"}, {"more"});
  m.Node("SequenceErase", {"more", "last"}, {"fewer"});
  m.Node("SequenceLength", {"more"}, {"length"});
  m.Node("SequenceAt", {"more", "last"}, {"end"});
  ModelBuilder::SetInt(m.Node("ConcatFromSequence", {"fewer"}, {"joined"}), "axis", 0);
  ModelBuilder::SetInt(m.Node("ConcatFromSequence", {"fewer"}, {"stacked"}), "axis", -1);
  ModelBuilder::SetInt(*m.model.mutable_graph()->mutable_node(6), "new_axis", 1);
  for (const char* name : {"end", "joined", "stacked", "length"}) m.Output(name);
  const std::vector<NDArray> out = m.Run({Array({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), Array({1, 2}, {9, 10})});
  ExpectArray(out[0], {3, 2}, {3, 4, 5, 6, 7, 8});
  ExpectArray(out[1], {2, 2}, {1, 2, 9, 10});
  ExpectArray(out[2], {1, 2, 2}, {1, 9, 2, 10});
  ExpectArray(out[3], {}, {3});
}

TEST(Sequences, AreNoTensors) {
  ModelBuilder m(16);
  m.Input("x", {4, 2});
  m.Node("SplitToSequence", {"x"}, {"parts"});
  m.Output("parts");
  EXPECT_EQ(m.Import().status().message(), "test: graph output 'parts': 'parts' is no tensor");
  m.Node("Relu", {"parts"}, {"y"});
  EXPECT_EQ(m.Import().status().message(), "test: Relu 'Relu_2': 'parts' is a sequence, not a tensor");
}

TEST(Sequences, WhatCanNotBeIsSaidInOneLine) {
  ModelBuilder no_result(16);
  no_result.Input("x", {2});
  no_result.Node("Optional", {"x"}, {});
  no_result.Output("x");
  EXPECT_THAT(Refusal(no_result), HasSubstr("it has no results"));
  ModelBuilder parts(16);
  parts.Input("x", {int64_t{1} << 30});
  parts.Node("SplitToSequence", {"x"}, {"parts"});
  parts.Output("x");
  EXPECT_THAT(Refusal(parts), HasSubstr("a split into 1073741824 parts"));
  ModelBuilder hidden(16);  // where an operand may be missing
  hidden.Input("x", {2});
  hidden.Node("SequenceConstruct", {"x"}, {"s"});
  hidden.Node("Clip", {"x", "s"}, {"y"});
  hidden.Output("y");
  EXPECT_THAT(Refusal(hidden), HasSubstr("'s' is a sequence, not a tensor"));
}

TEST(If, ItsConditionIsABoolean) {
  ModelBuilder m(16);
  m.Input("x", {2});
  m.Input("y", {2});
  m.Floats("condition", {}, {1});
  onnx::NodeProto& node = m.Node("If", {"condition"}, {"z"});
  SetBody(node, "then_branch", Branch("Add", "x", "y"));
  SetBody(node, "else_branch", Branch("Sub", "x", "y"));
  m.Output("z");
  EXPECT_THAT(Refusal(m), HasSubstr("a condition is one boolean"));
}

TEST(Scan, AnyNumberOfInputsMayBeStated) {
  for (const int64_t stated : {INT64_MIN, int64_t{0}, int64_t{3}, INT64_MAX}) {
    ModelBuilder m(16);
    m.Input("x", {2});
    onnx::NodeProto& node = m.Node("Scan", {"x"}, {"y"});
    SetBody(node, "body", Branch("Add", "x", "x"));
    ModelBuilder::SetInt(node, "num_scan_inputs", stated);
    m.Output("y");
    EXPECT_THAT(Refusal(m), HasSubstr("num_scan_inputs does not fit"));
  }
}

// A loop over what `add` makes of the carried "a", which begins as `start`.
ModelBuilder LoopOver(int64_t turns, const std::string& start, const std::function<void(ModelBuilder&)>& add) {
  ModelBuilder body(16);
  body.Input("i", {}, onnx::TensorProto::INT64);
  body.Input("c", {}, onnx::TensorProto::BOOL);
  body.Input("a", {1});
  add(body);
  body.Output("c");
  body.Output("b");
  ModelBuilder m(16);
  m.Input("x", {1});
  NumberWithoutAxes(m, "turns", turns);
  SetBody(m.Node("Loop", {"turns", "", start}, {"y"}), "body", body);
  m.Output("y");
  return m;
}

TEST(Loop, WhatGrowsWithoutBoundIsRefused) {
  const auto doubles = [](ModelBuilder& body) {
    ModelBuilder::SetInt(body.Node("Concat", {"a", "a"}, {"b"}), "axis", 0);
  };
  EXPECT_THAT(Refusal(LoopOver(70, "x", doubles)), HasSubstr("is too large"));
  // Turns that leave nothing in the graph count as well.
  std::function<void(ModelBuilder&)> nothing = [](ModelBuilder& body) { body.Node("Identity", {"a"}, {"b"}); };
  for (int depth = 0; depth < 3; ++depth) {
    nothing = [inner = nothing](ModelBuilder& body) {
      const ModelBuilder nested = LoopOver(4096, "a", inner);
      body.Ints("turns", {4096});
      onnx::NodeProto& node = body.Node("Loop", {"turns", "", "a"}, {"b"});
      *node.add_attribute() = nested.model.graph().node(0).attribute(0);
    };
  }
  EXPECT_THAT(Refusal(LoopOver(4096, "x", nothing)), HasSubstr("more than 500000 operations"));
}

TEST(Loop, ConstantsOfItsBodyAreThereOnce) {
  const ModelBuilder m = LoopOver(50, "x", [](ModelBuilder& body) {
    body.Floats("weight", {1}, {0.5F});
    body.Node("Add", {"a", "weight"}, {"b"});
  });
  const absl::StatusOr<Graph> g = m.Import();
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(std::count_if(g->values.begin(), g->values.end(), [](const Value& v) { return v.is_constant; }), 1);
  ExpectArray(m.Run({Array({1}, {2})})[0], {1}, {27});
}

// y = F0(x), where F0 calls F1 as often as told, and so on; the last one is a Relu.
ModelBuilder Chain(int length, int calls) {
  ModelBuilder m(16);
  m.Input("x", {2});
  for (int i = 0; i <= length; ++i) {
    onnx::FunctionProto& f = Function(m, "F" + std::to_string(i));
    f.add_input("v0");
    f.add_output("v" + std::to_string(i < length ? calls : 1));
    ModelBuilder nodes(16);
    for (int k = 0; k < (i < length ? calls : 1); ++k) {
      const std::string op = i < length ? "F" + std::to_string(i + 1) : "Identity";
      nodes.Node(op, {"v" + std::to_string(k)}, {"v" + std::to_string(k + 1)}).set_domain(i < length ? "ours" : "");
    }
    AddTo(f, nodes);
  }
  m.Node("F0", {"x"}, {"y"}).set_domain("ours");
  m.Output("y");
  return m;
}

TEST(Functions, CallsAreNotWithoutEnd) {
  EXPECT_EQ(Refusal(Chain(20, 1)), "");
  EXPECT_THAT(Refusal(Chain(50, 2)), HasSubstr("more than 500000 operations"));
  EXPECT_THAT(Refusal(Chain(100000, 1)), HasSubstr("call each other without end"));
}

TEST(Functions, AttributesHaveDefaults) {
  ModelBuilder m(16);
  m.Input("x", {1});
  onnx::FunctionProto& f = Function(m, "Leaky");
  f.add_input("a");
  f.add_output("b");
  ModelBuilder nodes(16);
  AddLeaky(nodes, "b");
  AddTo(f, nodes);
  onnx::AttributeProto standard;
  standard.set_name("slope");
  standard.set_type(onnx::AttributeProto::FLOAT);
  standard.set_f(0.25F);
  constexpr int kAttributeProto = 11;
  std::string bytes(1, static_cast<char>(kAttributeProto << 3 | 2));  // the field's tag
  bytes += static_cast<char>(standard.ByteSizeLong());
  ASSERT_TRUE(f.MergeFromString(bytes + standard.SerializeAsString()));
  m.Node("Leaky", {"x"}, {"y"}).set_domain("ours");
  onnx::NodeProto& with = m.Node("Leaky", {"x"}, {"z"});
  with.set_domain("ours");
  ModelBuilder::SetFloat(with, "slope", 0.5F);
  m.Output("y");
  m.Output("z");
  const std::vector<NDArray> results = m.Run({Array({1}, {-4})});
  ExpectArray(results[0], {1}, {-1});
  ExpectArray(results[1], {1}, {-2});
}

TEST(Functions, WhatCanNotBeIsSaidInOneLine) {
  ModelBuilder opset = Chain(0, 1);
  opset.model.mutable_functions(0)->mutable_opset_import(0)->set_version(int64_t{1} << 33);
  EXPECT_THAT(Refusal(opset), HasSubstr("opset 8589934592 is not supported"));
  ModelBuilder twice = Chain(0, 1);
  *twice.model.add_functions() = twice.model.functions(0);
  EXPECT_THAT(Refusal(twice), HasSubstr("functions that share a name"));
}

}  // namespace
}  // namespace temper
