// OpenCL code: its text, and what PoCL computes with it beside what the interpreter does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "compiler/codegen/opencl/generator.h"
#include "compiler/codegen/opencl/launch.h"
#include "compiler/ir/launch.h"
#include "tests/codegen/device_run.h"
#include "tests/golden.h"
#include "tests/ir/toy_launches.h"

namespace temper {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::ExprKind;
using ir::ForKind;
using ir::Func;
using ir::Stmt;
using ir::Var;
using testing::HasSubstr;

Target TargetOf(std::string_view text) { return ParseTarget(text).value(); }
const char kTarget[] = "opencl -local=32768 -wg=256";

// What the device makes of `args`, in their place.
absl::Status RunOnDevice(const Func& func, std::vector<NDArray>& args) {
  TEMPER_ASSIGN_OR_RETURN(const Artifact artifact, CompileForOpencl({{"k", func}}, TargetOf(kTarget)));
  std::vector<std::span<std::byte>> bytes;
  for (NDArray& array : args) bytes.push_back(BytesOf(array));
  const int32_t result = CallOnDevice(kOpenclDevice, artifact.code, "k", bytes, artifact.kernels[0].workspace_bytes);
  return result == TEMPER_OK ? absl::OkStatus() : absl::InternalError(absl::StrCat("the kernel returned ", result));
}

bool SameBytes(const NDArray& a, const NDArray& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0;
}

// With bytes of their own.
std::vector<NDArray> Copies(const std::vector<NDArray>& arrays) {
  std::vector<NDArray> copies;
  for (const NDArray& array : arrays) copies.push_back(array.Clone());
  return copies;
}

// Both run on the same inputs; sums of the toys' small integers are exact in any order.
void ExpectSameAsInterpreter(const Func& func, const std::vector<NDArray>& inputs) {
  std::vector<NDArray> want = Copies(inputs), got = Copies(inputs);
  ASSERT_TRUE(ir::Interpret(func, want).ok());
  const absl::Status status = RunOnDevice(func, got);
  ASSERT_TRUE(status.ok()) << status;
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(SameBytes(got[i], want[i])) << "parameter " << i;
}

void ExpectGolden(const std::string& name, const Func& func) {
  const absl::StatusOr<std::string> text = EmitOpenclText({{"k", func}}, TargetOf(kTarget), "cl");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_TRUE(MatchesGolden(absl::StrCat("// ", OpenclId(TargetOf(kTarget)), "\n", *text), "codegen", name));
}

TEST(OpenclText, ToysAreWrittenAsTheyWere) {
  ExpectGolden("opencl_reduction", ir::Reduction({}).launch);
  ExpectGolden("opencl_transpose", ir::Transpose({}).launch);
  ExpectGolden("opencl_matmul", ir::Matmul({.buffers = 2}).launch);
}

TEST(OpenclRun, ToysComputeWhatTheInterpreterDoes) {
  Rng rng(7);
  std::vector<ir::Toy> toys = {ir::Reduction({}), ir::Transpose({}), ir::Matmul({.buffers = 1}),
                               ir::Matmul({.buffers = 2})};
  for (int i = 0; i < 4; ++i) toys.push_back(ir::DrawToy(rng));
  for (const ir::Toy& toy : toys) {
    SCOPED_TRACE(toy.name);
    ExpectSameAsInterpreter(toy.launch, ir::DrawArguments(toy.launch, rng));
  }
}

// out[i] = f(i) for all i: groups of 8 threads, with what is left over at the end.
Func Elementwise(std::vector<Buffer> inputs, const Buffer& out, const std::function<Expr(const Expr&)>& f) {
  constexpr int64_t kThreads = 8;
  Var g = ir::MakeVar("group"), t = ir::MakeVar("exp");  // a name that means something in OpenCL C
  const int64_t n = out->shape[0];
  const Expr i = Expr(g) * Expr(kThreads) + Expr(t);
  Stmt body = ir::If(i < Expr(n), ir::Store(out, {i}, f(i)));
  body = ir::For(g, (n + kThreads - 1) / kThreads, ForKind::kGroupX, ir::For(t, kThreads, ForKind::kThreadX, body));
  inputs.push_back(out);
  return {"elementwise", inputs, 1, body};
}

// Numbers of every size, with those where conversions turn.
NDArray DrawNumbers(DType dtype, int64_t n, Rng& rng) {
  NDArray a(dtype, {n});
  const double special[] = {0,   -0.0, 1,       -1,      0.5,      -0.5,      2.5,         255,
                            256, -129, 65504,   65520,   0x1p31,   -0x1p31,   0x1p40,      -0x1p63,
                            448, 464,  0x1p-10, 0x1p-25, HUGE_VAL, -HUGE_VAL, std::nan("")};
  for (int64_t i = 0; i < n; ++i) {
    const size_t at = static_cast<size_t>(i);
    double v =
        at < std::size(special) ? special[at] : std::ldexp(rng.Uniform() - 0.5, static_cast<int>(rng.Below(30)) - 10);
    if (!IsFloat(dtype)) v = std::isfinite(v) ? v : 7;
    if (IsFloat(dtype)) {
      StoreBits(dtype, a.MutableData(), i, EncodeFloat(dtype, v));
    } else {
      StoreBits(dtype, a.MutableData(), i, static_cast<uint64_t>(TruncateTo(dtype, v)));
    }
  }
  return a;
}

// Each type is loaded, and cast to each that can be stored, in one program a type.
TEST(OpenclRun, CastsBetweenAllTypesAreTheInterpreters) {
  Rng rng(11);
  constexpr int64_t kCount = 200;
  for (const DTypeInfo& from : AllDTypes()) {
    Buffer in = ir::MakeBuffer("in", from.dtype, {kCount});
    Var g = ir::MakeVar("g"), t = ir::MakeVar("t");
    std::vector<Buffer> params = {in};
    std::vector<NDArray> arrays = {DrawNumbers(from.dtype, kCount, rng)};
    std::vector<Stmt> stores;
    const Expr i = Expr(g) * Expr(8) + Expr(t);
    for (const DTypeInfo& to : AllDTypes()) {
      if (IsPacked(to.dtype)) continue;
      for (const bool saturate : {false, true}) {
        CastMode mode;
        mode.saturate = saturate;
        if (saturate && !HasCastMode(to.dtype)) continue;
        params.push_back(ir::MakeBuffer(std::string(to.name), to.dtype, {kCount}));
        stores.push_back(ir::Store(params.back(), {i}, ir::Cast(ir::Load(in, {i}), to.dtype, mode)));
        arrays.emplace_back(to.dtype, Shape{kCount});
      }
    }
    const Func func = {"casts", params, static_cast<int>(params.size() - 1),
                       ir::For(g, kCount / 8, ForKind::kGroupX, ir::For(t, 8, ForKind::kThreadX, ir::Seq(stores)))};
    std::vector<NDArray> want = Copies(arrays), got = Copies(arrays);
    ASSERT_TRUE(ir::Interpret(func, want).ok());
    const absl::Status status = RunOnDevice(func, got);
    ASSERT_TRUE(status.ok()) << from.name << ": " << status;
    for (size_t p = 1; p < params.size(); ++p) {
      const DType to = params[p]->dtype;
      int wrong = 0;
      for (int64_t n = 0; n < kCount; ++n) {
        const uint64_t a = LoadBits(to, want[p].data(), n), b = LoadBits(to, got[p].data(), n);
        const bool both_nan = IsFloat(to) && std::isnan(DecodeFloat(to, a)) && std::isnan(DecodeFloat(to, b));
        if (a == b || both_nan || wrong++ > 2) continue;
        ADD_FAILURE() << from.name << " bits " << LoadBits(from.dtype, arrays[0].data(), n) << " to " << params[p]->name
                      << ": " << b << " where " << a << " is right";
      }
    }
  }
}

TEST(OpenclRun, ArithmeticIsTheInterpreters) {
  Rng rng(13);
  constexpr int64_t kCount = 120;
  using Binary = Expr (*)(Expr, Expr);
  const std::pair<const char*, Binary> operations[] = {
      {"add", [](Expr a, Expr b) { return a + b; }},
      {"sub", [](Expr a, Expr b) { return a - b; }},
      {"mul", [](Expr a, Expr b) { return a * b; }},
      {"div", [](Expr a, Expr b) { return a / b; }},
      {"mod", [](Expr a, Expr b) { return a % b; }},
      {"min", [](Expr a, Expr b) { return ir::Min(a, b); }},
      {"max", [](Expr a, Expr b) { return ir::Max(a, b); }},
      {"select", [](Expr a, Expr b) { return ir::Select(ir::Or(a < b, ir::Eq(a, b)), a, b); }},
      {"abs", [](Expr a, Expr b) { return ir::Unary(ExprKind::kAbs, a - b); }},
  };
  for (const DTypeInfo& type : AllDTypes()) {
    if (!IsNative(type.dtype) || type.dtype == DType::kBool) continue;
    Buffer a = ir::MakeBuffer("a", type.dtype, {kCount}), b = ir::MakeBuffer("b", type.dtype, {kCount});
    Var g = ir::MakeVar("g"), t = ir::MakeVar("t");
    const Expr i = Expr(g) * Expr(8) + Expr(t);
    std::vector<Buffer> params = {a, b};
    std::vector<Stmt> stores;
    for (const auto& [name, make] : operations) {
      params.push_back(ir::MakeBuffer(name, type.dtype, {kCount}));
      stores.push_back(ir::Store(params.back(), {i}, make(ir::Load(a, {i}), ir::Load(b, {i}))));
    }
    std::vector<NDArray> args = {NDArray(type.dtype, {kCount}), NDArray(type.dtype, {kCount})};
    for (int64_t n = 0; n < kCount; ++n) {
      for (NDArray& array : args) {
        array.Set(n,
                  static_cast<double>(rng.Below(IsUnsigned(type.dtype) ? 100 : 9)) - (IsUnsigned(type.dtype) ? 0 : 4));
      }
    }
    for (size_t p = 2; p < params.size(); ++p) args.emplace_back(type.dtype, Shape{kCount});
    const Func func = {"arithmetic", params, static_cast<int>(params.size() - 2),
                       ir::For(g, kCount / 8, ForKind::kGroupX, ir::For(t, 8, ForKind::kThreadX, ir::Seq(stores)))};
    std::vector<NDArray> want = Copies(args), got = Copies(args);
    ASSERT_TRUE(ir::Interpret(func, want).ok());
    const absl::Status status = RunOnDevice(func, got);
    ASSERT_TRUE(status.ok()) << type.name << ": " << status;
    for (size_t p = 2; p < params.size(); ++p) {
      for (int64_t n = 0; n < kCount; ++n) {
        const double w = want[p].At(n), v = got[p].At(n);
        const bool same = w == v || (std::isnan(w) && std::isnan(v)) || std::abs(w - v) <= 1e-6 * std::abs(w);
        ASSERT_TRUE(same) << type.name << " " << params[p]->name << " of " << args[0].At(n) << " and " << args[1].At(n)
                          << " is " << w << ", not " << v;
      }
    }
  }
}

TEST(OpenclRun, FunctionsAreWithinOpenclsBounds) {
  constexpr int64_t kCount = 64;
  Buffer x = ir::MakeBuffer("x", DType::kF32, {kCount});
  Var g = ir::MakeVar("g"), t = ir::MakeVar("t");
  const Expr i = Expr(g) * Expr(8) + Expr(t);
  std::vector<Buffer> params = {x};
  std::vector<Stmt> stores;
  const auto store = [&](const std::string& name, const Expr& value) {
    params.push_back(ir::MakeBuffer(name, DType::kF32, {kCount}));
    stores.push_back(ir::Store(params.back(), {i}, value));
  };
  const Expr v = ir::Load(x, {i});
  for (auto kind = static_cast<int>(ExprKind::kExp); kind <= static_cast<int>(ExprKind::kCos); ++kind)
    store(std::string(ir::Name(static_cast<ExprKind>(kind))), ir::Unary(static_cast<ExprKind>(kind), v));
  for (const double power : {2.0, 3.0, 0.5, -0.5, -1.0, 1.7})
    store("pow", ir::Binary(ExprKind::kPow, v, ir::Float(power)));
  std::vector<NDArray> args = {NDArray(DType::kF32, {kCount})};
  for (int64_t n = 0; n < kCount; ++n) args[0].Set(n, 0.05 + 0.13 * static_cast<double>(n));
  for (size_t p = 1; p < params.size(); ++p) args.emplace_back(DType::kF32, Shape{kCount});
  const Func func = {"functions", params, static_cast<int>(params.size() - 1),
                     ir::For(g, kCount / 8, ForKind::kGroupX, ir::For(t, 8, ForKind::kThreadX, ir::Seq(stores)))};
  std::vector<NDArray> want = Copies(args), got = Copies(args);
  ASSERT_TRUE(ir::Interpret(func, want).ok());
  const absl::Status status = RunOnDevice(func, got);
  ASSERT_TRUE(status.ok()) << status;
  for (size_t p = 1; p < params.size(); ++p) {
    for (int64_t n = 0; n < kCount; ++n)
      ASSERT_NEAR(got[p].At(n), want[p].At(n), 2e-6 * std::max(1.0, std::abs(want[p].At(n)))) << params[p]->name;
  }
}

TEST(OpenclRun, AValueThatIsUsedOftenIsWrittenOnce) {
  Buffer in = ir::MakeBuffer("in", DType::kF32, {20}), out = ir::MakeBuffer("out", DType::kF32, {20});
  const Func func = Elementwise({in}, out, [&](const Expr& i) {
    Expr e = ir::Load(in, {i});
    for (int k = 0; k < 12; ++k) e = (e + e) * ir::Float(0.5);
    return e;
  });
  const auto text = EmitOpenclText({{"k", func}}, TargetOf(kTarget), "cl");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_LT(text->size(), 6000u);
  Rng rng(1);
  ExpectSameAsInterpreter(func, ir::DrawArguments(func, rng));
}

// What a condition keeps from being loaded is not loaded, though it is used twice.
TEST(OpenclRun, ValuesUnderConditionsAreNotLoadedBefore) {
  Buffer in = ir::MakeBuffer("in", DType::kF32, {5}), out = ir::MakeBuffer("out", DType::kF32, {20});
  const Func func = Elementwise({in}, out, [&](const Expr& i) {
    const Expr far = ir::Load(in, {i * Expr(1) - Expr(10)});
    return ir::Select(ir::And(Expr(9) < i, i < Expr(15)), far * far, ir::Float(3));
  });
  const auto text = EmitOpenclText({{"k", func}}, TargetOf(kTarget), "cl");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, testing::Not(HasSubstr("const float t"))) << *text;
  Rng rng(1);
  ExpectSameAsInterpreter(func, ir::DrawArguments(func, rng));
}

