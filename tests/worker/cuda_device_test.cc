// The worker's CUDA backend, and packages' launches, on a driver that plays GPUs on the host
// (tests/driver/fake_cuda.h).
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/temporary_directory.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/cuda/launch.h"
#include "compiler/codegen/cuda/nvrtc.h"
#include "measure_worker/backend.h"
#include "measure_worker/backends/cuda/cuda_device.h"
#include "tests/codegen/device_run.h"
#include "tests/driver/fake_cuda.h"
#include "tests/worker/fake_cuda_code.h"

namespace temper::worker {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kFake[] = TEMPER_BINARY_DIR "/tests/libfake_cuda.so";
std::vector<float> Counted(float from) {
  std::vector<float> values(kElements);
  for (float& value : values) value = from++;
  return values;
}

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("TEMPER_CUDA", kFake, 1);
    setenv("TEMPER_NVML", kFake, 1);
    setenv("FAKE_CUDA_GPUS", "2", 1);
    void* library = dlopen(kFake, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    state_ = reinterpret_cast<fake_cuda::StateFn>(dlsym(library, "fake_cuda_state"))();
    device_ = def_.open(spec_).value();
    const absl::Status used = device_->Use(*ParseTarget("cuda:sm_90"));
    ASSERT_TRUE(used.ok()) << used;
    kept_ = state_->allocations.size();
  }
  void TearDown() override {
    state_->launch_ns = 0;
    device_.reset();
    EXPECT_EQ(state_->allocations.size(), kept_) << "memory was not given back";
    EXPECT_EQ(state_->pushed, 0);
  }

  // Arrays of kElements floats.
  std::unique_ptr<Block> Arrays(size_t count) {
    return device_->AllocateGuarded(std::vector<int64_t>(count, kBytes)).value();
  }
  static Arguments AddressesOf(const Block& block) {
    Arguments arguments;
    for (size_t i = 0; i < block.arrays(); ++i) arguments.push_back(block.address(i));
    return arguments;
  }
  static std::vector<float> Read(const Block& block, size_t array) {
    const auto* data = static_cast<const float*>(block.Read(array).value());
    return {data, data + kElements};
  }

  const DeviceSpec spec_ = ParseDeviceSpec("cuda:0").value();
  const BackendDef& def_ = *FindBackend("cuda");
  fake_cuda::State* state_ = nullptr;
  std::unique_ptr<Device> device_;
  size_t kept_ = 0;
};

// Whether there is an NVRTC here whose code the driver takes, which is for CUDA 12.9. Where the build fetched one, it
// is taken before a newer one.
bool HasCompiler(const char* arch) {
  const absl::StatusOr<const nvrtc::Compiler*> compiler = nvrtc::CompilerFor(arch);
  const bool has = compiler.ok() && (*compiler)->version()[0] <= 12;
  const bool fetched = std::filesystem::exists(TEMPER_BINARY_DIR "/nvrtc/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  EXPECT_TRUE(has || !fetched);
  return has;
}

TEST_F(CudaDeviceTest, SaysWhatItIs) {
  if (!HasCompiler("sm_90")) {
    EXPECT_TRUE(absl::IsUnavailable(def_.describe(spec_, "host").status()));
    GTEST_SKIP() << "no NVRTC of version 12";
  }
  const absl::StatusOr<DeviceReport> report = def_.describe(spec_, "host");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->fingerprint, "Fake GPU 0, sm_90, 1024 MiB, driver 575.57.08 for CUDA 12.9");
  EXPECT_EQ(report->target, "cuda -arch=sm_90 -local=232448 -wg=1024 -warp=32 -units=132");
  EXPECT_EQ(def_.watch(spec_), "1980 MHz, memory 2619 MHz, 45 C, 1024 MiB free");
  EXPECT_EQ(def_.watch(ParseDeviceSpec("cuda:7").value()), "");
}

