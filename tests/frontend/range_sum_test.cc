// Models with an extent that is a sum of ranges, as decoders have of what is in their cache and of what comes: for each
// choice of lengths they give what they give where all are known.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "base/strides.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/graph/alias.h"
#include "compiler/graph/behind.h"
#include "compiler/graph/extract.h"
#include "compiler/graph/pipeline.h"
#include "tests/frontend/range_chain.h"

namespace temper {
namespace {

using testing::Axis;
using ::testing::HasSubstr;
using testing::ModelBuilder;
using testing::Number;
using testing::Permuted;
using testing::Weights;
using Lengths = std::map<std::string, int64_t>;

constexpr int64_t kHeads = 2, kSize = 4, kWidth = kHeads * kSize;

// The result of a kernel that multiplies matrices, and what is known behind ends of it.
struct Product {
  Shape shape;
  std::vector<Behind> behind;
};
std::vector<Product> ProductsOf(const Graph& g) {
  const GraphBehind behind = BehindOf(g);
  std::vector<Product> products;
  for (const Group& group : g.groups) {
    const Extracted kernel = *Extract(g, group);
    if (kernel.workload.calls[static_cast<size_t>(kernel.workload.anchor)].op != "matmul") continue;
    const auto result = static_cast<size_t>(kernel.output);
    products.push_back({g.values[result].type.shape, behind.of[result]});
  }
  return products;
}

// An input whose dimensions are numbers or have names.
void Input(ModelBuilder& m, const std::string& name, const std::vector<std::string>& dims,
           int type = onnx::TensorProto::FLOAT) {
  std::vector<int64_t> shape;
  for (const std::string& dim : dims) shape.push_back(std::isdigit(dim[0]) != 0 ? std::stoll(dim) : -1);
  m.Input(name, shape, type);
  auto* inputs = m.model.mutable_graph()->mutable_input();
  auto* tensor = inputs->Mutable(inputs->size() - 1)->mutable_type()->mutable_tensor_type()->mutable_shape();
  for (size_t i = 0; i < dims.size(); ++i) {
    if (shape[i] < 0) tensor->mutable_dim(static_cast<int>(i))->set_dim_param(dims[i]);
  }
}

// The extent of a value along an axis, without axes, and as a vector under the name and "s".
void Length(ModelBuilder& m, const std::string& name, const std::string& of, int64_t axis) {
  Number(m, name + " at", axis);
  m.Node("Shape", {of}, {name + " of"});
  m.Node("Gather", {name + " of", name + " at"}, {name});
}
void AsVector(ModelBuilder& m, const std::string& name) {
  m.Ints(name + " gets", {0});
  m.Node("Unsqueeze", {name, name + " gets"}, {name + "s"});
}

// The lengths' cartesian product.
std::vector<Lengths> AllOf(const std::map<std::string, DimLength>& ranges) {
  std::vector<Lengths> all = {{}};
  for (const auto& [name, range] : ranges) {
    std::vector<Lengths> longer;
    for (const Lengths& before : all) {
      for (int64_t length = range.most; length >= range.least; --length) {
        longer.push_back(before);
        longer.back()[name] = length;
      }
    }
    all = std::move(longer);
  }
  return all;
}

NDArray Drawn(const TensorType& type, Rng& rng) {
  NDArray x(type.dtype, type.shape);
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, IsFloat(type.dtype) ? rng.Uniform() - 0.5 : rng.Uniform() < 0.8);
  return x;
}

// The elements of `x` at the front along each axis of a larger array, with others behind them, or no numbers.
NDArray Spread(const NDArray& x, const Shape& most) {
  NDArray all(x.dtype(), most);
  for (int64_t i = 0, from = 0; i < all.size(); ++i) {
    bool there = true;
    int64_t rest = i;
    for (size_t d = most.size(); d-- > 0; rest /= most[d]) there = there && rest % most[d] < x.shape()[d];
    all.Set(i, there ? x.At(from++) : IsFloat(x.dtype()) ? std::numeric_limits<double>::quiet_NaN() : 7);
  }
  return all;
}

int64_t Summed(const std::string& dimension, const Lengths& lengths) {
  int64_t sum = 0;
  for (size_t at = 0; at < dimension.size();) {
    const size_t end = std::min(dimension.find(" + ", at), dimension.size());
    const std::string term = dimension.substr(at, end - at);
    sum += lengths.contains(term) ? lengths.at(term) : std::stoll(term);
    at = end + 3;
  }
  return sum;
}

// What the graph of ranges takes where the inputs have these lengths.
std::vector<NDArray> InputsOf(const Graph& range, const std::vector<NDArray>& inputs, const Lengths& lengths) {
  std::vector<NDArray> all;
  const std::string told = "length of ";
  for (size_t i = 0; i < range.inputs.size(); ++i) {
    const Value& v = range.values[static_cast<size_t>(range.inputs[i])];
    if (i < inputs.size()) {
      all.push_back(Spread(inputs[i], v.type.shape));
      continue;
    }
    all.emplace_back(DType::kI64, Shape{});
    all.back().Set(0, static_cast<double>(Summed(v.name.substr(told.size()), lengths)));
  }
  return all;
}

bool SaysThatLengthsDiffer(const Graph& g, const std::vector<NDArray>& outputs) {
  return std::ranges::any_of(std::span(outputs).last(static_cast<size_t>(g.hidden)), [](const NDArray& told) {
    return told.as<int64_t>()[0] == onnx_frontend::kLengthsDiffer;
  });
}

void ExpectSame(const Graph& range, const std::vector<NDArray>& got, const std::vector<NDArray>& want) {
  ASSERT_FALSE(SaysThatLengthsDiffer(range, got));
  for (size_t output = 0; output < want.size(); ++output) {
    Shape shape = got[output].shape();
    for (const Extent& e : range.extents) {
      if (e.output == static_cast<int>(output))
        shape[static_cast<size_t>(e.axis)] = got[static_cast<size_t>(e.told_by)].as<int64_t>()[0];
    }
    ASSERT_EQ(shape, want[output].shape()) << "output " << output;
    for (int64_t i = 0; i < NumElements(shape); ++i)
      ASSERT_NEAR(got[output].At(i), want[output].At(i), 1e-5) << "output " << output << " at " << i;
  }
}

void ExpectAsOfKnownLengths(
    const ModelBuilder& m, const std::map<std::string, DimLength>& ranges,
    const std::function<bool(const Lengths&)>& takes = [](const Lengths&) { return true; }) {
  const absl::StatusOr<Graph> range = m.Import({.dims = ranges});
  ASSERT_TRUE(range.ok()) << range.status();
  Rng rng(5);
  for (const Lengths& lengths : AllOf(ranges)) {
    if (!takes(lengths)) continue;
    std::string said;
    for (const auto& [name, length] : lengths) said += name + " " + std::to_string(length) + " ";
    SCOPED_TRACE(said);
    const absl::StatusOr<Graph> known =
        m.Import({.dims = std::map<std::string, DimLength>(lengths.begin(), lengths.end())});
    ASSERT_TRUE(known.ok()) << known.status();
    std::vector<NDArray> inputs;
    for (const ValueId v : known->inputs) inputs.push_back(Drawn(known->values[static_cast<size_t>(v)].type, rng));
    const auto want = RunReference(*known, inputs);
    const auto got = RunReference(*range, InputsOf(*range, inputs, lengths));
    ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
    ExpectSame(*range, *got, *want);
  }
}

// "heads of `to`" of rows of `x`, [batch, heads, seq, size].
void Heads(ModelBuilder& m, const std::string& to) {
  Weights(m, ("weights of " + to).c_str(), {kWidth, kWidth});
  m.Node("MatMul", {"x", "weights of " + to}, {"rows of " + to});
  m.Ints("heads", {kHeads});
  m.Ints("size", {kSize});
  Axis(m.Node("Concat", {"batchs", "seqs", "heads", "size"}, {"shape of " + to}), 0);
  m.Node("Reshape", {"rows of " + to, "shape of " + to}, {"split " + to});
  Permuted(m, ("split " + to).c_str(), ("heads of " + to).c_str(), {0, 2, 1, 3});
}

// Keys and values behind those of the cache.
void Cached(ModelBuilder& m, const std::string& name) {
  Input(m, "past " + name, {"batch", std::to_string(kHeads), "past", std::to_string(kSize)});
  Heads(m, name);
  Axis(m.Node("Concat", {"past " + name, "heads of " + name}, {"all " + name}), -2);
}

// What each query sees is decided by `mask`, which makes of "scores" what is "masked".
ModelBuilder Decoder(const std::function<void(ModelBuilder&)>& mask) {
  ModelBuilder m(17);
  Input(m, "x", {"batch", "seq", std::to_string(kWidth)});
  for (const auto& [name, axis] : {std::pair("batch", 0), {"seq", 1}}) {
    Length(m, name, "x", axis);
    AsVector(m, name);
  }
  Cached(m, "keys");
  Cached(m, "values");
  Length(m, "past", "past keys", 2);
  Heads(m, "queries");
  Permuted(m, "all keys", "columns", {0, 1, 3, 2});
  m.Node("MatMul", {"heads of queries", "columns"}, {"scores"});
  mask(m);
  Axis(m.Node("Softmax", {"masked"}, {"shares"}), -1);
  m.Node("MatMul", {"shares", "all values"}, {"seen"});
  Permuted(m, "seen", "steps", {0, 2, 1, 3});
  m.Ints("width", {kWidth});
  Axis(m.Node("Concat", {"batchs", "seqs", "width"}, {"shape of y"}), 0);
  m.Node("Reshape", {"steps", "shape of y"}, {"y"});
  for (const char* output : {"y", "all keys", "all values"}) m.Output(output);
  return m;
}

void Lowest(ModelBuilder& m) { m.Floats("lowest", {1}, {std::numeric_limits<float>::lowest()}); }

// The rows of a triangle that are of the queries, as models of GPT-2's kind take them, and a mask of what is there.
void MaskByTriangle(ModelBuilder& m) {
  constexpr int64_t kRoom = 9;
  Lowest(m);
  std::vector<float> triangle(kRoom * kRoom);
  for (size_t i = 0; i < triangle.size(); ++i) triangle[i] = i % kRoom <= i / kRoom ? 1 : 0;
  m.Floats("numbers", {1, 1, kRoom, kRoom}, triangle);
  ModelBuilder::SetInt(m.Node("Cast", {"numbers"}, {"triangle"}), "to", onnx::TensorProto::BOOL);
  Length(m, "total", "all keys", 2);
  AsVector(m, "total");
  m.Node("Sub", {"total", "seq"}, {"begin"});
  AsVector(m, "begin");
  m.Ints("second", {2});
  m.Ints("last", {3});
  m.Ints("none", {0});
  m.Node("Slice", {"triangle", "begins", "totals", "second"}, {"rows"});
  m.Node("Slice", {"rows", "none", "totals", "last"}, {"sees"});
  m.Node("Where", {"sees", "scores", "lowest"}, {"causal"});
  Input(m, "mask", {"batch", "past + seq"}, onnx::TensorProto::INT64);
  m.Ints("mask axes", {1, 2});
  m.Node("Unsqueeze", {"mask", "mask axes"}, {"wide mask"});
  ModelBuilder::SetInt(m.Node("Cast", {"wide mask"}, {"there"}), "to", onnx::TensorProto::FLOAT);
  m.Floats("one", {1}, {1});
  m.Node("Sub", {"one", "there"}, {"missing"});
  m.Node("Mul", {"missing", "lowest"}, {"added"});
  m.Node("Add", {"causal", "added"}, {"masked"});
}

void Counted(ModelBuilder& m, const std::string& from, const std::string& to, const std::string& name) {
  m.Node("Range", {from, to, "step"}, {name});
}

// Positions of queries and keys compared, and no mask that is an input: nothing but the sum tells how many keys are.
void MaskByPositions(ModelBuilder& m) {
  Lowest(m);
  Number(m, "zero", 0);
  Number(m, "step", 1);
  m.Node("Add", {"past", "seq"}, {"total"});
  Counted(m, "past", "total", "places of queries");
  Counted(m, "zero", "total", "places of keys");
  m.Ints("rows alone", {-1, 1});
  m.Node("Reshape", {"places of queries", "rows alone"}, {"rows"});
  m.Node("LessOrEqual", {"places of keys", "rows"}, {"sees"});
  m.Node("Where", {"sees", "scores", "lowest"}, {"masked"});
}

// A square of the new ones beside what all of them see.
void MaskByParts(ModelBuilder& m) {
  Lowest(m);
  AsVector(m, "past");
  Axis(m.Node("Concat", {"seqs", "seqs"}, {"square"}), 0);
  Axis(m.Node("Concat", {"seqs", "pasts"}, {"left"}), 0);
  m.Node("ConstantOfShape", {"left"}, {"nothing"});
  m.Node("ConstantOfShape", {"square"}, {"zeros"});
  m.Node("Add", {"zeros", "lowest"}, {"all of it"});
  Number(m, "step", 1);
  ModelBuilder::SetInt(m.Node("Trilu", {"all of it", "step"}, {"future"}), "upper", 1);
  Axis(m.Node("Concat", {"nothing", "future"}, {"added"}), -1);
  m.Node("Add", {"scores", "added"}, {"masked"});
}

// As MaskByParts, with all of the mask written anew by its places.
void MaskWrittenInPlace(ModelBuilder& m) {
  MaskByParts(m);
  m.model.mutable_graph()->mutable_node()->RemoveLast();
  Number(m, "zero", 0);
  m.Ints("column alone", {-1, 1});
  m.Ints("line alone", {-1});
  m.Ints("names", {-1});
  for (const auto& [name, axis, shape] : {std::tuple("row", 0, "column alone"), {"column", 1, "line alone"}}) {
    const std::string of = name;
    Length(m, of + " count", "added", axis);
    Counted(m, "zero", of + " count", of + " numbers");
    m.Node("Reshape", {of + " numbers", shape}, {of + " lies"});
  }
  m.Node("Add", {"row lies", "column lies"}, {"both"});
  m.Node("Shape", {"both"}, {"shape of both"});
  for (const char* name : {"row", "column"}) {
    const std::string of = name;
    m.Node("Expand", {of + " lies", "shape of both"}, {of + " spread"});
    m.Node("Unsqueeze", {of + " spread", "names"}, {of + " named"});
  }
  Axis(m.Node("Concat", {"row named", "column named"}, {"at"}), -1);
  m.Floats("half", {1}, {0.5});
  m.Node("Mul", {"added", "half"}, {"halved"});
  m.Node("ScatterND", {"added", "at", "halved"}, {"written"});
  m.Node("Add", {"scores", "written"}, {"masked"});
}

const std::map<std::string, DimLength> kRanges = {
    {"batch", DimLength(1, 2)}, {"past", DimLength(0, 4)}, {"seq", DimLength(1, 3)}};

TEST(OnnxRangeSum, ADecoderWithATriangle) { ExpectAsOfKnownLengths(Decoder(MaskByTriangle), kRanges); }
TEST(OnnxRangeSum, ADecoderWithPositions) { ExpectAsOfKnownLengths(Decoder(MaskByPositions), kRanges); }
TEST(OnnxRangeSum, ADecoderWithAMaskOfParts) { ExpectAsOfKnownLengths(Decoder(MaskByParts), kRanges); }
TEST(OnnxRangeSum, ADecoderWithAMaskThatIsWrittenInPlace) {
  ExpectAsOfKnownLengths(Decoder(MaskWrittenInPlace), kRanges);
}

// With zeros behind their end, for the product that follows, and in the order of the outputs that they are.
TEST(OnnxRangeSum, OneKernelPutsWhatIsNewBehindACache) {
  absl::StatusOr<Graph> g =
      Decoder(MaskByPositions).Import({.dims = {{"batch", 1}, {"past", DimLength(0, 4)}, {"seq", DimLength(1, 3)}}});
  ASSERT_TRUE(g.ok()) << g.status();
  ASSERT_TRUE(Optimize(*g, Target{}).ok());
  std::vector<std::string> makers;  // of keys and values, as large as they may be
  const Aliases aliases(*g);
  for (const Group& group : g->groups) {
    const Extracted kernel = *Extract(*g, group);
    const TensorType& type = g->values[static_cast<size_t>(kernel.output)].type;
    const bool all = IsFloat(type.dtype) && NumElements(type.shape) == kHeads * (4 + 3) * kSize;
    if (all && !aliases.Have(group)) makers.push_back(kernel.workload.calls[0].op);
  }
  // What is moved, what is chosen and what is zero is one kernel, and none turns the order.
  EXPECT_THAT(makers, ::testing::UnorderedElementsAre("gather", "compact", "gather", "compact"));
}

TEST(OnnxRangeSum, ADecoderOfOneNewTokenOrOfOneExample) {
  const ModelBuilder m = Decoder(MaskByTriangle);
  ExpectAsOfKnownLengths(m, {{"batch", DimLength(1, 2)}, {"past", DimLength(1, 4)}, {"seq", 1}});
  ExpectAsOfKnownLengths(m, {{"batch", 1}, {"past", DimLength(0, 4)}, {"seq", DimLength(1, 3)}});
  ExpectAsOfKnownLengths(m, {{"batch", 1}, {"past", 3}, {"seq", DimLength(1, 3)}});
}

// The mask's length has a name of its own, and so has its batch.
TEST(OnnxRangeSum, ADecoderWhoseMaskHasNamesOfItsOwn) {
  ModelBuilder m = Decoder(MaskByTriangle);
  for (onnx::ValueInfoProto& input : *m.model.mutable_graph()->mutable_input()) {
    if (input.name() != "mask") continue;
    auto* shape = input.mutable_type()->mutable_tensor_type()->mutable_shape();
    shape->mutable_dim(0)->set_dim_param("rows");
    shape->mutable_dim(1)->set_dim_param("total");
  }
  std::map<std::string, DimLength> ranges = kRanges;
  ranges.insert({{"rows", DimLength(1, 2)}, {"total", DimLength(1, 7)}});
  ExpectAsOfKnownLengths(m, ranges, [](const Lengths& lengths) {
    return lengths.at("rows") == lengths.at("batch") && lengths.at("total") == lengths.at("past") + lengths.at("seq");
  });
}

// Whether a run says that lengths differ where these inputs, of one number each, are so.
bool Differ(const Graph& g, const Lengths& told) {
  std::vector<NDArray> inputs;
  for (const ValueId id : g.inputs) {
    const Value& v = g.values[static_cast<size_t>(id)];
    inputs.emplace_back(v.type.dtype, v.type.shape);
    if (told.contains(v.name)) inputs.back().Set(0, static_cast<double>(told.at(v.name)));
  }
  const auto outputs = RunReference(g, inputs);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return outputs.ok() && SaysThatLengthsDiffer(g, *outputs);
}

// A mask of another length than cache and new tokens have is an error of the run.
TEST(OnnxRangeSum, AnInputThatIsNoSumIsTold) {
  const absl::StatusOr<Graph> g = Decoder(MaskByTriangle).Import({.dims = kRanges});
  ASSERT_TRUE(g.ok()) << g.status();
  for (const int64_t mask : {4, 5, 6}) {
    const Lengths told = {
        {"length of batch", 1}, {"length of past", 3}, {"length of seq", 2}, {"length of past + seq", mask}};
    EXPECT_EQ(Differ(*g, told), mask != 5) << mask;
  }
}

// Queries, of 4 heads that share 2 of keys and values, behind a cache.
void Operands(ModelBuilder& m, const std::string& past) {
  Input(m, "q", {"batch", "seq", std::to_string(4 * kSize)});
  for (const char* name : {"k", "v"}) Input(m, name, {"batch", "seq", std::to_string(2 * kSize)});
  for (const char* name : {"past k", "past v"}) Input(m, name, {"batch", "2", past, std::to_string(kSize)});
}
void Results(ModelBuilder& m, onnx::NodeProto& node, const std::vector<std::pair<std::string, int64_t>>& attributes) {
  for (const char* name : {"y", "all k", "all v"}) m.Output(name);
  for (const auto& [name, value] : attributes) ModelBuilder::SetInt(node, name, value);
}

// ONNX's own attention, whose queries stand behind the cache.
TEST(OnnxRangeSum, AnAttentionBehindACache) {
  for (const bool masked : {false, true}) {
    for (const auto& [name, value] : {std::pair("is_causal", 0), {"is_causal", 1}, {"left_window_size", 2}}) {
      SCOPED_TRACE(std::string(name) + (masked ? ", masked " : " ") + std::to_string(value));
      ModelBuilder m(25);
      Operands(m, "past");
      if (masked) Input(m, "mask", {"seq", "past + seq"}, onnx::TensorProto::BOOL);
      onnx::NodeProto& node =
          m.Node("Attention", {"q", "k", "v", masked ? "mask" : "", "past k", "past v"}, {"y", "all k", "all v"});
      Results(m, node, {{"q_num_heads", 4}, {"kv_num_heads", 2}, {name, value}});
      ExpectAsOfKnownLengths(m, kRanges);
    }
  }
}

// The attention of language models: examples may have fewer steps than others, and the mask tells how many all have.
ModelBuilder Language(const std::string& past, const std::string& all,
                      const std::vector<std::pair<std::string, int64_t>>& attributes = {}) {
  ModelBuilder m(17);
  Operands(m, past);
  Input(m, "mask", {"batch", all}, onnx::TensorProto::INT64);
  Input(m, "short", {"batch"}, onnx::TensorProto::INT64);
  Length(m, "total", "mask", 1);
  Number(m, "one", 1);
  m.Node("Sub", {"total", "one"}, {"last"});
  m.Node("Sub", {"last", "short"}, {"lengths"});
  for (const char* name : {"total", "lengths"})
    ModelBuilder::SetInt(m.Node("Cast", {name}, {std::string(name) + " cast"}), "to", onnx::TensorProto::INT32);
  Weights(m, "cosines", {16, kSize / 2});
  Weights(m, "sines", {16, kSize / 2});
  onnx::NodeProto& node = m.Node("GroupQueryAttention",
                                 {"q", "k", "v", "past k", "past v", "lengths cast", "total cast", "cosines", "sines"},
                                 {"y", "all k", "all v"});
  node.set_domain("com.microsoft");
  Results(m, node, {{"num_heads", 4}, {"kv_num_heads", 2}});
  for (const auto& [name, value] : attributes) ModelBuilder::SetInt(node, name, value);
  return m;
}

TEST(OnnxRangeSum, QueriesOfGroupsBehindACacheThatGrows) {
  ExpectAsOfKnownLengths(Language("past", "past + seq"), kRanges);
  ExpectAsOfKnownLengths(Language("past", "past + seq", {{"do_rotary", 1}}), kRanges);
  ExpectAsOfKnownLengths(Language("past", "past + seq", {{"do_rotary", 1}, {"local_window_size", 2}}), kRanges);
  ExpectAsOfKnownLengths(Language("past", "past + seq", {{"smooth_softmax", 1}}), kRanges);
  ExpectAsOfKnownLengths(Language("past", "past + seq", {{"do_rotary", 1}}),
                         {{"batch", 2}, {"past", DimLength(0, 4)}, {"seq", 1}});
  ExpectAsOfKnownLengths(Language("0", "seq", {{"do_rotary", 1}}), {{"batch", 2}, {"seq", DimLength(1, 4)}});
}

TEST(OnnxRangeSum, QueriesOfGroupsInACacheWithRoomForMore) {
  ExpectAsOfKnownLengths(Language("6", "total", {{"do_rotary", 1}}),
                         {{"batch", DimLength(1, 2)}, {"seq", DimLength(1, 3)}, {"total", DimLength(3, 6)}});
}

// Keys that are made of what attention gave: there are no more of them than steps, though the cache takes all in.
TEST(OnnxRangeSum, KernelsBehindAnAttentionLeaveOut) {
  ModelBuilder m = Language("past", "past + seq", {{"do_rotary", 1}});
  Weights(m, "w", {4 * kSize, 2 * kSize});
  m.Node("MatMul", {"y", "w"}, {"next"});
  onnx::NodeProto& node =
      m.Node("GroupQueryAttention", {"q", "next", "next", "past k", "past v", "lengths cast", "total cast"}, {"z"});
  node.set_domain("com.microsoft");
  m.Output("z");
  for (const auto& [name, value] : {std::pair("num_heads", 4), {"kv_num_heads", 2}})
    ModelBuilder::SetInt(node, name, value);
  absl::StatusOr<Graph> g = m.Import({.dims = {{"batch", 1}, {"past", DimLength(1, 8)}, {"seq", DimLength(2, 8)}}});
  ASSERT_TRUE(g.ok()) << g.status();
  ASSERT_TRUE(Optimize(*g, Target{}).ok());
  std::vector<Product> products = ProductsOf(*g);
  std::erase_if(products, [](const Product& p) { return p.shape != Shape{1, 8, 2 * kSize}; });
  ASSERT_EQ(products.size(), 1u);
  EXPECT_EQ(std::ranges::count(products[0].behind, 0, &Behind::extent), 1) << "seq is the first of the ranges";
}

// Positions that are told one by one, or where the first step alone is told.
TEST(OnnxRangeSum, EmbeddingsOfPositions) {
  for (const bool by_heads : {false, true}) {
    for (const bool each : {true, false}) {
      ModelBuilder m(17);
      Input(m, "x",
            by_heads ? std::vector<std::string>{"batch", "2", "seq", "4"}
                     : std::vector<std::string>{"batch", "seq", "8"});
      Input(m, "at", each ? std::vector<std::string>{"batch", "seq"} : std::vector<std::string>{"1"},
            onnx::TensorProto::INT64);
      Weights(m, "cosines", {16, kSize / 2});
      Weights(m, "sines", {16, kSize / 2});
      onnx::NodeProto& node = m.Node("RotaryEmbedding", {"x", "at", "cosines", "sines"}, {"y"});
      node.set_domain("com.microsoft");
      m.Output("y");
      ExpectAsOfKnownLengths(m, {{"batch", DimLength(1, 2)}, {"seq", DimLength(1, 4)}});
    }
  }
}

TEST(OnnxRangeSum, ATotalLengthThatDoesNotFitIsTold) {
  const absl::StatusOr<Graph> grows =
      Language("past", "total")
          .Import({.dims = {
                       {"batch", 1}, {"past", DimLength(0, 4)}, {"seq", DimLength(1, 3)}, {"total", DimLength(1, 7)}}});
  ASSERT_TRUE(grows.ok()) << grows.status();
  for (const int64_t total : {4, 5, 6}) {
    EXPECT_EQ(Differ(*grows, {{"length of past", 3}, {"length of seq", 2}, {"length of total", total}}), total != 5)
        << total;
  }
  const absl::StatusOr<Graph> has_room =
      Language("6", "total").Import({.dims = {{"batch", 1}, {"seq", DimLength(1, 3)}, {"total", DimLength(1, 6)}}});
  ASSERT_TRUE(has_room.ok()) << has_room.status();
  for (const int64_t total : {1, 2, 6})
    EXPECT_EQ(Differ(*has_room, {{"length of seq", 2}, {"length of total", total}}), total < 2) << total;
}

// x and z, whose first axes are n and m, and what becomes of them.
ModelBuilder Pair(const std::function<void(ModelBuilder&)>& add) {
  ModelBuilder m(17);
  Input(m, "x", {"n", "3"});
  Input(m, "z", {"m", "3"});
  for (const auto& [name, of] : {std::pair("n", "x"), {"m", "z"}}) {
    Length(m, name, of, 0);
    AsVector(m, name);
  }
  Number(m, "step", 1);
  Number(m, "two", 2);
  add(m);
  m.Output("y");
  return m;
}
void ExpectPair(const std::function<void(ModelBuilder&)>& add) {
  ExpectAsOfKnownLengths(Pair(add), {{"n", DimLength(1, 4)}, {"m", DimLength(0, 3)}});
}

TEST(OnnxRangeSum, PartsOneBehindAnother) {
  ExpectPair([](ModelBuilder& m) {
    m.Floats("w", {2, 3}, {1, 2, 3, 4, 5, 6});
    Axis(m.Node("Concat", {"w", "x", "w", "z", "x", "w"}, {"all"}), 0);
    Axis(m.Node("Softmax", {"all"}, {"y"}), 0);
  });
  ExpectPair([](ModelBuilder& m) {
    Axis(m.Node("Concat", {"z", "x"}, {"one"}), 0);
    Axis(m.Node("Concat", {"x", "z"}, {"other"}), 0);
    m.Node("Add", {"one", "other"}, {"y"});
  });
}

// Rows that are gathered behind others are made as far as there are any, though each is made of what has a
// place behind the end, too.
TEST(OnnxRangeSum, NoMoreOfAPartIsMadeThanThereIs) {
  const ModelBuilder m = Pair([](ModelBuilder& m) {
    Weights(m, "w", {3, 3});
    Weights(m, "table", {11, 3});
    m.Node("MatMul", {"x", "w"}, {"product"});
    m.Node("Add", {"n", "m"}, {"both"});
    Counted(m, "m", "both", "places");
    m.Node("Gather", {"table", "places"}, {"of places"});
    m.Node("Add", {"product", "of places"}, {"rows"});
    Axis(m.Node("Concat", {"z", "rows"}, {"y"}), 0);
  });
  absl::StatusOr<Graph> g = m.Import({.dims = {{"n", DimLength(1, 8)}, {"m", DimLength(1, 3)}}});
  ASSERT_TRUE(g.ok()) << g.status();
  ASSERT_TRUE(Optimize(*g, Target{}).ok());
  const std::vector<Product> products = ProductsOf(*g);
  ASSERT_EQ(products.size(), 1u);
  EXPECT_EQ(std::ranges::count(products[0].behind, 0, &Behind::extent), 1) << "n is the first of the ranges";
}

TEST(OnnxRangeSum, NumbersBetweenRanges) {
  ExpectPair([](ModelBuilder& m) {
    m.Node("Add", {"n", "m"}, {"both"});
    m.Node("Add", {"both", "two"}, {"end"});
    Counted(m, "m", "end", "from m");
    Counted(m, "step", "n", "from one");
    Counted(m, "n", "both", "behind n");
    Axis(m.Node("Concat", {"from m", "from one", "behind n"}, {"y"}), 0);
  });
}

// Numbers of a type from one to before another by steps, with one more behind them: there may be none.
void Steps(ModelBuilder& m, const std::string& from, const std::string& to, const std::string& by, int type) {
  for (const auto& [name, value] : {std::pair("none", 0), {"three", 3}, {"back", -1}, {"two back", -2}})
    Number(m, name, value);
  m.Node("Add", {"n", "m"}, {"both"});
  m.Node("Sub", {"n", "step"}, {"last"});
  for (const std::string& name : {from, to, by})
    ModelBuilder::SetInt(m.Node("Cast", {name}, {name + " of the type"}), "to", type);
  m.Node("Range", {from + " of the type", to + " of the type", by + " of the type"}, {"numbers"});
  ModelBuilder::SetInt(m.Node("Cast", {"numbers"}, {"floats"}), "to", onnx::TensorProto::FLOAT);
  m.Floats("half", {1}, {0.5});
  Axis(m.Node("Concat", {"floats", "half"}, {"y"}), 0);
}

TEST(OnnxRangeSum, NumbersBySteps) {
  const std::tuple<const char*, const char*, const char*> all[] = {
      {"none", "n", "step"},    {"none", "m", "two"},         {"n", "both", "two"},       {"three", "n", "step"},
      {"n", "three", "step"},   {"two", "both", "three"},     {"n", "m", "step"},         {"m", "n", "two"},
      {"last", "back", "back"}, {"both", "m", "two back"},    {"three", "n", "two back"}, {"m", "n", "back"},
      {"n", "two", "back"},     {"both", "none", "two back"},
  };
  for (const int type : {onnx::TensorProto::FLOAT, onnx::TensorProto::INT32, onnx::TensorProto::INT64}) {
    for (const auto& [from, to, by] : all) {
      SCOPED_TRACE(::testing::Message() << from << " to " << to << " by " << by << " of type " << type);
      const std::string first = from, end = to, step = by;
      ExpectPair([&](ModelBuilder& m) { Steps(m, first, end, step, type); });
    }
  }
}

// As many as slices from there on: one value tells both.
TEST(OnnxRangeSum, NumbersOfWhatASliceLeaves) {
  ExpectPair([](ModelBuilder& m) {
    Counted(m, "two", "n", "numbers");
    ModelBuilder::SetInt(m.Node("Cast", {"numbers"}, {"floats"}), "to", onnx::TensorProto::FLOAT);
    m.Ints("columns alone", {-1, 1});
    m.Node("Reshape", {"floats", "columns alone"}, {"rows"});
    m.Ints("from two", {2});
    m.Ints("end", {std::numeric_limits<int64_t>::max()});
    m.Ints("axis", {0});
    m.Node("Slice", {"x", "from two", "end", "axis"}, {"rest"});
    m.Node("Add", {"rest", "rows"}, {"y"});
  });
}

TEST(OnnxRangeSum, PartsBetweenRanges) {
  const auto parts = [](ModelBuilder& m) {
    Axis(m.Node("Concat", {"z", "x"}, {"all"}), 0);
    m.Node("Add", {"n", "m"}, {"both"});
    AsVector(m, "both");
    m.Node("Add", {"m", "step"}, {"next"});
    AsVector(m, "next");
    m.Ints("end", {std::numeric_limits<int64_t>::max()});
    m.Ints("axis", {0});
    m.Node("Slice", {"all", "ms", "boths", "axis"}, {"x again"});
    m.Node("Slice", {"all", "ms", "end", "axis"}, {"and again"});
    m.Node("Slice", {"all", "ms", "nexts", "axis"}, {"its first"});
    m.Node("Neg", {"n"}, {"back"});
    AsVector(m, "back");
    m.Node("Slice", {"all", "backs", "end", "axis"}, {"as its last"});
    m.Node("Sub", {"x again", "its first"}, {"less"});
    m.Node("Mul", {"less", "and again"}, {"most"});
    m.Node("Mul", {"most", "as its last"}, {"y"});
  };
  ExpectPair(parts);
}

// "y", what the columns of a slice of x, of z, of both, "all", or of the three rows "w" add up to.
void SumOfSlice(ModelBuilder& m, const std::string& from, const std::string& begin, const std::string& end) {
  Axis(m.Node("Concat", {"z", "x"}, {"all"}), 0);
  m.Floats("w", {3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  m.Node("Add", {"n", "m"}, {"both"});
  m.Node("Add", {"both", "two"}, {"more"});
  m.Node("Neg", {"n"}, {"n back"});
  m.Node("Neg", {"m"}, {"m back"});
  for (const char* name : {"both", "more", "n back", "m back"}) AsVector(m, name);
  m.Ints("one", {1});
  m.Ints("end", {std::numeric_limits<int64_t>::max()});
  m.Ints("axis", {0});
  m.Node("Slice", {from, begin, end, "axis"}, {"slice"});
  m.Node("ReduceSum", {"slice", "axis"}, {"y"});
}

TEST(OnnxRangeSum, SlicesThatMayBeCutOffOrEmpty) {
  const std::tuple<const char*, const char*, const char*> slices[] = {
      {"all", "ms", "mores"}, {"x", "ms", "boths"},      {"w", "ns", "boths"},
      {"all", "ms", "one"},   {"all", "m backs", "end"},
  };
  for (const auto& [from, begin, end] : slices) {
    SCOPED_TRACE(::testing::Message() << from << " from " << begin << " to " << end);
    ExpectPair([&](ModelBuilder& m) { SumOfSlice(m, from, begin, end); });
  }
}

// Between lengths of which none is known to be a part of the other: a run says if it is not.
TEST(OnnxRangeSum, SlicesBetweenLengthsThatHaveNothingInCommon) {
  const std::tuple<const char*, const char*, const char*> slices[] = {{"all", "ns", "ms"}, {"z", "n backs", "end"}};
  for (const auto& [from, begin, end] : slices) {
    SCOPED_TRACE(::testing::Message() << from << " from " << begin << " to " << end);
    const ModelBuilder m = Pair([&](ModelBuilder& model) { SumOfSlice(model, from, begin, end); });
    const std::map<std::string, DimLength> ranges = {{"n", DimLength(1, 4)}, {"m", DimLength(0, 3)}};
    ExpectAsOfKnownLengths(m, ranges, [](const Lengths& lengths) { return lengths.at("n") <= lengths.at("m"); });
    const absl::StatusOr<Graph> g = m.Import({.dims = ranges});
    ASSERT_TRUE(g.ok()) << g.status();
    EXPECT_TRUE(Differ(*g, {{"length of n", 3}, {"length of m", 2}}));
    EXPECT_FALSE(Differ(*g, {{"length of n", 2}, {"length of m", 3}}));
  }
}

TEST(OnnxRangeSum, WhatIsNotKnownToBeASumIsRefused) {
  const auto refused = [](const std::function<void(ModelBuilder&)>& add) {
    return std::string(Pair(add).Import({.dims = {{"n", DimLength(1, 4)}, {"m", DimLength(0, 3)}}}).status().message());
  };
  EXPECT_THAT(refused([](ModelBuilder& m) {
                m.Floats("half", {}, {0.5});
                ModelBuilder::SetInt(m.Node("Cast", {"n"}, {"end"}), "to", onnx::TensorProto::FLOAT);
                m.Node("Range", {"half", "end", "half"}, {"y"});
              }),
              HasSubstr("0.5, which is no integer"));
  EXPECT_THAT(refused([](ModelBuilder& m) {
                m.Node("Range", {"two", "n", "m"}, {"y"});
              }),
              HasSubstr("a bound depends"));
  EXPECT_THAT(refused([](ModelBuilder& m) {
                Number(m, "none", 0);
                m.Node("Range", {"two", "n", "none"}, {"y"});
              }),
              HasSubstr("does not end"));
  EXPECT_THAT(refused([](ModelBuilder& m) {
                Axis(m.Node("Concat", {"z", "x"}, {"all"}), 0);
                m.Node("Add", {"all", "x"}, {"y"});
              }),
              HasSubstr("add"));
}

// Reshaped to groups and back, as exporters write a GroupNormalization: nothing is moved.
TEST(OnnxRangeSum, GroupsOfChannelsAreNormalisedWhereTheyLie) {
  for (const int64_t groups : {1, 2}) {
    ModelBuilder m(17);
    m.Input("x", {2, 4, -1, -1});
    auto* dims = m.model.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
    dims->mutable_dim(2)->set_dim_param("h");
    dims->mutable_dim(3)->set_dim_param("w");
    m.Ints("groups", {0, groups, -1});
    m.Floats("scale", {groups}, std::vector<float>(static_cast<size_t>(groups), 2));
    m.Floats("bias", {groups}, std::vector<float>(static_cast<size_t>(groups), 0.5F));
    m.Node("Reshape", {"x", "groups"}, {"lines"});
    m.Node("InstanceNormalization", {"lines", "scale", "bias"}, {"even"});
    m.Node("Shape", {"x"}, {"shape"});
    m.Node("Reshape", {"even", "shape"}, {"y"});
    m.Output("y");
    const std::map<std::string, DimLength> ranges = {{"h", DimLength(2, 4)}, {"w", DimLength(3, 5)}};
    ExpectAsOfKnownLengths(m, ranges);
    const absl::StatusOr<Graph> g = m.Import({.dims = ranges});
    ASSERT_TRUE(g.ok()) << g.status();
    EXPECT_EQ(std::ranges::count(g->nodes, "gather", &Node::op), 0);
  }
}

}  // namespace
}  // namespace temper
