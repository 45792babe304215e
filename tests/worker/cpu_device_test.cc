// The CPU on real workloads: right kernels pass, wrong ones do not, and what is measured is what was asked for.
#include "measure_worker/backends/cpu/cpu_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/ops/template.h"
#include "compiler/package/weights.h"
#include "measure_worker/compare.h"
#include "measure_worker/host/guarded_buffer.h"
#include "measure_worker/inputs.h"
#include "measure_worker/kernels/kernel_bench.h"
#include "measure_worker/kernels/workload_state.h"
#include "measure_worker/memory.h"
#include "measure_worker/sandbox/session.h"
#include "tests/worker/collector.h"

namespace temper::worker {
namespace {

using testing::HasSubstr;

constexpr char kMatmul[] = "(f32[37,64], const f32[64,48]) matmul(0,1) -> f32[37,48]; anchor=0";
constexpr char kConv[] =
    "(f32[1,8,9,9]@0231, const f32[16,8,3,3], const f32[16,1,1]) conv2d(0,1; pads=[1,1,1,1]) -> f32[1,16,9,9]@0231; "
    "add(3,2) -> f32[1,16,9,9]@0231; relu(4) -> f32[1,16,9,9]@0231; anchor=0";

// So large a constant is kept once.
constexpr char kGather[] = "(const f32[2100,1024], i64[40]) gather(0,1; axis=0) -> f32[40,1024]; anchor=0";

BatchWork WorkOf(const std::string& workload, const std::vector<std::pair<std::string, std::string>>& candidates) {
  BatchWork work;
  work.workload = workload;
  work.target = Text(HostTarget());
  work.plan.min_sample_us = 20;
  work.plan.race_factor = 0;
  for (const auto& [name, config] : candidates) {
    Candidate c;
    c.template_name = name;
    c.config = config;
    work.candidates.push_back(c);
  }
  return work;
}

std::map<int, TrialResult> Measure(KernelBench& kernels, const BatchWork& work) {
  Collector collector;
  Canary canary;
  CarryOut(kernels, {work, false}, canary, collector);
  return collector.Take();
}

class CpuKernelsTest : public testing::TestWithParam<const char*> {
 protected:
  DeviceKernels kernels_{std::make_unique<CpuDevice>()};
};

TEST_P(CpuKernelsTest, EveryTemplatePassesOnSomeOfItsConfigs) {
  const auto workload = ParseWorkload(GetParam());
  ASSERT_TRUE(workload.ok()) << workload.status();
  std::vector<std::pair<std::string, std::string>> candidates;
  for (const TemplateDef* def : TemplatesFor(*workload, HostTarget())) {
    for (const Config& c : def->space(*workload, HostTarget()).Enumerate(4, 7))
      candidates.emplace_back(def->name, Text(c));
  }
  ASSERT_GE(candidates.size(), 2u);
  for (const char* policy : {"model", "warm", "flushed"}) {
    BatchWork work = WorkOf(Text(*workload), candidates);
    work.plan.cache_policy = policy;
    work.plan.repeats = 2;
    work.plan.min_sample_us = 1;  // a flush takes milliseconds
    const auto trials = Measure(kernels_, work);
    ASSERT_EQ(trials.size(), candidates.size());
    for (const auto& [i, t] : trials) {
      EXPECT_EQ(Text(t.outcome), "ok") << candidates[i].first << " " << candidates[i].second << ": " << t.error;
      EXPECT_EQ(t.costs_s.size(), 2u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Workloads, CpuKernelsTest, testing::Values(kMatmul, kConv, kGather));

TEST(CpuKernels, SaysWhyAConfigIsRefused) {
  DeviceKernels kernels(std::make_unique<CpuDevice>());
  BatchWork work = WorkOf(kMatmul, {{"no.such", ""}, {"default", "x"}, {"default", ""}});
  work.candidates[2].template_version = 999;
  const auto trials = Measure(kernels, work);
  EXPECT_THAT(trials.at(0).error, HasSubstr("no template 'no.such'"));
  EXPECT_EQ(Text(trials.at(1).outcome), "illegal_config");
  EXPECT_THAT(trials.at(2).error, HasSubstr("not 999"));
}

TEST(CpuKernels, AWorkloadOrTargetThatIsNoneIsNoCandidatesFault) {
  DeviceKernels kernels(std::make_unique<CpuDevice>());
  EXPECT_EQ(Text(Measure(kernels, WorkOf("gibberish", {{"default", ""}})).at(0).outcome), "infrastructure");
  BatchWork work = WorkOf(kMatmul, {{"default", ""}});
  work.target = "llvm -mcpu=pdp11";
  EXPECT_EQ(Text(Measure(kernels, work).at(0).outcome), "infrastructure");
  work = WorkOf(kMatmul, {{"default", ""}});
  work.plan.cache_policy = "lukewarm";
  EXPECT_THAT(Measure(kernels, work).at(0).error, HasSubstr("model, warm or flushed"));
}

// Says what a call takes, and remembers whose the latest was.
class PacedCpu : public CpuDevice {
 public:
  PacedCpu(double call_s, std::vector<int64_t>& latest) : call_s_(call_s), latest_(latest) {}
  absl::StatusOr<double> Time(const Code& code, std::span<const Arguments> arguments, size_t& next, void* scratch,
                              int64_t calls) override {
    latest_ = code.parameter_bytes;
    TEMPER_RETURN_IF_ERROR(CpuDevice::Time(code, arguments, next, scratch, 1).status());
    return call_s_ * static_cast<double>(calls);
  }

 private:
  const double call_s_;
  std::vector<int64_t>& latest_;
};

TEST(CpuKernels, ASlowDeviceIsWatchedByASmallerCanary) {
  std::vector<int64_t> fast_bytes, slow_bytes;
  for (const auto& [call_s, bytes] : {std::pair{1e-4, &fast_bytes}, {1.0, &slow_bytes}}) {
    DeviceKernels kernels(std::make_unique<PacedCpu>(call_s, *bytes));
    ASSERT_TRUE(kernels.Use(Text(HostTarget())).ok());
    EXPECT_TRUE(kernels.TimeCanary().ok());
  }
  EXPECT_EQ(fast_bytes.front(), 128 * 128 * 4);
  EXPECT_EQ(slow_bytes.front(), 16 * 16 * 4);
}

// --- the parts ---

TEST(GuardedBuffer, EndsAtAPageThatCanNotBeTouched) {
  for (int64_t bytes : {1, 4, 63, 64, 65, 4096, 4100, 3 << 20}) {
    auto buffer = GuardedBuffer::Make(bytes);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0u);
    buffer->Fill(1);
    EXPECT_TRUE(buffer->CheckSlack().ok());
    if (bytes % 64 != 0) {
      buffer->data()[bytes] = 1;
      EXPECT_TRUE(absl::IsDataLoss(buffer->CheckSlack()));
    }
    volatile char* past = buffer->data() + (bytes + 63) / 64 * 64;
    EXPECT_DEATH(*past = 1, "") << bytes;
  }
  auto empty = GuardedBuffer::Make(0);
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE(empty->MakeReadOnly().ok());
  EXPECT_TRUE(empty->CheckSlack().ok());
}

TEST(GuardedBuffer, CanBeReadButNotWrittenWhereThatIsAskedFor) {
  for (int64_t bytes : {1, 64, 4096, 4100, 3 << 20}) {
    auto buffer = GuardedBuffer::Make(bytes);
    ASSERT_TRUE(buffer.ok());
    buffer->Fill(7);
    ASSERT_TRUE(buffer->MakeReadOnly().ok());
    EXPECT_EQ(buffer->data()[bytes - 1], 7);
    volatile char* data = buffer->data();
    EXPECT_DEATH(data[0] = 1, "") << bytes;
    EXPECT_DEATH(data[bytes - 1] = 1, "") << bytes;
  }
}

TEST(SpareBuffers, AreAsGoodAsNewAndKeptUpToALimit) {
  SpareBuffers spare(8 << 20);
  auto first = spare.Take(3 << 20);
  ASSERT_TRUE(first.ok());
  char* const end = first->data() + first->bytes();
  ASSERT_TRUE(first->MakeReadOnly().ok());
  spare.Give(*std::move(first));
  auto again = spare.Take((3 << 20) - 100);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->data() + (again->bytes() + 63) / 64 * 64, end) << "the same memory, with the page after its end";
  again->Fill(1);
  EXPECT_TRUE(again->CheckSlack().ok());
  again->data()[again->bytes()] = 1;
  EXPECT_TRUE(absl::IsDataLoss(again->CheckSlack()));
  EXPECT_DEATH(*const_cast<volatile char*>(end) = 1, "");

  spare.Give(*std::move(again));
  again = spare.Take(2 << 20);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->data() + again->bytes(), end);
  EXPECT_DEATH(*const_cast<volatile char*>(again->data() - 1) = 1, "") << "nor is what lies before it its own";

  auto much_smaller = spare.Take(1 << 20);
  ASSERT_TRUE(much_smaller.ok());
  spare.Give(*std::move(again));
  auto other = spare.Take(1 << 20);
  ASSERT_TRUE(other.ok());
  EXPECT_NE(other->data() + other->bytes(), end) << "for so little it would be a waste";
  auto larger = spare.Take(6 << 20);
  ASSERT_TRUE(larger.ok());
  spare.Give(*std::move(larger));  // 9 MiB in all: the first one goes
  EXPECT_DEATH(static_cast<void>(*const_cast<volatile char*>(end - 1)), "");
}

TEST(WorkloadState, KeepsALargeConstantOnceAndReadOnly) {
  CpuDevice device;
  const auto state = MakeWorkloadState(device, *ParseWorkload(kGather), 1);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ((*state)->TimedOperand(0), (*state)->operands[0]->address(0));
  EXPECT_NE((*state)->TimedOperand(1), (*state)->operands[1]->address(0));
  EXPECT_LT((*state)->bytes, 2 * (*state)->operands[0]->bytes(0));
  EXPECT_TRUE((*state)->CheckOperand(0).ok());
  EXPECT_DEATH(*static_cast<volatile char*>((*state)->operands[0]->address(0)) = 1, "");
}

TEST(CheckOutput, AgreesWithTheSlowMeasureAndNamesTheElement) {
  NDArray want(DType::kF32, {100});
  for (int i = 0; i < 100; ++i) want.Set(i, std::sin(i));
  NDArray got = want.Clone();
  EXPECT_TRUE(CheckOutput(got.data(), want).ok());
  got.Set(40, want.At(40) + 5e-5);
  EXPECT_TRUE(CheckOutput(got.data(), want).ok());
  EXPECT_NEAR(OutputError(got.data(), want), RelativeError(got, want), 1e-9);
  got.Set(41, want.At(41) + 1e-3);
  const absl::Status off = CheckOutput(got.data(), want);
  EXPECT_TRUE(absl::IsDataLoss(off));
  EXPECT_THAT(std::string(off.message()), HasSubstr("1 of 100 elements are off, the first at 41"));
  EXPECT_TRUE(CheckOutput(got.data(), want, 2e-3).ok()) << "where a kernel may round more";
  EXPECT_FALSE(CheckOutput(got.data(), want, 5e-4).ok());
  for (double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (int at : {3, 99}) {
      got = want.Clone();
      got.Set(at, bad);
      EXPECT_FALSE(CheckOutput(got.data(), want).ok());
      NDArray both = got.Clone();
      EXPECT_TRUE(CheckOutput(got.data(), both).ok()) << "where the reference has it too, it is right";
    }
  }
}

TEST(IsBetween, WhatIsNotFiniteAllowsNothingElse) {
  for (const double odd : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    NDArray bound(DType::kF32, {2});
    bound.Set(0, odd);
    const NDArray want = bound.Clone();
    NDArray got = bound.Clone();
    EXPECT_TRUE(IsBetween(got.data(), want, bound, bound)) << odd;
    got.Set(1, 5);
    EXPECT_FALSE(IsBetween(got.data(), want, bound, bound)) << odd;
    got.Set(0, 0), got.Set(1, 0);
    EXPECT_FALSE(IsBetween(got.data(), want, bound, bound)) << odd;
  }
}

TEST(CheckOutput, OfAModelAFewWholeNumbersMayHaveMoved) {
  for (const DType dtype : {DType::kI64, DType::kBool, DType::kF32}) {
    const NDArray want(dtype, {2000});
    NDArray got = want.Clone();
    EXPECT_TRUE(CheckModelOutput(got.data(), want).ok());
    for (int64_t i = 0; i < 3; ++i) {
      got.Set(700 * i, 1);
      EXPECT_FALSE(CheckOutput(got.data(), want).ok());
      EXPECT_EQ(CheckModelOutput(got.data(), want).ok(), !IsFloat(dtype) && i < 2);
    }
  }
  const NDArray steps(DType::kF32, {2000});
  NDArray moved = steps.Clone();
  for (int64_t i = 0; i < 21; ++i) {
    moved.Set(90 * i, 1);
    EXPECT_EQ(CheckModelOutput(moved.data(), steps, 0.2, /*quantises=*/true).ok(), i < 20);
  }
  moved.Set(1800, std::numeric_limits<double>::quiet_NaN()), moved.Set(0, 0);
  EXPECT_FALSE(CheckModelOutput(moved.data(), steps, 0.2, /*quantises=*/true).ok()) << "a number is lost";
  const NDArray one(DType::kI64, {1});
  NDArray other = one.Clone();
  other.Set(0, 1);
  EXPECT_FALSE(CheckModelOutput(other.data(), one).ok());
}

TEST(CheckOutput, IntegersAreExact) {
  NDArray want(DType::kI64, {3});
  want.Set(0, 1 << 30);
  NDArray got = want.Clone();
  EXPECT_TRUE(CheckOutput(got.data(), want).ok());
  got.Set(2, 1);
  EXPECT_FALSE(CheckOutput(got.data(), want).ok());
}

TEST(CheckOutput, TruthValuesAreZeroOrOne) {
  NDArray want(DType::kBool, {3});
  want.Set(1, 1);
  NDArray got = want.Clone();
  EXPECT_TRUE(CheckOutput(got.data(), want).ok());
  static_cast<char*>(got.MutableData())[1] = 0x25;
  EXPECT_FALSE(CheckOutput(got.data(), want).ok()) << "as it was left, unwritten";
  EXPECT_FALSE(IsBetween(got.data(), want, want, want));
}

TEST(Inputs, NarrowIntegersAreAllThatThereAre) {
  const Workload w =
      ParseWorkload("(u8[64,256], const i8[256,64]) matmul(0,1; result='i32') -> i32[64,64]; anchor=0").value();
  for (const NDArray& a : MakeInputs(w, 1)) {
    std::set<double> met;
    for (int64_t i = 0; i < a.size(); ++i) met.insert(a.At(i));
    EXPECT_EQ(met.size(), 256u) << Name(a.dtype());
  }
  const Workload division = ParseWorkload("(i8[64,64], i8[64]) div(0,1) -> i8[64,64]; anchor=0").value();
  const NDArray divisor = MakeInputs(division, 1)[1];
  for (int64_t i = 0; i < divisor.size(); ++i) EXPECT_GT(divisor.At(i), 0);
  const Workload halves = ParseWorkload(
                              "(u8[50,768]) cast(0; to='f32') -> f32[50,768]; reduce_sum(1; axes=[1] keepdims=0) -> "
                              "f32[50]; cast(2; to='f16') -> f16[50]; anchor=1")
                              .value();
  const NDArray sums = RunReference(halves, MakeInputs(halves, 1)).value();
  for (int64_t i = 0; i < sums.size(); ++i) EXPECT_TRUE(std::isfinite(sums.At(i)));
}

// A quantised layer whose reference is one number at all places tells no kernel from another.
TEST(Inputs, SumsOfIntegersAreScaledIntoTheirRange) {
  for (const char* text :
       {"(i16[1,64,8,8], const i16[64,64,3,3], f32[], f32[]) conv2d(0,1; pads=[1,1,1,1] result='i32') -> "
        "i32[1,64,8,8]; cast(4; to='f32') -> f32[1,64,8,8]; mul(5,2) -> f32[1,64,8,8]; round(6) -> f32[1,64,8,8]; "
        "add(7,3) -> f32[1,64,8,8]; clip(8; max=127 min=-128) -> f32[1,64,8,8]; cast(9; to='i8') -> i8[1,64,8,8]; "
        "anchor=0",
        "(u8[50,768], const i8[768,70], const f32[70]) matmul(0,1; result='i32') -> i32[50,70]; cast(3; to='f32') -> "
        "f32[50,70]; mul(4,2) -> f32[50,70]; round(5) -> f32[50,70]; clip(6; max=127 min=-128) -> f32[50,70]; "
        "cast(7; to='i8') -> i8[50,70]; anchor=0",
        // As MatMulInteger, a scale, Relu and QuantizeLinear become.
        "(u8[50,768], const i16[768,70], const f32[], const f32[], const f32[]) cast(0; to='i16') -> i16[50,768]; "
        "matmul(5,1; result='i32') -> i32[50,70]; cast(6; to='f32') -> f32[50,70]; mul(7,2) -> f32[50,70]; "
        "mul(8,3) -> f32[50,70]; round(9) -> f32[50,70]; add(10,4) -> f32[50,70]; "
        "clip(11; max=127 min=-128) -> f32[50,70]; cast(12; to='i8') -> i8[50,70]; anchor=1",
        "(u8[50,768], const i8[768,70], f32[]) matmul(0,1; result='i32') -> i32[50,70]; cast(3; to='f32') -> "
        "f32[50,70]; div(4,2) -> f32[50,70]; round(5) -> f32[50,70]; clip(6; max=127 min=-128) -> f32[50,70]; "
        "cast(7; to='i8') -> i8[50,70]; anchor=0"}) {
    const absl::StatusOr<Workload> w = ParseWorkload(text);
    ASSERT_TRUE(w.ok()) << w.status();
    const NDArray made = RunReference(*w, MakeInputs(*w, 3)).value();
    std::map<double, int> met;
    for (int64_t i = 0; i < made.size(); ++i) ++met[made.At(i)];
    for (const auto& [value, times] : met) EXPECT_LT(times, made.size() / 8) << value << " in " << text;
  }
}

TEST(Inputs, OfSumsOfSumsAreDrawnAtOnce) {
  constexpr int kCalls = 200;  // each reads the one before twice: as many ways as 2 to this power
  std::string text = "(f32[2]) ";
  for (int i = 0; i < kCalls; ++i) absl::StrAppend(&text, "max(", i, ",", i, ") -> f32[2]; ");
  absl::StrAppend(&text, "log(", kCalls, ") -> f32[2]; anchor=0");
  EXPECT_GE(MakeInputs(ParseWorkload(text).value(), 1)[0].At(0), 0.25);
}

TEST(Inputs, StayWithinWhatOperatorsAreDefinedOn) {
  const auto workload = ParseWorkload("(f32[50], f32[50]) add(0,1) -> f32[50]; sqrt(2) -> f32[50]; anchor=0");
  ASSERT_TRUE(workload.ok()) << workload.status();
  for (const NDArray& a : MakeInputs(*workload, 1)) {
    for (float x : a.as<float>()) EXPECT_GE(x, 0.25f);
  }
  const auto plain = ParseWorkload("(f32[50]) relu(0) -> f32[50]; anchor=0");
  ASSERT_TRUE(plain.ok());
  const NDArray a = MakeInputs(*plain, 1)[0];
  EXPECT_LT(*std::min_element(a.as<float>().begin(), a.as<float>().end()), -0.5f);
  EXPECT_EQ(RelativeError(MakeInputs(*plain, 1)[0], a), 0) << "the same seed draws the same";
  EXPECT_NE(RelativeError(MakeInputs(*plain, 2)[0], a), 0);
}

TEST(CachePlan, ConstantsRotateThroughTwiceThePrivateCaches) {
  const Caches caches{.own = 2 << 20, .shared = 32 << 20};
  const auto plan = MakeCachePlan("model", caches);
  ASSERT_TRUE(plan.ok());
  for (int64_t bytes : {int64_t{64} << 10, int64_t{1} << 20, int64_t{3} << 20}) {
    const int64_t copies = CountCopies(*plan, bytes);
    EXPECT_GE(copies, 2);
    EXPECT_GE(copies * bytes, 2 * caches.own);
    EXPECT_LE(copies * bytes, 64 << 20);
  }
  EXPECT_EQ(CountCopies(*plan, 0), 1);
  EXPECT_EQ(CountCopies(*plan, int64_t{4} << 20), 1) << "the private caches keep nothing of it to the next call";
  EXPECT_EQ(CountCopies(*MakeCachePlan("warm", caches), 1 << 20), 1);
}

TEST(CachePlan, WhereSeveralCoresShareAKernelActivationsAreHandedOver) {
  const Caches one{.own = 1 << 20, .shared = 32 << 20}, several{.own = 2 << 20, .shared = 32 << 20, .several = true};
  EXPECT_FALSE(MakeCachePlan("model", one)->handed_over);
  EXPECT_TRUE(MakeCachePlan("model", several)->handed_over);
  EXPECT_FALSE(MakeCachePlan("warm", several)->handed_over);
  EXPECT_FALSE(MakeCachePlan("flushed", several)->handed_over);
}

TEST(CpuDevice, WhatIsHandedOverKeepsItsValues) {
  CpuDevice device;
  ASSERT_TRUE(device.Use(HostTarget()).ok());
  EXPECT_EQ(device.caches().several, HostTarget().threads() > 1);
  const auto block = device.AllocatePacked({{0, 1, 1000, 70000}}, nullptr).value();
  std::vector<char> drawn(70000);
  std::iota(drawn.begin(), drawn.end(), char{1});
  for (size_t i = 0; i < block->arrays(); ++i) ASSERT_TRUE(block->Write(i, drawn.data()).ok());
  device.HandOver(*block, {{0, 1, 2, 3}});
  for (size_t i = 0; i < block->arrays(); ++i)
    EXPECT_EQ(std::memcmp(block->Read(i).value(), drawn.data(), static_cast<size_t>(block->bytes(i))), 0) << i;
}

TEST(CachePlan, ConstantsOfAModelThatTheSharedCacheDoesNotHoldComeFromMemory) {
  const Caches caches{.own = 2 << 20, .shared = 32 << 20};
  const auto rotated = [&](int64_t model_bytes) { return MakeCachePlan("model", caches, model_bytes)->rotated_bytes; };
  EXPECT_EQ(rotated(0), 4 << 20);
  EXPECT_EQ(rotated(1 << 20), 4 << 20);
  EXPECT_EQ(rotated(14 << 20), 14 << 20);
  EXPECT_EQ(rotated(500 << 20), 64 << 20) << "twice the cache is enough";
  EXPECT_LE(MakeCachePlan("model", {.own = 2 << 20, .shared = int64_t{1} << 30}, int64_t{9} << 30)->rotated_bytes,
            128 << 20);
}

TEST(Memory, AWorkloadThatDoesNotFitIsRefusedBeforeAnythingIsAllocated) {
  DeviceKernels kernels(std::make_unique<CpuDevice>());
  constexpr char kHuge[] = "(f32[262144,262144], f32[262144,262144]) matmul(0,1) -> f32[262144,262144]; anchor=0";
  const TrialResult result = Measure(kernels, WorkOf(kHuge, {{"default", ""}})).at(0);
  EXPECT_EQ(Text(result.outcome), "unfit");
  EXPECT_THAT(result.error, HasSubstr("MiB of memory, and"));
  const Workload small = ParseWorkload(kMatmul).value();
  EXPECT_TRUE(CheckFits(small, 1 << 20).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(CheckFits(small, 1 << 10)));
}

}  // namespace
}  // namespace temper::worker