// What the architecture tells is so for the device, whose target is sent as a text.
TEST(CudaTarget, HasWhatItsArchitectureTells) {
  const Target target = TargetOf({.arch = "sm_86", .shared_bytes = 50 << 10, .multiprocessors = 28}).value();
  EXPECT_EQ(target.gpu()->unit_threads, 1536);
  EXPECT_TRUE(target.gpu()->tensor_cores);
  EXPECT_EQ(Text(target), "cuda -arch=sm_86 -local=51200 -wg=1024 -warp=32 -units=28");
  EXPECT_EQ(ParseTarget(Text(target)).value(), target);
  EXPECT_TRUE(absl::IsInvalidArgument(TargetOf({.arch = "sm_1"}).status()));
}

TEST_F(CudaDeviceTest, RefusesInOneLineWhatItDoesNotRun) {
  for (const char* target : {"cuda:sm_100", "cuda:sm_100a", "opencl", "llvm", "cuda -arch=sm_90 -local=400000"}) {
    const absl::Status status = def_.describe(spec_, target).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << target << ": " << status;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("\n")));
  }
  EXPECT_EQ(def_.describe(spec_, "cuda:sm_80").ok(), HasCompiler("sm_80")) << "by its PTX";
  EXPECT_THAT(std::string(def_.describe(ParseDeviceSpec("cuda:2").value(), "host").status().message()),
              HasSubstr("there is no GPU 2: they are numbered from 0 to 1"));
  for (const char* text : {"cuda:", "cuda:x", "cuda:-1", "cuda:0,1"}) EXPECT_FALSE(ParseDeviceSpec(text).ok()) << text;
}

TEST_F(CudaDeviceTest, EachGpuHasALockOfItsOwn) {
  const TemporaryDirectory folder = TemporaryDirectory::Make().value();
  setenv("XDG_RUNTIME_DIR", folder.path().c_str(), 1);
  const auto lock = [&](const char* device) {
    DeviceSpec spec = ParseDeviceSpec(device).value();
    spec.cores = {0};
    return def_.lock(spec);
  };
  const auto first = lock("cuda"), same = lock("cuda:0"), other = lock("cuda:1");
  ASSERT_TRUE(first->Acquire([] { return false; }));
  EXPECT_FALSE(same->Acquire([] { return true; }));
  EXPECT_TRUE(other->Acquire([] { return true; })) << "cores are no GPU's";
  first->Release();
  EXPECT_TRUE(same->Acquire([] { return true; }));
}

TEST_F(CudaDeviceTest, KernelsRunAndAreTimed) {
  const std::unique_ptr<Code> code = device_->Load({CodeOf({"add"}, 3), {}}).value();
  const std::unique_ptr<Block> arrays = Arrays(3);
  ASSERT_TRUE(arrays->Write(0, Counted(0).data()).ok());
  ASSERT_TRUE(arrays->Write(1, Counted(100).data()).ok());
  const absl::StatusOr<double> seconds = device_->Launch(*code, AddressesOf(*arrays), nullptr);
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  EXPECT_GT(*seconds, 0);
  for (size_t i = 0; i < kElements; ++i) EXPECT_EQ(Read(*arrays, 2)[i], 100 + 2 * static_cast<float>(i));
  EXPECT_TRUE(arrays->CheckEdges().ok());

  state_->launches.clear();
  const std::vector<Arguments> turns{AddressesOf(*arrays), AddressesOf(*arrays)};
  size_t next = 1;
  EXPECT_GT(device_->Time(*code, turns, next, nullptr, 1).value(), 0);
  EXPECT_EQ(next, 0u);
  EXPECT_EQ(state_->launches.size(), 1u);
}

