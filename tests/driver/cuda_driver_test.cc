// The CUDA driver's side of Temper against a driver that plays a GPU on the host: what it says of devices, memory,
// launches, errors, and that all is given back. Nothing here needs a GPU.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdio>
#include <limits>
#include <numeric>
#include <thread>

#include "compiler/driver/cuda.h"
#include "compiler/driver/cuda_api.h"
#include "compiler/driver/nvml.h"
#include "compiler/driver/program.h"
#include "tests/driver/fake_cuda.h"

namespace temper::cuda {
namespace {

using fake_cuda::State;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kFake[] = TEMPER_BINARY_DIR "/tests/libfake_cuda.so";

void NameTheFake() {
  setenv("TEMPER_CUDA", kFake, 1);
  setenv("TEMPER_NVML", kFake, 1);
}

driver::Code CodeOf(std::string image, std::string arch = "sm_90") {
  return {{std::move(image)}, std::move(arch), 12000};
}

class CudaDriverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    NameTheFake();
    void* library = dlopen(kFake, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    state_ = reinterpret_cast<fake_cuda::StateFn>(dlsym(library, "fake_cuda_state"))();
    const absl::StatusOr<Session*> session = Open(0);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *session;
    state_->launches.clear();
  }
  void TearDown() override {
    state_->broken = 0;
    EXPECT_TRUE(state_->allocations.empty()) << "memory was not given back";
    EXPECT_EQ(state_->modules, 0) << "code was not given back";
    EXPECT_EQ(state_->pushed, 0) << "a context was left on the stack";
    EXPECT_EQ(state_->contexts_retained, 1);
    EXPECT_EQ(state_->events, 2);
    EXPECT_EQ(state_->streams, 1) << "a stream was not given back";
    EXPECT_EQ(state_->graphs, 0) << "a graph was not given back";
  }

  driver::Memory Floats(const std::vector<float>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
    driver::Memory memory = session_->Allocate(bytes).value();
    EXPECT_TRUE(session_->Write(memory.get(), 0, values.data(), bytes).ok());
    return memory;
  }
  std::vector<float> Values(const driver::Memory& memory, size_t count) {
    std::vector<float> values(count);
    EXPECT_TRUE(session_->Read(memory.get(), 0, values.data(), static_cast<int64_t>(count * sizeof(float))).ok());
    return values;
  }
  absl::StatusOr<double> RunOnce(const driver::Function& function, driver::LaunchShape shape,
                                 std::vector<void*> arguments) {
    return session_->Run(1, [&](int64_t) { return driver::LaunchCall{&function, shape, arguments}; });
  }

