#include "measure_worker/sandbox/launch.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "measure_worker/sandbox/syscall_filter.h"

// This process may have threads, which hold locks that nobody lets go of in the copy: below, system calls only.
namespace temper::worker {
namespace {

constexpr rlim_t kMaxDescriptors = 256;
constexpr int kProgramFd = kChildFd + 1;  // until it runs
constexpr int kThreadsFd = kProgramFd + 1;
constexpr int kFirstFreeFd = kThreadsFd + 1;

// What every program reads. A device's own files are Launch's driver_files.
struct VisibleFile {
  const char* path;
  bool write = false;
};
constexpr VisibleFile kVisible[] = {
    {"/usr"},
    {"/lib"},
    {"/lib32"},
    {"/lib64"},
    {"/bin"},
    {"/sbin"},
    {"/opt"},
    {"/sys"},
    {"/proc"},
    {"/etc/ld.so.cache"},
    {"/etc/localtime"},
    {"/etc/OpenCL"},
    {"/dev/null", true},
    {"/dev/zero"},
    {"/dev/urandom"},
    {"/dev/random"},
};
constexpr uint64_t kReadFiles = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE;
constexpr uint64_t kRead = kReadFiles | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr uint64_t kWriteFiles = LANDLOCK_ACCESS_FS_WRITE_FILE;
constexpr uint64_t kAllRights = kRead | kWriteFiles | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |
                                LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR |
                                LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |
                                LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK |
                                LANDLOCK_ACCESS_FS_MAKE_SYM;

void Put(int fd, const char* text) {
  if (write(fd, text, strlen(text)) < 0) return;  // nobody is left to tell
}

void Must(bool done, const char* what) {
  if (done) return;
  const int error = errno;
  Put(STDERR_FILENO, "cannot ");
  Put(STDERR_FILENO, what);
  const char digits[] = {static_cast<char>('0' + error / 100 % 10), static_cast<char>('0' + error / 10 % 10),
                         static_cast<char>('0' + error % 10), '\n', '\0'};
  Put(STDERR_FILENO, ": error ");
  Put(STDERR_FILENO, digits);
  _exit(kNotConfined);
}

// As fork, into new namespaces; without what the C library does around it, for which it would need its locks.
pid_t Clone(unsigned long namespaces) {
  return static_cast<pid_t>(syscall(SYS_clone, namespaces | SIGCHLD, nullptr, nullptr, nullptr, nullptr));
}

bool PutFile(const char* path, const char* text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  const bool put = fd >= 0 && write(fd, text, strlen(text)) == static_cast<ssize_t>(strlen(text));
  if (fd >= 0) close(fd);
  return put;
}

void Limit(__rlimit_resource what, rlim_t value) {
  rlimit now;
  if (getrlimit(what, &now) != 0) return;
  if (now.rlim_max != RLIM_INFINITY && value > now.rlim_max) value = now.rlim_max;
  const rlimit limit{value, value};
  Must(setrlimit(what, &limit) == 0, "set a limit");
}

// --- the measuring child ---

void Show(int rules, int fd, uint64_t rights) {
  struct stat file;
  if (fstat(fd, &file) == 0 && !S_ISDIR(file.st_mode)) rights &= kReadFiles | kWriteFiles;
  const landlock_path_beneath_attr rule{rights, fd};
  Must(syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0, "show a file");
}

void Show(int rules, const char* path, uint64_t rights) {
  const int fd = open(path, O_PATH | O_CLOEXEC);
  if (fd < 0) return;  // not on this machine
  Show(rules, fd, rights);
  close(fd);
}

void HideFiles(const Launch& launch, int program) {
  // Older kernels never let a file move to another folder; the others do where it is allowed by name.
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  const uint64_t move = version >= 2 ? LANDLOCK_ACCESS_FS_REFER : 0;
  landlock_ruleset_attr handled{};
  handled.handled_access_fs = kAllRights | move;
  const int rules = static_cast<int>(syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0));
  Must(rules >= 0, "make rules for files");
  for (const VisibleFile& file : kVisible) Show(rules, file.path, kRead | (file.write ? kWriteFiles : 0));
  for (char* const* file = launch.libraries; *file != nullptr; ++file) Show(rules, *file, kReadFiles);
  for (char* const* file = launch.driver_files; *file != nullptr; ++file) Show(rules, *file, kRead | kWriteFiles);
  if (program >= 0) Show(rules, program, kRead);
  Show(rules, launch.scratch, kAllRights | move);
  Must(syscall(SYS_landlock_restrict_self, rules, 0) == 0, "hide files");
  close(rules);
}

void DropPrivileges(const Launch& launch) {
  if (launch.confinement->own_uid) {
    // The C library's own would also ask the other threads, which are not here.
    Must(syscall(SYS_setgroups, 0, nullptr) == 0, "leave all groups");
    Must(syscall(SYS_setresgid, launch.uid, launch.uid, launch.uid) == 0, "change the group");
    Must(syscall(SYS_setresuid, launch.uid, launch.uid, launch.uid) == 0, "change the user");
  }
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[2]{};
  Must(syscall(SYS_capset, &header, none) == 0, "drop capabilities");
}

// Above all descriptors that are put in order.
int Hold(const char* path, const char* what) {
  const int fd = open(path, O_PATH | O_CLOEXEC);
  Must(fd >= 0, what);
  const int held = fcntl(fd, F_DUPFD_CLOEXEC, kFirstFreeFd);
  Must(held >= 0, what);
  return held;
}

[[noreturn]] void BecomeChild(const Launch& launch) {
  // Before the user changes: the folder that it lies in may be private.
  const int program = launch.command[0] == nullptr ? -1 : Hold(launch.command[0], "open its program");
  setpgid(0, 0);              // a group without the keeper
  prctl(PR_SET_DUMPABLE, 1);  // else its own entries in /proc would be root's
  // A rule is for this folder alone, and /proc makes another as soon as nobody holds it.
  const int threads = Hold("/proc/self/task", "open the folder of its threads");
  // The first to go when memory runs out.
  Must(PutFile("/proc/self/oom_score_adj", "1000"), "offer itself to the kernel's killer");
  Limit(RLIMIT_CORE, 0);
  Limit(RLIMIT_NOFILE, kMaxDescriptors);
  Limit(RLIMIT_FSIZE, launch.file_bytes);
  Limit(RLIMIT_DATA, launch.data_bytes);
  Limit(RLIMIT_NPROC, launch.processes);
  Must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "give up new privileges");
  DropPrivileges(launch);
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // of the keeper
  if (launch.confinement->files) HideFiles(launch, program);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  const int null = open("/dev/null", O_RDWR);
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);
  if (launch.socket == kChildFd) {
    fcntl(launch.socket, F_SETFD, 0);
  } else {
    dup2(launch.socket, kChildFd);
  }
  if (program >= 0) dup3(program, kProgramFd, O_CLOEXEC);
  dup2(threads, kThreadsFd);
  syscall(SYS_close_range, kFirstFreeFd, ~0u, 0);
  const SyscallFilter filter(static_cast<pid_t>(syscall(SYS_getpid)), launch.confinement->CountsProcesses(),
                             /*may_listen=*/launch.driver_files[0] != nullptr);
  Must(filter.Install(), "filter system calls");
  if (program < 0) _exit(0);
  syscall(SYS_execveat, kProgramFd, "", launch.command, launch.environment, AT_EMPTY_PATH);
  _exit(127);
}

