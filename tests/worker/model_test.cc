// The package's C ABI over plans written by hand.
#include "compiler/runtime/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "compiler/runtime/plan.h"
#include "compiler/runtime/timing.h"

namespace temper {
namespace {

using testing::HasSubstr;

constexpr int kN = 40;
constexpr int64_t kShape[] = {4, 10};
constexpr int64_t kBytes = kN * sizeof(float);

// args: a, weights, out: out = a * w, in parallel, each thread noting itself in its own scratch.
void MultiplyKernel(void* const* args, void* workspace, temper_launcher* launcher) {
  struct Closure {
    const float *a, *w;
    float* out;
    char* scratch;
  };
  Closure c{static_cast<const float*>(args[0]), static_cast<const float*>(args[1]), static_cast<float*>(args[2]),
            static_cast<char*>(workspace)};
  launcher->parallel_for(
      launcher, kN,
      [](void* p, int64_t begin, int64_t end, int32_t thread) {
        auto* c = static_cast<Closure*>(p);
        std::memset(c->scratch + 128 + thread * 64, 1, 64);
        for (int64_t i = begin; i < end; ++i) c->out[i] = c->a[i] * c->w[i];
      },
      &c);
}

// args: in, out: out = in + 1
void IncrementKernel(void* const* args, void*, temper_launcher*) {
  for (void* arg : {args[0], args[1]}) {
    if (reinterpret_cast<uintptr_t>(arg) % 64 != 0) std::abort();  // what kernels are promised
  }
  for (int i = 0; i < kN; ++i) static_cast<float*>(args[1])[i] = static_cast<const float*>(args[0])[i] + 1;
}

// IncrementKernel that leaves where its scratch lies, seen from its operand.
ptrdiff_t scratch_from_operand;
void NotingKernel(void* const* args, void* workspace, temper_launcher* launcher) {
  scratch_from_operand = static_cast<char*>(workspace) - static_cast<char*>(args[0]);
  IncrementKernel(args, workspace, launcher);
}

constexpr int64_t kLongNs = 2'000'000;

// IncrementKernel that takes kLongNs and more.
void LongIncrementKernel(void* const* args, void* workspace, temper_launcher* launcher) {
  for (const int64_t start = MonotonicNs(); MonotonicNs() - start < kLongNs;) {
  }
  IncrementKernel(args, workspace, launcher);
}

class ModelTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/temper_model_test_" + std::to_string(getpid()) + ".bin";
    for (int i = 0; i < kN; ++i) weights_.push_back(static_cast<float>(i % 7));
    WriteWeights(weights_.data(), kBytes);
    plan_.version = TEMPER_PLAN_VERSION;
    plan_.num_inputs = 1;
    plan_.inputs = inputs_;
    plan_.num_outputs = 3;
    plan_.outputs = outputs_;
    plan_.num_steps = 4;
    plan_.steps = steps_;
    plan_.arena_bytes = 256;
    plan_.weight_bytes = kBytes;
    plan_.weight_hash = temper_weights_hash(weights_.data(), kBytes);
  }
  void TearDown() override {
    temper_model_destroy(model_);
    std::remove(path_.c_str());
  }
  void WriteWeights(const void* data, size_t bytes) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc).write(static_cast<const char*>(data), bytes);
  }
  int Create(int threads = 2) { return temper_model_create_from_plan(&plan_, path_.c_str(), threads, &model_); }

  // x -> (arena) x * w -> out0 = that + 1; out1 = x; out2 = w.
  temper_io inputs_[1] = {{"x", 1, 2, kShape, kBytes}};
  temper_io outputs_[3] = {{"y", 1, 2, kShape, kBytes}, {"x", 1, 2, kShape, kBytes}, {"w", 1, 2, kShape, kBytes}};
  temper_arg multiply_[3] = {{TEMPER_ARG_INPUT, 0, 0}, {TEMPER_ARG_WEIGHT, 0, 0}, {TEMPER_ARG_ARENA, 0, 64}};
  temper_arg increment_[2] = {{TEMPER_ARG_ARENA, 0, 64}, {TEMPER_ARG_OUTPUT, 0, 0}};
  temper_arg copy_input_[2] = {{TEMPER_ARG_INPUT, 0, 0}, {TEMPER_ARG_OUTPUT, 1, 0}};
  temper_arg copy_weight_[2] = {{TEMPER_ARG_WEIGHT, 0, 0}, {TEMPER_ARG_OUTPUT, 2, 0}};
  temper_step steps_[4] = {{"multiply", MultiplyKernel, multiply_, 3, 0, 128, 64},
                           {"increment", IncrementKernel, increment_, 2, 0, 0, 0},
                           {"copy", nullptr, copy_input_, 2, kBytes, 0, 0},
                           {"copy", nullptr, copy_weight_, 2, kBytes, 0, 0}};
  temper_plan plan_ = {};
  std::string path_;
  std::vector<float> weights_;
  temper_model* model_ = nullptr;
};

