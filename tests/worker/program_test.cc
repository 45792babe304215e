// The measuring protocol on a device whose kernels are written here: it finds whoever is wrong, on any device.
#include "measure_worker/kernels/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <set>

#include "compiler/target/target.h"
#include "measure_worker/host/host_device.h"
#include "measure_worker/inputs.h"

namespace temper::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// 15 floats: the output does not fill its last 64 bytes.
constexpr int kElements = 15;
constexpr char kAdd[] = "(f32[15], const f32[15]) add(0,1) -> f32[15]; anchor=0";

// What a kernel does with its arguments and its scratch, in call number `call`.
using Body = std::function<void(float* x, const float* c, float* out, char* scratch, int call)>;

struct ScriptedCode : Code {
  Body body;
};

class ScriptedDevice : public HostDevice {
 public:
  absl::Status Use(const Target&) override { return absl::OkStatus(); }
  const Target& target() const override { return target_; }
  Device& packer() override { return other_packer != nullptr ? *other_packer : *this; }
  Caches caches() const override { return {.own = 256, .shared = 1 << 20, .several = several}; }
  absl::StatusOr<std::unique_ptr<Code>> Load(const Artifact&) override {
    return absl::UnimplementedError("it has no compiler");
  }
  absl::StatusOr<double> Launch(const Code& code, const Arguments& arguments, void* scratch) override {
    if (broken) return absl::UnavailableError("the device is gone");
    Call(code, arguments, scratch);
    return 1e-3;
  }
  absl::StatusOr<double> Time(const Code& code, std::span<const Arguments> arguments, size_t& next, void* scratch,
                              int64_t calls) override {
    if (broken) return absl::UnavailableError("the device is gone");
    log.push_back("time " + std::to_string(calls));
    for (int64_t i = 0; i < calls; ++i) {
      read.push_back(arguments[next][1]);
      Call(code, arguments[next], scratch);
      if (++next == arguments.size()) next = 0;
    }
    return 1e-3 * static_cast<double>(calls);
  }
  void Fetch(const Block&, size_t) override { ++fetched; }
  void HandOver(const Block& block, std::span<const size_t> arrays) override {
    log.push_back("hand over");
    for (const size_t array : arrays) handed_over.insert(block.address(array));
  }
  void Evict() override { log.push_back("evict"); }

  Device* other_packer = nullptr;
  bool broken = false, several = false;
  std::set<const void*> handed_over;
  int calls = 0, fetched = 0;
  std::vector<std::string> log;
  std::vector<const void*> read;  // constants of timed calls

 private:
  // One that packs has no constant.
  void Call(const Code& code, const Arguments& arguments, void* scratch) {
    static_cast<const ScriptedCode&>(code).body(
        static_cast<float*>(arguments.front()),
        arguments.size() > 2 ? static_cast<const float*>(arguments[1]) : nullptr, static_cast<float*>(arguments.back()),
        static_cast<char*>(scratch), calls++);
  }

  const Target target_;
};

void AddAll(const float* x, const float* c, float* out) {
  for (int i = 0; i < kElements; ++i) out[i] = x[i] + c[i];
}

class ProgramTest : public testing::Test {
 protected:
  std::unique_ptr<Program> Make(Body body, const char* policy = "model", int64_t scratch_bytes = 8,
                                std::shared_ptr<const Code> pack = nullptr) {
    if (state_ == nullptr) state_ = MakeWorkloadState(device_, ParseWorkload(kAdd).value(), 1).value();
    auto code = std::make_shared<ScriptedCode>();
    code->body = std::move(body);
    code->scratch_bytes = scratch_bytes;
    code->parameter_bytes = {4 * kElements, 4 * kElements, 4 * kElements};
    return NewProgram({code, {nullptr, pack}}, state_, MakeCachePlan(policy, device_.caches()).value());
  }
  static Body Right() {
    return [](float* x, const float* c, float* out, char*, int) { AddAll(x, c, out); };
  }
  // What verifying says of the kernel that also does this.
  std::string Verdict(Body also) {
    const absl::Status status = Make([also](float* x, const float* c, float* out, char* scratch, int call) {
                                  AddAll(x, c, out);
                                  also(x, c, out, scratch, call);
                                })
                                    ->Verify()
                                    .status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    return std::string(status.message());
  }

