#include "measure_worker/backends/null/describe.h"

#include "measure_worker/backends/cpu/describe.h"

namespace temper::worker {

absl::StatusOr<DeviceReport> DescribeNull(const DeviceSpec&, std::string_view target) {
  TEMPER_ASSIGN_OR_RETURN(DeviceReport report, DescribeCores(target));
  report.fingerprint = "null device";
  return report;
}

}  // namespace temper::worker
