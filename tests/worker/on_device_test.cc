// The package's C ABI where all of a plan's memory is a device's: one made here, which forgets nothing.
#include "compiler/runtime/on_device.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "include/temper/model.h"

namespace temper {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

constexpr char kDevices[] = TEMPER_BINARY_DIR "/lib/libtemper-devices.so";

constexpr int kElements = 8;
constexpr int64_t kVector[] = {kElements};
constexpr int64_t kVectorBytes = kElements * sizeof(float);

// Memory, or a part of one. What a launch takes is the address of such a thing, so a kernel that is given a host's
// address finds nothing there.
struct Place {
  std::vector<char> own;
  Place* whole = nullptr;
  int64_t offset = 0, bytes = 0;
  float* floats() { return reinterpret_cast<float*>((whole == nullptr ? own.data() : whole->own.data()) + offset); }
};

struct FakeDevice {
  std::set<Place*> live;
  int allocations_left = 1000, parts_left = 1000;
  const char* error = "";
  int32_t launched = 0, written = 0, read = 0;  // what these return
  int writes = 0;
  int64_t clock_ns = 0;   // of what it times
  bool has_clock = true;  // else it times nothing
  bool records = false;   // where it can
  int32_t replayed = 0;
  int recorded = 0, replays = 0, forgotten = 0;
} fake;

// What a recording is here: the steps, done anew. A device does them without asking.
struct Recording {
  int32_t (*steps)(void*);
  void* closure;
};

Place* Find(void* place) {
  auto* found = static_cast<Place*>(place);
  if (!fake.live.contains(found)) ADD_FAILURE() << "no memory of the device";
  return found;
}

const temper_device kFakeDevice = {
    .launch = nullptr,  // kernels here need nobody to launch them
    .allocate = [](int64_t bytes) -> void* {
      if (fake.allocations_left-- <= 0) return nullptr;
      auto* made = new Place{std::vector<char>(static_cast<size_t>(bytes)), nullptr, 0, bytes};
      fake.live.insert(made);
      return made;
    },
    .part = [](void* memory, int64_t offset, int64_t bytes) -> void* {
      if (fake.parts_left-- <= 0) return nullptr;
      Place* whole = Find(memory);
      EXPECT_EQ(offset % TEMPER_DEVICE_ALIGNMENT, 0);
      EXPECT_LE(offset + bytes, whole->bytes);
      auto* made = new Place{{}, whole, offset, bytes};
      fake.live.insert(made);
      return made;
    },
    .release =
        [](void* place) {
          Place* p = Find(place);
          for (const Place* other : fake.live) EXPECT_NE(other->whole, p) << "a part is left";
          fake.live.erase(p);
          delete p;
        },
    .write = [](void* memory, int64_t offset, const void* from, int64_t bytes) -> int32_t {
      std::memcpy(Find(memory)->own.data() + offset, from, static_cast<size_t>(bytes));
      ++fake.writes;
      return fake.written;
    },
    .read = [](void* memory, int64_t offset, void* to, int64_t bytes) -> int32_t {
      std::memcpy(to, Find(memory)->own.data() + offset, static_cast<size_t>(bytes));
      return fake.read;
    },
    .copy = [](void* from, int64_t from_offset, void* to, int64_t to_offset, int64_t bytes) -> int32_t {
      std::memcpy(Find(to)->own.data() + to_offset, Find(from)->own.data() + from_offset, static_cast<size_t>(bytes));
      return 0;
    },
    .record = [](int32_t (*steps)(void*), void* closure) -> void* {
      ++fake.recorded;
      return fake.records ? new Recording{steps, closure} : nullptr;
    },
    .replay = [](void* recording) -> int32_t {
      ++fake.replays;
      const auto* r = static_cast<Recording*>(recording);
      return fake.replayed != 0 ? fake.replayed : r->steps(r->closure);
    },
    .forget =
        [](void* recording) {
          EXPECT_FALSE(fake.live.empty()) << "its memory is released before";
          ++fake.forgotten;
          delete static_cast<Recording*>(recording);
        },
    .time = [](int32_t (*steps)(void*), void* closure, int64_t* ns) -> int32_t {
      if (!fake.has_clock) return TEMPER_NO_RESOURCES;
      *ns = ++fake.clock_ns;
      return steps(closure);
    },
    .error = [] { return fake.error; },
};

// args: x, w, out: out = x * w, by way of the workspace.
int32_t Multiply(const temper_call* call) {
  EXPECT_NE(call->stream, nullptr);
  float* products = Find(call->workspace)->floats();
  for (int i = 0; i < kElements; ++i) products[i] = Find(call->args[0])->floats()[i] * Find(call->args[1])->floats()[i];
  std::memcpy(Find(call->args[2])->floats(), products, kVectorBytes);
  return fake.launched;
}

// args: x, out: out = x + 1
int32_t Increment(const temper_call* call) {
  for (int i = 0; i < kElements; ++i) Find(call->args[1])->floats()[i] = Find(call->args[0])->floats()[i] + 1;
  return fake.launched;
}

// y = x * w + 1; z = the second half of x, then the first of x * w.
class OnDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    fake = FakeDevice();
    path_ = testing::TempDir() + "/temper_on_device_test_" + std::to_string(getpid()) + ".bin";
    std::iota(weights_.begin(), weights_.end(), 2.0f);
    std::iota(x_.begin(), x_.end(), 1.0f);
    std::ofstream(path_, std::ios::binary).write(reinterpret_cast<const char*>(weights_.data()), kVectorBytes);
    variant_.num_inputs = variant_.num_given = 1;
    variant_.inputs = inputs_;
    variant_.num_outputs = 2;
    variant_.outputs = outputs_;
    variant_.num_results = 2;
    variant_.num_sequences = 1;
    variant_.sequences = &sequence_;
    variant_.arena_bytes[TEMPER_MEMORY_DEVICE] = 3 * TEMPER_DEVICE_ALIGNMENT;
    plan_.version = TEMPER_PLAN_VERSION;
    plan_.num_variants = 1;
    plan_.variants = &variant_;
    plan_.weight_bytes[TEMPER_MEMORY_DEVICE] = kVectorBytes;
    plan_.weight_hash = temper_weights_hash(weights_.data(), kVectorBytes);
    plan_.device = &device_;
    plan_.generator = "fake";
  }
  void TearDown() override {
    std::remove(path_.c_str());
    EXPECT_TRUE(fake.live.empty()) << fake.live.size() << " places are not released";
  }
  int Create(temper_model** model) { return temper_model_create_from_plan(&plan_, path_.c_str(), 1, model); }
  int Run(temper_model* model) {
    const void* in[] = {x_.data()};
    void* out[] = {y_.data(), z_.data()};
    return temper_model_run(model, in, out);
  }
  void ExpectRight() {
    for (int i = 0; i < kElements; ++i) {
      const auto at = static_cast<size_t>(i), half = static_cast<size_t>(kElements / 2);
      EXPECT_EQ(y_[at], x_[at] * weights_[at] + 1);
      EXPECT_EQ(z_[at], at < half ? x_[at + half] : x_[at - half] * weights_[at - half]);
    }
  }

  static constexpr int64_t kSlot = TEMPER_DEVICE_ALIGNMENT, kHalf = kVectorBytes / 2;
  const temper_device* device_ = &kFakeDevice;
  temper_io inputs_[1] = {{"x", 1, 1, kVector, kVectorBytes, nullptr, 0, nullptr}};
  temper_io outputs_[2] = {{"y", 1, 1, kVector, kVectorBytes, nullptr, 0, nullptr},
                           {"z", 1, 1, kVector, kVectorBytes, nullptr, 0, nullptr}};
  temper_arg multiply_[3] = {{TEMPER_ARG_INPUT, 0, 0, kVectorBytes},
                             {TEMPER_ARG_WEIGHT, TEMPER_MEMORY_DEVICE, 0, kVectorBytes},
                             {TEMPER_ARG_ARENA, TEMPER_MEMORY_DEVICE, kSlot, kVectorBytes}};
  temper_arg increment_[2] = {{TEMPER_ARG_ARENA, TEMPER_MEMORY_DEVICE, kSlot, kVectorBytes},
                              {TEMPER_ARG_OUTPUT, 0, 0, kVectorBytes}};
  temper_arg first_[2] = {{TEMPER_ARG_INPUT, 0, kHalf, 0}, {TEMPER_ARG_OUTPUT, 1, 0, 0}};
  temper_arg second_[2] = {{TEMPER_ARG_ARENA, TEMPER_MEMORY_DEVICE, kSlot, 0}, {TEMPER_ARG_OUTPUT, 1, kHalf, 0}};
  temper_step steps_[4] = {
      {"multiply", TEMPER_STEP_KERNEL, multiply_, 3, 0, Multiply, kVectorBytes, 0, 2 * kSlot, 0, 0},
      {"increment", TEMPER_STEP_KERNEL, increment_, 2, 0, Increment, 0, 0, 0, 0, 0},
      {"copy x", TEMPER_STEP_COPY, first_, 2, kHalf, nullptr, 0, 0, 0, 0, 0},
      {"copy product", TEMPER_STEP_COPY, second_, 2, kHalf, nullptr, 0, 0, 0, 0, 0},
  };
  temper_sequence sequence_ = {4, steps_};
  temper_variant variant_ = {};
  temper_plan plan_ = {};
  std::string path_;
  std::vector<float> weights_ = std::vector<float>(kElements), x_ = weights_, y_ = weights_, z_ = weights_;
};