// --- the keeper ---

void EnterUserNamespace(const Launch& launch) {
  prctl(PR_SET_DUMPABLE, 1);
  PutFile("/proc/self/setgroups", "deny");  // older kernels have it not
  Must(PutFile("/proc/self/uid_map", launch.uid_map), "map the user");
  Must(PutFile("/proc/self/gid_map", launch.gid_map), "map the group");
}

void MountOwn(const Launch& launch) {
  Must(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "keep mounts to itself");
  Must(mount("tmpfs", launch.scratch, "tmpfs", MS_NOSUID | MS_NODEV, launch.scratch_options) == 0,
       "mount a folder for temporary files");
  Must(mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0, "mount /proc");
}

// Until the child has ended or is to end, and nothing that it started is left.
[[noreturn]] void Keep(pid_t child, int status_pipe, const sigset_t& signals) {
  dup2(status_pipe, 0);
  syscall(SYS_close_range, 1, ~0u, 0);
  for (;;) {
    const bool told = sigwaitinfo(&signals, nullptr) == SIGTERM;
    siginfo_t ended{};
    waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT);
    // Not reaped yet, it still keeps its group's number from others.
    if (told || ended.si_pid == child) kill(-child, SIGKILL);
    int status = 0;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
      if (pid == child && write(0, &status, sizeof status) < 0) break;  // nobody is left to tell
    }
    if (pid < 0) _exit(0);
  }
}

[[noreturn]] void BecomeKeeper(const Launch& launch, const sigset_t& signals) {
  dup2(launch.stderr_pipe, STDERR_FILENO);
  close(launch.far_socket);
  setsid();
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  signal(SIGCHLD, SIG_DFL);
  pollfd far{launch.socket, 0, 0};
  if (poll(&far, 1, 0) != 0) _exit(0);  // the worker died before we asked to be told
  for (const int group : launch.groups) Must(group < 0 || write(group, "0", 1) == 1, "enter a control group");
  if (launch.confinement->user_namespace) EnterUserNamespace(launch);
  if (launch.confinement->namespaces) MountOwn(launch);
  prctl(PR_SET_DUMPABLE, 0);  // it is a copy of the worker, and no business of the child's
  const pid_t child = Clone(0);
  Must(child >= 0, "start the measuring process");
  if (child == 0) BecomeChild(launch);
  setpgid(child, child);
  Keep(child, launch.status_pipe, signals);
}

}  // namespace

pid_t StartKeeper(const Launch& launch) {
  unsigned long namespaces = 0;
  if (launch.confinement->namespaces)
    namespaces = CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUTS;
  if (launch.confinement->user_namespace) namespaces |= CLONE_NEWUSER;
  // Signals wait until the keeper looks for them: the first process of a namespace would lose them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = Clone(namespaces);
  if (pid == 0) BecomeKeeper(launch, all);
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return pid;
}

}  // namespace temper::worker
