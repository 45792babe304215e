#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/base/captured_log.h"

namespace temper {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(LogTest, AJsonLineHasTheFieldsThatAreKnown) {
  CapturedLog log(LogFormat::kJson);
  LogWarn({.job = 7, .lease = (1ll << 60) + 1, .worker = "host:1", .key = "laptop"}, "lost after {} s", 90);
  const nlohmann::json line = nlohmann::json::parse(log.text());
  EXPECT_EQ(line["level"], "warning");
  EXPECT_EQ(line["message"], "lost after 90 s");
  EXPECT_EQ(line["job"], 7);
  EXPECT_EQ(line["lease"], "1152921504606846977");
  EXPECT_EQ(line["worker"], "host:1");
  EXPECT_EQ(line["key"], "laptop");
  EXPECT_THAT(line["time"].get<std::string>(), testing::MatchesRegex("....-..-..T..:..:......Z"));
}

TEST(LogTest, NoLineHoldsWhatATerminalObeysOrReversesIn) {
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    CapturedLog log(format);
    LogWarn({.worker = "a\u202eb"}, "of \u009b and \u202e");
    for (const char c : log.text()) EXPECT_TRUE((c >= ' ' && c < 0x7F) || c == '\n') << log.text();
  }
}

TEST(LogTest, FieldsBelongToOneLine) {
  CapturedLog log(LogFormat::kJson);
  LogInfo({.job = 7}, "first");
  spdlog::info("second");
  EXPECT_THAT(log.text(), HasSubstr("\"message\":\"second\"}"));
}

TEST(LogTest, HeldLinesComeOutInOrderAtTheirEndWithTheirFields) {
  CapturedLog log(LogFormat::kText);
  {
    const HeldLines held;
    LogWarn({.job = 7, .worker = std::string("gone ") + "by then"}, "first");
    {
      const HeldLines inside;
      LogWarn({}, "second");
    }
    EXPECT_EQ(log.text(), "");
    std::thread([] { LogWarn({}, "another thread's"); }).join();
    EXPECT_THAT(log.text(), EndsWith("another thread's\n"));
  }
  EXPECT_THAT(log.text(), HasSubstr("first job=7 worker=gone by then\n"));
  EXPECT_THAT(log.text(), EndsWith("second\n"));
  LogWarn({}, "third");
  EXPECT_THAT(log.text(), EndsWith("third\n"));
}

TEST(LogTest, NoMessageBreaksAJsonLine) {
  for (const std::string& message :
       {std::string("two\nlines"), std::string("\"quoted\" \\ {}"), std::string("caf\xc3\xa9"), std::string("\xff\xfe"),
        std::string("cut \xe2\x82"), std::string("a\0b", 3), std::string("\x1b[2J")}) {
    CapturedLog log(LogFormat::kJson);
    LogError({.worker = message, .key = message}, "{}", message);
    const std::string text = log.text();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
    const nlohmann::json line = nlohmann::json::parse(log.text());
    EXPECT_TRUE(line["message"].is_string());
    EXPECT_EQ(line["message"], line["worker"]);
    // Valid texts come back as they were.
    if (message.find('\xff') == std::string::npos && message.find('\xe2') == std::string::npos) {
      EXPECT_EQ(line["message"], message);
    } else {
      EXPECT_THAT(line["message"].get<std::string>(), HasSubstr("\xef\xbf\xbd"));
    }
  }
}

TEST(LogTest, ATextLineEndsWithWhomItIsAbout) {
  CapturedLog log(LogFormat::kText);
  LogInfo({.job = 7, .key = "laptop"}, "started");
  spdlog::info("plain");
  EXPECT_THAT(log.text(), HasSubstr("started job=7 key=laptop\n"));
  EXPECT_THAT(log.text(), EndsWith("plain\n"));
  EXPECT_THAT(log.text(), Not(HasSubstr("lease=")));
}

TEST(LogTest, NoMessageForgesATextLine) {
  CapturedLog log(LogFormat::kText);
  LogInfo({.worker = "w\n[error] forged"}, "two\nlines \x1b[2J \xff");
  EXPECT_THAT(log.text(), HasSubstr("two\\x0alines \\x1b[2J \\xff worker=w\\x0a[error] forged\n"));
}

TEST(LogTest, WhatIsBelowTheLevelIsNotWritten) {
  CapturedLog log(LogFormat::kJson);
  spdlog::default_logger()->set_level(spdlog::level::warn);
  LogInfo({.job = 1}, "quiet");
  LogError({.job = 1}, "loud");
  EXPECT_EQ(nlohmann::json::parse(log.text())["message"], "loud");
}

}  // namespace
}  // namespace temper