  State* state_ = nullptr;
  Session* session_ = nullptr;
};

TEST_F(CudaDriverTest, SaysWhatTheGpuIs) {
  const DeviceInfo info = Describe(0).value();
  EXPECT_EQ(info.name, "Fake GPU 0");
  EXPECT_EQ(info.uuid, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
  EXPECT_EQ(info.arch, "sm_90");
  EXPECT_EQ(info.driver, 12090);
  EXPECT_EQ(info.memory_bytes, int64_t{1} << 30);
  EXPECT_EQ(info.cache_bytes, 50 << 20);
  EXPECT_EQ(info.shared_bytes, 227 << 10);
  EXPECT_EQ(info.shared_bytes_multiprocessor, 228 << 10);
  EXPECT_EQ(info.registers_multiprocessor, 65536);
  EXPECT_EQ(info.multiprocessors, 132);
  EXPECT_EQ(info.group_threads, 1024);
  EXPECT_EQ(info.warp_width, 32);
  EXPECT_THAT(std::string(Describe(1).status().message()), HasSubstr("there is no GPU 1"));
  EXPECT_EQ(Open(0).value(), session_) << "the same session each time";
}

TEST_F(CudaDriverTest, MemoryIsWrittenCopiedFilledAndGivenBack) {
  const driver::Memory a = Floats({1, 2, 3}), b = Floats({0, 0, 0});
  ASSERT_TRUE(session_->Copy(a.get(), 0, b.get(), 0, 12).ok());
  EXPECT_THAT(Values(b, 3), ElementsAre(1, 2, 3));
  const driver::Memory part = session_->Part(b, 4, 8).value();
  ASSERT_TRUE(session_->Fill(part.get(), 0, 0, 4).ok());
  ASSERT_TRUE(session_->Fill(b.get(), 8, 0, 4).ok());
  EXPECT_THAT(Values(b, 3), ElementsAre(1, 0, 0));
  EXPECT_EQ(state_->allocations.size(), 2u) << "a part is no allocation";
  ASSERT_TRUE(session_->Write(b.get(), 0, a.get(), 8).ok()) << "a caller's data may be there already";
  EXPECT_THAT(Values(b, 3), ElementsAre(1, 2, 0));
  EXPECT_FALSE(session_->Write(b.get(), 8, "too much", 8).ok());
  EXPECT_TRUE(session_->Write(b.get(), 0, nullptr, 0).ok());
}

TEST_F(CudaDriverTest, OutOfMemorySaysHowMuchIsFree) {
  const int64_t free = state_->free_bytes;
  state_->free_bytes = int64_t{100} << 20;
  const absl::Status status = session_->Allocate(int64_t{200} << 20).status();
  state_->free_bytes = free;
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_EQ(status.message(),
            "Fake GPU 0 has no 200 MiB: 100 of 1024 MiB are free; nvidia-smi tells who holds the others");
}

TEST_F(CudaDriverTest, LaunchesHaveTheirGeometryAndArguments) {
  const std::vector<driver::Function> functions =
      session_->Build(CodeOf("fake sm_90 number add"), std::vector<std::string>{"add", "number"}).value();
  const driver::LaunchShape shape{{3, 2, 2}, {4, 2, 1}};
  const driver::Memory out = session_->Allocate(96 * 4).value();
  const absl::StatusOr<double> seconds = RunOnce(functions[1], shape, {out.get()});
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  EXPECT_GT(*seconds, 0);
  std::vector<uint32_t> got(96), want(96);
  std::iota(want.begin(), want.end(), 0u);
  ASSERT_TRUE(session_->Read(out.get(), 0, got.data(), 96 * 4).ok());
  EXPECT_EQ(got, want);
  ASSERT_EQ(state_->launches.size(), 1u);
  EXPECT_THAT(state_->launches[0].grid, ElementsAre(3, 2, 2));
  EXPECT_THAT(state_->launches[0].block, ElementsAre(4, 2, 1));

  const driver::Memory a = Floats({1, 2}), b = Floats({10, 20}), sum = Floats({0, 0});
  ASSERT_TRUE(RunOnce(functions[0], {{1, 1, 1}, {2, 1, 1}}, {a.get(), b.get(), sum.get()}).ok());
  EXPECT_THAT(Values(sum, 2), ElementsAre(11, 22));
}

TEST_F(CudaDriverTest, LaunchesGetTheSharedMemoryThatTheyAskFor) {
  const std::vector<driver::Function> functions =
      session_->Build(CodeOf("fake sm_90 double"), std::vector<std::string>{"double"}).value();
  const driver::Memory in = Floats({1}), out = Floats({0});
  for (const int64_t bytes : {int64_t{100} << 10, int64_t{227} << 10}) {
    const auto run = RunOnce(functions[0], {{1, 1, 1}, {1, 1, 1}, bytes}, {in.get(), out.get()});
    EXPECT_TRUE(run.ok()) << run.status();
    EXPECT_EQ(state_->launches.back().shared_bytes, bytes);
  }
  EXPECT_FALSE(RunOnce(functions[0], {{1, 1, 1}, {1, 1, 1}, 228 << 10}, {in.get(), out.get()}).ok());
  EXPECT_FALSE(RunOnce(functions[0], {{1, 1, 1}, {2048, 1, 1}}, {in.get(), out.get()}).ok());
  EXPECT_FALSE(session_->lost()) << "a launch that is refused breaks nothing";
}

TEST_F(CudaDriverTest, TheFirstImageThatRunsIsTaken) {
  driver::Code code = CodeOf("fake sm_80 double");
  const std::vector<std::string> names{"double"};
  const absl::Status other = session_->Build(code, names).status();
  EXPECT_FALSE(other.ok());
  code.images.push_back("fake ptx sm_80 double");
  EXPECT_TRUE(session_->Build(code, names).ok());
  EXPECT_THAT(std::string(session_->Build(code, std::vector<std::string>{"triple"}).status().message()),
              HasSubstr("no such function"));
}

TEST_F(CudaDriverTest, CodeForAnotherArchitectureIsRefusedInOneLine) {
  const absl::Status status =
      session_->Build(CodeOf("fake sm_100 double", "sm_100"), std::vector<std::string>{"double"}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(status.message(), "the code is for sm_100, and Fake GPU 0 is sm_90: compile for cuda:sm_90");
}

TEST_F(CudaDriverTest, CodeThatIsTooNewNamesBothVersions) {
  driver::Code code = CodeOf("fake sm_90 double");
  code.least_driver = 13000;
  const std::vector<std::string> names{"double"};
  EXPECT_TRUE(session_->Build(code, names).ok()) << "the driver takes it all the same";
  state_->fail_once["cuModuleLoadDataEx"] = kUnsupportedPtxVersion;
  const absl::Status status = session_->Build(code, names).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(status.message(), "the NVIDIA driver is for CUDA 12.9, and the code needs one for 13.0 or later");
}

TEST_F(CudaDriverTest, DamagedCodeHasTheDriversFirstLine) {
  const std::string line(session_->Build(CodeOf("rubbish"), std::vector<std::string>{"double"}).status().message());
  EXPECT_THAT(line, HasSubstr("damaged"));
  EXPECT_THAT(line, HasSubstr("this is no image"));
  EXPECT_THAT(line, Not(HasSubstr("\n")));
}

struct Told {
  Result code;
  const char* line;
};

TEST_F(CudaDriverTest, EveryErrorIsALine) {
  for (const Told& told : {Told{kInvalidValue, "no such value"}, Told{kDeviceUnavailable, "for itself"},
                           Told{kLaunchOutOfResources, "more registers"}, Told{kNotPermitted, "not permitted"},
                           Told{kOperatingSystem, "operating system"}, Told{static_cast<Result>(805), "error 805"}}) {
    state_->fail_once["cuMemAlloc"] = told.code;
    const absl::Status status = session_->Allocate(4).status();
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(told.line));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("\n")));
  }
  for (const char* call : {"cuMemcpyAsync", "cuStreamSynchronize", "cuCtxPushCurrent"}) {
    const driver::Memory memory = session_->Allocate(4).value();
    state_->fail_once[call] = kInvalidValue;
    EXPECT_FALSE(session_->Write(memory.get(), 0, "abc", 4).ok()) << call;
  }
}

