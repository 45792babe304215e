#include "measure_worker/sandbox/process.h"

#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace temper::worker {
namespace {

constexpr int kWatchMs = 200;
constexpr int kTryMs = 10'000;
constexpr int kMostScratchFiles = 100'000;

// All that a child inherits: none of it is a secret.
constexpr const char* kInherited[] = {"PATH",
                                      "LANG",
                                      "LC_ALL",
                                      "TZ",
                                      "LD_LIBRARY_PATH",
                                      "TEMPER_LOG",
                                      "CUDA_VISIBLE_DEVICES",
                                      "CUDA_DEVICE_ORDER",
                                      "TEMPER_CUDA",
                                      "TEMPER_NVML",
                                      "TEMPER_NVRTC",
                                      "OCL_ICD_VENDORS",
                                      "TEMPER_OPENCL",
                                      "POCL_MAX_PTHREAD_COUNT",
                                      "ASAN_OPTIONS",
                                      "UBSAN_OPTIONS",
                                      "TSAN_OPTIONS"};

// Users that nobody is: high numbers, told apart by this process and its latest children. Process ids have 22 bits.
uid_t NewUser() {
  constexpr uid_t kFirst = 0x60000000;
  constexpr uid_t kChildrenBits = 6;
  static std::atomic<uid_t> children{0};
  return kFirst + (static_cast<uid_t>(getpid()) << kChildrenBits) + (children++ & ((1u << kChildrenBits) - 1));
}

std::vector<std::string> Environment(const std::string& scratch, int64_t memory_bytes) {
  std::vector<std::string> variables{absl::StrCat("TMPDIR=", scratch),
                                     absl::StrCat("TEMPER_MEMORY_BYTES=", memory_bytes)};
  for (const char* name : kInherited) {
    if (const char* value = std::getenv(name)) variables.push_back(absl::StrCat(name, "=", value));
  }
  return variables;
}

bool EveryProgramReads(const std::filesystem::path& folder) {
  const std::string first = folder.begin() == folder.end() ? "" : std::next(folder.begin())->string();
  return first == "usr" || first.starts_with("lib");
}

// The libraries that this process has loaded, and those beside them: drivers and compilers of devices, which the child
// loads too, wherever somebody put them.
std::vector<std::string> Libraries() {
  std::set<std::filesystem::path> folders;
  dl_iterate_phdr(
      [](dl_phdr_info* library, size_t, void* found) {
        const std::filesystem::path folder = std::filesystem::path(library->dlpi_name).parent_path();
        if (folder.is_absolute() && folder != folder.root_path() && !EveryProgramReads(folder))
          static_cast<decltype(folders)*>(found)->insert(folder);
        return 0;
      },
      &folders);
  std::vector<std::string> libraries;
  for (const std::filesystem::path& folder : folders) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      if (entry.path().filename().string().find(".so") != std::string::npos) libraries.push_back(entry.path());
    }
  }
  return libraries;
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

void CloseAll(std::initializer_list<int> fds) {
  for (int fd : fds) {
    if (fd >= 0) close(fd);
  }
}

std::string Describe(int status) {
  if (WIFSIGNALED(status)) {
    const char* name = sigabbrev_np(WTERMSIG(status));
    return name ? absl::StrCat("killed by SIG", name) : absl::StrCat("killed by signal ", WTERMSIG(status));
  }
  return absl::StrCat("exited with code ", WEXITSTATUS(status));
}

void AwaitEnd(pid_t pid, int patience_ms) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return;
  pollfd event{fd, POLLIN, 0};
  while (poll(&event, 1, patience_ms) < 0 && errno == EINTR) {
  }
  close(fd);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const std::vector<std::string>& command,
                                                                  const Confinement& confinement,
                                                                  const ChildLimits& limits) {
  const uid_t user = confinement.own_uid ? NewUser() : geteuid();
  TEMPER_ASSIGN_OR_RETURN(Scratch scratch, Scratch::Make(user));
  std::unique_ptr<ChildProcess> child(new ChildProcess(std::move(scratch), limits));
  if (child->limits_.memory_bytes <= 0) child->limits_.memory_bytes = MemoryThereIs() / 8 * 7;
  if (confinement.cgroup.has_value()) {
    TEMPER_ASSIGN_OR_RETURN(ControlGroup group, ControlGroup::Make(*confinement.cgroup, child->limits_.memory_bytes,
                                                                   child->limits_.processes));
    child->group_.emplace(std::move(group));
  }
  TEMPER_RETURN_IF_ERROR(child->Spawn(command, confinement, user));
  return child;
}

