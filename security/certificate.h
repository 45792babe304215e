// What certificates say, and whether one of ours says it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"

struct x509_store_st;  // OpenSSL's X509_STORE

namespace temper {

inline constexpr char kDeviceUri[] = "temper://device/";  // before the key, in a certificate's names

struct Validity {
  absl::Time from, until;
};

struct Certificate {
  std::string serial;                    // hex, as the store keeps it
  std::string fingerprint;               // SHA-256, hex
  std::string public_key;                // its SHA-256, hex: the same after a renewal
  std::vector<std::string> device_keys;  // of its names temper://device/KEY
  std::vector<std::string> hosts;        // DNS names and IP addresses
  Validity validity;
};

// Of the first certificate of a PEM text. kInvalidArgument: there is none, or it can not be read.
absl::StatusOr<Certificate> ReadCertificate(std::string_view pem);

// kInvalidArgument: one of the two PEM texts can not be read, or the key is not the certificate's.
absl::Status CheckKeyOf(std::string_view certificate_pem, std::string_view key_pem);

// Device keys that certificates may name: 1 to 64 letters, digits, '.', '_', '-' and ':'.
absl::Status CheckDeviceKey(std::string_view key);

// Tells certificates of workers that one authority signed from all others. Thread-safe.
class CertificateVerifier {
 public:
  static absl::StatusOr<CertificateVerifier> Make(std::string_view authority_pem);
  // kUnauthenticated: another signed it, or it is not a worker's. Does not look at the time: see CheckTime.
  absl::StatusOr<Certificate> Verify(std::string_view pem) const;

 private:
  explicit CertificateVerifier(std::shared_ptr<x509_store_st> store) : store_(std::move(store)) {}
  std::shared_ptr<x509_store_st> store_;
};

// kUnauthenticated: expired, or not valid yet.
absl::Status CheckTime(const Certificate& certificate, absl::Time now);

// From then on, in the last third of its life, a certificate is to be renewed, and may be.
absl::Time RenewedFrom(const Certificate& certificate);

}  // namespace temper
