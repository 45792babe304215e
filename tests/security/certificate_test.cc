#include "security/certificate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <memory>

#include "security/authority.h"
#include "security/key.h"
#include "tests/security/testing.h"

namespace temper {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CertificateAuthority NewAuthority() { return *CertificateAuthority::Create(*PrivateKey::Generate(), kYear); }
std::string NewRequest() { return *PrivateKey::Generate()->CertificateRequest(); }

// An RSA key and a request by it, as PEM: what we never make.
std::string RsaPem(bool request) {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_RSA_gen(2048), EVP_PKEY_free);
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new(BIO_s_mem()), BIO_free);
  const std::unique_ptr<X509_REQ, decltype(&X509_REQ_free)> asked(X509_REQ_new(), X509_REQ_free);
  X509_REQ_set_pubkey(asked.get(), key.get());
  X509_REQ_sign(asked.get(), key.get(), EVP_sha256());
  if (request) PEM_write_bio_X509_REQ(bio.get(), asked.get());
  if (!request) PEM_write_bio_PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

TEST(KeyTest, ComesBackFromItsText) {
  const PrivateKey key = *PrivateKey::Generate();
  const auto read = PrivateKey::FromPem(key.Pem());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->Pem(), key.Pem());
  EXPECT_NE(PrivateKey::Generate()->Pem(), key.Pem());
}

TEST(KeyTest, OtherTextsAreRefusedInOneLine) {
  const std::string rsa = RsaPem(false);
  for (const std::string& text : {std::string(), std::string("none"), rsa, rsa.substr(0, rsa.size() / 2)}) {
    const auto read = PrivateKey::FromPem(text);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(Message(read).find('\n'), std::string::npos);
  }
}

