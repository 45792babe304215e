// A worker inside the test: it speaks the wire to a real server, measures by formula, and hands in each result until it
// is acknowledged, whatever happens to the server meanwhile.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/descriptor.h"
#include "temper/v1/worker.grpc.pb.h"

namespace temper {

// What was measured and what the server acknowledged, by all workers of a test. Acknowledgements are in a file too, and
// synced before the worker does anything else. Thread-safe.
class Ledger {
 public:
  explicit Ledger(const std::string& path);

  struct Execution {
    int64_t job = 0, candidate = 0;
    int attempt = 0;
    std::string workload, template_name, config;
    double seconds = 0;                 // tells executions apart: no two have the same
    std::string CandidateText() const;  // what is measured, whatever its number
  };
  void Measured(const std::vector<Execution>& executions);
  void Acknowledged(const std::vector<Execution>& executions);

  std::vector<Execution> measured() const;
  std::vector<Execution> acknowledged() const;  // without their texts
  int64_t Size() const;                         // how many were acknowledged
  // How many executions were of something that an earlier one of the same job had measured and got acknowledged.
  int measured_again() const;
  int highest_attempt() const;

 private:
  const std::string path_;
  Descriptor file_;
  mutable std::mutex mutex_;
  std::vector<Execution> measured_;
  std::set<std::pair<int64_t, std::string>> known_;  // job and candidate, once acknowledged
  int64_t size_ = 0;
  int measured_again_ = 0;
};

struct FakeWorkerOptions {
  std::string address, key, name;
  std::shared_ptr<grpc::ChannelCredentials> credentials;  // null: plaintext
  absl::Duration trial = absl::Milliseconds(1);           // what a trial takes
  Ledger* ledger = nullptr;                               // what is told of all this
};

inline constexpr char kFakeCodegen[] = "fake-codegen", kFakeFingerprint[] = "fake";
std::string FakeTarget();
// What a fake worker says that the execution took: by the config, and a little by (candidate, attempt).
double FakeSeconds(const std::string& workload, const std::string& config, int64_t candidate, int attempt);

class FakeWorker {
 public:
  explicit FakeWorker(FakeWorkerOptions options);
  ~FakeWorker();  // ends its calls; what was not acknowledged is lost

  int registrations() const { return registrations_; }
  int64_t acknowledged() const { return acknowledged_; }
  int refusals() const { return refusals_; }  // calls that failed, for want of a server too
  bool holds_lease() const { return holds_lease_; }
  // The kind of the lease that it holds: v1::Lease::WorkCase.
  int lease_kind() const { return lease_kind_; }
  // Keeps what it holds until told otherwise, as a device that is slow does.
  void Pause(bool pause) { paused_ = pause; }
  // As Pause, once it holds a lease of this kind.
  void PauseAt(int kind) { pause_at_ = kind; }
  // Makes no calls until told otherwise, as a process that stands still.
  void Freeze(bool freeze) { frozen_ = freeze; }
  bool was_cancelled() const { return was_cancelled_; }

 private:
  void Run();
  bool Register();
  // Nothing to do, or no connection: an empty reply.
  v1::SyncReply Sync(const std::vector<int64_t>& held, int free_slots, absl::Duration wait);
  void Work(const v1::Lease& lease);
  bool Hold(int64_t lease, absl::Duration time);  // false: it was cancelled
  void Deliver(const v1::SubmitResultsRequest& results, const std::vector<Ledger::Execution>& executions);
  grpc::Status Call(const std::function<grpc::Status(grpc::ClientContext*)>& call, absl::Duration timeout);
  void Rest(absl::Duration time);  // or until it is stopped
  bool stopping();

  const FakeWorkerOptions options_;
  const std::string instance_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  std::string session_;
  absl::Duration renewal_ = absl::Seconds(10);
  std::atomic<int> registrations_ = 0;
  std::atomic<int64_t> acknowledged_ = 0;
  std::atomic<bool> holds_lease_ = false, paused_ = false, frozen_ = false, was_cancelled_ = false;
  std::atomic<int> lease_kind_ = 0, pause_at_ = 0, refusals_ = 0;

  std::mutex mutex_;
  std::condition_variable stopped_;
  grpc::ClientContext* call_ = nullptr;  // under way
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace temper
