// Every kind of expression, scalar and vector, on every target that runs here.
#include "tests/codegen/expect_kernel.h"

namespace temper {
namespace {

using ir::Expr, ir::ExprKind, ir::ForKind;

constexpr int64_t kSize = 37;  // vectors of 16, a tail of 4 and one lane
constexpr DType kAll[] = {DType::kF32, DType::kF64, DType::kI64, DType::kI32, DType::kU8, DType::kI8, DType::kBool};

using Formula = std::function<Expr(Expr a, Expr b)>;

// out_f[i] = f(a[i], b[i]) for i in [0, size) and every formula f; outputs are of the formulas' own types.
ir::Func Map(DType in, ForKind kind, const std::vector<Formula>& formulas) {
  ir::Buffer a = ir::MakeBuffer("a", in, {kSize}), b = ir::MakeBuffer("b", in, {kSize});
  ir::Func func{"map", {a, b}, static_cast<int>(formulas.size()), nullptr};
  std::vector<ir::Stmt> loops;
  for (const Formula& f : formulas) {
    ir::Var i = ir::MakeVar("i");
    Expr value = f(ir::Load(a, {i}), ir::Load(b, {i}));
    func.params.push_back(ir::MakeBuffer("out" + std::to_string(loops.size()), value->dtype, {kSize}));
    loops.push_back(ir::For(i, kSize, kind, ir::Store(func.params.back(), {i}, value)));
  }
  func.body = ir::Seq(loops);
  return func;
}

void ExpectMaps(DType in, const std::vector<Formula>& formulas, double tolerance = 0) {
  for (ForKind kind : {ForKind::kSerial, ForKind::kVectorized}) ExpectSame(Map(in, kind, formulas), tolerance);
}

TEST(Expr, ArithmeticOfEveryType) {
  for (DType t : {DType::kF32, DType::kF64, DType::kI64, DType::kI32, DType::kU8, DType::kI8}) {
    SCOPED_TRACE(std::string(Name(t)));
    std::vector<Formula> formulas;
    for (ExprKind k : {ExprKind::kAdd, ExprKind::kSub, ExprKind::kMul, ExprKind::kMin, ExprKind::kMax}) {
      formulas.push_back([k](Expr a, Expr b) { return ir::Binary(k, a, b); });
    }
    ExpectMaps(t, formulas, t == DType::kF32 ? 1e-5 : 1e-13);
  }
  for (DType t : {DType::kF32, DType::kF64}) {
    ExpectMaps(t,
               {[](Expr a, Expr b) { return a / b; },
                [t](Expr a, Expr b) { return ir::Min(a * b + a, ir::Float(3, t)) - ir::Max(b, ir::Float(-1, t)) * a; }},
               1e-5);
  }
  ExpectMaps(DType::kF64, {[](Expr a, Expr b) { return a % b; }}, 1e-9);
  ExpectSame(Map(DType::kF32, ForKind::kUnrolled, {[](Expr a, Expr b) { return a * b + a; }}));
}

TEST(Expr, PairsOfSixteenBits) {
  ExpectMaps(DType::kI16, {[](Expr a, Expr b) { return ir::Pair(a, b); }});
  ExpectMaps(
      DType::kI32,
      {[](Expr a, Expr b) { return ir::Dot16(a * ir::Int(70001, DType::kI32), b * ir::Int(-98765, DType::kI32)); },
       [](Expr a, Expr b) { return b + ir::Dot16(a * ir::Int(70001, DType::kI32), ir::Int(-3, DType::kI32)); },
       [](Expr a, Expr b) { return ir::Dot16(b, a * ir::Int(1234567, DType::kI32)) + b; }});
  for (DType t : {DType::kU8, DType::kI8}) ExpectMaps(t, {[](Expr a, Expr b) { return ir::Pair(a, b); }});
  // All bytes of both differ, and are of both signs.
  ExpectMaps(
      DType::kI32,
      {[](Expr a, Expr b) {
         return ir::Dot8(a * ir::Int(1234567891, DType::kI32), b * ir::Int(-987654321, DType::kI32));
       },
       [](Expr a, Expr b) { return a + ir::Dot8(ir::Int(-1, DType::kI32), b * ir::Int(86028157, DType::kI32)); },
       [](Expr a, Expr b) { return b + ir::Dot8(a * ir::Int(-77, DType::kI32), ir::Int(0x7f80817f, DType::kI32)); }});
  // Products that are as large as they get where the first one's bytes are of seven bits, and of half of that.
  for (const int64_t mask : {0x7f7f7f7f, 0x0f0f0f0f}) {
    const Expr bits = ir::Int(mask, DType::kI32), low = ir::Int(0x80807f80, DType::kI32);
    ExpectMaps(
        DType::kI32,
        {[&](Expr a, Expr b) { return b + ir::Dot8(ir::BitAnd(a * ir::Int(-77, DType::kI32), bits), b); },
         [&](Expr a, Expr) { return ir::Dot8(bits, ir::Max(ir::Min(a, low), low)); },
         [&](Expr a, Expr b) { return ir::Dot8(ir::BitAnd(b, bits), ir::BitAnd(a, ir::Int(0x81, DType::kI32))); }});
  }
  ExpectMaps(DType::kI32, {[](Expr a, Expr b) { return ir::BitAnd(a, b) + ir::BitAnd(b, ir::Int(-4, DType::kI32)); }});
  // Both halves of each are -2^15: the products' sum wraps.
  const Expr least = ir::Int(-(int64_t{1} << 31) + 0x8000, DType::kI32);
  ExpectMaps(DType::kI32, {[&](Expr a, Expr) { return ir::Dot16(ir::Max(ir::Min(a, least), least), least); }});
}

// One load where they are neighbours, for all lanes or for each, and several where they are not.
TEST(Expr, PairsFromMemory) {
  const ir::Buffer a = ir::MakeBuffer("a", DType::kI16, {3 * kSize + 1});
  const auto pairs = [&](ForKind kind, int64_t stride, int64_t apart) {
    const ir::Var i = ir::MakeVar("i");
    const Expr first = Expr(i) * Expr(stride);
    const ir::Buffer out = ir::MakeBuffer("out", DType::kI32, {kSize});
    const Expr pair = ir::Pair(ir::Load(a, {first}), ir::Load(a, {first + Expr(apart)}));
    return ir::Func{"pairs", {a, out}, 1, ir::For(i, kSize, kind, ir::Store(out, {i}, pair))};
  };
  for (ForKind kind : {ForKind::kSerial, ForKind::kVectorized}) {
    for (int64_t stride : {0, 1, 2, 3}) {
      for (int64_t apart : {0, 1}) ExpectSame(pairs(kind, stride, apart));
    }
  }
  // Those of bytes that are widened.
  for (const DType narrow : {DType::kU8, DType::kI8}) {
    const ir::Buffer from = ir::MakeBuffer("from", narrow, {3 * kSize + 1});
    const auto widened = [&](ForKind kind, int64_t stride, int64_t apart) {
      const ir::Var i = ir::MakeVar("i");
      const ir::Buffer out = ir::MakeBuffer("out", DType::kI32, {kSize});
      const auto at = [&](int64_t k) {
        return ir::Cast(ir::Load(from, {Expr(i) * Expr(stride) + Expr(k)}), DType::kI16);
      };
      return ir::Func{
          "widened", {from, out}, 1, ir::For(i, kSize, kind, ir::Store(out, {i}, ir::Pair(at(0), at(apart))))};
    };
    for (int64_t stride : {0, 1, 2, 3}) {
      for (int64_t apart : {0, 1}) ExpectSame(widened(ForKind::kVectorized, stride, apart));
    }
  }
  const ir::Buffer bytes = ir::MakeBuffer("bytes", DType::kU8, {4 * kSize + 3});
  const auto fours = [&](ForKind kind, int64_t stride, int64_t last) {
    const ir::Var i = ir::MakeVar("i");
    const ir::Buffer out = ir::MakeBuffer("out", DType::kI32, {kSize});
    const auto at = [&](int64_t k) { return ir::Load(bytes, {Expr(i) * Expr(stride) + Expr(k)}); };
    const Expr four = ir::Pair(ir::Pair(at(0), at(1)), ir::Pair(at(2), at(last)));
    return ir::Func{"fours", {bytes, out}, 1, ir::For(i, kSize, kind, ir::Store(out, {i}, four))};
  };
  for (ForKind kind : {ForKind::kSerial, ForKind::kVectorized}) {
    for (int64_t stride : {0, 2, 4}) {
      for (int64_t last : {2, 3}) ExpectSame(fours(kind, stride, last));
    }
  }
}

TEST(Expr, DivisionAndModuloRoundDown) {
  for (DType t : {DType::kI64, DType::kI32, DType::kU8, DType::kI8}) {
    SCOPED_TRACE(std::string(Name(t)));
    std::vector<Formula> formulas;
    for (ExprKind k : {ExprKind::kDiv, ExprKind::kMod}) {
      for (int64_t d : {1, 2, 3, 16, 100, -1, -2, -5}) {
        if (d > 0 || t != DType::kU8) formulas.push_back([=](Expr a, Expr) { return ir::Binary(k, a, ir::Int(d, t)); });
      }
      formulas.push_back(
          [=](Expr a, Expr b) { return ir::Binary(k, a, ir::Select(ir::Eq(b, ir::Int(0, t)), ir::Int(3, t), b)); });
    }
    ExpectMaps(t, formulas);
  }
}

TEST(Expr, ADivisionByZeroInALaneThatIsNotTakenDoesNotTrap) {
  ir::Buffer a = ir::MakeBuffer("a", DType::kI32, {16}), b = ir::MakeBuffer("b", DType::kI32, {8}),
             c = ir::MakeBuffer("c", DType::kI32, {16});
  ir::Var i = ir::MakeVar("i");
  Expr value = ir::Select(Expr(i) < Expr(8),
                          ir::Load(a, {i}) / (ir::Load(b, {i}) * ir::Int(2, DType::kI32) + ir::Int(1, DType::kI32)),
                          ir::Int(5, DType::kI32));
  ExpectSame({"f", {a, b, c}, 1, ir::For(i, 16, ForKind::kVectorized, ir::Store(c, {i}, value))}, 0);
  Expr by_lane = ir::Select(Expr(3) < Expr(i), ir::Cast(Expr(100) / Expr(i), DType::kI32), ir::Int(0, DType::kI32));
  ExpectSame({"f", {a, b, c}, 1, ir::For(i, 16, ForKind::kVectorized, ir::Store(c, {i}, by_lane))}, 0);
}

TEST(Expr, ComparisonsAndLogic) {
  for (DType t : kAll) {
    SCOPED_TRACE(std::string(Name(t)));
    std::vector<Formula> formulas;
    for (ExprKind k : {ExprKind::kLt, ExprKind::kLe, ExprKind::kEq}) {
      formulas.push_back([k](Expr a, Expr b) { return ir::Binary(k, a, b); });
      formulas.push_back([k](Expr a, Expr) { return ir::Binary(k, a, a); });
    }
    ExpectMaps(t, formulas);
  }
  ExpectMaps(DType::kBool, {[](Expr a, Expr b) { return ir::Or(ir::And(a, ir::Not(b)), ir::And(ir::Not(a), b)); },
                            [](Expr a, Expr b) { return ir::Select(ir::And(a, b), ir::Float(1), ir::Float(2)); }});
}

TEST(Expr, CastsBetweenAllTypes) {
  for (DType from : kAll) {
    SCOPED_TRACE(std::string(Name(from)));
    std::vector<Formula> formulas;
    for (DType to : kAll) formulas.push_back([to](Expr a, Expr) { return ir::Cast(a, to); });
    ExpectMaps(from, formulas);
  }
}

TEST(Expr, RoundingFunctions) {
  for (DType t : {DType::kF32, DType::kF64}) {
    std::vector<Formula> formulas;
    for (ExprKind k : {ExprKind::kFloor, ExprKind::kCeil, ExprKind::kRound, ExprKind::kAbs}) {
      formulas.push_back([=](Expr a, Expr) {
        return ir::Unary(k, ir::Unary(ExprKind::kRound, a * ir::Float(2, t)) * ir::Float(0.5, t));
      });
    }
    formulas.push_back([](Expr a, Expr) { return ir::Sqrt(ir::Unary(ExprKind::kAbs, a)); });
    ExpectMaps(t, formulas, 1e-6);
  }
  for (DType t : {DType::kI64, DType::kI32}) ExpectMaps(t, {[](Expr a, Expr) { return ir::Unary(ExprKind::kAbs, a); }});
}

TEST(Expr, DoubleFunctionsAndPowersCallLibm) {
  for (DType t : {DType::kF32, DType::kF64}) {
    std::vector<Formula> formulas;
    for (ExprKind k : {ExprKind::kExp, ExprKind::kTanh, ExprKind::kErf, ExprKind::kSin, ExprKind::kCos}) {
      formulas.push_back([k](Expr a, Expr) { return ir::Unary(k, a); });
    }
    ExpectMaps(t, formulas, t == DType::kF32 ? 1e-6 : 1e-13);
    formulas = {[](Expr a, Expr b) { return ir::Binary(ExprKind::kPow, ir::Unary(ExprKind::kAbs, a), b); }};
    for (double y : {2.0, 3.0, 1.0, -1.0, 0.5, -0.5, 1.7}) {
      formulas.push_back(
          [=](Expr a, Expr) { return ir::Binary(ExprKind::kPow, ir::Unary(ExprKind::kAbs, a), ir::Float(y, t)); });
    }
    ExpectMaps(t, formulas, 1e-5);
  }
}

TEST(Expr, IndicesAsValues) {
  for (DType t : {DType::kF32, DType::kI64, DType::kI32, DType::kF64}) {
    ir::Buffer a = ir::MakeBuffer("a", t, {5, 24});
    ir::Var i = ir::MakeVar("i"), j = ir::MakeVar("j");
    for (ForKind kind : {ForKind::kSerial, ForKind::kVectorized}) {
      Expr value = ir::Cast(Expr(i) * Expr(1000) - Expr(j) * Expr(7) + Expr(j) / Expr(5) + Expr(j) % Expr(3), t);
      ExpectSame({"iota", {a}, 1, ir::For(i, 5, ForKind::kSerial, ir::For(j, 24, kind, ir::Store(a, {i, j}, value)))},
                 0);
      Expr linear = ir::Cast(Expr(i) * Expr(1000) - Expr(j) * Expr(7), t);
      ExpectSame({"iota", {a}, 1, ir::For(i, 5, ForKind::kSerial, ir::For(j, 24, kind, ir::Store(a, {i, j}, linear)))},
                 0);
    }
  }
}

}  // namespace
}  // namespace temper
