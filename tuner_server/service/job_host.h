// What a running job and the server's core ask of each other.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "storage/store.h"
#include "tuner_server/dispatch/work.h"
#include "tuner_server/service/job_feed.h"
#include "tuner_server/tuning/job_loop.h"

namespace temper {

// What a job needs of the server. As thread-safe as whoever calls it needs: ServerCore's is.
class JobHost : public WorkPort {
 public:
  virtual const Clock& clock() const = 0;
  virtual Store& store() = 0;
  // See Dispatcher.
  virtual std::optional<WorkerInfo> FindWorker(const DeviceKind& kind) = 0;
  virtual int Slots(const DeviceKind& kind) = 0;
  virtual std::string WhyNoWorker(const DeviceKind& kind) = 0;
  // So many jobs run at once. False: there is no place; the job is woken when there may be one.
  virtual bool TryBeginJob(int64_t job) = 0;
  virtual void LeavePlace(int64_t job) = 0;  // it waits for its device, and others may run
  // What is in workers' hands for the job since before it was taken up here.
  virtual std::vector<WorkItem> Unsettled(int64_t job) = 0;
  // Search and measurement take turns on shared cores, and so many jobs search at once. False: not now; the job is
  // woken when it may be asked again.
  virtual bool TryBeginSearch(int64_t job) = 0;
  virtual void EndSearch(int64_t job) = 0;  // also when the wish has passed
  virtual void JobOver(int64_t job) = 0;    // the last call
};

// A running job as the core holds it: where its results and wake-ups go. The core calls it under its lock, so it never
// calls back from here.
class JobPort {
 public:
  virtual ~JobPort() = default;
  virtual void Deliver(const ItemResult& result) = 0;
  virtual void Wake() = 0;
  // Ends the job in this final state: "cancelled" by a person, "abandoned" with its command, "failed" where nothing can
  // be stored. "suspended": it stops here without an end, and goes on under the next server. The first call counts.
  // After the server's end no job waits any longer for its own to be stored.
  virtual void Stop(const std::string& state, const std::string& reason) = 0;
  virtual void SetPriority(int priority) = 0;  // to be shown; it is stored already
  virtual const JobSpec& spec() const = 0;
  virtual const std::shared_ptr<JobFeed>& feed() const = 0;
};

}  // namespace temper