// Lanes that lie side by side are vectors; those of which one reads what another wrote, or that turn, are not.
TEST(OpenclRun, VectorisedLoopsOverNeighboursAreVectors) {
  constexpr int64_t kThreads = 4, kLanes = 4, kCount = kThreads * kLanes;
  Buffer in = ir::MakeBuffer("in", DType::kF32, {kCount + 1}), out = ir::MakeBuffer("out", DType::kF32, {3 * kCount}),
         tile = ir::MakeBuffer("tile", DType::kF32, {kCount}, ir::Scope::kShared),
         own = ir::MakeBuffer("own", DType::kF32, {kLanes}, ir::Scope::kRegister);
  Var g = ir::MakeVar("g"), t = ir::MakeVar("t");
  const auto lanes = [&](const std::function<Stmt(const Expr&)>& code) {
    Var v = ir::MakeVar("v");
    return ir::For(v, kLanes, ForKind::kVectorized, code(v));
  };
  const Expr at = Expr(t) * Expr(kLanes), back = Expr(kCount - 1) - at;
  const Stmt code = ir::Seq(
      {lanes([&](const Expr& v) { return ir::Store(own, {v}, ir::Load(in, {at + v + 1}) + ir::Float(1)); }),
       lanes([&](const Expr& v) { return ir::Store(tile, {at + v}, ir::Load(own, {v}) * ir::Load(in, {at + v})); }),
       ir::Barrier(), lanes([&](const Expr& v) { return ir::Store(out, {at + v}, ir::Load(tile, {back - v})); }),
       lanes([&](const Expr& v) { return ir::Store(out, {Expr(kCount) + at + v}, ir::Load(tile, {at + v})); }),
       lanes([&](const Expr& v) { return ir::Store(own, {v}, ir::Load(tile, {at + v})); }), lanes([&](const Expr& v) {
         return ir::Store(own, {v}, ir::Select(Expr(0) < v, ir::Load(own, {ir::Max(v - 1, 0)}), ir::Load(own, {v})));
       }),
       lanes([&](const Expr& v) { return ir::Store(out, {Expr(2 * kCount) + at + v}, ir::Load(own, {v})); })});
  Stmt body = ir::For(t, kThreads, ForKind::kThreadX, ir::Alloc(own, code));
  body = ir::For(g, 1, ForKind::kGroupX, ir::Alloc(tile, body));
  const Func func = {"vectors", {in, out}, 1, body};
  ExpectGolden("opencl_vectors", func);
  Rng rng(2);
  std::vector<NDArray> args = ir::DrawArguments(func, rng);
  ExpectSameAsInterpreter(func, args);
}

