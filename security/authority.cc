#include "security/authority.h"

#include <arpa/inet.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/secure_random.h"
#include "security/openssl.h"

namespace temper {
namespace {

constexpr size_t kSerialBytes = 16;
constexpr size_t kLargestRequest = 8 << 10;
constexpr size_t kLongestHost = 253;
constexpr absl::Duration kLag = absl::Minutes(5);

// A certificate under way: each step is taken only if all before went well, as Sign tells at the end.
class Draft {
 public:
  Draft(EVP_PKEY* subject_key, const char* name, Validity validity) : x509_(X509_new()) {
    std::string serial = SecureBytes(kSerialBytes);
    serial[0] &= 0x7f;  // serial numbers are positive
    const OwnedNumber number(
        BN_bin2bn(reinterpret_cast<const unsigned char*>(serial.data()), static_cast<int>(serial.size()), nullptr));
    Note(X509_set_version(x509_.get(), X509_VERSION_3) == 1);
    Note(BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(x509_.get())) != nullptr);
    Note(ASN1_TIME_set(X509_getm_notBefore(x509_.get()), absl::ToTimeT(validity.from - kLag)) != nullptr);
    Note(ASN1_TIME_set(X509_getm_notAfter(x509_.get()), absl::ToTimeT(validity.until)) != nullptr);
    Note(X509_set_pubkey(x509_.get(), subject_key) == 1);
    Note(X509_NAME_add_entry_by_txt(X509_get_subject_name(x509_.get()), "CN", MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(name), -1, -1, 0) == 1);
  }

  // `text` as in OpenSSL's configuration files; ours alone, never a peer's.
  void AddExtension(X509* issuer, int nid, const char* text) {
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, x509_.get(), nullptr, nullptr, 0);
    using OwnedExtension = std::unique_ptr<X509_EXTENSION, FreeBy<X509_EXTENSION_free>>;
    const OwnedExtension extension(X509V3_EXT_nconf_nid(nullptr, &context, nid, text));
    Note(extension != nullptr && X509_add_ext(x509_.get(), extension.get(), -1) == 1);
  }
  void AddName(int type, int asn1_type, std::string_view value) {
    ASN1_STRING* text = ASN1_STRING_type_new(asn1_type);
    Note(ASN1_STRING_set(text, value.data(), static_cast<int>(value.size())) == 1);
    GENERAL_NAME* name = GENERAL_NAME_new();
    GENERAL_NAME_set0_value(name, type, text);
    Note(sk_GENERAL_NAME_push(names_.get(), name) > 0);
  }

  absl::StatusOr<OwnedCertificate> Sign(X509* issuer, EVP_PKEY* key) {
    Note(X509_set_issuer_name(x509_.get(), X509_get_subject_name(issuer)) == 1);
    if (sk_GENERAL_NAME_num(names_.get()) > 0) {
      Note(X509_add1_ext_i2d(x509_.get(), NID_subject_alt_name, names_.get(), 0, X509V3_ADD_DEFAULT) == 1);
    }
    AddExtension(issuer, NID_authority_key_identifier, "keyid");
    Note(X509_sign(x509_.get(), key, EVP_sha256()) > 0);
    if (!well_) return OpenSslError("make a certificate");
    return std::move(x509_);
  }
  X509* get() { return x509_.get(); }

 private:
  void Note(bool went_well) { well_ = well_ && went_well; }

  OwnedCertificate x509_;
  OwnedNames names_{sk_GENERAL_NAME_new_null()};
  bool well_ = true;
};

bool IsDnsName(const std::string& host) {
  return !host.empty() && host.size() <= kLongestHost && std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_' || c == '*';
  });
}

