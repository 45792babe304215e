#include "measure_worker/backends/interpreter/interpreter_device.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/codegen.h"
#include "compiler/timing/timing.h"
#include "measure_worker/backends/cpu/cpu_device.h"

namespace temper::worker {
namespace {

constexpr char kGenerator[] = "interpreter";

absl::Status CheckIsOurs(const Target& target) {
  if (target.generator == kGenerator) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the interpreter runs no code for ", target.generator, " targets"));
}

struct InterpreterCode : Code {
  std::string text, symbol;
};

class InterpreterDevice : public HostDevice {
 public:
  absl::Status Use(const Target& target) override {
    TEMPER_RETURN_IF_ERROR(CheckIsOurs(target));
    TEMPER_ASSIGN_OR_RETURN(generator_, GeneratorFor(target));
    TEMPER_RETURN_IF_ERROR(packer_.Use(HostTarget()));
    target_ = target;
    return absl::OkStatus();
  }
  const Target& target() const override { return target_; }
  Device& packer() override { return packer_; }
  Caches caches() const override { return {}; }

  absl::StatusOr<std::unique_ptr<Code>> Load(const Artifact& artifact) override {
    const CompiledKernel& kernel = artifact.kernels.front();
    auto code = std::make_unique<InterpreterCode>();
    code->text = artifact.code;
    code->symbol = kernel.symbol;
    code->scratch_bytes = kernel.workspace_bytes + kernel.thread_workspace_bytes;
    return code;
  }

  absl::StatusOr<double> Launch(const Code& code, const Arguments& arguments, void* scratch) override {
    const auto& ours = static_cast<const InterpreterCode&>(code);
    const temper_call call = {arguments.data(), nullptr, scratch, nullptr, nullptr};
    const int64_t start = MonotonicNs();
    const int32_t result =
        generator_->device->launch(ours.text.data(), std::ssize(ours.text), ours.symbol.c_str(), &call);
    const int64_t ns = MonotonicNs() - start;
    if (result != 0) return absl::InternalError(absl::StrCat("the kernel returned ", result));
    return 1e-9 * static_cast<double>(std::max<int64_t>(ns, 1));
  }

  absl::StatusOr<double> Time(const Code& code, std::span<const Arguments> arguments, size_t& next, void* scratch,
                              int64_t calls) override {
    double seconds = 0;
    for (int64_t i = 0; i < calls; ++i) {
      const absl::StatusOr<double> call_s = Launch(code, arguments[next], scratch);
      if (!call_s.ok()) {
        std::fprintf(stderr, "%s\n", std::string(call_s.status().message()).c_str());
        std::abort();
      }
      seconds += *call_s;
      if (++next == arguments.size()) next = 0;
    }
    return seconds;
  }

  void Fetch(const Block&, size_t) override {}
  void Evict() override {}

 private:
  Target target_;
  const CodeGenerator* generator_ = nullptr;
  CpuDevice packer_;
};

}  // namespace

absl::StatusOr<DeviceReport> DescribeInterpreter(const DeviceSpec&, std::string_view wished) {
  TEMPER_ASSIGN_OR_RETURN(const Target target, ParseTarget(wished == "host" ? kGenerator : wished));
  TEMPER_RETURN_IF_ERROR(CheckIsOurs(target));
  return DeviceReport{.fingerprint = "the IR interpreter", .target = Text(target), .codegen_id = CodegenId(target)};
}

absl::StatusOr<std::unique_ptr<Device>> OpenInterpreter(const DeviceSpec&) {
  return std::make_unique<InterpreterDevice>();
}

}  // namespace temper::worker
