// The package's C ABI over plans written by hand.
#include "include/temper/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "compiler/runtime/plan.h"
#include "compiler/runtime/thread_pool.h"
#include "compiler/timing/core_to_core.h"
#include "compiler/timing/timing.h"

namespace temper {
namespace {

using testing::HasSubstr;

constexpr int kN = 40;
constexpr int64_t kShape[] = {4, 10};
constexpr int64_t kBytes = kN * sizeof(float);

// args: a, weights, out: out = a * w, in parallel, each thread noting itself in its own scratch.
int32_t MultiplyKernel(const temper_call* call) {
  void* const* args = call->args;
  struct Closure {
    const float *a, *w;
    float* out;
    char* scratch;
  };
  Closure c{static_cast<const float*>(args[0]), static_cast<const float*>(args[1]), static_cast<float*>(args[2]),
            static_cast<char*>(call->workspace)};
  call->launcher->parallel_for(
      call->launcher, kN,
      [](void* p, int64_t begin, int64_t end, int32_t thread) {
        auto* c = static_cast<Closure*>(p);
        std::memset(c->scratch + 128 + thread * 64, 1, 64);
        for (int64_t i = begin; i < end; ++i) c->out[i] = c->a[i] * c->w[i];
      },
      &c);
  return TEMPER_OK;
}

// args: in, out: out = in + 1
// Where an output begins, as the plan has it.
uintptr_t promised_output = 64;

int32_t IncrementKernel(const temper_call* call) {
  void* const* args = call->args;  // of the arena, and an output
  const auto begins = [](const void* arg, uintptr_t multiple) {
    return reinterpret_cast<uintptr_t>(arg) % multiple == 0;
  };
  if (!begins(args[0], 64) || !begins(args[1], promised_output)) std::abort();
  for (int i = 0; i < kN; ++i) static_cast<float*>(args[1])[i] = static_cast<const float*>(args[0])[i] + 1;
  return TEMPER_OK;
}

// MultiplyKernel that waits inside until all who are to meet there are, and leaves where its weights lie.
std::latch* meeting;
std::atomic<const void*> weights_of_thread[2];
thread_local int this_thread;
int32_t MeetingKernel(const temper_call* call) {
  weights_of_thread[this_thread] = call->args[1];
  meeting->arrive_and_wait();
  return MultiplyKernel(call);
}

// IncrementKernel that leaves where its scratch lies, seen from its operand.
ptrdiff_t scratch_from_operand;
int32_t NotingKernel(const temper_call* call) {
  scratch_from_operand = static_cast<char*>(call->workspace) - static_cast<char*>(call->args[0]);
  return IncrementKernel(call);
}

int32_t FailingKernel(const temper_call*) { return TEMPER_NO_RESOURCES; }

constexpr int64_t kLongNs = 2'000'000;

// `kernel` that takes kLongNs and more.
template <int32_t (*kernel)(const temper_call*)>
int32_t LongKernel(const temper_call* call) {
  for (const int64_t start = MonotonicNs(); MonotonicNs() - start < kLongNs;) {
  }
  return kernel(call);
}

int slow_calls = 0;
constexpr int64_t kSlowestNs = 50 * kLongNs;
int32_t SlowAtFirstKernel(const temper_call* call) {
  for (const int64_t start = MonotonicNs(); slow_calls == 0 && MonotonicNs() - start < kSlowestNs;) {
  }
  ++slow_calls;
  return MultiplyKernel(call);
}

class ModelTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/temper_model_test_" + std::to_string(getpid()) + ".bin";
    for (int i = 0; i < kN; ++i) weights_.push_back(static_cast<float>(i % 7));
    WriteWeights(weights_.data(), kBytes);
    plan_.version = TEMPER_PLAN_VERSION;
    plan_.num_variants = 1;
    plan_.variants = &variant_;
    plan_.caller_alignment = 64;
    promised_output = 64;
    plan_.weight_bytes[TEMPER_MEMORY_HOST] = kBytes;
    variant_.num_inputs = variant_.num_given = 1;
    variant_.inputs = inputs_;
    variant_.num_outputs = 3;
    variant_.outputs = outputs_;
    variant_.num_results = 3;
    variant_.num_sequences = 1;
    variant_.sequences = &sequence_;
    variant_.arena_bytes[TEMPER_MEMORY_HOST] = 256;
    plan_.weight_hash = temper_weights_hash(weights_.data(), kBytes);
  }
  void TearDown() override {
    temper_model_destroy(model_);
    std::remove(path_.c_str());
  }
  // A new file, as the package's writer makes one.
  void WriteWeights(const void* data, size_t bytes) {
    std::remove(path_.c_str());
    std::ofstream(path_, std::ios::binary | std::ios::trunc).write(static_cast<const char*>(data), bytes);
  }
  int Create(int threads = 2) { return temper_model_create_from_plan(&plan_, path_.c_str(), threads, &model_); }

  // x -> (arena) x * w -> out0 = that + 1; out1 = x; out2 = w.
  static constexpr temper_io Io(const char* name) { return {name, 1, 2, kShape, kBytes, nullptr, 0, nullptr}; }
  static temper_step Call(const char* name, temper_kernel kernel, const temper_arg* args, int64_t num_args,
                          int64_t workspace_bytes = 0, int64_t thread_workspace_bytes = 0, int64_t offset = 0) {
    return {name, TEMPER_STEP_KERNEL, args, num_args, 0, kernel, workspace_bytes, thread_workspace_bytes, offset, 0, 0};
  }
  static temper_step Copy(const temper_arg* args) {
    return {"copy", TEMPER_STEP_COPY, args, 2, kBytes, nullptr, 0, 0, 0, 0, 0};
  }

