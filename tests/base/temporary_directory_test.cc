#include "base/temporary_directory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

namespace temper {
namespace {

namespace fs = std::filesystem;

TEST(TemporaryDirectory, GoesAwayWithTheObject) {
  std::string path;
  {
    TemporaryDirectory first = *TemporaryDirectory::Make();
    const TemporaryDirectory moved = std::move(first);
    path = moved.path();
    std::ofstream(path + "/file") << "text";
    EXPECT_TRUE(fs::exists(path + "/file"));
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(TemporaryDirectory, OfAKilledProcessIsSweptByTheNextAndNoOther) {
  const TemporaryDirectory parent = *TemporaryDirectory::Make();
  ASSERT_EQ(setenv("TMPDIR", parent.path().c_str(), 1), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto dir = TemporaryDirectory::Make();
    std::ofstream(dir->path() + "/file") << "text";
    raise(SIGKILL);
  }
  waitpid(child, nullptr, 0);
  fs::create_directory(parent.path() + "/temper-run-models");  // somebody's own
  const auto count = [&] { return std::distance(fs::directory_iterator(parent.path()), fs::directory_iterator()); };
  EXPECT_EQ(count(), 2) << "the killed one's and somebody's";
  const TemporaryDirectory living = *TemporaryDirectory::Make(), another = *TemporaryDirectory::Make();
  EXPECT_EQ(count(), 3);
  EXPECT_TRUE(fs::exists(living.path()));
  EXPECT_TRUE(fs::exists(parent.path() + "/temper-run-models"));
  unsetenv("TMPDIR");
}

}  // namespace
}  // namespace temper
