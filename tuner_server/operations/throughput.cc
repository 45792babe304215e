#include "tuner_server/operations/throughput.h"

namespace temper {
namespace {

int64_t MinuteOf(absl::Time time) { return absl::ToUnixSeconds(time) / 60 * 60; }

}  // namespace

void Throughput::Add(absl::Time now, int64_t measured, int64_t failed) {
  if (measured == 0 && failed == 0) return;
  std::lock_guard lock(mutex_);
  const int64_t start = MinuteOf(now);
  // A clock that was set back goes on with the minute at hand.
  if (minutes_.empty() || minutes_.back().start_unix_s < start) minutes_.push_back({start});
  minutes_.back().measured += measured;
  minutes_.back().failed += failed;
  if (minutes_.size() > kMinutes) minutes_.pop_front();
}

std::vector<Throughput::Minute> Throughput::Latest(absl::Time now, int64_t minutes) const {
  const int64_t first = MinuteOf(now) - 60 * (minutes - 1);
  std::lock_guard lock(mutex_);
  std::vector<Minute> latest;
  for (const Minute& minute : minutes_) {
    if (minute.start_unix_s >= first) latest.push_back(minute);
  }
  return latest;
}

}  // namespace temper