// Short kernels on arrays that take turns.
class CudaTimingTest : public CudaDeviceTest {
 protected:
  void SetUp() override {
    CudaDeviceTest::SetUp();
    code_ = device_->Load({CodeOf({"double"}, 2), {}}).value();
    state_->launch_ns = 2000;
  }
  void TearDown() override {
    code_.reset();
    arrays_.clear();
    CudaDeviceTest::TearDown();
    EXPECT_EQ(state_->graphs, 0) << "a graph was not given back";
  }
  // Each reads an array of its own.
  std::vector<Arguments> Turns(size_t count) {
    std::vector<Arguments> turns;
    for (size_t i = 0; i < count; ++i) turns.push_back(AddressesOf(*arrays_.emplace_back(Arrays(2))));
    return turns;
  }
  absl::StatusOr<double> Time(const std::vector<Arguments>& turns, int64_t calls) {
    state_->calls.clear(), state_->launches.clear();
    return device_->Time(*code_, turns, next_, nullptr, calls);
  }
  int Calls(const char* function) { return state_->calls[function]; }

  std::unique_ptr<Code> code_;
  std::vector<std::unique_ptr<Block>> arrays_;
  size_t next_ = 0;
};

TEST_F(CudaTimingTest, ShortKernelsAreTimedAsAPackageLaunchesThem) {
  const std::vector<Arguments> turns = Turns(3);
  next_ = 1;
  EXPECT_NEAR(Time(turns, 5).value(), 10e-6, 1e-9);
  EXPECT_EQ(Calls("cuLaunchKernel"), 5 + 6) << "once to see that it is short, and whole rounds to be kept";
  EXPECT_EQ(Calls("cuGraphLaunch"), 2) << "once to bring it to the device";
  EXPECT_EQ(next_, (1u + 5) % 3);

  state_->launch_ns = 50'000;
  code_ = device_->Load({CodeOf({"double"}, 2), {}}).value();
  EXPECT_NEAR(Time(turns, 5).value(), 250e-6, 1e-9);
  EXPECT_EQ(Calls("cuGraphLaunch"), 0) << "a long one hides the next launch";
}

TEST_F(CudaTimingTest, ASampleLastsAsLongAsItsCalls) {
  const std::vector<Arguments> turns = Turns(3);
  EXPECT_NEAR(Time(turns, 1000).value(), 2e-3, 1e-8);
  constexpr int kKept = 129, kReplays = 8;  // 43 rounds; 1000 calls are less than eight times as many
  EXPECT_EQ(Calls("cuLaunchKernel"), 1000 + kKept);
  EXPECT_EQ(Calls("cuGraphLaunch"), 1 + kReplays);
  EXPECT_EQ(state_->launches.size(), 1000u + kKept + kReplays * kKept);
}

TEST_F(CudaTimingTest, CallsAreKeptFromSampleToSample) {
  const std::vector<Arguments> turns = Turns(3);
  ASSERT_TRUE(Time(turns, 1000).ok());
  for (const int64_t calls : {1000, 200}) {
    EXPECT_NEAR(Time(turns, calls).value(), 2e-6 * static_cast<double>(calls), 1e-8);
    EXPECT_EQ(Calls("cuLaunchKernel"), 0);
    EXPECT_EQ(Calls("cuGraphInstantiate"), 0);
  }
  const std::vector<Arguments> others = Turns(4);
  ASSERT_TRUE(Time(others, 200).ok());
  EXPECT_EQ(Calls("cuGraphInstantiate"), 1) << "other arguments";
  EXPECT_NEAR(Time(turns, 200).value(), 400e-6, 1e-8);
  EXPECT_EQ(Calls("cuGraphLaunch"), 1 + 2) << "once more to bring it back";
  EXPECT_EQ(Calls("cuGraphInstantiate"), 0) << "as the canary's, which takes turns with the candidates'";
  code_ = device_->Load({CodeOf({"double"}, 2), {}}).value();
  ASSERT_TRUE(Time(turns, 200).ok());
  EXPECT_EQ(Calls("cuGraphInstantiate"), 1) << "other code";
  EXPECT_EQ(state_->graphs, 2) << "and the oldest is gone";
  device_->Trim();
  EXPECT_EQ(state_->graphs, 0);
}