// Two launches, the first of which writes scratch that the second reads; and indices that come from memory.
TEST(OpenclRun, LaunchesPassScratchOnAndIndicesMayBeLoaded) {
  constexpr int64_t kCount = 16;
  Buffer in = ir::MakeBuffer("in", DType::kF32, {kCount}), at = ir::MakeBuffer("at", DType::kI64, {kCount}),
         out = ir::MakeBuffer("out", DType::kF32, {kCount}), between = ir::MakeBuffer("between", DType::kF32, {kCount}),
         flags = ir::MakeBuffer("flags", DType::kBool, {kCount});
  const auto launch = [&](const std::function<Stmt(const Expr&)>& code) {
    Var g = ir::MakeVar("g"), t = ir::MakeVar("t");
    return ir::For(g, 2, ForKind::kGroupX, ir::For(t, 8, ForKind::kThreadX, code(Expr(g) * Expr(8) + Expr(t))));
  };
  const Stmt body = ir::Seq(
      {launch([&](const Expr& i) {
         return ir::Seq({ir::Store(between, {i}, ir::Load(in, {i}) * ir::Float(2)),
                         ir::Store(flags, {i}, ir::Load(in, {i}) < ir::Float(0))});
       }),
       launch([&](const Expr& i) {
         const Expr from = ir::Load(at, {i});
         return ir::Store(out, {i}, ir::Select(ir::Load(flags, {from}), ir::Load(between, {from}), ir::Float(-1)));
       })});
  const Func func = {"two", {in, at, out}, 1, ir::Alloc(between, ir::Alloc(flags, body))};
  const auto artifact = CompileForOpencl({{"k", func}}, TargetOf(kTarget));
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  EXPECT_EQ(artifact->kernels[0].launches.size(), 2u);
  EXPECT_EQ(artifact->kernels[0].workspace_bytes, 512);
  std::vector<NDArray> args = {NDArray(DType::kF32, {kCount}), NDArray(DType::kI64, {kCount}),
                               NDArray(DType::kF32, {kCount})};
  for (int64_t i = 0; i < kCount; ++i) {
    args[0].Set(i, static_cast<double>(i % 5) - 2);
    args[1].Set(i, static_cast<double>(i * 7 % kCount));
  }
  ExpectSameAsInterpreter(func, args);
}

