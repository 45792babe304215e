// The sandbox against children that crash, hang, lie and die.
#include "measure_worker/sandbox/sandbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/temporary_directory.h"
#include "measure_worker/sandbox/process.h"

namespace temper::worker {
namespace {

using testing::AllOf;
using testing::DoubleNear;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::SizeIs;

constexpr int64_t kCapMs = 200;

// What it says until it has said a line.
std::string FirstLine(int fd) {
  std::string line;
  for (char c = 0; c != '\n';) {
    pollfd event{fd, POLLIN, 0};
    if (poll(&event, 1, 10000) != 1 || read(fd, &c, 1) != 1) return "";
    if (c != '\n') line += c;
  }
  return line;
}

TEST(ChildProcess, WhatItLeftInItsTemporaryFolderGoesWithIt) {
  auto child = ChildProcess::Start({"/bin/sh", "-c", ": > $TMPDIR/left; echo $TMPDIR >&2; exec sleep 1000"}, {});
  ASSERT_TRUE(child.ok()) << child.status();
  const std::filesystem::path scratch = FirstLine((*child)->stderr_pipe());
  EXPECT_TRUE(std::filesystem::exists(scratch / "left"));
  EXPECT_EQ((*child)->End(), "killed by SIGKILL");
  EXPECT_FALSE(std::filesystem::exists(scratch));
}

class SandboxTest : public testing::Test {
 protected:
  static Sandbox Make(SandboxLimits limits = {}) {
    static const absl::StatusOr<Confinement> all = ProbeConfinement();
    EXPECT_TRUE(all.ok()) << all.status();
    limits.simulated = true;
    return Sandbox({TEMPER_NULL_CHILD}, all.value_or(Confinement{}), limits);
  }

  static BatchWork Work(const std::vector<std::string>& configs) {
    BatchWork work;
    work.workload = "anything";
    work.plan.race_factor = 0;
    for (const std::string& config : configs) {
      Candidate c;
      c.id = static_cast<int64_t>(work.candidates.size()) + 100;
      c.config = config;
      work.candidates.push_back(c);
    }
    return work;
  }

  // The results by position; fails if one is told twice.
  static std::vector<TrialResult> Run(Sandbox& sandbox, const BatchWork& work) {
    std::map<int, TrialResult> results;
    const absl::Status status = sandbox.Run(work, CancelToken(), [&](int index, TrialResult result) {
      EXPECT_TRUE(results.emplace(index, std::move(result)).second) << "told twice: " << index;
    });
    EXPECT_TRUE(status.ok()) << status;
    std::vector<TrialResult> list;
    for (size_t i = 0; i < work.candidates.size(); ++i) list.push_back(results[static_cast<int>(i)]);
    return list;
  }

