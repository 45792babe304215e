#include "tuner_server/service/job_runner.h"

#include <algorithm>
#include <utility>

namespace temper {
namespace {

// Nothing is missed by it: every event wakes the thread. It bounds what a lost wake-up could cost.
constexpr absl::Duration kLongestWait = absl::Seconds(5);

}  // namespace

JobRunner::JobRunner(JobHost& host, JobPlan plan)
    : host_(host),
      steps_(host, std::move(plan)),
      feed_(std::make_shared<JobFeed>(host.clock(), steps_.started(), steps_.view(), steps_.row())) {}

JobRunner::~JobRunner() {
  Stop("suspended", "the server was stopped");
  if (thread_.joinable()) thread_.join();
}

void JobRunner::Start() {
  thread_ = std::thread([this] { Run(); });
}

void JobRunner::Deliver(const ItemResult& result) {
  std::lock_guard lock(mutex_);
  input_.results.push_back(result);
  woken_ = true;
  wake_.notify_all();
}

void JobRunner::Wake() {
  std::lock_guard lock(mutex_);
  woken_ = true;
  wake_.notify_all();
}

void JobRunner::Stop(const std::string& state, const std::string& reason) {
  std::lock_guard lock(mutex_);
  input_.Stop(state, reason);
  woken_ = true;
  wake_.notify_all();
}

void JobRunner::SetPriority(int priority) {
  std::lock_guard lock(mutex_);
  input_.priority = priority;
  woken_ = true;
  wake_.notify_all();
}

JobInput JobRunner::TakeInput() {
  std::lock_guard lock(mutex_);
  woken_ = false;
  JobInput input = input_;
  input_.results.clear();
  return input;
}

void JobRunner::WaitUntil(absl::Duration due) {
  const absl::Duration left = std::clamp(due - host_.clock().Monotonic(), absl::ZeroDuration(), kLongestWait);
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, absl::ToChronoNanoseconds(left), [this] { return woken_; });
}

void JobRunner::Run() {
  while (!steps_.over()) {
    const absl::Duration due = steps_.Step(TakeInput(), host_.clock().Monotonic());
    feed_->Publish(steps_.view(), steps_.row(), steps_.TakeChangedTasks());
    if (!steps_.over()) WaitUntil(due);
  }
  feed_->PokeWatchers();
  host_.JobOver(spec().id);
}

}  // namespace temper
