#include "cli/children.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"

namespace temper {

absl::StatusOr<std::unique_ptr<Child>> Child::Start(const std::string& program, const std::vector<std::string>& args) {
  std::error_code error;
  const std::string path = (std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / program).string();
  if (error || access(path.c_str(), X_OK) != 0)
    return absl::NotFoundError(absl::StrCat("cannot find ", program, " beside temper: ", path));
  std::vector<char*> argv = {const_cast<char*>(path.c_str())};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return absl::ResourceExhaustedError(absl::StrCat("cannot start ", program, ": ", strerror(errno)));
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execv(path.c_str(), argv.data());
    _exit(127);
  }
  return std::unique_ptr<Child>(new Child(pid));
}

Child::~Child() { Stop(); }

bool Child::Running() {
  if (!ended_ && waitpid(pid_, nullptr, WNOHANG) == pid_) ended_ = true;
  return !ended_;
}

void Child::Stop() {
  if (!Running()) return;
  constexpr int kPatienceMs = 5000;
  const int handle = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  kill(pid_, SIGTERM);
  pollfd ended{handle, POLLIN, 0};
  if (handle < 0 || poll(&ended, 1, kPatienceMs) <= 0) kill(pid_, SIGKILL);
  if (handle >= 0) close(handle);
  waitpid(pid_, nullptr, 0);
  ended_ = true;
}

}  // namespace temper
