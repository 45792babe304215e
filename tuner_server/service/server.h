// temper-server without its main: a store served on an address.
#pragma once

#include <memory>
#include <string>

#include "security/gate.h"
#include "tuner_server/service/core.h"

namespace temper {

struct ServerOptions {
  std::string listen = "127.0.0.1:9190";  // or "unix:PATH"; port 0: one that is free
  bool insecure = false;                  // allows plaintext on addresses other than loopback and unix sockets
  std::string directory;                  // made by InitServerDirectory; empty: the server is open, its wire plaintext
  CoreOptions core;
  // A connection is made again at that age, whatever it does, so that a peer shows the certificate that it has by then.
  absl::Duration connection_age = absl::Hours(12);
  double hurry = 1;  // for tests: leases, renewals and keepalives are so many times shorter
};

// Checks the address of the options. An initialised server may listen anywhere. An open server may listen on unix
// sockets and loopback addresses only, unless it is told to be insecure.
absl::Status CheckListenAddress(const ServerOptions& options);

class Server {
 public:
  // Listens (with TLS where there is a directory and the address is no unix socket), closes the jobs that a dead server
  // left, and then serves. Renews its certificate when that is due. The store and the clock outlive it. Errors of the
  // address: ListeningSockets::Open.
  static absl::StatusOr<std::unique_ptr<Server>> Start(Store& store, const Clock& clock, const ServerOptions& options);
  ~Server();  // Shutdown

  const std::string& address() const;  // with the port that was chosen
  ServerCore& core();
  Gate& gate();
  // Jobs end as abandoned, watchers are told, calls end. Blocks for at most about two seconds.
  void Shutdown();

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace temper
