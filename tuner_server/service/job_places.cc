#include "tuner_server/service/job_places.h"

#include <tuple>

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
  places_.Leave(running->second, 1);
  running_.erase(running);
  return Give();
}

bool JobPlaces::Give() {
  for (bool given = false;; given = true) {
    auto next = waiting_.end();
    const auto rank = [&](const auto& entry) {
      return std::tuple(-entry->second.priority, places_.Of(entry->second.owner));
    };
    for (auto wish = waiting_.begin(); wish != waiting_.end(); ++wish) {
      if (!places_.MayTake(wish->second.owner, 1)) continue;
      if (next == waiting_.end() || rank(wish) < rank(next)) next = wish;
    }
    if (next == waiting_.end()) return given;
    places_.Take(next->second.owner, 1);
    running_.emplace(next->first, next->second.owner);
    waiting_.erase(next);
  }
}

}  // namespace temper
