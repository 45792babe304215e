// "gpu.mma": products of f16, bf16 and, where it is allowed, TF32 by instructions of warps.
#include <gmock/gmock.h>

#include "compiler/ops/rounded_products.h"
#include "compiler/schedule/lower/tensor.h"
#include "tests/templates/check_gpu.h"

namespace temper {
namespace {

using testing::HasSubstr;

Target Ampere() { return ParseTarget("cuda:sm_80").value(); }

constexpr const char* kTexts[] = {
    "(f16[37,50], const f16[50,70], const f16[70]) matmul(0,1) -> f16[37,70]; add(3,2) -> f16[37,70]; anchor=0",
    "(bf16[64,96], const bf16[96,80]) matmul(0,1) -> bf16[64,80]; relu(2) -> bf16[64,80]; anchor=0",
    "(f16[2,9,16], f16[2,23,16]) matmul(0,1; trans_b=1) -> f16[2,9,23]; anchor=0",
    "(f16[40,24], f16[40,36]) matmul(0,1; trans_a=1) -> f16[24,36]; anchor=0",
    "(f16[2,3,24,64], f16[2,3,64,8]) matmul(0,1) -> f16[2,3,24,8]@0213; anchor=0",
    "(f16[1,52], const f16[52,19]) matmul(0,1) -> f16[1,19]; anchor=0",
    "(f16[1,16,9,7]@0231, const f16[40,16,3,3], const f16[40,1,1]) conv2d(0,1; pads=[1,1,1,1]) -> f16[1,40,9,7]@0231; "
    "add(3,2) -> f16[1,40,9,7]@0231; relu(4) -> f16[1,40,9,7]@0231; anchor=0",
    "(bf16[2,12,7,7]@0231, const bf16[18,6,3,3]) conv2d(0,1; dilations=[2,2] group=2 pads=[2,1,2,1] strides=[2,1]) -> "
    "bf16[2,18,4,5]@0231; anchor=0",
    "(f16[1,24,6,6]@0231, f16[16,24,1,1]) conv2d(0,1; strides=[2,2]) -> f16[1,16,3,3]@0231; anchor=0",
    "(f16[1,3,9,7]@0231, const f16[40,3,3,3]) conv2d(0,1; pads=[1,1,1,1] strides=[2,2]) -> f16[1,40,5,4]@0231; "
    "relu(2) -> f16[1,40,5,4]@0231; anchor=0",
    "(f16[2,9,17], f16[2,23,17]) matmul(0,1; trans_b=1) -> f16[2,9,23]; anchor=0",
    "(bf16[37,51], const bf16[51,71]) matmul(0,1) -> bf16[37,71]; anchor=0",
    "(f32[37,50], const f32[50,70], const f32[70]) matmul(0,1; tf32=1) -> f32[37,70]; add(3,2) -> f32[37,70]; anchor=0",
    "(f32[2,9,17], f32[2,23,17]) matmul(0,1; tf32=1 trans_b=1) -> f32[2,9,23]; anchor=0",
    "(f32[40,24], f32[40,36]) matmul(0,1; tf32=1 trans_a=1) -> f32[24,36]; anchor=0",
    "(f32[64,96], f32[80,96]) matmul(0,1; tf32=1 trans_b=1) -> f32[64,80]; relu(2) -> f32[64,80]; anchor=0",
    "(f32[1,52], const f32[52,19]) matmul(0,1; tf32=1) -> f32[1,19]; anchor=0",
    "(f32[1,3,9,7]@0231, const f32[40,3,3,3], const f32[40,1,1]) conv2d(0,1; pads=[1,1,1,1] strides=[2,2] tf32=1) -> "
    "f32[1,40,5,4]@0231; add(3,2) -> f32[1,40,5,4]@0231; relu(4) -> f32[1,40,5,4]@0231; anchor=0",
    "(f32[2,12,7,7]@0231, const f32[18,6,3,3]) conv2d(0,1; dilations=[2,2] group=2 pads=[2,1,2,1] strides=[2,1] "
    "tf32=1) "
    "-> f32[2,18,4,5]@0231; anchor=0",
};

std::vector<Config> Draw(const Workload& w, size_t count, uint64_t seed) {
  return DrawConfigs("gpu.mma", w, Ampere(), count, seed);
}

TEST(GpuMma, Shapes) { CheckDraws("gpu.mma", kTexts, Ampere(), 3); }

TEST(GpuMma, NoBankConflict) { CheckNoBankConflict("gpu.mma", kTexts, Ampere(), 3); }

TEST(GpuMma, IsForWhatTensorCoresMultiply) {
  const auto templates = [](const char* text, const char* target) {
    std::string names;
    for (const TemplateDef* def : TemplatesFor(Parse(text), ParseTarget(target).value()))
      absl::StrAppend(&names, names.empty() ? "" : " ", std::string(def->name));
    return names;
  };
  const char* even = "(f16[64,64], f16[64,64]) matmul(0,1) -> f16[64,64]; anchor=0";
  for (const char* target : {"cuda:sm_80", "cuda:sm_100", "cuda:sm_120"})
    EXPECT_EQ(templates(even, target), "gpu.gemm gpu.mma") << target;
  for (const char* target : {"cuda:sm_75", "opencl"}) EXPECT_EQ(templates(even, target), "gpu.gemm") << target;
  // Rows of any length, too.
  EXPECT_EQ(templates("(f16[64,63], f16[63,64]) matmul(0,1) -> f16[64,64]; anchor=0", "cuda:sm_80"),
            "gpu.gemm gpu.mma");
  EXPECT_EQ(templates("(f32[64,64], f32[64,64]) matmul(0,1) -> f32[64,64]; anchor=0", "cuda:sm_80"), "gpu.gemm");
  const char* rounded = "(f32[64,63], f32[63,64]) matmul(0,1; tf32=1) -> f32[64,64]; anchor=0";
  EXPECT_EQ(templates(rounded, "cuda:sm_80"), "gpu.gemm gpu.mma");
  for (const char* target : {"cuda:sm_75", "opencl"}) EXPECT_EQ(templates(rounded, target), "gpu.gemm") << target;
}

TEST(GpuMma, ThereIsAConfigForEverySize) {
  for (const char* text : {"(f16[1,2], const f16[2,1]) matmul(0,1) -> f16[1,1]; anchor=0",
                           "(f16[8192,8192], const f16[8192,8192]) matmul(0,1) -> f16[8192,8192]; anchor=0",
                           "(bf16[12,128,64], bf16[12,64,128]) matmul(0,1) -> bf16[12,128,128]; anchor=0",
                           "(f16[1,1048576], const f16[1048576,2]) matmul(0,1) -> f16[1,2]; anchor=0"}) {
    const int64_t legal = FindTemplate("gpu.mma")->space(Parse(text), Ampere()).Count().legal;
    EXPECT_GE(legal, 1) << text;
    EXPECT_LE(legal, 30000) << text;
  }
}

// Of each product one factor is in the middle between two numbers of TF32 and the other is one; f32 holds all sums. So
// how it is rounded shows in every bit. A is loaded by rows of matrices, B element by element.
TEST(GpuMma, RoundsF32ToTheNearest) {
  constexpr double kTie = 1 + 0x1p-11, kUp = 1 + 0x1p-10;
  const Workload w = Parse("(f32[24,48], const f32[48,20]) matmul(0,1; tf32=1) -> f32[24,20]; anchor=0");
  Rng rng(11);
  std::vector<NDArray> given, rounded;
  for (const bool of_a : {true, false}) {
    const Shape shape = of_a ? Shape{24, 48} : Shape{48, 20};
    NDArray &x = given.emplace_back(DType::kF32, shape), &exact = rounded.emplace_back(DType::kF32, shape);
    for (int64_t i = 0; i < x.size(); ++i) {
      const double sign = rng.Below(2) == 0 ? -1 : 1;
      const bool tie = ((of_a ? i % 48 : i / 20) % 2 == 0) == of_a;
      x.Set(i, sign * (tie ? kTie : 1));
      exact.Set(i, sign * (tie ? kUp : 1));
    }
  }
  const NDArray wanted = RunReference(w, rounded).value();
  for (const Config& config : Draw(w, 5, 3)) {
    const absl::StatusOr<NDArray> got = InterpretKernel(w, BuildKernel(w, "gpu.mma", config, Ampere()).value(), given);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(RelativeError(*got, wanted), 0) << Text(config);
  }
}

// A kernel that rounds says so, and no other does.
TEST(GpuMma, ToleranceIsForWhatIsRounded) {
  const Workload f16 = Parse("(f16[64,64], f16[64,64]) matmul(0,1) -> f16[64,64]; anchor=0");
  const Workload f32 = Parse("(f32[64,64], f32[64,64]) matmul(0,1; tf32=1) -> f32[64,64]; anchor=0");
  EXPECT_EQ(BuildKernel(f16, "gpu.mma", Draw(f16, 1, 1)[0], Ampere())->tolerance, 0);
  EXPECT_EQ(BuildKernel(f32, "gpu.mma", Draw(f32, 1, 1)[0], Ampere())->tolerance, kTf32Tolerance);
  const Config simple = FindTemplate("gpu.gemm")->space(f32, Ampere()).Enumerate(1)[0];
  EXPECT_EQ(BuildKernel(f32, "gpu.gemm", simple, Ampere())->tolerance, 0);
}

// Tensorize makes no product less exact: f32 is rounded by the program, or it is not multiplied by tensor cores.
TEST(GpuMma, NoF32IsRoundedThatTheProgramDoesNotRound) {
  const auto shared = [](const char* name) { return ir::MakeBuffer(name, DType::kF32, {16, 8}, ir::Scope::kShared); };
  const ir::Buffer a = shared("a"), b = shared("b");
  const ir::Buffer acc = ir::MakeBuffer("acc", DType::kF32, {1, 8}, ir::Scope::kRegister);
  const ir::Var x = ir::MakeVar("x"), y = ir::MakeVar("y"), m = ir::MakeVar("m"), e = ir::MakeVar("e"),
                k = ir::MakeVar("k");
  using ir::Expr;
  const auto tensor_loop = [&](Expr (*factor)(Expr)) {
    const Expr row = Expr(y) + Expr(e) / Expr(2) % Expr(2) * Expr(8);
    const Expr column = Expr(x) * Expr(2) + Expr(e) % Expr(2) + Expr(e) / Expr(4) * Expr(8);
    const Expr product = factor(ir::Load(a, {row, k})) * factor(ir::Load(b, {column, k}));
    ir::Stmt s = ir::Store(acc, {m, e}, ir::Load(acc, {m, e}) + product);
    s = ir::For(e, 8, ir::ForKind::kSerial, ir::For(k, 8, ir::ForKind::kSerial, s));
    s = ir::For(m, 1, ir::ForKind::kTensor, s);
    return ir::For(y, 8, ir::ForKind::kThreadY, ir::For(x, 4, ir::ForKind::kThreadX, s));
  };
  EXPECT_TRUE(nest::LowerTensorLoops(tensor_loop([](Expr v) { return ir::Tf32(v); })).ok());
  const absl::Status refused = nest::LowerTensorLoops(tensor_loop([](Expr v) { return v; })).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("does not add products"));
}

// What is not among the multiplying instructions of large products leaves them most turns, on every architecture:
// machine code has the share that footprints say, within a few hundredths (bench_sass).
TEST(GpuMma, DefaultsOfLargeProductsMostlyMultiply) {
  constexpr double kLaneFmas = 64;
  for (const char* type : {"f16", "bf16"}) {
    const Workload w = Parse(absl::StrCat("(", type, "[4096,4096], const ", type, "[4096,4096]) matmul(0,1) -> ", type,
                                          "[4096,4096]; ", "anchor=0"));
    for (const char* arch : {"sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_110", "sm_120", "sm_121"}) {
      const Target target = ParseTarget(absl::StrCat("cuda:", arch)).value();
      const Choice choice = DefaultChoice(w, target).value();
      ASSERT_EQ(choice.def->name, "gpu.mma");
      const Footprint f = choice.def->footprint(w, choice.config, target);
      const double multiplies = f["padded_flops"] / 2 / kLaneFmas;
      // sm_121's memory is slow for its tensor cores: many small groups, which share what comes, are faster there.
      const double least = std::string(arch) == "sm_121" ? 0.5 : 0.55;
      EXPECT_GE(multiplies / (multiplies + f["instructions"]), least) << arch << " " << Text(choice.config);
    }
  }
}

// Of few tiles and a long reduction, groups of their own make its parts, which a second launch adds up; the last part
// is the shorter one. Where there are tiles enough, nothing is split.
TEST(GpuMma, ReductionsAreSplitWhereTilesAreFew) {
  for (const char* text :
       {"(f16[19,200], const f16[200,36], const f16[36]) matmul(0,1) -> f16[19,36]; add(3,2) -> f16[19,36]; relu(4) -> "
        "f16[19,36]; anchor=0",
        "(f16[2,9,208], f16[2,23,208]) matmul(0,1; trans_b=1) -> f16[2,9,23]; anchor=0",
        "(bf16[1,24,7,7]@0231, const bf16[16,24,3,3]) conv2d(0,1; pads=[1,1,1,1]) -> bf16[1,16,7,7]@0231; anchor=0",
        "(f32[19,104], const f32[104,36]) matmul(0,1; tf32=1) -> f32[19,36]; anchor=0"}) {
    const Workload w = Parse(text);
    int split = 0;
    for (const Config& config : Draw(w, 40, 11)) {
      if (config["split"] == 1 || ++split > 4) continue;
      CheckOnGpu(w, "gpu.mma", config, Ampere(), 3);
      EXPECT_EQ(FindTemplate("gpu.mma")->footprint(w, config, Ampere())["launches"], 2);
    }
    EXPECT_GT(split, 4) << text;
  }
  const Workload large = Parse("(f16[4096,4096], const f16[4096,4096]) matmul(0,1) -> f16[4096,4096]; anchor=0");
  EXPECT_FALSE(Draw(large, 1, 1)[0].Has("split"));
}

// f32 is rounded word by word, and where its rows are steps of the reduction, loaded so too.
TEST(GpuMma, RoundingTakesInstructions) {
  const auto instructions = [](const char* text) {
    const Workload w = Parse(text);
    const Config config = ParseConfig("wm=2,wn=2,tm=2,tn=2,bk=16,stages=2").value();
    return FindTemplate("gpu.mma")->footprint(w, config, Ampere())["instructions"];
  };
  const double f16 = instructions("(f16[128,256], f16[128,256]) matmul(0,1; trans_b=1) -> f16[128,128]; anchor=0");
  const double f32 =
      instructions("(f32[128,256], f32[128,256]) matmul(0,1; tf32=1 trans_b=1) -> f32[128,128]; anchor=0");
  const double turned = instructions("(f32[128,256], f32[256,128]) matmul(0,1; tf32=1) -> f32[128,128]; anchor=0");
  EXPECT_GT(f32, 3 * f16);
  EXPECT_GT(turned, f32);
}

// Each barrier and each wait of a kernel is taken away in turn.
TEST(GpuMma, AMissingBarrierOrWaitIsFound) {
  const Workload w = Parse("(f16[32,128], const f16[128,32]) matmul(0,1) -> f16[32,32]; anchor=0");
  int checked = 0;
  for (const Config& config : Draw(w, 12, 3)) {
    const Kernel kernel = BuildKernel(w, "gpu.mma", config, Ampere()).value();
    int count = 0;
    ir::VisitStmt(kernel.main.body, [&](const ir::Stmt& s) {
      count += s->kind == ir::StmtKind::kBarrier || s->instruction == ir::Instruction::kWaitCopies ? 1 : 0;
    });
    if (count < 2 || ++checked > 4) continue;  // of one step
    for (int taken = 0; taken < count; ++taken) {
      Kernel without = kernel;
      int seen = 0;
      without.main.body = ir::RewriteStmt(kernel.main.body, [&](const ir::Stmt& s) -> ir::Stmt {
        const bool waits = s->kind == ir::StmtKind::kBarrier || s->instruction == ir::Instruction::kWaitCopies;
        return waits && seen++ == taken ? ir::Seq({}) : nullptr;
      });
      Rng rng(5);
      EXPECT_FALSE(InterpretKernel(w, without, RandomInputs(w, rng)).ok()) << Text(config) << "\n"
                                                                           << ir::Text(without.main);
    }
  }
  EXPECT_GE(checked, 4);
}

}  // namespace
}  // namespace temper
