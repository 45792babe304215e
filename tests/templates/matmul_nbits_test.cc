// Products by matrices of few bits: every value of every knob, on several instruction sets, against the reference.
#include "compiler/ops/templates/templates.h"
#include "tests/templates/check_templates.h"
#include "tests/templates/covering_configs.h"

namespace temper {
namespace {

// Halves of bytes and whole ones; one zero point, none, and offsets; few rows and many; columns that fill no vector.
const char* const kProducts[] = {
    "(f32[1,64], const u8[32,37], const f32[2,37]) matmul_nbits(0,1,2; zero=8) -> f32[1,37]; anchor=0",
    "(f32[1,2,48], const u8[24,96], const f32[1,96], f32[96]) matmul_nbits(0,1,2) -> f32[1,2,96]; add(4,3) -> "
    "f32[1,2,96]; relu(5) -> f32[1,2,96]; anchor=0",
    "(f32[5,96], const u8[48,40], const f32[6,40], const f32[6,40]) matmul_nbits(0,1,2,3) -> f32[5,40]; anchor=0",
    "(f32[7,72], const u8[72,33], const f32[4,33]) matmul_nbits(0,1,2; zero=128) -> f32[7,33]; silu(3) -> f32[7,33]; "
    "anchor=0",
    "(f32[3,11,64], const u8[64,29], const f32[1,29], const f32[1,29]) matmul_nbits(0,1,2,3) -> f32[3,11,29]; anchor=0",
    "(f32[61,96], const u8[48,93], const f32[3,93]) matmul_nbits(0,1,2; zero=8) -> f32[61,93]; anchor=0",
    // Rows of bytes.
    "(i8[1,64], const u8[32,37], const f32[2,37], f32[1,2]) matmul_nbits_i8(0,1,2,3; zero=8) -> f32[1,37]; anchor=0",
    "(i8[1,2,48], const u8[24,96], const f32[1,96], f32[1,2,1], const f32[96]) matmul_nbits_i8(0,1,2,3) -> "
    "f32[1,2,96]; add(5,4) -> f32[1,2,96]; relu(6) -> f32[1,2,96]; anchor=0",
    "(i8[5,96], const u8[48,40], const f32[6,40], f32[5,6], const f32[6,40]) matmul_nbits_i8(0,1,2,3,4) -> f32[5,40]; "
    "anchor=0",
    "(i8[3,11,288], const u8[288,33], const f32[2,33], f32[3,11,2]) matmul_nbits_i8(0,1,2,3; zero=128) -> "
    "f32[3,11,33]; silu(4) -> f32[3,11,33]; anchor=0",
    "(i8[9,4096], const u8[2048,24], const f32[16,24], f32[9,16]) matmul_nbits_i8(0,1,2,3; zero=7) -> f32[9,24]; "
    "anchor=0",
    // Rows 4 KiB apart.
    "(f32[9,1024], const u8[512,24], const f32[8,24]) matmul_nbits(0,1,2; zero=8) -> f32[9,24]; anchor=0",
};

// Floats between -1 and 1, and any bytes.
std::vector<NDArray> Inputs(const Workload& w, Rng& rng) {
  std::vector<NDArray> inputs = RandomInputs(w, rng);
  for (NDArray& x : inputs) {
    for (int64_t i = 0; x.dtype() == DType::kU8 && i < x.size(); ++i) x.Set(i, static_cast<double>(rng.Below(256)));
  }
  return inputs;
}

TEST(MatmulNBits, EveryValueOfEveryKnob) {
  Rng rng(5);
  for (const char* text : kProducts) {
    const Workload w = Parse(text);
    const std::vector<NDArray> inputs = Inputs(w, rng);
    const absl::StatusOr<NDArray> wanted = RunReference(w, inputs);
    ASSERT_TRUE(wanted.ok()) << wanted.status();
    for (const Target& host : Targets()) {
      const Target t = rng.Below(2) == 0 ? host : WithSmallCaches(host);
      for (const TemplateDef* def : TemplatesFor(w, t)) {
        for (const Config& config : CoveringConfigs(def->space(w, t), rng)) {
          SCOPED_TRACE(absl::StrCat(text, "\n", std::string(def->name), " ", Text(config), "\n", Text(t)));
          const absl::StatusOr<Kernel> kernel = BuildKernel(w, def->name, config, t);
          ASSERT_TRUE(kernel.ok()) << kernel.status();
          const absl::StatusOr<NDArray> got = RunKernel(w, *kernel, t, inputs);
          ASSERT_TRUE(got.ok()) << got.status();
          ASSERT_LT(RelativeError(*got, *wanted), 1e-5);
        }
      }
    }
  }
}

// What is positive, and far from zero points: sums of it are much larger than what they leave.
TEST(MatmulNBits, LongBlocksKeepTheirDigits) {
  for (const char* text :
       {"(f32[1,4096], const u8[4096,24], const f32[1,24]) matmul_nbits(0,1,2; zero=128) -> f32[1,24]; "
        "anchor=0",
        "(f32[3,3072], const u8[1536,24], const f32[1,24]) matmul_nbits(0,1,2; zero=8) -> f32[3,24]; "
        "anchor=0"}) {
    const Workload w = Parse(text);
    Rng rng(7);
    std::vector<NDArray> inputs = Inputs(w, rng);
    for (int64_t i = 0; i < inputs[0].size(); ++i) inputs[0].Set(i, 1 + rng.Uniform());
    const int64_t depth = inputs[0].shape()[1], per_byte = depth / inputs[1].shape()[0];
    NDArray wanted(DType::kF32, w.output().shape);
    for (int64_t at = 0; at < wanted.size(); ++at) {
      double sum = 0;
      for (int64_t k = 0; k < depth; ++k) {
        const int byte = static_cast<int>(inputs[1].At(k / per_byte * 24 + at % 24));
        const int number = per_byte == 1 ? byte - 128 : (k % 2 == 0 ? byte % 16 : byte / 16) - 8;
        sum += inputs[0].At(at / 24 * depth + k) * number * inputs[2].At(at % 24);
      }
      wanted.Set(at, sum);
    }
    for (const Target& t : Targets()) {
      for (const TemplateDef* def : TemplatesFor(w, t)) {
        const Config config = def->space(w, t).Enumerate(1).front();
        const absl::StatusOr<Kernel> kernel = BuildKernel(w, def->name, config, t);
        ASSERT_TRUE(kernel.ok()) << kernel.status();
        const absl::StatusOr<NDArray> got = RunKernel(w, *kernel, t, inputs);
        ASSERT_TRUE(got.ok()) << got.status();
        EXPECT_LT(RelativeError(*got, wanted), 4e-6) << def->name << "\n" << text << "\n" << Text(t);
      }
    }
  }
}

std::vector<std::string> NamesFor(const std::string& text) {
  std::vector<std::string> names;
  for (const TemplateDef* def : TemplatesFor(Parse(text), *ParseTarget("llvm:haswell"))) names.emplace_back(def->name);
  return names;
}

TEST(MatmulNBits, ManyRowsShareAPanelInCache) {
  const auto names = [](int rows) {
    return NamesFor(absl::StrCat("(f32[", rows, ",64], const u8[32,48], const f32[2,48]) matmul_nbits(0,1,2) -> f32[",
                                 rows, ",48]; anchor=0"));
  };
  EXPECT_EQ(names(1), (std::vector<std::string>{"matmul.nbits", "matmul.nbits_cached"}));
  EXPECT_EQ(names(64), (std::vector<std::string>{"matmul.nbits_cached"}));
}

TEST(MatmulNBits, WhatIsNotKnownOrHasOddBlocksIsLeftToTheFallback) {
  const std::vector<std::string> fallback = {"default"};
  EXPECT_EQ(NamesFor("(f32[2,64], u8[32,48], const f32[2,48]) matmul_nbits(0,1,2) -> f32[2,48]; anchor=0"), fallback);
  EXPECT_EQ(NamesFor("(f32[2,64], const u8[32,48], f32[2,48]) matmul_nbits(0,1,2) -> f32[2,48]; anchor=0"), fallback);
  EXPECT_EQ(NamesFor("(f32[2,18], const u8[9,48], const f32[6,48]) matmul_nbits(0,1,2) -> f32[2,48]; anchor=0"),
            fallback);
  // Blocks of 12 steps are one i32 of numbers and a half.
  const char* halves =
      "(i8[2,24], const u8[12,48], const f32[2,48], f32[2,2]) matmul_nbits_i8(0,1,2,3; zero=8) -> f32[2,48]; anchor=0";
  EXPECT_EQ(NamesFor(halves), fallback);
  CheckAll(Parse(halves), 2, 1);
  CheckAll(Parse("(i8[2,64], u8[32,48], const f32[2,48], f32[2,2], f32[2,48]) matmul_nbits_i8(0,1,2,3,4) -> "
                 "f32[2,48]; anchor=0"),
           2, 1);
  EXPECT_EQ(NamesFor("(f32[2,64], const u8[32,48], const f32[2,48]) matmul_nbits(0,1,2,2) -> f32[2,48]; anchor=0"),
            fallback);
  // Scales that something else reads too are not packed.
  const char* read_twice =
      "(f32[2,64], const u8[32,48], const f32[2,48]) matmul_nbits(0,1,2) -> f32[2,48]; add(3,2) -> f32[2,48]; anchor=0";
  EXPECT_EQ(NamesFor(read_twice), fallback);
  CheckAll(Parse(read_twice), 2, 1);
  CheckAll(Parse("(f32[16,16], const f32[16,16]) matmul(0,1) -> f32[16,16]; add(2,1) -> f32[16,16]; anchor=0"), 2, 1);
  // An operand of rank 0 stands for none.
  CheckAll(
      Parse("(f32[1,64], const u8[32,48], const f32[2,48], const f32[]) matmul_nbits(0,1,2,3; zero=8) -> f32[1,48]; "
            "anchor=0"),
      2, 1);
  CheckAll(Parse("(f32[2,18], const u8[9,48], const f32[6,48]) matmul_nbits(0,1,2) -> f32[2,48]; anchor=0"), 2, 1);
}

// What a run reads of the weights is what the package has of them.
TEST(MatmulNBits, PackagesHoldTheNumbersAsTheyAre) {
  const Workload w = Parse(
      "(f32[1,4096], const u8[2048,4096], const f32[128,4096]) matmul_nbits(0,1,2; zero=8) -> f32[1,4096]; anchor=0");
  Target t = *ParseTarget("llvm:haswell");
  t.cpu()->threads = 2;
  const absl::StatusOr<Choice> choice = DefaultChoice(w, t);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->def->name, "matmul.nbits");
  const absl::StatusOr<Kernel> kernel = BuildKernel(w, choice->def->name, choice->config, t);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  int64_t bytes = 0;
  for (const ir::Func& pack : kernel->packs) {
    for (size_t i = 1; i < pack.params.size(); ++i)
      bytes += BytesOf(pack.params[i]->dtype, NumElements(pack.params[i]->shape));
  }
  EXPECT_EQ(bytes, 2048 * 4096 + 4 * 128 * 4096);
}

}  // namespace
}  // namespace temper
