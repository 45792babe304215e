// Elements that masks choose, as exporters write masked_scatter, index_put and x[mask], of tensors of which only the
// run knows how long they are; and what is padded up to a number that is known.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/frontend/range_chain.h"

namespace temper {
namespace {

using testing::Array;
using testing::Axis;
using testing::ExpectArray;
using testing::ExpectAsOfKnownLengths;
using ::testing::HasSubstr;
using testing::kMost;
using testing::ModelBuilder;
using testing::ModelOf;
using testing::Permuted;
using testing::RangeChain;
using testing::Refusal;
using testing::ShapeLike;
using testing::TestName;
using testing::Weights;
using Ints = std::vector<int64_t>;

// Bools "mask", of elements of [2, n, 3] that stand first in their row and are more than `bound`: [2, n].
void MaskOfRows(ModelBuilder& m, float bound = 0) {
  m.Ints("front", {0});
  m.Ints("first", {0});
  m.Node("Squeeze", {"first"}, {"first_one"});
  Axis(m.Node("Gather", {"x", "first_one"}, {"firsts"}), 2);
  m.Floats("bound", {}, {bound});
  m.Node("Greater", {"firsts", "bound"}, {"mask"});
}
// "at": a row of indices each.
void IndicesOf(ModelBuilder& m, const char* mask) {
  m.Node("NonZero", {mask}, {"columns"});
  Permuted(m, "columns", "at", {1, 0});
}
// "count": how many indices there are, [1].
void CountOfIndices(ModelBuilder& m) {
  m.Node("Shape", {"at"}, {"shape_of_at"});
  m.Node("Gather", {"shape_of_at", "front"}, {"count"});
}
void CountOfMask(ModelBuilder& m) {
  ModelBuilder::SetInt(m.Node("Cast", {"mask"}, {"numbers"}), "to", onnx::TensorProto::INT64);
  ModelBuilder::SetInt(m.Node("ReduceSum", {"numbers"}, {"sum"}), "keepdims", 0);
  m.Node("Unsqueeze", {"sum", "front"}, {"count"});
}
void MaskedScatter(ModelBuilder& m, int64_t rows) {
  MaskOfRows(m);
  m.Ints("last", {-1});
  m.Node("Unsqueeze", {"mask", "last"}, {"beside"});
  m.Node("Shape", {"x"}, {"shape"});
  m.Node("Expand", {"beside", "shape"}, {"all"});
  IndicesOf(m, "all");
  CountOfIndices(m);
  Weights(m, "source", {rows, 3});
  m.Node("Reshape", {"source", "last"}, {"flat"});
  m.Node("Slice", {"flat", "front", "count", "front"}, {"updates"});
  m.Node("ScatterND", {"x", "at", "updates"}, {"y"});
}
void PutRows(ModelBuilder& m, bool counts_first, bool counts_mask, float bound) {
  MaskOfRows(m, bound);
  m.Ints("three", {3});
  if (counts_first) CountOfMask(m);
  IndicesOf(m, "mask");
  if (!counts_first && counts_mask) CountOfMask(m);
  if (!counts_mask) CountOfIndices(m);
  Axis(m.Node("Concat", {"count", "three"}, {"shape"}), 0);
  m.Floats("row", {3}, {7, 8, 9});
  m.Node("Expand", {"row", "shape"}, {"rows"});
  m.Node("ScatterND", {"x", "at", "rows"}, {"y"});
}
// "y": elements of "x" along an axis again and again, as often as "repeats" says: as repeat_interleave is exported.
void Repeated(ModelBuilder& m, int64_t axis) {
  m.Ints("zeros", {0});
  m.Ints("ones", {1});
  m.Ints("last", {-1});
  m.Node("Squeeze", {"zeros"}, {"zero"});
  m.Node("Squeeze", {"ones"}, {"one"});
  m.Node("CumSum", {"repeats", "zero"}, {"ends"});
  m.Node("Gather", {"ends", "last"}, {"end"});
  m.Node("Squeeze", {"end"}, {"all"});
  m.Node("Range", {"zero", "all", "one"}, {"places"});
  m.Node("Unsqueeze", {"places", "ones"}, {"rows"});
  m.Node("LessOrEqual", {"ends", "rows"}, {"over"});
  ModelBuilder::SetInt(m.Node("Cast", {"over"}, {"numbers"}), "to", onnx::TensorProto::INT64);
  ModelBuilder::SetInt(m.Node("ReduceSum", {"numbers", "ones"}, {"at"}), "keepdims", 0);
  Axis(m.Node("Gather", {"x", "at"}, {"y"}), axis);
}
// "repeats", [n], of x [n, 2]: what the first elements say, from 0 to 3.
void RepeatsOfFirst(ModelBuilder& m) {
  m.Floats("five", {}, {5});
  m.Floats("none", {}, {0});
  m.Floats("most", {}, {3});
  m.Ints("column", {0});
  m.Node("Squeeze", {"column"}, {"first"});
  Axis(m.Node("Gather", {"x", "first"}, {"firsts"}), 1);
  m.Node("Mul", {"firsts", "five"}, {"more"});
  m.Node("Round", {"more"}, {"whole"});
  m.Node("Clip", {"whole", "none", "most"}, {"within"});
  ModelBuilder::SetInt(m.Node("Cast", {"within"}, {"repeats"}), "to", onnx::TensorProto::INT64);
}
// To `total` of an axis, as torch.nn.functional.pad is exported.
void PadTo(ModelBuilder& m, const char* from, int64_t axis, int64_t rank, int64_t total) {
  m.Ints("axis", {axis});
  m.Ints("total", {total});
  m.Ints("end", {-std::numeric_limits<int64_t>::max()});
  m.Ints("zero", {0});
  m.Ints("back", {-1});
  m.Ints("pairs", {-1, 2});
  m.Node("Shape", {from}, {"shape_of_it"});
  m.Node("Gather", {"shape_of_it", "axis"}, {"there"});
  m.Node("Sub", {"total", "there"}, {"missing"});
  std::vector<std::string> parts(static_cast<size_t>(2 * rank), "zero");  // the last axis first, begin and end each
  parts[static_cast<size_t>(2 * (rank - 1 - axis) + 1)] = "missing";
  Axis(m.Node("Concat", parts, {"listed"}), 0);
  m.Node("Reshape", {"listed", "pairs"}, {"paired"});
  m.Node("Slice", {"paired", "back", "end", "zero", "back"}, {"turned"});
  Permuted(m, "turned", "by_side", {1, 0});
  m.Node("Reshape", {"by_side", "back"}, {"pads"});
  m.Floats("value", {}, {5});
  m.Node("Pad", {from, "pads", "value"}, {"y"});
}

const RangeChain kMaskChains[] = {
    {"as much room as the mask may have", {2, -1, 3}, [](ModelBuilder& m) { MaskedScatter(m, 2 * kMost); }},
    {"more room than that", {2, -1, 3}, [](ModelBuilder& m) { MaskedScatter(m, 3 * kMost); }},
    {"no more than the half may be", {1, -1, 3}, [](ModelBuilder& m) { MaskedScatter(m, kMost); }},
    {"a row where a mask holds", {2, -1, 3}, [](ModelBuilder& m) { PutRows(m, false, false, 0); }},
    {"a row, as often as the mask holds", {2, -1, 3}, [](ModelBuilder& m) { PutRows(m, false, true, 0); }},
    {"a row, as often as was counted before", {2, -1, 3}, [](ModelBuilder& m) { PutRows(m, true, true, 0); }},
    {"a row nowhere", {2, -1, 3}, [](ModelBuilder& m) { PutRows(m, true, true, 9); }},
    {"a row everywhere", {2, -1, 3}, [](ModelBuilder& m) { PutRows(m, true, true, -9); }},
    {"rows where a mask holds",
     {2, -1, 3},
     [](ModelBuilder& m) {
       MaskOfRows(m);
       IndicesOf(m, "mask");
       m.Node("GatherND", {"x", "at"}, {"rows"});
       ModelBuilder::SetInt(m.Node("ReduceSum", {"rows", "front"}, {"y"}), "keepdims", 0);
     }},
    {"slices as long as there is",
     {2, -1},
     [](ModelBuilder& m) {
       m.Ints("both", {1, -2, 1});
       m.Ints("column", {3, 1});
       m.Node("Reshape", {"both", "column"}, {"at"});
       m.Node("GatherND", {"x", "at"}, {"y"});
     }},
    {"the last one of each",
     {-1, 4, 3},
     [](ModelBuilder& m) {
       m.Ints("last", {-1});
       ShapeLike(m, "shape", {-1, 1});
       m.Node("Expand", {"last", "shape"}, {"at"});
       ModelBuilder::SetInt(m.Node("GatherND", {"x", "at"}, {"y"}), "batch_dims", 1);
     }},
    {"an element from the end",
     {2, -1},
     [](ModelBuilder& m) {
       m.Ints("place", {0, -1, 1, -2});
       m.Ints("pairs", {2, 2});
       m.Node("Reshape", {"place", "pairs"}, {"at"});
       m.Node("GatherND", {"x", "at"}, {"y"});
     }},
    {"a row at the end replaced",
     {-1, 3},
     [](ModelBuilder& m) {
       m.Ints("place", {-1});
       m.Ints("one", {1, 1});
       m.Node("Reshape", {"place", "one"}, {"at"});
       m.Floats("row", {1, 3}, {7, 8, 9});
       m.Node("ScatterND", {"x", "at", "row"}, {"y"});
     }},
    {"a line as long as the others replaced",
     {2, -1},
     [](ModelBuilder& m) {
       m.Ints("place", {1});
       m.Ints("one", {1, 1});
       m.Node("Reshape", {"place", "one"}, {"at"});
       m.Ints("front", {0});
       m.Node("ReduceSum", {"x", "front"}, {"line"});
       m.Node("ScatterND", {"x", "at", "line"}, {"y"});
     }},
    {"the largest of each",
     {-1, 5, 2},
     [](ModelBuilder& m) {
       m.Ints("three", {3});
       Axis(m.Node("TopK", {"x", "three"}, {"values", "places"}), 1);
       ModelBuilder::SetInt(m.Node("Cast", {"places"}, {"numbers"}), "to", onnx::TensorProto::FLOAT);
       m.Node("Add", {"values", "numbers"}, {"y"});
     }},
    {"repeats that are added up",
     {-1, 2},
     [](ModelBuilder& m) {
       RepeatsOfFirst(m);
       Repeated(m, 0);
       m.model.mutable_graph()->mutable_node(m.model.graph().node_size() - 1)->set_output(0, "again");
       m.Node("ReduceSum", {"again", "zeros"}, {"y"});
     }},
    {"padded up to a number", {2, -1, 3}, [](ModelBuilder& m) { PadTo(m, "x", 1, 3, 9); }},
    {"padded up to the most", {2, -1, 3}, [](ModelBuilder& m) { PadTo(m, "x", 1, 3, kMost); }},
    {"some of them padded up to a number",
     {2, -1, 3},
     [](ModelBuilder& m) {
       MaskOfRows(m);
       IndicesOf(m, "mask");
       m.Node("GatherND", {"x", "at"}, {"rows"});
       PadTo(m, "rows", 0, 2, 2 * kMost - 3);
     }},
};

class RangeOfMasks : public ::testing::TestWithParam<RangeChain> {};

TEST_P(RangeOfMasks, GivesWhatItGivesOfAKnownLength) { ExpectAsOfKnownLengths(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Chains, RangeOfMasks, ::testing::ValuesIn(kMaskChains),
                         [](const auto& info) { return TestName(info.param.name); });

TEST(OnnxMasks, UpdatesGoInTheirOrderToWhereTheMaskHolds) {
  ModelBuilder m(17);
  m.Input("x", {2, 2, 3});
  MaskedScatter(m, 3);
  m.Output("y");
  for (auto& tensor : *m.model.mutable_graph()->mutable_initializer()) {
    if (tensor.name() != "source") continue;
    for (int i = 0; i < 9; ++i) tensor.set_float_data(i, static_cast<float>(10 + i));
  }
  ExpectArray(m.Run({Array({2, 2, 3}, {1, 2, 3, -4, 5, 6, -7, 8, 9, 10, 11, 12})})[0], {2, 2, 3},
              {10, 11, 12, -4, 5, 6, -7, 8, 9, 13, 14, 15});
  ExpectArray(m.Run({Array({2, 2, 3}, {-1, 2, 3, -4, 5, 6, -7, 8, 9, -1, 11, 12})})[0], {2, 2, 3},
              {-1, 2, 3, -4, 5, 6, -7, 8, 9, -1, 11, 12});
  ExpectArray(m.Run({Array({2, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, -1, 11, 12})})[0], {2, 2, 3},
              {10, 11, 12, 13, 14, 15, 16, 17, 18, -1, 11, 12});
}

TEST(OnnxMasks, WhatIsMissingIsPadded) {
  ModelBuilder m(17);
  m.Input("x", {4, 2});
  m.Input("c", {4}, onnx::TensorProto::BOOL);
  Axis(m.Node("Compress", {"x", "c"}, {"some"}), 0);
  m.Ints("whole", {2, 0});
  Axis(m.Node("Split", {"some", "whole"}, {"columns", "nothing"}), 1);  // as detectors without masks have it
  Axis(m.Node("Concat", {"nothing", "columns"}, {"both"}), 1);
  PadTo(m, "both", 0, 2, 3);
  m.Output("y");
  NDArray c(DType::kBool, {4});
  const NDArray x = Array({4, 2}, {1, 2, 3, 4, 6, 7, 8, 9});
  ExpectArray(m.Run({x, c})[0], {3, 2}, {5, 5, 5, 5, 5, 5});
  c.Set(2, 1);
  ExpectArray(m.Run({x, c})[0], {3, 2}, {6, 7, 5, 5, 5, 5});
  c.Set(0, 1);
  c.Set(3, 1);
  ExpectArray(m.Run({x, c})[0], {3, 2}, {1, 2, 6, 7, 8, 9});
}

TEST(OnnxMasks, ElementsAreRepeatedWhereThereIsAMost) {
  for (const bool bounded : {true, false}) {
    ModelBuilder m(17);
    m.Input("x", {2, 3});
    m.Input("given", {3}, onnx::TensorProto::INT64);
    m.Ints("limits", {0, 4});
    m.Node("Split", {"limits"}, {"low", "high"});
    m.Node("Squeeze", {"low"}, {"least"});
    m.Node("Squeeze", {"high"}, {"most"});
    m.Node("Clip", {"given", "least", bounded ? "most" : ""}, {"repeats"});
    Repeated(m, 1);
    m.Output("y");
    if (!bounded) {
      EXPECT_THAT(Refusal(m), HasSubstr("depends on the model's inputs"));
      continue;
    }
    const absl::StatusOr<Graph> g = m.Import();
    ASSERT_TRUE(g.ok()) << g.status();
    for (const Ints& repeats : {Ints{2, 0, 1}, {0, 0, 0}, {4, 4, 4}, {9, -3, 1}}) {
      NDArray given(DType::kI64, {3});
      Ints columns;
      for (int64_t i = 0; i < 3; ++i) {
        given.Set(i, static_cast<double>(repeats[static_cast<size_t>(i)]));
        columns.insert(columns.end(), static_cast<size_t>(std::clamp<int64_t>(repeats[static_cast<size_t>(i)], 0, 4)),
                       i);
      }
      const auto all = RunReference(*g, std::vector<NDArray>{Array({2, 3}, {1, 2, 3, 4, 5, 6}), given});
      ASSERT_TRUE(all.ok()) << all.status();
      ASSERT_EQ(g->extents.size(), 1u);
      const int64_t count = (*all)[static_cast<size_t>(g->extents[0].told_by)].as<int64_t>()[0];
      ASSERT_EQ(count, std::ssize(columns));
      for (int64_t i = 0; i < 2 * count; ++i)  // lines lie one behind another
        EXPECT_EQ((*all)[0].At(i), 1 + static_cast<double>(columns[static_cast<size_t>(i % count)] + i / count * 3))
            << i;
    }
  }
}

TEST(OnnxMasks, PadsThatMakeUpNoKnownNumber) {
  const auto refusal = [](const char* subtrahend, const char* mode) {
    ModelBuilder m(17);
    m.Input("x", {4});
    m.Input("c", {4}, onnx::TensorProto::BOOL);
    m.Input("d", {4}, onnx::TensorProto::BOOL);
    m.Ints("total", {4});
    m.Ints("zero", {0});
    m.Node("Compress", {"x", "c"}, {"some"});
    m.Node("Compress", {"x", "d"}, {"others"});
    m.Node("Shape", {"some"}, {"own"});
    m.Node("Shape", {"others"}, {"other"});
    m.Node("Sub", {"total", subtrahend}, {"missing"});
    Axis(m.Node("Concat", {"zero", "missing"}, {"pads"}), 0);
    ModelBuilder::SetString(m.Node("Pad", {"some", "pads"}, {"y"}), "mode", mode);
    m.Output("y");
    return Refusal(m);
  };
  EXPECT_EQ(refusal("own", "constant"), "");
  EXPECT_EQ(refusal("other", "constant"), "");  // which has another length for each
  EXPECT_THAT(refusal("own", "edge"), HasSubstr("as many pads as only the run knows"));
}

}  // namespace
}  // namespace temper
