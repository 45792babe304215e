#include "measure_worker/host/patient_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"

namespace temper::worker {
namespace {

constexpr std::chrono::milliseconds kLookAgain{10};

int OpenLock(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  // One that another user made may be read-only for us: that is enough to lock it.
  const int result = fd >= 0 ? fd : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (result < 0)
    spdlog::warn("cannot open {}: {}; other workers of this device are not waited for", path, strerror(errno));
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

std::string LockDirectory() {
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime && *runtime) return runtime;
  std::error_code error;
  return std::filesystem::temp_directory_path(error).string();
}

PatientLock::PatientLock(const std::string& directory, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const std::string stem = absl::StrCat(directory, "/temper-", name);
    Part& files = parts_.emplace_back();
    files.turn = OpenLock(stem + ".turn");
    files.busy = OpenLock(stem + ".lock");
    if (files.turn < 0 || files.busy < 0) break;  // one warning is enough
  }
}

PatientLock::~PatientLock() {
  for (const Part& part : parts_) {
    for (int fd : {part.turn, part.busy}) {
      if (fd >= 0) close(fd);
    }
  }
}

bool PatientLock::Acquire(const std::function<bool()>& give_up) {
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (Acquire(parts_[i], give_up)) continue;
    while (i-- > 0) Release(parts_[i]);
    return false;
  }
  return true;
}

bool PatientLock::Acquire(const Part& part, const std::function<bool()>& give_up) {
  if (part.turn < 0 || part.busy < 0) return true;
  // Whoever holds the turn is next: without it, one that measures again and again would always win over one that waits.
  if (!LockPatiently(part.turn, give_up)) return false;
  const bool held = LockPatiently(part.busy, give_up);
  flock(part.turn, LOCK_UN);
  return held;
}

void PatientLock::Release() {
  for (const Part& part : parts_) Release(part);
}

void PatientLock::Release(const Part& part) {
  if (part.busy >= 0) flock(part.busy, LOCK_UN);
}

}  // namespace temper::worker
