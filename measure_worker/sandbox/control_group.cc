#include "measure_worker/sandbox/control_group.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

#include <spdlog/spdlog.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace temper::worker {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "temper-child-";
constexpr char kSupervisor[] = "temper-supervisor";

absl::Status Put(const std::string& file, const std::string& text) {
  const int fd = open(file.c_str(), O_WRONLY | O_CLOEXEC);
  const bool put = fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  if (fd >= 0) close(fd);
  if (put) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", text, " to ", file, ": ", strerror(error)));
}

std::string Get(const std::string& file) {
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

bool HasWord(const std::string& text, absl::string_view word) {
  const std::vector<absl::string_view> words = absl::StrSplit(text, absl::ByAnyChar(" ,\n"));
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The folder of the group that this process is in, for one hierarchy: where it is mounted, and where it is in it.
// `controller`: empty for version 2.
std::string OwnFolder(const std::string& proc, const std::string& controller) {
  std::string group;
  for (const absl::string_view line : absl::StrSplit(Get(proc + "/cgroup"), '\n')) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() == 3 && (controller.empty() ? parts[0] == "0" : HasWord(parts[1], controller))) group = parts[2];
  }
  if (group.empty()) return "";
  // ID PARENT MAJOR:MINOR ROOT POINT OPTIONS ... - TYPE SOURCE SUPER-OPTIONS
  for (const absl::string_view line : absl::StrSplit(Get(proc + "/mountinfo"), '\n')) {
    const std::pair<std::string, std::string> halves = absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    const std::vector<std::string> mount = absl::StrSplit(halves.first, ' ');
    const std::vector<std::string> system = absl::StrSplit(halves.second, ' ');
    if (mount.size() < 5 || system.size() < 3) continue;
    if (controller.empty() ? system[0] != "cgroup2" : system[0] != "cgroup" || !HasWord(system[2], controller))
      continue;
    // What is mounted may be a group below the hierarchy's root.
    const std::string root = mount[3] == "/" ? "" : mount[3];
    if (!group.starts_with(root)) continue;
    const std::string below = group.substr(root.size());
    return mount[4] + (below == "/" ? "" : below);
  }
  return "";
}

absl::Status EnableForChildren(const std::string& own) {
  const std::string file = own + "/cgroup.subtree_control";
  const std::string enabled = Get(file);
  if (HasWord(enabled, "memory") && HasWord(enabled, "pids")) return absl::OkStatus();
  if (Put(file, "+memory +pids").ok()) return absl::OkStatus();
  const std::string leaf = absl::StrCat(own, "/", kSupervisor);
  if (mkdir(leaf.c_str(), 0755) != 0 && errno != EEXIST)
    return absl::UnavailableError(absl::StrCat("cannot make ", leaf, ": ", strerror(errno)));
  TEMPER_RETURN_IF_ERROR(Put(leaf + "/cgroup.procs", "0"));
  absl::Status enabling = Put(file, "+memory +pids");
  if (!enabling.ok()) {  // there are others in it
    Put(own + "/cgroup.procs", "0").IgnoreError();
    rmdir(leaf.c_str());
  }
  return enabling;
}

int64_t LimitIn(const std::string& file) {
  int64_t bytes = 0;
  if (!absl::SimpleAtoi(Get(file), &bytes) || bytes <= 0) return std::numeric_limits<int64_t>::max();
  return bytes;
}

}  // namespace

absl::StatusOr<CgroupHome> FindCgroupHome(const std::string& proc) {
  if (std::string own = OwnFolder(proc, ""); !own.empty() && HasWord(Get(own + "/cgroup.controllers"), "memory")) {
    // Where a worker has moved itself before, its children are beside it.
    if (own.ends_with(absl::StrCat("/", kSupervisor))) own = fs::path(own).parent_path().string();
    TEMPER_RETURN_IF_ERROR(EnableForChildren(own));
    return CgroupHome{true, own, own};
  }
  const std::string memory = OwnFolder(proc, "memory");
  if (memory.empty()) return absl::UnavailableError("no controller of memory is mounted");
  return CgroupHome{false, memory, OwnFolder(proc, "pids")};
}

int64_t MemoryThereIs() {
  int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  if (const std::string own = OwnFolder("/proc/self", ""); !own.empty())
    bytes = std::min(bytes, LimitIn(own + "/memory.max"));
  if (const std::string own = OwnFolder("/proc/self", "memory"); !own.empty())
    bytes = std::min(bytes, LimitIn(own + "/memory.limit_in_bytes"));
  return bytes;
}

absl::StatusOr<ControlGroup> ControlGroup::Make(const CgroupHome& home, int64_t memory_bytes, int processes) {
  static std::atomic<int> made{0};  // names within this process
  const std::string name = absl::StrCat("/", kPrefix, getpid(), "-", made++);
  ControlGroup group;
  const auto add = [&](const std::string& parent) {
    const std::string folder = parent + name;
    if (mkdir(folder.c_str(), 0755) != 0)
      return absl::UnavailableError(absl::StrCat("cannot make ", folder, ": ", strerror(errno)));
    group.folders_.push_back(folder);
    return absl::OkStatus();
  };
  TEMPER_RETURN_IF_ERROR(add(home.memory));
  const std::string& memory = group.folders_[0];
  const std::string bytes = std::to_string(memory_bytes);
  if (home.v2) {
    TEMPER_RETURN_IF_ERROR(Put(memory + "/memory.max", bytes));
    Put(memory + "/memory.swap.max", "0").IgnoreError();  // a kernel may count no swap
  } else {
    TEMPER_RETURN_IF_ERROR(Put(memory + "/memory.limit_in_bytes", bytes));
    Put(memory + "/memory.memsw.limit_in_bytes", bytes).IgnoreError();
    if (!home.pids.empty()) TEMPER_RETURN_IF_ERROR(add(home.pids));
  }
  if (!home.pids.empty()) TEMPER_RETURN_IF_ERROR(Put(group.folders_.back() + "/pids.max", std::to_string(processes)));
  return group;
}

ControlGroup::~ControlGroup() {
  constexpr int kTries = 100;  // who was killed may still be on its way out
  for (const std::string& folder : folders_) {
    for (int i = 0; rmdir(folder.c_str()) != 0 && errno == EBUSY && i < kTries; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::vector<std::string> ControlGroup::EntranceFiles() const {
  std::vector<std::string> files;
  for (const std::string& folder : folders_) files.push_back(folder + "/cgroup.procs");
  return files;
}

bool ControlGroup::OutOfMemory() const {
  for (const char* file : {"/memory.events", "/memory.oom_control"}) {  // versions 2 and 1
    for (const absl::string_view line : absl::StrSplit(Get(folders_[0] + file), '\n')) {
      int64_t kills = 0;
      const std::pair<absl::string_view, absl::string_view> field = absl::StrSplit(line, absl::MaxSplits(' ', 1));
      if (field.first == "oom_kill" && absl::SimpleAtoi(field.second, &kills) && kills > 0) return true;
    }
  }
  return false;
}

void SweepControlGroups(const CgroupHome& home) {
  for (const std::string& parent : {home.memory, home.pids}) {
    std::error_code error;
    for (fs::directory_iterator it(parent, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (!name.starts_with(kPrefix)) continue;
      // One with processes can not be removed; one without may have been made just now.
      const pid_t maker = std::atoi(name.c_str() + std::strlen(kPrefix));
      if (kill(maker, 0) != 0 && errno == ESRCH) rmdir(it->path().c_str());
    }
  }
}

}  // namespace temper::worker