  temper_io inputs_[1] = {Io("x")};
  temper_io outputs_[3] = {Io("y"), Io("x"), Io("w")};
  temper_arg multiply_[3] = {{TEMPER_ARG_INPUT, 0, 0}, {TEMPER_ARG_WEIGHT, 0, 0}, {TEMPER_ARG_ARENA, 0, 64}};
  temper_arg increment_[2] = {{TEMPER_ARG_ARENA, 0, 64}, {TEMPER_ARG_OUTPUT, 0, 0}};
  temper_arg copy_input_[2] = {{TEMPER_ARG_INPUT, 0, 0}, {TEMPER_ARG_OUTPUT, 1, 0}};
  temper_arg copy_weight_[2] = {{TEMPER_ARG_WEIGHT, 0, 0}, {TEMPER_ARG_OUTPUT, 2, 0}};
  temper_step steps_[4] = {Call("multiply", MultiplyKernel, multiply_, 3, 128, 64),
                           Call("increment", IncrementKernel, increment_, 2), Copy(copy_input_), Copy(copy_weight_)};
  temper_sequence sequence_ = {4, steps_};
  temper_variant variant_ = {};
  temper_plan plan_ = {};
  std::string path_;
  std::vector<float> weights_;
  temper_model* model_ = nullptr;
};

TEST_F(ModelTest, RunsKernelsAndCopiesOnAlignedAndUnalignedBuffers) {
  ASSERT_EQ(Create(), TEMPER_OK) << temper_model_error(nullptr);
  alignas(64) char memory[5][kBytes + 64];
  for (const auto& [shift, alignment] : {std::pair(0, 64), {4, 64}, {16, 64}, {0, 16}, {4, 16}, {16, 16}}) {
    plan_.caller_alignment = alignment;
    promised_output = static_cast<uintptr_t>(alignment);
    auto* x = reinterpret_cast<float*>(memory[0] + shift);
    for (int i = 0; i < kN; ++i) x[i] = static_cast<float>(i);
    const void* inputs[] = {x};
    void* outputs[] = {memory[1] + shift, memory[2] + shift, memory[3] + shift};
    for (int round = 0; round < 3; ++round) {
      for (void* o : outputs) std::memset(o, 0xff, kBytes);
      ASSERT_EQ(temper_model_run(model_, inputs, outputs), TEMPER_OK);
      for (int i = 0; i < kN; ++i) {
        ASSERT_EQ(static_cast<float*>(outputs[0])[i], x[i] * weights_[i] + 1) << i;
        ASSERT_EQ(static_cast<float*>(outputs[1])[i], x[i]) << i;
        ASSERT_EQ(static_cast<float*>(outputs[2])[i], weights_[i]) << i;
      }
    }
  }
}

TEST_F(ModelTest, WhatHasNoElementsMayLieNowhere) {
  ASSERT_EQ(Create(), TEMPER_OK);
  alignas(64) float y[3][64] = {};
  const void* inputs[] = {nullptr};
  void* outputs[] = {y[0], y[1], y[2]};
  EXPECT_EQ(temper_model_run(model_, inputs, outputs), TEMPER_INVALID_ARGUMENT);
  EXPECT_STREQ(temper_model_error(model_), "input x is null");
  temper_model_destroy(model_);
  // The input is empty, and only the last copy runs, which does not read it.
  inputs_[0].bytes = outputs_[1].bytes = 0;
  sequence_ = {1, steps_ + 3};
  ASSERT_EQ(Create(), TEMPER_OK) << temper_model_error(nullptr);
  outputs[1] = nullptr;
  EXPECT_EQ(temper_model_run(model_, inputs, outputs), TEMPER_OK);
  EXPECT_EQ(y[2][1], weights_[1]);
}

TEST_F(ModelTest, TimesEachStepOfARun) {
  steps_[0].kernel = LongKernel<MultiplyKernel>;
  steps_[1].kernel = LongKernel<IncrementKernel>;
  ASSERT_EQ(Create(), TEMPER_OK);
  ASSERT_EQ(temper_model_step_count(model_), 4);
  alignas(64) float x[kN], y[3][64] = {};
  for (int i = 0; i < kN; ++i) x[i] = static_cast<float>(i);
  const void* inputs[] = {x};
  void* outputs[] = {y[0], y[1], y[2]};
  EXPECT_EQ(temper_model_run_timed(model_, inputs, outputs, 0, nullptr), TEMPER_INVALID_ARGUMENT);
  std::vector<temper_step_time> times(5, {-1, -1});
  const int64_t start = MonotonicNs();
  ASSERT_EQ(temper_model_run_timed(model_, inputs, outputs, 0, times.data()), TEMPER_OK);
  const int64_t wall = MonotonicNs() - start;
  for (int i : {0, 1}) {
    EXPECT_GE(times[i].ns, kLongNs);
    // One of two threads works, and the other one waits.
    EXPECT_GE(times[i].busy_ns, kLongNs / 2);
    EXPECT_GE(times[i].ns - times[i].busy_ns, kLongNs / 2);
  }
  EXPECT_NE(times[2].ns, -1);  // copies: as short as the clock can tell, but timed
  EXPECT_NE(times[3].ns, -1);
  EXPECT_EQ(times[4].ns, -1);  // past the last step
  EXPECT_LE(times[0].ns + times[1].ns + times[2].ns + times[3].ns, wall) << "no time counts for two steps";
  for (int i = 0; i < kN; ++i) ASSERT_EQ(y[0][i], x[i] * weights_[i] + 1) << i;
}

