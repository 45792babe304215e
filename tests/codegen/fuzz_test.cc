// Random lowered functions, generated code against the interpreter on every target that runs here.
#include "tests/codegen/expect_kernel.h"

namespace temper {
namespace {

using ir::Expr, ir::ExprKind, ir::ForKind, ir::Stmt, ir::Var;

class Generator {
 public:
  explicit Generator(uint64_t seed) : rng_(seed) {}

  // Loops over an output, each element computed from inputs, scratch and a register accumulator.
  ir::Func Function() {
    for (int i = 0; i < 3; ++i) {
      const DType t = Pick<DType>({DType::kF32, DType::kF32, DType::kI32, DType::kU8, DType::kBool});
      inputs_.push_back(ir::MakeBuffer("in" + std::to_string(i), t, {1 + rng_.Below(6), 1 + rng_.Below(40)}));
    }
    ir::Func f{"fuzz", inputs_, 0, nullptr};
    std::vector<Stmt> nests;
    const int64_t count = 1 + rng_.Below(3);
    std::vector<ir::Buffer> scratch;
    for (int64_t n = 0; n < count; ++n) {
      const bool last = n + 1 == count;
      const DType t = Pick<DType>({DType::kF32, DType::kF32, DType::kF32, DType::kI32, DType::kF64});
      ir::Buffer out;
      nests.push_back(Nest(t, last ? "out" : "tmp" + std::to_string(n), out));
      if (!last) {
        scratch.push_back(out);
        inputs_.push_back(out);
      } else {
        f.params.push_back(out);
        ++f.num_outputs;
      }
    }
    f.body = ir::Seq(nests);
    for (const ir::Buffer& b : scratch) f.body = ir::Alloc(b, f.body);
    return f;
  }

 private:
  template <typename T>
  T Pick(std::vector<T> from) {
    return from[static_cast<size_t>(rng_.Below(static_cast<int64_t>(from.size())))];
  }
  bool Chance(int percent) { return rng_.Below(100) < percent; }

  // An integer in [0, bound), in terms of the loops around.
  Expr Index(int64_t bound) {
    Expr e = ir::Int(rng_.Below(8));
    for (const Var& v : vars_) {
      if (Chance(70)) e = e + Expr(v) * ir::Int(Pick<int64_t>({1, 1, 1, 2, 3, 8}));
    }
    if (Chance(25)) e = e / ir::Int(1 + rng_.Below(7));
    return e % ir::Int(bound);
  }

  Expr LoadOf(DType wanted) {
    ir::Buffer b = Pick(inputs_);
    // Computed floats carry rounding errors, which truncation would turn into differences of one.
    if (IsFloat(b->dtype) && !IsFloat(wanted)) b = inputs_[static_cast<size_t>(rng_.Below(3))];
    std::vector<Expr> indices;
    for (int64_t d : b->shape) indices.push_back(Index(d));
    // Sometimes the lane alone, so that loads are contiguous, under the condition that keeps it in range.
    if (!vars_.empty() && Chance(50)) {
      Expr at = Expr(vars_.back()) + ir::Int(rng_.Below(20) - 8);
      indices.back() = at;
      Expr inside = ir::And(Expr(0) <= at, at < ir::Int(b->shape.back()));
      return ir::Select(inside, ir::Cast(ir::Load(b, indices), wanted),
                        ir::Const(static_cast<double>(rng_.Below(5)), wanted));
    }
    return ir::Cast(ir::Load(b, indices), wanted);
  }

  // Conditions compare what is exact, so that rounding never decides.
  Expr Condition(int depth) {
    switch (rng_.Below(depth > 0 ? 5 : 3)) {
      case 0:
        return Index(1 + rng_.Below(20)) < ir::Int(rng_.Below(12));
      case 1:
        return LoadOf(DType::kI32) <= ir::Int(rng_.Below(60) - 20, DType::kI32);
      case 2:
        return ir::Eq(Index(4), Index(3));
      case 3:
        return ir::And(Condition(depth - 1), Condition(depth - 1));
      default:
        return ir::Or(ir::Not(Condition(depth - 1)), Condition(depth - 1));
    }
  }

  Expr Value(DType t, int depth) {
    if (depth == 0 || Chance(15)) {
      const int64_t k = rng_.Below(4);
      if (k == 0) return ir::Const(static_cast<double>(rng_.Below(7) - 3), t);
      if (k == 1 && !vars_.empty()) return ir::Cast(Index(17), t);
      return LoadOf(t);
    }
    switch (rng_.Below(IsFloat(t) ? 8 : 5)) {
      case 0:
        return Value(t, depth - 1) + Value(t, depth - 1);
      case 1:
        return Value(t, depth - 1) - Value(t, depth - 1);
      case 2:
        return Chance(50) ? ir::Max(Value(t, depth - 1), Value(t, depth - 1))
                          : ir::Min(Value(t, depth - 1), Value(t, depth - 1));
      case 3:
        return ir::Select(Condition(1), Value(t, depth - 1), Value(t, depth - 1));
      case 4:
        return IsFloat(t) ? Value(t, depth - 1) * ir::Const(0.5, t) : Value(t, depth - 1) * ir::Const(3, t);
      case 5:
        return ir::Unary(ExprKind::kTanh, Value(t, depth - 1)) * Value(t, depth - 1);
      case 6:
        return ir::Exp(ir::Unary(ExprKind::kErf, Value(t, depth - 1)));
      default:
        return Value(t, depth - 1) / (ir::Unary(ExprKind::kAbs, Value(t, depth - 1)) + ir::Const(1, t));
    }
  }

