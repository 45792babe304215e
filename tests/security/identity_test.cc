#include "security/identity.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/temporary_directory.h"

namespace temper {
namespace {

TEST(IdentityTest, IsMadeOnceAndKept) {
  const TemporaryDirectory parent = *TemporaryDirectory::Make();
  const std::string dir = parent.path() + "/state/temper";
  const std::string identity = ClientIdentity(dir);
  EXPECT_EQ(identity.size(), 32u);
  EXPECT_EQ(ClientIdentity(dir), identity);
  struct stat about {};
  stat((dir + "/identity").c_str(), &about);
  EXPECT_EQ(about.st_mode & 07777, 0600u);
  EXPECT_NE(ClientIdentity(parent.path() + "/other"), identity);
}

TEST(IdentityTest, ManyAtOnceAgree) {
  const TemporaryDirectory dir = *TemporaryDirectory::Make();
  std::vector<std::string> identities(8);
  std::vector<std::thread> threads;
  for (std::string& identity : identities) threads.emplace_back([&] { identity = ClientIdentity(dir.path()); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<std::string>(identities.begin(), identities.end()).size(), 1u);
}

TEST(IdentityTest, IsNoneWhereItCanNotBeKept) {
  EXPECT_EQ(ClientIdentity(""), "");
  const TemporaryDirectory dir = *TemporaryDirectory::Make();
  std::ofstream(dir.path() + "/file") << "in the way";
  EXPECT_EQ(ClientIdentity(dir.path() + "/file/temper"), "");
}

}  // namespace
}  // namespace temper
