// Sums whose terms are zero behind an extent: whatever config a kernel has, it reads none of what is said to be unread.
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tests/templates/check_templates.h"
#include "tests/templates/covering_configs.h"
#include "tests/templates/known_extent.h"

namespace temper {
namespace {

// Axes of an operand along which the extent counts, behind which it is zero, or false.
struct Case {
  const char* text;
  std::vector<std::pair<size_t, size_t>> ends;  // an operand, an axis of it
};
const Case kCases[] = {
    {"(f32[2,7,39], f32[2,39,21]) matmul(0,1) -> f32[2,7,21]; anchor=0", {{0, 2}, {1, 1}}},
    {"(f32[11,39], f32[18,39], f32[18]) matmul(0,1; trans_b=1) -> f32[11,18]; add(3,2) -> f32[11,18]; anchor=0",
     {{0, 1}, {1, 1}}},
    {"(u8[2,7,68], i8[2,68,21]) matmul(0,1; result='i32') -> i32[2,7,21]; anchor=0", {{0, 2}, {1, 1}}},
    {"(f32[2,9,16], f32[2,39,16], bool[39], const f32[], f32[2,39,12]) matmul(0,1; trans_b=1) -> f32[2,9,39]; "
     "where(2,5,3) -> f32[2,9,39]; softmax(6; axis=2) -> f32[2,9,39]; matmul(7,4) -> f32[2,9,12]; anchor=3",
     {{2, 0}, {4, 1}}},
};

std::vector<OperandFacts> FactsOf(const Workload& w, const Case& c) {
  std::vector<OperandFacts> facts(w.inputs.size());
  for (size_t i = 0; i < facts.size(); ++i) {
    facts[i].constant = w.inputs[i].constant;
    if (facts[i].constant) facts[i].number = -std::numeric_limits<double>::infinity();
  }
  for (const auto& [operand, axis] : c.ends) {
    const TensorType& type = w.inputs[operand].type;
    Behind b{.kind = type.dtype == DType::kBool ? Behind::kMask : Behind::kValue, .shape = type.shape};
    b.index = IndexOf(type.shape.size());
    b.place = ir::Expr(b.index[axis]);
    facts[operand].behind = {b};
  }
  return facts;
}

// Sets elements of an operand that lie behind the extent.
void SetBehind(NDArray& a, const Behind& b, int64_t extent, double value) {
  for (int64_t i = 0; i < a.size(); ++i) {
    std::vector<ir::Expr> index;
    int64_t rest = i;
    for (size_t d = a.shape().size(); d-- > 0; rest /= a.shape()[d])
      index.insert(index.begin(), ir::Expr(rest % a.shape()[d]));
    if (ir::AsInt(PlaceAt(b, index, {})).value() >= extent) a.Set(i, value);
  }
}

// Counts the kernels of which something is unread.
void Check(const Case& c, const TemplateDef& def, const Target& t, Rng& rng, int& unread_of) {
  const Workload w = Parse(c.text);
  const std::vector<OperandFacts> facts = FactsOf(w, c);
  for (const Config& config : CoveringConfigs(def.space(w, t), rng)) {
    SCOPED_TRACE(absl::StrCat(c.text, "\n", std::string(def.name), " ", Text(config)));
    const absl::StatusOr<Kernel> kernel = BuildKernel(w, def.name, config, t);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    const std::optional<Skipping> skipping = SkipBehind(kernel->scheduled, facts, {}, {0});
    if (!skipping) continue;
    const auto unread = UnreadOperands(kernel->scheduled, facts, {}, 0, Schedules::kThisOne);
    unread_of += std::ranges::any_of(unread, [](const auto& b) { return b.has_value(); }) ? 1 : 0;
    for (const int64_t extent : {1, 6, 38}) {
      std::vector<NDArray> inputs = RandomInputs(w, rng);
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (facts[i].number) inputs[i].Set(0, *facts[i].number);
        for (int64_t k = 0; k < inputs[i].size() && w.inputs[i].type.dtype == DType::kBool; ++k) inputs[i].Set(k, 1);
        for (const Behind& b : facts[i].behind) SetBehind(inputs[i], b, extent, 0);
      }
      const absl::StatusOr<NDArray> want = RunReference(w, inputs);
      for (size_t i = 0; i < inputs.size(); ++i) {
        const double anything = IsFloat(inputs[i].dtype()) ? std::numeric_limits<double>::quiet_NaN() : 77;
        if (unread[i]) SetBehind(inputs[i], *unread[i], extent, anything);
      }
      const absl::StatusOr<Kernel> shorter = OfExtent(*kernel, *skipping, extent);
      ASSERT_TRUE(shorter.ok()) << shorter.status();
      const absl::StatusOr<NDArray> got = InterpretKernel(w, *shorter, inputs);
      ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
      ASSERT_LE(RelativeError(*got, *want), IsFloat(got->dtype()) ? 1e-5 : 0) << extent << "\n"
                                                                              << ir::Text(skipping->func);
    }
  }
}

TEST(RangeTermsTest, KernelsReadNothingThatIsSaidToBeUnread) {
  Rng rng(3);
  for (const char* name : {"llvm:haswell", "llvm:znver4", "llvm:sapphirerapids"}) {
    Target t = *ParseTarget(name);
    t.cpu()->threads = 2;
    for (const Case& c : kCases) {
      int unread_of = 0;
      for (const TemplateDef* def : TemplatesFor(Parse(c.text), t)) Check(c, *def, t, rng, unread_of);
      // Products of bytes are sums of several at once, of which nothing is known.
      const bool floats = IsFloat(Parse(c.text).TypeOf(0).dtype);
      EXPECT_TRUE(unread_of > 0 || !floats) << name << " " << c.text;
    }
  }
}

}  // namespace
}  // namespace temper
