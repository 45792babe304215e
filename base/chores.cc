#include "base/chores.h"

#include <algorithm>

#include "base/log.h"

namespace temper {

ChoreList::ChoreList(std::vector<Chore> chores, absl::Duration now) {
  for (Chore& chore : chores) {
    const absl::Duration due = now + chore.first_in;
    entries_.push_back({std::move(chore), due});
  }
}

void ChoreList::RunDue(const Clock& clock) {
  for (Entry& entry : entries_) {
    if (entry.due > clock.Monotonic()) continue;
    const absl::Status status = entry.chore.run();
    if (!status.ok()) spdlog::error("{} failed: {}", entry.chore.name, std::string(status.message()));
    entry.due = clock.Monotonic() + entry.chore.every;
  }
}

absl::Duration ChoreList::Next() const {
  absl::Duration next = absl::InfiniteDuration();
  for (const Entry& entry : entries_) next = std::min(next, entry.due);
  return next;
}

ChoreThread::ChoreThread(std::vector<Chore> chores, const Clock& clock)
    : clock_(clock), list_(std::move(chores), clock.Monotonic()), thread_([this] { Loop(); }) {}

ChoreThread::~ChoreThread() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void ChoreThread::Loop() {
  constexpr absl::Duration kLongestNap = absl::Hours(1);  // clocks that stand still while the machine sleeps
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      const absl::Duration nap = std::clamp(list_.Next() - clock_.Monotonic(), absl::ZeroDuration(), kLongestNap);
      if (wake_.wait_for(lock, absl::ToChronoMilliseconds(nap), [this] { return stopping_; })) return;
    }
    list_.RunDue(clock_);
  }
}

}  // namespace temper