TEST_F(ModelTest, RunsKernelsAndCopiesOnAlignedAndUnalignedBuffers) {
  ASSERT_EQ(Create(), TEMPER_OK) << temper_model_error(nullptr);
  alignas(64) char memory[5][kBytes + 64];
  for (int shift : {0, 4}) {
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

TEST_F(ModelTest, TimesEachStepOfARun) {
  steps_[1].kernel = LongIncrementKernel;
  ASSERT_EQ(Create(), TEMPER_OK);
  ASSERT_EQ(temper_model_step_count(model_), 4);
  alignas(64) float x[kN], y[3][64] = {};
  for (int i = 0; i < kN; ++i) x[i] = static_cast<float>(i);
  const void* inputs[] = {x};
  void* outputs[] = {y[0], y[1], y[2]};
  EXPECT_EQ(temper_model_run_timed(model_, inputs, outputs, nullptr), TEMPER_INVALID_ARGUMENT);
  std::vector<int64_t> ns(5, -1);
  const int64_t start = MonotonicNs();
  ASSERT_EQ(temper_model_run_timed(model_, inputs, outputs, ns.data()), TEMPER_OK);
  const int64_t wall = MonotonicNs() - start;
  EXPECT_GE(ns[1], kLongNs);
  EXPECT_EQ(ns[4], -1);  // past the last step
  int64_t sum = 0;
  for (int i = 0; i < 4; ++i) {
    EXPECT_GE(ns[i], 0);
    sum += ns[i];
  }
  EXPECT_LE(sum, wall);
  for (int i = 0; i < kN; ++i) ASSERT_EQ(y[0][i], x[i] * weights_[i] + 1) << i;
}

TEST_F(ModelTest, ScratchLiesInTheArenaWhereThatHasRoomForTheThreads) {
  plan_.arena_bytes = 512;
  plan_.scratch_threads = 2;
  steps_[0].workspace_offset = 256;
  steps_[1] = {"increment", NotingKernel, increment_, 2, 0, 64, 64, 320};
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
  EXPECT_THAT(temper_model_error(model_), HasSubstr("no input 1"));
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

TEST_F(ModelTest, RefusesAPlanOfAnotherVersion) {
  plan_.version = TEMPER_PLAN_VERSION + 1;
  EXPECT_EQ(Create(), TEMPER_NO_PACKAGE);
  EXPECT_THAT(temper_model_error(nullptr), HasSubstr("plan version"));
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
  temper_weights_hasher pieces;
  temper_weights_hash_begin(&pieces);
  const size_t first = TEMPER_HASH_BLOCK, blocks = bytes.size() / TEMPER_HASH_BLOCK * TEMPER_HASH_BLOCK;
  temper_weights_hash_add(&pieces, bytes.data(), first);
  temper_weights_hash_add(&pieces, bytes.data() + first, blocks - first);
  EXPECT_EQ(temper_weights_hash_end(&pieces, bytes.data() + blocks, bytes.size() - blocks), whole);
}

}  // namespace
}  // namespace temper
