#include "measure_worker/backends/cpu/describe.h"

#include "compiler/codegen/codegen.h"
#include "compiler/target/target.h"
#include "measure_worker/backends/cpu/fingerprint.h"

namespace temper::worker {

absl::StatusOr<DeviceReport> DescribeCores(std::string_view target_text) {
  TEMPER_ASSIGN_OR_RETURN(Target target, ParseTarget(target_text));
  TEMPER_RETURN_IF_ERROR(CheckRunsHere(target));
  target.cpu()->threads = HostTarget().threads();
  return DeviceReport{.target = Text(target), .codegen_id = CodegenId(target), .threads = target.threads()};
}

absl::StatusOr<DeviceReport> DescribeCpu(const DeviceSpec&, std::string_view target) {
  TEMPER_ASSIGN_OR_RETURN(DeviceReport report, DescribeCores(target));
  report.fingerprint = Fingerprint(FingerprintDirectory());
  return report;
}

}  // namespace temper::worker