absl::Status AddHost(Draft& draft, const std::string& host) {
  unsigned char address[16];
  const std::string_view bytes(reinterpret_cast<const char*>(address), sizeof address);
  if (inet_pton(AF_INET, host.c_str(), address) == 1) {
    draft.AddName(GEN_IPADD, V_ASN1_OCTET_STRING, bytes.substr(0, 4));
  } else if (inet_pton(AF_INET6, host.c_str(), address) == 1) {
    draft.AddName(GEN_IPADD, V_ASN1_OCTET_STRING, bytes);
  } else if (IsDnsName(host)) {
    draft.AddName(GEN_DNS, V_ASN1_IA5STRING, host);
  } else {
    return absl::InvalidArgumentError(absl::StrCat("'", host, "' is neither a host's name nor an IP address"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CertificateAuthority> CertificateAuthority::Create(PrivateKey key, Validity validity) {
  Draft draft(key.get(), "Temper authority", validity);
  draft.AddExtension(draft.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  draft.AddExtension(draft.get(), NID_key_usage, "critical,keyCertSign,cRLSign");
  draft.AddExtension(draft.get(), NID_subject_key_identifier, "hash");
  TEMPER_ASSIGN_OR_RETURN(const OwnedCertificate x509, draft.Sign(draft.get(), key.get()));
  return CertificateAuthority(std::move(key), PemOf(x509.get()), FingerprintOf(x509.get()));
}

absl::StatusOr<CertificateAuthority> CertificateAuthority::Load(std::string_view certificate_pem,
                                                                std::string_view key_pem) {
  TEMPER_ASSIGN_OR_RETURN(const OwnedCertificate x509, CertificateFromPem(certificate_pem));
  TEMPER_ASSIGN_OR_RETURN(PrivateKey key, PrivateKey::FromPem(key_pem));
  if (EVP_PKEY_eq(X509_get0_pubkey(x509.get()), key.get()) != 1) {
    return absl::InvalidArgumentError("the authority's key does not belong to its certificate");
  }
  if (X509_check_ca(x509.get()) != 1) return absl::InvalidArgumentError("the certificate is not an authority's");
  return CertificateAuthority(std::move(key), PemOf(x509.get()), FingerprintOf(x509.get()));
}

absl::StatusOr<std::string> CertificateAuthority::SignWorker(std::string_view request,
                                                             std::span<const std::string> device_keys,
                                                             Validity validity) const {
  if (request.size() > kLargestRequest) {
    return absl::InvalidArgumentError("the request for a certificate is larger than 8 KiB");
  }
  TEMPER_ASSIGN_OR_RETURN(const OwnedRequest asked, RequestFromPem(request));
  EVP_PKEY* subject_key = X509_REQ_get0_pubkey(asked.get());
  if (subject_key == nullptr || !IsP256(subject_key)) {
    return absl::InvalidArgumentError("the request for a certificate has no key of the curve P-256");
  }
  if (X509_REQ_verify(asked.get(), subject_key) != 1) {
    OpenSslError("check the request").IgnoreError();  // empties the queue
    return absl::InvalidArgumentError("the request for a certificate is not signed by its own key");
  }
  return SignKey(subject_key, device_keys, validity);
}

absl::StatusOr<std::string> CertificateAuthority::RenewWorker(std::string_view certificate_pem,
                                                              Validity validity) const {
  TEMPER_ASSIGN_OR_RETURN(const OwnedCertificate x509, CertificateFromPem(certificate_pem));
  TEMPER_ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate(certificate_pem));
  return SignKey(X509_get0_pubkey(x509.get()), certificate.device_keys, validity);
}

absl::StatusOr<std::string> CertificateAuthority::SignKey(EVP_PKEY* subject_key,
                                                          std::span<const std::string> device_keys,
                                                          Validity validity) const {
  if (device_keys.empty()) return absl::InvalidArgumentError("a worker's certificate needs a device key");
  TEMPER_ASSIGN_OR_RETURN(const OwnedCertificate issuer, CertificateFromPem(pem_));
  Draft draft(subject_key, "Temper worker", validity);
  draft.AddExtension(issuer.get(), NID_basic_constraints, "critical,CA:FALSE");
  draft.AddExtension(issuer.get(), NID_key_usage, "critical,digitalSignature");
  draft.AddExtension(issuer.get(), NID_ext_key_usage, "clientAuth");
  for (const std::string& key : device_keys) {
    TEMPER_RETURN_IF_ERROR(CheckDeviceKey(key));
    draft.AddName(GEN_URI, V_ASN1_IA5STRING, absl::StrCat(kDeviceUri, key));
  }
  TEMPER_ASSIGN_OR_RETURN(const OwnedCertificate x509, draft.Sign(issuer.get(), key_.get()));
  return PemOf(x509.get());
}

absl::StatusOr<std::string> CertificateAuthority::SignServer(const PrivateKey& key, std::span<const std::string> hosts,
                                                             Validity validity) const {
  TEMPER_ASSIGN_OR_RETURN(const OwnedCertificate issuer, CertificateFromPem(pem_));
  Draft draft(key.get(), "Temper server", validity);
  draft.AddExtension(issuer.get(), NID_basic_constraints, "critical,CA:FALSE");
  draft.AddExtension(issuer.get(), NID_key_usage, "critical,digitalSignature");
  draft.AddExtension(issuer.get(), NID_ext_key_usage, "serverAuth");
  for (const std::string& host : hosts) TEMPER_RETURN_IF_ERROR(AddHost(draft, host));
  TEMPER_ASSIGN_OR_RETURN(const OwnedCertificate x509, draft.Sign(issuer.get(), key_.get()));
  return absl::StrCat(PemOf(x509.get()), pem_);
}

}  // namespace temper
