// A register-tiled matrix product, built by hand the way templates lower it.
#pragma once

#include <string>

#include "compiler/ir/stmt.h"

namespace temper {

// C[m,n] = A[m,k] B with B packed as [n / nr][k][nr]; tiles of mr x nr, a smaller one for the last rows; nr a
// multiple of lanes and a divisor of n. Panels outermost or, with `parallel`, row tiles spread over threads.
inline ir::Func MatmulNest(int64_t m, int64_t n, int64_t k, int64_t mr, int64_t nr, int64_t lanes, bool parallel,
                           int64_t unroll = 1) {
  using ir::Expr, ir::ForKind, ir::Var, ir::Stmt;
  ir::Buffer a = ir::MakeBuffer("a", DType::kF32, {m, k}), b = ir::MakeBuffer("b", DType::kF32, {n / nr, k, nr});
  ir::Buffer c = ir::MakeBuffer("c", DType::kF32, {m, n});
  auto tile = [&](const Expr& row0, int64_t rows, const Expr& panel) {
    ir::Buffer acc = ir::MakeBuffer("acc", DType::kF32, {rows, nr}, ir::Scope::kRegister);
    auto over = [&](const char* name, auto body) {
      Var i = ir::MakeVar(std::string(name) + "_i"), j = ir::MakeVar(std::string(name) + "_j"),
          v = ir::MakeVar(std::string(name) + "_v");
      Stmt s = ir::For(v, lanes, ForKind::kVectorized, body(Expr(i), Expr(j) * Expr(lanes) + Expr(v)));
      return ir::For(i, rows, ForKind::kUnrolled, ir::For(j, nr / lanes, ForKind::kUnrolled, s));
    };
    Var ko = ir::MakeVar("ko"), ki = ir::MakeVar("ki");
    Expr kk = Expr(ko) * Expr(unroll) + Expr(ki);
    Stmt init = over("init", [&](Expr i, Expr j) { return ir::Store(acc, {i, j}, ir::Float(0)); });
    Stmt update = over("update", [&](Expr i, Expr j) {
      return ir::Store(acc, {i, j}, ir::Load(acc, {i, j}) + ir::Load(a, {row0 + i, kk}) * ir::Load(b, {panel, kk, j}));
    });
    Stmt out = over("out", [&](Expr i, Expr j) {
      return ir::Store(c, {row0 + i, panel * Expr(nr) + j}, ir::Load(acc, {i, j}));
    });
    Stmt reduce = ir::For(ko, k / unroll, ForKind::kSerial, ir::For(ki, unroll, ForKind::kUnrolled, update));
    return ir::Alloc(acc, ir::Seq({init, reduce, out}));
  };
  const int64_t full = m / mr, rest = m % mr;
  Var p = ir::MakeVar("panel"), r = ir::MakeVar("row_tile");
  Stmt rows = tile(Expr(r) * Expr(mr), mr, p);
  if (rest > 0) rows = ir::If(Expr(r) < Expr(full), rows, tile(Expr(full * mr), rest, p));
  Stmt panels = ir::For(p, n / nr, ForKind::kSerial, rows);
  Stmt body = ir::For(r, full + (rest > 0 ? 1 : 0), parallel ? ForKind::kParallel : ForKind::kSerial, panels);
  return {"matmul", {a, b, c}, 1, body};
}

}  // namespace temper
