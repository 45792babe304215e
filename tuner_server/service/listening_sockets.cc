#include "tuner_server/service/listening_sockets.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace temper {
namespace {

constexpr char kUnix[] = "unix:";
// A peer that acknowledges nothing that was sent for so long is gone.
constexpr unsigned kUnacknowledgedMs = 20'000;
constexpr int kPortTries = 8;  // a port that one address of a host chose may be taken on another

absl::Status CanNotListen(const std::string& where, int error) {
  return absl::UnavailableError(absl::StrCat("cannot listen on ", where, ": ", std::strerror(error),
                                             error == EADDRINUSE ? "; is another server running there?" : ""));
}

std::string LockPath(const std::string& path) { return path + ".lock"; }

// The lock, or one that is not valid where another process holds it.
absl::StatusOr<Descriptor> TakeLock(const std::string& path) {
  while (true) {
    Descriptor lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!lock.valid()) return CanNotListen(path, errno);
    if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return Descriptor();
    // Its last holder may have taken the file away between the two calls.
    struct stat held {
    }, named{};
    if (fstat(lock.get(), &held) == 0 && stat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino) return lock;
  }
}

// Somebody listens on the socket file.
bool Answers(const sockaddr_un& name) {
  const Descriptor probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // A queue that is full says EAGAIN: somebody is there, who is slow.
  return connect(probe.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0 || errno == EAGAIN;
}

void Set(int socket, int level, int option, unsigned value) {
  setsockopt(socket, level, option, &value, sizeof(value));
}

// Not valid, and errno says why, where the address can not be had. Connections inherit what is set here.
Descriptor ListenTcp(const addrinfo& at) {
  Descriptor socket(::socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return socket;
  Set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);  // a server that comes back does not wait for old connections
  Set(socket.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  Set(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, kUnacknowledgedMs);
  if (at.ai_family == AF_INET6) {
    // "[::]" takes IPv4 too.
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(at.ai_addr);
    Set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr) ? 0 : 1);
  }
  if (bind(socket.get(), at.ai_addr, at.ai_addrlen) == 0 && listen(socket.get(), SOMAXCONN) == 0) return socket;
  const int error = errno;
  socket.Reset();
  errno = error;
  return socket;
}

absl::StatusOr<in_port_t> PortOf(int socket) {
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&name), &size) != 0) return CanNotListen("a socket", errno);
  // Both families have the port at the same place.
  return reinterpret_cast<const sockaddr_in*>(&name)->sin_port;
}

}  // namespace

bool IsUnixAddress(const std::string& address) { return absl::StartsWith(address, kUnix); }

HostAndPort SplitHostPort(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return {};
  std::string host = address.substr(0, colon);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return {host, address.substr(colon + 1)};
}

absl::StatusOr<ListeningSockets> ListeningSockets::Open(const std::string& address) {
  ListeningSockets result;
  if (IsUnixAddress(address)) {
    absl::string_view path = address;
    path.remove_prefix(sizeof(kUnix) - 1);
    absl::ConsumePrefix(&path, "//");  // as in a URI
    TEMPER_RETURN_IF_ERROR(result.OpenUnix(std::string(path)));
    result.address_ = address;
    return result;
  }
  const HostAndPort parts = SplitHostPort(address);
  int port = -1;
  if (parts.host.empty() || !absl::SimpleAtoi(parts.port, &port) || port < 0 || port > 0xFFFF) {
    return absl::InvalidArgumentError(absl::StrCat("'", address, "' is neither HOST:PORT nor unix:PATH"));
  }
  absl::Status opened;
  for (int tries = port == 0 ? kPortTries : 1; tries > 0; --tries) {
    opened = result.OpenTcp(parts.host, parts.port);
    if (opened.ok()) break;
    result.sockets_.clear();
  }
  TEMPER_RETURN_IF_ERROR(opened);
  TEMPER_ASSIGN_OR_RETURN(const in_port_t chosen, PortOf(result.sockets_[0].get()));
  result.address_ = absl::StrCat(address.substr(0, address.rfind(':')), ":", ntohs(chosen));
  return result;
}

absl::Status ListeningSockets::OpenUnix(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(name.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("the path of a socket has 1 to ", sizeof(name.sun_path) - 1,
                                                   " bytes, and '", path, "' has ", path.size()));
  }
  path.copy(name.sun_path, path.size());
  TEMPER_ASSIGN_OR_RETURN(lock_, TakeLock(LockPath(path)));
  path_ = path;
  if (!lock_.valid() || Answers(name)) return CanNotListen(path, EADDRINUSE);
  struct stat there {};
  if (lstat(path.c_str(), &there) == 0 && S_ISSOCK(there.st_mode)) unlink(path.c_str());
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  fchmod(socket.get(), 0600);  // what bind makes is its owner's alone from the first moment
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0) {
    return errno == EADDRINUSE ? absl::UnavailableError(absl::StrCat("cannot listen on ", path, ": it is no socket"))
                               : CanNotListen(path, errno);
  }
  sockets_.push_back(std::move(socket));
  return listen(sockets_[0].get(), SOMAXCONN) == 0 ? absl::OkStatus() : CanNotListen(path, errno);
}

absl::Status ListeningSockets::OpenTcp(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int failed = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); failed != 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", host, ": ", gai_strerror(failed)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);
  int refused = 0;
  std::set<std::string> met;  // a hosts file may name one address twice
  for (addrinfo* at = found; at != nullptr; at = at->ai_next) {
    if (!met.emplace(reinterpret_cast<const char*>(at->ai_addr), at->ai_addrlen).second) continue;
    if (!sockets_.empty()) {
      TEMPER_ASSIGN_OR_RETURN(const in_port_t chosen, PortOf(sockets_[0].get()));
      reinterpret_cast<sockaddr_in*>(at->ai_addr)->sin_port = chosen;
    }
    Descriptor socket = ListenTcp(*at);
    if (socket.valid()) {
      sockets_.push_back(std::move(socket));
    } else if (refused != EADDRINUSE) {
      refused = errno;
    }
  }
  // An address that this machine does not have (IPv6 switched off) may be missing; one that somebody else has may not.
  const bool listens = !sockets_.empty() && refused != EADDRINUSE;
  return listens ? absl::OkStatus() : CanNotListen(absl::StrCat(host, ":", port), refused);
}

ListeningSockets::~ListeningSockets() {
  if (!lock_.valid()) return;
  // Under the lock, so that both are still its own.
  if (!sockets_.empty()) unlink(path_.c_str());
  unlink(LockPath(path_).c_str());
}

}  // namespace temper
