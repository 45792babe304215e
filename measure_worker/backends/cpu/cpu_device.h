// The CPU that this process runs on: kernels through LLVM into this process, on the pinned thread pool that packages
// use too.
#pragma once

#include "compiler/runtime/thread_pool.h"
#include "compiler/target/target.h"
#include "measure_worker/backend.h"
#include "measure_worker/host/host_device.h"

namespace temper::worker {

class CpuDevice : public HostDevice {
 public:
  // kUnavailable too: the target's threads can not be started.
  absl::Status Use(const Target& target) override;
  const Target& target() const override { return target_; }
  Caches caches() const override;
  absl::StatusOr<std::unique_ptr<Code>> Load(const Artifact& artifact) override;
  absl::StatusOr<double> Launch(const Code& code, const Arguments& arguments, void* scratch) override;
  absl::StatusOr<double> Time(const Code& code, std::span<const Arguments> arguments, size_t& next, void* scratch,
                              int64_t calls) override;
  void Fetch(const Block& block, size_t array) override;
  void HandOver(const Block& block, std::span<const size_t> arrays) override;
  void Evict() override;

  temper_launcher* launcher() const { return temper_pool_launcher(pool_.get()); }  // after Use

 private:
  struct DestroyPool {
    void operator()(temper_pool* pool) const { temper_pool_destroy(pool); }
  };
  Target target_;
  std::unique_ptr<temper_pool, DestroyPool> pool_;
  std::vector<char> evicting_;  // larger than the caches
};

absl::StatusOr<std::unique_ptr<Device>> OpenCpu(const DeviceSpec& spec);  // BackendDef::open

}  // namespace temper::worker
