// The tuning client: a program's way to a tuning server, as the `temper` command has it. C++17, without gRPC, protobuf
// or absl. Link Temper::tuning_client.
//
//   temper::TuningClient client({"tuner.example:9190", "ca.crt", "admin.token"});
//   const int64_t job = client.Submit("epyc-zen5", workloads);
//   client.Watch(job);
//   for (const temper::TunedConfig& best : client.Best("", "epyc-zen5")) ...
#ifndef TEMPER_TUNING_H_
#define TEMPER_TUNING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace temper {

// A call that failed; the line says why, and names the server where there was none to answer.
class TuningError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct TuningServer {
  std::string address;     // "HOST:PORT" or "unix:PATH"
  std::string authority;   // a file with the server's certificate (ca.crt); empty: plaintext
  std::string token_file;  // a file with a token that nobody else may read; empty: none
  double timeout_s = 30;   // of each call but Watch and Best
};

struct TuningDevice {
  std::string key;          // the user's name for this kind of device
  std::string name;         // of the worker: host and process
  std::string fingerprint;  // what the device says it is
  std::string target;       // canonical text
  std::string state;        // "idle", "measuring", "lost", "drained", "pending", "version_mismatch", "target_mismatch"
  std::string reason;       // of that state, for people
};

struct TuningJob {
  int64_t id = 0;
  std::string model, device, owner;
  std::string state;   // "done", "failed", "cancelled" and "abandoned" are final
  std::string reason;  // of that state, for people
  int64_t trials = 0;  // measured so far
  double best_ms = 0;  // of the whole model; 0: not known
  int priority = 0;
};

// When a search ends. With all of them at 0 it measures all there is.
struct TuningLimits {
  int trials = 0;                 // of the whole job; 0: no limit
  int trials_per_task = 0;        // 0: no limit
  double time_budget_s = 0;       // from submission to the last trial; 0: no limit
  double min_gain = 0;            // it ends when less than this share of the time is still expected; 0: never
  double wait_for_device_s = 30;  // for a worker of the key; then the job fails
  std::string tuner = "xgb";
  uint64_t seed = 0;
  int priority = 0;  // from -10 to 10; higher goes first
};

// The best record of a workload on a target and device key.
struct TunedConfig {
  std::string workload, target, device;  // canonical texts, and the device key
  std::string template_name, config;
  double seconds = 0;  // of one run
};

// Thread-safe. All functions throw TuningError. Each call takes at most the timeout, but for Watch and Best, which take
// what is sent for as long as it comes.
class TuningClient {
 public:
  // Does not connect yet, so that it can not fail for a server that is not there.
  explicit TuningClient(const TuningServer& server);
  ~TuningClient();

  std::vector<TuningDevice> Devices();

  // The newest `most` jobs, newest first; 0: all.
  std::vector<TuningJob> Jobs(int64_t most = 0);
  TuningJob Job(int64_t job);
  // Tunes operators for a device key, and returns the job's id. `workloads` are canonical texts, as `temper tasks MODEL
  // --json` prints them. Whole models are submitted by `temper tune`, which also measures them end to end.
  int64_t Submit(const std::string& device, const std::vector<std::string>& workloads, const TuningLimits& limits = {});
  // Follows a job to its final state and returns it. Calls `on_change` whenever something changed; if that returns
  // false, Watch returns the job as it is then, and the job goes on. A server that went away may be back
  // within a minute.
  TuningJob Watch(int64_t job, const std::function<bool(const TuningJob&)>& on_change = nullptr);
  void Cancel(int64_t job);
  void SetPriority(int64_t job, int priority);

  // The best record of each workload, target and device key. Empty arguments match all.
  std::vector<TunedConfig> Best(const std::string& workload = "", const std::string& device = "");

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace temper

#endif  // TEMPER_TUNING_H_
