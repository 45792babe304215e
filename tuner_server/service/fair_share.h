// How much of what is bounded one caller may take.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace temper {

// Whether one who has `own` of `most` may take `more`, where `all` are taken in sum: what he then has is no more than
// what he leaves to others. His first is taken wherever there is room, and so is all of who has no name.
inline bool LeavesEnough(const std::string& who, size_t own, size_t more, size_t all, size_t most) {
  if (all > most || more > most - all) return false;
  return who.empty() || own == 0 || own + more <= most - all - more;
}

// Who has how much of `most`. Not thread-safe.
class FairShares {
 public:
  explicit FairShares(size_t most) : most_(most) {}

  size_t most() const { return most_; }
  size_t Of(const std::string& who) const {
    const auto found = by_caller_.find(who);
    return found == by_caller_.end() ? 0 : found->second;
  }
  bool MayTake(const std::string& who, size_t more) const { return LeavesEnough(who, Of(who), more, taken_, most_); }
  void Take(const std::string& who, size_t more) {
    if (more > 0) by_caller_[who] += more;
    taken_ += more;
  }
  void Leave(const std::string& who, size_t less) {  // of what it has
    if (less == 0) return;
    const auto own = by_caller_.find(who);
    own->second -= less;
    if (own->second == 0) by_caller_.erase(own);
    taken_ -= less;
  }

 private:
  const size_t most_;
  size_t taken_ = 0;
  std::map<std::string, size_t> by_caller_;
};

}  // namespace temper