TEST(OpenclCompile, RefusesInWordsWhatItCanNot) {
  Buffer in = ir::MakeBuffer("in", DType::kI4, {16}), out = ir::MakeBuffer("out", DType::kI4, {16});
  const Func packed = Elementwise({in}, out, [&](const Expr& i) { return ir::Load(in, {i}); });
  EXPECT_THAT(std::string(CompileForOpencl({{"k", packed}}, TargetOf(kTarget)).status().message()),
              HasSubstr("share bytes"));
  const ir::Toy toy = ir::Reduction({});
  EXPECT_THAT(std::string(CompileForOpencl({{"k", toy.plain}}, TargetOf(kTarget)).status().message()),
              HasSubstr("without group and thread loops"));
  EXPECT_THAT(std::string(CompileForOpencl({{"k", toy.launch}}, TargetOf("opencl -wg=8")).status().message()),
              HasSubstr("where the target has 8 at most"));
  EXPECT_THAT(std::string(CompileForOpencl({{"k", toy.launch}}, TargetOf("opencl -local=64")).status().message()),
              HasSubstr("bytes of shared memory"));
  EXPECT_FALSE(CompileForOpencl({{"k", toy.launch}, {"k", toy.launch}}, TargetOf(kTarget)).ok());
  EXPECT_FALSE(CompileForOpencl({{"a-b", toy.launch}}, TargetOf(kTarget)).ok());
  EXPECT_FALSE(CompileForOpencl({{"k", toy.launch}}, TargetOf("interpreter")).ok());
}

TEST(OpenclCompile, DamagedCodeIsAnError) {
  const Artifact artifact = CompileForOpencl({{"k", ir::Reduction({}).launch}}, TargetOf(kTarget)).value();
  EXPECT_NE(ReadOpenclProgram(artifact.code)->Find("k"), nullptr);
  EXPECT_EQ(ReadOpenclProgram(artifact.code)->Find("other"), nullptr);
  for (const char* text :
       {"", "null", "{}", "[1]", "{\"source\": 1, \"kernels\": {}}", "{\"source\": \"\", \"kernels\": {\"k\": {}}}"})
    EXPECT_FALSE(ReadOpenclProgram(text).ok()) << text;
  const temper_call call = {nullptr, nullptr, nullptr, nullptr, nullptr};
  EXPECT_EQ(kOpenclDevice.launch("", 0, "k", &call), TEMPER_NO_PACKAGE);
  EXPECT_EQ(kOpenclDevice.launch(artifact.code.data(), std::ssize(artifact.code), "other", &call), TEMPER_NO_PACKAGE);
}

}  // namespace
}  // namespace temper
