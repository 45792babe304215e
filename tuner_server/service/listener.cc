#include "tuner_server/service/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"

namespace temper {
namespace {

constexpr int kFewestReserved = 16, kMostReserved = 256;
constexpr absl::Duration kLook = absl::Milliseconds(200);  // between two looks for floods
constexpr int64_t kQuietBytes = 16 << 10;                  // less between two looks needs no closer one
constexpr absl::Duration kBetweenLooksAtBusy = absl::Milliseconds(5);
constexpr int64_t kUnansweredTogether = 256 << 20;  // as much as server.cc lets gRPC keep
constexpr absl::Duration kDeaf = absl::Seconds(5);  // to the address of a flood
constexpr size_t kMostToHand = 1024;                // connections that wait for gRPC to take them over
constexpr absl::Duration kBetweenLines = absl::Seconds(10);
// With no descriptor free, accept fails whether anybody waits or not: not tried again before this is over.
constexpr absl::Duration kPause = absl::Milliseconds(100);

int DescriptorLimit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 30));
}

// Who has the connection: an address without its port, with the user where that is one of this machine's; or the
// process that connected to a socket file.
std::string PeerOf(int connection, const sockaddr_storage& name, LocalPeers& local) {
  char text[INET6_ADDRSTRLEN] = "";
  if (name.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(name).sin_addr, text, sizeof(text));
  } else if (name.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(name).sin6_addr, text, sizeof(text));
  } else {
    ucred process{};
    socklen_t size = sizeof(process);
    getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &process, &size);
    return absl::StrCat("process ", process.pid);
  }
  const std::optional<uid_t> user = local.UserOf(connection, name);
  return user ? absl::StrCat(text, " (user ", *user, ")") : text;
}

// Unlike shutdown(2) this drops what came in and was not read yet, which a flood has megabytes of.
void Abort(int socket) {
  const sockaddr nobody{.sa_family = AF_UNSPEC};
  connect(socket, &nobody, sizeof(nobody));
}

Traffic TrafficOf(int socket) {
  int unread = 0;
  tcp_info info{};
  socklen_t size = sizeof(info);
  // In this order: what comes in between has been read, at worst.
  if (ioctl(socket, SIOCINQ, &unread) != 0 || getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  return {.received = static_cast<int64_t>(info.tcpi_bytes_received),
          .unread = unread,
          .sent = static_cast<int64_t>(info.tcpi_bytes_sent)};
}

}  // namespace

int DescriptorsForConnections(int limit) { return limit - std::clamp(limit / 3, kFewestReserved, kMostReserved); }

absl::StatusOr<std::unique_ptr<Listener>> Listener::Bind(const std::string& address, const Clock& clock) {
  TEMPER_ASSIGN_OR_RETURN(ListeningSockets sockets, ListeningSockets::Open(address));
  std::unique_ptr<Listener> listener(new Listener(std::move(sockets), clock));
  if (!listener->epoll_.valid() || !listener->stop_.valid() || !listener->spare_.valid()) {
    return absl::ResourceExhaustedError("there are no descriptors left to listen with");
  }
  return listener;
}

Listener::Listener(ListeningSockets sockets, const Clock& clock)
    : address_(sockets.address()),
      sockets_(std::move(sockets)),
      clock_(clock),
      descriptors_(DescriptorsForConnections(DescriptorLimit())),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      spare_(open("/dev/null", O_RDONLY | O_CLOEXEC)) {}

Listener::~Listener() { Close(); }

void Listener::Serve(std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> server) {
  server_ = std::move(server);
  handing_ = std::make_unique<WorkPool>(WorkPool::Limits{.threads = 2, .waiting = kMostToHand, .bytes = 1});
  Watch(stop_.get(), EPOLLIN);
  ResumeAccepting();
  thread_ = std::thread([this] { Loop(); });
}

void Listener::Close() {
  if (!thread_.joinable()) return;
  eventfd_write(stop_.get(), 1);
  thread_.join();
  handing_.reset();
  connections_.clear();
  sockets_.reset();
}

void Listener::Watch(int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

void Listener::PauseAccepting() {
  accept_from_ = Now() + kPause;
  for (const Descriptor& socket : sockets_->sockets()) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket.get(), nullptr);
}

void Listener::ResumeAccepting() {
  accept_from_.reset();
  for (const Descriptor& socket : sockets_->sockets()) Watch(socket.get(), EPOLLIN);
}

void Listener::Loop() {
  std::array<epoll_event, 64> events;
  for (absl::Duration look = Now() + kLook;;) {
    const absl::Duration wait = !busy_.empty()         ? absl::ZeroDuration()
                                : accept_from_         ? kPause
                                : connections_.empty() ? absl::InfiniteDuration()
                                                       : kLook;
    const int timeout = wait == absl::InfiniteDuration() ? -1 : static_cast<int>(absl::ToInt64Milliseconds(wait));
    const int n = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
    for (int i = 0; i < n; ++i) {
      if (events[i].data.fd == stop_.get()) return;
      Heed(events[i]);
    }
    if (accept_from_ && Now() >= *accept_from_) ResumeAccepting();
    if (Now() >= look) {
      LookForFloods();
      look = Now() + kLook;
    }
    if (busy_.empty()) continue;
    LookAtBusy();
    absl::SleepFor(kBetweenLooksAtBusy);  // or each packet would wake this thread
  }
}

void Listener::Heed(const epoll_event& event) {
  const auto connection = connections_.find(event.data.fd);
  if (connection == connections_.end()) {
    AcceptAll(event.data.fd);
  } else if (event.events & (EPOLLHUP | EPOLLERR)) {
    Forget(connection);  // gRPC shut it down, or the peer broke it off
  } else {
    busy_.insert(connection->first);
  }
}

