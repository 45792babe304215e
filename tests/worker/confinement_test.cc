// A measuring child that means harm: what it takes is limited, what it claims is checked, and it gets nowhere. The
// tests run under each tier that this machine offers.
#include "measure_worker/sandbox/confinement.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/temporary_directory.h"
#include "measure_worker/sandbox/messages.h"
#include "measure_worker/sandbox/process.h"
#include "measure_worker/sandbox/sandbox.h"

namespace temper::worker {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const Confinement& Offered() {
  static const Confinement offered = ProbeConfinement().value();
  return offered;
}

struct Way {
  const char* name;
  Confinement (*confinement)();
};
// By what each relies on: with less, the same promises are kept by other means.
const Way kWays[] = {
    {"Offered", [] { return Offered(); }},
    {"WithoutCgroup",
     [] {
       Confinement c = Offered();
       c.cgroup.reset();
       return c;
     }},
    {"WithoutNamespaces",
     [] {
       Confinement c = Offered();
       c.namespaces = c.user_namespace = false;
       return c;
     }},
    {"Basic", [] { return Confinement{}; }},
};

std::vector<pid_t> OfSession(pid_t session) {
  std::vector<pid_t> pids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid > 0 && getsid(pid) == session) pids.push_back(pid);
  }
  return pids;
}

class ConfinementTest : public testing::TestWithParam<Way> {
 protected:
  static SandboxLimits Limits() {
    SandboxLimits limits;
    limits.simulated = true;
    return limits;
  }
  Sandbox Make(const SandboxLimits& limits = Limits()) {
    return Sandbox({TEMPER_NULL_CHILD}, GetParam().confinement(), limits);
  }

  static BatchWork Work(const std::vector<std::string>& configs, int64_t cap_ms = 20'000) {
    BatchWork work;
    work.plan.race_factor = 0;
    work.plan.run_timeout_ms = work.plan.build_timeout_ms = cap_ms;
    for (const std::string& config : configs) work.candidates.push_back({.config = config});
    return work;
  }
  static std::vector<TrialResult> Run(Sandbox& sandbox, const BatchWork& work) {
    std::vector<TrialResult> results(work.candidates.size());
    const absl::Status status =
        sandbox.Run(work, CancelToken(), [&](int index, TrialResult result) { results[index] = std::move(result); });
    EXPECT_TRUE(status.ok()) << status;
    return results;
  }
  static std::string Line(const TrialResult& result) {
    return absl::StrCat(std::string(Text(result.outcome)), ": ", result.error);
  }
  // What became of the first; the second is honest, and has to succeed.
  std::string Misbehaving(const std::string& config, const SandboxLimits& limits = Limits(), int64_t cap_ms = 20'000) {
    Sandbox sandbox = Make(limits);
    const auto results = Run(sandbox, Work({config, "cost_ns=5"}, cap_ms));
    EXPECT_EQ(results[1].outcome, Outcome::kOk) << results[1].error;
    return Line(results[0]);
  }
};
INSTANTIATE_TEST_SUITE_P(All, ConfinementTest, testing::ValuesIn(kWays),
                         [](const auto& way) { return std::string(way.param.name); });

TEST_P(ConfinementTest, Row12ACrashCostsOnlyTheCandidate) {
  EXPECT_THAT(Misbehaving("fault=segv"), StartsWith("run_crashed: killed by SIGSEGV"));
  EXPECT_THAT(Misbehaving("fault=abort"), StartsWith("run_crashed: killed by SIGABRT"));
}

TEST_P(ConfinementTest, Row13AHangThatIgnoresSigtermEndsAtItsCap) {
  EXPECT_THAT(Misbehaving("fault=hang", Limits(), 200), StartsWith("run_timeout: still verifying after 200 ms"));
}

