// The program itself: it serves, it ends when told, and it leaves nothing behind.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/temporary_directory.h"
#include "tests/worker/fake_server.h"
#include "tests/worker/wire_service.h"

namespace temper::worker {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

// A process that dies with the test.
class Process {
 public:
  // `user`: 0, or whom it becomes.
  explicit Process(std::vector<std::string> command, uid_t user = 0) {
    std::vector<char*> argv;
    for (std::string& a : command) argv.push_back(a.data());
    argv.push_back(nullptr);
    int pipes[2];
    EXPECT_EQ(pipe2(pipes, O_CLOEXEC), 0);
    const int program = open(argv[0], O_PATH | O_CLOEXEC);  // in a folder that `user` may not see
    pid_ = fork();
    if (pid_ == 0) {
      dup2(pipes[1], STDERR_FILENO);
      dup2(pipes[1], STDOUT_FILENO);
      if (user != 0 && (setgid(user) != 0 || setuid(user) != 0)) _exit(126);
      fexecve(program, argv.data(), environ);
      _exit(127);
    }
    close(program);
    close(pipes[1]);
    output_ = pipes[0];
  }
  ~Process() {
    if (!reaped_) {
      kill(pid_, SIGKILL);
      Wait();
    }
    close(output_);
  }
  pid_t pid() const { return pid_; }
  // The exit code, or minus the signal. Waits for it.
  int Wait() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    reaped_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  std::string Output() {
    std::string text;
    char buffer[4096];
    for (ssize_t got; (got = read(output_, buffer, sizeof buffer)) > 0;) text.append(buffer, got);
    return text;
  }

 private:
  pid_t pid_ = 0;
  int output_ = -1;
  bool reaped_ = false;
};

// Whether `pid` ends within 20 s; it need not be our child.
bool Ends(pid_t pid) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return errno == ESRCH;
  pollfd event{fd, POLLIN, 0};
  const int ready = poll(&event, 1, 20'000);
  close(fd);
  return ready == 1;
}

std::vector<pid_t> ChildrenOf(pid_t pid) {
  std::vector<pid_t> children;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    std::ifstream in(task.path() / "children");
    for (pid_t child; in >> child;) children.push_back(child);
  }
  return children;
}

