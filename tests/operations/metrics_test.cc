#include "tuner_server/operations/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <regex>
#include <set>
#include <thread>

#include "trial/outcome.h"

namespace temper {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(MetricsTest, TheTableIsInTheOrderOfItsEnum) {
  for (size_t i = 0; i < AllMetrics().size(); ++i) EXPECT_EQ(static_cast<size_t>(AllMetrics()[i].metric), i);
}

TEST(MetricsTest, NamesFollowPrometheusAndAreUnique) {
  std::set<std::string> names;
  for (const MetricDef& def : AllMetrics()) {
    EXPECT_TRUE(names.insert(def.name).second) << def.name;
    EXPECT_TRUE(std::regex_match(def.name, std::regex("temper_[a-z_]+"))) << def.name;
    EXPECT_EQ(def.name.ends_with("_total"), def.type == MetricType::kCounter) << def.name;
    EXPECT_TRUE(def.help.ends_with(".")) << def.help;
    EXPECT_EQ(def.type == MetricType::kHistogram, !def.buckets.empty()) << def.name;
    EXPECT_TRUE(std::is_sorted(def.buckets.begin(), def.buckets.end())) << def.name;
  }
}

TEST(MetricsTest, EveryOutcomeOfATrialIsListed) {
  const std::vector<std::string>& listed = AllMetrics()[static_cast<size_t>(Metric::kTrials)].values;
  for (const Outcome outcome : AllOutcomes()) EXPECT_THAT(listed, Contains(std::string(Text(outcome))));
  EXPECT_EQ(listed.size(), AllOutcomes().size());
}

TEST(MetricsTest, TheTextHasEveryMetricWithItsTypeAndHelp) {
  Metrics metrics;
  for (const MetricDef& def : AllMetrics()) {
    if (def.type == MetricType::kGauge) metrics.SetAll(def.metric, {{def.label.empty() ? "" : "x", 1}});
  }
  const std::string text = metrics.Text();
  for (const MetricDef& def : AllMetrics()) {
    const char* const types[] = {"gauge", "counter", "histogram"};
    EXPECT_THAT(text, HasSubstr("# HELP " + def.name + " " + def.help + "\n"));
    EXPECT_THAT(text, HasSubstr("# TYPE " + def.name + " " + types[static_cast<int>(def.type)] + "\n"));
  }
}

TEST(MetricsTest, CountersAddUpAndStartAtZero) {
  Metrics metrics;
  metrics.Add(Metric::kTrials, "ok");
  metrics.Add(Metric::kTrials, "ok", 2);
  metrics.Add(Metric::kAcks, "", 5);
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("temper_trials_total{outcome=\"ok\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("temper_trials_total{outcome=\"run_crashed\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("temper_acks_total 5\n"));
}

TEST(MetricsTest, ACountThatIsKeptElsewhereIsFollowed) {
  Metrics metrics;
  metrics.Raise(Metric::kFailures, "worker_lost", 3);
  metrics.Raise(Metric::kFailures, "worker_lost", 5);
  metrics.Raise(Metric::kFailures, "worker_lost", 4);
  EXPECT_THAT(metrics.Text(), HasSubstr("temper_failures_total{class=\"worker_lost\"} 5\n"));
}

TEST(MetricsTest, WhatIsNotListedCountsAsOther) {
  Metrics metrics;
  metrics.Add(Metric::kFailures, "from a stranger");
  metrics.Add(Metric::kFailures, "another");
  EXPECT_THAT(metrics.Text(), HasSubstr("temper_failures_total{class=\"other\"} 2\n"));
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("stranger")));
}

TEST(MetricsTest, DeviceKeysBeyondTheFirstHundredShareOneSeries) {
  Metrics metrics;
  std::map<std::string, double> pending;
  for (int i = 0; i < 1000; ++i) pending["key-" + std::to_string(i)] = 1;
  metrics.SetAll(Metric::kPendingCandidates, pending);
  const std::string text = metrics.Text();
  const std::regex series("\ntemper_pending_candidates\\{");
  EXPECT_EQ(std::distance(std::sregex_iterator(text.begin(), text.end(), series), std::sregex_iterator()),
            static_cast<ptrdiff_t>(kMostOpenValues) + 1);
  EXPECT_THAT(text, HasSubstr("temper_pending_candidates{key=\"other\"} 900\n"));
}

TEST(MetricsTest, AGaugeForgetsWhatIsGone) {
  Metrics metrics;
  metrics.SetAll(Metric::kPendingCandidates, {{"a", 1}, {"b", 2}});
  metrics.SetAll(Metric::kPendingCandidates, {{"b", 3}});
  EXPECT_THAT(metrics.Text(), HasSubstr("temper_pending_candidates{key=\"b\"} 3\n"));
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("key=\"a\"")));
  metrics.Set(Metric::kSnapshotAge, -1);
  EXPECT_THAT(metrics.Text(), HasSubstr("temper_snapshot_age_seconds -1\n"));
}

// Each line of the text is a comment or `name{label="value"} number`, whatever a label holds.
TEST(MetricsTest, LabelsCanNotBreakTheText) {
  Metrics metrics;
  metrics.SetAll(Metric::kPendingCandidates, {{"a\"} 1\nforged_metric 7", 1}, {"\\", 1}, {"\xff", 1}});
  const std::string text = metrics.Text();
  EXPECT_THAT(text, Not(HasSubstr("\nforged_metric")));
  const std::regex sample(R"re([a-z_]+(\{[a-z]+="([^"\\]|\\.)*"\})? \S+)re");
  size_t samples = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line[0] == '#') continue;
    ++samples;
    EXPECT_TRUE(std::regex_match(line, sample)) << line;
  }
  EXPECT_GT(samples, 50u);
}

TEST(MetricsTest, HistogramsCountByBucket) {
  Metrics metrics;
  for (const double seconds : {0.0005, 0.002, 0.2, 100.0}) metrics.Observe(Metric::kStoreCommitSeconds, seconds);
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("temper_store_commit_seconds_bucket{le=\"0.001\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("temper_store_commit_seconds_bucket{le=\"0.25\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("temper_store_commit_seconds_bucket{le=\"+Inf\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("temper_store_commit_seconds_count 4\n"));
}

TEST(MetricsTest, ThreadsLoseNothing) {
  constexpr int kThreads = 4, kEach = 5000;
  Metrics metrics;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&metrics, t] {
      for (int i = 0; i < kEach; ++i) {
        metrics.Add(Metric::kAcks);
        metrics.Observe(Metric::kSyncSeconds, 0.001);
        metrics.SetAll(Metric::kPendingCandidates, {{std::to_string(t), 1}});
        if (i % 500 == 0) metrics.Text();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("temper_acks_total 20000\n"));
  EXPECT_THAT(text, HasSubstr("temper_sync_seconds_count 20000\n"));
}

}  // namespace
}  // namespace temper