TEST_F(ModelTest, StepsThatRunAgainAreTimedByTheShortest) {
  steps_[0].kernel = SlowAtFirstKernel;
  ASSERT_EQ(Create(), TEMPER_OK);
  alignas(64) float x[kN] = {}, y[3][64] = {};
  const void* inputs[] = {x};
  void* outputs[] = {y[0], y[1], y[2]};
  std::vector<temper_step_time> times(4);
  slow_calls = 0;
  ASSERT_EQ(temper_model_run_timed(model_, inputs, outputs, 2, times.data()), TEMPER_OK);
  EXPECT_EQ(slow_calls, 3);
  EXPECT_LT(times[0].ns, kSlowestNs) << "that is the first one's time";
}

TEST_F(ModelTest, ScratchLiesInTheArenaWhereThatHasRoomForTheThreads) {
  variant_.arena_bytes[TEMPER_MEMORY_HOST] = 512;
  variant_.scratch_threads = 2;
  steps_[0].workspace_offset = 256;
  steps_[1] = Call("increment", NotingKernel, increment_, 2, 64, 64, 320);
  alignas(64) float x[kN] = {}, y[3][64] = {};
  const void* inputs[] = {x};
  void* outputs[] = {y[0], y[1], y[2]};
  for (int threads : {1, 2, 3}) {
    ASSERT_EQ(Create(threads), TEMPER_OK);
    ASSERT_EQ(temper_model_run(model_, inputs, outputs), TEMPER_OK);
    EXPECT_EQ(scratch_from_operand == 320 - 64, threads <= 2) << threads;
    EXPECT_EQ(y[0][kN - 1], 1);
    temper_model_destroy(model_);
    model_ = nullptr;
  }
}

TEST_F(ModelTest, InstancesShareTheirWeightsAndRunAtOnce) {
  steps_[0].kernel = MeetingKernel;
  temper_model* models[2];
  for (temper_model*& model : models) {
    ASSERT_EQ(Create(1), TEMPER_OK) << temper_model_error(nullptr);
    model = model_;
  }
  model_ = nullptr;
  std::latch both(2);
  meeting = &both;
  alignas(64) float x[kN] = {1, 2, 3}, y[2][3][64] = {};
  const void* inputs[] = {x};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      this_thread = i;
      void* outputs[] = {y[i][0], y[i][1], y[i][2]};
      EXPECT_EQ(temper_model_run(models[i], inputs, outputs), TEMPER_OK);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(weights_of_thread[0].load(), weights_of_thread[1].load());
  temper_model_destroy(models[0]);
  // The other keeps them.
  std::latch alone(1);
  meeting = &alone;
  void* outputs[] = {y[0][0], y[0][1], y[0][2]};
  EXPECT_EQ(temper_model_run(models[1], inputs, outputs), TEMPER_OK);
  for (int i = 0; i < kN; ++i) EXPECT_EQ(y[0][0][i], x[i] * weights_[i] + 1) << i;
  temper_model_destroy(models[1]);
}

TEST_F(ModelTest, ASecondCallOnOneInstanceIsBusy) {
  steps_[0].kernel = MeetingKernel;
  ASSERT_EQ(Create(1), TEMPER_OK);
  std::latch both(2);
  meeting = &both;
  alignas(64) float x[kN] = {}, y[3][64] = {}, other[3][64] = {};
  const void* inputs[] = {x};
  weights_of_thread[0] = nullptr;
  std::thread inside([&] {
    void* outputs[] = {y[0], y[1], y[2]};
    EXPECT_EQ(temper_model_run(model_, inputs, outputs), TEMPER_OK);
  });
  while (weights_of_thread[0].load() == nullptr) std::this_thread::yield();
  void* outputs[] = {other[0], other[1], other[2]};
  EXPECT_EQ(temper_model_run(model_, inputs, outputs), TEMPER_BUSY);
  EXPECT_EQ(temper_model_run_timed(model_, inputs, outputs, 0, nullptr), TEMPER_BUSY);
  EXPECT_STREQ(temper_model_error(model_), "");
  both.count_down();
  inside.join();
}

TEST_F(ModelTest, DescribesItsInputsAndOutputs) {
  ASSERT_EQ(Create(), TEMPER_OK);
  EXPECT_EQ(temper_model_io_count(model_, 0), 1);
  EXPECT_EQ(temper_model_io_count(model_, 1), 3);
  const char* name = nullptr;
  int dtype = 0, rank = 0;
  const int64_t* shape = nullptr;
  ASSERT_EQ(temper_model_io(model_, 1, 2, &name, &dtype, &rank, &shape), TEMPER_OK);
  EXPECT_STREQ(name, "w");
  EXPECT_EQ(dtype, 1);
  ASSERT_EQ(rank, 2);
  EXPECT_EQ(shape[1], 10);
  EXPECT_EQ(temper_model_io(model_, 0, 1, &name, nullptr, nullptr, nullptr), TEMPER_INVALID_ARGUMENT);
  EXPECT_STREQ(temper_model_error(nullptr), "there is no input 1");
  EXPECT_EQ(temper_model_io_least(model_, 1, 3, &shape), TEMPER_INVALID_ARGUMENT);
  EXPECT_STREQ(temper_model_error(nullptr), "there is no output 3");
  EXPECT_STREQ(temper_model_error(model_), "") << "the line of whoever runs the model is left alone";
}

