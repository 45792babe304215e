#include "tuner_server/dispatch/session_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "base/natural_order.h"
#include "tests/server/dispatcher_fixture.h"
#include "tests/server/thread_seconds.h"

namespace temper {
namespace {

// The same by looking at each.
class Sessions {
 public:
  struct One {
    WorkerInfo info;
    SessionIndex::Standing standing;
  };
  std::map<std::string, One> all;

  template <typename F>
  SessionIndex::Ids Where(F matches) const {
    SessionIndex::Ids ids;
    for (const auto& [id, one] : all) {
      if (matches(one)) ids.insert(id);
    }
    return ids;
  }
  template <typename F>
  std::string LongestLost(F matches) const {
    std::pair<absl::Duration, std::string> longest(absl::InfiniteDuration(), "");
    for (const auto& [id, one] : all) {
      if (one.standing.lost && matches(one)) longest = std::min(longest, {one.standing.last_seen, id});
    }
    return longest.second;
  }
};

std::vector<std::string> InOrder(const Sessions& sessions) {
  std::vector<std::string> ids;
  for (const auto& [id, one] : sessions.all) ids.push_back(id);
  std::ranges::stable_sort(ids, [&](const std::string& a, const std::string& b) {
    const WorkerInfo &left = sessions.all.at(a).info, &right = sessions.all.at(b).info;
    return left.device_key == right.device_key ? NaturalLess(left.name, right.name)
                                               : NaturalLess(left.device_key, right.device_key);
  });
  return ids;
}

std::string Text(const std::string* id) { return id == nullptr ? "" : *id; }

void ExpectSame(const SessionIndex& index, const Sessions& sessions) {
  for (const char* value : {"", "1", "2", "3"}) {
    EXPECT_EQ(index.OfKey(value), sessions.Where([&](const auto& s) { return s.info.device_key == value; }));
    EXPECT_EQ(index.OfInstance(value),
              sessions.Where([&](const auto& s) { return *value != '\0' && s.info.instance == value; }));
    EXPECT_EQ(index.CountOf(value), sessions.Where([&](const auto& s) { return s.info.holder == value; }).size());
    EXPECT_EQ(Text(index.LongestLostOf(value)),
              sessions.LongestLost([&](const auto& s) { return s.info.holder == value; }));
    for (const char* other : {"", "1", "2", "3"}) {
      EXPECT_EQ(index.LostNamed(value, other), sessions.Where([&](const auto& s) {
        return s.standing.lost && s.info.device_key == value && s.info.name == other;
      }));
    }
    SessionIndex::Ids serving;
    for (const auto& [kind, alike] : index.Serving(value)) {
      EXPECT_FALSE(alike.ids.empty());
      int64_t slots = 0;
      for (const std::string& id : alike.ids) {
        const WorkerInfo& info = sessions.all.at(id).info;
        EXPECT_EQ(kind, std::pair(info.codegen_id, info.target));
        slots += info.slots;
      }
      EXPECT_EQ(alike.slots, slots);
      serving.insert(alike.ids.begin(), alike.ids.end());
    }
    EXPECT_EQ(serving,
              sessions.Where([&](const auto& s) { return s.standing.may_serve && s.info.device_key == value; }));
  }
  EXPECT_EQ(Text(index.LongestLost()), sessions.LongestLost([](const auto&) { return true; }));
  std::vector<std::string> pages;
  while (true) {
    const std::vector<std::string> page = index.InOrder(pages.size(), 7);
    EXPECT_LE(page.size(), 7u);
    if (page.empty()) break;
    pages.insert(pages.end(), page.begin(), page.end());
  }
  EXPECT_EQ(pages, InOrder(sessions));
}

TEST(SessionIndexTest, FindsWhatALookAtEachWouldFind) {
  std::mt19937 random(7);
  const auto any = [&] { return std::string(random() % 4 == 0 ? "" : std::to_string(1 + random() % 3)); };
  const auto number = [&] { return std::to_string(random() % 12); };
  SessionIndex index;
  Sessions sessions;
  for (int i = 0; i < 3000; ++i) {
    const std::string id = "s" + std::to_string(random() % 40);
    const auto known = sessions.all.find(id);
    if (known != sessions.all.end() && random() % 3 == 0) {
      index.Remove(id);
      sessions.all.erase(known);
    } else {
      const WorkerInfo info = known != sessions.all.end() ? known->second.info
                                                          : WorkerInfo{.device_key = any(),
                                                                       .target = any(),
                                                                       .codegen_id = any(),
                                                                       .name = number(),
                                                                       .instance = any(),
                                                                       .holder = any(),
                                                                       .slots = 1 + static_cast<int>(random() % 5)};
      const bool lost = random() % 2 == 0;
      const SessionIndex::Standing standing{lost, !lost && random() % 2 == 0, absl::Seconds(random() % 10)};
      index.Put(id, info, standing);
      sessions.all[id] = {info, standing};
    }
    ExpectSame(index, sessions);
    if (::testing::Test::HasFailure()) return;
  }
}

// Thousands that register at once, as after their server's restart, must not each look at all of the others.
TEST(SessionIndexTest, AWorkerRegistersAmongThousandsAboutAsFastAsAmongFew) {
  const auto cost = [](int known) {
    constexpr int kMore = 500;
    Dispatcher dispatcher(DispatchOptions{});
    double spent = 0;
    for (int i = 0; i < known + kMore; ++i) {
      WorkerInfo worker = Worker("w" + std::to_string(i));
      worker.instance = "i" + std::to_string(i);
      worker.holder = "h" + std::to_string(i % 50);
      const double begun = ThreadSeconds();
      EXPECT_TRUE(dispatcher.MakeRoomFor(worker).ok());
      dispatcher.Register(worker, absl::ZeroDuration());
      EXPECT_TRUE(dispatcher.FindWorker({.key = "k"}).has_value());  // a job that it woke asks
      if (i >= known) spent += ThreadSeconds() - begun;
    }
    return spent;
  };
  double few = cost(0), many = cost(7500);
  for (int i = 0; i < 4; ++i) few = std::min(few, cost(0)), many = std::min(many, cost(7500));
  EXPECT_LT(many, 10 * few) << "looking at each would take hundreds of times as long";
}

}  // namespace
}  // namespace temper