TEST(KeyTest, AnEncryptedKeyIsRefusedWithoutAskingForItsPassPhrase) {
  const PrivateKey key = *PrivateKey::Generate();
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new(BIO_s_mem()), BIO_free);
  unsigned char phrase[] = "phrase";
  PEM_write_bio_PrivateKey(bio.get(), key.get(), EVP_aes_128_cbc(), phrase, 6, nullptr, nullptr);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  EXPECT_EQ(PrivateKey::FromPem({data, static_cast<size_t>(size)}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(AuthorityTest, ComesBackFromItsTexts) {
  const PrivateKey key = *PrivateKey::Generate();
  const auto made = CertificateAuthority::Create(key, kYear);
  ASSERT_TRUE(made.ok()) << made.status();
  const auto loaded = CertificateAuthority::Load(made->certificate_pem(), key.Pem());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->fingerprint(), made->fingerprint());
  EXPECT_EQ(made->fingerprint().size(), 64u);
}

TEST(AuthorityTest, NeedsItsOwnKeyAndAnAuthoritysCertificate) {
  const PrivateKey key = *PrivateKey::Generate();
  const CertificateAuthority authority = *CertificateAuthority::Create(key, kYear);
  EXPECT_THAT(Message(CertificateAuthority::Load(authority.certificate_pem(), PrivateKey::Generate()->Pem())),
              HasSubstr("does not belong"));
  const std::string server = *authority.SignServer(key, {}, kYear);
  EXPECT_THAT(Message(CertificateAuthority::Load(server, key.Pem())), HasSubstr("not an authority's"));
}

TEST(AuthorityTest, AWorkersCertificateNamesItsDevicesAndTimes) {
  const CertificateAuthority authority = NewAuthority();
  const auto pem = authority.SignWorker(NewRequest(), std::vector<std::string>{"epyc-zen5", "gpu:0"}, kYear);
  ASSERT_TRUE(pem.ok()) << pem.status();
  const auto certificate = ReadCertificate(*pem);
  ASSERT_TRUE(certificate.ok()) << certificate.status();
  EXPECT_THAT(certificate->device_keys, ElementsAre("epyc-zen5", "gpu:0"));
  EXPECT_TRUE(certificate->hosts.empty());
  EXPECT_EQ(certificate->validity.until, kYear.until);
  EXPECT_LE(certificate->validity.from, kNow) << "clocks lag";
  const auto verified = CertificateVerifier::Make(authority.certificate_pem())->Verify(*pem);
  ASSERT_TRUE(verified.ok()) << verified.status();
  EXPECT_EQ(verified->serial, certificate->serial);
}

TEST(AuthorityTest, SerialNumbersAreLongAndDiffer) {
  const CertificateAuthority authority = NewAuthority();
  std::vector<std::string> serials;
  for (int i = 0; i < 20; ++i) {
    serials.push_back(
        ReadCertificate(*authority.SignWorker(NewRequest(), std::vector<std::string>{"a"}, kYear))->serial);
    EXPECT_GE(serials.back().size(), 24u);  // of 32 hex digits, some may be leading zeros
  }
  std::sort(serials.begin(), serials.end());
  EXPECT_EQ(std::unique(serials.begin(), serials.end()), serials.end());
}

TEST(AuthorityTest, BadRequestsAndDeviceKeysAreRefused) {
  const CertificateAuthority authority = NewAuthority();
  const std::vector<std::string> keys = {"a"};
  const std::string request = NewRequest();
  std::string forged = request;
  const size_t signature = forged.rfind("\n-----END") - 8;  // within the last bytes, which are the signature's
  forged[signature] = forged[signature] == 'A' ? 'B' : 'A';
  for (const std::string& bad :
       {std::string(), std::string("none"), forged, RsaPem(true), request + std::string(9000, ' ')}) {
    EXPECT_EQ(authority.SignWorker(bad, keys, kYear).status().code(), absl::StatusCode::kInvalidArgument);
  }
  for (const std::string& key : {std::string(), std::string("a,b"), std::string("a b"), std::string("\xc3\xa4"),
                                 std::string("a/../b"), std::string(65, 'a')}) {
    EXPECT_EQ(authority.SignWorker(request, std::vector<std::string>{key}, kYear).status().code(),
              absl::StatusCode::kInvalidArgument)
        << key;
  }
  EXPECT_EQ(authority.SignWorker(request, {}, kYear).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(AuthorityTest, AServersCertificateNamesItsHostsAndBringsTheAuthority) {
  const CertificateAuthority authority = NewAuthority();
  const std::vector<std::string> hosts = {"tuner.example", "192.168.1.10", "::1"};
  const std::string pem = *authority.SignServer(*PrivateKey::Generate(), hosts, kYear);
  EXPECT_EQ(ReadCertificate(pem)->hosts, hosts);
  EXPECT_THAT(pem, HasSubstr(authority.certificate_pem()));
}

TEST(AuthorityTest, HostsThatAreNoneAreRefused) {
  const CertificateAuthority authority = NewAuthority();
  for (const std::string& host :
       {std::string(), std::string("a b"), std::string("tuner:9190"), std::string(254, 'a')}) {
    EXPECT_EQ(authority.SignServer(*PrivateKey::Generate(), std::vector<std::string>{host}, kYear).status().code(),
              absl::StatusCode::kInvalidArgument)
        << host;
  }
}

TEST(VerifierTest, RefusesWhatAnotherSignedAndWhatIsNoWorkers) {
  const CertificateAuthority authority = NewAuthority(), other = NewAuthority();
  const CertificateVerifier verifier = *CertificateVerifier::Make(authority.certificate_pem());
  const std::vector<std::string> keys = {"a"};
  const std::string foreign = *other.SignWorker(NewRequest(), keys, kYear);
  const std::string server = *authority.SignServer(*PrivateKey::Generate(), std::vector<std::string>{"a"}, kYear);
  for (const std::string& pem : {foreign, server}) {
    const auto verified = verifier.Verify(pem);
    EXPECT_EQ(verified.status().code(), absl::StatusCode::kUnauthenticated);
    EXPECT_EQ(Message(verified).find('\n'), std::string::npos);
  }
  EXPECT_FALSE(verifier.Verify("").ok());
}

TEST(VerifierTest, TimesAreCheckedByTheClockThatIsGiven) {
  const CertificateAuthority authority = NewAuthority();
  const std::string pem = *authority.SignWorker(NewRequest(), std::vector<std::string>{"a"}, kYear);
  const Certificate certificate = *CertificateVerifier::Make(authority.certificate_pem())->Verify(pem);
  EXPECT_TRUE(CheckTime(certificate, kNow).ok());
  EXPECT_THAT(std::string(CheckTime(certificate, kYear.until).message()), HasSubstr("expired on 2028-01-15 08:00 UTC"));
  EXPECT_THAT(std::string(CheckTime(certificate, kNow - absl::Hours(1)).message()), HasSubstr("valid only from"));
}

}  // namespace
}  // namespace temper
