#include "tuner_server/operations/http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <list>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/rng.h"
#include "tests/operations/socket.h"
#include "tuner_server/operations/slow_replies.h"

namespace temper {
namespace {

using ::temper::testing::Get;
using ::temper::testing::Socket;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::unique_ptr<HttpListener> Listen(HttpOptions options = {}) {
  options.listen = "127.0.0.1:0";
  auto listener = HttpListener::Start(
      options, {{"/hello",
                 [](const HttpRequest&) {
                   return HttpReply{.body = "hello\n", .headers = {{"X-Of-The-Page", "yes"}}};
                 }},
                {"/echo",
                 [](const HttpRequest& request) {
                   const auto text = request.query.find("text");
                   return HttpReply{.code = text == request.query.end() ? 400 : 200,
                                    .body = text == request.query.end() ? "" : text->second};
                 }},
                {"/post",
                 [](const HttpRequest& request) {
                   EXPECT_TRUE(request.local);
                   return HttpReply{.body = request.body};
                 },
                 "POST"},
                {"/large", [](const HttpRequest&) { return HttpReply{.body = std::string(8 << 20, 'x')}; }}});
  EXPECT_TRUE(listener.ok()) << listener.status();
  return *std::move(listener);
}

TEST(HttpTest, RoutesByPath) {
  const auto server = Listen();
  const std::string reply = Get(server->address(), "/hello");
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(reply, HasSubstr("\r\nContent-Length: 6\r\n"));
  EXPECT_THAT(reply, HasSubstr("\r\nX-Of-The-Page: yes\r\n"));
  EXPECT_THAT(reply, EndsWith("\r\n\r\nhello\n"));
  EXPECT_THAT(Get(server->address(), "/none"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Get(server->address(), "/hello/"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Get(server->address(), "/hello?x=1"), StartsWith("HTTP/1.1 200 "));
}

TEST(HttpTest, DecodesTheQuery) {
  const auto server = Listen();
  EXPECT_THAT(Get(server->address(), "/echo?a=1&text=a%20b+c%2Fd%26&x"), EndsWith("\r\n\r\na b c/d&"));
  EXPECT_THAT(Get(server->address(), "/ec%68o?text="), StartsWith("HTTP/1.1 200 "));
  for (const char* broken : {"/echo?text=%", "/echo?text=%4", "/echo?text=%zz", "/%"}) {
    EXPECT_THAT(Get(server->address(), broken), StartsWith("HTTP/1.1 400 ")) << broken;
  }
}

// The request as it is, and what comes back.
std::string Say(const HttpListener& server, const std::string& request) {
  Socket socket(server.address());
  socket.Send(request);
  return socket.ReadAll();
}

TEST(HttpTest, EachPageHasItsMethod) {
  const auto server = Listen();
  for (const char* method : {"HEAD", "DELETE", "CONNECT", "get", "\x01"}) {
    const std::string reply = Say(*server, std::string(method) + " /hello HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc");
    EXPECT_THAT(reply, StartsWith("HTTP/1.1 405 ")) << method;
    EXPECT_THAT(reply, HasSubstr("\r\nAllow: GET, POST\r\n"));
  }
  const std::string post = Say(*server, "POST /hello HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_THAT(post, StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(post, HasSubstr("\r\nAllow: GET\r\n"));
  EXPECT_THAT(Get(server->address(), "/post"), HasSubstr("\r\nAllow: POST\r\n"));
}

TEST(HttpTest, ABodyIsReadToItsEnd) {
  const auto server = Listen();
  Socket slow(server->address());
  slow.Send("POST /post HTTP/1.1\r\nContent-Length: 5\r\n\r\nab");
  slow.Send("cde and what nobody asked for");
  EXPECT_THAT(slow.ReadAll(), EndsWith("\r\n\r\nabcde"));
  EXPECT_THAT(Say(*server, "POST /post HTTP/1.1\r\n\r\n"), EndsWith("\r\n\r\n"));
  for (const char* length : {"-1", "x", "3, 3", "99999999999999999999999"}) {
    const std::string head = std::string("POST /post HTTP/1.1\r\nContent-Length: ") + length + "\r\n\r\nabc";
    EXPECT_THAT(Say(*server, head), StartsWith("HTTP/1.1 400 ")) << length;
  }
  EXPECT_THAT(Say(*server, "POST /post HTTP/1.1\r\nContent-Length: 4097\r\n\r\n"), StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(Say(*server, "POST /post HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
              StartsWith("HTTP/1.1 400 "));
}

TEST(HttpTest, HeadersAreKnownByNameInAnyCase) {
  const auto request = ParseHttpRequest("GET / HTTP/1.1\r\nhOst:  a.example \r\nX-A: 1\r\nx-a: 2\r\nEmpty:");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->Header("host"), "a.example");
  EXPECT_EQ(request->Header("x-a"), "1, 2");
  EXPECT_EQ(request->Header("empty"), "");
  EXPECT_EQ(request->Header("none"), "");
  for (const char* line : {"no colon", ": no name", "two words: x", " folded: x", "tab\t: x", "\r: x"}) {
    EXPECT_FALSE(ParseHttpRequest(std::string("GET / HTTP/1.1\r\n") + line).ok()) << line;
  }
}

TEST(HttpTest, ARequestMayComeByteByByte) {
  const auto server = Listen();
  Socket socket(server->address());
  for (const char c : std::string("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n")) ASSERT_TRUE(socket.Send({&c, 1}));
  EXPECT_THAT(socket.ReadAll(), EndsWith("hello\n"));
}

// A listener whose page /slow is told when it may end.
class SlowTest : public ::testing::Test {
 protected:
  static std::vector<HttpRoute> Routes(SlowTest& test) {
    const auto slow = [&test](const HttpRequest& request) {
      ++test.asked_;
      test.begun_.Notify();
      test.go_.WaitForNotification();
      return HttpReply{.body = "slow " + request.Query("n")};
    };
    return {{"/hello", [](const HttpRequest&) { return HttpReply{.body = "hello\n"}; }},
            {.path = "/slow", .reply = slow, .slow = true},
            {.path = "/large",
             .reply = [](const HttpRequest&) { return HttpReply{.body = std::string(8 << 20, 'x')}; },
             .slow = true}};
  }
  void Start(HttpOptions options = {}) {
    options.listen = "127.0.0.1:0";
    auto listener = HttpListener::Start(options, Routes(*this));
    ASSERT_TRUE(listener.ok()) << listener.status();
    server_ = *std::move(listener);
  }
  // One that waits for /slow.
  Socket Asks(int n) {
    Socket socket(server_->address());
    socket.Send(absl::StrCat("GET /slow?n=", n, " HTTP/1.1\r\n\r\n"));
    return socket;
  }
  std::string Hello() { return Get(server_->address(), "/hello"); }

  // Once, and then whoever else tells it, in vain.
  class Begun {
   public:
    void Notify() {
      if (!told_.exchange(true)) notification_.Notify();
    }
    void Wait() { notification_.WaitForNotification(); }

   private:
    std::atomic<bool> told_ = false;
    absl::Notification notification_;
  };

  std::atomic<int> asked_ = 0;
  Begun begun_;
  absl::Notification go_;
  std::unique_ptr<HttpListener> server_;  // ends before what its routes use
};

TEST_F(SlowTest, OthersAreAnsweredMeanwhile) {
  Start({.patience = absl::Milliseconds(50)});  // which is not for the time a reply takes
  Socket first = Asks(1), second = Asks(2);
  begun_.Wait();
  for (int i = 0; i < 20; ++i) EXPECT_THAT(Hello(), EndsWith("hello\n"));
  EXPECT_FALSE(first.Hears(100));
  go_.Notify();
  EXPECT_THAT(first.ReadAll(), EndsWith("\r\n\r\nslow 1"));
  EXPECT_THAT(second.ReadAll(), EndsWith("\r\n\r\nslow 2"));
  EXPECT_EQ(Get(server_->address(), "/large").substr(0, 15), "HTTP/1.1 200 OK");
}

TEST_F(SlowTest, MoreThanAFewAreToldToComeAgain) {
  Start();
  std::list<Socket> waiting;
  waiting.push_back(Asks(0));
  begun_.Wait();
  for (size_t i = 1; i <= SlowReplies::kMostWaiting; ++i) {
    waiting.push_back(Asks(static_cast<int>(i)));
    EXPECT_THAT(Hello(), EndsWith("hello\n"));  // so it was heard
  }
  EXPECT_THAT(Asks(99).ReadAll(), StartsWith("HTTP/1.1 503 "));
  waiting.erase(std::next(waiting.begin()));  // gives its place back, once the listener has seen it go
  for (bool waits = false; !waits;) {
    waiting.push_back(Asks(100));
    EXPECT_THAT(Hello(), EndsWith("hello\n"));
    waits = !waiting.back().Hears(0);
    if (!waits) waiting.pop_back();
  }
  go_.Notify();
  for (Socket& socket : waiting) EXPECT_THAT(socket.ReadAll(), HasSubstr("slow "));
  EXPECT_EQ(asked_, static_cast<int>(SlowReplies::kMostWaiting) + 1);  // nobody waited for the one that went
}

TEST_F(SlowTest, WhoIsPushedOutMeanwhileIsForgotten) {
  Start({.most_connections = 1});
  Socket first = Asks(1);
  begun_.Wait();
  EXPECT_THAT(Hello(), EndsWith("hello\n"));
  EXPECT_THAT(first.ReadAll(), IsEmpty());
  go_.Notify();
  EXPECT_THAT(Asks(2).ReadAll(), EndsWith("slow 2"));
}

TEST_F(SlowTest, AnEndWaitsForTheReplyThatIsMadeAndForNoOther) {
  Start();
  Socket first = Asks(1);
  begun_.Wait();
  Socket second = Asks(2);
  EXPECT_THAT(Hello(), EndsWith("hello\n"));
  std::thread ends([&] { server_.reset(); });
  EXPECT_THAT(second.ReadAll(), IsEmpty());
  go_.Notify();
  ends.join();
  EXPECT_EQ(asked_, 1);
}

TEST(HttpTest, ALargeReplyArrivesWhole) {
  const auto server = Listen();
  const std::string reply = Get(server->address(), "/large");
  EXPECT_EQ(reply.size() - reply.find("\r\n\r\n") - 4, 8u << 20);
}

TEST(HttpTest, GarbageIsABadRequest) {
  const auto server = Listen();
  for (const std::string& garbage :
       {std::string("\r\n\r\n"), std::string("hello\r\n\r\n"), std::string("GET\r\n\r\n"),
        std::string("GET /hello\r\n\r\n"), std::string("GET hello HTTP/1.1\r\n\r\n"),
        std::string("GET /hello HTTP/2.0\r\n\r\n"), std::string("GET  /hello HTTP/1.1\r\n\r\n"),
        std::string("\0\0\0\r\n\r\n", 7), std::string("\x16\x03\x01\x02\r\n\r\n"),
        std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")}) {
    Socket socket(server->address());
    socket.Send(garbage);
    EXPECT_THAT(socket.ReadAll(), StartsWith("HTTP/1.1 400 ")) << garbage;
  }
  EXPECT_THAT(Get(server->address(), "/hello"), EndsWith("hello\n"));
}

TEST(HttpTest, RandomBytesHarmNobody) {
  const auto server = Listen({.patience = absl::Milliseconds(200)});
  Rng rng(7);
  for (int i = 0; i < 300; ++i) {
    std::string bytes = rng.Below(2) == 0 ? "GET /hello HTTP/1.1\r\n" : "";
    for (int64_t n = rng.Below(300); n > 0; --n) bytes += static_cast<char>(rng.Below(256));
    Socket socket(server->address());
    socket.Send(bytes + "\r\n\r\n");
    EXPECT_THAT(socket.ReadAll(), StartsWith("HTTP/1.1 "));
  }
}

TEST(HttpTest, AHugeHeaderIsRefusedBeforeItIsRead) {
  const auto server = Listen();
  Socket socket(server->address());
  const std::string line = "X-Filler: " + std::string(1000, 'x') + "\r\n";
  // The server stops listening to it; so much would never fit into the buffers of a connection.
  socket.Send("GET /hello HTTP/1.1\r\n");
  for (int i = 0; i < 20; ++i) socket.Send(line);
  EXPECT_THAT(socket.ReadAll(), StartsWith("HTTP/1.1 431 "));
}

TEST(HttpTest, ASlowRequestIsCutOffHoweverItTrickles) {
  const auto server = Listen({.most_header_bytes = 1 << 30, .patience = absl::Milliseconds(100)});
  Socket silent(server->address()), slow(server->address());
  slow.Send("GET /hello HTTP/1.1\r\n");
  while (slow.Send("X: y\r\n")) {
  }
  EXPECT_THAT(silent.ReadAll(), IsEmpty());
}

TEST(HttpTest, WhoDoesNotReadIsCutOff) {
  const auto server = Listen({.patience = absl::Milliseconds(100)});
  Socket deaf(server->address());
  deaf.Send("GET /large HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(deaf.Hears(-1));  // the first bytes: from now on its time runs
  Socket later(server->address());
  EXPECT_THAT(later.ReadAll(), IsEmpty());  // its time is over, so that of the deaf one is too
  EXPECT_LT(deaf.ReadAll().size(), 8u << 20);
}

TEST(HttpTest, ManyIdleConnectionsDoNotKeepOthersOut) {
  const auto server = Listen({.most_connections = 8});
  std::vector<Socket> idle;
  for (int i = 0; i < 200; ++i) {
    idle.emplace_back(server->address());
    if (i % 20 == 0) {
      EXPECT_THAT(Get(server->address(), "/hello"), EndsWith("hello\n")) << i;
    }
  }
  EXPECT_THAT(Get(server->address(), "/hello"), EndsWith("hello\n"));
  // The oldest had to go.
  EXPECT_THAT(idle.front().ReadAll(), IsEmpty());
}

TEST(HttpTest, ItHearsAgainOnceThereAreDescriptors) {
  const auto server = Listen();
  Socket waiting, second;
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit none = before;
  none.rlim_cur = 3;
  setrlimit(RLIMIT_NOFILE, &none);
  for (Socket* socket : {&waiting, &second}) {
    socket->Connect(server->address());
    socket->Send("GET /hello HTTP/1.1\r\n\r\n");
  }
  EXPECT_FALSE(waiting.Hears(250));
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(waiting.ReadAll(), EndsWith("hello\n"));
  EXPECT_THAT(second.ReadAll(), EndsWith("hello\n"));
}

TEST(HttpTest, AddressesAreCheckedFirst) {
  for (const char* address : {"", "9191", ":9191", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", "example.com:9191"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(HttpListener::Start({.listen = address}, {}).status())) << address;
  }
  for (const char* address : {"0.0.0.0:0", "[::]:0", "192.0.2.1:0"}) {
    const absl::Status status = HttpListener::Start({.listen = address}, {}).status();
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << address << " " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--http-insecure"));
  }
  EXPECT_TRUE(HttpListener::Start({.listen = "0.0.0.0:0", .beyond_loopback = true}, {}).ok());
  EXPECT_TRUE(HttpListener::Start({.listen = "localhost:0"}, {}).ok());
  const auto server = Listen();
  const absl::Status taken = HttpListener::Start({.listen = server->address()}, {}).status();
  EXPECT_TRUE(absl::IsUnavailable(taken)) << taken;
}

}  // namespace
}  // namespace temper