absl::Status ChildProcess::Spawn(const std::vector<std::string>& command, const Confinement& confinement, uid_t user) {
  const std::vector<std::string> variables = Environment(scratch_->path(), limits_.memory_bytes);
  const std::vector<std::string> libraries = Libraries();
  const std::vector<char*> command_pointers = Pointers(command), variable_pointers = Pointers(variables),
                           library_pointers = Pointers(libraries), driver_pointers = Pointers(limits_.driver_files);
  const std::string options = absl::StrCat("size=", limits_.scratch_bytes, ",nr_inodes=", kMostScratchFiles,
                                           ",mode=0700,uid=", user, ",gid=", confinement.own_uid ? user : getegid());
  const std::string uid_map = absl::StrCat(user, " ", user, " 1"),
                    gid_map = absl::StrCat(getegid(), " ", getegid(), " 1");
  int sockets[2] = {-1, -1}, errors[2] = {-1, -1}, statuses[2] = {-1, -1};
  bool made = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0 && pipe2(errors, O_CLOEXEC) == 0 &&
              pipe2(statuses, O_CLOEXEC) == 0;
  int error = errno;
  socket_ = sockets[0], stderr_ = errors[0], status_ = statuses[0];  // closed by the destructor
  Launch launch{.confinement = &confinement,
                .command = command_pointers.data(),
                .environment = variable_pointers.data(),
                .libraries = library_pointers.data(),
                .driver_files = driver_pointers.data(),
                .socket = sockets[1],
                .stderr_pipe = errors[1],
                .status_pipe = statuses[1],
                .far_socket = sockets[0],
                .scratch = scratch_->path().c_str(),
                .scratch_options = options.c_str(),
                .uid_map = uid_map.c_str(),
                .gid_map = gid_map.c_str(),
                .uid = user,
                .file_bytes = static_cast<rlim_t>(limits_.scratch_bytes)};
  if (group_.has_value()) {
    size_t next = 0;
    for (const std::string& file : group_->EntranceFiles()) {
      const int fd = launch.groups.at(next++) = open(file.c_str(), O_WRONLY | O_CLOEXEC);
      made = made && fd >= 0;
    }
    error = errno;
  } else if (MayLimitMappings()) {
    launch.data_bytes = static_cast<rlim_t>(limits_.memory_bytes);
  }
  if (confinement.own_uid || confinement.user_namespace) launch.processes = static_cast<rlim_t>(limits_.processes);
  if (made) {
    pid_ = StartKeeper(launch);
    error = errno;
  }
  CloseAll({sockets[1], errors[1], statuses[1], launch.groups[0], launch.groups[1]});
  if (!made || pid_ < 0) {
    pid_ = 0;
    return absl::ResourceExhaustedError(absl::StrCat("cannot start a child: ", strerror(error)));
  }
  for (const int fd : {socket_, stderr_, status_}) fcntl(fd, F_SETFL, O_NONBLOCK);
  mounted_scratch_ = confinement.namespaces;
  return absl::OkStatus();
}

absl::Status ChildProcess::Try(const Confinement& confinement) {
  TEMPER_ASSIGN_OR_RETURN(const auto child, Start({}, confinement));
  const std::string end = child->End(kTryMs);
  if (end == Describe(0)) return absl::OkStatus();
  char complaint[256];
  const ssize_t got = read(child->stderr_pipe(), complaint, sizeof complaint);
  const absl::string_view text(complaint, got > 0 ? static_cast<size_t>(got) : 0);
  return absl::UnavailableError(absl::StrCat(end, text.empty() ? "" : ": ", absl::StripTrailingAsciiWhitespace(text)));
}

std::optional<int> ChildProcess::watch_interval_ms() const {
  return mounted_scratch_ ? std::nullopt : std::optional(kWatchMs);
}

bool ChildProcess::TakesTooMuch() const {
  return !mounted_scratch_ && scratch_.has_value() && scratch_->HoldsMoreThan(limits_.scratch_bytes);
}

std::string ChildProcess::End(int patience_ms) {
  if (pid_ == 0) return "ended before";
  if (patience_ms > 0) AwaitEnd(pid_, patience_ms);
  kill(pid_, SIGTERM);
  int status = 0, of_keeper = 0;
  while (waitpid(pid_, &of_keeper, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
  if (read(status_, &status, sizeof status) != sizeof status) status = of_keeper;
  if (group_.has_value()) out_of_memory_ = group_->OutOfMemory();
  group_.reset();
  scratch_.reset();
  return Describe(status);
}

ChildProcess::~ChildProcess() {
  End();
  CloseAll({socket_, stderr_, status_});
}

}  // namespace temper::worker
