#include "tuner_server/dispatch/session_index.h"

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
  if (!fresh) {
    Strike(id, entry->second);
    entry->second.standing = standing;
  }
  Enter(id, entry->second);
}

void SessionIndex::Remove(const std::string& id) {
  const auto entry = entries_.find(id);
  if (entry == entries_.end()) return;
  Strike(id, entry->second);
  entries_.erase(entry);
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
