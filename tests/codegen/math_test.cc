// The functions of math.h and the activations made of them, against libm in double precision: every exponent, vectors
// and scalars, on every target that runs here. The bounds are those that math.h states.
#include <bit>
#include <limits>

#include "compiler/ops/op.h"
#include "tests/codegen/expect_kernel.h"

namespace temper {
namespace {

using ir::Expr, ir::ExprKind, ir::ForKind;

constexpr int64_t kRow = 37;  // two vectors of 16, one of 4 and a scalar

struct Function {
  const char* name;
  std::function<Expr(Expr)> formula;
  double (*exact)(double);
  double ulps;               // units in the last place of the result,
  double relative_to_x = 0;  // or of this times the argument where that is larger,
  double absolute = 0;       // and this beside
  double ulps_of_x = 0;      // and so many units for each that the argument is long
};

// The operator's own tensor expression.
std::function<Expr(Expr)> Operator(const std::string& op, const char* approximate = nullptr) {
  Attrs attrs;
  if (approximate != nullptr) attrs.Set("approximate", approximate);
  return [op, attrs](const Expr& x) {
    ir::ProgramBuilder b("f");
    const std::vector<ir::Tensor> in = {ir::Tensor(DType::kF32, {1}, [x](const std::vector<Expr>&) { return x; })};
    return (*FindOp(op)->compute(b, attrs, in, TensorType{DType::kF32, {1}, {}}))({Expr(0)});
  };
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

const std::vector<Function>& Functions() {
  static const std::vector<Function> functions = {
      {"exp", Operator("exp"), [](double x) { return std::exp(x); }, 1.25, 0, 0, 0.04},
      {"log", Operator("log"), [](double x) { return std::log(x); }, 1},
      {"tanh", Operator("tanh"), [](double x) { return std::tanh(x); }, 2.75},
      {"erf", Operator("erf"), [](double x) { return std::erf(x); }, 2},
      {"sin", Operator("sin"), [](double x) { return std::sin(x); }, 2, 0, 0x1p-25},
      {"cos", Operator("cos"), [](double x) { return std::cos(x); }, 2, 0, 0x1p-25},
      {"sqrt", Operator("sqrt"), [](double x) { return std::sqrt(x); }, 0.5},
      {"rsqrt", [](const Expr& x) { return ir::Binary(ExprKind::kPow, x, ir::Float(-0.5)); },
       [](double x) { return 1 / std::sqrt(x); }, 1.5},
      // Where e^-x overflows they are 0.
      {"sigmoid", Operator("sigmoid"), Sigmoid, 2.75, 0, 0x1p-126, 0.04},
      {"silu", Operator("silu"), [](double x) { return x * Sigmoid(x); }, 2.75, 0, 0x1p-121, 0.04},
      {"gelu", Operator("gelu"), [](double x) { return x / 2 * std::erfc(-x * M_SQRT1_2); }, 2, 1},
      {"gelu_tanh", Operator("gelu", "tanh"),
       [](double x) { return x * Sigmoid(2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)); }, 2, 1},
      {"hard_sigmoid", Operator("hard_sigmoid"), [](double x) { return std::clamp(double{0.2F} * x + 0.5, 0.0, 1.0); },
       1, 1},
      {"hard_swish", Operator("hard_swish"), [](double x) { return x * std::fmax(0, std::fmin(6, x + 3)) / 6; }, 1.5,
       1},
      {"softplus", Operator("softplus"), [](double x) { return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))); },
       2, 0, 0x1p-23},
      {"elu", Operator("elu"), [](double x) { return x < 0 ? std::expm1(x) : x; }, 1, 0, 0x1p-23},
  };
  return functions;
}

// The distance of f32 numbers about v.
double Ulp(double v) { return std::fabs(v) < 0x1p-126 ? 0x1p-149 : std::ldexp(1.0, std::ilogb(v) - 23); }

bool Within(const Function& f, double x, double want, float got) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  const float rounded = static_cast<float>(want);
  if (std::isinf(rounded) || std::isinf(got)) return rounded == got;
  const double scale = std::max(std::fabs(want), f.relative_to_x * std::fabs(x));
  const double ulps = f.ulps + (f.ulps_of_x > 0 ? f.ulps_of_x * std::fabs(x) : 0);  // of an infinity, 0 is none
  return std::fabs(want - got) <= ulps * Ulp(scale) + f.absolute;
}

