// Deficit round robin: who goes next among those that want to, so that over time all get the same amount, however large
// the pieces are that each of them asks for. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>

namespace temper {

template <typename Key>
class DeficitRoundRobin {
 public:
  explicit DeficitRoundRobin(int64_t quantum = 16) : quantum_(quantum) {}

  // `wanting`: who has something to hand out, and what its next piece costs. Not empty; costs are positive. Says who
  // goes next; Charge makes it pay.
  Key Next(const std::map<Key, int64_t>& wanting) {
    // Who wants nothing for a while saves nothing up.
    std::erase_if(deficit_, [&](const auto& entry) { return !wanting.contains(entry.first); });
    const auto current = wanting.find(cursor_);
    if (current != wanting.end() && deficit_[cursor_] >= current->second) return cursor_;
    for (auto at = wanting.upper_bound(cursor_);; ++at) {
      if (at == wanting.end()) at = wanting.begin();
      int64_t& deficit = deficit_[at->first];
      deficit += quantum_;
      if (deficit < at->second) continue;
      cursor_ = at->first;
      return cursor_;
    }
  }
  void Charge(const Key& key, int64_t cost) { deficit_[key] -= cost; }

 private:
  int64_t quantum_;
  Key cursor_{};
  std::map<Key, int64_t> deficit_;
};

}  // namespace temper
