#include "tests/chaos/server_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/descriptor.h"

namespace temper {
namespace {

constexpr char kListens[] = "temper-server listening on ";

// What it writes goes to these; gives only this call's thread's child, so everything is made before.
pid_t Spawn(std::vector<std::string> arguments, const std::vector<std::string>& environment, int descriptors, int out,
            int err) {
  std::vector<char*> argv, envp;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  for (char** own = environ; *own != nullptr; ++own) envp.push_back(*own);
  for (const std::string& more : environment) envp.push_back(const_cast<char*>(more.c_str()));
  envp.push_back(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  if (descriptors > 0) {
    const rlimit limit{static_cast<rlim_t>(descriptors), static_cast<rlim_t>(descriptors)};
    setrlimit(RLIMIT_NOFILE, &limit);
    close_range(3, ~0U, 0);  // this process's own do not count against it
  }
  execve(argv[0], argv.data(), envp.data());
  _exit(127);
}

// To the end of the line, or of the file.
std::string ReadLine(int fd) {
  std::string line;
  for (char byte; read(fd, &byte, 1) == 1 && byte != '\n';) line += byte;
  return line;
}

std::string ReadAll(int fd) {
  std::string text;
  lseek(fd, 0, SEEK_SET);
  std::array<char, 4096> buffer;
  for (ssize_t n; (n = read(fd, buffer.data(), buffer.size())) > 0;) text.append(buffer.data(), n);
  return text;
}

}  // namespace

ServerProcess::~ServerProcess() {
  if (running()) KillAndWait();
}

absl::Status ServerProcess::Start(const ServerProcessOptions& options) {
  std::vector<std::string> arguments = {absl::StrCat(TEMPER_BINARY_DIR, "/bin/temper-server"), "--db", options.db,
                                        "--listen", options.listen};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  std::array<int, 2> out;
  if (pipe2(out.data(), O_CLOEXEC) != 0) return absl::InternalError("no pipe");
  const Descriptor err(open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  const Descriptor read_end(out[0]);
  Descriptor write_end(out[1]);
  pid_ = Spawn(arguments, options.environment, options.descriptors, write_end.get(), err.get());
  write_end.Reset();
  const std::string line = ReadLine(read_end.get());
  if (absl::StartsWith(line, kListens)) {
    address_ = line.substr(sizeof(kListens) - 1);
    return absl::OkStatus();
  }
  const int status = Wait();
  const std::string said = ReadAll(err.get());
  return absl::UnavailableError(absl::StrCat("ended with status ", status, ": ", absl::StripSuffix(said, "\n")));
}

void ServerProcess::Signal(int signal) { kill(pid_, signal); }

int ServerProcess::Wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return status;
}

bool ServerProcess::EndsWithin(absl::Duration patience) {
  for (const absl::Time give_up = absl::Now() + patience; waitpid(pid_, nullptr, WNOHANG) == 0;) {
    if (absl::Now() > give_up) return false;
    absl::SleepFor(absl::Milliseconds(2));
  }
  pid_ = -1;
  return true;
}

int ServerProcess::KillAndWait() {
  Signal(SIGKILL);
  return Wait();
}

double ServerProcess::CpuSeconds() const {
  std::ifstream stat(absl::StrCat("/proc/", pid_, "/stat"));
  std::string text((std::istreambuf_iterator<char>(stat)), std::istreambuf_iterator<char>());
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;  // utime is the 14th field of all
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace temper
