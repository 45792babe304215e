// How the measuring protocol takes lack of memory, on a device that may lack it.
#include "measure_worker/kernels/kernel_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/ops/template.h"
#include "measure_worker/backends/cpu/cpu_device.h"

namespace temper::worker {
namespace {

using testing::HasSubstr;

constexpr char kSmall[] = "(f32[8,8], f32[8,8]) add(0,1) -> f32[8,8]; anchor=0";
constexpr char kOther[] = "(f32[8,9], f32[8,9]) add(0,1) -> f32[8,9]; anchor=0";
constexpr char kLarge[] = "(f32[900,900], f32[900,900]) add(0,1) -> f32[900,900]; anchor=0";

// The CPU, but its memory is short, and may be others'.
class ShortDevice : public CpuDevice {
 public:
  int64_t memory_bytes() const override { return 8 << 20; }
  bool shares_memory() const override { return shares; }
  absl::StatusOr<std::unique_ptr<Block>> AllocateGuarded(std::span<const int64_t> bytes) override {
    if (refusals > 0) return --refusals, absl::ResourceExhaustedError("others hold the memory");
    return CpuDevice::AllocateGuarded(bytes);
  }
  absl::StatusOr<std::unique_ptr<Code>> Load(const Artifact& artifact) override {
    if (refused_loads > 0) return --refused_loads, absl::ResourceExhaustedError("others hold the memory");
    auto code = CpuDevice::Load(artifact);
    if (code.ok() && scratch_bytes > 0) (*code)->scratch_bytes = scratch_bytes;
    return code;
  }
  void Trim() override {
    ++trimmed;
    CpuDevice::Trim();
  }

  bool shares = true;
  int refusals = 0, refused_loads = 0, trimmed = 0;
  int64_t scratch_bytes = 0;  // of what is loaded
};

class KernelBenchTest : public testing::Test {
 protected:
  KernelBenchTest() {
    auto device = std::make_unique<ShortDevice>();
    device_ = device.get();
    kernels_ = std::make_unique<DeviceKernels>(std::move(device));
  }
  absl::Status Prepare(const char* workload) {
    BatchWork work;
    work.target = Text(HostTarget());
    work.workload = workload;
    return kernels_->Prepare(work);
  }
  absl::Status Build(const char* workload) {
    const Choice choice = DefaultChoice(ParseWorkload(workload).value(), HostTarget()).value();
    return kernels_->Build({.template_name = std::string(choice.def->name), .config = Text(choice.config)}).status();
  }

  ShortDevice* device_ = nullptr;
  std::unique_ptr<DeviceKernels> kernels_;
};

TEST_F(KernelBenchTest, OnlyWhatIsTooLargeIsUnfit) {
  EXPECT_TRUE(absl::IsResourceExhausted(Prepare(kLarge)));
  EXPECT_EQ(device_->trimmed, 0) << "no room helps";
  ASSERT_TRUE(Prepare(kSmall).ok());
  device_->refusals = 1;
  EXPECT_TRUE(Prepare(kOther).ok()) << "there is room once the other workload is forgotten";
  EXPECT_EQ(device_->trimmed, 1);
  device_->refusals = 2;
  const absl::Status status = Prepare(kSmall);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("others hold the memory"));
  EXPECT_TRUE(Prepare(kSmall).ok()) << "they gave it back";
  device_->shares = false;
  device_->refusals = 2;
  EXPECT_TRUE(absl::IsResourceExhausted(Prepare(kOther))) << "nobody will";
}

TEST_F(KernelBenchTest, CodeThatFindsNoMemoryIsLoadedAgainAndIsNoBuildThatFailed) {
  ASSERT_TRUE(Prepare(kSmall).ok());
  device_->refused_loads = 1;
  EXPECT_TRUE(Build(kSmall).ok());
  EXPECT_EQ(device_->trimmed, 1);
  ASSERT_TRUE(Prepare(kOther).ok());
  device_->refused_loads = 2;
  EXPECT_TRUE(absl::IsResourceExhausted(Build(kOther)));
}

TEST_F(KernelBenchTest, AKernelWhoseScratchNeverFitsIsRefused) {
  ASSERT_TRUE(Prepare(kSmall).ok());
  device_->scratch_bytes = 5 << 20;
  const absl::Status status = Build(kSmall);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("its scratch takes 5 MiB"));
}

}  // namespace
}  // namespace temper::worker