TEST_F(OnDeviceTest, InstancesShareWeightsThatGoThereOnceAndARunMovesInputsAndOutputsAlone) {
  temper_model *a = nullptr, *b = nullptr;
  ASSERT_EQ(Create(&a), TEMPER_OK) << temper_model_error(nullptr);
  ASSERT_EQ(Create(&b), TEMPER_OK);
  EXPECT_EQ(fake.writes, 1) << "the weights";
  ASSERT_EQ(Run(a), TEMPER_OK);
  ExpectRight();
  x_[0] = 100;
  ASSERT_EQ(Run(a), TEMPER_OK);
  ExpectRight();
  temper_model_destroy(a);
  ASSERT_EQ(Run(b), TEMPER_OK);
  ExpectRight();
  EXPECT_EQ(fake.writes, 4) << "and an input for each run";
  temper_model_destroy(b);
}

TEST_F(OnDeviceTest, VariantsShareTheArenaAndEachIsRecorded) {
  temper_variant both[] = {variant_, variant_};
  const int64_t half[] = {kElements / 2};
  temper_io inputs[] = {inputs_[0]};
  inputs[0].shape = half;  // and the bytes of the whole: the kernels are the same
  both[1].inputs = inputs;
  both[1].arena_bytes[TEMPER_MEMORY_DEVICE] += 64;
  plan_.num_variants = 2;
  plan_.variants = both;
  fake.records = true;
  temper_model* model = nullptr;
  ASSERT_EQ(Create(&model), TEMPER_OK) << temper_model_error(nullptr);
  for (int run = 0; run < 6; ++run) {
    x_[0] = static_cast<float>(run);
    ASSERT_EQ(temper_model_choose_variant(model, run % 2), TEMPER_OK);
    ASSERT_EQ(Run(model), TEMPER_OK);
    ExpectRight();
  }
  EXPECT_EQ(fake.recorded, 2);
  EXPECT_EQ(fake.replays, 4);
  temper_model_destroy(model);
  EXPECT_EQ(fake.forgotten, 2);
}