  ScriptedDevice device_;
  std::shared_ptr<WorkloadState> state_;
};

TEST_F(ProgramTest, ARightKernelPassesAndItsTimesAreTheDevices) {
  const auto program = Make(Right());
  EXPECT_EQ(program->Verify().value(), 1e-3);
  EXPECT_EQ(program->Time(3), 3e-3);
  EXPECT_TRUE(program->CheckAfterwards().ok());
  EXPECT_EQ(device_.calls, 5) << "verified, timed three times, and asked for an answer afterwards";
}

TEST_F(ProgramTest, WhatFailsWhileItIsTimedIsToldAfterwards) {
  const auto program = Make(Right());
  ASSERT_TRUE(program->Verify().ok());
  device_.broken = true;
  EXPECT_GT(program->Time(3), 0);
  device_.broken = false;
  EXPECT_EQ(program->Time(3), 3e-3);
  const absl::Status status = program->CheckAfterwards();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(program->Time(3), 3e-3);
  EXPECT_TRUE(program->CheckAfterwards().ok());
}

TEST_F(ProgramTest, WhatIsNotWrittenIsWrong) {
  ASSERT_TRUE(Make(Right())->Verify().ok());  // the right answer lies in the output
  const absl::Status idle = Make([](float*, const float*, float*, char*, int) {})->Verify().status();
  EXPECT_TRUE(absl::IsDataLoss(idle)) << idle;
  const absl::Status last = Make([](float* x, const float* c, float* out, char*, int) {
                              for (int i = 0; i + 1 < kElements; ++i) out[i] = x[i] + c[i];
                            })
                                ->Verify()
                                .status();
  EXPECT_THAT(std::string(last.message()), HasSubstr("1 of 15 elements are off, the first at 14"));
}

TEST_F(ProgramTest, WhatLeavesItsArraysOrWritesItsInputsIsTold) {
  EXPECT_THAT(Verdict([](float*, const float*, float* out, char*, int) { out[kElements] = 0; }), HasSubstr("output: "));
  EXPECT_THAT(Verdict([](float*, const float*, float*, char* scratch, int) { scratch[8] = 0; }),
              HasSubstr("scratch: "));
  EXPECT_THAT(Verdict([](float* x, const float*, float*, char*, int) { x[3] = 9; }), HasSubstr("input 0 was written"));
}

TEST_F(ProgramTest, AConstantWrittenIsTold) {
  EXPECT_THAT(Verdict([](float*, const float* c, float*, char*, int) { const_cast<float*>(c)[2] = 9; }),
              HasSubstr("input 1 was written"));
}

TEST_F(ProgramTest, WhatOneCandidateSpoiledIsNotTheNextOnesFault) {
  const Body spoilers[] = {[](float*, const float*, float* out, char*, int) { out[kElements] = 0; },
                           [](float* x, const float*, float*, char*, int) { x[3] = 9; },
                           [](float* x, const float*, float*, char*, int) { x[kElements] = 9; },
                           [](float* x, const float* c, float* out, char*, int) {
                             x[1] = 9;
                             const_cast<float*>(c)[2] = 9;
                             out[0] = 1000;
                           }};
  for (const Body& spoil : spoilers) {
    Verdict(spoil);
    const auto next = Make(Right());
    EXPECT_TRUE(next->Verify().ok()) << next->Verify().status();
  }
  const auto late = Make([](float* x, const float* c, float* out, char*, int call) {
    AddAll(x, c, out);
    if (call % 2 == 1) x[0] = 9;
  });
  device_.calls = 0;
  ASSERT_TRUE(late->Verify().ok());
  late->Time(1);
  EXPECT_FALSE(late->CheckAfterwards().ok());
  const auto next = Make(Right());
  ASSERT_TRUE(next->Verify().ok());
  next->Time(1);
  EXPECT_TRUE(next->CheckAfterwards().ok());
}

