#include "tuner_server/service/job_places.h"

#include <algorithm>
#include <tuple>

#include "tuner_server/service/fair_share.h"

namespace temper {

bool JobPlaces::Ask(int64_t job, const std::string& owner, int priority) {
  if (running_.contains(job)) return true;
  waiting_.try_emplace(job, Wish{owner, priority});
  Give();
  return running_.contains(job);
}

void JobPlaces::SetPriority(int64_t job, int priority) {
  if (const auto wish = waiting_.find(job); wish != waiting_.end()) wish->second.priority = priority;
}

bool JobPlaces::Leave(int64_t job) {
  waiting_.erase(job);
  const auto running = running_.find(job);
  if (running == running_.end()) return false;
  const auto held = held_.find(running->second);
  if (--held->second == 0) held_.erase(held);
  running_.erase(running);
  return Give();
}

bool JobPlaces::Give() {
  const auto held = [&](const std::string& owner) {
    const auto found = held_.find(owner);
    return found == held_.end() ? 0 : found->second;
  };
  for (bool given = false;; given = true) {
    auto next = waiting_.end();
    const auto rank = [&](const auto& entry) { return std::tuple(-entry->second.priority, held(entry->second.owner)); };
    for (auto wish = waiting_.begin(); wish != waiting_.end(); ++wish) {
      const std::string& owner = wish->second.owner;
      if (!LeavesEnough(owner, held(owner), 1, running_.size(), most_)) continue;
      if (next == waiting_.end() || rank(wish) < rank(next)) next = wish;
    }
    if (next == waiting_.end()) return given;
    ++held_[next->second.owner];
    running_.emplace(next->first, next->second.owner);
    waiting_.erase(next);
  }
}

}  // namespace temper