// Who reads constants again before all others were read finds them in the cache.
TEST_F(CudaTimingTest, ReplaysGoThroughAllPlacesOfTheRotation) {
  for (const size_t places : {size_t{2}, size_t{150}}) {
    const std::vector<Arguments> turns = Turns(places);
    state_->launches.clear();
    for (const int64_t calls : {200, 1000}) ASSERT_TRUE(device_->Time(*code_, turns, next_, nullptr, calls).ok());
    std::map<const void*, size_t> read;
    for (size_t i = 0; i < state_->launches.size(); ++i) {
      const void* const place = state_->launches[i].arguments[0];
      if (const auto before = read.find(place); before != read.end()) {
        ASSERT_EQ(i - before->second, places) << "call " << i;
      }
      read[place] = i;
    }
    EXPECT_EQ(read.size(), places);
  }
}

TEST_F(CudaTimingTest, EachLaunchOfACallMayWaitForTheHost) {
  const std::vector<Arguments> turns = Turns(1);
  const std::unique_ptr<Block> scratch = Arrays(1);
  for (const bool is_long : {false, true}) {
    state_->calls.clear();
    state_->launch_ns = is_long ? 11'000 : 8'000;
    const std::unique_ptr<Code> code = device_->Load({CodeOf({"stage", "unstage"}, 2, kBytes), {}}).value();
    const absl::StatusOr<double> seconds = device_->Time(*code, turns, next_, scratch->address(0), 10);
    EXPECT_NEAR(seconds.value(), 20e-9 * static_cast<double>(state_->launch_ns), 1e-8);
    EXPECT_EQ(Calls("cuGraphLaunch"), is_long ? 0 : 2);
  }
}

TEST_F(CudaTimingTest, WhereTheDriverKeepsNoLaunchesTheyAreTimedAsTheyAre) {
  const std::vector<Arguments> turns = Turns(3);
  for (const char* call : {"cuStreamBeginCapture", "cuGraphInstantiate", "cuGraphLaunch"}) {
    state_->fail_once[call] = 801;
    EXPECT_NEAR(Time(turns, 5).value(), 10e-6, 1e-9) << call;
    EXPECT_EQ(state_->launches.size(), 5u);
    EXPECT_EQ(state_->graphs, 0);
  }
}

TEST_F(CudaTimingTest, WhatLacksMemoryToBeKeptGetsTheCachesOrHasNoTime) {
  const std::vector<Arguments> turns = Turns(3);
  device_->Evict();
  const size_t held = state_->allocations.size();
  state_->fail_once["cuGraphInstantiate"] = 2;
  EXPECT_NEAR(Time(turns, 5).value(), 10e-6, 1e-9);
  EXPECT_EQ(Calls("cuGraphInstantiate"), 2);
  EXPECT_EQ(state_->allocations.size(), held - 1) << "what evicts";
  device_->Trim();
  state_->fail_once["cuGraphLaunch"] = 900;
  EXPECT_TRUE(absl::IsInternal(Time(turns, 5).status()));
  state_->fail_once["cuLaunchKernel"] = 2;
  EXPECT_TRUE(absl::IsResourceExhausted(Time(turns, 5).status()));
  EXPECT_TRUE(Time(turns, 5).ok());
}

TEST_F(CudaDeviceTest, LaunchesOfAKernelShareItsWorkspace) {
  const std::unique_ptr<Code> code = device_->Load({CodeOf({"stage", "unstage"}, 2, kBytes), {}}).value();
  EXPECT_EQ(code->scratch_bytes, kBytes);
  const std::unique_ptr<Block> arrays = Arrays(2), scratch = Arrays(1);
  ASSERT_TRUE(arrays->Write(0, Counted(7).data()).ok());
  ASSERT_TRUE(device_->Launch(*code, AddressesOf(*arrays), scratch->address(0)).ok());
  EXPECT_EQ(Read(*arrays, 1), Counted(7));
}

TEST_F(CudaDeviceTest, AKernelThatLeavesItsOutputIsFound) {
  const std::unique_ptr<Code> code = device_->Load({CodeOf({"overrun"}, 2), {}}).value();
  const std::unique_ptr<Block> arrays = Arrays(2);
  ASSERT_TRUE(device_->Launch(*code, AddressesOf(*arrays), nullptr).ok());
  EXPECT_TRUE(absl::IsDataLoss(arrays->CheckEdges()));
  ASSERT_TRUE(arrays->Fill(0).ok());
  EXPECT_TRUE(arrays->CheckEdges().ok()) << "edges are mended";
}

