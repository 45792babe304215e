// The supervisor of the measuring child: hands it work, enforces time-outs, and says what became of each candidate
// when the child dies. A child lives as long as it behaves and has its device; one that crashed, was killed or left, or
// whose temporary folder was taken away, is replaced, and the candidates not yet answered go on in the next.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "measure_worker/sandbox/frame.h"
#include "measure_worker/sandbox/process.h"
#include "trial/trial.h"

namespace temper::worker {

struct Expected;  // witness.h

// Ends one run early. Thread-safe.
class CancelToken {
 public:
  CancelToken();
  ~CancelToken();
  CancelToken(const CancelToken&) = delete;
  CancelToken& operator=(const CancelToken&) = delete;
  void Cancel();
  bool cancelled() const;
  int fd() const { return fd_; }  // readable once cancelled

 private:
  int fd_;
};

struct SandboxLimits {
  int64_t prepare_ms = 120'000;  // the reference result of the largest operators
  int64_t model_build_ms = 600'000;
  int64_t model_run_ms = 300'000;
  int max_infrastructure_failures = 3;  // children that died through no candidate's fault, in one run
  ChildLimits child;
  // The device is a formula: it takes no time to tell what a call would take.
  bool simulated = false;
};

// Not thread-safe, and tied to the thread that first runs it: the child dies with that thread.
class Sandbox {
 public:
  using OnTrial = std::function<void(int, TrialResult)>;

  // `command` starts a child that reads orders from kChildFd, confined as told.
  Sandbox(std::vector<std::string> command, Confinement confinement, SandboxLimits limits = {});
  ~Sandbox();

  // Calls `on_trial` exactly once for each candidate (by position), in no fixed order. kCancelled: the token was used,
  // and some were not told of.
  absl::Status Run(const BatchWork& work, const CancelToken& token, const OnTrial& on_trial);
  // The same for each of `work.Candidates()`.
  absl::Status Run(const FinalsWork& work, const CancelToken& token, const OnTrial& on_trial);
  absl::StatusOr<ModelResult> Run(const ModelWork& work, const CancelToken& token);

  int64_t children_started() const { return children_started_; }
  pid_t child_pid() const { return child_ ? child_->pid() : 0; }  // 0: none at the moment

 private:
  using OnModel = std::function<void(ModelResult)>;
  class BatchRun;
  absl::Status EnsureChild();
  absl::StatusOr<std::optional<TrialResult>> RunModel(const Frame& order, const Expected& expected, int64_t budget_ms,
                                                      const CancelToken& token, const OnTrial& on_trial,
                                                      const OnModel& on_model);

  const std::vector<std::string> command_;
  const Confinement confinement_;
  const SandboxLimits limits_;
  std::unique_ptr<ChildProcess> child_;
  int64_t children_started_ = 0;
};

}  // namespace temper::worker
