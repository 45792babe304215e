// Products of bytes, and of f32 rounded to bf16, by matrix tiles. The nests say what the instructions mean, so they are
// interpreted where no CPU has them, and the code that is made of them is read.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compiler/ops/rounded_products.h"
#include "tests/templates/check_templates.h"
#include "tests/templates/covering_configs.h"
#include "tests/templates/known_extent.h"

namespace temper {
namespace {

// Whole steps in place and rows to spare; a step that is not whole, under calls that make A; batches, packed at run
// time; pixels in place, and with strides; windows of whole steps, of parts of them, and of groups; runs of an image.
constexpr const char* kWorkloads[] = {
    "(u8[32,128], const i8[128,33]) matmul(0,1; result='i32') -> i32[32,33]; anchor=0",
    "(u8[37,64], const i8[64,48], const f32[48]) matmul(0,1; result='i32') -> i32[37,48]; cast(3; to='f32') -> "
    "f32[37,48]; mul(4,2) -> f32[37,48]; anchor=0",
    "(f32[3,7,51], const i8[29,51]) clip(0; max=255.0 min=0.0) -> f32[3,7,51]; cast(2; to='u8') -> u8[3,7,51]; "
    "matmul(3,1; result='i32' trans_b=1) -> i32[3,7,29]; anchor=2",
    "(u8[2,9,68], i8[2,21,68]) matmul(0,1; result='i32' trans_b=1) -> i32[2,9,21]; anchor=0",
    "(u8[1,64,5,7]@0231, const i8[40,64,1,1]) conv2d(0,1; dilations=[1,1] group=1 pads=[0,0,0,0] result='i32' "
    "strides=[1,1]) -> i32[1,40,5,7]@0231; anchor=0",
    "(u8[2,64,7,6]@0231, const i8[37,64,1,1]) conv2d(0,1; dilations=[1,1] group=1 pads=[0,0,0,0] result='i32' "
    "strides=[2,2]) -> i32[2,37,4,3]@0231; cast(2; to='u8') -> u8[2,37,4,3]@0231; anchor=0",
    "(u8[1,64,5,5]@0231, const i8[17,64,3,3]) conv2d(0,1; dilations=[1,1] group=1 pads=[1,0,0,2] result='i32' "
    "strides=[1,1]) -> i32[1,17,4,5]@0231; anchor=0",
    "(u8[1,16,7,5]@0231, const i8[20,16,3,3], i32[20,1,1]) conv2d(0,1; dilations=[1,2] group=1 pads=[1,1,1,1] "
    "result='i32' strides=[2,1]) -> i32[1,20,4,3]@0231; add(3,2) -> i32[1,20,4,3]@0231; anchor=0",
    "(u8[2,18,6,5]@0231, const i8[14,9,3,1]) conv2d(0,1; dilations=[1,1] group=2 pads=[2,0,0,0] result='i32' "
    "strides=[1,1]) -> i32[2,14,6,5]@0231; anchor=0",
    "(u8[2,3,13,16], const i8[19,3,7,8], const i32[19,1,1]) layout_copy(0) -> u8[2,3,13,16]@0231; conv2d(3,1; "
    "dilations=[1,1] group=1 pads=[0,0,0,0] result='i32' strides=[2,2]) -> i32[2,19,4,5]@0231; sub(4,2) -> "
    "i32[2,19,4,5]@0231; anchor=1",
    // Of f32: rows to spare, under calls that make A; batches; pixels with strides; windows that overlap, of an image
    // with borders, of groups and with dilations; windows that do not; and an image of planes.
    "(f32[37,64], const f32[64,48], const f32[48]) relu(0) -> f32[37,64]; matmul(3,1; bf16=1) -> f32[37,48]; add(4,2) "
    "-> f32[37,48]; anchor=1",
    "(f32[2,9,35], f32[2,21,35]) matmul(0,1; bf16=1 trans_b=1) -> f32[2,9,21]; anchor=0",
    "(f32[2,24,7,6]@0231, const f32[37,24,1,1]) conv2d(0,1; bf16=1 dilations=[1,1] group=1 pads=[0,0,0,0] "
    "strides=[2,2]) -> f32[2,37,4,3]@0231; anchor=0",
    "(f32[2,12,5,6]@0231, const f32[17,12,3,3]) conv2d(0,1; bf16=1 dilations=[1,1] group=1 pads=[1,0,0,2] "
    "strides=[1,2]) -> f32[2,17,4,3]@0231; relu(2) -> f32[2,17,4,3]@0231; anchor=0",
    "(f32[1,32,7,7]@0231, const f32[20,32,3,3]) silu(0) -> f32[1,32,7,7]@0231; conv2d(2,1; bf16=1 dilations=[2,2] "
    "group=1 pads=[2,2,2,2] strides=[1,1]) -> f32[1,20,7,7]@0231; anchor=1",
    "(f32[1,20,6,5]@0231, const f32[14,10,3,1]) conv2d(0,1; bf16=1 dilations=[1,1] group=2 pads=[2,0,0,0] "
    "strides=[1,1]) -> f32[1,14,6,5]@0231; anchor=0",
    "(f32[1,12,8,8]@0231, const f32[9,12,2,2]) conv2d(0,1; bf16=1 dilations=[1,1] group=1 pads=[0,0,0,0] "
    "strides=[2,2]) -> f32[1,9,4,4]@0231; anchor=0",
    "(f32[2,3,13,11], const f32[19,3,5,5]) layout_copy(0) -> f32[2,3,13,11]@0231; conv2d(2,1; bf16=1 dilations=[1,1] "
    "group=1 pads=[2,2,2,2] strides=[2,2]) -> f32[2,19,7,6]@0231; anchor=1",
    "(u8[1,4,9,12]@0231, const i8[33,4,3,4]) conv2d(0,1; dilations=[1,1] group=1 pads=[1,0,0,0] result='i32' "
    "strides=[1,1]) -> i32[1,33,8,9]@0231; anchor=0",
};

Target WithTiles() { return *ParseTarget("llvm:sapphirerapids"); }

// Of one of these kinds.
const TemplateDef* Of(std::initializer_list<std::string_view> kinds, const Workload& w, const Target& t) {
  for (const TemplateDef* def : TemplatesFor(w, t)) {
    if (std::ranges::any_of(kinds, [&](std::string_view kind) { return def->name.ends_with(kind); })) return def;
  }
  return nullptr;
}
const TemplateDef* TilesFor(const Workload& w, const Target& t) { return Of({".tiles", ".tiles_bf16"}, w, t); }
const TemplateDef* Bf16VectorsFor(const Workload& w, const Target& t) { return Of({".bf16"}, w, t); }

// Of any value that a type of bytes has, so that signs and high bits count, or of floats that bf16 holds: what products
// of those are off by is the order of their sums.
std::vector<NDArray> AnyInputs(const Workload& w, Rng& rng) {
  std::vector<NDArray> inputs;
  for (const Workload::Operand& input : w.inputs) {
    NDArray array(input.type.dtype, input.type.shape);
    const bool is_signed = input.type.dtype == DType::kI8 || IsFloat(input.type.dtype);
    for (int64_t i = 0; i < NumElements(input.type.shape); ++i)
      array.Set(i, static_cast<double>(rng.Below(256) - (is_signed ? 128 : 0)));
    inputs.push_back(std::move(array));
  }
  return inputs;
}

using Run = std::function<absl::StatusOr<NDArray>(const Workload& w, const Kernel& kernel, std::span<const NDArray>)>;

// Runs configs that have every value of every knob, of the workloads that have such a template.
void Check(const TemplateDef* template_for(const Workload&, const Target&), const Target& t, const Run& run) {
  Rng rng(8);
  for (const char* text : kWorkloads) {
    const Workload w = Parse(text);
    const TemplateDef* def = template_for(w, t);
    if (def == nullptr) continue;
    const std::vector<NDArray> inputs = AnyInputs(w, rng);
    const absl::StatusOr<NDArray> wanted = RunReference(w, inputs);
    ASSERT_TRUE(wanted.ok()) << wanted.status();
    const NDArray physical = ToPhysical(*wanted, w.output().perm);
    for (const Config& config : CoveringConfigs(def->space(w, t), rng)) {
      SCOPED_TRACE(absl::StrCat(text, "\n", Text(config)));
      const absl::StatusOr<Kernel> kernel = BuildKernel(w, def->name, config, t);
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      const absl::StatusOr<NDArray> got = run(w, *kernel, inputs);
      ASSERT_TRUE(got.ok()) << got.status();
      // What a call made of floats, bf16 does not hold.
      const bool rounds = IsFloat(w.TypeOf(0).dtype) && w.anchor > 0;
      EXPECT_LE(RelativeError(*got, physical), rounds ? 1e-2 : IsFloat(got->dtype()) ? 1e-6 : 0);
    }
  }
}

TEST(MatrixTiles, NestsMeanTheProduct) {
  Target t = WithTiles();
  t.cpu()->threads = 2;
  for (const char* text : kWorkloads) EXPECT_NE(TilesFor(Parse(text), t), nullptr) << text;
  Check(TilesFor, t, InterpretKernel);
}

// Where a run has the first `extent` rows of each line alone; the others as they are without that. Counts the kernels
// that leave something out then.
absl::StatusOr<NDArray> InterpretRows(const Workload& w, const Kernel& kernel, std::span<const NDArray> inputs,
                                      int64_t extent, int& shortened) {
  TEMPER_ASSIGN_OR_RETURN(NDArray all, InterpretKernel(w, kernel, inputs));
  const Shape shape = w.output().PhysicalShape();
  Behind rows{.shape = shape, .index = IndexOf(shape.size()), .place = {}};
  rows.place = ir::Expr(rows.index[shape.size() - 2]);
  const std::optional<Skipping> told =
      SkipBehind(kernel.scheduled, std::vector<OperandFacts>(w.inputs.size()), {rows}, {0});
  if (!told.has_value()) return all;
  ++shortened;
  TEMPER_ASSIGN_OR_RETURN(const Kernel shorter, OfExtent(kernel, *told, extent));
  TEMPER_ASSIGN_OR_RETURN(const NDArray some, InterpretKernel(w, shorter, inputs));
  for (int64_t i = 0; i < all.size(); ++i) {
    if (i / shape.back() % shape[shape.size() - 2] < extent) all.Set(i, some.At(i));
  }
  return all;
}

TEST(MatrixTiles, NestsMeanTheProductOfTheRowsThatARunHas) {
  Target t = WithTiles();
  t.cpu()->threads = 2;
  int kernels = 0, shortened = 0;
  Check(TilesFor, t, [&](const Workload& w, const Kernel& kernel, std::span<const NDArray> inputs) {
    ++kernels;
    return InterpretRows(w, kernel, inputs, 3, shortened);
  });
  EXPECT_GT(shortened, kernels / 2) << "of " << kernels;
}

TEST(MatrixTiles, InstructionsMakeTheProduct) {
  Target host = *ParseTarget("host");
  if (!host.cpu()->Has("amx-int8")) GTEST_SKIP() << "this CPU has no matrix tiles";
  host.cpu()->threads = 2;
  Check(TilesFor, host, [&](const Workload& w, const Kernel& kernel, std::span<const NDArray> inputs) {
    return RunKernel(w, kernel, host, inputs);
  });
}

TEST(MatrixTiles, VectorsMultiplyBf16Too) {
  Target t = *ParseTarget("llvm:znver4");
  t.cpu()->threads = 2;
  Check(Bf16VectorsFor, t, InterpretKernel);
  Target host = *ParseTarget("host");
  if (!host.cpu()->Has("avx512bf16")) GTEST_SKIP() << "this CPU has no products of bf16";
  host.cpu()->threads = 2;
  Check(Bf16VectorsFor, host, [&](const Workload& w, const Kernel& kernel, std::span<const NDArray> inputs) {
    return RunKernel(w, kernel, host, inputs);
  });
}

std::string AssemblyOf(const char* text, const std::string& config, const Target& t, bool vectors = false) {
  const Workload w = Parse(text);
  const TemplateDef* def = vectors ? Bf16VectorsFor(w, WithTiles()) : TilesFor(w, WithTiles());
  const absl::StatusOr<Kernel> kernel = BuildKernel(w, def->name, ParseConfig(config).value(), WithTiles());
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  const absl::StatusOr<std::string> assembly = EmitText({{"kernel", kernel->main}}, t, "asm");
  return assembly.ok() ? *assembly : std::string(assembly.status().message());
}

size_t Count(const std::string& text, const std::string& part) {
  return std::vector<std::string>(absl::StrSplit(text, part)).size() - 1;
}

TEST(MatrixTiles, AStepLoadsEachOperandOnceAndKeepsItsSums) {
  const char* text = "(u8[64,256], const i8[256,96]) matmul(0,1; result='i32') -> i32[64,96]; anchor=0";
  struct Tile {
    const char* config;
    size_t products, loads;
  };
  for (const Tile& tile : {Tile{"tr=16,mt=2,nv=2,blocks=1", 4, 4}, Tile{"tr=16,mt=4,nv=1,blocks=1", 4, 5},
                           Tile{"tr=16,mt=1,nv=3,blocks=2", 3, 4}, Tile{"tr=16,mt=1,nv=1,blocks=1", 1, 2}}) {
    SCOPED_TRACE(tile.config);
    const std::string code = AssemblyOf(text, tile.config, WithTiles());
    EXPECT_EQ(Count(code, "tdpbusd\t"), tile.products) << code;
    EXPECT_EQ(Count(code, "tileloadd\t"), tile.loads);
    EXPECT_EQ(Count(code, "tilezero\t"), tile.products);
    EXPECT_EQ(Count(code, "tilestored\t"), tile.products);
    EXPECT_EQ(Count(code, "ldtilecfg\t"), 1U);
    EXPECT_EQ(Count(code, "tilerelease\n"), 1U);
  }
}

// Windows that overlap are tiles of an image with its borders, unless they are copied.
TEST(MatrixTiles, WindowsThatOverlapAreReadInPlace) {
  for (const char* text :
       {"(u8[1,64,8,8]@0231, const i8[16,64,3,3]) conv2d(0,1; dilations=[1,1] group=1 pads=[1,1,1,1] result='i32' "
        "strides=[1,1]) -> i32[1,16,8,8]@0231; anchor=0",
        "(f32[1,32,8,8]@0231, const f32[16,32,3,3]) conv2d(0,1; bf16=1 dilations=[1,1] group=1 pads=[1,1,1,1] "
        "strides=[1,1]) -> f32[1,16,8,8]@0231; anchor=0"}) {
    const Workload w = Parse(text);
    for (const bool copies : {false, true}) {
      const std::string config = absl::StrCat("tr=8,mt=2,nv=1,blocks=1,ca=", copies ? 1 : 0);
      const absl::StatusOr<Kernel> kernel =
          BuildKernel(w, TilesFor(w, WithTiles())->name, ParseConfig(config).value(), WithTiles());
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      EXPECT_EQ(Count(ir::Text(kernel->main), "alloc a:"), copies ? 1U : 0U) << ir::Text(kernel->main);
      EXPECT_EQ(Count(ir::Text(kernel->main), "alloc image:"), 1U);
    }
    // A tile of 16 rows would lie in two rows of the image.
    EXPECT_FALSE(BuildKernel(w, TilesFor(w, WithTiles())->name, ParseConfig("tr=16,mt=1,nv=1,blocks=1,ca=0").value(),
                             WithTiles())
                     .ok());
  }
}

TEST(MatrixTiles, ATargetWithoutThemIsRefused) {
  const char* text = "(u8[64,256], const i8[256,96]) matmul(0,1; result='i32') -> i32[64,96]; anchor=0";
  EXPECT_EQ(AssemblyOf(text, "tr=16,mt=2,nv=2,blocks=1", *ParseTarget("llvm:icelake-server")),
            "kernel: the target has no matrix tiles");
}

// A is rounded while it is copied, B while it is packed, and the product is the tiles'.
TEST(MatrixTiles, F32IsRoundedByTheConversionAndTheProductThatTheCpuHas) {
  const char* text = "(f32[64,256], const f32[256,96]) matmul(0,1; bf16=1) -> f32[64,96]; anchor=0";
  const std::string code = AssemblyOf(text, "tr=16,mt=2,nv=2,blocks=1", WithTiles());
  EXPECT_EQ(Count(code, "tdpbf16ps\t"), 4U) << code;
  EXPECT_GT(Count(code, "vcvtneps2bf16\t"), 0U);
  const Workload w = Parse(text);
  const absl::StatusOr<Kernel> kernel =
      BuildKernel(w, "matmul.tiles_bf16", ParseConfig("tr=16,mt=2,nv=2,blocks=1").value(), WithTiles());
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(kernel->tolerance, kBf16Tolerance);
  EXPECT_EQ(kernel->packs[1].params.back()->dtype, DType::kBF16);
}

// A pair of A for all lanes comes with the instruction.
TEST(MatrixTiles, VectorsTakeTwoStepsAtOnce) {
  const char* text = "(f32[64,256], const f32[256,64]) matmul(0,1; bf16=1) -> f32[64,64]; anchor=0";
  const std::string code = AssemblyOf(text, "mr=8,nv=2,blocks=1,ku=1,pack=1", WithTiles(), true);
  EXPECT_EQ(Count(code, "vdpbf16ps\t"), 16U) << code;
  EXPECT_EQ(Count(code, "vfmadd"), 0U);
}

// Without the attribute nothing is rounded.
TEST(MatrixTiles, F32ThatMayNotBeRoundedHasNone) {
  const Workload w = Parse("(f32[64,256], const f32[256,96]) matmul(0,1) -> f32[64,96]; anchor=0");
  EXPECT_EQ(TilesFor(w, WithTiles()), nullptr);
  EXPECT_EQ(Bf16VectorsFor(w, WithTiles()), nullptr);
}

// What a tile loop may not be.
TEST(MatrixTiles, OtherLoopsAreRefused) {
  using ir::Expr;
  const ir::Buffer in = ir::MakeBuffer("in", DType::kI32, {64, 64}), out = ir::MakeBuffer("out", DType::kI32, {64, 64});
  const ir::Buffer sums = ir::MakeBuffer("sums", DType::kI32, {64, 64}, ir::Scope::kTile);
  const ir::Var i = ir::MakeVar("i"), j = ir::MakeVar("j");
  const auto refused = [&](int64_t rows, int64_t columns, const ir::Stmt& body) {
    const ir::Stmt loops = ir::For(i, rows, ir::ForKind::kTile, ir::For(j, columns, ir::ForKind::kSerial, body));
    const ir::Func func{"f", {in, out}, 1, ir::Alloc(sums, loops)};
    return std::string(EmitText({{"kernel", func}}, WithTiles(), "asm").status().message());
  };
  const ir::Stmt zero = ir::Store(sums, {Expr(i), Expr(j)}, ir::Int(0, DType::kI32));
  EXPECT_EQ(refused(16, 16, zero), "");
  EXPECT_EQ(refused(17, 16, zero), "kernel: matrix tiles of 17 rows");
  EXPECT_EQ(refused(16, 8, zero), "kernel: no instruction of matrix tiles is the loop over i");
  EXPECT_EQ(refused(16, 16, ir::Store(sums, {Expr(i), Expr(j) * Expr(2)}, ir::Int(0, DType::kI32))),
            "kernel: sums holds no matrix tiles");
  EXPECT_EQ(refused(16, 16, ir::Store(out, {Expr(i), Expr(j)}, ir::Load(in, {Expr(i), Expr(j)}))),
            "kernel: in holds no matrix tiles");
  EXPECT_EQ(refused(16, 16, ir::Store(out, {Expr(j), Expr(i)}, ir::Load(sums, {Expr(i), Expr(j)}))),
            "kernel: columns of out are no neighbours");
  EXPECT_EQ(refused(16, 16, ir::Store(out, {Expr(i) % Expr(3), Expr(j)}, ir::Load(sums, {Expr(i), Expr(j)}))),
            "kernel: rows of a tile of out do not lie in order");
}

}  // namespace
}  // namespace temper
