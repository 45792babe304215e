// Fetching the authority's certificate from a server that is only known by its fingerprint.
#include "security/join.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "security/authority.h"

namespace temper {
namespace {

using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);
const Validity kYear = {kNow, kNow + absl::Hours(24 * 365)};
constexpr absl::Duration kPatience = absl::Seconds(20);

// Listens on loopback, takes one connection and shakes hands on it with the chain it is given; without one it hangs up.
class OneHandshake {
 public:
  OneHandshake(const std::string& chain_pem, const PrivateKey& key) {
    std::signal(SIGPIPE, SIG_IGN);
    listening_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    bind(listening_, reinterpret_cast<sockaddr*>(&address), size);
    listen(listening_, 1);
    getsockname(listening_, reinterpret_cast<sockaddr*>(&address), &size);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this, chain_pem, key] { Serve(chain_pem, key); });
  }
  ~OneHandshake() {
    shutdown(listening_, SHUT_RDWR);
    thread_.join();
    close(listening_);
  }
  const std::string& address() const { return address_; }

 private:
  void Serve(const std::string& chain_pem, const PrivateKey& key) const {
    const int fd = accept(listening_, nullptr, nullptr);
    if (fd < 0) return;
    SSL_CTX* context = SSL_CTX_new(TLS_server_method());
    BIO* bio = BIO_new_mem_buf(chain_pem.data(), static_cast<int>(chain_pem.size()));
    for (bool first = true; X509* certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr); first = false) {
      if (first) SSL_CTX_use_certificate(context, certificate);
      if (!first) SSL_CTX_add1_chain_cert(context, certificate);
      X509_free(certificate);
    }
    BIO_free(bio);
    SSL_CTX_use_PrivateKey(context, key.get());
    SSL* ssl = SSL_new(context);
    SSL_set_fd(ssl, fd);
    if (!chain_pem.empty()) SSL_accept(ssl);
    char byte;
    if (!chain_pem.empty()) SSL_read(ssl, &byte, 1);  // until the peer hangs up
    SSL_free(ssl);
    SSL_CTX_free(context);
    close(fd);
  }

  int listening_ = -1;
  std::string address_;
  std::thread thread_;
};

class FetchAuthorityTest : public ::testing::Test {
 protected:
  CertificateAuthority authority_ = *CertificateAuthority::Create(*PrivateKey::Generate(), kYear);
  PrivateKey key_ = *PrivateKey::Generate();
  std::string chain_ = *authority_.SignServer(key_, std::vector<std::string>{"127.0.0.1"}, kYear);
};

TEST_F(FetchAuthorityTest, FindsTheOneOfTheFingerprint) {
  const OneHandshake server(chain_, key_);
  const auto pem = FetchAuthority(server.address(), authority_.fingerprint(), kPatience);
  ASSERT_TRUE(pem.ok()) << pem.status();
  EXPECT_EQ(*pem, authority_.certificate_pem());
}

TEST_F(FetchAuthorityTest, AnotherServerIsRefused) {
  const OneHandshake server(chain_, key_);
  const auto pem = FetchAuthority(server.address(), std::string(64, 'f'), kPatience);
  EXPECT_TRUE(absl::IsPermissionDenied(pem.status()));
  EXPECT_THAT(std::string(pem.status().message()), HasSubstr("is not the one that the invitation comes from"));
}

TEST_F(FetchAuthorityTest, WhoSpeaksNoTlsIsToldInOneLine) {
  const OneHandshake server("", key_);
  const auto pem = FetchAuthority(server.address(), authority_.fingerprint(), kPatience);
  EXPECT_TRUE(absl::IsUnavailable(pem.status())) << pem.status();
  EXPECT_EQ(std::string(pem.status().message()).find('\n'), std::string::npos);
}

TEST_F(FetchAuthorityTest, AServerThatSaysNothingIsGivenUp) {
  const int silent = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(silent, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(silent, 1), 0);
  getsockname(silent, reinterpret_cast<sockaddr*>(&address), &size);
  const auto pem = FetchAuthority("127.0.0.1:" + std::to_string(ntohs(address.sin_port)), authority_.fingerprint(),
                                  absl::Milliseconds(50));
  EXPECT_TRUE(absl::IsUnavailable(pem.status())) << pem.status();
  close(silent);
}

TEST_F(FetchAuthorityTest, AddressesThatAreNoneAreRefused) {
  for (const char* address : {"", "tuner", ":9190", "tuner:"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(FetchAuthority(address, authority_.fingerprint(), kPatience).status()))
        << address;
  }
}

}  // namespace
}  // namespace temper
