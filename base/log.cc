#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <cstdlib>

namespace temper {

void SetUpLogging(bool verbose) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("temper"));
  const char* level = std::getenv("TEMPER_LOG");
  if (level != nullptr) {
    spdlog::set_level(spdlog::level::from_str(level));
  } else {
    spdlog::set_level(verbose ? spdlog::level::info : spdlog::level::warn);
  }
}

}  // namespace temper
