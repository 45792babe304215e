// Fetching the authority's certificate from a server that is only known by its fingerprint.
#include "security/join.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "security/authority.h"
#include "tests/security/testing.h"
#include "tests/security/tls_probe.h"

namespace temper {
namespace {

using ::testing::HasSubstr;

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