class WorkerProcessTest : public testing::Test {
 protected:
  std::vector<std::string> Command(std::vector<std::string> more = {}) const {
    std::vector<std::string> command = {
        TEMPER_WORKER, "--server", address_, "--key", "a", "--device", "null", "--spool", folder_.path() + "/spool"};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  static v1::Lease NullLease(int64_t id, const std::vector<std::string>& configs) {
    v1::Lease lease;
    lease.set_lease(id);
    lease.mutable_batch()->mutable_plan()->set_run_timeout_ms(300'000);
    for (const std::string& config : configs) {
      v1::CandidateSpec& c = *lease.mutable_batch()->add_candidates();
      c.set_candidate(id * 10 + lease.batch().candidates_size() - 1);
      c.set_config(config);
    }
    return lease;
  }

  const TemporaryDirectory folder_ = TemporaryDirectory::Make().value();
  const std::string address_ = "unix:" + testing::TempDir() + "/temper_worker_test_" + std::to_string(getpid());
  FakeServer server_;
  WireServer wire_{server_, address_};
};

// It once died of SIGXFSZ at its first result, without a word.
TEST_F(WorkerProcessTest, WhereNoFileMayGrowItServesAndSaysThatItKeepsNothing) {
  std::vector<std::string> command = {"/bin/sh", "-c", "ulimit -f 0; exec \"$0\" \"$@\""};
  for (const std::string& word : Command()) command.push_back(word);
  Process worker(command);
  server_.Grant(NullLease(1, {"cost_ns=1000"}));
  EXPECT_TRUE(server_.Await([&](auto& s) { return s.results_.contains(10); }));
  kill(worker.pid(), SIGTERM);
  EXPECT_EQ(worker.Wait(), 0);
  EXPECT_THAT(worker.Output(), HasSubstr("File too large"));
}

TEST_F(WorkerProcessTest, ServesAndEndsWhenTold) {
  signal(SIGHUP, SIG_DFL);  // whatever started the tests
  for (int signal : {SIGTERM, SIGINT, SIGHUP}) {
    Process worker(Command());
    server_.Grant(NullLease(signal, {"cost_ns=1000", "fault=segv", "cost_ns=2000"}));
    ASSERT_TRUE(server_.Await([&](auto& s) { return s.results_.contains(signal * 10 + 2); }));
    EXPECT_EQ(server_.results_[signal * 10].outcome(), "ok");
    EXPECT_EQ(server_.results_[signal * 10 + 1].outcome(), "run_crashed");
    const std::vector<pid_t> children = ChildrenOf(worker.pid());
    EXPECT_EQ(children.size(), 1u);
    kill(worker.pid(), signal);
    EXPECT_EQ(worker.Wait(), 0) << worker.Output();
    for (pid_t child : children) EXPECT_TRUE(Ends(child));
    server_.Expire();  // the waiting call of the one that is gone
  }
  const v1::RegisterRequest& r = server_.registrations_.front();
  EXPECT_EQ(r.device_key(), "a");
  EXPECT_THAT(r.target(), HasSubstr("llvm"));
  EXPECT_FALSE(r.codegen_id().empty());
  EXPECT_EQ(r.slots(), 2);
  EXPECT_THAT(r.sandbox(), ContainsRegex("^(basic|isolated|full): filter, limits"));
  EXPECT_GE(r.threads(), 1);
}

TEST_F(WorkerProcessTest, ServesSeveralDevicesSideBySide) {
  Process worker({TEMPER_WORKER, "--server", address_, "--key", "a", "--device", "null", "--key", "b", "--device",
                  "null:0", "--spool", folder_.path() + "/spool"});
  // The second to register knows its session once it syncs.
  ASSERT_TRUE(server_.Await([](auto& s) {
    return s.registrations_.size() == 2 &&
           std::ranges::any_of(s.syncs_, [](const v1::SyncRequest& sync) { return sync.session() == "s2"; });
  }));
  EXPECT_NE(server_.registrations_[0].device_key(), server_.registrations_[1].device_key());
  EXPECT_NE(server_.registrations_[0].instance(), server_.registrations_[1].instance());
  for (const v1::RegisterRequest& r : server_.registrations_) {
    if (r.device_key() == "b") {
      EXPECT_EQ(r.threads(), 1) << "of its own core";
    }
  }
  kill(worker.pid(), SIGTERM);
  EXPECT_EQ(worker.Wait(), 0);
  // This server knows one session at a time: who is about to register again has none to leave.
  std::string reason;
  server_.Await([&](auto& s) {
    if (!s.farewells_.empty()) reason = s.farewells_[0].reason();
    return true;
  });
  EXPECT_EQ(reason, "the worker was told to by SIGTERM");
}

TEST_F(WorkerProcessTest, EndsInTheMiddleOfAHangAndLeavesNoChild) {
  Process worker(Command({"--shares-server-cores"}));
  server_.Grant(NullLease(1, {"cost_ns=1"}));
  ASSERT_TRUE(server_.Await([](auto& s) { return s.results_.contains(10); }));
  EXPECT_EQ(server_.registrations_.front().slots(), 1);
  // The child that measured the first lease is there for the second one, which hangs.
  const std::vector<pid_t> children = ChildrenOf(worker.pid());
  ASSERT_EQ(children.size(), 1u);
  server_.Grant(NullLease(2, {"fault=hang"}));
  ASSERT_TRUE(server_.Await([](auto& s) {
    return std::ranges::any_of(
        s.syncs_, [](const v1::SyncRequest& sync) { return sync.leases_size() == 1 && sync.leases(0) == 2; });
  }));
  EXPECT_EQ(ChildrenOf(worker.pid()), children);
  kill(worker.pid(), SIGTERM);
  EXPECT_EQ(worker.Wait(), 0);
  EXPECT_TRUE(Ends(children[0]));
  EXPECT_FALSE(server_.results_.contains(20)) << "it never ended";
}

TEST_F(WorkerProcessTest, ItsChildDiesWithItEvenWhenItIsKilled) {
  Process worker(Command());
  server_.Grant(NullLease(1, {"cost_ns=1"}));
  ASSERT_TRUE(server_.Await([](auto& s) { return s.results_.size() == 1; }));
  const std::vector<pid_t> children = ChildrenOf(worker.pid());
  ASSERT_EQ(children.size(), 1u);
  kill(worker.pid(), SIGKILL);
  worker.Wait();
  EXPECT_TRUE(Ends(children[0]));
}

// Folders for temporary files of children, by name.
std::set<std::string> ScratchIn(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (const std::string name = entry.path().filename(); name.starts_with("temper-scratch-")) names.insert(name);
  }
  return names;
}

TEST_F(WorkerProcessTest, WhatAKilledWorkerLeftIsTakenAwayByTheNext) {
  const TemporaryDirectory folder = TemporaryDirectory::Make().value();
  std::vector<std::string> command = Command();
  command.insert(command.begin(), {"/usr/bin/env", "TMPDIR=" + folder.path()});
  std::set<std::string> left;
  {
    Process worker(command);
    server_.Grant(NullLease(1, {"cost_ns=1"}));
    ASSERT_TRUE(server_.Await([](auto& s) { return s.results_.size() == 1; }));
    left = ScratchIn(folder.path());
    EXPECT_EQ(left.size(), 1u);
    const std::vector<pid_t> children = ChildrenOf(worker.pid());
    kill(worker.pid(), SIGKILL);
    worker.Wait();
    for (pid_t child : children) EXPECT_TRUE(Ends(child));
    EXPECT_EQ(ScratchIn(folder.path()), left);
  }
  server_.Expire();  // the waiting call of the one that is gone
  {
    Process next(command);
    server_.Grant(NullLease(2, {"cost_ns=1"}));
    ASSERT_TRUE(server_.Await([](auto& s) { return s.results_.size() == 2; }));
    const std::set<std::string> now = ScratchIn(folder.path());
    EXPECT_EQ(now.size(), 1u);
    EXPECT_NE(now, left);
    kill(next.pid(), SIGTERM);
    EXPECT_EQ(next.Wait(), 0);
  }
  EXPECT_TRUE(ScratchIn(folder.path()).empty());
}

TEST_F(WorkerProcessTest, DoesNotStartWhereItsSandboxWouldBeLessThanRequired) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes a plain user, who has no control groups";
  constexpr uid_t kNobody = 65534;
  Process worker(Command({"--require-sandbox", "full"}), kNobody);
  const std::string output = worker.Output();
  EXPECT_THAT(output, HasSubstr("temper-worker: --require-sandbox full can not be had here, only "));
  EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 1) << output;
  EXPECT_EQ(worker.Wait(), 1);
}

