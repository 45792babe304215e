// Every element type through copies, casts, comparisons and sums, bit for bit: what NumPy, ml_dtypes and ONNX's
// reference have (golden/make_types.py), against the reference, the interpreter and compiled code.
#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "compiler/package/run_kernel.h"

namespace temper {
namespace {

struct Golden {
  std::string op;
  Attrs attrs;
  std::vector<NDArray> operands;
  NDArray result;
};

NDArray OfBits(DType dtype, const std::string& text) {
  const std::vector<std::string> items = absl::StrSplit(text, ' ', absl::SkipEmpty());
  NDArray a(dtype, {static_cast<int64_t>(items.size())});
  for (size_t i = 0; i < items.size(); ++i)
    StoreBits(dtype, a.MutableData(), static_cast<int64_t>(i), std::stoull(items[i], nullptr, 16));
  return a;
}

// A line is `operation operand-types result-type attributes : operands = results`.
Golden ParseLine(const std::string& line) {
  // Attributes hold an equals sign without spaces.
  const size_t colon = line.find(" : "), equals = line.rfind(" = ");
  const std::vector<std::string> head = absl::StrSplit(line.substr(0, colon), ' ');
  const std::vector<std::string> lists = absl::StrSplit(line.substr(colon + 3, equals - colon - 3), ',');
  Golden golden{head[0], {}, {}, OfBits(*DTypeFromName(head[head.size() - 2]), line.substr(equals + 3))};
  for (size_t i = 0; i < lists.size(); ++i) golden.operands.push_back(OfBits(*DTypeFromName(head[1 + i]), lists[i]));
  if (golden.op == "cast") golden.attrs.Set("to", std::string(Name(golden.result.dtype())));
  for (const std::string& item : std::vector<std::string>(absl::StrSplit(head.back(), ';'))) {
    const std::vector<std::string> pair = absl::StrSplit(item, '=');
    int64_t number = 0;
    if (pair.size() == 2 && absl::SimpleAtoi(pair[1], &number)) golden.attrs.Set(pair[0], number);
    if (pair.size() == 2 && pair[0] == "rounding") golden.attrs.Set(pair[0], pair[1]);
  }
  return golden;
}

std::vector<Golden> ReadGolden() {
  std::ifstream in(TEMPER_SOURCE_DIR "/tests/templates/golden/types.txt");
  std::vector<Golden> all;
  for (std::string line; std::getline(in, line);) all.push_back(ParseLine(line));
  return all;
}

std::string Describe(const Golden& g) {
  std::string text = g.op + " " + Text(g.attrs) + " of";
  for (const NDArray& x : g.operands) text += " " + std::string(Name(x.dtype()));
  return text;
}

Workload WorkloadOf(const Golden& g) {
  Workload w;
  Workload::Call call{g.op, g.attrs, {}, {g.result.dtype(), g.result.shape(), {}}};
  for (const NDArray& x : g.operands) {
    call.args.push_back(static_cast<int>(w.inputs.size()));
    w.inputs.push_back({{x.dtype(), x.shape(), {}}});
  }
  w.calls.push_back(std::move(call));
  return w;
}

void ExpectBits(const NDArray& got, const Golden& want, const char* who) {
  ASSERT_EQ(got.dtype(), want.result.dtype());
  ASSERT_EQ(got.size(), want.result.size());
  for (int64_t i = 0; i < got.size(); ++i) {
    const uint64_t bits = LoadBits(got.dtype(), got.data(), i);
    EXPECT_EQ(bits, LoadBits(got.dtype(), want.result.data(), i))
        << who << ", element " << i << ": " << want.operands[0].At(i) << " gives " << got.At(i) << " for "
        << want.result.At(i);
  }
}

bool AnyPacked(const Golden& g) {
  bool packed = IsPacked(g.result.dtype());
  for (const NDArray& x : g.operands) packed = packed || IsPacked(x.dtype());
  return packed;
}

void ExpectEverywhere(const Golden& g, const Target& target) {
  const Workload w = WorkloadOf(g);
  absl::StatusOr<NDArray> reference = RunReference(w, g.operands);
  ASSERT_TRUE(reference.ok()) << reference.status();
  ExpectBits(*reference, g, "reference");

  absl::StatusOr<Choice> choice = DefaultChoice(w, target);
  ASSERT_TRUE(choice.ok()) << choice.status();
  absl::StatusOr<Kernel> kernel = BuildKernel(w, choice->def->name, choice->config, target);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  std::vector<NDArray> arrays = g.operands;
  arrays.emplace_back(g.result.dtype(), g.result.shape());
  const absl::Status interpreted = ir::Interpret(kernel->main, std::span<NDArray>(arrays));
  ASSERT_TRUE(interpreted.ok()) << interpreted;
  ExpectBits(arrays.back(), g, "interpreter");

  absl::StatusOr<NDArray> compiled = RunKernel(w, *kernel, target, g.operands);
  if (AnyPacked(g)) {
    EXPECT_THAT(compiled.status().ToString(), ::testing::HasSubstr("lies packed in memory"));
    return;
  }
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  ExpectBits(*compiled, g, "compiled");
}

TEST(ElementTypes, CastsSumsAndComparisonsAreNumPys) {
  const Target target = *ParseTarget("host");
  const std::vector<Golden> all = ReadGolden();
  ASSERT_GE(all.size(), 300u);
  for (const Golden& g : all) {
    SCOPED_TRACE(Describe(g));
    ExpectEverywhere(g, target);
  }
}

// Bits are copied as they are: every pattern, NaN with whatever they carry.
TEST(ElementTypes, CopiesKeepEveryBit) {
  const Target target = *ParseTarget("host");
  Rng rng(1);
  for (const DTypeInfo& type : AllDTypes()) {
    SCOPED_TRACE(std::string(type.name));
    NDArray x(type.dtype, {64, 5});
    for (int64_t i = 0; i < x.size(); ++i) {
      const auto bits = static_cast<uint64_t>(rng.Below(int64_t{1} << 62)) * 4 + static_cast<uint64_t>(rng.Below(4));
      StoreBits(type.dtype, x.MutableData(), i, type.dtype == DType::kBool ? bits & 1 : bits);
    }
    NDArray turned(type.dtype, {5, 64});
    for (int64_t i = 0; i < 5; ++i) {
      for (int64_t j = 0; j < 64; ++j)
        StoreBits(type.dtype, turned.MutableData(), i * 64 + j, LoadBits(type.dtype, x.data(), j * 5 + i));
    }
    Golden g{"transpose", {}, {x}, turned};
    g.attrs.Set("perm", std::vector<int64_t>{1, 0});
    const Workload w = WorkloadOf(g);
    absl::StatusOr<NDArray> reference = RunReference(w, g.operands);
    ASSERT_TRUE(reference.ok()) << reference.status();
    ExpectBits(*reference, g, "reference");
    if (IsPacked(type.dtype)) continue;
    absl::StatusOr<Choice> choice = DefaultChoice(w, target);
    ASSERT_TRUE(choice.ok()) << choice.status();
    absl::StatusOr<Kernel> kernel = BuildKernel(w, choice->def->name, choice->config, target);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    absl::StatusOr<NDArray> compiled = RunKernel(w, *kernel, target, g.operands);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    ExpectBits(*compiled, g, "compiled");
  }
}

TEST(ElementTypes, SumsOfPowersOfTwoAreRefusedByName) {
  const TensorType e8m0{DType::kF8E8M0, {4}, {}};
  const absl::Status status = FindOp("add")->infer({}, std::vector<TensorType>{e8m0, e8m0}).status();
  EXPECT_THAT(status.ToString(), ::testing::HasSubstr("add: f8e8m0 has no arithmetic"));
}

}  // namespace
}  // namespace temper
