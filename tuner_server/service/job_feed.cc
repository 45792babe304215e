#include "tuner_server/service/job_feed.h"

#include "base/secure_random.h"
#include "proto/convert.h"

namespace temper {
namespace {

// A feed is made anew by each server that takes the job up, so the high half of its versions names the feed, and the
// low half counts. It is never 0, as the high half of what is no feed's cursor.
int64_t NameOfFeed() { return static_cast<int64_t>(1 + SecureRandom() % 0x7ffffffe) << 32; }

}  // namespace

JobFeed::JobFeed(const Clock& clock, absl::Duration started, JobView view, JobRow row)
    : clock_(clock), started_(started), name_(NameOfFeed()), view_(std::move(view)), row_(std::move(row)) {}

int64_t JobFeed::Seen(int64_t cursor) const { return cursor > name_ && cursor <= version_ ? cursor : 0; }

void JobFeed::Publish(JobView view, JobRow row, std::vector<std::pair<size_t, TaskView>> tasks) {
  bool state_changed = false;
  {
    std::lock_guard lock(mutex_);
    state_changed = view.state != view_.state;
    const bool news = state_changed || !tasks.empty() || view.warnings.size() != view_.warnings.size() ||
                      view.tuned_s != view_.tuned_s;
    if (news) ++version_;
    if (state_changed) state_version_ = version_;
    for (auto& [i, task] : tasks) {
      if (i >= tasks_.size()) {
        tasks_.resize(i + 1);
        task_versions_.resize(i + 1);
      }
      tasks_[i] = std::move(task);
      task_versions_[i] = version_;
    }
    view_ = std::move(view);
    row_ = std::move(row);
    NotePoint();
    if (IsFinalJobState(view_.state) && !elapsed_) elapsed_ = clock_.Monotonic() - started_;
  }
  if (state_changed) PokeWatchers();
}

void JobFeed::NotePoint() {
  double total_s = 0;
  for (const TaskView& task : tasks_) {
    const double best_s = task.best_s > 0 ? task.best_s : task.default_s;
    if (task.alternative) continue;
    if (best_s <= 0) return;  // the sum would rise when it comes
    total_s += task.weight * best_s;
  }
  if (total_s <= 0 || (!curve_.empty() && total_s >= curve_.back().second)) return;
  curve_.emplace_back(view_.trials, total_s);
  if (curve_.size() <= kMostPoints) return;
  // Every other one goes, but the first and the last stay.
  std::vector<std::pair<int, double>> thinned;
  for (size_t i = 0; i < curve_.size(); i += 2) thinned.push_back(curve_[i]);
  if (curve_.size() % 2 == 0) thinned.push_back(curve_.back());
  curve_ = std::move(thinned);
}

std::vector<std::pair<int, double>> JobFeed::Curve() const {
  std::lock_guard lock(mutex_);
  return curve_;
}

bool JobFeed::over() const {
  std::lock_guard lock(mutex_);
  return IsFinalJobState(view_.state);
}

std::string JobFeed::state() const {
  std::lock_guard lock(mutex_);
  return view_.state;
}

std::string JobFeed::owner() const {
  std::lock_guard lock(mutex_);
  return row_.owner;
}

JobRow JobFeed::row() const {
  std::lock_guard lock(mutex_);
  JobRow row = row_;
  row.state = view_.state;
  return row;
}

std::optional<JobNews> JobFeed::Since(int64_t cursor) const {
  std::lock_guard lock(mutex_);
  cursor = Seen(cursor);
  if (cursor == version_) return std::nullopt;
  JobNews news{.cursor = version_, .job = view_};
  news.elapsed_s = absl::ToDoubleSeconds(elapsed_ ? *elapsed_ : clock_.Monotonic() - started_);
  for (size_t i = 0; i < tasks_.size(); ++i) {
    if (task_versions_[i] > cursor) news.tasks.emplace_back(static_cast<int>(i), tasks_[i]);
  }
  return news;
}

size_t JobFeed::BytesSince(int64_t cursor) const {
  std::lock_guard lock(mutex_);
  cursor = Seen(cursor);
  if (cursor == version_) return 0;
  size_t bytes = sizeof(JobView);
  for (const std::string& warning : view_.warnings) bytes += warning.size();
  for (size_t i = 0; i < tasks_.size(); ++i) {
    if (task_versions_[i] > cursor) bytes += sizeof(TaskView) + tasks_[i].workload.size() + tasks_[i].config.size();
  }
  return bytes;
}

bool JobFeed::StateChangedSince(int64_t cursor) const {
  std::lock_guard lock(mutex_);
  return state_version_ > Seen(cursor);
}

void JobFeed::AddWatcher(const std::shared_ptr<JobWatcher>& watcher) {
  std::lock_guard lock(mutex_);
  watchers_.push_back(watcher);
  was_watched_ = true;
}

void JobFeed::RemoveWatcher(const std::shared_ptr<JobWatcher>& watcher) {
  std::lock_guard lock(mutex_);
  std::erase(watchers_, watcher);
  if (watchers_.empty()) unwatched_since_ = clock_.Monotonic();
}

void JobFeed::PokeWatchers() {
  std::vector<std::shared_ptr<JobWatcher>> watchers;
  {
    std::lock_guard lock(mutex_);
    watchers = watchers_;
  }
  for (const auto& watcher : watchers) watcher->Poke();
}

bool JobFeed::Orphaned(absl::Duration now, absl::Duration grace) const {
  std::lock_guard lock(mutex_);
  return was_watched_ && watchers_.empty() && now - unwatched_since_ >= grace;
}

}  // namespace temper
