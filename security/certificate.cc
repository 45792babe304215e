#include "security/certificate.h"

#include <arpa/inet.h>

#include <algorithm>
#include <ctime>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "security/openssl.h"

namespace temper {
namespace {

constexpr size_t kLongestKey = 64;

std::string Date(absl::Time time) { return absl::FormatTime("%Y-%m-%d %H:%M UTC", time, absl::UTCTimeZone()); }

absl::StatusOr<absl::Time> TimeOf(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return OpenSslError("read the certificate's time");
  return absl::FromTimeT(timegm(&parts));
}

std::string TextOf(const ASN1_STRING* text) {
  return std::string(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                     static_cast<size_t>(ASN1_STRING_length(text)));
}

std::string AddressText(const std::string& bytes) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(bytes.size() == 4 ? AF_INET : AF_INET6, bytes.data(), text, sizeof text);
  return text;
}

void ReadNames(X509* x509, Certificate& certificate) {
  const OwnedNames names(static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(x509, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_DNS) certificate.hosts.push_back(TextOf(name->d.dNSName));
    if (name->type == GEN_IPADD) certificate.hosts.push_back(AddressText(TextOf(name->d.iPAddress)));
    if (name->type != GEN_URI) continue;
    const std::string uri = TextOf(name->d.uniformResourceIdentifier);
    if (absl::StartsWith(uri, kDeviceUri))
      certificate.device_keys.push_back(uri.substr(std::string_view(kDeviceUri).size()));
  }
}

absl::StatusOr<Certificate> Read(X509* x509) {
  Certificate certificate;
  const OwnedNumber serial(ASN1_INTEGER_to_BN(X509_get0_serialNumber(x509), nullptr));
  if (serial == nullptr) return OpenSslError("read the certificate's serial number");
  char* hex = BN_bn2hex(serial.get());
  certificate.serial = absl::AsciiStrToLower(hex);
  OPENSSL_free(hex);
  certificate.fingerprint = FingerprintOf(x509);
  certificate.public_key = PublicKeyFingerprintOf(x509);
  TEMPER_ASSIGN_OR_RETURN(certificate.validity.from, TimeOf(X509_get0_notBefore(x509)));
  TEMPER_ASSIGN_OR_RETURN(certificate.validity.until, TimeOf(X509_get0_notAfter(x509)));
  ReadNames(x509, certificate);
  return certificate;
}

}  // namespace

absl::StatusOr<Certificate> ReadCertificate(std::string_view pem) {
  TEMPER_ASSIGN_OR_RETURN(const OwnedCertificate x509, CertificateFromPem(pem));
  return Read(x509.get());
}

absl::Status CheckKeyOf(std::string_view certificate_pem, std::string_view key_pem) {
  TEMPER_ASSIGN_OR_RETURN(const OwnedCertificate x509, CertificateFromPem(certificate_pem));
  TEMPER_ASSIGN_OR_RETURN(const OwnedKey key, KeyFromPem(key_pem));
  if (EVP_PKEY_eq(X509_get0_pubkey(x509.get()), key.get()) == 1) return absl::OkStatus();
  return absl::InvalidArgumentError("the private key is not the certificate's");
}

absl::Status CheckDeviceKey(std::string_view key) {
  const bool known = std::all_of(key.begin(), key.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-' || c == ':';
  });
  if (known && !key.empty() && key.size() <= kLongestKey) return absl::OkStatus();
  return absl::InvalidArgumentError("a device key has 1 to 64 letters, digits, '.', '_', '-' and ':'");
}

absl::StatusOr<CertificateVerifier> CertificateVerifier::Make(std::string_view authority_pem) {
  TEMPER_ASSIGN_OR_RETURN(const OwnedCertificate authority, CertificateFromPem(authority_pem));
  const std::shared_ptr<X509_STORE> store(X509_STORE_new(), X509_STORE_free);
  if (X509_STORE_add_cert(store.get(), authority.get()) != 1 ||
      X509_STORE_set_flags(store.get(), X509_V_FLAG_NO_CHECK_TIME) != 1 ||
      X509_STORE_set_purpose(store.get(), X509_PURPOSE_SSL_CLIENT) != 1) {
    return OpenSslError("trust the authority's certificate");
  }
  return CertificateVerifier(store);
}

absl::StatusOr<Certificate> CertificateVerifier::Verify(std::string_view pem) const {
  TEMPER_ASSIGN_OR_RETURN(const OwnedCertificate x509, CertificateFromPem(pem));
  using OwnedContext = std::unique_ptr<X509_STORE_CTX, FreeBy<X509_STORE_CTX_free>>;
  const OwnedContext context(X509_STORE_CTX_new());
  if (X509_STORE_CTX_init(context.get(), store_.get(), x509.get(), nullptr) != 1) {
    return OpenSslError("check the certificate");
  }
  if (X509_verify_cert(context.get()) != 1) {
    return absl::UnauthenticatedError(
        absl::StrCat("the certificate is not one of this server's workers: ",
                     X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()))));
  }
  return Read(x509.get());
}

absl::Status CheckTime(const Certificate& certificate, absl::Time now) {
  if (now < certificate.validity.from) {
    return absl::UnauthenticatedError(
        absl::StrCat("the certificate is valid only from ", Date(certificate.validity.from), "; check the clocks"));
  }
  if (now >= certificate.validity.until) {
    return absl::UnauthenticatedError(
        absl::StrCat("the certificate expired on ", Date(certificate.validity.until), "; join again"));
  }
  return absl::OkStatus();
}

absl::Time RenewedFrom(const Certificate& certificate) {
  const auto& [from, until] = certificate.validity;
  return until - (until - from) / 3;
}

}  // namespace temper
