#include "tuner_server/operations/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace temper {

ProcessUse ReadProcessUse() {
  ProcessUse use;
  std::error_code error;
  const std::filesystem::directory_iterator open("/proc/self/fd", error);
  // The iterator has one itself.
  if (!error) use.descriptors = std::distance(begin(open), end(open)) - 1;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) use.descriptor_limit = static_cast<int64_t>(limit.rlim_cur);
  int64_t all_pages = 0, resident_pages = 0;
  std::ifstream("/proc/self/statm") >> all_pages >> resident_pages;
  use.resident_bytes = resident_pages * sysconf(_SC_PAGESIZE);
  return use;
}

}  // namespace temper
