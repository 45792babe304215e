#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "absl/time/time.h"
#include "base/utf8.h"

namespace temper {
namespace {

// The fields of the line that this thread is writing. spdlog hands a formatter the message alone, on the same thread.
thread_local const LogFields* current = nullptr;

// Where this thread's lines wait; null: they do not.
thread_local HeldLines* held = nullptr;

LogFields CurrentFields() { return current == nullptr ? LogFields() : *current; }

std::string_view View(spdlog::string_view_t text) { return {text.data(), text.size()}; }

class JsonFormatter : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const LogFields fields = CurrentFields();
    nlohmann::ordered_json line;
    line["time"] = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::FromChrono(message.time), absl::UTCTimeZone());
    line["level"] = View(spdlog::level::to_string_view(message.level));
    line["message"] = View(message.payload);
    if (fields.job != 0) line["job"] = fields.job;
    // As text: beyond 2^53 readers of JSON lose digits.
    if (fields.lease != 0) line["lease"] = std::to_string(fields.lease);
    if (!fields.worker.empty()) line["worker"] = fields.worker;
    if (!fields.key.empty()) line["key"] = fields.key;
    const std::string text = line.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace) + "\n";
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonFormatter>(); }
};

// spdlog's usual line, with the fields behind the message.
class TextFormatter : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const LogFields fields = CurrentFields();
    std::string text = Escaped(View(message.payload));
    if (fields.job != 0) text += fmt::format(" job={}", fields.job);
    if (fields.lease != 0) text += fmt::format(" lease={}", fields.lease);
    if (!fields.worker.empty()) text += fmt::format(" worker={}", Escaped(fields.worker));
    if (!fields.key.empty()) text += fmt::format(" key={}", Escaped(fields.key));
    spdlog::details::log_msg line = message;
    line.payload = text;
    usual_.format(line, out);
    message.color_range_start = line.color_range_start;
    message.color_range_end = line.color_range_end;
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<TextFormatter>(); }

 private:
  spdlog::pattern_formatter usual_;
};

}  // namespace

std::unique_ptr<spdlog::formatter> MakeLogFormatter(LogFormat format) {
  switch (format) {
    case LogFormat::kText:
      return std::make_unique<TextFormatter>();
    case LogFormat::kJson:
      return std::make_unique<JsonFormatter>();
  }
  return nullptr;
}

void SetUpLogging(bool verbose, LogFormat format) {
  auto logger = spdlog::stderr_color_mt("temper");
  logger->set_formatter(MakeLogFormatter(format));
  spdlog::set_default_logger(std::move(logger));
  const char* level = std::getenv("TEMPER_LOG");
  if (level != nullptr && *level != '\0') {
    spdlog::set_level(spdlog::level::from_str(level));
  } else {
    spdlog::set_level(verbose ? spdlog::level::info : spdlog::level::warn);
  }
}

HeldLines::HeldLines() : outer_(held) {
  if (outer_ == nullptr) held = this;
}

HeldLines::~HeldLines() {
  if (outer_ != nullptr) return;
  held = nullptr;
  for (const Line& line : lines_) LogAbout({line.job, line.lease, line.worker, line.key}, line.level, line.message);
}

void LogAbout(const LogFields& fields, spdlog::level::level_enum level, std::string_view message) {
  if (held != nullptr) {
    held->lines_.push_back(
        {fields.job, fields.lease, std::string(fields.worker), std::string(fields.key), std::string(message), level});
    return;
  }
  current = &fields;
  spdlog::log(level, spdlog::string_view_t(message.data(), message.size()));
  current = nullptr;
}

}  // namespace temper
