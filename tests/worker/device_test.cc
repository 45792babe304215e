// Devices: what --device means, and taking turns on the same cores.
#include "measure_worker/host/cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "measure_worker/backends/cpu/fingerprint.h"
#include "measure_worker/host/gpu_files.h"

namespace temper::worker {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(DeviceSpec, ReadsCoresAndWritesThem) {
  auto spec = ParseDeviceSpec("cpu:8,0-2,2");
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->backend, "cpu");
  EXPECT_THAT(spec->cores, ElementsAre(0, 1, 2, 8));
  EXPECT_EQ(CoreListText(spec->cores), "0-2,8");
  EXPECT_EQ(CoreListText({3}), "3");
  EXPECT_EQ(CoreListText({}), "");
  EXPECT_EQ(Text(*spec), "cpu:8,0-2,2");
  EXPECT_TRUE(ParseDeviceSpec("null")->cores.empty());
  EXPECT_EQ(Text(*ParseDeviceSpec("null")), "null");
}

TEST(DeviceSpec, SaysWhatIsWrong) {
  for (const char* bad : {"cpu:", "cpu:a", "cpu:3-1", "cpu:-1", "cpu:0-", "cpu:0,,1", "cpu:0-99999"}) {
    const auto spec = ParseDeviceSpec(bad);
    ASSERT_FALSE(spec.ok()) << bad;
    EXPECT_THAT(std::string(spec.status().message()), HasSubstr("core")) << bad;
  }
  EXPECT_THAT(std::string(ParseDeviceSpec("tpu").status().message()), HasSubstr("there are: cpu"));
}

TEST(Cores, BindingToCoresThatAreNotThereIsRefused) {
  const std::vector<int> before = AffinityCores();
  EXPECT_FALSE(BindToCores({1000}).ok());
  EXPECT_FALSE(BindToCores({before[0], 1000}).ok());
  EXPECT_TRUE(BindToCores(before).ok());
  EXPECT_EQ(AffinityCores(), before);
}

class TemporaryDirectoryTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "/temper_device_test_" + std::to_string(getpid());
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string directory_;
};
using CoreLockTest = TemporaryDirectoryTest;
using FingerprintTest = TemporaryDirectoryTest;
using GpuFilesTest = TemporaryDirectoryTest;

constexpr auto kNever = [] { return false; };
constexpr auto kAtOnce = [] { return true; };

TEST_F(CoreLockTest, IsHeldByOneAndOnlyForItsCores) {
  CoreLock a(directory_, {0, 1}), b(directory_, {0, 1}), c(directory_, {2});
  ASSERT_TRUE(a.Acquire(kNever));
  EXPECT_FALSE(b.Acquire(kAtOnce));
  EXPECT_TRUE(c.Acquire(kAtOnce));
  a.Release();
  EXPECT_TRUE(b.Acquire(kAtOnce));
}

TEST_F(CoreLockTest, WhoSharesSomeOfTheCoresIsKeptOut) {
  CoreLock low(directory_, {0, 1}), high(directory_, {1, 2}), all(directory_, {0, 1, 2, 3}), third(directory_, {3});
  ASSERT_TRUE(low.Acquire(kNever));
  EXPECT_FALSE(high.Acquire(kAtOnce));
  EXPECT_FALSE(all.Acquire(kAtOnce));
  EXPECT_TRUE(third.Acquire(kAtOnce));
  low.Release();
  EXPECT_FALSE(all.Acquire(kAtOnce)) << "the last of its cores is taken";
  EXPECT_TRUE(high.Acquire(kAtOnce)) << "and it lets go of those that it had";
  EXPECT_FALSE(low.Acquire(kAtOnce)) << "they share one";
}

TEST_F(CoreLockTest, WhoWaitsGoesBeforeWhoJustMeasured) {
  CoreLock greedy(directory_, {0}), patient(directory_, {0});
  ASSERT_TRUE(greedy.Acquire(kNever));
  std::atomic<bool> waits{false}, had_it{false};
  std::thread other([&] {
    // Asked whether to give up, it has found the lock taken: it is in the queue.
    EXPECT_TRUE(patient.Acquire([&] {
      waits = true;
      waits.notify_all();
      return false;
    }));
    had_it = true;
    patient.Release();
  });
  waits.wait(false);
  greedy.Release();
  ASSERT_TRUE(greedy.Acquire(kNever));
  EXPECT_TRUE(had_it);
  greedy.Release();
  other.join();
}

TEST_F(CoreLockTest, WithoutADirectoryNothingIsLocked) {
  CoreLock lock(directory_ + "/missing", {0});
  EXPECT_TRUE(lock.Acquire(kNever));
}

TEST_F(GpuFilesTest, AreThoseOfAllGpusThatThereAre) {
  for (const char* name : {"nvidia0", "nvidia8", "nvidia12", "nvidia-modeset", "nvidia", "nvidia1x", "sda1"})
    std::ofstream(directory_ + "/" + name) << "";
  const std::vector<std::string> files = GpuFilesIn(directory_);
  for (const char* name : {"nvidia0", "nvidia8", "nvidia12", "nvidiactl", "nvidia-uvm"})
    EXPECT_THAT(files, Contains(directory_ + "/" + name));
  for (const char* name : {"nvidia1", "nvidia-modeset", "nvidia", "nvidia1x", "sda1"})
    EXPECT_THAT(files, Not(Contains(directory_ + "/" + name)));
}

TEST_F(GpuFilesTest, AreForTheDriversOfGpusAlone) {
  for (const BackendDef& backend : AllBackends())
    EXPECT_EQ(backend.driver_files != nullptr, backend.name == "cuda" || backend.name == "opencl") << backend.name;
}

TEST_F(FingerprintTest, StaysTheSameFromStartToStart) {
  const std::string first = Fingerprint(directory_);
  EXPECT_THAT(first, HasSubstr("GFLOP/s"));
  EXPECT_THAT(first, HasSubstr("threads; L1 "));
  EXPECT_EQ(Fingerprint(directory_), first);
  // It is read, not measured again: another peak on file is believed.
  for (const auto& file : std::filesystem::directory_iterator(directory_)) {
    std::ofstream(file.path()) << first << "!\n";
  }
  EXPECT_EQ(Fingerprint(directory_), first + "!");
  EXPECT_THAT(Fingerprint(""), HasSubstr("GB/s"));
}

}  // namespace
}  // namespace temper::worker
