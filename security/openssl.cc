#include "security/openssl.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace temper {
namespace {

int NoPassPhrase(char*, int, int, void*) { return -1; }

template <typename Owned, typename Read>
absl::StatusOr<Owned> FromPem(std::string_view pem, const char* what, Read read) {
  const OwnedBio bio = BioOf(pem);
  Owned object(read(bio.get(), nullptr, NoPassPhrase, nullptr));
  if (object == nullptr) {
    return absl::InvalidArgumentError(OpenSslError(absl::StrCat("read ", what)).message());
  }
  return object;
}

template <typename Digest>
std::string DigestOf(const X509* certificate, Digest digest) {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  digest(certificate, EVP_sha256(), bytes, &size);
  return absl::BytesToHexString({reinterpret_cast<const char*>(bytes), size});
}

}  // namespace

absl::Status OpenSslError(const std::string& doing) {
  char reason[256] = "no reason given";
  if (const unsigned long error = ERR_get_error(); error != 0) ERR_error_string_n(error, reason, sizeof reason);
  ERR_clear_error();
  return absl::InternalError(absl::StrCat("cannot ", doing, ": ", reason));
}

OwnedBio BioOf(std::string_view text) { return OwnedBio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

std::string TextOf(BIO* written) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(written, &data);
  return std::string(data, static_cast<size_t>(size));
}

absl::StatusOr<OwnedKey> KeyFromPem(std::string_view pem) {
  return FromPem<OwnedKey>(pem, "the private key", PEM_read_bio_PrivateKey);
}

absl::StatusOr<OwnedCertificate> CertificateFromPem(std::string_view pem) {
  return FromPem<OwnedCertificate>(pem, "the certificate", PEM_read_bio_X509);
}

absl::StatusOr<OwnedRequest> RequestFromPem(std::string_view pem) {
  return FromPem<OwnedRequest>(pem, "the request for a certificate", PEM_read_bio_X509_REQ);
}

bool IsP256(EVP_PKEY* key) {
  char group[64] = "";
  return EVP_PKEY_get_group_name(key, group, sizeof group, nullptr) == 1 &&
         std::string_view(group) == SN_X9_62_prime256v1;
}

std::string PemOf(X509* certificate) {
  const OwnedBio bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), certificate);
  return TextOf(bio.get());
}

std::string FingerprintOf(X509* certificate) { return DigestOf(certificate, X509_digest); }

std::string PublicKeyFingerprintOf(X509* certificate) { return DigestOf(certificate, X509_pubkey_digest); }

}  // namespace temper
