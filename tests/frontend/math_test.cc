// Functions that are formulas of others, against the C library: near zero, at the ends of their domains, and past them.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using ::testing::HasSubstr;
using testing::ModelBuilder;

struct MathFunction {
  const char* name;
  double (*of)(double);
};
const MathFunction kFunctions[] = {{"Atan", std::atan},   {"Asin", std::asin},   {"Acos", std::acos},
                                   {"Sinh", std::sinh},   {"Cosh", std::cosh},   {"Asinh", std::asinh},
                                   {"Acosh", std::acosh}, {"Atanh", std::atanh}, {"Tan", std::tan}};

std::vector<double> Arguments() {
  std::vector<double> all = {0, 1, std::nextafter(1.0f, 0.0f), std::nextafter(1.0f, 2.0f), 0.4142135, 0.19891236, 88};
  for (double x = 1e-30; x < 1e30; x *= 3) all.push_back(static_cast<float>(x));
  all.push_back(std::numeric_limits<double>::infinity());
  for (size_t i = 0, positive = all.size(); i < positive; ++i) all.push_back(-all[i]);
  all.push_back(std::nan(""));
  return all;
}

NDArray Of(const char* name, onnx::TensorProto::DataType type, DType dtype, const std::vector<double>& arguments) {
  ModelBuilder m(13);
  const Shape shape = {static_cast<int64_t>(arguments.size())};
  m.Input("x", shape, type);
  m.Node(name, {"x"}, {"y"});
  m.Output("y");
  NDArray x(dtype, shape);
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, arguments[static_cast<size_t>(i)]);
  return m.Run({x})[0];
}

TEST(OnnxMath, FormulasAreTheFunctions) {
  const std::vector<double> arguments = Arguments();
  for (const MathFunction& f : kFunctions) {
    const NDArray y = Of(f.name, onnx::TensorProto::FLOAT, DType::kF32, arguments);
    for (int64_t i = 0; i < y.size(); ++i) {
      const double x = arguments[static_cast<size_t>(i)], wanted = f.of(x);
      SCOPED_TRACE(::testing::Message() << f.name << " of " << x);
      if (f.of == static_cast<double (*)(double)>(std::tan) && std::abs(x) > 1e4) continue;  // its period is lost
      if (std::isnan(wanted)) {
        EXPECT_TRUE(std::isnan(y.At(i))) << y.At(i);
      } else if (std::abs(wanted) > 1e38) {
        EXPECT_GT(y.At(i) / std::copysign(1e37, wanted), 1);
      } else {
        EXPECT_NEAR(y.At(i), wanted, 2e-6 * std::abs(wanted)) << f.name << " of " << x;
      }
    }
  }
}

TEST(OnnxMath, DoublesAreAsExactAndNarrowFloatsComputedInWiderOnes) {
  const NDArray wide = Of("Atan", onnx::TensorProto::DOUBLE, DType::kF64, {-2, 0.3, 1e9});
  for (int64_t i = 0; i < 3; ++i)
    EXPECT_NEAR(wide.At(i), std::atan(std::vector<double>{-2, 0.3, 1e9}[static_cast<size_t>(i)]), 1e-14);
  const NDArray narrow = Of("Asinh", onnx::TensorProto::FLOAT16, DType::kF16, {1000, -0.25});
  EXPECT_NEAR(narrow.At(0), std::asinh(1000), 4e-3);  // whose square f16 does not hold
  EXPECT_NEAR(narrow.At(1), std::asinh(-0.25), 2e-4);
}

TEST(OnnxMath, OfNumbersThatAreNoFloatsThereAreNone) {
  ModelBuilder m(13);
  m.Input("x", {2}, onnx::TensorProto::INT32);
  m.Node("Atan", {"x"}, {"y"});
  m.Output("y");
  EXPECT_THAT(std::string(m.Import().status().message()), HasSubstr("float"));
}

// As x - floor(x / y) * y has it: of the divisor's sign, or with fmod of the dividend's.
TEST(OnnxMath, RemaindersOfFloats) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> x = {7, -7, 7, -7, -4.5, 6, -6, 0, 5, -5, 5, infinity, 1, std::nan("")};
  const std::vector<double> y = {3, 3, -3, -3, 2, 3, 3, -3, infinity, infinity, -infinity, 2, 0, 1};
  const auto count = static_cast<int64_t>(x.size());
  for (const int type : {onnx::TensorProto::FLOAT, onnx::TensorProto::FLOAT16, onnx::TensorProto::DOUBLE}) {
    for (const int64_t fmod : {0, 1}) {
      ModelBuilder m(28);
      m.Input("x", {count}, type);
      m.Input("y", {count}, type);
      ModelBuilder::SetInt(m.Node("Mod", {"x", "y"}, {"z"}), "fmod", fmod);
      m.Output("z");
      const DType dtype = type == onnx::TensorProto::FLOAT     ? DType::kF32
                          : type == onnx::TensorProto::FLOAT16 ? DType::kF16
                                                               : DType::kF64;
      NDArray a(dtype, {count}), b(dtype, {count});
      for (size_t i = 0; i < x.size(); ++i) {
        a.Set(static_cast<int64_t>(i), x[i]);
        b.Set(static_cast<int64_t>(i), y[i]);
      }
      const NDArray z = m.Run({a, b})[0];
      for (size_t i = 0; i < x.size(); ++i) {
        double want = std::fmod(x[i], y[i]);
        if (fmod == 0 && want != 0 && (want < 0) != (y[i] < 0)) want += y[i];
        const double got = z.At(static_cast<int64_t>(i));
        EXPECT_TRUE(got == want || (std::isnan(got) && std::isnan(want))) << x[i] << " " << y[i] << " " << got;
      }
    }
  }
}

}  // namespace
}  // namespace temper