TEST_F(CudaDriverTest, WhatIsNotSupportedIsToldApart) {
  state_->fail_once["cuMemAlloc"] = kNotSupported;
  const absl::Status status = session_->Allocate(4).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_FALSE(session_->lost());
}

TEST(CudaLoss, AKernelIsBlamedForWhatItBroke) {
  using driver::Loss;
  for (const int code : {700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 999})
    EXPECT_EQ(LossOf(static_cast<Result>(code)), Loss::kByKernel) << code;
  for (const int code : {214, 220, 226, 709, 810})
    EXPECT_EQ(LossOf(static_cast<Result>(code)), Loss::kByMachine) << code;
  for (const int code : {0, 1, 2, 46, 200, 209, 218, 222, 500, 701, 720, 800, 801, 803})
    EXPECT_EQ(LossOf(static_cast<Result>(code)), Loss::kNone) << code;
}

TEST_F(CudaDriverTest, ManyLaunchesAreTimedTogether) {
  const std::vector<driver::Function> functions =
      session_->Build(CodeOf("fake sm_90 double"), std::vector<std::string>{"double"}).value();
  driver::Memory in = Floats({1}), out = Floats({0});
  std::vector<void*> there{in.get(), out.get()}, back{out.get(), in.get()};
  const int records = state_->calls["cuEventRecord"];
  const auto seconds = session_->Run(10, [&](int64_t i) {
    return driver::LaunchCall{&functions[0], {{1, 1, 1}, {1, 1, 1}}, i % 2 == 0 ? there : back};
  });
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  EXPECT_THAT(Values(in, 1), ElementsAre(1024)) << "each takes what the one before made";
  EXPECT_EQ(state_->calls["cuEventRecord"], records + 2) << "two events for all of them";
}

