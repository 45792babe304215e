// The two ends of a TLS handshake by OpenSSL alone: what a peer of ours agrees to.
#pragma once

#include <string>
#include <thread>

#include "base/status.h"
#include "security/key.h"

namespace temper {

struct Handshake {
  std::string version;      // "TLSv1.3"
  std::string certificate;  // the peer's, PEM; empty: it showed none
};

// Dials "127.0.0.1:PORT" and offers versions up to `newest` (TLS1_2_VERSION, ...; 0: all). An error: no agreement.
absl::StatusOr<Handshake> Dial(const std::string& address, int newest);

// Listens on loopback, takes one connection and shakes hands on it with the chain it is given; without one it hangs up.
class OneHandshake {
 public:
  OneHandshake(const std::string& chain_pem, const PrivateKey& key);
  ~OneHandshake();
  const std::string& address() const { return address_; }
  // Waits for the connection's end. Empty: the handshake failed.
  std::string Version();

 private:
  void Serve(const std::string& chain_pem, const PrivateKey& key);

  int listening_ = -1;
  std::string address_, version_;
  std::thread thread_;
};

}  // namespace temper
