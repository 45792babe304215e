// OpenSSL's objects with their owners, and its errors as statuses. For the sources of this folder.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace temper {

template <auto kFree>
struct FreeBy {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using OwnedBio = std::unique_ptr<BIO, FreeBy<BIO_free>>;
using OwnedKey = std::unique_ptr<EVP_PKEY, FreeBy<EVP_PKEY_free>>;
using OwnedRequest = std::unique_ptr<X509_REQ, FreeBy<X509_REQ_free>>;
using OwnedCertificate = std::unique_ptr<X509, FreeBy<X509_free>>;
using OwnedNames = std::unique_ptr<GENERAL_NAMES, FreeBy<GENERAL_NAMES_free>>;
using OwnedNumber = std::unique_ptr<BIGNUM, FreeBy<BN_free>>;

// "cannot DOING: REASON" with the first error of this thread's queue, which is empty afterwards.
absl::Status OpenSslError(const std::string& doing);

OwnedBio BioOf(std::string_view text);  // reads the text, which outlives it
std::string TextOf(BIO* written);       // what was written to a memory BIO

// From the first of its kind in a PEM text; kInvalidArgument. Never asks for a pass phrase.
absl::StatusOr<OwnedKey> KeyFromPem(std::string_view pem);
absl::StatusOr<OwnedCertificate> CertificateFromPem(std::string_view pem);
absl::StatusOr<OwnedRequest> RequestFromPem(std::string_view pem);
bool IsP256(EVP_PKEY* key);  // public or private
std::string PemOf(X509* certificate);
std::string FingerprintOf(X509* certificate);           // SHA-256 of its DER form, as hex
std::string PublicKeyFingerprintOf(X509* certificate);  // SHA-256 of its key's bits, as hex

}  // namespace temper