void Listener::AcceptAll(int socket) {
  while (true) {
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    Descriptor connection(accept4(socket, reinterpret_cast<sockaddr*>(&peer), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (connection.valid()) {
      Take(std::move(connection), peer, socket);
    } else if (errno == EMFILE || errno == ENFILE) {
      if (!ShedOne(socket)) return PauseAccepting();
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;  // nobody waits
    }
  }
}

// Otherwise it would wait in the queue. False: nobody waits, or another thread took the descriptor.
bool Listener::ShedOne(int socket) {
  spare_.Reset();
  const bool shed = Descriptor(accept4(socket, nullptr, nullptr, SOCK_CLOEXEC)).valid();
  spare_.Reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (shed) Refuse("no descriptor is left");
  return shed;
}

void Listener::Take(Descriptor connection, const sockaddr_storage& name, int socket) {
  // A new descriptor has the lowest number that is free, so all numbers below are in use.
  if (connection.get() >= descriptors_) return Refuse("there are too many");
  const std::string peer_name = PeerOf(connection.get(), name, local_);
  Peer& peer = peers_[peer_name];
  if (Now() < peer.deaf_until) return Refuse("their peer has flooded the server");
  if (!peer.meter.Connects(Now())) return Refuse("one peer connects too often");
  // Each takes two descriptors.
  if (peer.connections >= descriptors_ / 4) return Refuse("one peer has too many");
  Descriptor duplicate(fcntl(connection.get(), F_DUPFD_CLOEXEC, 0));
  if (!duplicate.valid()) return Refuse("no descriptor is left");
  const int key = duplicate.get();
  // Each arrival is told once. Of a socket file's bytes nothing can be said.
  Watch(key, name.ss_family == AF_UNIX ? 0 : EPOLLIN | EPOLLET);
  ++peer.connections;
  connections_.emplace(key, Connection{std::move(duplicate), name, peer_name, FloodMeter(Now())});
  const int fd = connection.Release();
  const absl::Status handed = handing_->Run(peer_name, 0, [this, fd, socket] {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
    parameters.listener_fd = socket;
    parameters.fd = fd;
    server_->HandleNewConnection(&parameters);
  });
  if (handed.ok()) return;
  close(fd);
  Forget(connections_.find(key));
  Refuse("too many wait to be taken over");
}

void Listener::Forget(std::map<int, Connection>::iterator connection) {
  const std::string name = connection->second.peer;
  Peer& peer = peers_.at(name);
  --peer.connections;
  const int64_t received = TrafficOf(connection->second.duplicate.get()).received;  // none of one that was aborted
  const bool floods = peer.meter.Ends(connection->second.meter.UnansweredOf(received), Now());
  busy_.erase(connection->first);
  connections_.erase(connection);
  if (floods && Now() >= peer.deaf_until) CutOffPeer(name, -1);
}

void Listener::Refuse(const char* why) {
  ++refused_;
  if (Now() - refusals_told_ < kBetweenLines) return;
  spdlog::warn("{} connections were refused: {}", refused_, why);
  refused_ = 0;
  refusals_told_ = Now();
}

void Listener::LookAtBusy() {
  for (const int fd : std::exchange(busy_, {})) {
    const Traffic traffic = TrafficOf(fd);
    if (connections_.at(fd).meter.FloodsUnheeded(traffic, Now())) {
      CutOff(fd);
    } else if (traffic.unread > 0) {
      busy_.insert(fd);  // more may never arrive
    }
  }
}

void Listener::LookForFloods() {
  const absl::Duration now = Now();
  std::erase_if(peers_, [now](const auto& entry) {
    const Peer& peer = entry.second;
    return peer.connections == 0 && peer.deaf_until <= now && peer.meter.IsQuiet(now);
  });
  for (auto& [fd, connection] : connections_) {
    if (Floods(connection)) CutOff(fd);
  }
  LookForTooMuch();
}

bool Listener::Floods(Connection& connection) {
  const int64_t bytes = TrafficOf(connection.duplicate.get()).received;
  const bool waits = connection.transport >= 0 && connection.meter.unanswered() >= kQuietBytes;
  if (bytes - connection.bytes < kQuietBytes && !waits) return false;
  connection.bytes = bytes;
  if (connection.transport < 0) connection.transport = TransportCounters::Find(connection.name).value_or(-1);
  if (connection.transport < 0) return false;  // it shakes hands, which gRPC limits
  const std::optional<StreamCounts> counts = TransportCounters::Read(connection.transport);
  return counts && connection.meter.Floods(bytes, *counts, Now());
}

void Listener::LookForTooMuch() {
  int64_t together = 0;
  std::map<std::string, int64_t> of_peer;
  std::pair<int64_t, int> most;  // of one peer, and one of its connections
  for (const auto& [fd, connection] : connections_) {
    if (connection.transport < 0) continue;  // its answers are not known
    together += connection.meter.unanswered();
    most = std::max(most, {of_peer[connection.peer] += connection.meter.unanswered(), fd});
  }
  if (together > kUnansweredTogether) CutOff(most.second);
}

void Listener::CutOff(int fd) { CutOffPeer(connections_.at(fd).peer, fd); }

void Listener::CutOffPeer(const std::string& peer, int fd) {
  int cut = 0;
  for (const auto& [other, connection] : connections_) {
    const bool suspect = connection.peer == peer && connection.meter.unanswered() > FloodMeter::kBytesOfSuspects;
    if (other != fd && !suspect) continue;
    Abort(other);  // then its end is seen here and by gRPC
    ++cut;
  }
  spdlog::warn("{} flooded the server: {} of its connections were cut off", peer, cut);
  peers_.at(peer).deaf_until = Now() + kDeaf;
}

}  // namespace temper
