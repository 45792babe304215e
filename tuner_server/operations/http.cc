#include "tuner_server/operations/http.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "tuner_server/operations/slow_replies.h"

namespace temper {
namespace {

// With no descriptor free, accept fails at once and for as long as that lasts: not tried again before this is over.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);

std::string_view Reason(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 421:
      return "Misdirected Request";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
  }
  return "Error";
}

std::string ToWire(const HttpReply& reply) {
  const std::string_view reason = Reason(reply.code);
  std::string wire = absl::StrCat("HTTP/1.1 ", reply.code, " ", absl::string_view(reason.data(), reason.size()),
                                  "\r\nContent-Type: ", reply.type, "\r\nContent-Length: ", reply.body.size());
  for (const auto& [name, value] : reply.headers) absl::StrAppend(&wire, "\r\n", name, ": ", value);
  absl::StrAppend(&wire, "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
                  reply.body);
  return wire;
}

constexpr char kText[] = "text/plain; charset=utf-8";

HttpReply NotAllowed(const std::string& allowed, const std::string& why) {
  return {405, kText, why + "\n", {{"Allow", allowed}}};
}

// A request is read, its reply is made and written, and what else the peer sends is read and dropped until it closes:
// to close with bytes unread would reset the connection and could take the reply with it.
enum class Phase { kReading, kAwaiting, kWriting, kEnding };

struct Connection {
  int64_t id;
  int fd;
  bool local;               // see HttpRequest
  absl::Duration deadline;  // of its phase, monotonic
  Phase phase = Phase::kReading;
  std::string in, out;
  std::optional<HttpRequest> request;  // once its header is here
  size_t head = 0;                     // its bytes, the empty line too
  size_t body = 0;                     // bytes that are to come behind them
  size_t written = 0;
};

short AwaitedBy(Phase phase) {
  if (phase == Phase::kAwaiting) return POLLRDHUP;
  return phase == Phase::kWriting ? POLLOUT : POLLIN;
}

bool IsLoopback(const sockaddr& address) {
  if (address.sa_family == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
  }
  return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == 127;
}

// What `address` says, in the kernel's form.
absl::StatusOr<sockaddr_storage> Resolve(const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = 0;
  const bool sound = colon != std::string::npos && colon > 0 && absl::SimpleAtoi(address.substr(colon + 1), &port);
  if (!sound || port < 0 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("--http takes HOST:PORT, not '", address, "'"));
  }
  std::string host = address.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (host == "localhost") host = "127.0.0.1";
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--http takes an address and a port, not '", address, "'"));
  }
  sockaddr_storage resolved{};
  std::memcpy(&resolved, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return resolved;
}

// A socket that listens there. `bound`: the address with the port that was chosen.
absl::StatusOr<int> Listen(const HttpOptions& options, std::string* bound) {
  TEMPER_ASSIGN_OR_RETURN(sockaddr_storage name, Resolve(options.listen));
  sockaddr* plain = reinterpret_cast<sockaddr*>(&name);
  if (!options.beyond_loopback && !IsLoopback(*plain)) {
    return absl::PermissionDeniedError(absl::StrCat(
        "'", options.listen,
        "' can be reached from other machines, and the pages of --http are neither encrypted nor kept from "
        "anyone; say --http-insecure to serve them there anyway"));
  }
  const int fd = socket(name.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  socklen_t size = name.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (fd < 0 || bind(fd, plain, size) != 0 || listen(fd, 64) != 0 || getsockname(fd, plain, &size) != 0) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", options.listen, " for HTTP: ", std::strerror(error)));
  }
  const uint16_t port = name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&name)->sin6_port
                                                   : reinterpret_cast<sockaddr_in*>(&name)->sin_port;
  *bound = absl::StrCat(options.listen.substr(0, options.listen.rfind(':')), ":", ntohs(port));
  return fd;
}

}  // namespace

struct HttpListener::Impl {
  HttpOptions options;
  std::vector<HttpRoute> routes;
  std::string address;
  int listener = -1, stop = -1;
  int made = -1;                      // an eventfd as well: slow replies can be taken
  std::list<Connection> connections;  // oldest first
  absl::Duration accept_from = -absl::InfiniteDuration();
  int64_t accepted = 0;  // connections
  std::optional<SlowReplies> slow;
  std::thread thread;

