#include "measure_worker/sandbox/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"

namespace temper::worker {
namespace {

constexpr rlim_t kMaxFileBytes = rlim_t{8} << 30;  // a model's weights, twice
constexpr rlim_t kMaxDescriptors = 256;

void Limit(__rlimit_resource what, rlim_t value) {
  rlimit now;
  if (getrlimit(what, &now) != 0) return;
  if (now.rlim_max != RLIM_INFINITY && value > now.rlim_max) value = now.rlim_max;
  const rlimit limit{value, value};
  setrlimit(what, &limit);
}

// Of address space; 0: no limit.
rlim_t MemoryLimit() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return 0;  // sanitizers map terabytes
#else
  return static_cast<rlim_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
#endif
}

// Between fork and exec of a process that may have threads: system calls only.
[[noreturn]] void BecomeChild(char* const* argv, char* const* variables, int socket, int stderr_pipe, pid_t parent,
                              rlim_t memory) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it died before we asked to be told
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  Limit(RLIMIT_CORE, 0);
  Limit(RLIMIT_FSIZE, kMaxFileBytes);
  Limit(RLIMIT_NOFILE, kMaxDescriptors);
  if (memory > 0) Limit(RLIMIT_AS, memory);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  const int null = open("/dev/null", O_RDWR);
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);
  dup2(stderr_pipe, STDERR_FILENO);
  if (socket == kChildFd) {
    fcntl(socket, F_SETFD, 0);
  } else {
    dup2(socket, kChildFd);
  }
  syscall(SYS_close_range, kChildFd + 1, ~0u, 0);
  execve(argv[0], argv, variables);
  _exit(127);
}

// The environment with another TMPDIR.
std::vector<std::string> Environment(const std::string& scratch) {
  constexpr char kName[] = "TMPDIR=";
  std::vector<std::string> variables{absl::StrCat(kName, scratch)};
  for (char** v = environ; *v != nullptr; ++v) {
    if (!std::string_view(*v).starts_with(kName)) variables.emplace_back(*v);
  }
  return variables;
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

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const std::vector<std::string>& command) {
  TEMPER_ASSIGN_OR_RETURN(TemporaryDirectory scratch, TemporaryDirectory::Make());
  int sockets[2] = {-1, -1}, pipes[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0 || pipe2(pipes, O_CLOEXEC) != 0) {
    const int error = errno;
    CloseAll({sockets[0], sockets[1], pipes[0], pipes[1]});
    return absl::ResourceExhaustedError(absl::StrCat("cannot make a pipe to a child: ", strerror(error)));
  }
  const std::vector<std::string> environment = Environment(scratch.path());
  const std::vector<char*> argv = Pointers(command), variables = Pointers(environment);
  const rlim_t memory = MemoryLimit();
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) BecomeChild(argv.data(), variables.data(), sockets[1], pipes[1], parent, memory);
  const int error = errno;
  CloseAll({sockets[1], pipes[1]});
  if (pid < 0) {
    CloseAll({sockets[0], pipes[0]});
    return absl::ResourceExhaustedError(absl::StrCat("cannot start a child: ", strerror(error)));
  }
  fcntl(sockets[0], F_SETFL, O_NONBLOCK);
  fcntl(pipes[0], F_SETFL, O_NONBLOCK);
  return std::unique_ptr<ChildProcess>(new ChildProcess(pid, sockets[0], pipes[0], std::move(scratch)));
}

std::string ChildProcess::End(int patience_ms) {
  if (ended_) return "ended before";
  ended_ = true;
  if (patience_ms > 0) {
    if (const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)); fd >= 0) {
      pollfd event{fd, POLLIN, 0};
      while (poll(&event, 1, patience_ms) < 0 && errno == EINTR) {
      }
      close(fd);
    }
  }
  // The leader is not reaped yet, so the group's number is still ours, also when only its children are left.
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);  // it may not have made its session yet
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  scratch_ = TemporaryDirectory();
  return Describe(status);
}

ChildProcess::~ChildProcess() {
  End();
  CloseAll({socket_, stderr_});
}

}  // namespace temper::worker
