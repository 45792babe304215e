// Sorts, running sums and updates of places against their references: rows of any length, much that is equal, rows that
// come in order, places named often, never and outside.
#include <limits>

#include "absl/strings/str_join.h"
#include "tests/templates/check_templates.h"

namespace temper {
namespace {

std::string TypeText(const char* dtype, const Shape& shape) {
  return absl::StrCat(dtype, "[", absl::StrJoin(shape, ","), "]");
}

// Each template that fits is one of its own, and makes of the inputs what the reference makes.
void CheckRuns(const Workload& w, std::string_view name, const std::vector<NDArray>& inputs) {
  const absl::StatusOr<NDArray> wanted = RunReference(w, inputs);
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  for (const Target& t : Targets()) {
    SCOPED_TRACE(absl::StrCat(Text(w), "\n", Text(t)));
    const std::vector<const TemplateDef*> templates = TemplatesFor(w, t);
    ASSERT_EQ(templates.size(), 1u);
    ASSERT_EQ(templates[0]->name, name);
    const absl::StatusOr<Kernel> kernel = BuildKernel(w, name, templates[0]->space(w, t).At(0), t);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    const absl::StatusOr<NDArray> got = RunKernel(w, *kernel, t, inputs);
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_LE(RelativeError(*got, *wanted), IsFloat(got->dtype()) ? 1e-5 : 0);
  }
}

enum class Order { kRandom, kEqual, kRising, kFalling, kOdd };

NDArray Row(Rng& rng, DType dtype, const Shape& shape, Order order) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  const double odd[] = {kNan, kInfinity, -kInfinity};
  NDArray x(dtype, shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    double value = static_cast<double>(rng.Below(1'000'000) - 500'000);
    if (order == Order::kEqual || order == Order::kOdd) value = static_cast<double>(rng.Below(5));
    if (order == Order::kRising) value = static_cast<double>(i);
    if (order == Order::kFalling) value = static_cast<double>(-i);
    if (order == Order::kOdd && IsFloat(dtype) && rng.Below(3) == 0) value = odd[rng.Below(3)];
    x.Set(i, value);
  }
  return x;
}

TEST(SequentialTest, FirstElementsOfRowsInAnyOrder) {
  struct Case {
    int64_t rows, count, k;
  };
  const Case cases[] = {{1, 1, 1},      {3, 2, 1},       {2, 7, 7},    {1, 64, 64},     {2, 65, 1},
                        {1, 191, 63},   {3, 200, 99},    {1, 1000, 5}, {2, 1000, 64},   {1, 1000, 65},
                        {2, 3000, 500}, {1, 3001, 3001}, {5, 129, 1},  {1, 5000, 2500}, {1, 9001, 40}};
  Rng rng(1);
  for (const Case& c : cases) {
    for (const Order order : {Order::kRandom, Order::kEqual, Order::kRising, Order::kFalling, Order::kOdd}) {
      const char* dtypes[] = {"f32", "i64", "f32", "f64", "f32", "u8", "i32"};
      const char* dtype = dtypes[rng.Below(7)];
      const int64_t largest = rng.Below(2);
      const Workload w =
          Parse(absl::StrCat("(", TypeText(dtype, {c.rows, c.count}), ") top_k(0; k=", c.k, " largest=", largest,
                             ") -> ", TypeText("i32", {c.rows, c.k}), "; anchor=0"));
      CheckRuns(w, "top_k", {Row(rng, w.inputs[0].type.dtype, {c.rows, c.count}, order)});
      if (HasFatalFailure()) return;
    }
  }
}

TEST(SequentialTest, BoxesOfEachClassThatOverlapNoBetterOne) {
  struct Case {
    int64_t images, classes, count, k;
    double share;  // of boxes that score enough
  };
  const Case cases[] = {{1, 1, 1, 1, 1},     {2, 3, 7, 7, 1},      {1, 2, 64, 10, 1},     {1, 2, 65, 65, 0.5},
                        {1, 3, 200, 1, 0.1}, {1, 1, 1000, 300, 1}, {2, 5, 500, 20, 0.02}, {1, 2, 130, 130, 0}};
  Rng rng(4);
  for (const Case& c : cases) {
    const Shape boxes = {c.images, 4, c.count}, scores = {c.images, c.classes, c.count};
    const Workload w = Parse(absl::StrCat("(", TypeText("f32", boxes), ", ", TypeText("f32", scores),
                                          ", f32[1], f32[1]) non_max_suppression(0,1,2,3; k=", c.k, ") -> ",
                                          TypeText("i32", {c.images, c.classes, c.k}), "; anchor=0"));
    std::vector<NDArray> inputs = {NDArray(DType::kF32, boxes), NDArray(DType::kF32, scores), NDArray(DType::kF32, {1}),
                                   NDArray(DType::kF32, {1})};
    for (int64_t i = 0; i < c.images * c.count; ++i) {
      const int64_t first = i / c.count * 4 * c.count + i % c.count;
      for (int64_t axis = 0; axis < 2; ++axis) {
        const double low = rng.Uniform() * 10;
        inputs[0].Set(first + axis * c.count, low);
        inputs[0].Set(first + (axis + 2) * c.count, low + rng.Uniform() * 4);
      }
    }
    // Few different scores, so that many are equal.
    for (int64_t i = 0; i < inputs[1].size(); ++i) inputs[1].Set(i, std::floor(rng.Uniform() * 50) / 50 + c.share - 1);
    inputs[2].Set(0, 0.3);
    CheckRuns(w, "suppress", inputs);
    if (HasFatalFailure()) return;
  }
}

TEST(SequentialTest, RunningSumsAlongAnyAxis) {
  Rng rng(2);
  for (int i = 0; i < 30; ++i) {
    const Shape shape = {1 + rng.Below(4), 1 + rng.Below(70), 1 + rng.Below(40)};
    const char* dtype = rng.Below(4) == 0 ? "i32" : "f32";
    const std::string type = TypeText(dtype, shape);
    const Workload w =
        Parse(absl::StrCat("(", type, ") cum_sum(0; axis=", rng.Below(6) - 3, " exclusive=", rng.Below(2),
                           " reverse=", rng.Below(2), ") -> ", type, "; anchor=0"));
    CheckRuns(w, "scan", {Row(rng, w.inputs[0].type.dtype, shape, Order::kRandom)});
    if (HasFatalFailure()) return;
  }
}

TEST(SequentialTest, LinesOfALengthThatDataHas) {
  Rng rng(4);
  for (int i = 0; i < 40; ++i) {
    const Shape shape = {1 + rng.Below(5), 1 + rng.Below(i % 4 == 0 ? 900 : 40), 1 + rng.Below(30)};
    const char* dtypes[] = {"f32", "i64", "u8", "bool", "f16"};
    const std::string type = TypeText(dtypes[rng.Below(5)], shape);
    const int64_t axis = rng.Below(3);
    const Workload w = Parse(absl::StrCat("(", type, ", i64[]) compact(0,1; axis=", axis, ") -> ", type, "; anchor=0"));
    NDArray extent(DType::kI64, {});
    extent.Set(0, static_cast<double>(rng.Below(shape[static_cast<size_t>(axis)] + 3) - 1));
    CheckRuns(w, "compact", {Row(rng, w.inputs[0].type.dtype, shape, Order::kRandom), extent});
    if (HasFatalFailure()) return;
  }
}

TEST(SequentialTest, UpdatesOfPlaces) {
  Rng rng(3);
  for (int i = 0; i < 60; ++i) {
    // Every third one has so many places that threads share them.
    const int64_t places = i % 3 == 0 ? 9000 + rng.Below(2000) : 1 + rng.Below(30), number = 1 + rng.Below(50);
    const int64_t lines = 1 + rng.Below(i % 3 == 0 ? 2 : 5), slice = rng.Below(2) == 0 ? 1 : 1 + rng.Below(40);
    const Shape data = {lines, places, slice}, updates = {lines, number, slice};
    const char* dtypes[] = {"f32", "i64", "bool"};
    const bool reduces = rng.Below(2) == 0;
    const char* dtype = dtypes[rng.Below(reduces ? 2 : 3)];
    const char* index = rng.Below(2) == 0 ? "i64" : "i32";
    const char* reductions[] = {"sum", "product", "least", "largest"};
    const std::string op =
        reduces ? absl::StrCat("scatter_reduce(0,1,2; axis=1 reduction='", reductions[rng.Below(4)], "')")
                : "scatter(0,1,2; axis=1)";
    const Workload w =
        Parse(absl::StrCat("(", TypeText(dtype, data), ", ", TypeText(index, {lines, number}), ", ",
                           TypeText(dtype, updates), ") ", op, " -> ", TypeText(dtype, data), "; anchor=0"));
    std::vector<NDArray> inputs = {Row(rng, w.inputs[0].type.dtype, data, Order::kEqual),
                                   NDArray(w.inputs[1].type.dtype, {lines, number}),
                                   Row(rng, w.inputs[0].type.dtype, updates, Order::kEqual)};
    for (int64_t k = 0; k < inputs[1].size(); ++k) inputs[1].Set(k, static_cast<double>(rng.Below(places + 4) - 2));
    CheckRuns(w, "scatter", inputs);
    if (HasFatalFailure()) return;
  }
}

// A call may take an operand twice, and operands may come in another order than its own.
TEST(SequentialTest, OperandsInAnyOrder) {
  const Workload w = Parse("(i64[4], f32[4]) scatter(1,0,1; axis=0) -> f32[4]; anchor=0");
  NDArray at(DType::kI64, {4}), x(DType::kF32, {4});
  for (int64_t i = 0; i < 4; ++i) at.Set(i, static_cast<double>(3 - i)), x.Set(i, static_cast<double>(i * i));
  CheckRuns(w, "scatter", {at, x});
}

}  // namespace
}  // namespace temper