TEST_F(WorkerProcessTest, WatchesItsParent) {
  // A shell that ends while its worker still runs.
  std::string line;
  for (const std::string& part : Command({"--parent-watch"})) line += part + " ";
  Process shell({"/bin/sh", "-c", line + "& wait"});
  ASSERT_TRUE(server_.Await([](auto& s) { return s.registrations_.size() == 1; }));
  const std::vector<pid_t> children = ChildrenOf(shell.pid());
  ASSERT_FALSE(children.empty());
  kill(shell.pid(), SIGKILL);
  shell.Wait();
  EXPECT_TRUE(Ends(children[0]));
}

TEST_F(WorkerProcessTest, SaysInOneLineWhatIsWrong) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{TEMPER_WORKER}, "give --server HOST:PORT"},
      {{TEMPER_WORKER, "--server", address_}, "give --key NAME"},
      {{TEMPER_WORKER, "--server", address_, "--key", "a", "--device", "tpu"}, "no kind of device 'tpu'"},
      {{TEMPER_WORKER, "--server", address_, "--key", "a", "--device", "cpu:5000"}, "no core"},
      {{TEMPER_WORKER, "--server", address_, "--key", "a", "--device", "cpu:1000"}, "cannot use cores 1000"},
      {{TEMPER_WORKER, "--server", address_, "--key", "a", "--require-sandbox", "total"}, "no sandbox tier 'total'"},
      {{TEMPER_WORKER, "--server", address_, "--key", "a", "--device", "null", "--device", "null"},
       "give a --key for each --device"},
      {{TEMPER_WORKER, "--nonsense"}, "nonsense"},
  };
  for (const auto& [command, message] : cases) {
    Process worker(command);
    EXPECT_THAT(worker.Output(), HasSubstr(message));
    EXPECT_EQ(worker.Wait(), 2) << message;
  }
  Process help({TEMPER_WORKER, "--help"});
  EXPECT_THAT(help.Output(), HasSubstr("Example:\n  temper-worker --server"));
  EXPECT_EQ(help.Wait(), 0);
}

}  // namespace
}  // namespace temper::worker
