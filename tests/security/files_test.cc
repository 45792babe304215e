#include "security/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/temporary_directory.h"

namespace temper {
namespace {

using ::testing::HasSubstr;

class FilesTest : public ::testing::Test {
 protected:
  std::string PathOf(const char* name) const { return dir_.path() + "/" + name; }
  static mode_t ModeOf(const std::string& path) {
    struct stat about {};
    stat(path.c_str(), &about);
    return about.st_mode & 07777;
  }
  int Files() const { return static_cast<int>(std::distance(std::filesystem::directory_iterator(dir_.path()), {})); }
  TemporaryDirectory dir_ = *TemporaryDirectory::Make();
};

TEST_F(FilesTest, APrivateFileIsItsOwnersAloneWhateverTheUmask) {
  const mode_t before = umask(0);
  const absl::Status secret = WriteWholeFile(PathOf("secret"), "s", Secrecy::kPrivate, Existing::kRefuse);
  const absl::Status open = WriteWholeFile(PathOf("open"), "o", Secrecy::kPublic, Existing::kRefuse);
  umask(before);
  ASSERT_TRUE(secret.ok() && open.ok());
  EXPECT_EQ(ModeOf(PathOf("secret")), 0600u);
  EXPECT_EQ(ModeOf(PathOf("open")), 0644u);
  EXPECT_EQ(*ReadSmallFile(PathOf("secret"), Secrecy::kPrivate), "s");
}

TEST_F(FilesTest, WhatIsThereStaysUnlessItIsToBeReplaced) {
  ASSERT_TRUE(WriteWholeFile(PathOf("f"), "first", Secrecy::kPrivate, Existing::kRefuse).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(WriteWholeFile(PathOf("f"), "second", Secrecy::kPrivate, Existing::kRefuse)));
  EXPECT_EQ(*ReadSmallFile(PathOf("f"), Secrecy::kPrivate), "first");
  ASSERT_TRUE(WriteWholeFile(PathOf("f"), "third", Secrecy::kPrivate, Existing::kReplace).ok());
  EXPECT_EQ(*ReadSmallFile(PathOf("f"), Secrecy::kPrivate), "third");
  EXPECT_EQ(Files(), 1) << "a draft was left";
}

TEST_F(FilesTest, ALinkIsReplacedNotFollowed) {
  ASSERT_TRUE(WriteWholeFile(PathOf("victim"), "safe", Secrecy::kPublic, Existing::kRefuse).ok());
  ASSERT_EQ(symlink(PathOf("victim").c_str(), PathOf("f").c_str()), 0);
  EXPECT_TRUE(absl::IsAlreadyExists(WriteWholeFile(PathOf("f"), "x", Secrecy::kPrivate, Existing::kRefuse)));
  ASSERT_TRUE(WriteWholeFile(PathOf("f"), "x", Secrecy::kPrivate, Existing::kReplace).ok());
  EXPECT_EQ(*ReadSmallFile(PathOf("victim"), Secrecy::kPublic), "safe");
}

TEST_F(FilesTest, ASecretThatOthersMayReadIsRefused) {
  ASSERT_TRUE(WriteWholeFile(PathOf("f"), "s", Secrecy::kPrivate, Existing::kRefuse).ok());
  for (const mode_t mode : {0640u, 0604u, 0644u, 0660u}) {
    chmod(PathOf("f").c_str(), mode);
    const auto read = ReadSmallFile(PathOf("f"), Secrecy::kPrivate);
    EXPECT_TRUE(absl::IsPermissionDenied(read.status())) << mode;
    EXPECT_THAT(std::string(read.status().message()), HasSubstr("chmod 600"));
  }
  chmod(PathOf("f").c_str(), 0400);
  EXPECT_TRUE(ReadSmallFile(PathOf("f"), Secrecy::kPrivate).ok());
}

TEST_F(FilesTest, ASecretOfAnothersMayBeMadeOursByItsGroup) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  ASSERT_TRUE(WriteWholeFile(PathOf("f"), "s", Secrecy::kPrivate, Existing::kRefuse).ok());
  ASSERT_EQ(chown(PathOf("f").c_str(), 10001, getegid()), 0);
  chmod(PathOf("f").c_str(), 0440);
  EXPECT_TRUE(ReadSmallFile(PathOf("f"), Secrecy::kPrivate).ok());
  chmod(PathOf("f").c_str(), 0444);
  EXPECT_TRUE(absl::IsPermissionDenied(ReadSmallFile(PathOf("f"), Secrecy::kPrivate).status()));
}

TEST_F(FilesTest, MissingAndHugeFilesAreErrors) {
  EXPECT_TRUE(absl::IsNotFound(ReadSmallFile(PathOf("none"), Secrecy::kPublic).status()));
  EXPECT_FALSE(WriteWholeFile(PathOf("none/f"), "s", Secrecy::kPublic, Existing::kReplace).ok());
  const std::string most(64 << 10, 'x');
  ASSERT_TRUE(WriteWholeFile(PathOf("most"), most, Secrecy::kPublic, Existing::kRefuse).ok());
  ASSERT_TRUE(WriteWholeFile(PathOf("more"), most + "x", Secrecy::kPublic, Existing::kRefuse).ok());
  EXPECT_EQ(*ReadSmallFile(PathOf("most"), Secrecy::kPublic), most);
  EXPECT_TRUE(absl::IsInvalidArgument(ReadSmallFile(PathOf("more"), Secrecy::kPublic).status()));
}

}  // namespace
}  // namespace temper