// f of every element of `x`, whose length is a multiple of kRow.
absl::StatusOr<std::vector<float>> Apply(const Function& f, const Target& target, ForKind kind,
                                         const std::vector<float>& x) {
  const int64_t rows = static_cast<int64_t>(x.size()) / kRow;
  ir::Buffer in = ir::MakeBuffer("in", DType::kF32, {rows, kRow}), out = ir::MakeBuffer("out", DType::kF32, in->shape);
  ir::Var i = ir::MakeVar("i"), j = ir::MakeVar("j");
  ir::Stmt row = ir::For(j, kRow, kind, ir::Store(out, {i, j}, f.formula(ir::Load(in, {i, j}))));
  TEMPER_ASSIGN_OR_RETURN(
      RunnableKernel kernel,
      RunnableKernel::Make({"f", {in, out}, 1, ir::For(i, rows, ForKind::kSerial, std::move(row))}, target));
  std::vector<NDArray> args = {NDArray(DType::kF32, in->shape), NDArray(DType::kF32, in->shape)};
  std::copy(x.begin(), x.end(), args[0].as<float>().begin());
  kernel.Run(args);
  auto y = args[1].as<float>();
  return std::vector<float>(y.begin(), y.end());
}

void ExpectWithin(const std::vector<float>& x) {
  for (const Function& f : Functions()) {
    SCOPED_TRACE(f.name);
    std::vector<double> want;
    for (float v : x) want.push_back(f.exact(v));
    for (const Target& target : TestTargets()) {
      for (ForKind kind : {ForKind::kSerial, ForKind::kVectorized}) {
        const absl::StatusOr<std::vector<float>> y = Apply(f, target, kind, x);
        ASSERT_TRUE(y.ok()) << y.status();
        for (size_t k = 0; k < x.size(); ++k) {
          ASSERT_TRUE(Within(f, x[k], want[k], (*y)[k]))
              << target.name() << (kind == ForKind::kSerial ? " scalar" : " vector") << " at " << x[k] << " gave "
              << (*y)[k] << " for " << want[k] << ": " << std::fabs((*y)[k] - want[k]) / Ulp(want[k]) << " ulp";
        }
      }
    }
  }
}

// One number of each of as many equal runs of the 2^32 patterns: all exponents and signs, NaNs too.
TEST(Math, EveryExponentStaysWithinTheBounds) {
  constexpr int64_t kRows = 1 << 11;
  constexpr uint64_t kRun = (uint64_t{1} << 32) / (kRows * kRow);
  Rng rng(1);
  std::vector<float> x;
  for (uint64_t k = 0; k < kRows * kRow; ++k)
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(k * kRun + rng.Below(kRun))));
  ExpectWithin(x);
}

// Where the functions bend: most numbers of the sample above are far outside.
TEST(Math, OrdinaryArgumentsStayWithinTheBounds) {
  Rng rng(2);
  std::vector<float> x;
  for (double range : {1.0, 4.0, 10.0, 100.0, 9000.0}) {
    for (int64_t k = 0; k < 512 * kRow; ++k) x.push_back(static_cast<float>((2 * rng.Uniform() - 1) * range));
  }
  ExpectWithin(x);
}

TEST(Math, SpecialNumbersStayWithinTheBounds) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> x = {0.0F,      infinity,  std::numeric_limits<float>::quiet_NaN(), 0x1p-149F,
                          0x1p-127F, 0x1p-126F, std::numeric_limits<float>::max()};
  // Where results overflow, turn denormal, vanish or saturate, and where one polynomial gives way to another.
  for (float edge :
       {1.0F,       0.5F,        0.875F,     2.5F,       3.0F,      3.93F,    4.0F,   9.02F,    16.6F,
        87.3365F,   88.3763F,    88.7228F,   89.0F,      103.279F,  103.972F, 104.0F, 0.34657F, 0.70710677F,
        1.4142135F, 0.78539816F, 1.5707963F, 3.1415927F, 8191.999F, 8192.0F,  3e5F,   1e30F}) {
    x.insert(x.end(), {std::nextafter(edge, 0.0F), edge, std::nextafter(edge, infinity)});
  }
  const size_t positive = x.size();
  for (size_t i = 0; i < positive; ++i) x.push_back(-x[i]);
  x.resize((x.size() + kRow - 1) / kRow * kRow, 1.0F);
  ExpectWithin(x);
}