// out = 2 * in, a copy of it, and then zero in its first element.
class CudaRecordTest : public CudaDriverTest {
 protected:
  absl::Status Steps() {
    const std::vector<void*> arguments{in_.get(), out_.get()};
    TEMPER_RETURN_IF_ERROR(session_->Submit(1, [&](int64_t) {
      return driver::LaunchCall{&functions_[0], {{1, 1, 1}, {2, 1, 1}}, arguments};
    }));
    TEMPER_RETURN_IF_ERROR(session_->Copy(out_.get(), 0, copy_.get(), 0, 8));
    return session_->Fill(out_.get(), 0, 0, 4);
  }
  absl::StatusOr<driver::Recording> Record() {
    return session_->Record([&] { return Steps(); });
  }
  void SetUp() override {
    CudaDriverTest::SetUp();
    functions_ = session_->Build(CodeOf("fake sm_90 double"), std::vector<std::string>{"double"}).value();
    in_ = Floats({1, 2}), out_ = Floats({0, 0}), copy_ = Floats({0, 0});
  }
  void TearDown() override {
    functions_.clear();
    in_ = {}, out_ = {}, copy_ = {};
    CudaDriverTest::TearDown();
  }

  std::vector<driver::Function> functions_;
  driver::Memory in_, out_, copy_;
};

TEST_F(CudaRecordTest, WhatIsRecordedIsDoneAtEachReplayAndNotBefore) {
  const driver::Recording recording = Record().value();
  EXPECT_TRUE(state_->launches.empty());
  EXPECT_THAT(Values(copy_, 2), ElementsAre(0, 0));
  functions_.clear();
  EXPECT_EQ(state_->modules, 1) << "its code stays";
  for (const float first : {1.0f, 5.0f}) {
    ASSERT_TRUE(session_->Write(in_.get(), 0, &first, 4).ok());
    state_->calls.clear();
    ASSERT_TRUE(session_->Replay(recording).ok());
    EXPECT_EQ(state_->calls["cuGraphLaunch"], 1);
    EXPECT_EQ(state_->calls["cuLaunchKernel"], 0);
    EXPECT_THAT(Values(out_, 2), ElementsAre(0, 4));
    EXPECT_THAT(Values(copy_, 2), ElementsAre(2 * first, 4));
  }
}

TEST_F(CudaRecordTest, AReplayIsTimedToItsEnd) {
  const driver::Recording recording = Record().value();
  const auto time = [&] { return session_->Time([&] { return session_->Replay(recording); }); };
  state_->calls.clear();
  const absl::StatusOr<double> seconds = time();
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  EXPECT_GT(*seconds, 0);
  EXPECT_THAT(Values(copy_, 2), ElementsAre(2, 4));
  EXPECT_EQ(state_->calls["cuEventRecord"], 2);
  for (const char* call : {"cuEventRecord", "cuGraphLaunch", "cuEventSynchronize", "cuEventElapsedTime"}) {
    state_->fail_once[call] = kInvalidValue;
    EXPECT_FALSE(time().ok()) << call;
  }
  EXPECT_TRUE(time().ok());
  const absl::Status own = session_->Time([] { return absl::AbortedError("stop"); }).status();
  EXPECT_TRUE(absl::IsAborted(own)) << own;
}

