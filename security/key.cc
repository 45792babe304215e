#include "security/key.h"

#include <openssl/ec.h>
#include <openssl/pem.h>

#include "security/openssl.h"

namespace temper {

absl::StatusOr<PrivateKey> PrivateKey::Generate() {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  if (key == nullptr) return OpenSslError("make a private key");
  return PrivateKey(std::shared_ptr<EVP_PKEY>(key, EVP_PKEY_free));
}

absl::StatusOr<PrivateKey> PrivateKey::FromPem(std::string_view pem) {
  TEMPER_ASSIGN_OR_RETURN(OwnedKey key, KeyFromPem(pem));
  if (!IsP256(key.get())) return absl::InvalidArgumentError("the private key is not of the curve P-256");
  return PrivateKey(std::shared_ptr<EVP_PKEY>(std::move(key)));
}

std::string PrivateKey::Pem() const {
  const OwnedBio bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_PrivateKey(bio.get(), get(), nullptr, nullptr, 0, nullptr, nullptr);
  return TextOf(bio.get());
}

absl::StatusOr<std::string> PrivateKey::CertificateRequest() const {
  const OwnedRequest request(X509_REQ_new());
  const OwnedBio bio(BIO_new(BIO_s_mem()));
  if (X509_REQ_set_pubkey(request.get(), get()) != 1 || X509_REQ_sign(request.get(), get(), EVP_sha256()) <= 0 ||
      PEM_write_bio_X509_REQ(bio.get(), request.get()) != 1) {
    return OpenSslError("ask for a certificate");
  }
  return TextOf(bio.get());
}

}  // namespace temper
