// What people see of a job: its published view, by versions, and those who watch it. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "storage/record.h"
#include "tuner_server/tuning/task_search.h"

namespace temper {

// All but the tasks.
struct JobView {
  std::string state = "queued";  // finer than the row's
  std::string reason, model, device_key, target, fingerprint;
  int trials = 0, trials_limit = 0;
  double untuned_s = 0, tuned_s = 0;  // end to end; 0: not measured
  bool kept_default = false;
  double eta_s = 0, search_s = 0;
  double expected_gain_s = 0;  // 0: none, or not known
  std::map<Outcome, int> outcomes;
  std::vector<std::string> warnings;
};

// What changed of a job.
struct JobNews {
  int64_t cursor = 0;  // tells this from what comes later, and from what another server tells of the job
  double elapsed_s = 0;
  JobView job;
  std::vector<std::pair<int, TaskView>> tasks;  // those that changed, by their place in the job
};

class JobWatcher {
 public:
  virtual ~JobWatcher() = default;
  virtual void Poke() = 0;  // there may be news
};

class JobFeed {
 public:
  // The clock outlives the feed. `started`: when the job was submitted.
  JobFeed(const Clock& clock, absl::Duration started, JobView view, JobRow row);

  // `tasks`: those that changed. Watchers are poked where the state is another one.
  void Publish(JobView view, JobRow row, std::vector<std::pair<size_t, TaskView>> tasks);

  bool over() const;
  std::string state() const;
  std::string owner() const;
  JobRow row() const;  // all of it: once the job is done, with a summary of megabytes
  // What changed after the cursor; nullopt: nothing. After one that is not this feed's, all of it.
  std::optional<JobNews> Since(int64_t cursor) const;
  // About how many bytes that has, which are texts for the most part; 0: nothing.
  size_t BytesSince(int64_t cursor) const;
  // How the model's kernels got faster: trials and seconds, each time that they did. At most kMostPoints.
  static constexpr size_t kMostPoints = 64;
  std::vector<std::pair<int, double>> Curve() const;
  // A change of state is told at once, the rest at the watchers' own pace.
  bool StateChangedSince(int64_t cursor) const;

  void AddWatcher(const std::shared_ptr<JobWatcher>& watcher);
  void RemoveWatcher(const std::shared_ptr<JobWatcher>& watcher);
  void PokeWatchers();
  // It had a watcher, and has had none for so long.
  bool Orphaned(absl::Duration now, absl::Duration grace) const;

 private:
  void NotePoint();
  int64_t Seen(int64_t cursor) const;  // 0: nothing of this feed

  const Clock& clock_;
  const absl::Duration started_;
  const int64_t name_;  // less than each of its versions

  mutable std::mutex mutex_;
  JobView view_;
  JobRow row_;
  std::vector<TaskView> tasks_;
  std::vector<int64_t> task_versions_;
  std::vector<std::pair<int, double>> curve_;
  int64_t version_ = name_ + 1, state_version_ = version_;
  std::optional<absl::Duration> elapsed_;  // set when over
  std::vector<std::shared_ptr<JobWatcher>> watchers_;
  bool was_watched_ = false;
  absl::Duration unwatched_since_;
};

}  // namespace temper