TEST_F(CudaRecordTest, WhatFailsLeavesNothingBehindAndTheSessionAsItWas) {
  for (const char* call : {"cuCtxPushCurrent", "cuStreamCreate", "cuStreamBeginCapture", "cuLaunchKernel",
                           "cuMemcpyAsync", "cuStreamEndCapture", "cuGraphInstantiate"}) {
    state_->fail_once[call] = kInvalidValue;
    EXPECT_FALSE(Record().ok()) << call;
    EXPECT_EQ(state_->streams, 1) << call;
    EXPECT_EQ(state_->graphs, 0) << call;
    EXPECT_TRUE(state_->launches.empty()) << call;
  }
  const absl::Status own = session_->Record([] { return absl::AbortedError("stop"); }).status();
  EXPECT_TRUE(absl::IsAborted(own)) << own;
  const absl::Status nested = session_->Record([&] { return Record().status(); }).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(nested)) << nested;
  EXPECT_FALSE(session_->lost());
  EXPECT_TRUE(Steps().ok());
  EXPECT_THAT(Values(copy_, 2), ElementsAre(2, 4));
  const driver::Recording recording = Record().value();
  state_->fail_once["cuGraphLaunch"] = kOutOfMemory;
  EXPECT_TRUE(absl::IsResourceExhausted(session_->Replay(recording)));
  EXPECT_TRUE(session_->Replay(recording).ok());
}

TEST_F(CudaRecordTest, OtherThreadsGoOnMeanwhile) {
  const driver::Memory other = Floats({3, 4});
  const driver::Recording recording = session_
                                          ->Record([&] {
                                            std::thread([&] {
                                              EXPECT_TRUE(session_->Fill(other.get(), 0, 0, 4).ok());
                                              EXPECT_THAT(Values(other, 2), ElementsAre(0, 4));
                                            }).join();
                                            return Steps();
                                          })
                                          .value();
  const float first = 7;
  ASSERT_TRUE(session_->Write(other.get(), 0, &first, 4).ok());
  ASSERT_TRUE(session_->Replay(recording).ok());
  EXPECT_THAT(Values(other, 2), ElementsAre(7, 4)) << "the other thread's work is none of the recording's";
}

TEST_F(CudaDriverTest, ArchitecturesRunWhatTheyCan) {
  DeviceInfo info{.name = "a GPU"};
  const auto runs = [&](const char* device, const char* code, bool ptx) {
    info.arch = device;
    return CheckArch(code, info, ptx).ok();
  };
  EXPECT_TRUE(runs("sm_90", "sm_90", false));
  EXPECT_TRUE(runs("sm_89", "sm_80", false));
  EXPECT_FALSE(runs("sm_80", "sm_89", false));
  EXPECT_FALSE(runs("sm_90", "sm_80", false));
  EXPECT_TRUE(runs("sm_90", "sm_80", true));
  EXPECT_TRUE(runs("sm_90", "sm_90a", true));
  EXPECT_FALSE(runs("sm_100", "sm_90a", true)) << "code for one architecture alone has no future";
  EXPECT_TRUE(runs("sm_103", "sm_100f", false));
  EXPECT_FALSE(runs("sm_120", "sm_100f", true));
  EXPECT_FALSE(runs("sm_90", "gibberish", true));
}

TEST_F(CudaDriverTest, NvmlTellsClocksAndTemperature) {
  const std::optional<nvml::State> state = nvml::Look(Describe(0)->uuid);
  ASSERT_TRUE(state.has_value());
  EXPECT_EQ(nvml::Text(*state), "1980 MHz, memory 2619 MHz, 45 C, 1024 MiB free");
  EXPECT_FALSE(nvml::Look("GPU-of another machine").has_value());
  EXPECT_EQ(nvml::DriverText(), "575.57.08");
}

// --- processes of their own: a driver is loaded once, and a broken context stays broken

class CudaDriverDeathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    NameTheFake();
  }
};

// Ends the process with what opening the GPU says, as the one line of stderr.
[[noreturn]] void OpenAndTell(std::vector<std::pair<const char*, const char*>> variables) {
  for (const auto& [name, value] : variables) setenv(name, value, 1);
  const absl::Status status = Open(0).status();
  std::fprintf(stderr, "<%s>", std::string(status.message()).c_str());
  std::exit(status.ok() ? 1 : 0);
}

TEST_F(CudaDriverDeathTest, WithoutADriverThatDoesThereIsOneLine) {
  const auto ended = ::testing::ExitedWithCode(0);
  EXPECT_EXIT(OpenAndTell({{"TEMPER_CUDA", "/nowhere/libcuda.so.1"}}), ended,
              "<there is no NVIDIA driver here: cannot load /nowhere/libcuda.so.1; [^\n]*525 on>");
  EXPECT_EXIT(OpenAndTell({{"FAKE_CUDA_DRIVER", "11080"}}), ended,
              "<the NVIDIA driver is for CUDA 11.8: it has to be for 12.0 or later, which is driver 525>");
  EXPECT_EXIT(OpenAndTell({{"FAKE_CUDA_INIT", "100"}}), ended, "<the NVIDIA driver finds no GPU here>");
  EXPECT_EXIT(OpenAndTell({{"FAKE_CUDA_INIT", "803"}}), ended, "<the GPU cannot start: [^\n]*restart the machine>");
  EXPECT_EXIT(OpenAndTell({{"FAKE_CUDA_GPUS", "0"}}), ended, "<the NVIDIA driver finds no GPU here>");
}

TEST_F(CudaDriverDeathTest, AnotherProcessThatHoldsTheMemoryIsTold) {
  const auto open = [] {
    void* library = dlopen(kFake, RTLD_NOW | RTLD_LOCAL);
    State* state = reinterpret_cast<fake_cuda::StateFn>(dlsym(library, "fake_cuda_state"))();
    state->fail_once["cuDevicePrimaryCtxRetain"] = kOutOfMemory;
    state->free_bytes = 7 << 20;
    OpenAndTell({});
  };
  EXPECT_EXIT(open(), ::testing::ExitedWithCode(0),
              "<Fake GPU 0 has no memory for one more process: 7 MiB are free; nvidia-smi tells who holds it>");
}

TEST_F(CudaDriverDeathTest, AnErrorOfTheMemoryIsNoKernelsFault) {
  const auto run = [] {
    Session* session = Open(0).value();
    State* state =
        reinterpret_cast<fake_cuda::StateFn>(dlsym(dlopen(kFake, RTLD_NOW | RTLD_LOCAL), "fake_cuda_state"))();
    state->broken = 214;
    const absl::Status status = session->Build(CodeOf("fake sm_90 add"), std::vector<std::string>{"add"}).status();
    std::fprintf(stderr, "<%s>", std::string(status.message()).c_str());
    std::exit(session->loss() == driver::Loss::kByMachine ? 0 : 1);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "<the GPU cannot load the code: error 214>");
}

TEST_F(CudaDriverDeathTest, AKernelThatLeavesItsMemoryBreaksTheSession) {
  const auto run = [] {
    Session* session = Open(0).value();
    const std::vector<driver::Function> functions =
        session->Build(CodeOf("fake sm_90 leave_memory"), std::vector<std::string>{"leave_memory"}).value();
    const absl::Status status =
        session->Run(1,
                     [&](int64_t) {
                       return driver::LaunchCall{&functions[0], {{1, 1, 1}, {1, 1, 1}}, {}};
                     })
            .status();
    std::fprintf(stderr, "<%s>", std::string(status.message()).c_str());
    std::exit(session->loss() == driver::Loss::kByKernel ? 0 : 1);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "<the GPU cannot [^\n]*: a kernel left its memory>");
}

}  // namespace
}  // namespace temper::cuda
