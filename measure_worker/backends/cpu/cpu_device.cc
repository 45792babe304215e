#include "measure_worker/backends/cpu/cpu_device.h"

#include <algorithm>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/codegen.h"
#include "compiler/timing/timing.h"

namespace temper::worker {
namespace {

constexpr int64_t kLine = 64;

struct CpuCode : Code {
  std::unique_ptr<LoadedModule> module;
  temper_kernel entry = nullptr;
};

temper_kernel EntryOf(const Code& code) { return static_cast<const CpuCode&>(code).entry; }

double Seconds(int64_t ns) { return static_cast<double>(std::max<int64_t>(ns, 1)) * 1e-9; }

}  // namespace

absl::Status CpuDevice::Use(const Target& target) {
  TEMPER_RETURN_IF_ERROR(CheckRunsHere(target));
  if (pool_ == nullptr || launcher()->threads != target.threads()) {
    SetLauncher(nullptr);
    pool_.reset(temper_pool_create(target.threads()));
    if (pool_ == nullptr) return absl::UnavailableError(absl::StrCat("cannot start ", target.threads(), " threads"));
    SetLauncher(launcher());
  }
  target_ = target;
  return absl::OkStatus();
}

Caches CpuDevice::caches() const {
  const CpuTarget& t = *target_.cpu();
  return {.own = t.l2_bytes * t.threads, .shared = t.l3_bytes, .several = t.threads > 1};
}

absl::StatusOr<std::unique_ptr<Code>> CpuDevice::Load(const Artifact& artifact) {
  auto code = std::make_unique<CpuCode>();
  {
    static std::mutex mutex;  // LoadObject is not thread-safe
    std::lock_guard lock(mutex);
    TEMPER_ASSIGN_OR_RETURN(code->module, LoadObject(artifact.code));
  }
  const CompiledKernel& kernel = artifact.kernels.front();
  TEMPER_ASSIGN_OR_RETURN(void* entry, code->module->Symbol(kernel.symbol));
  code->entry = reinterpret_cast<temper_kernel>(entry);
  code->scratch_bytes = kernel.workspace_bytes + launcher()->threads * kernel.thread_workspace_bytes;
  return code;
}

absl::StatusOr<double> CpuDevice::Launch(const Code& code, const Arguments& arguments, void* scratch) {
  temper_pool_settle_caller(pool_.get());
  const int64_t start = MonotonicNs();
  const int32_t result = temper_call_on_host(EntryOf(code), arguments.data(), scratch, launcher());
  const int64_t ns = MonotonicNs() - start;
  if (result != 0) return absl::InternalError(absl::StrCat("the kernel returned ", result));
  return Seconds(ns);
}

absl::StatusOr<double> CpuDevice::Time(const Code& code, std::span<const Arguments> arguments, size_t& next,
                                       void* scratch, int64_t calls) {
  const temper_kernel entry = EntryOf(code);
  temper_launcher* const threads = launcher();
  temper_pool_settle_caller(pool_.get());
  const int64_t start = MonotonicNs();
  for (int64_t i = 0; i < calls; ++i) {
    temper_call_on_host(entry, arguments[next].data(), scratch, threads);
    if (++next == arguments.size()) next = 0;
  }
  return Seconds(MonotonicNs() - start);
}

void CpuDevice::Fetch(const Block& block, size_t array) {
  temper_pool_settle_caller(pool_.get());
  const volatile char* lines = static_cast<const char*>(block.address(array));
  for (int64_t b = 0; b < block.bytes(array); b += kLine) (void)lines[b];
}

void CpuDevice::HandOver(const Block& block, std::span<const size_t> arrays) {
  const auto write = [](void* closure, int64_t begin, int64_t end, int32_t) {
    volatile char* const lines = *static_cast<volatile char* const*>(closure);
    for (int64_t i = begin; i < end; ++i) lines[i * kLine] = lines[i * kLine];
  };
  for (const size_t array : arrays) {
    void* first = block.address(array);
    launcher()->parallel_for(launcher(), (block.bytes(array) + kLine - 1) / kLine, write, &first);
  }
}

void CpuDevice::Evict() {
  const Caches c = caches();
  evicting_.resize(static_cast<size_t>(std::max(2 * c.own, c.shared + c.shared / 2)));
  for (size_t b = 0; b < evicting_.size(); b += kLine) ++evicting_[b];
}

absl::StatusOr<std::unique_ptr<Device>> OpenCpu(const DeviceSpec&) { return std::make_unique<CpuDevice>(); }

}  // namespace temper::worker
