// How the server listens: who may have an address, how many may connect, who is cut off.
#include "tuner_server/service/listener.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <fcntl.h>
#include <sys/fsuid.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/temporary_directory.h"
#include "client/tuner_client.h"
#include "security/server_directory.h"
#include "storage/store.h"
#include "tests/chaos/raw_http2.h"
#include "tests/chaos/process.h"
#include "tests/chaos/unfinished_calls.h"
#include "tuner_server/service/flood.h"
#include "tuner_server/service/server.h"

namespace temper {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);  // for what should take milliseconds
constexpr int kPatienceMs = 60'000;

class ListenerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto dir = TemporaryDirectory::Make();
    ASSERT_TRUE(dir.ok());
    dir_ = *std::move(dir);
  }
  std::string Path(const std::string& name) const { return absl::StrCat(dir_.path(), "/", name); }

  // Each with a store of its own.
  absl::StatusOr<std::unique_ptr<Server>> Start(const std::string& listen, const std::string& directory = "") {
    stores_.push_back(*OpenStore("memory:"));
    ServerOptions options;
    options.listen = listen;
    options.directory = directory;
    options.insecure = directory.empty();
    return Server::Start(*stores_.back(), Clock::System(), options);
  }

  static Record RecordOf(const std::string& workload) {
    Record record;
    record.workload = workload;
    record.anchor = "toy";
    record.target = "t";
    record.device_key = record.fingerprint = "d";
    record.threads = 1;
    record.cache_policy = "model";
    record.template_name = "grid";
    record.template_version = 1;
    record.config = "a=1";
    record.codegen_id = "c1";
    record.purpose = "search";
    record.costs_s = {1e-3};
    record.tuner = "random";
    record.time_unix_ms = 1;
    return record;
  }

  static absl::Status Ask(const std::string& address) {
    const auto client = TunerClient::Connect(address, {.call_timeout = kPatience, .connect_timeout = kPatience});
    return client.ok() ? (*client)->ListJobs().status() : client.status();
  }

  TemporaryDirectory dir_;
  std::vector<std::unique_ptr<Store>> stores_;
};

TEST_F(ListenerTest, AClockThatIsFarFromThisCenturyIsNamedAtTheStart) {
  struct Stopped : Clock {
    absl::Duration Monotonic() const override { return Clock::System().Monotonic(); }
    absl::Time Wall() const override { return now; }
    absl::Time now;
  } clock;
  stores_.push_back(*OpenStore("memory:"));
  const auto start = [&](int64_t unix_s) {
    clock.now = absl::FromUnixSeconds(unix_s);
    return Server::Start(*stores_.back(), clock, {.listen = "127.0.0.1:0"}).status();
  };
  EXPECT_TRUE(start(0).ok());
  EXPECT_EQ(start(-1).message(), "this machine's clock says that it is 1969-12-31 23:59 UTC: set it first");
  EXPECT_FALSE(start(int64_t{1} << 33).ok()) << "ids would end";
}

// --- row 29: a second server ---

TEST_F(ListenerTest, ASecondServerIsRefusedWhateverItsDatabase) {
  for (const std::string& listen : {"unix:" + Path("s"), std::string("127.0.0.1:0"), std::string("localhost:0")}) {
    auto first = Start(listen);
    ASSERT_TRUE(first.ok()) << first.status();
    const auto second = Start((*first)->address());
    ASSERT_FALSE(second.ok()) << listen;
    EXPECT_THAT(std::string(second.status().message()), HasSubstr("is another server running there?"));
    EXPECT_TRUE(Ask((*first)->address()).ok());
    (*first)->Shutdown();
    EXPECT_TRUE(Start((*first)->address()).ok()) << listen;
  }
  EXPECT_TRUE(fs::is_empty(dir_.path()));  // neither sockets nor locks stay
}

TEST_F(ListenerTest, TheSocketOfADeadServerIsReplaced) {
  ServerProcess dead;
  ASSERT_TRUE(dead.Start({.db = Path("a.db"), .listen = "unix:" + Path("s")}).ok());
  dead.KillAndWait();
  ASSERT_TRUE(fs::exists(Path("s")));
  auto next = Start("unix:" + Path("s"));
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_TRUE(Ask((*next)->address()).ok());
  struct stat socket {};
  ASSERT_EQ(stat(Path("s").c_str(), &socket), 0);
  EXPECT_EQ(socket.st_mode & 0777, 0600u);
}