  ~Impl() {
    if (thread.joinable() && eventfd_write(stop, 1) == 0) thread.join();
    for (const Connection& connection : connections) Close(connection);
    slow.reset();
    if (listener >= 0) close(listener);
    if (stop >= 0) close(stop);
    if (made >= 0) close(made);
  }

  static absl::Duration Now() { return Clock::System().Monotonic(); }

  void Loop();
  int PollMs() const;
  void Accept();
  bool Serve(Connection& connection);  // false: it is over
  bool Read(Connection& connection);
  bool Reply(Connection& connection, const HttpReply& reply);
  bool Write(Connection& connection);
  void Close(const Connection& connection);
  void ReplySlowly();
  // What there is to say to what came so far; nullopt: more has to come, or it is made slowly.
  std::optional<HttpReply> Hear(Connection& connection);
  std::optional<HttpReply> Route(Connection& connection);
};

// The loop's next deadline.
int HttpListener::Impl::PollMs() const {
  absl::Duration next = absl::InfiniteDuration();
  for (const Connection& connection : connections) next = std::min(next, connection.deadline);
  if (accept_from > Now()) next = std::min(next, accept_from);
  if (next == absl::InfiniteDuration()) return -1;
  return static_cast<int>(absl::ToInt64Milliseconds(std::max(next - Now(), absl::ZeroDuration()))) + 1;
}

void HttpListener::Impl::Loop() {
  for (;;) {
    std::vector<pollfd> polled = {
        {stop, POLLIN, 0}, {Now() < accept_from ? -1 : listener, POLLIN, 0}, {made, POLLIN, 0}};
    for (const Connection& connection : connections) polled.push_back({connection.fd, AwaitedBy(connection.phase), 0});
    if (poll(polled.data(), polled.size(), PollMs()) < 0 && errno != EINTR) {
      spdlog::error("the HTTP listener ends: {}", std::strerror(errno));
      return;
    }
    if (polled[0].revents != 0) return;
    size_t i = 3;
    for (auto next = connections.begin(); next != connections.end(); ++i) {
      const bool open = (polled[i].revents == 0 || Serve(*next)) && Now() < next->deadline;
      if (!open) Close(*next);
      next = open ? std::next(next) : connections.erase(next);
    }
    if (polled[2].revents != 0) ReplySlowly();
    if (polled[1].revents != 0) Accept();
  }
}

void HttpListener::Impl::Accept() {
  // A turn's worth: who is connected is served in between.
  for (size_t i = 0; i < options.most_connections; ++i) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    const int fd = accept4(listener, reinterpret_cast<sockaddr*>(&peer), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN) accept_from = Now() + kAcceptPause;
      return;
    }
    if (connections.size() >= options.most_connections) {
      Close(connections.front());
      connections.pop_front();
    }
    connections.push_back({++accepted, fd, IsLoopback(reinterpret_cast<sockaddr&>(peer)), Now() + options.patience});
    // Most requests are here already; who brings one is served before newcomers can push it out.
    if (!Read(connections.back())) {
      Close(connections.back());
      connections.pop_back();
    }
  }
}

bool HttpListener::Impl::Serve(Connection& connection) {
  switch (connection.phase) {
    case Phase::kAwaiting:
      return false;  // nothing but its end is awaited of it
    case Phase::kWriting:
      return Write(connection);
    default:
      return Read(connection);
  }
}

bool HttpListener::Impl::Read(Connection& connection) {
  char bytes[4096];
  const ssize_t n = recv(connection.fd, bytes, sizeof bytes, 0);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) return false;
  if (connection.phase == Phase::kEnding) return true;
  connection.in.append(bytes, static_cast<size_t>(n));
  const std::optional<HttpReply> reply = Hear(connection);
  return !reply.has_value() || Reply(connection, *reply);
}

bool HttpListener::Impl::Reply(Connection& connection, const HttpReply& reply) {
  connection.in.clear();
  connection.request.reset();
  connection.out = ToWire(reply);
  connection.phase = Phase::kWriting;
  connection.deadline = Now() + options.patience;
  return Write(connection);
}

