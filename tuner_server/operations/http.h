// A small HTTP/1.1 server for machines that look after this one and for the dashboard: GET and POST, each reply from a
// function. One thread does all but the slow replies, which another one makes (slow_replies.h).
//
// Whoever connects can cost little: connections, the bytes of a request and the time for it are bounded, every
// connection closes after its reply, and where there are too many the oldest goes. It speaks plaintext and asks nobody
// who they are, so it listens on loopback unless told otherwise.
//
// It is ours because Debian's libraries for this (cpp-httplib, 0.11) give each connection a thread and each read its
// own time: a request that trickles holds a thread for as long as it likes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"

namespace temper {

struct HttpRequest {
  std::string path;                            // decoded
  std::map<std::string, std::string> query;    // decoded; the last of equal names counts
  std::string method = "GET";                  // or "POST"
  std::map<std::string, std::string> headers;  // names in lower case; equal ones are joined by ", "
  std::string body;
  bool local = false;  // the peer is on this machine

  // "" where there is none.
  const std::string& Header(const std::string& name) const;
  std::string Query(const std::string& name) const;
};

struct HttpReply {
  int code = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // beside those that each reply has
};

struct HttpRoute {
  std::string path;  // the whole of it
  // Called on the listener's thread, or on that of the slow ones; on either one at a time.
  std::function<HttpReply(const HttpRequest&)> reply;
  std::string method = "GET";
  bool slow = false;  // may take longer than others are to wait: whoever probes whether this process lives, say
};

struct HttpOptions {
  std::string listen;            // HOST:PORT, a numeric address or localhost; port 0: one that is free
  bool beyond_loopback = false;  // takes addresses that other machines reach
  size_t most_connections = 64;
  size_t most_header_bytes = 8 << 10;
  size_t most_body_bytes = 4 << 10;
  absl::Duration patience = absl::Seconds(5);  // for the whole request, and again for the whole reply
};

class HttpListener {
 public:
  // kInvalidArgument: no address; kPermissionDenied: it is not loopback; kUnavailable: it is taken.
  static absl::StatusOr<std::unique_ptr<HttpListener>> Start(const HttpOptions& options, std::vector<HttpRoute> routes);
  ~HttpListener();  // ends its thread and closes all connections

  const std::string& address() const;  // with the port that was chosen

 private:
  struct Impl;
  explicit HttpListener(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The first line and the header as they came, without the empty line. An error's message is fit for the reply: the
// status is kUnimplemented for methods but GET and POST, else kInvalidArgument.
absl::StatusOr<HttpRequest> ParseHttpRequest(std::string_view head);
// What a query or a form says: a=1&b=2. nullopt: a percent sign without two hex digits.
std::optional<std::map<std::string, std::string>> ParseHttpForm(std::string_view text);

}  // namespace temper
