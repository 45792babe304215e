#include "tuner_server/dispatch/session_index.h"

#include <algorithm>

#include "base/natural_order.h"

namespace temper {
namespace {

template <typename Index, typename Key>
void Drop(Index& index, const Key& key, const std::string& id) {
  const auto found = index.find(key);
  found->second.erase(id);
  if (found->second.empty()) index.erase(found);
}

}  // namespace

void SessionIndex::Put(const std::string& id, const WorkerInfo& info, const Standing& standing) {
  const auto [entry, fresh] = entries_.try_emplace(id, Entry{info, standing});
  if (fresh) {
    in_order_.insert(PlaceOf(entry), entry);
  } else {
    Strike(id, entry->second);
    entry->second.standing = standing;
  }
  Enter(id, entry->second);
}

void SessionIndex::Remove(const std::string& id) {
  const auto entry = entries_.find(id);
  if (entry == entries_.end()) return;
  Strike(id, entry->second);
  in_order_.erase(PlaceOf(entry));
  entries_.erase(entry);
}

std::vector<SessionIndex::Entries::const_iterator>::iterator SessionIndex::PlaceOf(Entries::const_iterator entry) {
  return std::ranges::lower_bound(in_order_, entry, [](Entries::const_iterator a, Entries::const_iterator b) {
    const WorkerInfo &left = a->second.info, &right = b->second.info;
    if (left.device_key != right.device_key) return NaturalLess(left.device_key, right.device_key);
    if (left.name != right.name) return NaturalLess(left.name, right.name);
    return a->first < b->first;
  });
}

std::vector<std::string> SessionIndex::InOrder(size_t offset, size_t most) const {
  std::vector<std::string> ids;
  const size_t begin = std::min(offset, in_order_.size()), end = begin + std::min(most, in_order_.size() - begin);
  for (size_t i = begin; i < end; ++i) ids.push_back(in_order_[i]->first);
  return ids;
}

void SessionIndex::Enter(const std::string& id, const Entry& entry) {
  const auto& [info, standing] = entry;
  if (!info.instance.empty()) by_instance_[info.instance].insert(id);
  by_key_[info.device_key].insert(id);
  Holder& holder = holders_[info.holder];
  ++holder.sessions;
  if (standing.may_serve) {
    Alike& alike = serving_[info.device_key][{info.codegen_id, info.target}];
    alike.ids.insert(id);
    alike.slots += info.slots;
  }
  if (!standing.lost) return;
  lost_by_name_[{info.device_key, info.name}].insert(id);
  lost_.emplace(standing.last_seen, id);
  holder.lost.emplace(standing.last_seen, id);
}

void SessionIndex::Strike(const std::string& id, const Entry& entry) {
  const auto& [info, standing] = entry;
  if (!info.instance.empty()) Drop(by_instance_, info.instance, id);
  Drop(by_key_, info.device_key, id);
  if (standing.may_serve) {
    const auto kinds = serving_.find(info.device_key);
    const auto alike = kinds->second.find({info.codegen_id, info.target});
    alike->second.ids.erase(id);
    alike->second.slots -= info.slots;
    if (alike->second.ids.empty()) kinds->second.erase(alike);
    if (kinds->second.empty()) serving_.erase(kinds);
  }
  const auto holder = holders_.find(info.holder);
  if (standing.lost) {
    Drop(lost_by_name_, std::pair(info.device_key, info.name), id);
    lost_.erase({standing.last_seen, id});
    holder->second.lost.erase({standing.last_seen, id});
  }
  if (--holder->second.sessions == 0) holders_.erase(holder);
}

const SessionIndex::Kinds& SessionIndex::Serving(const std::string& key) const {
  static const Kinds none;
  const auto found = serving_.find(key);
  return found == serving_.end() ? none : found->second;
}

size_t SessionIndex::CountOf(const std::string& holder) const {
  const auto found = holders_.find(holder);
  return found == holders_.end() ? 0 : found->second.sessions;
}

const std::string* SessionIndex::LongestLostOf(const std::string& holder) const {
  const auto found = holders_.find(holder);
  return found == holders_.end() ? nullptr : First(found->second.lost);
}

}  // namespace temper
