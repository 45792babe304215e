// temper-server as a process: what it tells its service manager, its pages, and a restore from its own snapshots.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/temporary_directory.h"
#include "client/tuner_client.h"
#include "storage/store.h"
#include "tests/operations/socket.h"
#include "tuner_server/operations/snapshots.h"

namespace temper {
namespace {

namespace fs = std::filesystem;
using ::temper::testing::Get;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A program with its standard output and error in our hands. Killed with the object.
class Program {
 public:
  Program(std::vector<std::string> args, const std::vector<std::string>& env = {}) {
    int out[2];
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(out[1], STDOUT_FILENO);
      dup2(out[1], STDERR_FILENO);
      for (const std::string& one : env) putenv(const_cast<char*>(one.c_str()));
      std::vector<char*> argv;
      for (std::string& arg : args) argv.push_back(arg.data());
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(out[1]);
    out_ = fdopen(out[0], "r");
  }
  ~Program() {
    Kill(SIGKILL);
    Wait();
    std::fclose(out_);
  }
  void Kill(int signal) const {
    if (pid_ > 0) kill(pid_, signal);
  }
  int Wait() {
    if (pid_ > 0) waitpid(pid_, &status_, 0);
    pid_ = 0;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128;
  }
  // The next line, without its end; empty at the end.
  std::string Line() {
    std::string line;
    for (int c; (c = std::fgetc(out_)) != EOF && c != '\n';) line += static_cast<char>(c);
    return line;
  }

 private:
  pid_t pid_;
  std::FILE* out_;
  int status_ = 0;
};

Record SomeRecord(int64_t number) {
  return {.workload = "w",
          .anchor = "a",
          .target = "t",
          .device_key = "laptop",
          .fingerprint = "toy",
          .template_name = "gemm",
          .config = absl::StrCat("x=", number),
          .codegen_id = "c1",
          .costs_s = {1e-3, 1e-3, 1e-3}};
}

class ServerProcessTest : public ::testing::Test {
 protected:
  void SetUp() override { directory_ = *TemporaryDirectory::Make(); }
  std::vector<std::string> Command(std::vector<std::string> more) const {
    std::vector<std::string> command = {TEMPER_SERVER, "--db", database(), "--listen", "127.0.0.1:0"};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  static std::string After(const std::string& line, const std::string& begin) {
    EXPECT_THAT(line, StartsWith(begin));
    return line.size() < begin.size() ? "" : line.substr(begin.size());
  }
  std::string database() const { return directory_.path() + "/records.db"; }

  TemporaryDirectory directory_;
};

// The socket that systemd gives a service of Type=notify.
class Manager {
 public:
  explicit Manager(const std::string& path) : fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un name{.sun_family = AF_UNIX};
    std::strncpy(name.sun_path, path.c_str(), sizeof name.sun_path - 1);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
  }
  ~Manager() { close(fd_); }
  std::string Next() {  // waits
    char bytes[256];
    const ssize_t n = recv(fd_, bytes, sizeof bytes, 0);
    return std::string(bytes, static_cast<size_t>(std::max<ssize_t>(n, 0)));
  }
  std::string NextButWatchdog() {
    std::string next = Next();
    while (next == "WATCHDOG=1") next = Next();
    return next;
  }
  bool Quiet(int milliseconds) {
    pollfd polled{fd_, POLLIN, 0};
    return poll(&polled, 1, milliseconds) == 0;
  }