// What a bound would forgive.
TEST(Math, ZerosKeepTheirSignsAndLimitsAreReached) {
  const float infinity = std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::max();
  const std::pair<const char*, std::vector<std::pair<float, float>>> exact[] = {
      {"exp", {{0.0F, 1.0F}, {-infinity, 0.0F}, {infinity, infinity}, {-most, 0.0F}, {89.0F, infinity}}},
      {"log", {{1.0F, 0.0F}, {0.0F, -infinity}, {infinity, infinity}}},
      {"tanh", {{-0.0F, -0.0F}, {0.0F, 0.0F}, {infinity, 1.0F}, {-most, -1.0F}, {9.02F, 1.0F}}},
      {"erf", {{-0.0F, -0.0F}, {0.0F, 0.0F}, {infinity, 1.0F}, {-most, -1.0F}, {4.0F, 1.0F}}},
      {"sin", {{0.0F, 0.0F}}},
      {"cos", {{0.0F, 1.0F}, {-0.0F, 1.0F}}},
      {"rsqrt", {{0.0F, infinity}, {infinity, 0.0F}, {4.0F, 0.5F}}},
      {"sigmoid", {{0.0F, 0.5F}, {-infinity, 0.0F}, {infinity, 1.0F}, {most, 1.0F}}},
      {"silu", {{-0.0F, -0.0F}, {-most, -0.0F}, {most, most}, {infinity, infinity}}},
      {"gelu", {{-0.0F, -0.0F}, {-most, -0.0F}, {most, most}}},
      {"hard_swish", {{-3.0F, -0.0F}, {-most, -0.0F}, {most, most}}},
  };
  for (const auto& [name, pairs] : exact) {
    const auto f = std::find_if(Functions().begin(), Functions().end(),
                                [&name = name](const Function& g) { return std::string_view(g.name) == name; });
    std::vector<float> x;
    for (const auto& [from, to] : pairs) x.push_back(from);
    x.resize(kRow, x.back());
    for (const Target& target : TestTargets()) {
      for (ForKind kind : {ForKind::kSerial, ForKind::kVectorized}) {
        const absl::StatusOr<std::vector<float>> y = Apply(*f, target, kind, x);
        ASSERT_TRUE(y.ok()) << y.status();
        for (size_t i = 0; i < pairs.size(); ++i) {
          EXPECT_EQ(std::bit_cast<uint32_t>((*y)[i]), std::bit_cast<uint32_t>(pairs[i].second))
              << name << " of " << x[i] << " is " << (*y)[i] << " on " << target.name();
        }
      }
    }
  }
}

// Behind the end of a range there is anything, and results do not depend on it.
TEST(Math, NumbersBesideOneDoNotChangeIt) {
  std::vector<float> x(1024 * kRow), far(x.size());
  Rng rng(3);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(8 * rng.Uniform() - 4);
    far[i] = i % 3 == 0 ? 1e25F : i % 3 == 1 ? std::numeric_limits<float>::quiet_NaN() : x[i];
  }
  for (const Function& f : Functions()) {
    for (const Target& target : TestTargets()) {
      const auto alone = Apply(f, target, ForKind::kVectorized, x);
      const auto beside = Apply(f, target, ForKind::kVectorized, far);
      ASSERT_TRUE(alone.ok() && beside.ok()) << alone.status() << beside.status();
      for (size_t i = 2; i < x.size(); i += 3) {
        ASSERT_EQ(std::bit_cast<uint32_t>((*alone)[i]), std::bit_cast<uint32_t>((*beside)[i]))
            << f.name << " of " << x[i] << " on " << target.name();
      }
    }
  }
}

}  // namespace
}  // namespace temper
