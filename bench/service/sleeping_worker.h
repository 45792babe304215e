// A worker that measures nothing: each trial takes as long as it is told to, and what the trial found is computed. It
// holds two leases, one of them in reserve, as a real one does. On a connection of its own.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "temper/v1/worker.grpc.pb.h"

namespace temper::bench {

class SleepingWorker {
 public:
  // Seconds of a candidate; thread-safe.
  using Cost = std::function<double(const v1::Batch&, const v1::CandidateSpec&)>;

  SleepingWorker(const std::string& address, const std::string& name, absl::Duration trial, Cost cost);
  ~SleepingWorker();  // ends its calls

  // Of its trials, once the job is over.
  struct Work {
    int trials = 0;
    absl::Time first = absl::InfiniteFuture(), last = absl::InfinitePast();  // beginning of the first, end of the last
    int refused = 0;                                                         // results that were not acknowledged
  };
  Work work();

 private:
  void Register(const std::string& name);
  void Fetch();
  void Measure();
  void Submit(const v1::CandidateResult& result);

  const absl::Duration trial_;
  const Cost cost_;
  const std::string instance_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  std::string session_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<v1::Lease> leases_;  // to be measured, or being measured: the first
  grpc::ClientContext* fetching_ = nullptr;
  int under_way_ = 0;  // calls
  bool stopping_ = false;
  Work work_;
  std::thread measuring_;
};

}  // namespace temper::bench