TEST_P(ConfinementTest, Row14AForkBombIsCappedAndDiesWithItsGroup) {
  SandboxLimits limits = Limits();
  limits.child.processes = 40;
  Sandbox sandbox = Make(limits);
  Run(sandbox, Work({"cost_ns=5"}));
  const pid_t session = sandbox.child_pid();
  const auto results = Run(sandbox, Work({"fault=forks"}, 500));
  EXPECT_EQ(results[0].outcome, Outcome::kRunTimeout);
  int started = -1;
  const size_t at = results[0].error.find("started ");
  ASSERT_NE(at, std::string::npos) << results[0].error;
  started = std::atoi(results[0].error.c_str() + at + 8);
  EXPECT_LE(started, 40);
  if (GetParam().confinement().CountsProcesses()) {
    EXPECT_GT(started, 10) << "it was to start some";
  }
  EXPECT_THAT(OfSession(session), testing::IsEmpty());
  EXPECT_EQ(Run(sandbox, Work({"cost_ns=5"}))[0].outcome, Outcome::kOk);
}

TEST_P(ConfinementTest, ItsProgramMayLieInAFolderThatOnlyItsStarterSees) {
  const auto folder = TemporaryDirectory::Make();
  ASSERT_TRUE(folder.ok()) << folder.status();
  const std::string program = folder->path() + "/child";
  std::filesystem::copy(TEMPER_NULL_CHILD, program);
  ASSERT_EQ(chmod(folder->path().c_str(), 0700), 0);
  Sandbox sandbox({program}, GetParam().confinement(), Limits());
  EXPECT_EQ(Run(sandbox, Work({"cost_ns=5"}))[0].outcome, Outcome::kOk);
}

TEST_P(ConfinementTest, Row15AMemoryBombKillsOnlyTheChild) {
  const bool has_group = GetParam().confinement().cgroup.has_value();
  if (!has_group && !MayLimitMappings()) GTEST_SKIP() << "nothing limits its memory under a sanitizer";
  SandboxLimits limits = Limits();
  limits.child.memory_bytes = 256 << 20;
  const std::string line = Misbehaving("fault=memory", limits);
  EXPECT_THAT(line, StartsWith("run_crashed: killed by SIG"));
  if (has_group) {
    EXPECT_THAT(line, HasSubstr("for taking more than 256 MiB of memory"));
  } else {
    EXPECT_THAT(line, HasSubstr("no more than 2"));
  }
}

TEST_P(ConfinementTest, AWorkloadThatTakesTooMuchMemoryDoesNotFitThisDevice) {
  const bool has_group = GetParam().confinement().cgroup.has_value();
  if (!has_group && !MayLimitMappings()) GTEST_SKIP() << "nothing limits its memory under a sanitizer";
  SandboxLimits limits = Limits();
  limits.child.memory_bytes = 128 << 20;
  Sandbox sandbox = Make(limits);
  BatchWork work = Work({"cost_ns=1", "cost_ns=2"});
  work.workload = "fault=memory";
  // Without a group nobody tells why it died.
  for (const TrialResult& result : Run(sandbox, work))
    EXPECT_EQ(result.outcome, has_group ? Outcome::kUnfit : Outcome::kInfrastructure) << result.error;
  FinalsWork finals;
  finals.model.target = "build_fault=memory";
  finals.tasks.push_back({"w", {{.config = "cost_ns=5"}}});
  const CancelToken token;
  ASSERT_TRUE(sandbox
                  .Run(finals, token,
                       [&](int, const TrialResult& r) {
                         EXPECT_EQ(r.outcome, has_group ? Outcome::kUnfit : Outcome::kInfrastructure) << r.error;
                       })
                  .ok());
}

TEST_P(ConfinementTest, Row16ALogWithoutEndIsCutAndStopsNothing) {
  const std::string line = Misbehaving("fault=log", Limits(), 300);
  EXPECT_THAT(line, StartsWith("run_timeout: still verifying"));
  EXPECT_THAT(line, HasSubstr("a line that is written without end"));
  EXPECT_LE(line.size(), 1100u);
}

TEST_P(ConfinementTest, Row16ADiskBombIsStoppedAtItsQuota) {
  SandboxLimits limits = Limits();
  limits.child.scratch_bytes = 16 << 20;
  const std::string line = Misbehaving("fault=disk", limits);
  if (GetParam().confinement().namespaces) {
    EXPECT_THAT(line, HasSubstr("no more than 16 MiB"));
  } else {
    EXPECT_THAT(line, HasSubstr("wrote more than 16 MiB of temporary files"));
  }
}