TEST_F(CudaDeviceTest, TheCacheIsEvictedByMemoryTwiceItsSize) {
  device_->Evict();
  int64_t most = 0;
  for (const auto& [address, bytes] : state_->allocations) most = std::max(most, bytes);
  EXPECT_EQ(most, 2 * device_->caches().shared);
  EXPECT_EQ(device_->caches().shared, 50 << 20);
  device_->Trim();
  EXPECT_EQ(state_->allocations.size(), kept_);
}

TEST_F(CudaDeviceTest, MemoryThatOthersHoldIsTold) {
  const int64_t free = std::exchange(state_->free_bytes, 1 << 20);
  const absl::Status status = device_->AllocatePacked(std::vector<int64_t>{2 << 20}, nullptr).status();
  state_->free_bytes = free;
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("1 of 1024 MiB are free"));
}

TEST_F(CudaDeviceTest, PackagesRunOnIt) {
  const std::string code = CodeOf({"add"}, 3);
  std::vector<float> a = Counted(0), b = Counted(1), sum(kElements);
  const std::vector<std::span<std::byte>> args{std::as_writable_bytes(std::span(a)),
                                               std::as_writable_bytes(std::span(b)),
                                               std::as_writable_bytes(std::span(sum))};
  const auto call = [&](std::string_view from, const char* symbol) {
    return CallOnDevice(kCudaDevice, from, symbol, args);
  };
  for (int i = 0; i < 2; ++i) {
    std::ranges::fill(sum, 0);
    ASSERT_EQ(call(code, "kernel"), TEMPER_OK) << kCudaDevice.error();
    for (size_t e = 0; e < kElements; ++e) EXPECT_EQ(sum[e], 1 + 2 * static_cast<float>(e));
  }
  EXPECT_STREQ(kCudaDevice.error(), "");
  EXPECT_EQ(state_->modules, 1) << "loaded once";
  kept_ = state_->allocations.size();  // a package's memory stays

  EXPECT_EQ(call(code, "other"), TEMPER_NO_PACKAGE);
  EXPECT_EQ(call(CodeOf({"add"}, 3, 0, "sm_100"), "kernel"), TEMPER_NO_PACKAGE);
  EXPECT_STREQ(kCudaDevice.error(), "the code is for sm_100, and Fake GPU 0 is sm_90: compile for cuda:sm_90");
  EXPECT_EQ(call("rubbish", "kernel"), TEMPER_NO_PACKAGE);
}

TEST_F(CudaDeviceTest, PackagesRepeatWhatTheyRecorded) {
  struct Steps {
    std::string code;
    DeviceArray in, out;
    static int32_t Run(void* closure) {
      auto* s = static_cast<Steps*>(closure);
      void* parts[] = {s->in.part(), s->out.part()};
      const temper_call call = {parts, nullptr, nullptr, nullptr, s};
      return kCudaDevice.launch(s->code.data(), std::ssize(s->code), "kernel", &call);
    }
  };
  Steps steps{CodeOf({"double"}, 2), {kCudaDevice, kBytes}, {kCudaDevice, kBytes}};
  std::vector<float> in = Counted(1), out(kElements);
  ASSERT_EQ(steps.in.Write(in.data()), TEMPER_OK);
  ASSERT_EQ(Steps::Run(&steps), TEMPER_OK) << kCudaDevice.error();
  void* recording = kCudaDevice.record(Steps::Run, &steps);
  ASSERT_NE(recording, nullptr) << kCudaDevice.error();
  in[0] = 21;
  ASSERT_EQ(steps.in.Write(in.data()), TEMPER_OK);
  ASSERT_EQ(kCudaDevice.replay(recording), TEMPER_OK);
  ASSERT_EQ(steps.out.Read(out.data()), TEMPER_OK);
  for (size_t e = 0; e < kElements; ++e) EXPECT_EQ(out[e], 2 * in[e]);
  kCudaDevice.forget(recording);
  EXPECT_EQ(state_->graphs, 0);
  EXPECT_EQ(kCudaDevice.record([](void*) { return int32_t{TEMPER_NO_RESOURCES}; }, nullptr), nullptr);
  EXPECT_EQ(state_->graphs, 0);
  EXPECT_EQ(Steps::Run(&steps), TEMPER_OK) << "it goes on without a recording";
}

