// "gpu.wgmma": products of f16 and bf16 by instructions of teams of four warps.
#include <gmock/gmock.h>

#include "compiler/schedule/lower/team_tensor.h"
#include "tests/templates/check_gpu.h"

namespace temper {
namespace {

using testing::HasSubstr;

Target Hopper() { return ParseTarget("cuda:sm_90").value(); }

// Operands along the reduction and along their rows and columns, packed and not, with copies of every width.
constexpr const char* kWgmmaTexts[] = {
    "(f16[37,50], const f16[50,70], const f16[70]) matmul(0,1) -> f16[37,70]; add(3,2) -> f16[37,70]; anchor=0",
    "(bf16[130,96], const bf16[96,80]) matmul(0,1) -> bf16[130,80]; relu(2) -> bf16[130,80]; anchor=0",
    "(f16[2,70,32], f16[2,23,32]) matmul(0,1; trans_b=1) -> f16[2,70,23]; anchor=0",
    "(f16[40,72], f16[40,136]) matmul(0,1; trans_a=1) -> f16[72,136]; anchor=0",
    "(f16[2,3,24,64], f16[2,3,64,8]) matmul(0,1) -> f16[2,3,24,8]@0213; anchor=0",
    "(f16[1,52], const f16[52,19]) matmul(0,1) -> f16[1,19]; anchor=0",
    "(bf16[2,12,9,8]@0231, const bf16[18,6,3,3]) conv2d(0,1; dilations=[2,2] group=2 pads=[2,1,2,1] strides=[2,1]) -> "
    "bf16[2,18,5,6]@0231; anchor=0",
    "(f16[1,24,6,6]@0231, f16[16,24,1,1]) conv2d(0,1; strides=[2,2]) -> f16[1,16,3,3]@0231; anchor=0",
    "(bf16[37,51], const bf16[51,71]) matmul(0,1) -> bf16[37,71]; anchor=0",
};

TEST(GpuWgmma, Shapes) { CheckDraws("gpu.wgmma", kWgmmaTexts, Hopper(), 2); }

// Of copies to shared memory, which nothing else asks for anything.
TEST(GpuWgmma, NoBankConflict) { CheckNoBankConflict("gpu.wgmma", kWgmmaTexts, Hopper(), 2); }

TEST(GpuWgmma, IsForTheOneArchitectureThatHasIt) {
  const auto matches = [](const char* text, const std::string& target) {
    return FindTemplate("gpu.wgmma")->matches(Parse(text), ParseTarget(target).value());
  };
  const char* product = "(f16[64,64], f16[64,64]) matmul(0,1) -> f16[64,64]; anchor=0";
  for (const char* target : {"cuda:sm_90", "cuda:sm_90a"}) EXPECT_TRUE(matches(product, target)) << target;
  for (const char* target : {"cuda:sm_75", "cuda:sm_89", "cuda:sm_100", "cuda:sm_120", "opencl"})
    EXPECT_FALSE(matches(product, target)) << target;
  EXPECT_FALSE(matches("(f32[64,64], f32[64,64]) matmul(0,1) -> f32[64,64]; anchor=0", "cuda:sm_90"));
  EXPECT_FALSE(matches("(f32[64,64], f32[64,64]) matmul(0,1; tf32=1) -> f32[64,64]; anchor=0", "cuda:sm_90"));
}

// No measurement says yet how fast it is.
TEST(GpuWgmma, IsNoDefault) {
  const Workload w = Parse("(f16[4096,4096], const f16[4096,4096]) matmul(0,1) -> f16[4096,4096]; anchor=0");
  EXPECT_EQ(DefaultChoice(w, Hopper()).value().def->name, "gpu.mma");
  EXPECT_TRUE(FindTemplate("gpu.wgmma")->only_measured);
}

TEST(GpuWgmma, ConfigsThatCanNotBeAreRefused) {
  const Workload w = Parse("(f16[512,512], const f16[512,512]) matmul(0,1) -> f16[512,512]; anchor=0");
  const ConfigSpace space = FindTemplate("gpu.wgmma")->space(w, Hopper());
  const auto verdict = [&](const char* config) {
    return std::string(space.Check(ParseConfig(config).value()).message());
  };
  EXPECT_EQ(verdict("wm=2,wn=1,tm=1,tn=16,bk=64,stages=4"), "");
  EXPECT_EQ(verdict("wm=1,wn=1,tm=1,tn=8,bk=64,stages=4"), "");
  EXPECT_THAT(verdict("wm=4,wn=4,tm=1,tn=1,bk=64,stages=2"), HasSubstr("threads of a group"));
  EXPECT_THAT(verdict("wm=2,wn=1,tm=2,tn=16,bk=64,stages=2"), HasSubstr("registers"));
  EXPECT_THAT(verdict("wm=2,wn=2,tm=1,tn=16,bk=128,stages=3"), HasSubstr("shared memory"));
  EXPECT_THAT(verdict("wm=1,wn=1,tm=1,tn=12,bk=64,stages=1"), HasSubstr("a stage for each of a few steps"));
  EXPECT_THAT(verdict("wm=4,wn=2,tm=1,tn=1,bk=16,stages=2"), HasSubstr("no whole round of the threads"));
}

TEST(GpuWgmma, ThereIsAConfigForEverySize) {
  for (const char* text : {"(f16[1,2], const f16[2,1]) matmul(0,1) -> f16[1,1]; anchor=0",
                           "(f16[8192,8192], const f16[8192,8192]) matmul(0,1) -> f16[8192,8192]; anchor=0",
                           "(bf16[12,128,64], bf16[12,64,128]) matmul(0,1) -> bf16[12,128,128]; anchor=0",
                           "(f16[1,1048576], const f16[1048576,2]) matmul(0,1) -> f16[1,2]; anchor=0"}) {
    const int64_t legal = FindTemplate("gpu.wgmma")->space(Parse(text), Hopper()).Count().legal;
    EXPECT_GE(legal, 1) << text;
    EXPECT_LE(legal, 3000) << text;
  }
}

// Each barrier and each wait of a kernel is taken away in turn.
TEST(GpuWgmma, AMissingBarrierOrWaitIsFound) {
  const Workload w = Parse("(f16[64,96], const f16[96,32]) matmul(0,1) -> f16[64,32]; anchor=0");
  for (const char* config : {"wm=1,wn=1,tm=1,tn=2,bk=32,stages=3", "wm=1,wn=1,tm=1,tn=4,bk=16,stages=2"}) {
    const Kernel kernel = BuildKernel(w, "gpu.wgmma", ParseConfig(config).value(), Hopper()).value();
    const auto waits = [](const ir::Stmt& s) {
      return s->kind == ir::StmtKind::kBarrier || s->instruction == ir::Instruction::kWaitCopies;
    };
    int count = 0;
    ir::VisitStmt(kernel.main.body, [&](const ir::Stmt& s) { count += waits(s) ? 1 : 0; });
    ASSERT_GT(count, 1);
    for (int taken = 0; taken < count; ++taken) {
      Kernel without = kernel;
      int seen = 0;
      without.main.body = ir::RewriteStmt(kernel.main.body, [&](const ir::Stmt& s) -> ir::Stmt {
        return waits(s) && seen++ == taken ? ir::Seq({}) : nullptr;
      });
      Rng rng(5);
      EXPECT_FALSE(InterpretKernel(w, without, RandomInputs(w, rng)).ok()) << config << "\n" << ir::Text(without.main);
    }
  }
}

// A tensor loop of 64 rows and 16 columns by teams, with A and B where `a` and `b` say, in 1024 elements each.
using Place = std::function<ir::Expr(const ir::Expr& outer, const ir::Expr& k)>;
absl::StatusOr<ir::Stmt> Lowered(const Place& at_a, const Place& at_b, int64_t warps = 4) {
  using ir::Expr;
  const auto shared = [](const char* name) { return ir::MakeBuffer(name, DType::kF16, {1024}, ir::Scope::kShared); };
  const ir::Buffer a = shared("a"), b = shared("b");
  const ir::Buffer acc = ir::MakeBuffer("acc", DType::kF32, {1, 1, 8}, ir::Scope::kRegister);
  const auto named = [](const char* name, int64_t extent, ir::ForKind kind) {
    return ir::For(ir::MakeVar(name), extent, kind, ir::Seq({}));
  };
  const ir::Stmt z = named("z", warps, ir::ForKind::kThreadZ), y = named("y", 8, ir::ForKind::kThreadY),
                 x = named("x", 4, ir::ForKind::kThreadX), m = named("m", 1, ir::ForKind::kTeamTensor),
                 c = named("c", 1, ir::ForKind::kUnrolled), e = named("e", 8, ir::ForKind::kUnrolled),
                 k = named("k", 16, ir::ForKind::kSerial);
  const Expr element(e->var);
  const Expr row = Expr(z->var) % Expr(4) * Expr(16) + Expr(y->var) + element / Expr(2) % Expr(2) * Expr(8);
  const Expr column =
      Expr(c->var) * Expr(16) + Expr(x->var) * Expr(2) + element % Expr(2) + element / Expr(4) * Expr(8);
  const auto factor = [&](const ir::Buffer& buffer, const Expr& at) {
    return ir::Cast(ir::Load(buffer, {at}), DType::kF32);
  };
  const std::vector<Expr> sum = {m->var, c->var, e->var};
  const Expr product = factor(a, at_a(row, k->var)) * factor(b, at_b(column, k->var));
  ir::Stmt s = ir::Store(acc, sum, ir::Load(acc, sum) + product);
  for (const ir::Stmt& loop : {k, e, c, m}) s = ir::For(loop->var, loop->extent, loop->for_kind, s);
  return nest::LowerTeamTensorLoop(s, {z, y, x});
}

ir::Expr InTiles(const ir::Expr& row, const ir::Expr& in_row, int64_t down, int64_t right) {
  using ir::Expr;
  return row / Expr(8) * Expr(down) + in_row / Expr(8) * Expr(right) + row % Expr(8) * Expr(8) + in_row % Expr(8);
}

TEST(GpuWgmma, MatricesLieInTilesOrTheLoopIsRefused) {
  using ir::Expr;
  const Place rows = [](const Expr& outer, const Expr& k) { return InTiles(outer, k, 64, 520); };
  const Place turned = [](const Expr& outer, const Expr& k) { return InTiles(k, outer, 64, 136); };
  const Place plain = [](const Expr& outer, const Expr& k) { return outer * Expr(16) + k; };
  const Place askew = [](const Expr& outer, const Expr& k) {
    return InTiles(outer, k, 64, 520) + outer / Expr(56) * Expr(8);
  };
  const absl::StatusOr<ir::Stmt> lowered = Lowered(rows, turned);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(ir::Text(ir::Simplify(*lowered)),
            "begin products acc[0, 0, 0]\n"
            "add product acc[0, 0, 0] += f32(a[0])*f32(b[0]) in 16 columns, a: 520, 64, b turned: 64, 136\n"
            "end products acc[0, 0, 0]\n");
  const auto refusal = [](const absl::StatusOr<ir::Stmt>& s) { return std::string(s.status().message()); };
  EXPECT_THAT(refusal(Lowered(plain, turned)), HasSubstr("'a' does not lie in tiles"));
  EXPECT_THAT(refusal(Lowered(askew, turned)), HasSubstr("'a' does not lie in tiles"));
  EXPECT_THAT(refusal(Lowered(rows, plain)), HasSubstr("'b' does not lie in tiles"));
  EXPECT_THAT(refusal(Lowered(rows, turned, 6)), HasSubstr("no teams of four warps"));
}

// On paper the unit's tensor cores are the faster way. The figures are nominal, and nothing was measured.
TEST(GpuWgmma, TheDraftPrefersItForLargeProducts) {
  const Workload w = Parse("(f16[4096,4096], const f16[4096,4096]) matmul(0,1) -> f16[4096,4096]; anchor=0");
  const auto best = [&](const char* name) {
    const TemplateDef& def = *FindTemplate(name);
    double best_s = HUGE_VAL;
    for (const Config& c : def.space(w, Hopper()).Enumerate(4096, 1))
      best_s = std::min(best_s, def.footprint(w, c, Hopper()).draft_s);
    return best_s;
  };
  EXPECT_LT(best("gpu.wgmma"), best("gpu.mma"));
}

}  // namespace
}  // namespace temper
