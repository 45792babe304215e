// Texts of attributes and workloads: canonical, reversible, and hashed to values that may never change.
#include <cmath>
#include <limits>

#include "base/hash.h"
#include "compiler/ops/template.h"
#include "gmock/gmock.h"
#include "ops_testing.h"

namespace temper {
namespace {

using ::testing::HasSubstr;

constexpr char kConv[] =
    "(f32[1,64,56,56]@0231, const f32[64,64,3,3], const f32[64,1,1]) "
    "conv2d(0,1; dilations=[1,1] group=1 pads=[1,1,1,1] strides=[1,1]) -> f32[1,64,56,56]@0231; "
    "add(3,2) -> f32[1,64,56,56]@0231; relu(4) -> f32[1,64,56,56]@0231; anchor=0";

TEST(Attrs, TextNamesValuesInOrder) {
  Attrs attrs = MakeAttrs(
      {{"pads", std::vector<int64_t>{1, 1}}, {"axis", int64_t{1}}, {"mode", std::string("same")}, {"eps", 1e-5}});
  EXPECT_EQ(Text(attrs), "axis=1 eps=1e-05 mode='same' pads=[1,1]");
}

TEST(Attrs, EveryKindOfValueSurvivesTheRoundTrip) {
  Attrs attrs = MakeAttrs({{"a", int64_t{0}},
                           {"b", 1.0},
                           {"c", std::numeric_limits<int64_t>::min()},
                           {"d", -0.1},
                           {"e", std::vector<int64_t>{}},
                           {"f", std::string("it's \\ \n)\" ;")},
                           {"g", std::numeric_limits<double>::infinity()},
                           {"h", -std::numeric_limits<double>::infinity()},
                           {"i", std::string()},
                           {"j", 1e300},
                           {"k_2", 3.4028234663852886e38},
                           {"l", std::vector<int64_t>{-1, 0, 7}}});
  absl::StatusOr<Attrs> parsed = ParseAttrs(Text(attrs));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, attrs) << Text(*parsed);
  EXPECT_EQ(*ParseAttrs(""), Attrs());
}

TEST(Attrs, RandomFloatsSurviveTheRoundTrip) {
  Rng rng(7);
  for (int i = 0; i < 2000; ++i) {
    double value;
    uint64_t bits = rng.Next();
    std::memcpy(&value, &bits, sizeof(value));
    if (std::isnan(value)) continue;
    Attrs attrs = MakeAttrs({{"x", value}});
    EXPECT_EQ(*ParseAttrs(Text(attrs)), attrs) << Text(attrs);
  }
}

TEST(Attrs, MalformedTextsAreRefused) {
  for (const char* text : {"axis", "axis=", "axis=1 axis=2", "mode='x", "pads=[1,", "pads=[1 2]", "a=1  b=2", "A=1",
                           "x=1.5.2", "x=--1", "a=1,"}) {
    EXPECT_FALSE(ParseAttrs(text).ok()) << text;
  }
}

TEST(TensorTypeText, NamesThePhysicalOrder) {
  EXPECT_EQ(Text(TensorType{DType::kI64, {}, {}}), "i64[]");
  TensorType type{DType::kF32, {1, 8, 4, 6}, {0, 2, 3, 1}};
  EXPECT_EQ(Text(type), "f32[1,8,4,6]@0231");
  EXPECT_EQ(type.PhysicalShape(), (Shape{1, 4, 6, 8}));
}

TEST(Workload, TextSurvivesTheRoundTrip) {
  for (const char* text :
       {kConv, "(f32[2,3]) relu(0) -> f32[2,3]; anchor=0",
        "(i64[], i64[5]) add(0,1) -> i64[5]; cast(2; to='f32') -> f32[5]; anchor=1",
        "(f32[4,8], const f32[8], f32[8]) layer_norm(0,1,_; axis=-1 epsilon=1e-12) -> f32[4,8]; anchor=0"}) {
    absl::StatusOr<Workload> w = ParseWorkload(text);
    ASSERT_TRUE(w.ok()) << w.status();
    EXPECT_EQ(Text(*w), text);
  }
}

TEST(Workload, AnIdentityOrderIsWrittenAsNone) {
  absl::StatusOr<Workload> w = ParseWorkload("(f32[2,3]@01) relu(0) -> f32[2,3]@01; anchor=0");
  ASSERT_TRUE(w.ok()) << w.status();
  EXPECT_EQ(Text(*w), "(f32[2,3]) relu(0) -> f32[2,3]; anchor=0");
}

TEST(Workload, MalformedOnesAreRefusedWithTheReason) {
  struct {
    const char* text;
    const char* reason;
  } cases[] = {
      {"(f32[2]) frobnicate(0) -> f32[2]; anchor=0", "unknown operator 'frobnicate'"},
      {"(f32[2]) relu(1) -> f32[2]; anchor=0", "argument 1 is not computed before it"},
      {"(f32[2]) relu(0) -> f32[3]; anchor=0", "computed f32[2]"},
      {"(f32[2]) relu(0) -> f64[2]; anchor=0", "computed f32[2]"},
      {"(f32[2]) relu(0; axis=1) -> f32[2]; anchor=0", "has no attribute 'axis'"},
      {"(f32[2]) relu(0,0) -> f32[2]; anchor=0", "takes 1 to 1 operands, got 2"},
      {"(f32[2]) relu(0) -> f32[2]; anchor=1", "anchor names no call"},
      {"(f32[2]) anchor=0", "anchor names no call"},
      {"(f32[0]) relu(0) -> f32[0]; anchor=0", "dimension out of range"},
      {"(f32[9999999999,9999999999,9999999999]) relu(0) -> f32[1]; anchor=0", "dimension out of range"},
      {"(f32[2,2]@00) relu(0) -> f32[2,2]; anchor=0", "not a permutation"},
      {"(f32[2,2]@0) relu(0) -> f32[2,2]; anchor=0", "not a permutation"},
      {"(q7[2]) relu(0) -> f32[2]; anchor=0", "unknown dtype"},
      {"(f32[2]) relu(0) -> f32[2]; anchor=0 more", "text after the workload"},
      {"", "expected '('"},
  };
  for (const auto& c : cases) {
    absl::StatusOr<Workload> w = ParseWorkload(c.text);
    ASSERT_FALSE(w.ok()) << c.text;
    EXPECT_THAT(std::string(w.status().message()), HasSubstr(c.reason)) << c.text;
  }
}

TEST(Workload, NoTextCrashesTheParser) {
  Rng rng(11);
  const std::string good = kConv;
  for (int i = 0; i < 5000; ++i) {
    std::string text = good;
    for (int edits = 1 + static_cast<int>(rng.Below(3)); edits > 0; --edits) {
      size_t at = static_cast<size_t>(rng.Below(static_cast<int64_t>(text.size())));
      if (rng.Below(2) == 0)
        text[at] = static_cast<char>(32 + rng.Below(95));
      else
        text.erase(at, 1 + static_cast<size_t>(rng.Below(5)));
    }
    absl::StatusOr<Workload> w = ParseWorkload(text);
    if (w.ok()) {
      EXPECT_TRUE(ParseWorkload(Text(*w)).ok()) << text;
    }
  }
}

// Records of years are found by these. A change here loses them all.
TEST(Workload, HashesNeverChange) {
  EXPECT_EQ(HashText(Hash(*ParseWorkload(kConv))), "163be2bf6323d0ee");
  EXPECT_EQ(
      HashText(Hash(*ParseWorkload("(f32[128,768], const f32[768,3072]) matmul(0,1) -> f32[128,3072]; anchor=0"))),
      "096307aaed336d5a");
  EXPECT_EQ(HashText(Hash(*ParseWorkload("(f32[1,12,128,128]) softmax(0; axis=-1) -> f32[1,12,128,128]; anchor=0"))),
            "62bb622dfed7b76e");
  EXPECT_EQ(HashText(Hash(*ParseWorkload("(f32[8]) clip(0; max=6.0 min=0.0) -> f32[8]; anchor=0"))),
            "4f28d40d141588ce");
}

TEST(Workload, AnchorTextLeavesTheEpilogueOut) {
  Workload w = *ParseWorkload(kConv);
  EXPECT_EQ(AnchorText(w),
            "(f32[1,64,56,56]@0231, const f32[64,64,3,3]) "
            "conv2d(0,1; dilations=[1,1] group=1 pads=[1,1,1,1] strides=[1,1]) -> f32[1,64,56,56]@0231; anchor=0");
}

TEST(Workload, AnchorTextTakesIntermediateResultsAsOperandsAndKeepsSharedOnes) {
  Workload w =
      *ParseWorkload("(const f32[4,4]) relu(0) -> f32[4,4]; matmul(1,1) -> f32[4,4]; relu(2) -> f32[4,4]; anchor=1");
  EXPECT_EQ(AnchorText(w), "(f32[4,4]) matmul(0,0) -> f32[4,4]; anchor=0");
}

TEST(Workload, DataMoversReadNoMoreThanTheyWrite) {
  // Three rows of the table and three indices, not the table.
  Workload gather = *ParseWorkload("(const f32[100,8], i64[3]) gather(0,1; axis=0) -> f32[3,8]; anchor=0");
  EXPECT_EQ(CompulsoryBytes(gather), 4 * 3 * 8 + 8 * 3 + 4 * 3 * 8);
  // Another call reads all of it.
  Workload both = *ParseWorkload(
      "(f32[4,8]) slice(0; axes=[0] ends=[1] starts=[0] steps=[1]) -> f32[1,8]; add(0,1) -> f32[4,8]; anchor=1");
  EXPECT_EQ(CompulsoryBytes(both), 4 * (4 * 8 + 4 * 8));
}

TEST(Workload, PaddingIsNoWork) {
  const Workload w = *ParseWorkload(
      "(f32[2,3,5,6], f32[4,3,3,3]) conv2d(0,1; dilations=[1,2] group=1 pads=[1,2,0,2] strides=[2,1]) -> "
      "f32[2,4,2,6]; anchor=0");
  // Down, one tap is above the image; across, one is beside it for the first two outputs and the last two.
  EXPECT_EQ(Flops(w), 2.0 * (2 * 4 * 3) * (2 * 3 - 1) * (6 * 3 - 4));
}

TEST(Workload, ReferenceRunsTheWholeProgram) {
  Workload w = *ParseWorkload(
      "(f32[2,2], const f32[2,2], f32[2]) matmul(0,1) -> f32[2,2]; add(3,2) -> f32[2,2]; relu(4) -> f32[2,2]; "
      "anchor=0");
  std::vector<NDArray> inputs = {Floats({2, 2}, {1, 2, 3, 4}), Floats({2, 2}, {1, -1, 0, 1}), Floats({2}, {1, -2})};
  absl::StatusOr<NDArray> result = RunReference(w, inputs);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(ValuesOf(*result), (std::vector<double>{2, 0, 4, 0}));
  EXPECT_EQ(Flops(w), 2 * 8 + 4 + 4);
  EXPECT_EQ(CompulsoryBytes(w), 4 * (4 + 4 + 2 + 4));
  inputs[2] = Floats({3}, {1, 2, 3});
  EXPECT_THAT(std::string(RunReference(w, inputs).status().message()), HasSubstr("input 2 is f32 3, expected f32[2]"));
  inputs.pop_back();
  EXPECT_FALSE(RunReference(w, inputs).ok());
}

TEST(Registry, NamesAreUniqueAndFound) {
  std::set<std::string_view> names;
  for (const OpDef& op : AllOps()) {
    EXPECT_TRUE(names.insert(op.name).second) << op.name;
    EXPECT_EQ(FindOp(op.name), &op);
    EXPECT_EQ(op.compute == nullptr, op.pattern == OpPattern::kOpaque) << op.name;
  }
  EXPECT_EQ(FindOp("frobnicate"), nullptr);
}

TEST(Registry, OperatorsFromOutsideJoinTheTable) {
  OpDef op = *FindOp("relu");
  op.name = "test_double";
  op.reference = [](const Attrs&, std::span<const NDArray> in, const TensorType&) -> absl::StatusOr<NDArray> {
    NDArray out = in[0].Clone();
    for (float& v : out.as<float>()) v *= 2;
    return out;
  };
  RegisterOp(op);
  Workload w = *ParseWorkload("(f32[2]) test_double(0) -> f32[2]; anchor=0");
  std::vector<NDArray> inputs = {Floats({2}, {3, -4})};
  EXPECT_EQ(ValuesOf(*RunReference(w, inputs)), (std::vector<double>{6, -8}));
}

}  // namespace
}  // namespace temper
