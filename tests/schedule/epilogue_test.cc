// Costly epilogues leave the registers for a tile in memory, and only they do.
#include <unordered_set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/schedule/programs.h"

namespace temper {
namespace {

using ir::ForKind;
using ir::StmtKind;

ir::Func Tiled(const ir::Func& program, int64_t mr, int64_t nr, int64_t lanes) {
  Schedule s(program);
  ScheduleTiles(s, mr, nr, lanes);
  EXPECT_TRUE(s.status().ok()) << s.status();
  absl::StatusOr<ir::Func> lowered = Lower(s.func());
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  return lowered.ok() ? *lowered : program;
}

// Code generators know a register by a constant, so that no loop that is left a loop may choose it.
bool RegistersAreConstant(const ir::Stmt& s, std::unordered_set<ir::Var>& loops) {
  const bool is_loop =
      s->kind == StmtKind::kFor && (s->for_kind == ForKind::kSerial || s->for_kind == ForKind::kParallel);
  if (is_loop) loops.insert(s->var);
  auto constant = [&](const ir::Buffer& buffer, const std::vector<ir::Expr>& indices) {
    if (buffer->scope != ir::Scope::kRegister) return true;
    for (const ir::Expr& index : indices) {
      for (const ir::Var& v : loops) {
        if (ir::UsesVar(index, v)) return false;
      }
    }
    return true;
  };
  bool ok = s->kind != StmtKind::kStore || constant(s->buffer, s->indices);
  if (s->kind == StmtKind::kStore) {
    ir::Visit(s->value,
              [&](const ir::Expr& e) { ok = ok && (e->kind != ir::ExprKind::kLoad || constant(e->buffer, e->args)); });
  }
  for (const ir::Stmt& child : {s->body, s->else_body}) ok = ok && (!child || RegistersAreConstant(child, loops));
  for (const ir::Stmt& child : s->stmts) ok = ok && RegistersAreConstant(child, loops);
  if (is_loop) loops.erase(s->var);
  return ok;
}

TEST(Epilogue, CostlyOnesRunOverATileInMemoryWithTheSameResults) {
  Rng rng(7);
  for (int i = 0; i < 40; ++i) {
    const int64_t mr = 2 + rng.Below(5), lanes = int64_t{1} << (1 + rng.Below(3)), nr = lanes * (2 + rng.Below(3));
    const int64_t m = mr + rng.Below(2 * mr), n = nr + rng.Below(2 * nr);
    const ir::Func program = PackedMatmul(m, n, 48 + rng.Below(5), nr, Silu);
    const ir::Func lowered = Tiled(program, mr, nr, lanes);
    SCOPED_TRACE(absl::StrCat(m, " x ", n, " in ", mr, " x ", nr, " of ", lanes, " lanes\n", ir::Text(lowered)));
    EXPECT_TRUE(SameResults(program, lowered));
    EXPECT_TRUE(absl::StrContains(ir::Text(lowered), "alloc acc_tile: f32"));
    std::unordered_set<ir::Var> loops;
    EXPECT_TRUE(RegistersAreConstant(lowered.body, loops));
  }
}

TEST(Epilogue, CheapAndSmallOnesAndThoseBehindShortLoopsStayInRegisters) {
  EXPECT_FALSE(absl::StrContains(ir::Text(Tiled(PackedMatmul(14, 43, 50, 16, Relu), 6, 16, 4)), "_tile:"));
  EXPECT_FALSE(absl::StrContains(ir::Text(Tiled(PackedMatmul(4, 16, 50, 8, Silu), 1, 8, 4)), "_tile:"));
  EXPECT_FALSE(absl::StrContains(ir::Text(Tiled(PackedMatmul(14, 43, 40, 16, Silu), 6, 16, 4)), "_tile:"));
}

}  // namespace
}  // namespace temper
