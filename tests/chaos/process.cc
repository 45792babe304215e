#include "tests/chaos/process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"

namespace temper {
namespace {

constexpr char kListens[] = "temper-server listening on ";

// In the child, between fork and exec; false: the system refuses.
bool Prepare(const ProcessOptions& options, int network, int out, int err) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (network >= 0 && setns(network, CLONE_NEWNET) != 0) return false;
  if (dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0) return false;
  if (options.descriptors == 0) return true;
  const auto most = static_cast<rlim_t>(options.descriptors);
  const rlimit limit{most, most};
  // This process's own do not count against it.
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 && close_range(3, ~0U, 0) == 0;
}

// What follows the program's name in /proc/PID/stat, from the third field on.
std::istringstream StatOf(pid_t pid) {
  std::ifstream stat(absl::StrCat("/proc/", pid, "/stat"));
  const std::string text((std::istreambuf_iterator<char>(stat)), std::istreambuf_iterator<char>());
  const size_t name_end = text.rfind(')');
  return std::istringstream(name_end == std::string::npos ? "" : text.substr(name_end + 2));
}

}  // namespace

Process::~Process() {
  if (running()) KillAndWait();
}

absl::Status Process::Start(const ProcessOptions& options) {
  std::vector<std::string> arguments = options.arguments, environment = options.environment;
  std::vector<char*> argv, envp;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  for (std::string& first : environment) envp.push_back(first.data());
  for (char** own = environ; *own != nullptr; ++own) envp.push_back(*own);
  envp.push_back(nullptr);

  std::array<int, 2> out{-1, -1};
  if (pipe2(out.data(), O_CLOEXEC) != 0) return absl::InternalError("no pipe");
  out_.Reset(out[0]);
  const Descriptor child_out(out[1]);
  err_.Reset(open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  Descriptor network;
  if (!options.network_namespace.empty()) {
    network.Reset(open(absl::StrCat("/run/netns/", options.network_namespace).c_str(), O_RDONLY | O_CLOEXEC));
    if (!network.valid()) return absl::NotFoundError(absl::StrCat("no namespace ", options.network_namespace));
  }
  pid_ = fork();
  if (pid_ < 0) return absl::InternalError("no process");
  if (pid_ > 0) return absl::OkStatus();
  if (Prepare(options, network.get(), child_out.get(), err_.get())) execve(argv[0], argv.data(), envp.data());
  _exit(127);
}

std::string Process::ReadLine() {
  std::string line;
  for (char byte; read(out_.get(), &byte, 1) == 1 && byte != '\n';) line += byte;
  return line;
}

std::string Process::Errors() const {
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t n; (n = pread(err_.get(), buffer.data(), buffer.size(), static_cast<off_t>(text.size()))) > 0;) {
    text.append(buffer.data(), static_cast<size_t>(n));
  }
  return text;
}

void Process::Signal(int signal) { kill(pid_, signal); }

int Process::Wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return status;
}

bool Process::EndsWithin(absl::Duration patience) {
  for (const absl::Time give_up = absl::Now() + patience; waitpid(pid_, nullptr, WNOHANG) == 0;) {
    if (absl::Now() > give_up) return false;
    absl::SleepFor(absl::Milliseconds(2));
  }
  pid_ = -1;
  return true;
}

int Process::KillAndWait() {
  Signal(SIGKILL);
  return Wait();
}

double Process::CpuSeconds() const {
  std::istringstream fields = StatOf(pid_);
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;  // utime is the 14th field of all
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::vector<pid_t> Process::Children() const {
  std::vector<pid_t> children;
  for (const auto& task : std::filesystem::directory_iterator(absl::StrCat("/proc/", pid_, "/task"))) {
    std::ifstream list(task.path() / "children");  // of one thread
    for (pid_t child; list >> child;) children.push_back(child);
  }
  return children;
}

int64_t Process::MemoryBytes(const std::string& what) const {
  std::ifstream status(absl::StrCat("/proc/", pid_, "/status"));
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == what + ":" && status >> kib) return kib << 10;
  }
  return 0;
}

size_t Process::Descriptors() const {
  const std::filesystem::directory_iterator open(absl::StrCat("/proc/", pid_, "/fd"));
  return static_cast<size_t>(std::distance(begin(open), end(open)));
}

bool IsAlive(pid_t pid) {
  std::string state;
  StatOf(pid) >> state;
  return !state.empty() && state != "Z" && state != "X";
}

absl::Status ServerProcess::Start(const ServerProcessOptions& options) {
  ProcessOptions process{.environment = options.environment,
                         .descriptors = options.descriptors,
                         .network_namespace = options.network_namespace};
  process.arguments = {absl::StrCat(TEMPER_BINARY_DIR, "/bin/temper-server"), "--db", options.db, "--listen",
                       options.listen};
  process.arguments.insert(process.arguments.end(), options.arguments.begin(), options.arguments.end());
  TEMPER_RETURN_IF_ERROR(Process::Start(process));
  const std::string line = ReadLine();
  if (absl::StartsWith(line, kListens)) {
    address_ = line.substr(sizeof(kListens) - 1);
    return absl::OkStatus();
  }
  const int status = Wait();
  return absl::UnavailableError(absl::StrCat("ended with status ", status, ": ", absl::StripSuffix(Errors(), "\n")));
}

absl::Status WorkerProcess::Start(const std::string& server, const std::string& key, const std::string& folder) {
  std::filesystem::create_directory(folder);
  return Process::Start({.arguments = {absl::StrCat(TEMPER_BINARY_DIR, "/bin/temper-worker"), "--server", server,
                                       "--key", key, "--device", "null"},
                         .environment = {"XDG_RUNTIME_DIR=" + folder}});
}

}  // namespace temper
