// The C++ side of TuningService: values in, values out, each call with a deadline. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "client/connection.h"
#include "storage/store.h"
#include "temper/v1/tuning.pb.h"

namespace temper {

// How long who has a job waits for a server that went away: its machine may start again meanwhile, and the job goes on.
inline constexpr absl::Duration kServerPatience = absl::Seconds(60);

// Ends a WatchJob, a SubmitJob or a ListDevices from another thread (not from a signal handler: it takes a lock). For
// one call at a time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  void Cancel();
  bool cancelled() const;

 private:
  friend class TunerClient;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class TunerClient {
 public:
  // See ServerConnection::Dial.
  static absl::StatusOr<std::unique_ptr<TunerClient>> Connect(const std::string& address,
                                                              const ClientOptions& options = {});
  ~TunerClient();

  const std::string& address() const;
  // OK once the server answers. Waits for at most `timeout`.
  absl::Status WaitUntilReady(absl::Duration timeout);

  // Gives the request a name, unless it has one, so that it can be sent again where the server, which answered before,
  // went away: for `patience`, and never twice is it a job. kCancelled: `stop` is, and whether there is a job is not
  // known.
  absl::StatusOr<int64_t> SubmitJob(v1::SubmitJobRequest request, absl::Duration patience = kServerPatience,
                                    StopSignal* stop = nullptr);
  // Calls `on_event` for each event until the job is in a final state (OK; the last event told it), `on_event` returns
  // false or `stop` is cancelled (kCancelled), or the stream breaks. A broken stream is taken up again at its cursor
  // for as long as the server is reachable again within `patience`.
  absl::Status WatchJob(int64_t job, const std::function<bool(const v1::JobEvent&)>& on_event,
                        absl::Duration patience = kServerPatience, StopSignal* stop = nullptr);
  absl::Status CancelJob(int64_t job);
  absl::Status SetPriority(int64_t job, int priority);
  // The newest `most` jobs (0: all) of this state (empty: any), newest first.
  absl::StatusOr<std::vector<v1::JobSummary>> ListJobs(int64_t most = 0, const std::string& state = "");
  absl::StatusOr<v1::JobSummary> GetJob(int64_t job);  // kNotFound
  // By key, then name, in natural order. `awaited_key`: the caller waits for a worker of this device key, to submit a
  // job, and calls again within seconds; the server says so to who starts workers. Empty: it does not. kCancelled:
  // `stop` is.
  absl::StatusOr<std::vector<v1::Device>> ListDevices(const std::string& awaited_key = "", StopSignal* stop = nullptr);

  // One answer per query, in order; any number of queries (sent in requests of a bounded size).
  absl::StatusOr<std::vector<std::optional<BestAnswer>>> QueryBest(std::span<const BestQuery> queries);
  struct Verdict {
    int64_t job;
    std::string build_with;  // "tuned" or "default"
  };
  // Of the newest job that measured the model end to end; nullopt: none did. `device_key` may be empty: any.
  absl::StatusOr<std::optional<Verdict>> QueryVerdict(const std::string& model_hash, const std::string& target,
                                                      const std::string& device_key);
  // One id per record; 0 for a trial that the server knows already. They serve where the server has measured nothing
  // itself. `trusted`: an admin's word that they were measured, so they may outrank the server's own.
  absl::StatusOr<std::vector<int64_t>> PutRecords(std::span<const Record> records, bool trusted = false);
  // Those that the filter matches (by workload, target, device key, purpose and outcome), in id order from `after_id`
  // on; or of these the best of each workload, target and device key. `visit` returns whether it wants more.
  absl::Status ExportRecords(const RecordFilter& filter, bool best, const std::function<bool(const Record&)>& visit);

 private:
  struct Impl;
  explicit TunerClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace temper