  ForKind Kind(bool outermost, bool innermost) {
    if (innermost && Chance(60)) return ForKind::kVectorized;
    if (outermost && Chance(50)) return ForKind::kParallel;
    return Pick<ForKind>({ForKind::kSerial, ForKind::kUnrolled, ForKind::kOutlined});
  }

  // out[i, j] over one to three loops; the columns may be split, with a tail under a condition.
  Stmt Nest(DType t, const std::string& name, ir::Buffer& out) {
    const int64_t rows = 1 + rng_.Below(5), columns = 1 + rng_.Below(40), factor = 1 + rng_.Below(20);
    out = ir::MakeBuffer(name, t, {rows, columns});
    const bool split = Chance(50);
    Var i = ir::MakeVar(name + "_i"), j = ir::MakeVar(name + "_j"), k = ir::MakeVar(name + "_k");
    vars_ = {i, j};
    Expr column = j;
    if (split) {
      vars_.push_back(k);
      column = Expr(j) * ir::Int(factor) + Expr(k);
    }
    Stmt body = Chance(35) ? Accumulate(t, out, {i, column}, name) : ir::Store(out, {i, column}, Value(t, 3));
    if (Chance(25))
      body = ir::Seq({body, ir::If(Condition(1), ir::Store(out, {i, column}, Value(t, 2)),
                                   Chance(50) ? ir::Store(out, {i, column}, Value(t, 1)) : nullptr)});
    if (split) {
      const int64_t outer = (columns + factor - 1) / factor;
      if (columns % factor != 0) body = ir::If(column < ir::Int(columns), body);
      body = ir::For(j, outer, Pick<ForKind>({ForKind::kSerial, ForKind::kUnrolled, ForKind::kOutlined}),
                     ir::For(k, factor, Kind(false, true), body));
    } else {
      body = ir::For(j, columns, Kind(false, true), body);
    }
    return ir::For(i, rows, Kind(true, false), body);
  }

  // A sum kept in an array of one element (memory or register) over a loop that is serial, unrolled or vectorised.
  Stmt Accumulate(DType t, const ir::Buffer& out, std::vector<Expr> at, const std::string& name) {
    ir::Buffer acc = ir::MakeBuffer(name + "_acc", t, {3}, ir::Scope::kRegister);
    Var r = ir::MakeVar(name + "_r");
    std::vector<Var> outside = vars_;
    vars_.insert(vars_.begin(), r);
    const ExprKind kind = Pick<ExprKind>({ExprKind::kAdd, ExprKind::kMax, ExprKind::kMin});
    Stmt update = ir::Store(acc, {1}, ir::Binary(kind, ir::Load(acc, {1}), Value(t, 2)));
    vars_ = outside;
    return ir::Alloc(
        acc, ir::Seq({ir::Store(acc, {1}, Value(t, 1)),
                      ir::For(r, 1 + rng_.Below(9), Pick<ForKind>({ForKind::kSerial, ForKind::kUnrolled}), update),
                      ir::Store(out, std::move(at), ir::Load(acc, {1}))}));
  }

  Rng rng_;
  std::vector<ir::Buffer> inputs_;
  std::vector<Var> vars_;
};

TEST(Fuzz, GeneratedCodeComputesWhatTheInterpreterDoes) {
  int compared = 0;
  const char* only = std::getenv("TEMPER_FUZZ_SEED");
  const char* more = std::getenv("TEMPER_FUZZ_COUNT");
  const uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 10) : 1;
  const uint64_t count = only != nullptr ? 1 : more != nullptr ? std::strtoull(more, nullptr, 10) : 40;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(seed);
    const ir::Func f = Generator(seed).Function();
    ASSERT_TRUE(ir::Verify(f).ok()) << ir::Verify(f) << "\n" << ir::Text(f);
    Rng rng(seed);
    const std::vector<NDArray> args = RandomArgs(f, rng);
    for (const Target& t : TestTargets()) {
      ASSERT_TRUE(SameOnTarget(f, args, t, 2e-4, 1 + static_cast<int>(seed % 3)));
      ++compared;
    }
  }
  EXPECT_GE(compared, static_cast<int>(count));
}

}  // namespace
}  // namespace temper