TEST_F(OnDeviceTest, AnInputOfARangeIsFilledUpWithZeros) {
  const int64_t least[] = {1};
  temper_io inputs[] = {inputs_[0], {"count", 7, 0, nullptr, sizeof(int64_t), nullptr, 0, nullptr}};
  inputs[0].least = least;
  const temper_extent counted = {0, 1};
  inputs[0].num_extents = 1;
  inputs[0].extents = &counted;
  variant_.num_inputs = 2;
  variant_.inputs = inputs;
  temper_model* model = nullptr;
  ASSERT_EQ(Create(&model), TEMPER_OK) << temper_model_error(nullptr);
  for (const int64_t count : {int64_t{kElements}, int64_t{3}, int64_t{kElements}}) {
    std::iota(x_.begin(), x_.end(), 1.0f);
    const temper_tensor in = {x_.data(), count * static_cast<int64_t>(sizeof(float)), 1, 1, {count}};
    temper_tensor out[] = {{y_.data(), kVectorBytes, 0, 0, {}}, {z_.data(), kVectorBytes, 0, 0, {}}};
    ASSERT_EQ(temper_model_run_shaped(model, &in, out), TEMPER_OK) << temper_model_error(model);
    std::fill(x_.begin() + count, x_.end(), 0.0f);
    ExpectRight();
  }
  temper_model_destroy(model);
}

