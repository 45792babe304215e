// Logging goes to stderr through spdlog. Programs call SetUpLogging once; libraries use spdlog::info and friends, or
// LogInfo and friends where they know whom a line is about.
#pragma once

#include <spdlog/spdlog.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace temper {

enum class LogFormat {
  kText,  // for people
  kJson,  // one object a line: time, level, message, and the fields that are known
};
// The values of --log-format and TEMPER_LOG_FORMAT.
inline const std::vector<std::string> kLogFormats = {"text", "json"};
inline LogFormat ParseLogFormat(std::string_view name) {
  return name == kLogFormats[1] ? LogFormat::kJson : LogFormat::kText;
}

// Level from TEMPER_LOG (trace, debug, info, warn, error, off) if set, else info under `verbose`, else warn.
void SetUpLogging(bool verbose, LogFormat format = LogFormat::kText);

// A line stays a line, and of JSON stays JSON, whatever bytes a message has: line ends are escaped, and so is what is
// no UTF-8 (in JSON it becomes U+FFFD).
std::unique_ptr<spdlog::formatter> MakeLogFormatter(LogFormat format);

// Whom a line is about. What is empty or 0 is not known, and is left out.
struct LogFields {
  int64_t job = 0, lease = 0;
  std::string_view worker, key;  // read while the line is written, not kept
};

// While one is there, LogAbout's lines of its thread wait for its end: whoever holds a lock makes one before he takes
// it, so that nobody waits for stderr under it. One inside another adds to that one. What goes to spdlog by itself
// waits for nothing.
class HeldLines {
 public:
  HeldLines();
  ~HeldLines();
  HeldLines(const HeldLines&) = delete;
  HeldLines& operator=(const HeldLines&) = delete;

 private:
  friend void LogAbout(const LogFields& fields, spdlog::level::level_enum level, std::string_view message);
  struct Line {
    int64_t job, lease;
    std::string worker, key, message;
    spdlog::level::level_enum level;
  };
  HeldLines* const outer_;
  std::vector<Line> lines_;
};

// spdlog::log with fields.
void LogAbout(const LogFields& fields, spdlog::level::level_enum level, std::string_view message);

template <typename... Args>
void LogDebug(const LogFields& fields, fmt::format_string<Args...> format, Args&&... args) {
  if (!spdlog::should_log(spdlog::level::debug)) return;
  LogAbout(fields, spdlog::level::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogInfo(const LogFields& fields, fmt::format_string<Args...> format, Args&&... args) {
  if (!spdlog::should_log(spdlog::level::info)) return;
  LogAbout(fields, spdlog::level::info, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogWarn(const LogFields& fields, fmt::format_string<Args...> format, Args&&... args) {
  if (!spdlog::should_log(spdlog::level::warn)) return;
  LogAbout(fields, spdlog::level::warn, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogError(const LogFields& fields, fmt::format_string<Args...> format, Args&&... args) {
  if (!spdlog::should_log(spdlog::level::err)) return;
  LogAbout(fields, spdlog::level::err, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace temper