 private:
  int fd_;
};

TEST_F(ServerProcessTest, TellsItsManagerThatItIsReadyLivesAndStops) {
  Manager manager(directory_.path() + "/notify");
  Program server(Command({}), {"NOTIFY_SOCKET=" + directory_.path() + "/notify", "WATCHDOG_USEC=150000"});
  EXPECT_EQ(manager.Next(), "READY=1");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(manager.Next(), "WATCHDOG=1");
  server.Kill(SIGTERM);
  EXPECT_EQ(manager.NextButWatchdog(), "STOPPING=1");
  EXPECT_EQ(server.Wait(), 0);
}

TEST_F(ServerProcessTest, AWorkerTellsItsManagerTheSame) {
  Manager manager(directory_.path() + "/notify");
  Program worker({TEMPER_WORKER, "--server", "unix:" + directory_.path() + "/nobody", "--key", "k", "--device", "null",
                  "--spool", directory_.path() + "/spool"},
                 {"NOTIFY_SOCKET=" + directory_.path() + "/notify", "WATCHDOG_USEC=150000"});
  EXPECT_EQ(manager.Next(), "READY=1");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(manager.Next(), "WATCHDOG=1");
  worker.Kill(SIGTERM);
  EXPECT_EQ(manager.NextButWatchdog(), "STOPPING=1");
  EXPECT_EQ(worker.Wait(), 0);
}

TEST_F(ServerProcessTest, AServerThatNobodyWatchesSendsNoWatchdog) {
  Manager manager(directory_.path() + "/notify");
  Program server(Command({}), {"NOTIFY_SOCKET=" + directory_.path() + "/notify"});
  EXPECT_EQ(manager.Next(), "READY=1");
  EXPECT_TRUE(manager.Quiet(200));
}

TEST_F(ServerProcessTest, ServesItsPages) {
  Program server(Command({"--http", "127.0.0.1:0"}));
  After(server.Line(), "temper-server listening on ");
  const std::string pages = After(server.Line(), "pages at http://");
  EXPECT_THAT(Get(pages, "/healthz"), EndsWith("\r\n\r\nok\n"));
  EXPECT_THAT(Get(pages, "/readyz"), EndsWith("\r\n\r\nok\n"));
  EXPECT_THAT(Get(pages, "/pending?key=laptop"), EndsWith("{\"key\":\"laptop\",\"pending\":0}\n"));
  const std::string metrics = Get(pages, "/metrics");
  EXPECT_THAT(metrics, HasSubstr("\ntemper_leases 0\n"));
  EXPECT_THAT(metrics, HasSubstr("\ntemper_workers{state=\"idle\"} 0\n"));
  server.Kill(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
}

TEST_F(ServerProcessTest, LogsLinesOfJsonWhereAsked) {
  for (const bool by_environment : {false, true}) {
    Program server(by_environment ? Command({"-v"}) : Command({"-v", "--log-format", "json"}),
                   by_environment ? std::vector<std::string>{"TEMPER_LOG_FORMAT=json"} : std::vector<std::string>{});
    After(server.Line(), "temper-server listening on ");
    server.Kill(SIGTERM);
    const nlohmann::json line = nlohmann::json::parse(server.Line(), nullptr, false);
    ASSERT_TRUE(line.is_object());
    EXPECT_EQ(line["level"], "info");
    EXPECT_THAT(line["message"].get<std::string>(), HasSubstr("shutting down"));
  }
}

TEST_F(ServerProcessTest, EndsInOrderWhenItsTerminalIsGone) {
  std::signal(SIGHUP, SIG_DFL);  // whatever started the tests
  Program server(Command({"-v"}));
  EXPECT_THAT(server.Line(), HasSubstr("listening on"));
  server.Kill(SIGHUP);
  EXPECT_EQ(server.Wait(), 0);
}

TEST_F(ServerProcessTest, WhatIsCutShortUnderItEndsItWithALineAndTheNextGoesOn) {
  const std::vector<Record> records = {SomeRecord(1)};
  {
    Program server(Command({}));
    const auto client = TunerClient::Connect(After(server.Line(), "temper-server listening on "));
    ASSERT_TRUE((*client)->PutRecords(records).ok());
    fs::resize_file(database() + "-shm", 0);
    (void)(*client)->PutRecords(std::vector<Record>{SomeRecord(2)});
    EXPECT_THAT(server.Line(), HasSubstr("cut short"));
    EXPECT_NE(server.Wait(), 0);
  }
  Program next(Command({}));
  const auto client = TunerClient::Connect(After(next.Line(), "temper-server listening on "));
  const auto ids = (*client)->PutRecords(records);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(ids->at(0), 0) << "what was acknowledged is there";
}

TEST_F(ServerProcessTest, BadOptionsAreOneLineAndAnExitCode) {
  const std::vector<std::vector<std::string>> bad = {
      {"--http", "9191"},
      {"--http", "0.0.0.0:0"},
      {"--snapshot-dir", directory_.path() + "/none"},
      {"--snapshot-every", "soon"},
      {"--snapshot-every", "0s"},
      {"--snapshot-keep", "0"},
      {"--log-format", "xml"},
      {"--dir", ""},
      {"--snapshot-dir", ""},
      {"--snapshot-every", "1h"},
      {"--http-host", "tuner"},
      {"--http", "127.0.0.1:0", "--http-host", "a b"},
      {"--http", "127.0.0.1:0", "--http-host", "tuner:9191"},
      {"--jobs-per-owner", "0"},
      {"--listen", "[::1"},
      {"--dir=", "x"},
      {"--keep-records", "9223372036854775808"},
      {"--http", "\xff"},
  };
  for (const std::vector<std::string>& options : bad) {
    Program server(Command(options));
    const std::string line = server.Line();
    EXPECT_THAT(line, StartsWith("temper-server: ")) << options[0];
    EXPECT_LT(line.size(), 200u) << options[0];
    EXPECT_EQ(server.Line(), "") << options[0];
    EXPECT_NE(server.Wait(), 0) << options[0];
  }
}

TEST_F(ServerProcessTest, ASnapshotTakenUnderLoadRestoresWhatWasAcknowledgedBeforeIt) {
  const std::string folder = directory_.path() + "/snapshots";
  fs::create_directory(folder);
  const auto snapshots = Snapshots::Open(database(), {.directory = folder}, Clock::System());
  ASSERT_TRUE(snapshots.ok());
  Program server(Command({"--snapshot-dir", folder, "--snapshot-every", "1s", "--snapshot-keep", "1000"}));
  auto client = TunerClient::Connect(After(server.Line(), "temper-server listening on "));
  ASSERT_TRUE(client.ok());
  // The first snapshot that ends from now on may have begun before; the second can not.
  int64_t acknowledged = 0, before = 0;
  size_t wanted = 0;
  while (wanted == 0 || snapshots->Files().size() < wanted) {
    const std::vector<Record> records = {SomeRecord(acknowledged), SomeRecord(acknowledged + 1)};
    ASSERT_TRUE((*client)->PutRecords(records).ok());
    acknowledged += 2;
    if (acknowledged == 20) {
      before = acknowledged;
      wanted = snapshots->Files().size() + 2;
    }
  }
  server.Kill(SIGKILL);
  server.Wait();
  ASSERT_TRUE(RestoreStore(snapshots->Files()[wanted - 1], database()).ok());

  Program restored(Command({"--http", "127.0.0.1:0"}));
  client = TunerClient::Connect(After(restored.Line(), "temper-server listening on "));
  EXPECT_THAT(Get(After(restored.Line(), "pages at http://"), "/readyz"), EndsWith("ok\n"));
  std::vector<std::string> configs;
  const auto visit = [&](const Record& record) {
    configs.push_back(record.config);
    return true;
  };
  ASSERT_TRUE((*client)->ExportRecords({}, false, visit).ok());
  ASSERT_GE(static_cast<int64_t>(configs.size()), before);
  // Whole transactions, in their order, none missing.
  EXPECT_EQ(configs.size() % 2, 0u);
  for (size_t i = 0; i < configs.size(); ++i) EXPECT_EQ(configs[i], absl::StrCat("x=", i));
  const std::vector<Record> more = {SomeRecord(1'000'000)};
  EXPECT_TRUE((*client)->PutRecords(more).ok());
}

}  // namespace
}  // namespace temper