TEST_F(OnDeviceTest, AnInputOfTwoRangesIsFilledUpWithZerosBehindEachEnd) {
  static constexpr int64_t kMost[] = {4, kElements / 4}, kLeast[] = {1, 0};
  static constexpr temper_extent kCounted[] = {{0, 1}, {1, 2}};
  const temper_io count = {"count", 7, 0, nullptr, sizeof(int64_t), nullptr, 0, nullptr};
  const temper_io inputs[] = {{"x", 1, 2, kMost, kVectorBytes, kLeast, 2, kCounted}, count, count};
  variant_.num_inputs = 3;
  variant_.inputs = inputs;
  temper_model* model = nullptr;
  ASSERT_EQ(Create(&model), TEMPER_OK) << temper_model_error(nullptr);
  for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{{4, 2}, {2, 1}, {1, 0}, {3, 1}, {3, 2}}) {
    std::vector<float> given(static_cast<size_t>(rows * columns));
    std::iota(given.begin(), given.end(), 1.0f);
    const temper_tensor in = {given.data(), std::ssize(given) * 4, 1, 2, {rows, columns}};
    temper_tensor out[] = {{y_.data(), kVectorBytes, 0, 0, {}}, {z_.data(), kVectorBytes, 0, 0, {}}};
    ASSERT_EQ(temper_model_run_shaped(model, &in, out), TEMPER_OK) << temper_model_error(model);
    for (int64_t i = 0; i < kElements; ++i) {
      const int64_t row = i / kMost[1], column = i % kMost[1];
      const bool there = row < rows && column < columns;
      x_[static_cast<size_t>(i)] = there ? given[static_cast<size_t>(row * columns + column)] : 0;
    }
    ExpectRight();
  }
  temper_model_destroy(model);
}

TEST_F(OnDeviceTest, TheSecondRunIsRecordedAndReplayedFromThenOn) {
  fake.records = true;
  temper_model *a = nullptr, *b = nullptr;
  ASSERT_EQ(Create(&a), TEMPER_OK);
  ASSERT_EQ(Create(&b), TEMPER_OK);
  for (int run = 0; run < 4; ++run) {
    x_[0] = static_cast<float>(run);
    ASSERT_EQ(Run(a), TEMPER_OK);
    ExpectRight();
    EXPECT_EQ(fake.recorded, run > 0 ? 1 : 0);
    EXPECT_EQ(fake.replays, run);
  }
  fake.replayed = TEMPER_NO_RESOURCES;
  EXPECT_EQ(Run(a), TEMPER_NO_RESOURCES);
  EXPECT_THAT(temper_model_error(a), HasSubstr("does not run its kernels again"));
  fake.replayed = 0;
  ASSERT_EQ(Run(a), TEMPER_OK);
  temper_model_destroy(a);
  EXPECT_EQ(fake.forgotten, 1);
  ASSERT_EQ(Run(b), TEMPER_OK);
  EXPECT_EQ(fake.recorded, 1) << "each instance has its own memory, and so its own recording";
  temper_model_destroy(b);
  EXPECT_EQ(fake.forgotten, 1);
}

TEST_F(OnDeviceTest, ADeviceThatCannotRecordIsAskedOnce) {
  temper_model* model = nullptr;
  ASSERT_EQ(Create(&model), TEMPER_OK);
  for (int run = 0; run < 4; ++run) {
    ASSERT_EQ(Run(model), TEMPER_OK);
    ExpectRight();
  }
  EXPECT_EQ(fake.recorded, 1);
  EXPECT_EQ(fake.replays, 0);
  temper_model_destroy(model);
}

TEST_F(OnDeviceTest, StepsAreTimedByTheDevicesClock) {
  temper_model* model = nullptr;
  ASSERT_EQ(Create(&model), TEMPER_OK);
  const void* in[] = {x_.data()};
  void* out[] = {y_.data(), z_.data()};
  temper_step_time times[4];
  EXPECT_EQ(temper_model_run_timed(model, in, out, 0, times), TEMPER_OK);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(times[i].ns, i + 1);
  ExpectRight();
  fake.launched = TEMPER_NO_RESOURCES;
  fake.error = "the GPU is gone";
  EXPECT_EQ(temper_model_run_timed(model, in, out, 0, times), TEMPER_NO_RESOURCES);
  EXPECT_THAT(temper_model_error(model), HasSubstr("the GPU is gone"));
  fake.has_clock = false;
  times[0].ns = 77;
  EXPECT_EQ(temper_model_run_timed(model, in, out, 1, times), TEMPER_NO_RESOURCES);
  EXPECT_EQ(times[0].ns, 0) << "a step that was not timed has no time";
  temper_model_destroy(model);
}

TEST_F(OnDeviceTest, WithoutItsDeviceAPackageIsRefused) {
  temper_model* model = nullptr;
  const temper_device on_host_memory = {};
  for (const temper_device* unfit : {static_cast<const temper_device*>(nullptr), &on_host_memory}) {
    device_ = unfit;
    setenv("TEMPER_DEVICES", "/nowhere/libtemper-devices.so", 1);
    EXPECT_EQ(Create(&model), TEMPER_NO_PACKAGE);
    EXPECT_THAT(temper_model_error(nullptr),
                HasSubstr("for fake are launched by Temper's libtemper-devices: /nowhere/libtemper-devices.so"));
    for (const char* other : {"libc.so.6", kDevices}) {
      setenv("TEMPER_DEVICES", other, 1);
      EXPECT_EQ(Create(&model), TEMPER_NO_PACKAGE);
      EXPECT_EQ(temper_model_error(nullptr),
                std::string(other) + " is of another version of Temper, or has no device for fake");
    }
    EXPECT_EQ(device_, unfit);
  }
  unsetenv("TEMPER_DEVICES");
}

