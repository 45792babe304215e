// Generated conversions of f16 and bf16, which CPUs do not compute with, against base/dtype.h: every pattern of bits,
// and f32 numbers of every exponent. By instructions where the target has them, never by a library's function.
#include <bit>

#include "absl/strings/str_cat.h"
#include "tests/codegen/expect_kernel.h"

namespace temper {
namespace {

using ir::ForKind;

// out[i] = in[i] as another type, in rows.
ir::Func Casts(DType from, DType to, ForKind kind, int64_t rows, int64_t row) {
  const ir::Buffer in = ir::MakeBuffer("in", from, {rows, row}), out = ir::MakeBuffer("out", to, {rows, row});
  const ir::Var i = ir::MakeVar("i"), j = ir::MakeVar("j");
  ir::Stmt body = ir::For(j, row, kind, ir::Store(out, {i, j}, ir::Cast(ir::Load(in, {i, j}), to)));
  return {"casts", {in, out}, 1, ir::For(i, rows, ForKind::kSerial, std::move(body))};
}

// What becomes of the bits `in`, on every target that runs here. The last row is filled up with zeros.
void ExpectCasts(DType from, DType to, const std::vector<uint64_t>& in, int64_t row,
                 const std::function<uint64_t(uint64_t)>& want) {
  const int64_t size = static_cast<int64_t>(in.size()), rows = (size + row - 1) / row;
  for (const Target& target : TestTargets()) {
    for (ForKind kind : {ForKind::kSerial, ForKind::kVectorized}) {
      const auto kernel = RunnableKernel::Make(Casts(from, to, kind, rows, row), target);
      ASSERT_TRUE(kernel.ok()) << target.name() << ": " << kernel.status();
      std::vector<NDArray> args = {NDArray(from, {rows, row}), NDArray(to, {rows, row})};
      for (int64_t k = 0; k < size; ++k) StoreBits(from, args[0].MutableData(), k, in[static_cast<size_t>(k)]);
      ASSERT_EQ(kernel->Run(args), 0);
      for (int64_t k = 0; k < size; ++k) {
        const uint64_t bits = in[static_cast<size_t>(k)], got = LoadBits(to, args[1].data(), k);
        ASSERT_EQ(got, want(bits)) << std::hex << bits << " became " << got << " for " << want(bits) << " in rows of "
                                   << std::dec << row << (kind == ForKind::kSerial ? ", one by one, on " : ", on ")
                                   << target.name();
      }
    }
  }
}

uint64_t F32Bits(double v) { return std::bit_cast<uint32_t>(static_cast<float>(v)); }

// Numbers and NaNs apart: of a NaN that is read only the sign is sure.
TEST(NarrowFloat, EveryPatternOfSixteenBitsIsRead) {
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    std::vector<uint64_t> numbers, nans;
    for (uint64_t bits = 0; bits < 1 << 16; ++bits)
      (std::isnan(DecodeFloat(dtype, bits)) ? nans : numbers).push_back(bits);
    ExpectCasts(dtype, DType::kF32, numbers, 37, [=](uint64_t bits) { return F32Bits(DecodeFloat(dtype, bits)); });
    ExpectCasts(dtype, DType::kF64, numbers, 37,
                [=](uint64_t bits) { return std::bit_cast<uint64_t>(DecodeFloat(dtype, bits)); });
    ExpectCasts(dtype, DType::kBool, nans, 37, [](uint64_t) { return 1; });
  }
}

// All neighbours of numbers of 16 bits and of the middles between them, NaNs, and one number of each of many runs of
// the 2^32 patterns.
std::vector<uint64_t> ManyFloats() {
  std::vector<uint64_t> out;
  for (uint64_t half = 0; half < 1 << 16; ++half) {
    const uint64_t bits = F32Bits(DecodeFloat(DType::kF16, half));
    for (uint64_t step : {0, 1, 0xfff, 0x1000, 0x1001, 0x1fff}) out.push_back((bits + step) & 0xffffffff);
  }
  Rng rng(1);
  for (uint64_t run = 0; run < uint64_t{1} << 32; run += 1 << 14) out.push_back(run + rng.Below(1 << 14));
  return out;
}

TEST(NarrowFloat, FloatsRoundToTheNearestOfSixteenBits) {
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    ExpectCasts(DType::kF32, dtype, ManyFloats(), 37, [=](uint64_t bits) {
      return EncodeFloat(dtype, static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits))));
    });
  }
}