// The first element of x * w, as an i64, is the extent of y along its second axis.
int32_t ExtentKernel(const temper_call* call) {
  *static_cast<int64_t*>(call->args[1]) = static_cast<int64_t>(*static_cast<const float*>(call->args[0]));
  return TEMPER_OK;
}

TEST_F(ModelTest, TellsExtentsThatTheRunDecides) {
  static constexpr int64_t kLines = 1;
  temper_io outputs[4] = {Io("y"), Io("x"), Io("w"), {"extent", 7, 0, &kLines, 8, nullptr, 0, nullptr}};
  const temper_extent by_x = {1, 3};
  outputs[0].num_extents = 1;
  outputs[0].extents = &by_x;
  const temper_arg args[2] = {{TEMPER_ARG_INPUT, 0, 0}, {TEMPER_ARG_OUTPUT, 3, 0}};
  std::vector<temper_step> steps(std::begin(steps_), std::end(steps_));
  steps.push_back(Call("extent", ExtentKernel, args, 2));
  const temper_sequence sequence = {std::ssize(steps), steps.data()};
  variant_.sequences = &sequence;
  variant_.outputs = outputs;
  variant_.num_outputs = 4;
  ASSERT_EQ(Create(), TEMPER_OK) << temper_model_error(nullptr);
  EXPECT_EQ(temper_model_io_count(model_, 1), 3);
  alignas(64) float x[kN] = {}, y[3][64] = {};
  temper_tensor in = {x, kBytes, 1, 2, {kShape[0], kShape[1]}}, out[3] = {};
  for (int i = 0; i < 3; ++i) out[i].data = y[i], out[i].bytes = kBytes;
  for (const auto& [told, extent] : std::map<float, int64_t>{{0, 0}, {3, 3}, {10, 10}, {11, 10}, {-4, 0}}) {
    x[0] = told;
    ASSERT_EQ(temper_model_run_shaped(model_, &in, out), TEMPER_OK);
    EXPECT_EQ(out[0].shape[0], kShape[0]);
    EXPECT_EQ(out[0].shape[1], extent) << told;
    EXPECT_EQ(out[1].shape[1], kShape[1]);
  }
  // Others do not learn it, and there is room for the largest in any case.
  const void* plain_in[] = {x};
  void* plain_out[] = {y[0], y[1], y[2]};
  EXPECT_EQ(temper_model_run(model_, plain_in, plain_out), TEMPER_OK);
  out[0].bytes = kBytes - 4;
  EXPECT_EQ(temper_model_run_shaped(model_, &in, out), TEMPER_NO_ROOM);
  EXPECT_EQ(out[0].shape[1], kShape[1]);
}

TEST_F(ModelTest, RefusesNullBuffersAndStaysUsable) {
  ASSERT_EQ(Create(), TEMPER_OK);
  alignas(64) float x[kN] = {}, y[3][64] = {};
  const void* inputs[] = {nullptr};
  void* outputs[] = {y[0], y[1], nullptr};
  EXPECT_EQ(temper_model_run(model_, inputs, outputs), TEMPER_INVALID_ARGUMENT);
  EXPECT_THAT(temper_model_error(model_), HasSubstr("input x"));
  inputs[0] = x;
  EXPECT_EQ(temper_model_run(model_, inputs, outputs), TEMPER_INVALID_ARGUMENT);
  EXPECT_THAT(temper_model_error(model_), HasSubstr("output w"));
  outputs[2] = y[2];
  EXPECT_EQ(temper_model_run(model_, inputs, outputs), TEMPER_OK);
}

TEST_F(ModelTest, AKernelThatFailsEndsTheRunAndIsNamed) {
  steps_[1].kernel = FailingKernel;
  ASSERT_EQ(Create(), TEMPER_OK);
  alignas(64) float x[kN] = {}, y[3][64] = {};
  y[1][0] = 7;
  const void* inputs[] = {x};
  void* outputs[] = {y[0], y[1], y[2]};
  EXPECT_EQ(temper_model_run(model_, inputs, outputs), TEMPER_NO_RESOURCES);
  EXPECT_THAT(temper_model_error(model_), HasSubstr("kernel increment failed"));
  EXPECT_EQ(y[1][0], 7);  // the copy after it was not made
  steps_[1].kernel = IncrementKernel;
  EXPECT_EQ(temper_model_run(model_, inputs, outputs), TEMPER_OK);
}

TEST_F(ModelTest, RunsOnTensorsThatSayTheirShapes) {
  ASSERT_EQ(Create(), TEMPER_OK);
  alignas(64) float x[kN], y[3][64] = {};
  for (int i = 0; i < kN; ++i) x[i] = static_cast<float>(i);
  temper_tensor in = {x, kBytes, 1, 2, {4, 10}};
  temper_tensor out[3] = {};
  for (int i = 0; i < 3; ++i) {
    out[i].data = y[i] + i;  // aligned or not
    out[i].bytes = kBytes;
  }
  ASSERT_EQ(temper_model_run_shaped(model_, &in, out), TEMPER_OK) << temper_model_error(model_);
  for (int i = 0; i < kN; ++i) {
    ASSERT_EQ(y[0][i], x[i] * weights_[i] + 1) << i;
    ASSERT_EQ((y[2] + 2)[i], weights_[i]) << i;
  }
  for (const temper_tensor& t : out) {
    EXPECT_EQ(t.dtype, 1);
    ASSERT_EQ(t.rank, 2);
    EXPECT_EQ(t.shape[0], 4);
    EXPECT_EQ(t.shape[1], 10);
  }
}

