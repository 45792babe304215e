#include "base/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

namespace temper {
namespace {

using ::testing::HasSubstr;

std::string Wrong(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "temper");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return WrongCommandLine(static_cast<int>(argv.size()), argv.data());
}

TEST(ProgramTest, ACommandLineHasNoEmptyValuesAndIsUtf8) {
  EXPECT_EQ(Wrong({"tune", "modèle.onnx", "--lock", "l", "--x=y"}), "");
  EXPECT_THAT(Wrong({"--dir", ""}), HasSubstr("what follows --dir is empty"));
  EXPECT_THAT(Wrong({"--dir="}), HasSubstr("what follows --dir= is empty"));
  EXPECT_THAT(Wrong({"--key", "a\xff"}), HasSubstr("'a\\xff' is no UTF-8"));
}

TEST(ProgramTest, ALogLevelIsOneThatThereIs) {
  for (const char* level : {"", "off", "debug", "warn"}) {
    setenv("TEMPER_LOG", level, /*overwrite=*/1);
    EXPECT_EQ(Wrong({}), "") << level;
  }
  setenv("TEMPER_LOG", "bogus", /*overwrite=*/1);
  EXPECT_THAT(Wrong({}), HasSubstr("TEMPER_LOG is 'bogus'"));
  unsetenv("TEMPER_LOG");
}

// As nohup starts it.
TEST(ProgramTest, HangingUpEndsAProgramUnlessThatIsIgnored) {
  std::signal(SIGHUP, SIG_DFL);
  sigset_t ends = EndSignals();
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) EXPECT_TRUE(sigismember(&ends, signal)) << signal;
  std::signal(SIGHUP, SIG_IGN);
  ends = EndSignals();
  EXPECT_FALSE(sigismember(&ends, SIGHUP));
  EXPECT_TRUE(sigismember(&ends, SIGTERM));
  std::signal(SIGHUP, SIG_DFL);
}

}  // namespace
}  // namespace temper