bool HttpListener::Impl::Write(Connection& connection) {
  const ssize_t n = send(connection.fd, connection.out.data() + connection.written,
                         connection.out.size() - connection.written, MSG_NOSIGNAL);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  connection.written += static_cast<size_t>(n);
  if (connection.written < connection.out.size()) return true;
  connection.phase = Phase::kEnding;
  shutdown(connection.fd, SHUT_WR);
  return true;
}

void HttpListener::Impl::Close(const Connection& connection) {
  if (connection.phase == Phase::kAwaiting) slow->Drop(connection.id);
  close(connection.fd);
}

void HttpListener::Impl::ReplySlowly() {
  eventfd_t times;
  eventfd_read(made, &times);
  for (const auto& [id, reply] : slow->Take()) {
    const auto asked = std::ranges::find(connections, id, &Connection::id);
    if (asked == connections.end() || Reply(*asked, reply)) continue;  // or it is gone
    Close(*asked);
    connections.erase(asked);
  }
}

std::optional<HttpReply> HttpListener::Impl::Hear(Connection& connection) {
  const std::string& in = connection.in;
  if (!connection.request.has_value()) {
    const size_t end = in.find("\r\n\r\n");
    if (std::min(end, in.size()) > options.most_header_bytes) return HttpReply{431, kText, "the header is too long\n"};
    if (end == std::string::npos) return std::nullopt;
    absl::StatusOr<HttpRequest> request = ParseHttpRequest(std::string_view(in).substr(0, end));
    if (!request.ok()) {
      const std::string why(request.status().message());
      return absl::IsUnimplemented(request.status()) ? NotAllowed("GET, POST", why) : HttpReply{400, kText, why + "\n"};
    }
    const std::string& length = request->Header("content-length");
    if (!length.empty() && !absl::SimpleAtoi(length, &connection.body)) {
      return HttpReply{400, kText, "the Content-Length is no number\n"};
    }
    if (connection.body > options.most_body_bytes) return HttpReply{413, kText, "the body is too long\n"};
    connection.head = end + 4;
    connection.request = *std::move(request);
    connection.request->local = connection.local;
  }
  if (in.size() - connection.head < connection.body) return std::nullopt;
  connection.request->body = in.substr(connection.head, connection.body);
  return Route(connection);
}

std::optional<HttpReply> HttpListener::Impl::Route(Connection& connection) {
  const HttpRequest& request = *connection.request;
  std::string paths, allowed;
  for (const HttpRoute& route : routes) {
    absl::StrAppend(&paths, " ", route.path);
    if (route.path != request.path) continue;
    if (route.method == request.method) {
      if (!route.slow) return route.reply(request);
      if (!slow->Make(connection.id, [&route, request] { return route.reply(request); })) {
        return HttpReply{503, kText, "too many ask at once; try again\n"};
      }
      connection.phase = Phase::kAwaiting;
      connection.deadline = absl::InfiniteDuration();
      return std::nullopt;
    }
    absl::StrAppend(&allowed, allowed.empty() ? "" : ", ", route.method);
  }
  if (!allowed.empty()) return NotAllowed(allowed, absl::StrCat(request.path, " takes only ", allowed));
  return HttpReply{404, kText, absl::StrCat("there is no such page; there are:", paths, "\n")};
}

HttpListener::HttpListener(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpListener::~HttpListener() = default;
const std::string& HttpListener::address() const { return impl_->address; }

absl::StatusOr<std::unique_ptr<HttpListener>> HttpListener::Start(const HttpOptions& options,
                                                                  std::vector<HttpRoute> routes) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->routes = std::move(routes);
  TEMPER_ASSIGN_OR_RETURN(impl->listener, Listen(options, &impl->address));
  impl->stop = eventfd(0, EFD_CLOEXEC);
  impl->made = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (impl->stop < 0 || impl->made < 0) return absl::UnavailableError(std::strerror(errno));
  impl->slow.emplace([made = impl->made] { eventfd_write(made, 1); });
  impl->thread = std::thread([impl = impl.get()] { impl->Loop(); });
  return std::unique_ptr<HttpListener>(new HttpListener(std::move(impl)));
}

}  // namespace temper