TEST_F(ModelTest, TensorsThatItDoesNotTakeAreRefusedInALine) {
  ASSERT_EQ(Create(), TEMPER_OK);
  alignas(64) float x[kN] = {}, y[3][64] = {};
  const temper_tensor good = {x, kBytes, 1, 2, {4, 10}};
  temper_tensor out[3] = {};
  for (int i = 0; i < 3; ++i) {
    out[i].data = y[i];
    out[i].bytes = kBytes;
  }
  const auto run = [&](temper_tensor in) { return temper_model_run_shaped(model_, &in, out); };
  EXPECT_EQ(temper_model_run_shaped(nullptr, &good, out), TEMPER_INVALID_ARGUMENT);
  EXPECT_EQ(temper_model_run_shaped(model_, nullptr, out), TEMPER_INVALID_ARGUMENT);
  EXPECT_EQ(temper_model_run_shaped(model_, &good, nullptr), TEMPER_INVALID_ARGUMENT);
  temper_tensor bad = good;
  bad.shape[0] = 5;
  EXPECT_EQ(run(bad), TEMPER_INVALID_ARGUMENT);
  EXPECT_STREQ(temper_model_error(model_), "input x has type 1 [5, 10]; the model takes type 1 [4, 10]");
  bad = good;
  bad.dtype = 11;
  EXPECT_EQ(run(bad), TEMPER_INVALID_ARGUMENT);
  for (const int32_t rank : {-1, 0, 1, 3, 17, 1 << 30}) {
    bad = good;
    bad.rank = rank;
    EXPECT_EQ(run(bad), TEMPER_INVALID_ARGUMENT) << rank;
  }
  bad = good;
  bad.bytes = kBytes - 1;
  EXPECT_EQ(run(bad), TEMPER_INVALID_ARGUMENT);
  EXPECT_STREQ(temper_model_error(model_), "input x has 159 bytes; its shape needs 160");
  bad = good;
  bad.data = nullptr;
  EXPECT_EQ(run(bad), TEMPER_INVALID_ARGUMENT);
  out[2].bytes = 0;
  out[2].data = nullptr;
  y[0][0] = 7;
  EXPECT_EQ(run(good), TEMPER_NO_ROOM);
  EXPECT_STREQ(temper_model_error(model_), "output w needs 160 bytes");
  EXPECT_EQ(out[2].rank, 2);
  EXPECT_EQ(out[2].shape[1], 10);
  EXPECT_EQ(y[0][0], 7);  // nothing has run
  out[2].bytes = kBytes;
  out[2].data = y[2];
  EXPECT_EQ(run(good), TEMPER_OK);
}

// The second variant is of the first half of each array.
TEST_F(ModelTest, ARunIsOfTheVariantThatTakesItsShapes) {
  static constexpr int64_t kHalf[] = {kShape[0] / 2, kShape[1]};
  const auto half = [](temper_io io) {
    io.shape = kHalf;
    io.bytes = kBytes / 2;
    return io;
  };
  temper_io inputs[] = {half(inputs_[0])};
  temper_io outputs[] = {half(outputs_[0]), half(outputs_[1]), half(outputs_[2])};
  temper_step steps[] = {steps_[2], steps_[3]};
  for (temper_step& s : steps) s.bytes = kBytes / 2;
  const temper_sequence sequence = {2, steps};
  temper_variant both[] = {variant_, variant_};
  both[1].inputs = inputs;
  both[1].outputs = outputs;
  both[1].sequences = &sequence;
  plan_.num_variants = 2;
  plan_.variants = both;
  ASSERT_EQ(Create(), TEMPER_OK) << temper_model_error(nullptr);
  ASSERT_EQ(temper_model_variant_count(model_), 2);
  EXPECT_EQ(temper_model_step_count(model_), 4);

  alignas(64) char memory[4][kBytes + 64];
  for (const int shift : {0, 4}) {  // in place, and through staging
    auto* x = reinterpret_cast<float*>(memory[0] + shift);
    for (int i = 0; i < kN; ++i) x[i] = static_cast<float>(i + shift);
    const auto run = [&](int64_t rows) {
      for (int o = 1; o < 4; ++o) std::memset(memory[o], 0x55, sizeof memory[o]);
      const int64_t bytes = kBytes / kShape[0] * rows;
      const temper_tensor in = {x, bytes, 1, 2, {rows, kShape[1]}};
      temper_tensor out[3] = {};
      for (int o = 0; o < 3; ++o) out[o].data = memory[1 + o] + shift, out[o].bytes = bytes;
      const int code = temper_model_run_shaped(model_, &in, out);
      EXPECT_EQ(out[1].shape[0], code == TEMPER_OK ? rows : 0);
      return code;
    };
    for (const int64_t rows : {kHalf[0], kShape[0], kHalf[0]}) {
      ASSERT_EQ(run(rows), TEMPER_OK) << temper_model_error(model_);
      const auto* same = reinterpret_cast<const float*>(memory[2] + shift);
      const int64_t n = rows * kShape[1];
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(same[i], x[i]) << i;
      for (int64_t i = n; i < kN; ++i) ASSERT_NE(same[i], x[i]) << "behind the variant's end, at " << i;
    }
    EXPECT_EQ(run(kShape[0] + 1), TEMPER_INVALID_ARGUMENT);
    EXPECT_THAT(temper_model_error(model_), testing::MatchesRegex("input x has type 1 \\[.*\\]; the model takes type 1 "
                                                                  "\\[.*\\] or type 1 \\[.*\\]"));
  }
  // What has no shapes is about the variant that was chosen.
  const int64_t* shape = nullptr;
  ASSERT_EQ(temper_model_io(model_, 0, 0, nullptr, nullptr, nullptr, &shape), TEMPER_OK);
  EXPECT_EQ(shape[0], kShape[0]);
  EXPECT_EQ(temper_model_choose_variant(model_, 2), TEMPER_INVALID_ARGUMENT);
  EXPECT_STREQ(temper_model_error(model_), "there is no variant 2");
  EXPECT_EQ(temper_model_choose_variant(model_, -1), TEMPER_INVALID_ARGUMENT);
  ASSERT_EQ(temper_model_choose_variant(model_, 1), TEMPER_OK);
  EXPECT_EQ(temper_model_step_count(model_), 2);
  ASSERT_EQ(temper_model_io(model_, 0, 0, nullptr, nullptr, nullptr, &shape), TEMPER_OK);
  EXPECT_EQ(shape[0], kHalf[0]);
  const void* in[] = {memory[0]};
  void* out[] = {memory[1], memory[2], memory[3]};
  EXPECT_EQ(temper_model_run(model_, in, out), TEMPER_OK);
}