TEST_P(ConfinementTest, Row17ItReachesNoNetwork) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 8), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  Sandbox sandbox = Make();
  const std::string config = absl::StrCat("escape=connect,port=", ntohs(address.sin_port));
  EXPECT_THAT(Line(Run(sandbox, Work({config}))[0]), "ok: ");
  // Who is not confined can.
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(connect(client, reinterpret_cast<sockaddr*>(&address), size), 0);
  close(client);
  close(listener);
}

// A socket at `path` that anybody may reach.
int Reachable(const std::string& path, int kind) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int fd = socket(AF_UNIX, kind | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(chmod(path.c_str(), 0777), 0);
  return fd;
}

// So NVIDIA's driver does, which does not start otherwise.
TEST_P(ConfinementTest, Row17ItMayAskWhoListensAndNobodyDoes) {
  const TemporaryDirectory folder = TemporaryDirectory::Make().value();
  ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
  const std::string daemon = folder.path() + "/daemon", log = folder.path() + "/log";
  const int connections = Reachable(daemon, SOCK_SEQPACKET), messages = Reachable(log, SOCK_DGRAM);
  ASSERT_EQ(listen(connections, 8), 0);
  Sandbox sandbox = Make();
  for (const std::string& path : {daemon, log})
    EXPECT_THAT(Line(Run(sandbox, Work({absl::StrCat("escape=ask,path=", path)}))[0]), "ok: ");
  EXPECT_EQ(accept(connections, nullptr, nullptr), -1);
  char heard;
  EXPECT_EQ(recv(messages, &heard, 1, 0), -1) << "a message came";
  close(connections);
  close(messages);
}

TEST_P(ConfinementTest, Row17ItReadsNoSecretsAndWritesNowhere) {
  const Confinement confinement = GetParam().confinement();
  const std::string folder = testing::TempDir() + "/temper_escape_" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  const std::string token = folder + "/token";
  std::ofstream(token) << "secret";
  chmod(token.c_str(), 0600);
  Sandbox sandbox = Make();
  std::vector<std::string> configs{absl::StrCat("escape=peek,pid=", getpid()), "escape=mode,path=" + token};
  if (confinement.files || confinement.own_uid) {
    for (const std::string& path : {token, std::string("/proc/sys/kernel/core_pattern")})
      for (const char* how : {"read", "write"}) configs.push_back(absl::StrCat("escape=", how, ",path=", path));
    configs.erase(configs.begin() + 4);  // anybody may read the second
  }
  for (const TrialResult& result : Run(sandbox, Work(configs))) EXPECT_EQ(Line(result), "ok: ");
  if (confinement.files) {
    chmod(token.c_str(), 0644);
    chmod(folder.c_str(), 0777);
    EXPECT_EQ(Line(Run(sandbox, Work({"escape=read,path=" + token}))[0]), "ok: ") << "also what anybody may read";
    EXPECT_EQ(Line(Run(sandbox, Work({"escape=write,path=" + folder + "/new"}))[0]), "ok: ");
  }
  std::filesystem::remove_all(folder);
}

TEST_P(ConfinementTest, Row17ItNeitherTracesNorKillsItsParent) {
  Sandbox sandbox = Make();
  Run(sandbox, Work({"cost_ns=5"}));
  std::vector<std::string> configs;
  for (const pid_t pid : {getpid(), sandbox.child_pid()}) {
    for (const char* how : {"ptrace", "kill", "own"}) configs.push_back(absl::StrCat("escape=", how, ",pid=", pid));
  }
  for (const TrialResult& result : Run(sandbox, Work(configs))) EXPECT_EQ(Line(result), "ok: ");
}

