// The files that drivers of GPUs open.
#pragma once

#include <string>
#include <vector>

namespace temper::worker {

// Those that they write, which a measuring child has to see. Some are on no machine; the GPUs' own are those that are
// there now, all of them: a driver numbers the GPUs that it can open, so with less a GPU would have another number.
std::vector<std::string> GpuFiles();
std::vector<std::string> GpuFilesIn(const std::string& devices);  // instead of /dev

}  // namespace temper::worker