TEST_F(ProgramTest, ScratchIsPoisonWhereItIsVerified) {
  const std::string verdict = Verdict([](float*, const float*, float* out, char* scratch, int) {
    float first = 0;
    std::memcpy(&first, scratch, sizeof first);
    out[0] += first;
  });
  EXPECT_THAT(verdict, HasSubstr("nan for "));
}

TEST_F(ProgramTest, WhatGoesWrongOnlyWhileItIsTimedIsFoundAfterwards) {
  const auto scribbler = Make([](float* x, const float* c, float* out, char*, int call) {
    AddAll(x, c, out);
    if (call == 3) x[0] = 9;
  });
  ASSERT_TRUE(scribbler->Verify().ok());
  scribbler->Time(1);
  EXPECT_TRUE(scribbler->CheckAfterwards().ok());
  scribbler->Time(1);
  EXPECT_THAT(std::string(scribbler->CheckAfterwards().message()), HasSubstr("input 0 was written"));
}

TEST_F(ProgramTest, AnAnswerThatIsRightOnlyTheFirstTimeIsFoundAfterwards) {
  const auto tired = Make([](float* x, const float* c, float* out, char*, int call) {
    AddAll(x, c, out);
    if (call > 0) out[7] = 0;
  });
  ASSERT_TRUE(tired->Verify().ok());
  tired->Time(1);
  EXPECT_TRUE(absl::IsDataLoss(tired->CheckAfterwards()));
  // Whoever wrote the output last is judged by it.
  const auto right = Make(Right());
  ASSERT_TRUE(right->Verify().ok());
  right->Time(1);
  EXPECT_TRUE(tired->CheckAfterwards().ok());
  EXPECT_TRUE(right->CheckAfterwards().ok());
}

TEST_F(ProgramTest, AnAnswerThatAnotherLeftIsNotItsOwn) {
  const auto right = Make(Right());
  ASSERT_TRUE(right->Verify().ok());
  right->Time(1);
  ASSERT_TRUE(right->CheckAfterwards().ok());
  device_.calls = 0;
  const auto idle = Make([](float* x, const float* c, float* out, char*, int call) {
    if (call == 0) AddAll(x, c, out);
  });
  ASSERT_TRUE(idle->Verify().ok());
  idle->Time(1);
  EXPECT_TRUE(absl::IsDataLoss(idle->CheckAfterwards()));
}

// Steps are made of the results of call `sum`: another one at each whole number and `edge`.
void NextToAnEdgeItMayFallEitherWay(Device& device, const char* text, int sum, double edge) {
  const Workload w = ParseWorkload(text).value();
  constexpr uint64_t kSeed = 3;
  NDArray sums;
  ASSERT_TRUE(RunReference(w, MakeInputs(w, kSeed), [&](int call, NDArray& result) {
                if (call == sum) sums = result;
              }).ok());
  const auto to_edge = [&](int64_t i) { return std::round(sums.At(i) - edge) + edge - sums.At(i); };
  int64_t near = 0, far = 0;
  for (int64_t i = 0; i < sums.size(); ++i) {
    if (std::abs(to_edge(i)) > std::abs(to_edge(far))) far = i;
    const bool at_zero = std::round(sums.At(i) - edge) + edge == 0;  // which cuts both ways
    if (std::abs(to_edge(i)) < std::abs(to_edge(near)) && !at_zero) near = i;
  }
  const std::shared_ptr<WorkloadState> state = MakeWorkloadState(device, w, kSeed).value();
  const auto with_another_step_at = [&](int64_t i, double step) {
    NDArray got = state->reference.Clone();
    got.Set(i, got.At(i) + step);
    EXPECT_TRUE(state->output->Write(0, got.data()).ok());
    return state->CheckAnswer(*state->output, 0, 0);
  };
  const double up = to_edge(near) > 0 ? 1 : -1;
  EXPECT_TRUE(with_another_step_at(near, 0).ok());
  EXPECT_TRUE(with_another_step_at(near, up).ok());
  EXPECT_TRUE(absl::IsDataLoss(with_another_step_at(near, -up)));
  EXPECT_TRUE(absl::IsDataLoss(with_another_step_at(near, 2 * up)));
  EXPECT_TRUE(absl::IsDataLoss(with_another_step_at(far, 1)));
  EXPECT_TRUE(absl::IsDataLoss(with_another_step_at(far, -1)));
}