// The rows of x are a range, along either axis; `count` is what kernels see of it.
TEST_F(ModelTest, AnInputOfARangeIsFilledUpWithZerosAndItsExtentIsAnInput) {
  for (const int64_t axis : {0, 1}) {
    static constexpr int64_t kLeast[2][2] = {{1, kShape[1]}, {kShape[0], 0}};
    const int64_t most = kShape[axis];
    temper_io inputs[] = {inputs_[0], {"count", 7, 0, nullptr, sizeof(int64_t), nullptr, 0, nullptr}};
    inputs[0].least = kLeast[axis];
    const temper_extent counted = {axis, 1};
    inputs[0].num_extents = 1;
    inputs[0].extents = &counted;
    temper_io outputs[] = {outputs_[1], {"count", 7, 0, nullptr, sizeof(int64_t), nullptr, 0, nullptr}};
    temper_arg copy_x[] = {{TEMPER_ARG_INPUT, 0, 0}, {TEMPER_ARG_OUTPUT, 0, 0}};
    temper_arg copy_count[] = {{TEMPER_ARG_INPUT, 1, 0}, {TEMPER_ARG_OUTPUT, 1, 0}};
    temper_step steps[] = {Copy(copy_x), Copy(copy_count)};
    steps[1].bytes = sizeof(int64_t);
    const temper_sequence sequence = {2, steps};
    temper_variant variant = variant_;
    variant.num_inputs = 2;
    variant.num_given = 1;
    variant.inputs = inputs;
    variant.num_outputs = variant.num_results = 2;
    variant.outputs = outputs;
    variant.sequences = &sequence;
    plan_.variants = &variant;
    ASSERT_EQ(Create(), TEMPER_OK) << temper_model_error(nullptr);
    EXPECT_EQ(temper_model_io_count(model_, 0), 1);
    const int64_t* least = nullptr;
    ASSERT_EQ(temper_model_io_least(model_, 0, 0, &least), TEMPER_OK);
    EXPECT_EQ(least[axis], kLeast[axis][axis]);

    alignas(64) float x[kN], y[kN];
    for (int i = 0; i < kN; ++i) x[i] = static_cast<float>(i + 1);
    int64_t count = -1;
    const auto run = [&](int64_t n) {
      temper_tensor in = {x, kBytes / most * n, 1, 2, {kShape[0], kShape[1]}};
      in.shape[axis] = n;
      temper_tensor out[] = {{y, kBytes, 0, 0, {}}, {&count, sizeof count, 0, 0, {}}};
      return temper_model_run_shaped(model_, &in, out);
    };
    for (const int64_t n : {most, kLeast[axis][axis], most - 1, most}) {
      std::memset(y, 0x55, sizeof y);
      ASSERT_EQ(run(n), TEMPER_OK) << temper_model_error(model_);
      EXPECT_EQ(count, n);
      const int64_t row = axis == 0 ? kShape[1] : 1, outer = axis == 0 ? 1 : kShape[0];
      for (int64_t o = 0; o < outer; ++o) {
        for (int64_t i = 0; i < most * row; ++i)
          ASSERT_EQ(y[o * most * row + i], i < n * row ? x[o * n * row + i] : 0) << axis << " " << n << " " << i;
      }
    }
    EXPECT_EQ(run(most + 1), TEMPER_INVALID_ARGUMENT);
    EXPECT_EQ(run(kLeast[axis][axis] - 1), TEMPER_INVALID_ARGUMENT);
    EXPECT_THAT(temper_model_error(model_),
                HasSubstr(axis == 0 ? "takes type 1 [1..4, 10]" : "takes type 1 [4, 0..10]"));
    // Without shapes all of it is there.
    const void* in[] = {x};
    void* out[] = {y, &count};
    ASSERT_EQ(temper_model_run(model_, in, out), TEMPER_OK);
    EXPECT_EQ(count, most);
    EXPECT_EQ(y[kN - 1], x[kN - 1]);
    temper_model_destroy(model_);
    model_ = nullptr;
  }
}