TEST_F(CudaDeviceTest, PackagesTimeStepsByEvents) {
  struct Steps {
    std::string code;
    DeviceArray in, out;
    int32_t end;
    static int32_t Run(void* closure) {
      auto* s = static_cast<Steps*>(closure);
      void* parts[] = {s->in.part(), s->out.part()};
      const temper_call call = {parts, nullptr, nullptr, nullptr, s};
      const int32_t code = kCudaDevice.launch(s->code.data(), std::ssize(s->code), "kernel", &call);
      return code == TEMPER_OK ? s->end : code;
    }
  };
  Steps steps{CodeOf({"double"}, 2), {kCudaDevice, kBytes}, {kCudaDevice, kBytes}, TEMPER_OK};
  std::vector<float> in = Counted(1), out(kElements);
  ASSERT_EQ(steps.in.Write(in.data()), TEMPER_OK);
  const int records = state_->calls["cuEventRecord"];
  int64_t ns = 0;
  ASSERT_EQ(kCudaDevice.time(Steps::Run, &steps, &ns), TEMPER_OK) << kCudaDevice.error();
  EXPECT_GT(ns, 0);
  EXPECT_EQ(state_->calls["cuEventRecord"], records + 2);
  ASSERT_EQ(steps.out.Read(out.data()), TEMPER_OK);
  for (size_t e = 0; e < kElements; ++e) EXPECT_EQ(out[e], 2 * in[e]);
  state_->fail_once["cuLaunchKernel"] = 701;
  EXPECT_NE(kCudaDevice.time(Steps::Run, &steps, &ns), TEMPER_OK);
  EXPECT_THAT(kCudaDevice.error(), HasSubstr("more registers or shared memory"));
  steps.end = TEMPER_NO_PACKAGE;
  EXPECT_EQ(kCudaDevice.time(Steps::Run, &steps, &ns), TEMPER_NO_PACKAGE) << "what the steps say";
}

TEST(CudaDeviceDeathTest, AnErrorOfTheMemoryIsToldAndEndsNobody) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("TEMPER_CUDA", kFake, 1);
  const auto run = [] {
    void* library = dlopen(kFake, RTLD_NOW | RTLD_LOCAL);
    const std::unique_ptr<Device> device = FindBackend("cuda")->open(ParseDeviceSpec("cuda:0").value()).value();
    const std::unique_ptr<Code> code = device->Load({CodeOf({"number"}, 1), {}}).value();
    reinterpret_cast<fake_cuda::StateFn>(dlsym(library, "fake_cuda_state"))()->broken = 214;
    const absl::Status status = device->Launch(*code, {}, nullptr).status();
    std::exit(absl::IsInternal(status) && device->lost() ? 0 : 1);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
}

TEST(CudaDeviceDeathTest, AKernelThatLeavesItsMemoryEndsTheChild) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("TEMPER_CUDA", kFake, 1);
  const auto run = [] {
    const std::unique_ptr<Device> device = FindBackend("cuda")->open(ParseDeviceSpec("cuda:0").value()).value();
    const std::unique_ptr<Code> code = device->Load({CodeOf({"leave_memory"}, 1), {}}).value();
    device->Launch(*code, {}, nullptr).IgnoreError();
  };
  EXPECT_EXIT(run(), ::testing::KilledBySignal(SIGABRT), "a kernel left its memory");
}

}  // namespace
}  // namespace temper::worker
