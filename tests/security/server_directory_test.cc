#include "security/server_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/temporary_directory.h"
#include "security/files.h"
#include "security/token.h"
#include "tests/security/testing.h"

namespace temper {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;

class ServerDirectoryTest : public ::testing::Test {
 protected:
  absl::Status Init() { return InitServerDirectory(dir_, std::vector<std::string>{"tuner.example"}, kNow); }
  std::string ReadOf(const char* name) const { return *ReadSmallFile(dir_ + "/" + name, Secrecy::kPublic); }
  int FilesBeside() const { return static_cast<int>(std::distance(fs::directory_iterator(parent_.path()), {})); }
  TemporaryDirectory parent_ = *TemporaryDirectory::Make();
  std::string dir_ = parent_.path() + "/server";
};

TEST_F(ServerDirectoryTest, InitMakesAllThatAServerNeeds) {
  ASSERT_TRUE(Init().ok());
  const auto server = OpenServerDirectory(dir_);
  ASSERT_TRUE(server.ok()) << server.status();
  const PresentedToken admin = *ParseToken(*ReadTokenFile(dir_ + "/admin.token"));
  EXPECT_TRUE(CheckToken(server->admin_token, admin, kNow).ok());
  EXPECT_EQ(server->admin_token.scopes, "admin");
  const Certificate certificate = *ReadCertificate(ReadOf("server.crt"));
  for (const char* host : {"tuner.example", "localhost", "127.0.0.1", "::1"}) {
    EXPECT_THAT(certificate.hosts, Contains(host));
  }
  EXPECT_EQ(FilesBeside(), 1);
}

TEST_F(ServerDirectoryTest, SecretsAreTheOwnersAlone) {
  const mode_t before = umask(0);
  ASSERT_TRUE(Init().ok());
  umask(before);
  struct stat about {};
  stat(dir_.c_str(), &about);
  EXPECT_EQ(about.st_mode & 07777, 0700u);
  for (const char* secret : {"ca.key", "server.key", "admin.token", "admin.hash"}) {
    stat((dir_ + "/" + secret).c_str(), &about);
    EXPECT_EQ(about.st_mode & 07777, 0600u) << secret;
  }
}

TEST_F(ServerDirectoryTest, InitLeavesWhatIsThere) {
  ASSERT_TRUE(Init().ok());
  const std::string key = ReadOf("ca.key");
  EXPECT_TRUE(absl::IsAlreadyExists(Init()));
  EXPECT_TRUE(absl::IsAlreadyExists(InitServerDirectory(dir_ + "/", {}, kNow)));
  EXPECT_EQ(ReadOf("ca.key"), key);
  fs::create_symlink("nowhere", parent_.path() + "/link");
  EXPECT_TRUE(absl::IsAlreadyExists(InitServerDirectory(parent_.path() + "/link", {}, kNow)));
  EXPECT_EQ(FilesBeside(), 2);
}

TEST_F(ServerDirectoryTest, AnInitThatFailsLeavesNothing) {
  EXPECT_FALSE(InitServerDirectory(parent_.path() + "/no/such", {}, kNow).ok());
  EXPECT_FALSE(InitServerDirectory(dir_, std::vector<std::string>{"not a host"}, kNow).ok());
  EXPECT_EQ(FilesBeside(), 0);
}

TEST_F(ServerDirectoryTest, AFolderThatWasNotInitialisedIsNamed) {
  const auto server = OpenServerDirectory(dir_);
  EXPECT_TRUE(absl::IsNotFound(server.status()));
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("temper-server init"));
}

TEST_F(ServerDirectoryTest, KeysThatOthersMayReadAreRefused) {
  ASSERT_TRUE(Init().ok());
  for (const char* secret : {"ca.key", "server.key", "admin.hash"}) {
    const std::string path = dir_ + "/" + secret;
    chmod(path.c_str(), 0640);
    EXPECT_TRUE(absl::IsPermissionDenied(OpenServerDirectory(dir_).status())) << secret;
    chmod(path.c_str(), 0600);
  }
  EXPECT_TRUE(OpenServerDirectory(dir_).ok());
}

TEST_F(ServerDirectoryTest, ARenewedCertificateHasTheSameKeyAndNames) {
  ASSERT_TRUE(Init().ok());
  const Certificate before = *ReadCertificate(ReadOf("server.crt"));
  const std::string key = ReadOf("server.key");
  const absl::Time later = kNow + absl::Hours(24 * 300);
  ASSERT_TRUE(RenewServerCertificate(dir_, later).ok());
  const Certificate after = *ReadCertificate(ReadOf("server.crt"));
  EXPECT_EQ(after.hosts, before.hosts);
  EXPECT_NE(after.serial, before.serial);
  EXPECT_EQ(after.validity.until, later + kServerLifetime);
  EXPECT_EQ(ReadOf("server.key"), key);
}

TEST_F(ServerDirectoryTest, ACertificateIsKeptGoodForAsLongAsSomebodyLooks) {
  ASSERT_TRUE(Init().ok());
  const std::string first = ReadOf("server.crt");
  ASSERT_TRUE(KeepServerCertificate(dir_, kNow + kServerLifetime / 2).ok());
  EXPECT_EQ(ReadOf("server.crt"), first) << "it is not due";
  for (absl::Time now = kNow; now < kNow + absl::Hours(24 * 365 * 5); now += absl::Hours(24 * 20)) {
    ASSERT_TRUE(KeepServerCertificate(dir_, now).ok());
    EXPECT_GT(ReadCertificate(ReadOf("server.crt"))->validity.until, now + kServerLifetime / 4);
  }
}

}  // namespace
}  // namespace temper
