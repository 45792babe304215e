// Where a dispatcher's sessions are found by what others ask for, which is seldom their name. There may be thousands,
// and each worker that registers, each step of a job and each poll asks. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "tuner_server/dispatch/work.h"

namespace temper {

class SessionIndex {
 public:
  using Ids = std::set<std::string>;

  struct Standing {
    bool lost = false;
    bool may_serve = false;    // it is there, and nothing keeps it from work
    absl::Duration last_seen;  // counts once it is lost, and does not change any more
  };
  // The session is new, or stands otherwise than before. What it said of itself stays as it was.
  void Put(const std::string& id, const WorkerInfo& info, const Standing& standing);
  void Remove(const std::string& id);

  const Ids& OfInstance(const std::string& instance) const { return Of(by_instance_, instance); }
  const Ids& OfKey(const std::string& key) const { return Of(by_key_, key); }
  const Ids& LostNamed(const std::string& key, const std::string& name) const { return Of(lost_by_name_, {key, name}); }
  // Those of a key that may serve, by codegen id and target. None is empty.
  struct Alike {
    Ids ids;
    int64_t slots = 0;  // of all of them
  };
  using Kinds = std::map<std::pair<std::string, std::string>, Alike>;
  const Kinds& Serving(const std::string& key) const;

  // By key and name, as people number them: at most `most` from the `offset`th on.
  std::vector<std::string> InOrder(size_t offset, size_t most) const;

  size_t CountOf(const std::string& holder) const;
  // The longest lost, of all or of one holder; null: none is lost. Good until the next Put or Remove.
  const std::string* LongestLost() const { return First(lost_); }
  const std::string* LongestLostOf(const std::string& holder) const;

 private:
  using ByAge = std::set<std::pair<absl::Duration, std::string>>;
  struct Entry {
    WorkerInfo info;
    Standing standing;
  };
  struct Holder {
    size_t sessions = 0;
    ByAge lost;
  };

  template <typename Key>
  static const Ids& Of(const std::map<Key, Ids>& index, const Key& key) {
    static const Ids none;
    const auto found = index.find(key);
    return found == index.end() ? none : found->second;
  }
  // Where it is, or would be, in `in_order_`.
  using Entries = std::map<std::string, Entry>;
  std::vector<Entries::const_iterator>::iterator PlaceOf(Entries::const_iterator entry);
  static const std::string* First(const ByAge& lost) { return lost.empty() ? nullptr : &lost.begin()->second; }
  void Enter(const std::string& id, const Entry& entry);
  void Strike(const std::string& id, const Entry& entry);

  Entries entries_;
  std::vector<Entries::const_iterator> in_order_;
  std::map<std::string, Ids> by_instance_;  // those that say one
  std::map<std::string, Ids> by_key_;
  std::map<std::pair<std::string, std::string>, Ids> lost_by_name_;  // by key and name
  std::map<std::string, Kinds> serving_;                             // by key
  std::map<std::string, Holder> holders_;
  ByAge lost_;
};

}  // namespace temper
