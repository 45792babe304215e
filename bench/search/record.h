// Recordings of complete spaces; bench/search/replay.h says what they look like.
#pragma once

#include <string>

#include "base/status.h"

namespace temper {

// Measures every config of the workload in kPasses passes over all of them, each in another order, on the CPUs of the
// affinity mask, and appends to the file as it goes. Goes on where an interrupted recording stopped; an empty
// `workload` is that of the file.
absl::Status RecordSpace(const std::string& path, const std::string& workload);

}  // namespace temper
