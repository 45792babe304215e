#include "tests/schedule/programs.h"

#include <cstring>

namespace temper {

using ir::Combiner;
using ir::Expr;
using ir::Load;
using ir::ProgramBuilder;

Expr Relu(const Expr& x) { return Max(x, ir::Float(0)); }
Expr Silu(const Expr& x) { return x / (ir::Float(1) + Exp(ir::Float(-1) * x)); }

ir::Func PackedMatmul(int64_t m, int64_t n, int64_t k, int64_t nr, Expr (*activation)(const Expr&)) {
  const int64_t panels = (n + nr - 1) / nr;
  ProgramBuilder b("packed_matmul");
  ir::Buffer a = b.Input("a", DType::kF32, {m, k}), bp = b.Input("b", DType::kF32, {panels, k, nr});
  ir::Buffer bias = b.Input("bias", DType::kF32, {n});
  ir::Buffer acc = b.Reduce("acc", DType::kF32, {m, panels * nr}, {k}, Combiner::kSum, [&](auto& i, auto& r) {
    return Load(a, {i[0], r[0]}) * Load(bp, {i[1] / Expr(nr), r[0], i[1] % Expr(nr)});
  });
  b.MarkOutput(b.Compute("out", DType::kF32, {m, n}, [&](auto& i) {
    return activation(Load(acc, {i[0], i[1]}) + Load(bias, {i[1]}));
  }));
  return *b.Finish();
}

ir::Func Matmul(int64_t m, int64_t n, int64_t k) {
  ProgramBuilder builder("matmul");
  ir::Buffer a = builder.Input("a", DType::kF32, {m, k}), b = builder.Input("b", DType::kF32, {k, n});
  builder.MarkOutput(builder.Reduce("c", DType::kF32, {m, n}, {k}, Combiner::kSum, [&](auto& i, auto& r) {
    return Load(a, {i[0], r[0]}) * Load(b, {r[0], i[1]});
  }));
  return *builder.Finish();
}

ir::Func Softmax(int64_t rows, int64_t columns) {
  ProgramBuilder b("softmax");
  ir::Buffer x = b.Input("x", DType::kF32, {rows, columns});
  ir::Buffer largest = b.Reduce("largest", DType::kF32, {rows}, {columns}, Combiner::kMax, [&](auto& i, auto& r) {
    return Load(x, {i[0], r[0]});
  });
  ir::Buffer power = b.Compute("power", DType::kF32, {rows, columns}, [&](auto& i) {
    return Exp(Load(x, {i[0], i[1]}) - Load(largest, {i[0]}));
  });
  ir::Buffer total = b.Reduce("total", DType::kF32, {rows}, {columns}, Combiner::kSum, [&](auto& i, auto& r) {
    return Load(power, {i[0], r[0]});
  });
  b.MarkOutput(b.Compute("out", DType::kF32, {rows, columns}, [&](auto& i) {
    return Load(power, {i[0], i[1]}) / Load(total, {i[0]});
  }));
  return *b.Finish();
}

ir::Func PaddedConv(int64_t h, int64_t w, int64_t c, int64_t oc) {
  ProgramBuilder b("conv");
  ir::Buffer x = b.Input("x", DType::kF32, {h, w, c}), f = b.Input("f", DType::kF32, {3, 3, c, oc});
  ir::Buffer padded = b.Compute("padded", DType::kF32, {h + 2, w + 2, c}, [&](auto& i) {
    Expr inside = And(And(Expr(1) <= i[0], i[0] < Expr(h + 1)), And(Expr(1) <= i[1], i[1] < Expr(w + 1)));
    return Select(inside, Load(x, {i[0] - Expr(1), i[1] - Expr(1), i[2]}), ir::Float(0));
  });
  ir::Buffer acc = b.Reduce("acc", DType::kF32, {h, w, oc}, {3, 3, c}, Combiner::kSum, [&](auto& i, auto& r) {
    return Load(padded, {i[0] + r[0], i[1] + r[1], r[2]}) * Load(f, {r[0], r[1], r[2], i[2]});
  });
  b.MarkOutput(b.Compute("out", DType::kF32, {h, w, oc}, [&](auto& i) { return Max(Load(acc, i), ir::Float(0)); }));
  return *b.Finish();
}

absl::StatusOr<std::vector<NDArray>> RunFunc(const ir::Func& f, uint64_t seed) {
  Rng rng(seed);
  std::vector<NDArray> args;
  const size_t inputs = f.params.size() - static_cast<size_t>(f.num_outputs);
  for (size_t i = 0; i < f.params.size(); ++i) {
    NDArray arg(f.params[i]->dtype, f.params[i]->shape);
    for (int64_t e = 0; e < arg.size(); ++e)
      arg.Set(e, i < inputs ? static_cast<double>(rng.Below(9)) - 4 : std::nan(""));
    args.push_back(std::move(arg));
  }
  TEMPER_RETURN_IF_ERROR(ir::Interpret(f, args));
  return std::vector<NDArray>(args.begin() + static_cast<std::ptrdiff_t>(inputs), args.end());
}

::testing::AssertionResult SameResults(const ir::Func& a, const ir::Func& b, double tolerance, uint64_t seed) {
  absl::StatusOr<std::vector<NDArray>> want = RunFunc(a, seed), got = RunFunc(b, seed);
  if (!want.ok()) return ::testing::AssertionFailure() << want.status();
  if (!got.ok()) return ::testing::AssertionFailure() << got.status() << "\n" << ir::Text(b);
  for (size_t i = 0; i < want->size(); ++i) {
    const bool same =
        tolerance > 0 ? RelativeError((*got)[i], (*want)[i]) <= tolerance
                      : std::memcmp((*got)[i].data(), (*want)[i].data(), static_cast<size_t>((*want)[i].bytes())) == 0;
    if (!same) return ::testing::AssertionFailure() << "output " << i << " differs in\n" << ir::Text(b);
  }
  return ::testing::AssertionSuccess();
}

void ScheduleTiles(Schedule& s, int64_t mr, int64_t nr, int64_t lanes, bool fuse_tiles) {
  std::vector<Loop> loops = s.Loops("out");
  auto [row_tile, row] = s.Split(loops[0], mr);
  auto [panel, column] = s.Split(loops[1], nr);
  auto [vector, lane] = s.Split(column, lanes);
  s.Reorder({panel, row_tile, row, vector, lane});
  s.ComputeAt("acc", row_tile);
  s.SetScope("acc", ir::Scope::kRegister);
  std::vector<Loop> acc = s.Loops("acc");
  if (!s.status().ok()) return;
  auto [acc_vector, acc_lane] = s.Split(acc[3], lanes);
  s.Reorder({acc[4], acc[2], acc_vector, acc_lane});
  std::string init = s.DecomposeReduction("acc", acc[4]);
  for (const std::string& name : {std::string("acc"), init, std::string("out")}) {
    std::vector<Loop> around = s.Loops(name);
    if (!s.status().ok()) return;
    s.Vectorize(around[around.size() - 1]);
    s.Unroll(around[around.size() - 2]);
    s.Unroll(around[around.size() - 3]);
  }
  s.Parallel(fuse_tiles ? s.Fuse(panel, row_tile) : panel);
  s.Partition(fuse_tiles ? s.Loops("out").front() : row_tile);
}

}  // namespace temper
