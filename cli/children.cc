#include "cli/children.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/log.h"

namespace temper {
namespace {

constexpr int kPatienceMs = 5000;
constexpr int kMostStarts = 4;
constexpr off_t kTailBytes = 4096;

// Between fork and exec: system calls only.
[[noreturn]] void BecomeChild(const char* path, char* const* argv, int words, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);  // stdout is the command's own
  if (words >= 0) dup2(words, STDERR_FILENO);
  execv(path, argv);
  _exit(127);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Child>> Child::Start(const std::string& program, std::vector<std::string> args) {
  std::error_code error;
  const std::string path = (std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / program).string();
  if (error || access(path.c_str(), X_OK) != 0)
    return absl::NotFoundError(absl::StrCat("cannot find ", program, " beside temper: ", path));
  const bool logs = spdlog::should_log(spdlog::level::info);
  if (logs) args.emplace_back("--verbose");
  std::vector<char*> argv = {const_cast<char*>(path.c_str())};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  const int words = logs ? -1 : memfd_create("stderr", MFD_CLOEXEC);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) BecomeChild(path.c_str(), argv.data(), words, parent);
  if (pid < 0) {
    const int reason = errno;
    if (words >= 0) close(words);
    return absl::ResourceExhaustedError(absl::StrCat("cannot start ", program, ": ", strerror(reason)));
  }
  return std::unique_ptr<Child>(new Child(program, pid, words));
}

Child::~Child() {
  Stop();
  if (words_ >= 0) close(words_);
}

bool Child::Running() {
  if (!ended_ && waitpid(pid_, &status_, WNOHANG) == pid_) ended_ = true;
  return !ended_;
}

bool Child::Wait(int or_readable) {
  const int handle = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  pollfd events[] = {{or_readable, POLLIN, 0}, {handle, POLLIN, 0}};
  while (!ended_ && poll(events, 2, -1) < 0 && errno == EINTR) {
  }
  if (handle >= 0) close(handle);
  return !Running();
}

bool Child::Killed() const { return ended_ && WIFSIGNALED(status_); }

std::string Child::WhyEnded() const {
  std::string last;
  if (words_ >= 0) {
    std::string tail(kTailBytes, '\0');
    const off_t size = lseek(words_, 0, SEEK_END);
    const ssize_t got = pread(words_, tail.data(), tail.size(), std::max<off_t>(0, size - kTailBytes));
    tail.resize(std::max<ssize_t>(0, got));
    for (absl::string_view line : absl::StrSplit(tail, '\n', absl::SkipWhitespace())) last = std::string(line);
  }
  if (!last.empty()) return std::string(absl::StripPrefix(last, program_ + ": "));
  if (Killed()) return absl::StrCat(program_, " was killed by SIG", sigabbrev_np(WTERMSIG(status_)));
  return absl::StrCat(program_, " ended with code ", WEXITSTATUS(status_));
}

void Child::Stop() {
  if (!Running()) return;
  const int handle = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  kill(pid_, SIGTERM);
  pollfd ended{handle, POLLIN, 0};
  if (handle < 0 || poll(&ended, 1, kPatienceMs) <= 0) kill(pid_, SIGKILL);
  if (handle >= 0) close(handle);
  waitpid(pid_, &status_, 0);
  ended_ = true;
}

KeptChild::KeptChild(std::string program, std::vector<std::string> args, std::function<void()> on_given_up)
    : program_(std::move(program)),
      args_(std::move(args)),
      on_given_up_(std::move(on_given_up)),
      stop_(eventfd(0, EFD_CLOEXEC)) {}

absl::StatusOr<std::unique_ptr<KeptChild>> KeptChild::Start(const std::string& program, std::vector<std::string> args,
                                                            std::function<void()> on_given_up) {
  std::unique_ptr<KeptChild> kept(new KeptChild(program, std::move(args), std::move(on_given_up)));
  TEMPER_ASSIGN_OR_RETURN(kept->child_, Child::Start(kept->program_, kept->args_));
  kept->thread_ = std::thread([k = kept.get()] { k->Keep(); });
  return kept;
}

void KeptChild::Keep() {
  for (int starts = 1; child_->Wait(stop_); ++starts) {
    std::string why = child_->WhyEnded();
    absl::StatusOr<std::unique_ptr<Child>> next = absl::AbortedError(why);
    if (child_->Killed() && starts < kMostStarts) next = Child::Start(program_, args_);
    if (next.ok()) {
      child_ = *std::move(next);
      continue;
    }
    std::lock_guard lock(mutex_);
    why_ = std::string(next.status().message());
    on_given_up_();
    return;
  }
}

std::string KeptChild::GivenUp() {
  std::lock_guard lock(mutex_);
  return why_;
}

KeptChild::~KeptChild() {
  const uint64_t one = 1;
  if (write(stop_, &one, sizeof one) == sizeof one && thread_.joinable()) thread_.join();
  child_.reset();
  close(stop_);
}

}  // namespace temper
