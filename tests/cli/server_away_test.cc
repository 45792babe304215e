// Commands whose server goes away meanwhile.
#include <gmock/gmock.h>

#include <csignal>

#include "tests/chaos/process.h"
#include "tests/cli/cli_fixture.h"

namespace temper::cli_test {
namespace {

using ::testing::HasSubstr;

constexpr char kWaits[] = "waiting for a worker that serves device key 'nobody'";

class ServerAwayTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    ASSERT_NO_FATAL_FAILURE(StartServer("127.0.0.1:0"));
  }
  void StartServer(const std::string& listen) {
    const absl::Status started = server_.Start({.db = dir_ + "/records.db", .listen = listen});
    ASSERT_TRUE(started.ok()) << started;
  }
  // A tune that waits for a device which never comes.
  void StartTune() {
    ASSERT_TRUE(tune_
                    .Start({.arguments = {kBin + "temper", "tune", model_, "--server", server_.address(), "--device",
                                          "nobody", "--wait-for-device", "1h"}})
                    .ok());
    while (tune_.Errors().find(kWaits) == std::string::npos) {
      ASSERT_FALSE(tune_.EndsWithin(absl::ZeroDuration())) << tune_.Errors();
    }
  }

  ServerProcess server_;
  Process tune_;
};

TEST_F(ServerAwayTest, ATuneThatWaitsForADeviceWaitsForItsServerToo) {
  ASSERT_NO_FATAL_FAILURE(StartTune());
  const std::string address = server_.address();
  server_.KillAndWait();
  EXPECT_FALSE(tune_.EndsWithin(absl::Seconds(2))) << tune_.Errors() << "\nit asks four times a second";
  ASSERT_NO_FATAL_FAILURE(StartServer(address));
  EXPECT_FALSE(tune_.EndsWithin(absl::Seconds(1))) << tune_.Errors();
  tune_.Signal(SIGINT);
  EXPECT_NE(tune_.Wait(), 0);
  EXPECT_THAT(tune_.Errors(), HasSubstr("interrupted: there is no job yet"));
}

TEST_F(ServerAwayTest, ItCanBeInterruptedMeanwhile) {
  ASSERT_NO_FATAL_FAILURE(StartTune());
  server_.KillAndWait();
  EXPECT_FALSE(tune_.EndsWithin(absl::Seconds(2))) << tune_.Errors();
  tune_.Signal(SIGINT);
  EXPECT_NE(tune_.Wait(), 0);
  EXPECT_THAT(tune_.Errors(), HasSubstr("interrupted: there is no job yet"));
}

}  // namespace
}  // namespace temper::cli_test
