// The PEM files by which a peer is known and which say whom it trusts, and what is done while they are swapped.
#pragma once

#include <grpcpp/security/tls_certificate_provider.h>

#include <memory>
#include <string>

#include "base/descriptor.h"
#include "base/status.h"

namespace temper {

// Paths, and in TlsTexts what is read there. Without an authority the wire is plaintext; with a certificate and its
// key, this peer shows it.
struct TlsFiles {
  std::string authority, certificate, key;
};
struct TlsTexts {
  std::string authority, certificate, key;
  bool operator==(const TlsTexts&) const = default;
};

// The authority, and the certificate where one is named. An error names the file that is missing or unfit: empty,
// damaged, or a key that is not the certificate's.
absl::StatusOr<TlsTexts> ReadTlsFiles(const TlsFiles& files);

// What the files held when they were last sound, as gRPC takes it. gRPC's own watcher takes whatever a file holds: an
// empty one, which a full disk or a copy under way leaves, aborts the process, and a damaged one ends all handshakes.
// It is shown a copy in memory instead, which changes only once all of it was checked.
class TlsWatch {
 public:
  // Errors as of ReadTlsFiles; kUnavailable: no files can be made in memory.
  static absl::StatusOr<std::unique_ptr<TlsWatch>> Make(const TlsFiles& files);

  // Looks whether something was swapped; connections made a little later show it. What is not sound is told of in the
  // log, once, and not taken up. Not thread-safe.
  void LookAgain();

  // For credentials of connections that end before this object does.
  std::shared_ptr<grpc::experimental::CertificateProviderInterface> Provider() const;

 private:
  explicit TlsWatch(const TlsFiles& files) : files_(files) {}
  absl::Status TakeUp(const TlsTexts& texts);

  const TlsFiles files_;
  TlsTexts held_;
  std::string told_;                 // what the log says of the files as they are now; empty: they are sound
  int taken_ = 0;                    // how often something was taken up
  Descriptor authority_, identity_;  // files in memory; the second: the key and the certificate, not valid without
};

}  // namespace temper