TEST_F(ListenerTest, WhatIsNotOurSocketIsLeftAlone) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  Path("theirs").copy(name.sun_path, sizeof(name.sun_path) - 1);
  const Descriptor theirs(socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(bind(theirs.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  ASSERT_EQ(listen(theirs.get(), 1), 0);
  std::ofstream(Path("file")) << "text";
  EXPECT_THAT(std::string(Start("unix:" + Path("theirs")).status().message()), HasSubstr("is another server running"));
  EXPECT_THAT(std::string(Start("unix:" + Path("file")).status().message()), HasSubstr("it is no socket"));
  EXPECT_TRUE(fs::is_socket(Path("theirs")));
  EXPECT_EQ(fs::file_size(Path("file")), 4u);
}

TEST_F(ListenerTest, AnAddressThatIsNoneIsRefusedInOneLine) {
  for (const std::string& listen :
       {std::string("127.0.0.1"), std::string("127.0.0.1:http"), std::string("127.0.0.1:70000"),
        std::string("127.0.0.1:-1"), std::string("unix:"), "unix:" + std::string(200, 'x'),
        "unix:" + Path("no/such/folder"), std::string("127.not.an.address:0")}) {
    const auto server = Start(listen);
    ASSERT_FALSE(server.ok()) << listen;
    EXPECT_EQ(server.status().message().find('\n'), std::string::npos);
  }
}

TEST_F(ListenerTest, AHostIsServedOnAllOfItsAddresses) {
  auto server = Start("localhost:0");
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string port = SplitHostPort((*server)->address()).port;
  EXPECT_NE(port, "0");
  EXPECT_TRUE(Ask("127.0.0.1:" + port).ok());
  auto v6 = Start("[::1]:0");
  if (!v6.ok()) GTEST_SKIP() << "this machine has no IPv6: " << v6.status();
  EXPECT_TRUE(Ask((*v6)->address()).ok());
}

// --- row 32: slow handshakes ---

TEST_F(ListenerTest, WhoDoesNotShakeHandsIsCutOff) {
  auto plain = Start("127.0.0.1:0");
  ASSERT_TRUE(InitServerDirectory(Path("tls"), {}, absl::Now()).ok());
  auto secret = Start("127.0.0.1:0", Path("tls"));
  ASSERT_TRUE(plain.ok() && secret.ok());
  // Half of what opens a connection, or nothing.
  const std::string preface = Http2Preface().substr(0, 10);
  const std::string hello("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
  std::vector<Descriptor> peers;
  for (const std::string& opening : {std::string(), preface}) {
    peers.push_back(ConnectTcp((*plain)->address()));
    ASSERT_TRUE(SendAll(peers.back().get(), opening));
  }
  for (const std::string& opening : {std::string(), hello}) {
    peers.push_back(ConnectTcp((*secret)->address()));
    ASSERT_TRUE(SendAll(peers.back().get(), opening));
  }
  const absl::Time start = absl::Now();
  for (const Descriptor& peer : peers) EXPECT_TRUE(AwaitEnd(peer.get(), kPatienceMs));
  // gRPC's own limit would be two minutes; that of the promise is 10 s on a machine at rest.
  EXPECT_LT(absl::Now() - start, kPatience);
  EXPECT_TRUE(Ask((*plain)->address()).ok());
}

// --- row 31: descriptors exhausted ---

TEST_F(ListenerTest, WithoutDescriptorsTheServerAnswersWhoIsConnectedAndLaterEverybody) {
  ServerProcess server;
  const absl::Status started = server.Start({.db = Path("a.db"), .descriptors = 64});
  ASSERT_TRUE(started.ok()) << started;
  const auto old = TunerClient::Connect(server.address(), {.call_timeout = kPatience, .connect_timeout = kPatience});
  ASSERT_TRUE((*old)->ListJobs().ok());
  {
    std::vector<Descriptor> idle;
    for (int i = 0; i < 300; ++i) {
      idle.push_back(ConnectTcp(server.address()));
      if (idle.back().valid()) SendAll(idle.back().get(), Http2Preface());
    }
    EXPECT_TRUE((*old)->ListJobs().ok());
    EXPECT_TRUE((*old)->PutRecords(std::vector<Record>{RecordOf("w")}).ok());  // the store has what it needs
    EXPECT_TRUE(AwaitEnd(idle.back().get(), kPatienceMs));
    EXPECT_TRUE((*old)->ListJobs().ok());
  }
  EXPECT_TRUE(Ask(server.address()).ok());
}

// --- memory ---

// accept(2) fails then whether anybody waits or not, and its loop once never ended.
TEST_F(ListenerTest, WithoutDescriptorsAListenerShedsWhoWaitsAndStillHearsThatItIsToStop) {
  const auto listener = Listener::Bind("unix:" + Path("s"), Clock::System());
  ASSERT_TRUE(listener.ok()) << listener.status();
  const Descriptor peer = ConnectUnix((*listener)->address());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{256, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<Descriptor> all;
  do {
    all.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  } while (all.back().valid());
  (*listener)->Serve(nullptr);  // nobody gets so far
  EXPECT_TRUE(AwaitEnd(peer.get(), kPatienceMs));
  auto closed = std::async(std::launch::async, [&] { (*listener)->Close(); });
  EXPECT_EQ(closed.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  all.clear();
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(ListenerTest, RequestsThatDoNotEndTakeABoundedAmountOfMemoryWhateverTheyComeBy) {
  constexpr int kPeers = 16, kCalls = 4, kStalledMs = 500, kTries = 5;
  [[maybe_unused]] constexpr int64_t kMost = int64_t{512} << 20;
  for (const std::string& listen : {"unix:" + Path("s"), std::string("127.0.0.1:0")}) {
    ServerProcess server;
    ASSERT_TRUE(server.Start({.db = Path("a.db"), .listen = listen}).ok());
    const auto old = TunerClient::Connect(server.address(), {.call_timeout = kPatience, .connect_timeout = kPatience});
    std::vector<UnfinishedCalls> peers;
    for (int i = 0; i < kPeers; ++i) {
      peers.emplace_back(server.address(), kCalls, 15 << 20);
      peers.back().Send(kStalledMs);
      // Its connection, without a call just then, may have been closed to make room; and the next one as well.
      absl::Status answered = absl::UnknownError("");
      for (int tries = 0; tries < kTries && !answered.ok(); ++tries) answered = (*old)->ListJobs().status();
      EXPECT_TRUE(answered.ok()) << listen << ": " << answered;
    }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // sanitizers keep what is freed
    EXPECT_LT(server.MemoryBytes("VmHWM"), kMost) << listen;
#endif
    peers.clear();
    EXPECT_TRUE(Ask(server.address()).ok());
  }
}

// Descriptors are counted as for addresses.
TEST_F(ListenerTest, OneProcessAtASocketFileTakesHalfOfWhatThereIsForConnections) {
  ServerProcess server;
  ASSERT_TRUE(server.Start({.db = Path("a.db"), .listen = "unix:" + Path("s"), .descriptors = 64}).ok());
  std::vector<Descriptor> idle;
  for (int i = 0; i < DescriptorsForConnections(64) / 4; ++i) {
    idle.push_back(ConnectUnix(server.address()));
    ASSERT_TRUE(SendAll(idle.back().get(), Http2Preface()));
  }
  const Descriptor one_more = ConnectUnix(server.address());
  EXPECT_TRUE(AwaitEnd(one_more.get(), kPatienceMs));
  const pid_t other = fork();  // another one is served meanwhile
  if (other == 0) {
    const Descriptor peer = ConnectUnix(server.address());
    char byte = 0;
    _exit(recv(peer.get(), &byte, 1, 0) == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
  idle.pop_back();
  EXPECT_TRUE(Ask(server.address()).ok()) << "there is a place again";
}

TEST(DescriptorsTest, ASmallLimitLeavesSomeForTheStoreAndALargeOneLeavesMostToConnections) {
  EXPECT_EQ(DescriptorsForConnections(64), 43);
  EXPECT_EQ(DescriptorsForConnections(1024), 768);
  EXPECT_EQ(DescriptorsForConnections(1 << 20), (1 << 20) - 256);
}

// --- row 35: floods ---

// Opens streams and resets them. True once it is cut off; false after `patience`.
bool CutsOffAFlood(const std::string& address, absl::Duration patience) {
  const absl::Time give_up = absl::Now() + patience;
  const Descriptor peer = ConnectTcp(address);
  std::thread reader([&] {
    AwaitEnd(peer.get(), static_cast<int>(absl::ToInt64Milliseconds(patience)));
    shutdown(peer.get(), SHUT_RDWR);
  });
  bool connected = SendAll(peer.get(), Http2Preface());
  for (uint32_t stream = 1; connected && absl::Now() < give_up;) {
    std::string frames;
    for (int i = 0; i < 100; ++i, stream += 2) {
      frames += Frame(Http2Frame::kHeaders, 4, stream, CallHeaders("/temper.v1.WorkerService/Sync", stream == 1));
      frames += Frame(Http2Frame::kReset, 0, stream, std::string("\0\0\0\x8", 4));
    }
    connected = SendAll(peer.get(), frames);
  }
  shutdown(peer.get(), SHUT_RDWR);
  reader.join();
  return !connected && absl::Now() < give_up;
}

TEST_F(ListenerTest, AFloodOfResetsIsCutOffAndCostsABoundedShareOfAProcessor) {
  ServerProcess server;
  ASSERT_TRUE(server.Start({.db = Path("a.db")}).ok());
  const auto honest = TunerClient::Connect(server.address(), {.call_timeout = kPatience, .connect_timeout = kPatience});
  ASSERT_TRUE((*honest)->ListJobs().ok());
  const double before = server.CpuSeconds();
  const absl::Time start = absl::Now();
  while (absl::Now() - start < absl::Seconds(6)) {
    ASSERT_TRUE(CutsOffAFlood(server.address(), absl::Seconds(20)));  // and again, at once
    EXPECT_TRUE((*honest)->ListJobs().ok());
    absl::SleepFor(absl::Milliseconds(10));  // or the honest calls would be a load of their own
  }
  [[maybe_unused]] const double share = (server.CpuSeconds() - before) / absl::ToDoubleSeconds(absl::Now() - start);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // a connection costs a multiple of its price there
  EXPECT_LT(share, 0.5);
#endif
}

// Whether a new connection is answered, as the user `user` of this machine.
bool IsHeard(const std::string& address, uid_t user) {
  bool heard = false;
  std::thread([&] {
    setfsuid(user);  // of this thread alone; what it makes is that user's
    const Descriptor peer = ConnectTcp(address);
    char first;
    heard = peer.valid() && SendAll(peer.get(), Http2Preface()) && recv(peer.get(), &first, 1, 0) == 1;
  }).join();
  return heard;
}

TEST_F(ListenerTest, AFloodFromThisMachineMakesTheServerDeafToItsUserAlone) {
  if (geteuid() != 0) GTEST_SKIP() << "only root connects as somebody else";
  constexpr uid_t kFlooding = 65'534;
  for (const char* listen : {"127.0.0.1:0", "[::]:0"}) {
    const auto server = Start(listen);
    if (!server.ok() && listen[0] == '[') continue;  // this machine has no IPv6
    ASSERT_TRUE(server.ok()) << server.status();
    const std::string& address = (*server)->address();
    const std::string loopback = "127.0.0.1" + address.substr(address.rfind(':'));
    std::thread([&] {
      setfsuid(kFlooding);
      EXPECT_TRUE(CutsOffAFlood(loopback, absl::Seconds(20)));
    }).join();
    EXPECT_TRUE(IsHeard(loopback, 0)) << listen;
  }
}

TEST_F(ListenerTest, AFloodOverIPv6IsCutOffToo) {
  auto server = Start("[::1]:0");
  if (!server.ok()) GTEST_SKIP() << "this machine has no IPv6: " << server.status();
  EXPECT_TRUE(CutsOffAFlood((*server)->address(), absl::Seconds(20)));
}

// A header whose end never comes, in 28 MiB of frames; what all connections were allowed is 32. True once it is cut
// off.
bool CutsOffAHeader(const std::string& address, const std::string& block, const std::function<std::string(int)>& more) {
  constexpr int kPatienceMs = 20'000;
  const Descriptor peer = ConnectTcp(address);
  if (!SendAll(peer.get(), Http2Preface() + Frame(Http2Frame::kHeaders, 0, 1, block))) return true;
  size_t sent = 0;
  for (int i = 0; sent < 28 << 20; ++i) {
    const std::string frame = Frame(Http2Frame::kContinuation, 0, 1, more(i));
    if (!SendAll(peer.get(), frame)) return true;
    sent += frame.size();
  }
  return AwaitEnd(peer.get(), kPatienceMs);
}

TEST_F(ListenerTest, AHeaderWithoutAnEndIsCutOffBeforeItCostsMuch) {
  ServerProcess server;
  ASSERT_TRUE(server.Start({.db = Path("a.db")}).ok());
  const auto honest = TunerClient::Connect(server.address(), {.call_timeout = kPatience, .connect_timeout = kPatience});
  ASSERT_TRUE((*honest)->ListJobs().ok());
  // A name of 200 MiB: 7 bits that say "more", then the rest, lowest first.
  const std::string name("\0\x7F\x81\xFF\xFF\x63", 6);
  EXPECT_TRUE(CutsOffAHeader(server.address(), name, [](int) { return std::string(16'384, 'a'); }));
  EXPECT_TRUE((*honest)->ListJobs().ok());
}

TEST_F(ListenerTest, AHeaderOfManyFieldsIsCutOffBeforeItTakesMuchMemory) {
  ServerProcess server;
  ASSERT_TRUE(server.Start({.db = Path("a.db")}).ok());
  const auto honest = TunerClient::Connect(server.address(), {.call_timeout = kPatience, .connect_timeout = kPatience});
  ASSERT_TRUE((*honest)->ListJobs().ok());
  const auto fields = [](int i) {
    std::string block;
    for (int field = 0; field < 25; ++field) {
      const std::string name = absl::StrCat("x-", i, "-", field);
      block += std::string(1, '\0') + static_cast<char>(name.size()) + name + '\x64' + std::string(100, 'v');
    }
    return block;
  };
  EXPECT_TRUE(CutsOffAHeader(server.address(), fields(0), fields));
  EXPECT_TRUE((*honest)->ListJobs().ok());
}

// gRPC's own limit closes the connection anew with each ping beyond it, which is dearer than any answer.
TEST_F(ListenerTest, PingsAreAnsweredHoweverManyUntilTheyAreAFlood) {
  constexpr size_t kPings = 20'000;
  ServerProcess server;
  ASSERT_TRUE(server.Start({.db = Path("a.db")}).ok());
  const Descriptor peer = ConnectTcp(server.address());
  const std::string ping = Frame(Http2Frame::kPing, 0, 0, "12345678");
  ASSERT_TRUE(SendAll(peer.get(), Http2Preface()));
  size_t answered = 0;
  char buffer[65536];
  for (size_t sent = 0; sent < kPings; sent += 100) {
    std::string many;
    for (int i = 0; i < 100; ++i) many += ping;
    ASSERT_TRUE(SendAll(peer.get(), many)) << "after " << sent;
    for (ssize_t n; answered < sent * ping.size(); answered += static_cast<size_t>(n)) {
      n = recv(peer.get(), buffer, sizeof(buffer), 0);
      ASSERT_GT(n, 0) << "after " << sent;
    }
  }
  std::string flood;
  for (int i = 0; i < 4096; ++i) flood += ping;
  std::thread reader([&] { AwaitEnd(peer.get(), kPatienceMs); });
  for (int64_t sent = 0; sent < FloodMeter::kBytesUnanswered * 8; sent += static_cast<int64_t>(flood.size())) {
    if (!SendAll(peer.get(), flood)) break;
  }
  EXPECT_FALSE(SendAll(peer.get(), flood)) << "it is cut off";
  reader.join();
}

// Of connections each of which ends before it floods.
TEST_F(ListenerTest, WhoComesAgainAndAgainIsNotListenedToEither) {
  ServerProcess server;
  ASSERT_TRUE(server.Start({.db = Path("a.db")}).ok());
  const auto honest = TunerClient::Connect(server.address(), {.call_timeout = kPatience, .connect_timeout = kPatience});
  ASSERT_TRUE((*honest)->ListJobs().ok());
  std::string pings;
  for (int i = 0; i < 4096; ++i) pings += Frame(Http2Frame::kPing, 0, 0, "12345678");
  constexpr int64_t kBytesEach = FloodMeter::kBytesUnanswered / 4;
  // Whether it may say all of that.
  const auto comes = [&] {
    const Descriptor peer = ConnectTcp(server.address());
    std::thread reader([&] { AwaitEnd(peer.get(), kPatienceMs); });
    bool said = SendAll(peer.get(), Http2Preface());
    for (int64_t sent = 0; said && sent < kBytesEach; sent += static_cast<int64_t>(pings.size()))
      said = SendAll(peer.get(), pings);
    shutdown(peer.get(), SHUT_WR);  // it ends once all of it was taken in
    reader.join();
    return said;
  };
  constexpr auto kMost = static_cast<int>(PeerMeter::kBytesAtOnce / kBytesEach);
  int times = 0;
  while (times < 4 * kMost && comes()) ++times;
  EXPECT_GE(times, kMost / 2);
  EXPECT_LT(times, 4 * kMost) << "it is cut off";
  EXPECT_TRUE((*honest)->ListJobs().ok());
}

TEST_F(ListenerTest, RequestsOfTheLargestSizeAreTakenToTheirEnd) {
  constexpr int64_t kBytes = 15 << 20;
  constexpr int kStalledMs = 2'000;
  ServerProcess server;
  ASSERT_TRUE(server.Start({.db = Path("a.db")}).ok());
  for (const int calls : {1, 2}) {
    UnfinishedCalls peer(server.address(), calls, kBytes);
    peer.Send(kStalledMs);
    EXPECT_FALSE(peer.closed());
    EXPECT_EQ(peer.sent(), calls * kBytes);
  }
}

// A mebibyte of a request may come without a word of the server, and over a slow link that takes long.
TEST(FloodMeterTest, TheEndOfARequestMayComeAsSlowlyAsItLikes) {
  absl::Duration now = absl::Seconds(100);
  FloodMeter meter(now);
  Traffic traffic{.received = 15 << 20, .unread = 1'000, .sent = 5'000};  // the look comes before gRPC's
  EXPECT_FALSE(meter.FloodsUnheeded(traffic, now));
  for (int i = 0; i < 1'100; ++i) {
    now += absl::Milliseconds(30);
    traffic.received += 1'000;
    EXPECT_FALSE(meter.FloodsUnheeded(traffic, now));
  }
}

TEST(FloodMeterTest, WhoeverIsHeededMaySayAsMuchAsItLikes) {
  absl::Duration now = absl::Seconds(100);
  FloodMeter meter(now);
  Traffic traffic;
  for (int i = 0; i < 10'000; ++i) {
    now += absl::Milliseconds(5);
    traffic.received += 512 << 10;
    traffic.unread = 64 << 10;
    traffic.sent += 26;
    EXPECT_FALSE(meter.FloodsUnheeded(traffic, now));
  }
}

TEST(FloodMeterTest, WhoIsNotHeededMaySayALittle) {
  FloodMeter meter(absl::ZeroDuration());
  Traffic traffic{.received = 100, .sent = 50};
  EXPECT_FALSE(meter.FloodsUnheeded(traffic, absl::Seconds(1)));
  traffic.received += FloodMeter::kBytesUnheeded;
  EXPECT_FALSE(meter.FloodsUnheeded(traffic, absl::Seconds(2)));
  ++traffic.received;
  EXPECT_TRUE(meter.FloodsUnheeded(traffic, absl::Seconds(3)));
}

TEST(FloodMeterTest, WhoIsNotHeededKeepsNobodyBusyForLong) {
  absl::Duration now = absl::Seconds(100);
  FloodMeter meter(now);
  const Traffic few{.received = FloodMeter::kBytesOfSuspects, .unread = 1'000};
  for (int i = 0; i < 1'000; ++i) EXPECT_FALSE(meter.FloodsUnheeded(few, now += absl::Milliseconds(5)));
  const Traffic more{.received = FloodMeter::kBytesOfSuspects + 1, .unread = 1'000};
  absl::Duration busy;
  for (; busy < FloodMeter::kBusy; busy += absl::Milliseconds(5)) {
    EXPECT_FALSE(meter.FloodsUnheeded(more, now += absl::Milliseconds(5)));
  }
  EXPECT_TRUE(meter.FloodsUnheeded(more, now + absl::Milliseconds(5)));
}

TEST(FloodMeterTest, AMachineThatStandsStillIsNobodysFault) {
  absl::Duration now = absl::Seconds(100);
  FloodMeter meter(now);
  const Traffic traffic{.received = 1 << 20, .unread = 1'000};
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(meter.FloodsUnheeded(traffic, now += absl::Seconds(10)));
}

TEST(FloodMeterTest, WhoIsAnsweredMayDoAsMuchAsItLikes) {
  absl::Duration now = absl::Seconds(100);
  FloodMeter meter(now);
  StreamCounts counts;
  int64_t bytes = 0;
  for (int i = 0; i < 100; ++i) {
    now += absl::Milliseconds(200);
    counts.started += 10'000;
    counts.answered += 10'000;
    bytes += 30 << 20;
    EXPECT_FALSE(meter.Floods(bytes, counts, now));
  }
}

TEST(FloodMeterTest, StreamsWithoutAnAnswerAreAllowedAtARate) {
  absl::Duration now;
  FloodMeter meter(now);
  StreamCounts counts{.started = FloodMeter::kWastedAtOnce};  // as when all wait
  EXPECT_FALSE(meter.Floods(0, counts, now));
  for (int i = 0; i < 100; ++i) {
    now += absl::Seconds(1);
    counts.started += FloodMeter::kWastedPerSecond;
    EXPECT_FALSE(meter.Floods(0, counts, now));
  }
  counts.started += 1;
  EXPECT_TRUE(meter.Floods(0, counts, now));
  now += absl::Minutes(1);
  EXPECT_FALSE(meter.Floods(0, counts, now));
}

TEST(PeerMeterTest, AFleetMayComeBackAtOnceAndNobodyComesEverySoOften) {
  PeerMeter meter;
  absl::Duration now = absl::Hours(1);
  constexpr auto kMost = static_cast<int>(PeerMeter::kConnectionsAtOnce);
  for (int i = 0; i < kMost; ++i) ASSERT_TRUE(meter.Connects(now)) << i;
  EXPECT_FALSE(meter.Connects(now));
  now += absl::Seconds(1);
  int more = 0;
  while (meter.Connects(now)) ++more;
  EXPECT_EQ(more, static_cast<int>(PeerMeter::kConnectionsPerSecond));
}

TEST(PeerMeterTest, WhatEndsWithoutAnAnswerAddsUpAndIsForgotten) {
  constexpr auto kMost = static_cast<int64_t>(PeerMeter::kBytesAtOnce), kSome = int64_t{1} << 20;
  PeerMeter meter;
  absl::Duration now = absl::Hours(1);
  for (int64_t said = 0; said < kMost; said += kSome) EXPECT_FALSE(meter.Ends(kSome, now)) << said;
  EXPECT_TRUE(meter.Ends(1, now));
  EXPECT_FALSE(meter.IsQuiet(now));
  now += absl::Seconds(PeerMeter::kBytesAtOnce / PeerMeter::kBytesPerSecond + 1);
  EXPECT_TRUE(meter.IsQuiet(now));
}

TEST(FloodMeterTest, BytesThatAreNoCallsAreAllowedUpToTwiceTheLargestRequest) {
  FloodMeter meter(absl::ZeroDuration());
  EXPECT_FALSE(meter.Floods(FloodMeter::kBytesUnanswered, {.started = 1}, absl::Seconds(1)));
  EXPECT_TRUE(meter.Floods(FloodMeter::kBytesUnanswered + 1, {.started = 1}, absl::Seconds(2)));
  EXPECT_FALSE(meter.Floods(FloodMeter::kBytesUnanswered + 2, {.started = 1, .answered = 1}, absl::Seconds(3)));
}

}  // namespace
}  // namespace temper