TEST_F(OnDeviceTest, LibtemperDevicesIsAskedForADeviceThatNobodySet) {
  void* library = dlopen(kDevices, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto find = reinterpret_cast<temper_find_device_fn>(dlsym(library, "temper_find_device"));
  ASSERT_NE(find, nullptr);
  EXPECT_EQ(find("opencl", TEMPER_DEVICE_VERSION + 1), nullptr);
  EXPECT_EQ(find(nullptr, TEMPER_DEVICE_VERSION), nullptr);
  setenv("TEMPER_DEVICES", kDevices, 1);
  for (const char* generator : {"cuda", "opencl"}) {
    device_ = nullptr;
    plan_.generator = generator;
    char why[64];
    EXPECT_EQ(temper_on_device_find(&plan_, why, sizeof why), find(generator, TEMPER_DEVICE_VERSION));
    EXPECT_NE(device_, nullptr);
  }
  unsetenv("TEMPER_DEVICES");
}

TEST_F(OnDeviceTest, WhatTheDeviceSaysStandsBehindTheLine) {
  fake.error = "it is tired";
  temper_model* model = nullptr;
  fake.allocations_left = 0;
  EXPECT_EQ(Create(&model), TEMPER_NO_RESOURCES);
  EXPECT_STREQ(temper_model_error(nullptr), "the device does not take 32 bytes of weights: it is tired");
  fake.allocations_left = 1;
  EXPECT_EQ(Create(&model), TEMPER_NO_RESOURCES);
  EXPECT_THAT(temper_model_error(nullptr), EndsWith("scratch: it is tired"));
  fake.allocations_left = 1000;
  ASSERT_EQ(Create(&model), TEMPER_OK);
  for (int32_t* what : {&fake.written, &fake.launched, &fake.read}) {
    *what = TEMPER_NO_RESOURCES;
    EXPECT_EQ(Run(model), TEMPER_NO_RESOURCES);
    EXPECT_THAT(temper_model_error(model), EndsWith(": it is tired"));
    *what = 0;
  }
  temper_model_destroy(model);
}

TEST_F(OnDeviceTest, WhereverMemoryEndsNothingIsLeftBehind) {
  int refused = 0;
  for (int left = 0;; ++left, ++refused) {
    fake.allocations_left = left;
    temper_model* model = nullptr;
    const int code = Create(&model);
    temper_model_destroy(model);
    EXPECT_TRUE(fake.live.empty());
    if (code == TEMPER_OK) break;
    EXPECT_EQ(code, TEMPER_NO_RESOURCES);
    EXPECT_THAT(temper_model_error(nullptr), HasSubstr("the device "));
  }
  EXPECT_EQ(refused, 5) << "weights, arena, an input, two outputs";
  fake.allocations_left = 1000;
  for (refused = 0;; ++refused) {
    fake.parts_left = refused;
    temper_model* model = nullptr;
    const int code = Create(&model);
    temper_model_destroy(model);
    if (code == TEMPER_OK) break;
  }
  EXPECT_EQ(refused, 6) << "five arguments and a workspace";
}

TEST_F(OnDeviceTest, WhatFailsIsNamedAndTheModelStaysUsable) {
  temper_model* model = nullptr;
  fake.written = TEMPER_NO_RESOURCES;
  EXPECT_EQ(Create(&model), TEMPER_NO_RESOURCES);
  fake.written = 0;
  ASSERT_EQ(Create(&model), TEMPER_OK);
  const auto fails = [&](int32_t& what, const char* line) {
    what = TEMPER_NO_RESOURCES;
    EXPECT_EQ(Run(model), TEMPER_NO_RESOURCES);
    EXPECT_THAT(temper_model_error(model), HasSubstr(line));
    what = 0;
  };
  fails(fake.launched, "kernel multiply failed");
  fails(fake.written, "input x");
  fails(fake.read, "output y");
  void* out[] = {y_.data(), nullptr};
  const void* in[] = {x_.data()};
  EXPECT_EQ(temper_model_run(model, in, out), TEMPER_INVALID_ARGUMENT);
  EXPECT_EQ(Run(model), TEMPER_OK);
  ExpectRight();
  temper_model_destroy(model);
}

}  // namespace
}  // namespace temper
