// The authority of a fleet: it signs the server's certificate and those of its workers.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "security/certificate.h"
#include "security/key.h"

namespace temper {

// Immutable, so thread-safe. Certificates get random serial numbers of 128 bits and begin five minutes early, for
// clocks that lag.
class CertificateAuthority {
 public:
  static absl::StatusOr<CertificateAuthority> Create(PrivateKey key, Validity validity);
  // kInvalidArgument: the key is another's, or the certificate may not sign.
  static absl::StatusOr<CertificateAuthority> Load(std::string_view certificate_pem, std::string_view key_pem);

  const std::string& certificate_pem() const { return pem_; }
  const std::string& fingerprint() const { return fingerprint_; }  // SHA-256, hex

  // For who holds the key that signed `request`, to serve `device_keys`. kInvalidArgument: not a request, not of P-256,
  // signed by another key, or no or malformed device keys. What the request says of names is ignored.
  absl::StatusOr<std::string> SignWorker(std::string_view request, std::span<const std::string> device_keys,
                                         Validity validity) const;
  // Another for the key and the device keys of a worker's certificate, which CertificateVerifier found good.
  absl::StatusOr<std::string> RenewWorker(std::string_view certificate_pem, Validity validity) const;
  // For a server of ours, known by `hosts` (DNS names or IP addresses; kInvalidArgument: another). With this
  // authority's certificate behind it, so that joining workers see whom they talk to.
  absl::StatusOr<std::string> SignServer(const PrivateKey& key, std::span<const std::string> hosts,
                                         Validity validity) const;

 private:
  CertificateAuthority(PrivateKey key, std::string pem, std::string fingerprint)
      : key_(std::move(key)), pem_(std::move(pem)), fingerprint_(std::move(fingerprint)) {}
  absl::StatusOr<std::string> SignKey(evp_pkey_st* subject_key, std::span<const std::string> device_keys,
                                      Validity validity) const;
  PrivateKey key_;
  std::string pem_, fingerprint_;
};

}  // namespace temper
