#include "measure_worker/backends/null/faults.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "measure_worker/sandbox/launch.h"

namespace temper::worker {
namespace {

// Whoever handles the signal, a sanitizer's report included.
void Die(int number) {
  signal(number, SIG_DFL);
  raise(number);
}

[[noreturn]] void Hang() {
  signal(SIGTERM, SIG_IGN);
  for (;;) pause();
}

void Say(std::string_view bytes) {
  if (write(kChildFd, bytes.data(), bytes.size()) < 0) _exit(4);
}

void TakeProcesses() {
  int started = 0;
  for (pid_t pid; (pid = fork()) >= 0; ++started) {
    if (pid == 0) Hang();
  }
  std::fprintf(stderr, "started %d processes\n", started);
  Hang();
}

void TakeMemory() {
  constexpr size_t kStep = 8 << 20;
  for (size_t taken = 0;; taken += kStep) {
    char* more = static_cast<char*>(std::malloc(kStep));
    if (more == nullptr) {
      std::fprintf(stderr, "no more than %zu MiB\n", taken >> 20);
      Die(SIGABRT);
    }
    std::memset(more, 1, kStep);
  }
}

void TakeDisk() {
  const std::vector<char> block(1 << 20, 'x');
  const std::string folder = std::getenv("TMPDIR");
  for (int i = 0;; ++i) {
    const int fd = open(absl::StrCat(folder, "/", i).c_str(), O_WRONLY | O_CREAT, 0600);
    if (fd < 0 || write(fd, block.data(), block.size()) != static_cast<ssize_t>(block.size())) {
      std::fprintf(stderr, "no more than %d MiB\n", i);
      _exit(3);
    }
    close(fd);
  }
}

bool Connects(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

// Whether a byte goes out in one of the ways that name an address. A socket of a pair may send it to the other one.
bool Sends(int fd, sockaddr_un address) {
  char byte = 'x';
  iovec bytes{&byte, 1};
  mmsghdr message{};
  message.msg_hdr.msg_name = &address;
  message.msg_hdr.msg_namelen = sizeof address;
  message.msg_hdr.msg_iov = &bytes;
  message.msg_hdr.msg_iovlen = 1;
  const bool to = sendto(fd, &byte, 1, 0, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 1;
  const bool one = sendmsg(fd, &message.msg_hdr, 0) == 1;
  const bool several = sendmmsg(fd, &message, 1, 0) == 1;
  return to || one || several;
}

// What drivers do to learn whether a daemon of theirs is there. It must be possible, and find nobody.
std::string Asks(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  int pair[2];
  for (const int kind : {SOCK_DGRAM, SOCK_RAW, SOCK_STREAM, SOCK_SEQPACKET}) {
    if (socketpair(AF_UNIX, kind | SOCK_CLOEXEC, 0, pair) != 0) continue;
    Sends(pair[0], address);  // who listens there tells whether it came
    if (kind == SOCK_DGRAM || kind == SOCK_RAW) return "a pair of sockets may send to whoever listens";
  }
  if (socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0) >= 0) return "it may send to whoever listens";
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return "it may not ask";
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return "it found somebody";
  if (errno != ENOENT) return "it was not told that nobody is there";
  return Sends(fd, address) ? "it sent" : "";
}

bool ChangesMode(const std::string& path) {
  constexpr long kFchmodat2 = 452;  // headers may be older
  return chmod(path.c_str(), 0666) == 0 || syscall(kFchmodat2, AT_FDCWD, path.c_str(), 0666, 0) == 0;
}

// A file's owner is sent a signal, whichever was chosen, when there is something to read.
bool MakesOwner(pid_t pid) {
  int pipe[2];
  return pipe2(pipe, O_CLOEXEC) == 0 && fcntl(pipe[0], F_SETOWN, pid) == 0;
}

bool Opens(const std::string& path, int flags) { return open(path.c_str(), flags | O_CLOEXEC, 0600) >= 0; }

}  // namespace

std::string Field(std::string_view config, std::string_view name) {
  for (absl::string_view part : absl::StrSplit(absl::string_view(config.data(), config.size()), ',')) {
    const std::pair<std::string, std::string> field = absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (field.first == name) return field.second;
  }
  return "";
}

void Misbehave(std::string_view fault, std::string_view config) {
  if (fault == "segv") Die(SIGSEGV);
  if (fault == "ill") Die(SIGILL);
  if (fault == "abort") {
    std::fputs("free(): invalid pointer\n", stderr);
    Die(SIGABRT);
  }
  if (fault == "exit") _exit(3);
  if (fault == "hang") Hang();
  if (fault == "garbage") {
    Say(std::string(64, '\xee'));
    Hang();
  }
  if (fault == "say") Say(absl::HexStringToBytes(Field(config, "bytes")));
  if (fault == "chatter") {
    for (int i = 0; i < 10000; ++i) std::fprintf(stderr, "line %d of a great many that nobody will read\n", i);
    Die(SIGSEGV);
  }
  if (fault == "log") {
    for (;;) std::fputs("a line that is written without end\n", stderr);
  }
  if (fault == "forks") TakeProcesses();
  if (fault == "memory") TakeMemory();
  if (fault == "disk") TakeDisk();
}

std::string Escape(std::string_view config) {
  const std::string how = Field(config, "escape"), path = Field(config, "path");
  int pid = 0, port = 0;
  const bool has_pid = absl::SimpleAtoi(Field(config, "pid"), &pid);
  const bool has_port = absl::SimpleAtoi(Field(config, "port"), &port);
  if (how == "connect" && has_port && Connects(port)) return "it connected";
  if (how == "ask") return Asks(path);
  if (how == "read" && Opens(path, O_RDONLY)) return "it read " + path;
  if (how == "write" && Opens(path, O_WRONLY | O_CREAT)) return "it wrote " + path;
  if (how == "mode" && ChangesMode(path)) return "it changed the mode of " + path;
  if (how == "ptrace" && has_pid && ptrace(PTRACE_ATTACH, pid, nullptr, nullptr) == 0) return "it traces its parent";
  if (how == "kill" && has_pid && kill(pid, 0) == 0) return "it could have killed its parent";
  if (how == "own" && has_pid && MakesOwner(pid)) return "it could have had its parent sent any signal";
  if (how == "peek" && has_pid && Opens(absl::StrCat("/proc/", pid, "/mem"), O_RDONLY))
    return "it saw its parent's memory";
  return "";
}

}  // namespace temper::worker
