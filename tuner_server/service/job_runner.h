// The thread of a job: calls its steps when something comes or is due. Thread-safe.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "tuner_server/service/job_host.h"
#include "tuner_server/service/job_steps.h"

namespace temper {

class JobRunner : public JobPort {
 public:
  JobRunner(JobHost& host, JobPlan plan);
  ~JobRunner() override;  // stops it and joins

  void Start();

  // From any thread.
  void Deliver(const ItemResult& result) override;
  void Wake() override;
  void Stop(const std::string& state, const std::string& reason) override;
  void SetPriority(int priority) override;
  const JobSpec& spec() const override { return steps_.spec(); }
  const std::shared_ptr<JobFeed>& feed() const override { return feed_; }

 private:
  void Run();
  JobInput TakeInput();
  // Until there is input, a wake-up, or the time has come.
  void WaitUntil(absl::Duration due);

  JobHost& host_;
  JobSteps steps_;  // the thread's own, but for its spec
  const std::shared_ptr<JobFeed> feed_;

  std::mutex mutex_;
  std::condition_variable wake_;
  JobInput input_;
  bool woken_ = false;

  std::thread thread_;
};

}  // namespace temper
