#include "base/notify.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "base/temporary_directory.h"

namespace temper {
namespace {

// What systemd has on its side: a socket for datagrams, at a path or at an abstract name.
class FakeManager {
 public:
  explicit FakeManager(const std::string& address) : fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un name{.sun_family = AF_UNIX};
    std::memcpy(name.sun_path, address.data(), address.size());
    if (name.sun_path[0] == '@') name.sun_path[0] = '\0';
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&name), size), 0);
  }
  ~FakeManager() { close(fd_); }
  std::string Next() {
    char bytes[256];
    const ssize_t n = recv(fd_, bytes, sizeof bytes, MSG_DONTWAIT);
    return n < 0 ? "nothing" : std::string(bytes, static_cast<size_t>(n));
  }

 private:
  int fd_;
};

ServiceNotifier Notifier(const std::map<std::string, std::string>& env) {
  return ServiceNotifier([&env](const char* name) -> const char* {
    const auto found = env.find(name);
    return found == env.end() ? nullptr : found->second.c_str();
  });
}

TEST(NotifyTest, MessagesReachAManagerAtAPathOrAnAbstractName) {
  const auto directory = TemporaryDirectory::Make();
  ASSERT_TRUE(directory.ok());
  for (const std::string& address :
       {directory->path() + "/notify", "@temper-notify-test-" + std::to_string(getpid())}) {
    FakeManager manager(address);
    const ServiceNotifier notifier = Notifier({{"NOTIFY_SOCKET", address}});
    notifier.Send("READY=1");
    notifier.Send("WATCHDOG=1");
    EXPECT_EQ(manager.Next(), "READY=1");
    EXPECT_EQ(manager.Next(), "WATCHDOG=1");
    EXPECT_EQ(manager.Next(), "nothing");
  }
}

TEST(NotifyTest, WithoutAManagerNothingHappens) {
  Notifier({}).Send("READY=1");
  Notifier({{"NOTIFY_SOCKET", ""}}).Send("READY=1");
  Notifier({{"NOTIFY_SOCKET", "vsock:2:1234"}}).Send("READY=1");
  Notifier({{"NOTIFY_SOCKET", "/nowhere/notify"}}).Send("READY=1");
  Notifier({{"NOTIFY_SOCKET", "/" + std::string(300, 'x')}}).Send("READY=1");
}

// A manager that is stuck must not take the server along.
TEST(NotifyTest, AFullSocketDoesNotBlock) {
  const auto directory = TemporaryDirectory::Make();
  ASSERT_TRUE(directory.ok());
  const FakeManager manager(directory->path() + "/notify");
  const ServiceNotifier notifier = Notifier({{"NOTIFY_SOCKET", directory->path() + "/notify"}});
  for (int i = 0; i < 10'000; ++i) notifier.Send("WATCHDOG=1");
}

TEST(NotifyTest, TheWatchdogIsForTheProcessThatItNames) {
  const std::string self = std::to_string(getpid());
  EXPECT_EQ(Notifier({{"WATCHDOG_USEC", "30000000"}}).watchdog(), absl::Seconds(30));
  EXPECT_EQ(Notifier({{"WATCHDOG_USEC", "30000000"}, {"WATCHDOG_PID", self}}).watchdog(), absl::Seconds(30));
  EXPECT_EQ(Notifier({{"WATCHDOG_USEC", "30000000"}, {"WATCHDOG_PID", "1"}}).watchdog(), std::nullopt);
  EXPECT_EQ(Notifier({{"WATCHDOG_USEC", "0"}}).watchdog(), std::nullopt);
  EXPECT_EQ(Notifier({{"WATCHDOG_USEC", "soon"}}).watchdog(), std::nullopt);
  EXPECT_EQ(Notifier({}).watchdog(), std::nullopt);
}

}  // namespace
}  // namespace temper