TEST_F(ModelTest, InputsOfOneRangeHaveOneExtent) {
  static constexpr int64_t kLeast[] = {1, kShape[1]};
  temper_io inputs[] = {Io("a"), Io("b"), {"count", 7, 0, nullptr, sizeof(int64_t), nullptr, 0, nullptr}};
  static constexpr temper_extent kCounted = {0, 2};
  for (int i = 0; i < 2; ++i) inputs[i].least = kLeast, inputs[i].num_extents = 1, inputs[i].extents = &kCounted;
  temper_arg copies[2][2] = {{{TEMPER_ARG_INPUT, 0, 0}, {TEMPER_ARG_OUTPUT, 0, 0}},
                             {{TEMPER_ARG_INPUT, 1, 0}, {TEMPER_ARG_OUTPUT, 1, 0}}};
  const temper_step steps[] = {Copy(copies[0]), Copy(copies[1])};
  const temper_sequence sequence = {2, steps};
  variant_.num_inputs = 3;
  variant_.num_given = variant_.num_outputs = variant_.num_results = 2;
  variant_.inputs = inputs;
  variant_.sequences = &sequence;
  ASSERT_EQ(Create(), TEMPER_OK) << temper_model_error(nullptr);
  alignas(64) float x[2][kN] = {}, y[2][kN];
  const auto run = [&](int64_t a, int64_t b) {
    const temper_tensor in[] = {{x[0], kBytes, 1, 2, {a, kShape[1]}}, {x[1], kBytes, 1, 2, {b, kShape[1]}}};
    temper_tensor out[] = {{y[0], kBytes, 0, 0, {}}, {y[1], kBytes, 0, 0, {}}};
    return temper_model_run_shaped(model_, in, out);
  };
  EXPECT_EQ(run(2, 2), TEMPER_OK);
  EXPECT_EQ(run(4, 4), TEMPER_OK);
  EXPECT_EQ(run(2, 3), TEMPER_INVALID_ARGUMENT);
  EXPECT_THAT(temper_model_error(model_), HasSubstr("input b has type 1 [3, 10]"));
}

// The formats have a place for what later runtimes do; this one says that it does not.
TEST_F(ModelTest, RefusesPlansThatWantWhatItDoesNotHave) {
  const auto refused = [&](const char* what) {
    EXPECT_EQ(Create(), TEMPER_NO_PACKAGE) << what;
    EXPECT_THAT(temper_model_error(nullptr), HasSubstr(what));
    temper_model_destroy(model_);
    model_ = nullptr;
  };
  const temper_plan plan = plan_;
  const temper_variant variant = variant_;
  temper_variant both[] = {variant, variant};
  both[1].num_results = 2;
  plan_.num_variants = 2;
  plan_.variants = both;
  refused("variants of other inputs or outputs");
  plan_.num_variants = 0;
  refused("no variant");
  plan_ = plan;
  plan_.state_bytes[TEMPER_MEMORY_HOST] = 64;
  refused("state between runs");
  plan_ = plan;
  plan_.weight_bytes[TEMPER_MEMORY_DEVICE] = 64;
  refused("memory of the host and of a device");
  plan_ = plan;
  variant_.arena_bytes[TEMPER_MEMORY_DEVICE] = 64;
  refused("memory of the host and of a device");
  variant_ = variant;
  const temper_sequence sequences[] = {sequence_, sequence_};
  variant_.num_sequences = 2;
  variant_.sequences = sequences;
  refused("branches or loops");
  variant_ = variant;
  for (const int64_t kind : std::initializer_list<int64_t>{TEMPER_STEP_BRANCH, TEMPER_STEP_LOOP, 4, -1}) {
    steps_[1].kind = kind;
    refused("branches or loops");
  }
  steps_[1].kind = TEMPER_STEP_KERNEL;
  steps_[1].least = 2;
  for (const int64_t extent : {int64_t{-1}, int64_t{0}, variant_.num_inputs, INT64_MAX}) {
    steps_[1].extent = extent;
    refused("steps that no input's length leaves out");
  }
  steps_[1].least = 0;  // it is never left out
  const int64_t least[] = {1, 10};
  const temper_extent told_by_x = {0, 0}, told_by_none = {0, 1};
  inputs_[0].least = least;
  refused("ranges that no input tells");
  inputs_[0].num_extents = 1;
  for (const temper_extent* extent : {&told_by_x, &told_by_none}) {
    inputs_[0].extents = extent;
    refused("ranges that no input tells");
  }
  inputs_[0].least = nullptr;
  inputs_[0].num_extents = 0;
  outputs_[0].least = least;
  refused("outputs of several shapes");
  outputs_[0].least = nullptr;
  outputs_[0].num_extents = 1;
  outputs_[0].extents = &told_by_x;
  refused("extents that no output tells");
  outputs_[0].num_extents = 0;
  for (temper_io* io : {&inputs_[0], &outputs_[2]}) {
    io->rank = TEMPER_MAX_RANK + 1;
    refused("inputs or outputs of more dimensions than temper_tensor");
    io->rank = 2;
  }
  EXPECT_EQ(Create(), TEMPER_OK);
}

TEST_F(ModelTest, NamesWhatIsWrongWithTheWeights) {
  ASSERT_EQ(std::remove(path_.c_str()), 0);
  EXPECT_EQ(Create(), TEMPER_NO_PACKAGE);
  EXPECT_EQ(model_, nullptr);
  EXPECT_THAT(temper_model_error(nullptr), HasSubstr(path_));
  WriteWeights(weights_.data(), kBytes - 1);
  EXPECT_EQ(Create(), TEMPER_NO_PACKAGE);
  EXPECT_THAT(temper_model_error(nullptr), HasSubstr("160 bytes"));
  weights_[13] += 1;
  WriteWeights(weights_.data(), kBytes);
  EXPECT_EQ(Create(), TEMPER_NO_PACKAGE);
  EXPECT_THAT(temper_model_error(nullptr), HasSubstr("damaged"));
}