TEST_F(ProgramTest, NextToAHalfAQuantisedSumMayFallEitherWay) {
  NextToAnEdgeItMayFallEitherWay(device_,
                                 "(f32[37,50], const f32[50,70]) matmul(0,1) -> f32[37,70]; round(2) -> f32[37,70]; "
                                 "cast(3; to='i8') -> i8[37,70]; anchor=0",
                                 0, 0.5);
}

TEST_F(ProgramTest, NextToAWholeNumberASumThatBecomesAnIntegerMayFallEitherWay) {
  NextToAnEdgeItMayFallEitherWay(device_,
                                 "(f32[37,50], const f32[50,70]) matmul(0,1) -> f32[37,70]; "
                                 "cast(2; to='i64') -> i64[37,70]; anchor=0",
                                 0, 0);
}

TEST_F(ProgramTest, NextToAHalfWhatIsMadeOfAWholeSumMayFallEitherWay) {
  NextToAnEdgeItMayFallEitherWay(
      device_,
      "(i16[300,50], const i16[50,700], const f32[700], f32[300,700]) matmul(0,1; result='i32') -> i32[300,700]; "
      "cast(4; to='f32') -> f32[300,700]; mul(5,2) -> f32[300,700]; add(6,3) -> f32[300,700]; "
      "round(7) -> f32[300,700]; cast(8; to='i16') -> i16[300,700]; anchor=0",
      3, 0.5);
}

TEST_F(ProgramTest, NextToAHalfWhatCallsMakeMayFallEitherWay) {
  NextToAnEdgeItMayFallEitherWay(
      device_,
      "(f32[300,700], f32[700], f32[300,700]) mul(0,1) -> f32[300,700]; add(3,2) -> f32[300,700]; "
      "round(4) -> f32[300,700]; anchor=0",
      1, 0.5);
}

TEST_F(ProgramTest, NextToAHalfWhatCallsBeforeTheAnchorMakeMayFallEitherWay) {
  NextToAnEdgeItMayFallEitherWay(
      device_,
      "(f32[300,700], f32[700], f32[300,700]) mul(0,1) -> f32[300,700]; add(3,2) -> f32[300,700]; "
      "round(4) -> f32[300,700]; cast(5; to='i16') -> i16[300,700]; anchor=3",
      1, 0.5);
}

// Large floats are whole numbers by rounding now and then.
TEST_F(ProgramTest, WhatIsWholeByRoundingMayFallEitherWay) {
  const Workload w = ParseWorkload(
                         "(u8[30,50], const i8[50,70], f32[70]) matmul(0,1; result='i32') -> i32[30,70]; "
                         "cast(3; to='f32') -> f32[30,70]; add(4,2) -> f32[30,70]; cast(5; to='i32') -> i32[30,70]; "
                         "anchor=0")
                         .value();
  NDArray sums;
  ASSERT_TRUE(RunReference(w, MakeInputs(w, 3), [&](int call, NDArray& result) {
                if (call == 2) sums = result;
              }).ok());
  const auto fraction = [&](int64_t i) { return sums.At(i) - std::floor(sums.At(i)); };
  int64_t whole = -1, half = -1;
  for (int64_t i = 0; i < sums.size(); ++i) {
    if (sums.At(i) < 1) continue;
    if (fraction(i) == 0) whole = i;
    if (fraction(i) == 0.5) half = i;
  }
  ASSERT_TRUE(whole >= 0 && half >= 0);
  const std::shared_ptr<WorkloadState> state = MakeWorkloadState(device_, w, 3).value();
  for (const auto& [at, step] : {std::pair{whole, -1}, {whole, 1}, {half, -1}, {half, 1}}) {
    NDArray got = state->reference.Clone();
    got.Set(at, got.At(at) + step);
    ASSERT_TRUE(state->output->Write(0, got.data()).ok());
    EXPECT_EQ(state->CheckAnswer(*state->output, 0, 0).ok(), at == whole && step < 0) << at << " " << step;
  }
}