  static std::vector<std::string> Outcomes(const std::vector<TrialResult>& results) {
    std::vector<std::string> outcomes;
    for (const TrialResult& r : results) outcomes.emplace_back(Text(r.outcome));
    return outcomes;
  }
};

TEST_F(SandboxTest, MeasuresGoodCandidatesInOneChild) {
  Sandbox sandbox = Make();
  for (int batch = 0; batch < 3; ++batch) {
    const auto results = Run(sandbox, Work({"cost_ns=1000", "cost_ns=2000", "cost_ns=3000"}));
    EXPECT_THAT(Outcomes(results), Each("ok"));
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(results[i].costs_s.size(), 3u);
      EXPECT_THAT(results[i].costs_s, Each(testing::DoubleNear(1e-6 * (i + 1), 1e-9)));
    }
  }
  EXPECT_EQ(sandbox.children_started(), 1);
}

TEST_F(SandboxTest, SaysWhatBecameOfEachCandidateAndGoesOn) {
  Sandbox sandbox = Make();
  const auto results =
      Run(sandbox, Work({"fault=illegal", "cost_ns=10", "fault=build", "fault=wrong", "fault=segv", "cost_ns=20",
                         "fault=abort", "fault=exit", "fault=time_segv", "fault=scribble", "cost_ns=30"}));
  EXPECT_THAT(Outcomes(results), ElementsAre("illegal_config", "ok", "build_failed", "wrong_answer", "run_crashed",
                                             "ok", "run_crashed", "run_crashed", "run_crashed", "wrong_answer", "ok"));
  EXPECT_THAT(results[0].error, HasSubstr("32 registers"));
  EXPECT_THAT(results[4].error, HasSubstr("killed by SIGSEGV while verifying"));
  EXPECT_THAT(results[6].error, HasSubstr("free(): invalid pointer"));
  EXPECT_THAT(results[7].error, HasSubstr("exited with code 3"));
  EXPECT_THAT(results[8].error, HasSubstr("while timing"));
  EXPECT_TRUE(results[9].costs_s.empty());
  EXPECT_EQ(sandbox.children_started(), 5) << "one for each crash, and the first";
}

TEST_F(SandboxTest, KillsCandidatesThatHangAtTheirCap) {
  Sandbox sandbox = Make();
  BatchWork work = Work({"fault=hang", "fault=time_hang", "fault=build_hang", "cost_ns=5"});
  work.plan.build_timeout_ms = work.plan.run_timeout_ms = kCapMs;
  const auto results = Run(sandbox, work);
  EXPECT_THAT(Outcomes(results), ElementsAre("run_timeout", "run_timeout", "build_timeout", "ok"));
  EXPECT_THAT(results[0].error, HasSubstr("still verifying after 200 ms"));
  EXPECT_THAT(results[2].error, HasSubstr("still building after 200 ms"));
}

TEST_F(SandboxTest, FindsWhichOfTheBuildsCrashed) {
  Sandbox sandbox = Make();
  const auto results =
      Run(sandbox, Work({"cost_ns=1", "fault=build_segv", "cost_ns=2", "fault=build_abort", "cost_ns=3", "cost_ns=4"}));
  EXPECT_THAT(Outcomes(results), ElementsAre("ok", "build_failed", "ok", "build_failed", "ok", "ok"));
  EXPECT_THAT(results[1].error, HasSubstr("SIGSEGV while building"));
}

TEST_F(SandboxTest, DoesNotBelieveGarbage) {
  Sandbox sandbox = Make();
  const auto results = Run(sandbox, Work({"fault=garbage", "cost_ns=5"}));
  EXPECT_THAT(Outcomes(results), ElementsAre("run_crashed", "ok"));
  EXPECT_THAT(results[0].error, HasSubstr("not one of ours"));
}

TEST_F(SandboxTest, ReadsButDoesNotKeepAllThatACandidatePrints) {
  Sandbox sandbox = Make();
  const auto results = Run(sandbox, Work({"fault=chatter", "cost_ns=5"}));
  EXPECT_THAT(Outcomes(results), ElementsAre("run_crashed", "ok"));
  EXPECT_THAT(results[0].error, HasSubstr("line 0 of a great many"));
  EXPECT_LE(results[0].error.size(), 1024u);
}

TEST_F(SandboxTest, RacesAgainstTheIncumbent) {
  Sandbox sandbox = Make();
  BatchWork work = Work({"cost_ns=1000000", "cost_ns=1400000", "cost_ns=1050000"});
  work.incumbent_s = 1e-3;
  work.plan.race_factor = 1.3;
  const auto results = Run(sandbox, work);
  EXPECT_THAT(Outcomes(results), ElementsAre("ok", "raced_out", "ok"));
  EXPECT_EQ(results[1].costs_s.size(), 1u);
}

FinalsWork FinalsOf(const std::vector<std::vector<std::string>>& tasks) {
  FinalsWork work;
  work.model.rounds = 3;
  for (const auto& configs : tasks) {
    work.tasks.push_back({"w", {}});
    for (const std::string& config : configs) work.tasks.back().candidates.push_back({.config = config});
  }
  return work;
}

TEST_F(SandboxTest, FinalistsOfAllTasksAreTimedInOneOrder) {
  Sandbox sandbox = Make();
  std::map<int, TrialResult> results;
  const auto on_trial = [&](int i, TrialResult r) { EXPECT_TRUE(results.emplace(i, std::move(r)).second); };
  CancelToken token;
  ASSERT_TRUE(sandbox.Run(FinalsOf({{"cost_ns=1000", "cost_ns=2000"}, {"cost_ns=3000"}}), token, on_trial).ok());
  ASSERT_EQ(results.size(), 3u);
  EXPECT_THAT(results[1].costs_s, AllOf(SizeIs(3), Each(DoubleNear(2e-6, 1e-9))));
  EXPECT_THAT(results[2].costs_s, AllOf(SizeIs(3), Each(DoubleNear(3e-6, 1e-9))));
  EXPECT_EQ(Text(results[2].outcome), "ok");
}

TEST_F(SandboxTest, FinalsThatCrashAreNobodysFault) {
  Sandbox sandbox = Make();
  FinalsWork work = FinalsOf({{"cost_ns=1000", "cost_ns=2000"}});
  work.model.target = "run_fault=segv";
  std::map<int, TrialResult> results;
  const auto on_trial = [&](int i, TrialResult r) { EXPECT_TRUE(results.emplace(i, std::move(r)).second); };
  CancelToken token;
  ASSERT_TRUE(sandbox.Run(work, token, on_trial).ok());
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(Text(results[1].outcome), "infrastructure");
  EXPECT_THAT(results[1].error, HasSubstr("SIGSEGV while running the model"));
  EXPECT_THAT(Outcomes(Run(sandbox, Work({"cost_ns=1"}))), ElementsAre("ok"));
}

TEST_F(SandboxTest, GivesUpOnAWorkloadThatNoChildSurvives) {
  Sandbox sandbox = Make();
  BatchWork work = Work({"cost_ns=1", "cost_ns=2"});
  work.workload = "fault=segv";
  const auto results = Run(sandbox, work);
  EXPECT_THAT(Outcomes(results), Each("infrastructure"));
  EXPECT_THAT(results[1].error, HasSubstr("SIGSEGV while preparing"));
  EXPECT_EQ(sandbox.children_started(), 3);
  EXPECT_THAT(Outcomes(Run(sandbox, Work({"cost_ns=1"}))), ElementsAre("ok"));
}

TEST_F(SandboxTest, AWorkloadThatIsRefusedIsNoCandidatesFault) {
  Sandbox sandbox = Make();
  BatchWork work = Work({"cost_ns=1"});
  work.workload = "refuse";
  const auto results = Run(sandbox, work);
  EXPECT_THAT(Outcomes(results), ElementsAre("infrastructure"));
  EXPECT_THAT(results[0].error, HasSubstr("no such workload"));
}

TEST_F(SandboxTest, ReplacesAChildThatWasKilledBetweenBatches) {
  Sandbox sandbox = Make();
  Run(sandbox, Work({"cost_ns=1"}));
  const pid_t first = sandbox.child_pid();
  ASSERT_GT(first, 0);
  ASSERT_EQ(kill(first, SIGKILL), 0);
  siginfo_t ended{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(first), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_THAT(Outcomes(Run(sandbox, Work({"cost_ns=1"}))), ElementsAre("ok"));
  EXPECT_NE(sandbox.child_pid(), first);
}

// It once failed for ever: what cleans /tmp takes folders that live long.
TEST_F(SandboxTest, ReplacesAChildWhoseTemporaryFolderWasRemoved) {
  const TemporaryDirectory parent = *TemporaryDirectory::Make();
  const char* before = std::getenv("TMPDIR");
  const absl::Cleanup restore = [was = before != nullptr, text = std::string(before != nullptr ? before : "")] {
    was ? setenv("TMPDIR", text.c_str(), 1) : unsetenv("TMPDIR");
  };
  setenv("TMPDIR", parent.path().c_str(), 1);
  Sandbox sandbox = Make();
  const auto expect_ok_by = [&](int64_t children) {
    EXPECT_THAT(Outcomes(Run(sandbox, Work({"cost_ns=1"}))), ElementsAre("ok"));
    EXPECT_EQ(sandbox.children_started(), children);
  };
  expect_ok_by(1);
  ASSERT_FALSE(std::filesystem::is_empty(parent.path()));
  for (const auto& entry : std::filesystem::directory_iterator(parent.path())) std::filesystem::remove_all(entry);
  expect_ok_by(2);
  EXPECT_FALSE(std::filesystem::is_empty(parent.path()));
  expect_ok_by(2);
}

TEST_F(SandboxTest, CancellingEndsABatchAndItsChild) {
  Sandbox sandbox = Make();
  BatchWork work = Work({"fault=wrong", "fault=hang"});
  work.plan.run_timeout_ms = 1'000'000;
  CancelToken token;
  int told = 0;
  // The first candidate's result says that the second, which hangs, is next.
  const absl::Status status = sandbox.Run(work, token, [&](int, TrialResult) {
    ++told;
    token.Cancel();
  });
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_EQ(told, 1);
  EXPECT_EQ(sandbox.child_pid(), 0);
  EXPECT_TRUE(absl::IsCancelled(sandbox.Run(work, token, [](int, TrialResult) { FAIL(); })));
  EXPECT_THAT(Outcomes(Run(sandbox, Work({"cost_ns=1"}))), ElementsAre("ok"));
}

TEST_F(SandboxTest, SaysSoWhenNoChildCanBeStarted) {
  Sandbox sandbox({"/nonexistent/program"}, Confinement{});
  const auto results = Run(sandbox, Work({"cost_ns=1"}));
  EXPECT_THAT(Outcomes(results), ElementsAre("infrastructure"));
  EXPECT_THAT(results[0].error, HasSubstr("cannot open its program"));
}

TEST_F(SandboxTest, ChecksModels) {
  Sandbox sandbox = Make();
  ModelWork work;
  work.rounds = 4;
  auto result = sandbox.Run(work, CancelToken());
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(Text(result->outcome), "ok");
  EXPECT_EQ(result->tuned_s.size(), 4u);
  work.target = "build_fault=segv";
  result = sandbox.Run(work, CancelToken());
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(Text(result->outcome), "build_failed");
  EXPECT_THAT(result->error, HasSubstr("SIGSEGV while building the model"));
  work.target = "run_fault=hang";
  SandboxLimits limits;
  limits.model_run_ms = kCapMs;
  Sandbox impatient = Make(limits);
  result = impatient.Run(work, CancelToken());
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(Text(result->outcome), "run_timeout");
}

TEST_F(SandboxTest, LeavesNoChildBehind) {
  pid_t pid = 0;
  {
    Sandbox sandbox = Make();
    Run(sandbox, Work({"cost_ns=1"}));
    pid = sandbox.child_pid();
    EXPECT_EQ(getsid(pid), pid) << "a session of its own";
  }
  EXPECT_EQ(kill(pid, 0), -1);
}

}  // namespace
}  // namespace temper::worker
