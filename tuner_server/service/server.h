// temper-server without its main: a store served on an address.
#pragma once

#include <memory>
#include <string>

#include "tuner_server/service/core.h"

namespace grpc {
class ServerCredentials;
}

namespace temper {

struct ServerOptions {
  std::string listen = "127.0.0.1:9190";                 // or "unix:PATH"; port 0: one that is free
  bool insecure = false;                                 // allows addresses other than loopback and unix sockets
  std::shared_ptr<grpc::ServerCredentials> credentials;  // null: plaintext
  CoreOptions core;
  double hurry = 1;  // for tests: leases, renewals and keepalives are so many times shorter
};

// OK for unix sockets and loopback addresses, any other only if `insecure`.
absl::Status CheckListenAddress(const std::string& listen, bool insecure);

// gRPC writes to stderr in its own way, and what matters of it comes back as a status: sends it to the debug log. Once,
// from main.
void LogGrpcQuietly();

class Server {
 public:
  // Listens, closes the jobs that a dead server left, and then serves. The store and the clock outlive it. Errors of
  // the address: ListeningSockets::Open.
  static absl::StatusOr<std::unique_ptr<Server>> Start(Store& store, const Clock& clock, const ServerOptions& options);
  ~Server();  // Shutdown

  const std::string& address() const;  // with the port that was chosen
  ServerCore& core();
  // Jobs end as abandoned, watchers are told, calls end. Blocks for at most about two seconds.
  void Shutdown();

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace temper
