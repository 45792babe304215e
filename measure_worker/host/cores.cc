#include "measure_worker/host/cores.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include <spdlog/spdlog.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace temper::worker {
namespace {

constexpr std::chrono::milliseconds kLookAgain{10};

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

int OpenLock(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  // One that another user made may be read-only for us: that is enough to lock it.
  const int result = fd >= 0 ? fd : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (result < 0)
    spdlog::warn("cannot open {}: {}; other workers on these cores are not waited for", path, strerror(errno));
  return result;
}

bool LockPatiently(int fd, const std::function<bool()>& give_up) {
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return true;  // a file system without locks
    if (give_up()) return false;
    std::this_thread::sleep_for(kLookAgain);
  }
  return true;
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

std::string LockDirectory() {
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime && *runtime) return runtime;
  std::error_code error;
  return std::filesystem::temp_directory_path(error).string();
}

CoreLock::CoreLock(const std::string& directory, const std::vector<int>& cores) {
  for (const int core : cores) {
    const std::string stem = absl::StrCat(directory, "/temper-core-", core);
    Core& files = cores_.emplace_back();
    files.turn = OpenLock(stem + ".turn");
    files.busy = OpenLock(stem + ".lock");
    if (files.turn < 0 || files.busy < 0) break;  // one warning is enough
  }
}

CoreLock::~CoreLock() {
  for (const Core& core : cores_) {
    for (int fd : {core.turn, core.busy}) {
      if (fd >= 0) close(fd);
    }
  }
}

bool CoreLock::Acquire(const std::function<bool()>& give_up) {
  for (size_t i = 0; i < cores_.size(); ++i) {
    if (Acquire(cores_[i], give_up)) continue;
    while (i-- > 0) Release(cores_[i]);
    return false;
  }
  return true;
}

bool CoreLock::Acquire(const Core& core, const std::function<bool()>& give_up) {
  if (core.turn < 0 || core.busy < 0) return true;
  // Whoever holds the turn is next: without it, one that measures again and again would always win over one that waits.
  if (!LockPatiently(core.turn, give_up)) return false;
  const bool held = LockPatiently(core.busy, give_up);
  flock(core.turn, LOCK_UN);
  return held;
}

void CoreLock::Release() {
  for (const Core& core : cores_) Release(core);
}

void CoreLock::Release(const Core& core) {
  if (core.busy >= 0) flock(core.busy, LOCK_UN);
}

}  // namespace temper::worker
