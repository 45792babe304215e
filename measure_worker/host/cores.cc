#include "measure_worker/host/cores.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace temper::worker {
namespace {

absl::Status BadCores(absl::string_view part) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", part, "' is no core or range of cores; write cpu:0-3 or cpu:0,2"));
}

absl::Status AddCores(absl::string_view part, std::vector<int>& cores) {
  const std::pair<absl::string_view, absl::string_view> ends = absl::StrSplit(part, absl::MaxSplits('-', 1));
  int first = 0, last = 0;
  if (!absl::SimpleAtoi(ends.first, &first) || first < 0) return BadCores(part);
  last = first;
  if (part.find('-') != part.npos && !absl::SimpleAtoi(ends.second, &last)) return BadCores(part);
  if (last < first || last >= CPU_SETSIZE) return BadCores(part);
  for (int core = first; core <= last; ++core) cores.push_back(core);
  return absl::OkStatus();
}

std::vector<std::string> NamesOf(const std::vector<int>& cores) {
  std::vector<std::string> names;
  for (const int core : cores) names.push_back(absl::StrCat("core-", core));
  return names;
}

}  // namespace

absl::Status SelectCores(std::string_view which, DeviceSpec& spec) {
  for (absl::string_view part : absl::StrSplit(absl::string_view(which.data(), which.size()), ','))
    TEMPER_RETURN_IF_ERROR(AddCores(part, spec.cores));
  std::sort(spec.cores.begin(), spec.cores.end());
  spec.cores.erase(std::unique(spec.cores.begin(), spec.cores.end()), spec.cores.end());
  return absl::OkStatus();
}

std::unique_ptr<DeviceLock> LockCores(const DeviceSpec& spec) {
  return std::make_unique<CoreLock>(LockDirectory(), spec.cores);
}

std::string CoreListText(const std::vector<int>& cores) {
  std::string text;
  for (size_t i = 0; i < cores.size();) {
    size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    absl::StrAppend(&text, text.empty() ? "" : ",", cores[i]);
    if (last > i) absl::StrAppend(&text, "-", cores[last]);
    i = last + 1;
  }
  return text;
}

absl::Status BindToCores(const std::vector<int>& cores) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (int core : cores) CPU_SET(core, &mask);
  if (sched_setaffinity(0, sizeof mask, &mask) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("cannot use cores ", CoreListText(cores), ": ", strerror(errno)));
  }
  if (AffinityCores() != cores) {
    return absl::InvalidArgumentError(
        absl::StrCat("of cores ", CoreListText(cores), " only ", CoreListText(AffinityCores()), " are there"));
  }
  return absl::OkStatus();
}

absl::Status CheckCores(const std::vector<int>& cores) {
  if (cores.empty()) return absl::OkStatus();
  absl::Status status;
  std::thread([&] { status = BindToCores(cores); }).join();
  return status;
}

std::vector<int> AffinityCores() {
  cpu_set_t mask;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &mask)) cores.push_back(core);
  }
  return cores;
}

CoreLock::CoreLock(const std::string& directory, const std::vector<int>& cores)
    : PatientLock(directory, NamesOf(cores)) {}

}  // namespace temper::worker