TEST_F(ProgramTest, WhatWasCutToABoundIsExact) {
  const Workload w = ParseWorkload(
                         "(f32[30,70], f32[70]) mul(0,1) -> f32[30,70]; relu(2) -> f32[30,70]; "
                         "cast(3; to='bool') -> bool[30,70]; anchor=0")
                         .value();
  const std::shared_ptr<WorkloadState> state = MakeWorkloadState(device_, w, 3).value();
  NDArray got = state->reference.Clone();
  for (int64_t i = 0; i < got.size(); ++i) got.Set(i, 1);
  ASSERT_TRUE(state->output->Write(0, got.data()).ok());
  EXPECT_TRUE(absl::IsDataLoss(state->CheckAnswer(*state->output, 0, 0)));
}

TEST_F(ProgramTest, NextToABoundASumMayFallEitherWay) {
  const Workload w = ParseWorkload(
                         "(f32[37,50], const f32[50,70], f32[37,70]) matmul(0,1) -> f32[37,70]; "
                         "greater(3,2) -> bool[37,70]; anchor=0")
                         .value();
  NDArray sums;
  const std::vector<NDArray> inputs = MakeInputs(w, 3);
  ASSERT_TRUE(RunReference(w, inputs, [&](int call, NDArray& result) {
                if (call == 0) sums = result;
              }).ok());
  const auto off = [&](int64_t i) { return std::abs(sums.At(i) - inputs[2].At(i)); };
  int64_t near = 0, far = 0;
  for (int64_t i = 0; i < sums.size(); ++i) near = off(i) < off(near) ? i : near, far = off(i) > off(far) ? i : far;
  const std::shared_ptr<WorkloadState> state = MakeWorkloadState(device_, w, 3).value();
  for (const int64_t i : {near, far}) {
    NDArray got = state->reference.Clone();
    got.Set(i, 1 - got.At(i));
    ASSERT_TRUE(state->output->Write(0, got.data()).ok());
    EXPECT_EQ(state->CheckAnswer(*state->output, 0, 0).ok(), i == near);
  }
}

TEST_F(ProgramTest, ConstantsRotateAndNobodyMeetsWhatAnotherJustRead) {
  const auto one = Make(Right()), other = Make(Right());
  ASSERT_TRUE(one->Verify().ok());
  ASSERT_TRUE(other->Verify().ok());
  one->Time(3);
  other->Time(5);
  // 512 bytes in copies of 64: each is read once.
  EXPECT_EQ(std::set<const void*>(device_.read.begin(), device_.read.end()).size(), 8u);
  one->Time(1);
  EXPECT_EQ(device_.read.back(), device_.read.front());
}

TEST_F(ProgramTest, WhatStandsInForConstantsAreSmallNumbers) {
  std::vector<float> met;
  const auto program = Make([&](float* x, const float* c, float* out, char*, int) {
    AddAll(x, c, out);
    met.assign(c, c + kElements);
  });
  ASSERT_TRUE(program->Verify().ok());
  const std::vector<float> constants = met;
  program->Time(1);
  EXPECT_NE(met, constants);
  for (const float value : met) EXPECT_TRUE(std::abs(value) > 1e-6f && std::abs(value) < 1) << value;
  EXPECT_TRUE(program->CheckAfterwards().ok());
  EXPECT_EQ(met, constants) << "the answer that counts is of the constants";
}