TEST_F(ModelTest, ModelsKeepTheirWeightsWhenTheFileIsReplacedOrGone) {
  alignas(64) float x[kN] = {1, 2, 3}, before[3][64] = {}, after[3][64] = {};
  const void* inputs[] = {x};
  void *first[] = {before[0], before[1], before[2]}, *second[] = {after[0], after[1], after[2]};
  ASSERT_EQ(Create(), TEMPER_OK);
  ASSERT_EQ(temper_model_run(model_, inputs, first), TEMPER_OK);
  const std::vector<float> other(kN, 100);
  WriteWeights(other.data(), kBytes);
  EXPECT_EQ(temper_model_run(model_, inputs, second), TEMPER_OK);
  EXPECT_EQ(std::memcmp(before, after, sizeof before), 0);
  std::remove(path_.c_str());
  EXPECT_EQ(temper_model_run(model_, inputs, second), TEMPER_OK);
  EXPECT_EQ(std::memcmp(before, after, sizeof before), 0);
}

TEST_F(ModelTest, NamesTheCpuFeaturesThatLack) {
  const char* features[] = {"sse2", "warp-drive", "quantum"};
  plan_.cpu_features = features;
  plan_.num_cpu_features = 1;
  EXPECT_EQ(Create(), TEMPER_OK);
  temper_model_destroy(model_);
  plan_.num_cpu_features = 3;
  EXPECT_EQ(Create(), TEMPER_WRONG_CPU);
  EXPECT_THAT(temper_model_error(nullptr), HasSubstr("lacks warp-drive quantum:"));
}

TEST_F(ModelTest, WeightsOfManyChunksAreReadWholeAndCheckedByAnyNumberOfThreads) {
  std::string bytes(4 * TEMPER_HASH_CHUNK + 320, 'w');
  for (size_t i = 0; i < bytes.size(); i += 1000) bytes[i] = static_cast<char>(i / 1000);
  plan_.weight_bytes[TEMPER_MEMORY_HOST] = static_cast<int64_t>(bytes.size());
  plan_.weight_hash = temper_weights_hash(bytes.data(), bytes.size());
  for (const int threads : {1, 2, 3, 8}) {
    WriteWeights(bytes.data(), bytes.size());
    EXPECT_EQ(Create(threads), TEMPER_OK) << temper_model_error(nullptr);
    temper_model_destroy(model_);
    for (const size_t at : {size_t{0}, size_t{TEMPER_HASH_CHUNK}, bytes.size() - 1}) {
      std::string changed = bytes;
      changed[at] ^= 1;
      WriteWeights(changed.data(), changed.size());
      EXPECT_EQ(Create(threads), TEMPER_NO_PACKAGE) << threads << " threads, byte " << at;
      EXPECT_THAT(temper_model_error(nullptr), HasSubstr("is damaged"));
    }
  }
}

TEST_F(ModelTest, RefusesAPlanOfAnotherVersion) {
  for (const int64_t version : {TEMPER_PLAN_VERSION - 1, TEMPER_PLAN_VERSION + 1}) {
    plan_.version = version;
    EXPECT_EQ(Create(), TEMPER_NO_PACKAGE);
    EXPECT_THAT(temper_model_error(nullptr), HasSubstr("plan version"));
  }
}

TEST(WeightsHash, SeesEveryByteAndTheLength) {
  std::string bytes(133, 'a');
  const uint64_t whole = temper_weights_hash(bytes.data(), bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] ^= 1;
    EXPECT_NE(temper_weights_hash(changed.data(), changed.size()), whole) << i;
  }
  EXPECT_NE(temper_weights_hash(bytes.data(), bytes.size() - 1), whole);
}

TEST(WeightsHash, SeesChunksAndTheirOrder) {
  std::string bytes(2 * TEMPER_HASH_CHUNK + 7, 'a');
  bytes[TEMPER_HASH_CHUNK] = 'b';
  const auto chunk = [&](size_t i) {
    const size_t at = i * TEMPER_HASH_CHUNK;
    return temper_weights_hash_chunk(bytes.data() + at, std::min<size_t>(TEMPER_HASH_CHUNK, bytes.size() - at));
  };
  const auto joined = [&](size_t a, size_t b, size_t c) {
    return temper_weights_hash_join(temper_weights_hash_join(temper_weights_hash_join(0, chunk(a)), chunk(b)),
                                    chunk(c));
  };
  const uint64_t whole = temper_weights_hash(bytes.data(), bytes.size());
  EXPECT_EQ(joined(0, 1, 2), whole);
  EXPECT_NE(joined(1, 0, 2), whole);
  EXPECT_NE(temper_weights_hash(bytes.data(), 2 * TEMPER_HASH_CHUNK), whole);
}

TEST(CoreToCore, IsAFiniteTimeBetweenThreadsAndNothingWithinOne) {
  for (const int threads : {1, 2, 3}) {
    temper_pool* pool = temper_pool_create(threads);
    ASSERT_NE(pool, nullptr);
    const double seconds = MeasureCoreToCore(temper_pool_launcher(pool), 0.001);
    temper_pool_destroy(pool);
    EXPECT_EQ(seconds > 0, threads > 1);
    EXPECT_TRUE(std::isfinite(seconds));
  }
}

}  // namespace
}  // namespace temper