// A double rounds once: by way of f32 these would go to the other neighbour.
TEST(NarrowFloat, DoublesRoundOnce) {
  std::vector<uint64_t> in;
  for (double half : {1.0, 3.0, 0x1p-14, 0x1p-20, 1024.0}) {
    for (double middle : {half * (1 + 0x1p-11), half * (1 + 0x3p-11)}) {
      for (double v : {middle * (1 - 0x1p-40), middle, middle * (1 + 0x1p-40)})
        in.insert(in.end(), {std::bit_cast<uint64_t>(v), std::bit_cast<uint64_t>(-v)});
    }
  }
  ExpectCasts(DType::kF64, DType::kF16, in, 7,
              [](uint64_t bits) { return EncodeFloat(DType::kF16, std::bit_cast<double>(bits)); });
}

// Vectors of all lengths, none of which may need a function that the target's instructions do not spare.
TEST(NarrowFloat, RowsOfEveryLength) {
  std::vector<uint64_t> halves, floats;
  for (uint64_t k = 0; k < 100; ++k) {
    halves.push_back(k * 643 % 0x7c00);
    floats.push_back(F32Bits(DecodeFloat(DType::kF16, halves.back()) * 1.0003));
  }
  for (int64_t row = 1; row <= 35; ++row) {
    ExpectCasts(DType::kF16, DType::kF32, halves, row,
                [](uint64_t bits) { return F32Bits(DecodeFloat(DType::kF16, bits)); });
    ExpectCasts(DType::kF32, DType::kF16, floats, row, [](uint64_t bits) {
      return EncodeFloat(DType::kF16, static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits))));
    });
  }
}

TEST(NarrowFloat, InstructionsConvertHalvesWhereTheTargetHasThem) {
  for (const auto& [name, converts] : {std::pair("llvm:haswell", true), std::pair("llvm:x86-64-v4", true),
                                       std::pair("llvm:sapphirerapids", true), std::pair("llvm:nehalem", false)}) {
    for (const int64_t row : {3, 16, 37}) {
      SCOPED_TRACE(absl::StrCat(name, " in rows of ", row));
      const ir::Func read = Casts(DType::kF16, DType::kF32, ForKind::kVectorized, 4, row);
      const ir::Func write = Casts(DType::kF32, DType::kF16, ForKind::kVectorized, 4, row);
      const auto text = EmitText({{"read", read}, {"write", write}}, *ParseTarget(name), "asm");
      ASSERT_TRUE(text.ok()) << text.status();
      EXPECT_EQ(text->find("vcvtph2ps") != std::string::npos, converts) << *text;
      EXPECT_EQ(text->find("vcvtps2ph") != std::string::npos, converts) << *text;
      EXPECT_EQ(text->find("hfsf"), std::string::npos) << *text;  // __extendhfsf2
      EXPECT_EQ(text->find("sfhf"), std::string::npos) << *text;  // __truncsfhf2
    }
  }
}

// What LLVM could do with halves as well as with f32, and would then do element by element.
TEST(NarrowFloat, HalvesAreComparedAndRoundedInVectors) {
  const std::function<ir::Expr(ir::Expr)> functions[] = {
      [](const ir::Expr& x) { return ir::Max(x, ir::Float(0)); },
      [](const ir::Expr& x) { return ir::Unary(ir::ExprKind::kFloor, x); },
      [](const ir::Expr& x) { return ir::Select(x < ir::Float(2), x, ir::Float(1)); }};
  const ir::Buffer in = ir::MakeBuffer("in", DType::kF16, {37}), out = ir::MakeBuffer("out", DType::kF16, {37});
  for (const auto& f : functions) {
    const ir::Var i = ir::MakeVar("i");
    const ir::Expr result = ir::Cast(f(ir::Cast(ir::Load(in, {i}), DType::kF32)), DType::kF16);
    const ir::Func func = {"f", {in, out}, 1, ir::For(i, 37, ForKind::kVectorized, ir::Store(out, {i}, result))};
    ExpectSame(func, 0);
    const auto text = EmitText({{"f", func}}, *ParseTarget("llvm:haswell"), "asm");
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(text->find("pextrw"), std::string::npos) << *text;
  }
}

}  // namespace
}  // namespace temper