TEST_F(ProgramTest, ConstantsThatAreNoFloatsAreThemselvesWhereTimed) {
  const char* gather = "(f32[15], const i32[15]) gather(0,1; axis=0) -> f32[15]; anchor=0";
  state_ = MakeWorkloadState(device_, ParseWorkload(gather).value(), 1).value();
  std::set<std::vector<int32_t>> met;
  const auto program = Make([&](float* x, const float* c, float* out, char*, int) {
    const auto* at = reinterpret_cast<const int32_t*>(c);
    for (int i = 0; i < kElements; ++i) out[i] = x[at[i]];
    met.insert(std::vector<int32_t>(at, at + kElements));
  });
  ASSERT_TRUE(program->Verify().ok()) << program->Verify().status();
  program->Time(3);
  EXPECT_TRUE(program->CheckAfterwards().ok());
  EXPECT_EQ(met.size(), 1u);
}

TEST_F(ProgramTest, ConstantsThatAnothersHavePushedOutComeBackFirst) {
  const auto rotating = Make(Right()), warm = Make(Right(), "warm");
  ASSERT_TRUE(rotating->Verify().ok());
  ASSERT_TRUE(warm->Verify().ok());
  rotating->Time(1);
  EXPECT_EQ(device_.fetched, 8);
  rotating->Time(1);
  EXPECT_EQ(device_.fetched, 8) << "nobody came in between";
  warm->Time(1);
  rotating->Time(1);
  EXPECT_EQ(device_.fetched, 16);
}

// Constants are kept backwards. The packer may be another device than the one whose kernel wants them so.
TEST_F(ProgramTest, ConstantsArePackedByThePacker) {
  ScriptedDevice elsewhere;
  for (ScriptedDevice* packer : {&device_, &elsewhere}) {
    device_.other_packer = packer;
    const int before = packer->calls;
    auto pack = std::make_shared<ScriptedCode>();
    pack->body = [](float* from, const float*, float* to, char*, int) {
      std::reverse_copy(from, from + kElements, to);
    };
    pack->scratch_bytes = 0;
    pack->parameter_bytes = {4 * kElements, 4 * kElements};
    const auto program = Make(
        [](float* x, const float* c, float* out, char*, int) {
          for (int i = 0; i < kElements; ++i) out[i] = x[i] + c[kElements - 1 - i];
        },
        "model", 8, pack);
    EXPECT_TRUE(program->Verify().ok()) << program->Verify().status();
    program->Time(9);
    EXPECT_TRUE(program->CheckAfterwards().ok());
    EXPECT_GT(packer->calls, before);
  }
}

TEST_F(ProgramTest, FlushedMeansBeforeEachCall) {
  const auto program = Make(Right(), "flushed");
  ASSERT_TRUE(program->Verify().ok());
  EXPECT_EQ(program->Time(2), 2e-3);
  EXPECT_THAT(device_.log, ElementsAre("evict", "time 1", "evict", "time 1"));
}

TEST_F(ProgramTest, SeveralCoresMeetActivationsThatOthersWroteBeforeEachCall) {
  device_.several = true;
  std::set<const void*> activations;
  const auto program = Make([&](float* x, const float* c, float* out, char*, int) {
    activations = {x, out};
    AddAll(x, c, out);
  });
  ASSERT_TRUE(program->Verify().ok());
  EXPECT_EQ(program->Time(2), 2e-3);
  EXPECT_THAT(device_.log, ElementsAre("hand over", "time 1", "hand over", "time 1"));
  EXPECT_EQ(device_.handed_over, activations) << "and no constant";
}

TEST_F(ProgramTest, ADeviceThatFailsIsNoWrongAnswer) {
  const auto program = Make(Right());
  device_.broken = true;
  const absl::Status status = program->Verify().status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

}  // namespace
}  // namespace temper::worker
