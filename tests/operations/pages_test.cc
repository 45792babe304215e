#include "tuner_server/operations/pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace temper {
namespace {

using ::testing::HasSubstr;

class PagesTest : public ::testing::Test {
 protected:
  HttpReply Ask(const std::string& path, std::map<std::string, std::string> query = {}) {
    for (const HttpRoute& route : pages_) {
      if (route.path == path) return route.reply({path, std::move(query)});
    }
    return {.code = 404};
  }
  int64_t Pending(const std::string& key) {
    return nlohmann::json::parse(Ask("/pending", {{"key", key}}).body)["pending"].get<int64_t>();
  }

  Metrics metrics_;
  FleetStatus status_;
  std::optional<absl::Duration> snapshot_age_;
  std::vector<HttpRoute> pages_ =
      OperationsPages({&metrics_, [this] { return status_; }, [this] { return snapshot_age_; }});
};

TEST_F(PagesTest, NoneWaitsForTheDashboard) {
  for (const HttpRoute& page : pages_) EXPECT_FALSE(page.slow) << page.path;
}

TEST_F(PagesTest, MetricsAreAsOfNow) {
  status_.keys["laptop"] = {.pending = 48, .leased = 16, .jobs = 1};
  status_.workers["measuring"] = 2;
  status_.jobs["running"] = 1;
  status_.failures["lease_expired"] = 2;
  status_.leases = 3;
  status_.parked_calls = 4;
  status_.tick_age = absl::Milliseconds(50);
  const HttpReply reply = Ask("/metrics");
  EXPECT_EQ(reply.type, "text/plain; version=0.0.4; charset=utf-8");
  for (const char* line :
       {"temper_pending_candidates{key=\"laptop\"} 48\n", "temper_workers{state=\"measuring\"} 2\n",
        "temper_workers{state=\"idle\"} 0\n", "temper_jobs{state=\"running\"} 1\n", "temper_jobs{state=\"failed\"} 0\n",
        "temper_failures_total{class=\"lease_expired\"} 2\n", "temper_leases 3\n", "temper_parked_calls 4\n",
        "temper_tick_age_seconds 0.05\n", "temper_snapshot_age_seconds -1\n", "temper_build_info{version=\""}) {
    EXPECT_THAT(reply.body, HasSubstr(line));
  }
  snapshot_age_ = absl::Minutes(1);
  EXPECT_THAT(Ask("/metrics").body, HasSubstr("temper_snapshot_age_seconds 60\n"));
  // A program has its standard descriptors and some memory.
  EXPECT_THAT(reply.body, ::testing::ContainsRegex("\ntemper_open_descriptors [1-9]"));
  EXPECT_THAT(reply.body, ::testing::ContainsRegex("\ntemper_resident_bytes [1-9]"));
}

TEST_F(PagesTest, EveryGaugeIsSet) {
  status_.keys["laptop"] = {};
  const std::string text = Ask("/metrics").body;
  for (const MetricDef& def : AllMetrics()) {
    EXPECT_THAT(text, HasSubstr("\n" + def.name +
                                (def.type == MetricType::kHistogram ? "_bucket"
                                 : def.label.empty()                ? " "
                                                                    : "{")));
  }
}

TEST_F(PagesTest, HealthFollowsTheTicker) {
  EXPECT_EQ(Ask("/healthz").code, 200);
  status_.tick_age = kLongestTickAge + absl::Seconds(1);
  EXPECT_EQ(Ask("/healthz").code, 503);
  EXPECT_EQ(Ask("/readyz").code, 503);
  EXPECT_THAT(Ask("/healthz").body, HasSubstr("31 s"));
}

TEST_F(PagesTest, ReadinessFollowsTheStoreAndTheStop) {
  EXPECT_EQ(Ask("/readyz").code, 200);
  status_.store_ok = false;
  EXPECT_EQ(Ask("/readyz").code, 503);
  EXPECT_EQ(Ask("/healthz").code, 200);  // a restart would not help
  status_.store_ok = true;
  status_.stopping = true;
  EXPECT_EQ(Ask("/readyz").code, 503);
}

TEST_F(PagesTest, PendingCountsAllThatWantsAWorkerOfTheKey) {
  status_.keys["a"] = {.pending = 48, .leased = 16, .jobs = 2};
  status_.keys["b"] = {.jobs = 2};  // both wait for a first worker: without it they can queue nothing
  EXPECT_EQ(Pending("a"), 64);
  EXPECT_EQ(Pending("b"), 2);
  status_.keys["c"] = {.awaited = true};
  EXPECT_EQ(Pending("c"), 1);
  EXPECT_EQ(Pending("nobody's"), 0);
  EXPECT_EQ(Ask("/pending").code, 400);
}

TEST_F(PagesTest, PendingIsJsonWhateverTheKey) {
  for (const std::string& key : {std::string("\"}\n"), std::string("\xff"), std::string("a\0b", 3)}) {
    const HttpReply reply = Ask("/pending", {{"key", key}});
    EXPECT_EQ(reply.type, "application/json");
    EXPECT_EQ(nlohmann::json::parse(reply.body)["pending"], 0);
  }
}

}  // namespace
}  // namespace temper
