// Packages of models with ranges: what each of the lengths has, whatever a run of the longest has left in memory.
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <span>

#include "compiler/graph/pipeline.h"
#include "compiler/package/manifest.h"
#include "compiler/package/package.h"
#include "tests/graph/builder.h"

namespace temper {
namespace {

using testing::Builder;

class RangePackageTest : public ::testing::Test {
 protected:
  RangePackageTest() : dir_(::testing::TempDir() + "/temper_range_package_test_" + std::to_string(getpid())) {}
  void TearDown() override { std::filesystem::remove_all(dir_); }

  const std::string dir_;
};

// Of the package's kernels, as its manifest tells them.
bool AnyKernelHas(const std::string& dir, const char* key, const nlohmann::json& value) {
  const absl::StatusOr<nlohmann::json> manifest = ReadManifest(dir);
  EXPECT_TRUE(manifest.ok()) << manifest.status();
  return manifest.ok() && std::ranges::any_of((*manifest)["kernels"], [&](const nlohmann::json& kernel) {
           return kernel.contains(key) && kernel[key] == value;
         });
}

// The first `count` along an axis.
NDArray FirstAlong(const NDArray& a, size_t axis, int64_t count) {
  Shape shape = a.shape();
  const int64_t slice = NumElements(std::span(shape).subspan(axis + 1));
  const int64_t most = std::exchange(shape[axis], count) * slice;
  NDArray first(a.dtype(), shape);
  for (int64_t i = 0; i < first.size(); ++i) first.Set(i, a.At(i / (count * slice) * most + i % (count * slice)));
  return first;
}

// A graph of one input, f32 with a range along an axis, whose extent is its hidden input. If `told`, the extent says
// where its only result ends. What each of the lengths has is what the reference has, whatever a run of the largest has
// left in memory.
void ExpectNothingOfStaleMemory(Graph g, size_t axis, const std::vector<int64_t>& lengths, const std::string& dir,
                                bool told_result = true) {
  if (told_result) g.extents = {{0, static_cast<int64_t>(axis), 1}};
  g.hidden = 1;
  g.input_extents = {{0, static_cast<int64_t>(axis), 1, std::ranges::min(lengths)}};
  g.hidden_inputs = 1;
  const Graph given = g;
  const Shape most = g.values[static_cast<size_t>(g.inputs[0])].type.shape;
  ASSERT_TRUE(Optimize(g, Target{}).ok());
  for (const char* name : {"host", "llvm:haswell", "interpreter"}) {
    Target target = *ParseTarget(name);
    const bool compiled = target.generator == "llvm";
    if (compiled && !CheckRunsHere(target).ok()) continue;
    if (target.cpu() != nullptr) target.cpu()->threads = compiled ? 2 : 1;
    ASSERT_TRUE(WritePackage(g, target, ChooseDefault, dir).ok());
    const absl::StatusOr<std::unique_ptr<LoadedPackage>> package = LoadPackage(dir, compiled ? 2 : 1);
    ASSERT_TRUE(package.ok()) << package.status();
    const bool told = AnyKernelHas(dir, "told_extent", true);
    EXPECT_EQ(told, compiled) << name;
    NDArray poison(DType::kF32, most);
    for (int64_t i = 0; i < poison.size(); ++i) poison.Set(i, std::numeric_limits<double>::quiet_NaN());
    for (const int64_t length : lengths) {
      ASSERT_TRUE((*package)->RunShaped({poison}).ok());
      Rng rng(static_cast<uint64_t>(length));
      const NDArray whole = testing::RandomArray(rng, most);
      const auto want =
          RunReference(given, std::vector<NDArray>{whole, testing::Numbers(DType::kI64, {}, {double(length)})});
      const auto got = (*package)->RunShaped({FirstAlong(whole, axis, length)});
      ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
      const NDArray& result = (*got)[0];
      ASSERT_EQ(result.shape()[axis], told_result ? static_cast<int64_t>((*want)[1].At(0)) : (*want)[0].shape()[axis]);
      for (int64_t i = 0; i < result.size(); ++i)
        ASSERT_NEAR(result.At(i), (*want)[0].At(i), 1e-4) << name << " of " << length << " at " << i;
    }
  }
}

// Rows that a run does not have are not computed.
TEST_F(RangePackageTest, KernelsLeaveOutWhatARunDoesNotHave) {
  constexpr int64_t kMost = 45, kWidth = 24;
  Builder b;
  const ValueId x = b.Input({kMost, kWidth}), extent = b.Input({}, DType::kI64);
  const ValueId inside = b.IsInside(kMost, extent);
  const ValueId hidden = b.Call("relu", {b.Call("matmul", {x, b.Random({kWidth, 3 * kWidth})})});
  const ValueId rows = b.Call("tanh", {b.Call("matmul", {hidden, b.Random({3 * kWidth, kWidth})})});
  const ValueId scores = b.Call("matmul", {rows, b.Transpose(x, {1, 0})});
  const ValueId seen = b.Call("where", {inside, scores, b.Scalar(-std::numeric_limits<double>::infinity())});
  const ValueId values =
      b.Call("where", {b.Reshape(inside, {kMost, 1}), b.Call("matmul", {x, b.Random({kWidth, kWidth})}), b.Scalar(0)});
  const ValueId attended = b.Call("matmul", {b.Call("softmax", {seen}, Builder::Int("axis", 1)), values});
  b.Output(b.Call("add", {attended, rows}));
  b.Output(b.Call("identity", {extent}));
  ExpectNothingOfStaleMemory(b.g, 0, {kMost, kMost - 1, 17, 1}, dir_);
}

// Attention over a cache of a range, and behind that over what is new.
TEST_F(RangePackageTest, KernelsLeaveOutWhatIsBehindASumOfTwoRanges) {
  constexpr int64_t kPast = 37, kNew = 23, kRoom = kPast + kNew, kWidth = 24;
  Builder b;
  const ValueId past = b.Input({kPast, kWidth}), x = b.Input({kNew, kWidth}), cached = b.Input({}, DType::kI64),
                fresh = b.Input({}, DType::kI64);
  const ValueId total = b.Call("add", {cached, fresh}), inside = b.IsInside(kRoom, total);
  NDArray counting(DType::kI64, {kRoom});
  for (int64_t i = 0; i < kRoom; ++i) counting.Set(i, static_cast<double>(i));
  const ValueId at = b.Call("sub", {b.Constant(std::move(counting)), cached});
  const ValueId is_cached = b.Reshape(b.IsInside(kRoom, cached), {kRoom, 1});
  const ValueId is_new = b.Reshape(b.IsInside(kNew, fresh), {kNew, 1});
  const auto all_of = [&](ValueId v) {
    const ValueId filled = b.Call("where", {is_new, b.Call("matmul", {v, b.Random({kWidth, kWidth})}), b.Scalar(0)});
    const ValueId behind = b.Call("gather", {filled, at}, Builder::Int("axis", 0));
    Attrs pads = Builder::Ints("pads", {0, 0, kNew, 0});
    pads.Set("mode", "constant");
    return b.Call("where", {is_cached, b.Call("pad", {past}, std::move(pads)), behind});
  };
  const ValueId queries = b.Call("matmul", {x, b.Random({kWidth, kWidth})});
  const ValueId scores = b.Call("matmul", {queries, all_of(x)}, Builder::Int("trans_b", 1));
  const ValueId seen = b.Call("where", {inside, scores, b.Scalar(-std::numeric_limits<double>::infinity())});
  const ValueId values = b.Call("where", {b.Reshape(inside, {kRoom, 1}), all_of(x), b.Scalar(0)});
  b.Output(b.Call("matmul", {b.Call("softmax", {seen}, Builder::Int("axis", 1)), values}));
  b.Output(b.Call("identity", {fresh}));
  b.g.extents = {{0, 0, 1}};
  b.g.input_extents = {{0, 0, 2, 0}, {1, 0, 3, 1}};
  b.g.hidden = 1;
  b.g.hidden_inputs = 2;
  const Graph given = b.g;
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  ASSERT_TRUE(WritePackage(b.g, *ParseTarget("host"), ChooseDefault, dir_).ok());
  const absl::StatusOr<std::unique_ptr<LoadedPackage>> package = LoadPackage(dir_, 2);
  ASSERT_TRUE(package.ok()) << package.status();
  const auto poison = [](Shape shape) {
    NDArray a(DType::kF32, std::move(shape));
    for (int64_t i = 0; i < a.size(); ++i) a.Set(i, std::numeric_limits<double>::quiet_NaN());
    return a;
  };
  Rng rng(7);
  const NDArray cache = testing::RandomArray(rng, {kPast, kWidth}), rows = testing::RandomArray(rng, {kNew, kWidth});
  for (const auto& [before, behind] : {std::pair<int64_t, int64_t>{0, 1}, {1, 1}, {20, 3}, {kPast, 1}, {0, kNew}}) {
    ASSERT_TRUE((*package)->RunShaped({poison({kPast, kWidth}), poison({kNew, kWidth})}).ok());
    const auto number = [](int64_t n) { return testing::Numbers(DType::kI64, {}, {static_cast<double>(n)}); };
    const auto want = RunReference(given, std::vector<NDArray>{cache, rows, number(before), number(behind)});
    const auto got = (*package)->RunShaped({FirstAlong(cache, 0, before), FirstAlong(rows, 0, behind)});
    ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
    ASSERT_EQ((*got)[0].shape(), (Shape{behind, kWidth}));
    for (int64_t i = 0; i < (*got)[0].size(); ++i)
      ASSERT_NEAR((*got)[0].At(i), (*want)[0].At(i), 1e-4) << before << "+" << behind << " at " << i;
  }
}

TEST_F(RangePackageTest, KernelsOfWholeNumbersLeaveOutWhatARunDoesNotHave) {
  constexpr int64_t kMost = 45, kWidth = 24;
  Builder b;
  const ValueId x = b.Input({kMost, kWidth}), extent = b.Input({}, DType::kI64);
  const auto bytes = [&](ValueId v, DType dtype) {
    Attrs ends;
    ends.Set("min", dtype == DType::kU8 ? 0.0 : -127.0);
    ends.Set("max", dtype == DType::kU8 ? 255.0 : 127.0);
    const ValueId scaled = b.Call("round", {b.Call("mul", {v, b.Scalar(97)})});
    return b.Cast(b.Call("clip", {scaled}, std::move(ends)), dtype);
  };
  const auto product = [&](ValueId v, int64_t inputs, int64_t outputs) {
    const ValueId weights = bytes(b.Random({inputs, outputs}), DType::kI8);
    const ValueId sums = b.Call("matmul", {bytes(v, DType::kU8), weights}, Builder::String("result", "i32"));
    return b.Call("mul", {b.Cast(sums, DType::kF32), b.Scalar(1.03e-4)});
  };
  const ValueId hidden = product(b.Call("relu", {x}), kWidth, 3 * kWidth);
  b.Output(b.Call("add", {product(hidden, 3 * kWidth, kWidth), x}));
  b.Output(b.Call("identity", {extent}));
  ExpectNothingOfStaleMemory(b.g, 0, {kMost, kMost - 1, 17, 3, 1}, dir_);
}

TEST_F(RangePackageTest, ARunMayHaveNoRows) {
  constexpr int64_t kMost = 45, kWidth = 24;
  Builder b;
  const ValueId x = b.Input({kMost, kWidth}), extent = b.Input({}, DType::kI64);
  const ValueId rows = b.Call("relu", {b.Call("matmul", {x, b.Random({kWidth, 3 * kWidth})})});
  const ValueId seen = b.Call("where", {b.Reshape(b.IsInside(kMost, extent), {kMost, 1}), rows, b.Scalar(0)});
  const ValueId sums = b.Call("matmul", {b.Random({2, kMost}), seen});
  const ValueId largest = b.Call("reduce_max", {seen}, Builder::Ints("axes", {0}));
  b.Output(b.Call("add", {sums, largest}));
  b.Output(b.Call("identity", {extent}));
  ExpectNothingOfStaleMemory(b.g, 0, {kMost, 0, 17, 1, 0}, dir_, /*told_result=*/false);
}

// A product of matrix tiles is one instruction, all of which is done or nothing.
TEST_F(RangePackageTest, MatrixTilesAreLeftOutWhole) {
  constexpr int64_t kMost = 64, kWidth = 64;
  Builder b;
  const ValueId x = b.Input({kMost, kWidth}), extent = b.Input({}, DType::kI64);
  const ValueId scores =
      b.Call("matmul", {x, b.Call("matmul", {x, b.Random({kWidth, kWidth})})}, Builder::Int("trans_b", 1));
  const ValueId seen = b.Call("where", {b.IsInside(kMost, extent), scores, b.Scalar(0)});
  b.Output(b.Call("matmul", {seen, b.Random({kMost, kWidth})}));
  b.Output(b.Call("identity", {extent}));
  b.g.extents = {{0, 0, 1}};
  b.g.input_extents = {{0, 0, 1, 1}};
  b.g.hidden = b.g.hidden_inputs = 1;
  const Target target = *ParseTarget("llvm:sapphirerapids");
  ASSERT_TRUE(Optimize(b.g, target, {.bf16 = true}).ok());
  const absl::StatusOr<PackageReport> report = WritePackage(b.g, target, ChooseDefault, dir_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(AnyKernelHas(dir_, "template", "matmul.tiles_bf16"));
  EXPECT_TRUE(AnyKernelHas(dir_, "told_extent", true));
}

// Of a loop that is unrolled, the steps that a run does not have leave the state as it is.
TEST_F(RangePackageTest, StepsOfASequenceThatHasEndedKeepItsState) {
  constexpr int64_t kMost = 40, kWidth = 12;
  Builder b;
  const ValueId x = b.Input({kMost, kWidth}), extent = b.Input({}, DType::kI64);
  const ValueId inside = b.IsInside(kMost, extent);
  const auto at = [&](ValueId v, int64_t i, Shape shape) {
    Attrs attrs = Builder::Ints("axes", {0});
    attrs.Set("starts", std::vector<int64_t>{i});
    attrs.Set("ends", std::vector<int64_t>{i + 1});
    attrs.Set("steps", std::vector<int64_t>{1});
    return b.Reshape(b.Call("slice", {v}, std::move(attrs)), std::move(shape));
  };
  const ValueId weights = b.Random({kWidth, kWidth}), gates = b.Call("matmul", {x, b.Random({kWidth, kWidth})});
  ValueId state = b.Random({1, kWidth});
  std::vector<ValueId> states;
  for (int64_t i = 0; i < kMost; ++i) {
    const ValueId next =
        b.Call("tanh", {b.Call("add", {b.Call("matmul", {state, weights}), at(gates, i, {1, kWidth})})});
    states.push_back(next);
    state = b.Call("where", {at(inside, i, {1, 1}), next, state});
  }
  // The rows of an output that is told to end, each with the last state.
  b.Output(b.Call("add", {b.Call("concat", states, Builder::Int("axis", 0)), state}));
  b.Output(b.Call("identity", {extent}));
  ExpectNothingOfStaleMemory(b.g, 0, {kMost, kMost - 1, 7, 1}, dir_);
}

// An input is cleared behind its end where something is made of what lies there.
TEST_F(RangePackageTest, WhatIsReadBehindAnEndIsZero) {
  constexpr int64_t kMost = 9, kWidth = 8;
  Builder b;
  const ValueId x = b.Input({kWidth, kMost, 2});
  b.Input({}, DType::kI64);
  b.Output(b.Call("reduce_sum", {x}, Builder::Ints("axes", {1})));
  b.g.input_extents = {{0, 1, 1, 1}};
  b.g.hidden_inputs = 1;
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  ASSERT_TRUE(WritePackage(b.g, *ParseTarget("host"), ChooseDefault, dir_).ok());
  const absl::StatusOr<std::unique_ptr<LoadedPackage>> package = LoadPackage(dir_, 1);
  ASSERT_TRUE(package.ok()) << package.status();
  NDArray stale(DType::kF32, {kWidth, kMost, 2}), three(DType::kF32, {kWidth, 3, 2});
  for (int64_t i = 0; i < stale.size(); ++i) stale.Set(i, std::numeric_limits<double>::quiet_NaN());
  for (int64_t i = 0; i < three.size(); ++i) three.Set(i, 1);
  // One end lies further than the other, so that both runs copy it.
  ASSERT_TRUE((*package)->RunShaped({FirstAlong(stale, 1, kMost - 1)}).ok());
  const absl::StatusOr<std::vector<NDArray>> got = (*package)->RunShaped({three});
  ASSERT_TRUE(got.ok()) << got.status();
  for (int64_t i = 0; i < (*got)[0].size(); ++i) EXPECT_EQ((*got)[0].At(i), 3);
}

// Images that end within their rows or columns, behind what is read of them there, with channels enough for Winograd's
// algorithm, which makes neighbours together.
TEST_F(RangePackageTest, ConvolutionsLeaveOutWhatAnImageDoesNotHave) {
  constexpr int64_t kMost = 26, kOther = 8, kChannels = 16;
  for (const size_t axis : {size_t{2}, size_t{3}}) {
    Builder b;
    Shape shape = {1, kChannels, kOther, kOther}, along = {kMost, 1};
    shape[axis] = kMost;
    if (axis == 3) along = {kMost};
    const ValueId x = b.Input(shape), extent = b.Input({}, DType::kI64);
    const auto filled = [&](ValueId v, ValueId end, int64_t most) {
      along[0] = most;
      const ValueId inside = b.Reshape(b.IsInside(most, end), along);
      return b.Call("where", {inside, v, b.Scalar(0)});
    };
    const auto filter = [&] { return b.Random({kChannels, kChannels, 3, 3}, -0.1, 0.1); };
    ValueId v = b.Call("relu", {b.Conv(filled(x, extent, kMost), filter(), 1)});
    const ValueId beside = b.Call("add", {v, b.Conv(filled(v, extent, kMost), filter(), 1)});
    Attrs strided = Builder::Ints("strides", {2, 2});
    strided.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
    v = b.Call("conv2d", {filled(beside, extent, kMost), filter()}, std::move(strided));
    // How often a window of stride 2 stops.
    ValueId end = b.Call("add", {extent, b.Constant(testing::Numbers(DType::kI64, {}, {1}))});
    end = b.Call("div", {end, b.Constant(testing::Numbers(DType::kI64, {}, {2}))});
    v = b.Call("relu", {b.Conv(filled(v, end, kMost / 2), filter(), 1)});
    const int64_t lines = axis == 2 ? kChannels : kChannels * kOther / 2, slice = axis == 2 ? kOther / 2 : 1;
    v = b.Call("compact", {b.Reshape(v, {lines, kMost / 2, slice}), end}, Builder::Int("axis", 1));
    shape = {1, kChannels, kOther / 2, kOther / 2};
    shape[axis] = kMost / 2;
    b.Output(b.Reshape(v, shape));
    b.Output(b.Call("identity", {end}));
    ExpectNothingOfStaleMemory(b.g, axis, {kMost, 13, 6}, dir_);
  }
}

// Of an input and an output that are short along two axes, what is there is right, and no stale memory is read.
TEST_F(RangePackageTest, InputsAndOutputsHaveTwoRanges) {
  constexpr int64_t kBatch = 3, kMost = 11, kWidth = 8;
  Builder b;
  const ValueId x = b.Input({kBatch, kMost, kWidth}), batch = b.Input({}, DType::kI64),
                length = b.Input({}, DType::kI64);
  const ValueId hidden = b.Call("relu", {b.Call("matmul", {x, b.Random({kWidth, 3 * kWidth})})});
  const ValueId rows = b.Call("add", {x, b.Call("matmul", {hidden, b.Random({3 * kWidth, kWidth})})});
  b.Output(b.Call("compact", {rows, length}, Builder::Int("axis", 1)));
  b.Output(b.Call("identity", {batch}));
  b.Output(b.Call("identity", {length}));
  b.g.extents = {{0, 0, 1}, {0, 1, 2}};
  b.g.hidden = 2;
  b.g.input_extents = {{0, 0, 1, 1}, {0, 1, 2, 1}};
  b.g.hidden_inputs = 2;
  const Graph given = b.g;
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  for (const char* name : {"host", "interpreter"}) {
    ASSERT_TRUE(WritePackage(b.g, *ParseTarget(name), ChooseDefault, dir_).ok());
    EXPECT_EQ((*ReadManifest(dir_))["outputs"][0]["varies"], (nlohmann::json{0, 1}));
    const absl::StatusOr<std::unique_ptr<LoadedPackage>> package = LoadPackage(dir_, 1);
    ASSERT_TRUE(package.ok()) << package.status();
    ASSERT_EQ((*package)->inputs().size(), 1u);
    EXPECT_EQ((*package)->inputs()[0].least, (Shape{1, 1, kWidth}));
    NDArray poison(DType::kF32, {kBatch, kMost, kWidth});
    for (int64_t i = 0; i < poison.size(); ++i) poison.Set(i, std::numeric_limits<double>::quiet_NaN());
    Rng rng(3);
    for (const Shape& shape : {Shape{2, 5, kWidth}, {3, 1, kWidth}, {1, kMost, kWidth}, {kBatch, kMost, kWidth}}) {
      ASSERT_TRUE((*package)->RunShaped({poison}).ok());
      const NDArray in = testing::RandomArray(rng, shape);
      NDArray whole(DType::kF32, {kBatch, kMost, kWidth});
      const int64_t line = shape[1] * kWidth;
      for (int64_t i = 0; i < in.size(); ++i) whole.Set(i / line * kMost * kWidth + i % line, in.At(i));
      const auto number = [](int64_t n) { return testing::Numbers(DType::kI64, {}, {static_cast<double>(n)}); };
      const auto want = RunReference(given, std::vector<NDArray>{whole, number(shape[0]), number(shape[1])});
      const auto got = (*package)->RunShaped({in});
      ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
      ASSERT_EQ((*got)[0].shape(), shape);
      for (int64_t i = 0; i < in.size(); ++i) ASSERT_NEAR((*got)[0].At(i), (*want)[0].At(i), 1e-4) << name << " " << i;
    }
  }
}

}  // namespace
}  // namespace temper
