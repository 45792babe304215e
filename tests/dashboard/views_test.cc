#include "tuner_server/dashboard/views.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/clock.h"

namespace temper {
namespace {

constexpr char kRelu[] = "(f32[8,8]) relu(0) -> f32[8,8]; anchor=0";

TEST(DashboardViews, ALiveJobIsToldAsItIs) {
  JobNews news{.elapsed_s = 5};
  news.job.eta_s = 7;
  news.job.untuned_s = 0.5;
  news.job.outcomes[Outcome::kOk] = 3;
  TaskView task;
  task.workload = kRelu;
  task.weight = 2;
  task.best_s = 1e-3;
  news.tasks.emplace_back(0, task);
  JobRow row;
  row.summary = "this is no JSON";
  const Json json = JobDetailJson(row, news, {});
  EXPECT_TRUE(json["live"].get<bool>());
  EXPECT_EQ(json["eta_s"], 7);
  EXPECT_EQ(json["untuned_ms"], 500);
  EXPECT_EQ(json["outcomes"]["ok"], 3);
  EXPECT_EQ(json["tasks"][0]["what"], "relu 8x8 -> 8x8");
  EXPECT_EQ(json["tasks"][0]["share"], 1);
  EXPECT_EQ(json["curve"].size(), 0u);
}

TEST(DashboardViews, WhatAnotherVersionWroteHarmsNobody) {
  for (const char* summary : {"", "[]", "7", "{}", "{\"tasks\":7}", "{\"tasks\":[7,null,[]]}",
                              "{\"seconds\":\"x\",\"tasks\":[{\"weight\":\"x\",\"workload\":9,\"best_ms\":{}}]}"}) {
    JobRow row;
    row.summary = summary;
    EXPECT_FALSE(JobDetailJson(row, std::nullopt, {})["live"].get<bool>()) << summary;
  }
}

TEST(DashboardViews, CurvesAndTasksAreCapped) {
  JobCurve curve;
  for (int i = 0; i < 5000; ++i) curve.steps.push_back({i + 1, kRelu, 1.0 / (i + 1)});
  curve.trials = 6000;
  JobNews news;
  for (int i = 0; i < 300; ++i) {
    TaskView task;
    task.workload = i == 0 ? kRelu : absl::StrCat("w", i);
    task.best_s = 1.0 / (i + 1);
    news.tasks.emplace_back(i, task);
  }
  const Json json = JobDetailJson({}, news, curve);
  ASSERT_EQ(json["curve"].size(), kMostModelPoints);
  EXPECT_EQ(json["curve"].front()[0], 1);
  EXPECT_EQ(json["curve"].back()[0], 6000);
  EXPECT_EQ(json["tasks"].size(), kMostTasks);
  EXPECT_EQ(json["tasks_left_out"], 100);
  EXPECT_EQ(json["tasks"][0]["curve"].size(), kMostTaskPoints);
  EXPECT_EQ(json["tasks"][0]["curve"].back()[0], 5000);
}

TEST(DashboardViews, ARunningJobsCourseIsThinned) {
  FakeClock clock;
  JobFeed feed(clock, absl::ZeroDuration(), {}, {});
  const auto publish = [&](int trials, double best_s) {
    JobView view;
    view.trials = trials;
    TaskView task, other;
    task.weight = 2;
    task.best_s = best_s;
    other.default_s = 1;
    other.alternative = trials == 0;  // once there is a trial it counts
    feed.Publish(view, {}, {{0, task}, {1, other}});
  };
  publish(0, 0);  // nothing is measured
  EXPECT_TRUE(feed.Curve().empty());
  publish(1, 1000);
  publish(2, 1000);  // not faster
  ASSERT_EQ(feed.Curve().size(), 1u);
  EXPECT_EQ(feed.Curve()[0].second, 2001);
  for (int i = 3; i < 1000; ++i) publish(i, 1000 - i);
  EXPECT_LE(feed.Curve().size(), JobFeed::kMostPoints);
  EXPECT_EQ(feed.Curve().front().first, 1);
  EXPECT_EQ(feed.Curve().back().first, 999);
  EXPECT_EQ(CurveJson(feed.Curve()).back()[1], 3000);
}

TEST(DashboardViews, FailuresOfOneCauseAreOneGroup) {
  FailureRows rows;
  rows.looked_at = 50;
  for (int i = 1; i <= 9; ++i) {
    rows.rows.push_back({Outcome::kRunTimeout, absl::StrCat("longer than ", i, " s"), 2, i, i * 1000, "laptop", "t"});
  }
  rows.rows.push_back({Outcome::kBuildFailed, "longer than 1 s", 3, 99, 1, "phone", "t"});
  const Json json = FailuresJson(rows);
  EXPECT_EQ(json["records"], 50);
  EXPECT_EQ(json["failed"], 21);
  ASSERT_EQ(json["groups"].size(), 2u);
  EXPECT_EQ(json["groups"][0]["cause"], "longer than N s");
  EXPECT_EQ(json["groups"][0]["count"], 18);
  EXPECT_EQ(json["groups"][0]["latest_error"], "longer than 9 s");
  EXPECT_EQ(json["groups"][1]["class"], "build_failed");
}

TEST(DashboardViews, ADeviceTellsItsCanary) {
  Dispatcher::SessionView view;
  view.info.device_key = "laptop";
  view.last_seen = absl::Seconds(90);
  view.job = 7;
  view.lease_since = absl::Seconds(60);
  view.canary = {{absl::Seconds(40), 1.0}, {absl::Seconds(80), 1.3}};
  const Json json = DeviceJson(view, absl::Seconds(100));
  EXPECT_EQ(json["last_seen_s"], 10);
  EXPECT_EQ(json["lease_s"], 40);
  ASSERT_EQ(json["canary"].size(), 2u);
  EXPECT_EQ(json["canary"][1][0], 20);
  EXPECT_EQ(json["canary"][1][1], 1.3);
}

}  // namespace
}  // namespace temper