std::string Ending(const char* script, const Confinement& confinement, const ChildLimits& limits = {}) {
  const auto child = ChildProcess::Start({"/bin/sh", "-c", script}, confinement, limits);
  return child.ok() ? (*child)->End(20'000) : std::string(child.status().message());
}
constexpr char kDone[] = "exited with code 0";

// As NVIDIA's driver gives them, which does not start otherwise.
TEST_P(ConfinementTest, ItsThreadsMayHaveNamesWhereADriverGivesThem) {
  const Confinement confinement = GetParam().confinement();
  const char kNames[] = "echo named > /proc/self/task/$$/comm";
  const ChildLimits driver{.driver_files = {"/nowhere", "/proc/self/task"}};
  EXPECT_EQ(Ending(kNames, confinement, driver), kDone);
  if (!confinement.files) return;
  EXPECT_NE(Ending(kNames, confinement), kDone) << "nobody else writes there";
  EXPECT_EQ(Ending("for f in /proc/$$/fd/*; do [ $f -ef /proc/$$/task ] && exit 0; done; exit 1", confinement, driver),
            kDone)
      << "the kernel may forget the folder, and make another that no rule knows";
}

TEST_P(ConfinementTest, ItInheritsNoSecretsInItsEnvironment) {
  setenv("TEMPER_TEST_TOKEN", "secret", 1);
  auto child =
      ChildProcess::Start({"/bin/sh", "-c", "echo =$TEMPER_TEST_TOKEN=$HOME=$PATH= >&2"}, GetParam().confinement());
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_EQ((*child)->End(10'000), "exited with code 0");
  char text[4096];
  const ssize_t got = read((*child)->stderr_pipe(), text, sizeof text);
  ASSERT_GT(got, 0);
  EXPECT_EQ(std::string(text, static_cast<size_t>(got)), absl::StrCat("===", getenv("PATH"), "=\n"));
}

// --- row 18: results that the child makes up ---

std::string Saying(const char* when, const Frame& frame) {
  return absl::StrCat("fault=", when, "say,bytes=", absl::BytesToHexString(EncodeFrame(frame)));
}

TEST_P(ConfinementTest, Row18AResultThatTheChildMakesUpIsRefused) {
  SandboxLimits limits = Limits();
  limits.simulated = false;
  const TrialResult good{Outcome::kOk, "", {1e-6}};
  struct Case {
    std::string config, refused;
  };
  const Case cases[] = {
      {Saying("build_", Encode(Trial{0, good})), "a time of what was never run"},
      {Saying("", Encode(Trial{0, good})), "a time of what was never run"},  // while it is verified
      {Saying("time_", Encode(Trial{0, {Outcome::kOk, "", {1e3}}})), "samples of 1000 s in "},
      {Saying("time_", Encode(Trial{0, {Outcome::kOk, "", std::vector<double>(100, 1e-9)}})), "100 samples"},
      {Saying("time_", Encode(Trial{0, {Outcome::kOk, "", {-1}}})), "a time that is none"},
      {Saying("time_", Encode(Trial{0, {Outcome::kOk, "", {std::numeric_limits<double>::quiet_NaN()}}})),
       "a time that is none"},
      {Saying("time_", Encode(Trial{0, {Outcome::kOk, "", {1e-6}, 0, 0, 0.5}})), "a drift that is none"},
      {Saying("time_", Encode(Trial{1, good})), "a time of what was never run"},  // another's
      {Saying("time_", Encode(Trial{0, {Outcome::kQuarantined}})), "an outcome that it can not know"},
      {Saying("time_", Encode(ModelResult{Outcome::kOk, "", {1}, {1}})), "a model's result where"},
  };
  for (const Case& c : cases) {
    Sandbox sandbox = Make(limits);
    const auto results = Run(sandbox, Work({c.config + ",cost_ns=1000,real=1", "cost_ns=1000,real=1"}));
    EXPECT_THAT(Line(results[0]), AnyOf(StartsWith("run_crashed: "), StartsWith("build_failed: "))) << c.config;
    EXPECT_THAT(results[0].error, HasSubstr(c.refused));
    EXPECT_TRUE(results[0].costs_s.empty());
    EXPECT_EQ(results[1].outcome, Outcome::kOk) << results[1].error;
    EXPECT_EQ(sandbox.children_started(), 2) << "a liar is replaced";
  }
}

TEST_P(ConfinementTest, Row18AMessageThatBelongsToAnotherOrderIsRefusedAndEndsNoSupervisor) {
  const Frame frames[] = {Encode(ModelResult{Outcome::kOk, "", {1}, {1}}),
                          Encode(BatchOrder{}),
                          EncodeBuilt(0),
                          Encode(Begin{Phase::kTime, 0}),
                          {77, ""}};
  for (const Frame& frame : frames) {
    Sandbox sandbox = Make();
    FinalsWork finals;
    finals.model.target = "run_" + Saying("", frame);
    finals.tasks.push_back({"w", {{.config = "cost_ns=5"}}});
    std::vector<TrialResult> results;
    const CancelToken token;
    ASSERT_TRUE(sandbox.Run(finals, token, [&](int, TrialResult r) { results.push_back(std::move(r)); }).ok());
    ASSERT_EQ(results.size(), 1u);
    EXPECT_EQ(results[0].outcome, Outcome::kInfrastructure) << static_cast<int>(frame.kind);
    EXPECT_EQ(Run(sandbox, Work({"cost_ns=5"}))[0].outcome, Outcome::kOk);
  }
  Sandbox sandbox = Make();
  ModelWork model;
  model.target = "run_" + Saying("", Encode(Trial{0, {Outcome::kOk, "", {1e-6}}}));
  const auto result = sandbox.Run(model, CancelToken());
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->outcome, Outcome::kRunCrashed);
}

// --- tiers ---

TEST(SandboxTier, IsWhatItsPartsMakeAndSaysSo) {
  const bool root = geteuid() == 0;
  Confinement c;
  EXPECT_EQ(Text(c), "basic: filter, limits");
  c.files = true;
  EXPECT_EQ(TierOf(c), root ? SandboxTier::kBasic : SandboxTier::kIsolated) << "root reads what others hide";
  c.own_uid = true;
  EXPECT_EQ(Text(c), "isolated: filter, limits, files, uid");
  c.namespaces = true;
  EXPECT_EQ(TierOf(c), SandboxTier::kIsolated);
  c.cgroup = CgroupHome{true, "/sys/fs/cgroup/a", "/sys/fs/cgroup/a"};
  EXPECT_EQ(Text(c), "full: filter, limits, files, uid, namespaces, cgroup v2");
  for (const char* name : {"basic", "isolated", "full"}) EXPECT_EQ(Text(ParseSandboxTier(name).value()), name);
  EXPECT_THAT(std::string(ParseSandboxTier("total").status().message()), HasSubstr("there are: basic, isolated, full"));
}

TEST(SandboxTier, RootOfARealMachineGetsItWhole) {
  if (geteuid() != 0) GTEST_SKIP() << "not root";
  EXPECT_TRUE(Offered().files) << Text(Offered());
  EXPECT_TRUE(Offered().own_uid) << Text(Offered());
  if (!Offered().namespaces) GTEST_SKIP() << "this container may make no namespaces: " << Text(Offered());
  if (!Offered().cgroup.has_value()) GTEST_SKIP() << "no control group is ours here: " << Text(Offered());
  EXPECT_EQ(TierOf(Offered()), SandboxTier::kFull);
}

// Runs `test` as nobody, in a process of its own; returns its exit code.
template <typename F>
int AsNobody(F test) {
  const pid_t pid = fork();
  if (pid == 0) {
    constexpr uid_t kNobody = 65534;
    const bool changed = setgid(kNobody) == 0 && setuid(kNobody) == 0;
    _exit(changed ? test() : 100);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 200;
}

TEST(SandboxTier, APlainUserIsIsolatedTooAndItsOwnFilesAreHidden) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes a plain user";
  const std::string token = testing::TempDir() + "/temper_plain_token_" + std::to_string(getpid());
  // Where that user sees it: the build may lie in a private folder.
  const auto folder = TemporaryDirectory::Make();
  ASSERT_TRUE(folder.ok()) << folder.status();
  ASSERT_EQ(chmod(folder->path().c_str(), 0755), 0);
  const std::string program = folder->path() + "/child";
  std::filesystem::copy(TEMPER_NULL_CHILD, program);
  EXPECT_EQ(AsNobody([&] {
              std::ofstream(token) << "secret";
              const auto confinement = ProbeConfinement();
              if (!confinement.ok()) return 1;
              if (TierOf(*confinement) < SandboxTier::kIsolated) return 2;
              SandboxLimits limits;
              limits.simulated = true;
              Sandbox sandbox({program}, *confinement, limits);
              BatchWork work;
              for (const std::string& config :
                   {std::string("cost_ns=5"), "escape=read,path=" + token, absl::StrCat("escape=kill,pid=", getpid()),
                    absl::StrCat("escape=ptrace,pid=", getpid()), absl::StrCat("escape=peek,pid=", getpid())})
                work.candidates.push_back({.config = config});
              int ok = 0;
              const absl::Status ran =
                  sandbox.Run(work, CancelToken(), [&](int, const TrialResult& r) { ok += IsMeasured(r.outcome); });
              if (!ran.ok()) return 3;
              return ok == 5 ? 0 : 10 + ok;
            }),
            0);
  std::filesystem::remove(token);
}

TEST(SandboxTier, APlainUsersChildStaysTheFirstToGoWhenMemoryRunsOut) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes a plain user";
  if (!Offered().files) GTEST_SKIP() << "nothing hides files here";
  EXPECT_EQ(AsNobody([] {
              const Confinement files{.files = true};
              const bool is = Ending("read a < /proc/self/oom_score_adj && [ $a = 1000 ]", files) == kDone;
              return is && Ending("echo 999 > /proc/self/task/$$/oom_score_adj", files) != kDone ? 0 : 1;
            }),
            0);
}

TEST(Scratch, IsSweptOnceItsWorkerIsDead) {
  auto held = Scratch::Make(geteuid());
  ASSERT_TRUE(held.ok());
  // As a worker that is killed leaves it: nobody locks it, and it has what may not be entered.
  std::string left;
  {
    auto made = Scratch::Make(geteuid());
    ASSERT_TRUE(made.ok());
    left = made->path();
  }
  std::filesystem::create_directories(left + "/a/b");
  std::ofstream(left + "/a/b/file") << "x";
  chmod((left + "/a").c_str(), 0);
  EXPECT_GE(SweepScratch(), 1);
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_TRUE(std::filesystem::exists(held->path())) << "one that is held";
}

TEST(ControlGroups, AreFoundFromWhatTheKernelTells) {
  const std::string root = testing::TempDir() + "/temper_cgroup_" + std::to_string(getpid());
  const std::string own = root + "/unified/a/worker";
  std::filesystem::create_directories(own);
  std::ofstream(own + "/cgroup.controllers") << "cpu memory pids\n";
  std::ofstream(own + "/cgroup.subtree_control") << "memory pids\n";
  std::ofstream(root + "/cgroup") << "4:memory:/old\n0::/docker/x/a/worker\n";
  std::ofstream(root + "/mountinfo") << "30 23 0:26 / /old rw - cgroup cgroup rw,memory\n"
                                     << "31 23 0:27 /docker/x " << root << "/unified rw,nosuid - cgroup2 cgroup2 rw\n";
  auto home = FindCgroupHome(root);
  ASSERT_TRUE(home.ok()) << home.status();
  EXPECT_TRUE(home->v2);
  EXPECT_EQ(home->memory, own);
  // A second version without the controllers: the first one counts.
  std::ofstream(own + "/cgroup.controllers") << "hugetlb\n";
  home = FindCgroupHome(root);
  ASSERT_TRUE(home.ok()) << home.status();
  EXPECT_FALSE(home->v2);
  EXPECT_EQ(home->memory, "/old/old");
  EXPECT_EQ(home->pids, "");
  std::ofstream(root + "/mountinfo") << "";
  EXPECT_TRUE(absl::IsUnavailable(FindCgroupHome(root).status()));
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace temper::worker
