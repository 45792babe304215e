// Private keys: P-256, made where they are used and never sent anywhere.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

struct evp_pkey_st;  // OpenSSL's EVP_PKEY

namespace temper {

// Cheap to copy; immutable, so thread-safe.
class PrivateKey {
 public:
  static absl::StatusOr<PrivateKey> Generate();
  static absl::StatusOr<PrivateKey> FromPem(std::string_view pem);  // kInvalidArgument: none, or not of P-256

  std::string Pem() const;  // PKCS#8, not encrypted: for private files alone
  // A request for a certificate (PKCS#10, PEM), signed as proof that who asks holds the key. It carries no names: who
  // signs knows them.
  absl::StatusOr<std::string> CertificateRequest() const;

  evp_pkey_st* get() const { return key_.get(); }

 private:
  explicit PrivateKey(std::shared_ptr<evp_pkey_st> key) : key_(std::move(key)) {}
  std::shared_ptr<evp_pkey_st> key_;
};

}  // namespace temper
