#include "base/program.h"

#include <cstdlib>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/utf8.h"

namespace temper {
namespace {

// What spdlog does not know it takes for "off". Empty: no level was given.
bool IsLogLevel(const std::string& name) {
  return name.empty() || name == "off" || spdlog::level::from_str(name) != spdlog::level::off;
}

}  // namespace

std::string WrongCommandLine(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.empty()) return absl::StrCat("what follows ", Escaped(argv[i - 1]), " is empty; see --help");
    if (argument.starts_with("--") && argument.find('=') == argument.size() - 1)
      return absl::StrCat("what follows ", Escaped(argument), " is empty; see --help");
    if (!IsUtf8(argument)) return absl::StrCat("'", Escaped(argument), "' is no UTF-8");
  }
  if (const char* level = std::getenv("TEMPER_LOG"); level != nullptr && !IsLogLevel(level))
    return absl::StrCat("TEMPER_LOG is '", Escaped(level), "', not trace, debug, info, warn, error or off");
  return "";
}

sigset_t EndSignals() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  struct sigaction now = {};
  if (sigaction(SIGHUP, nullptr, &now) != 0 || now.sa_handler != SIG_IGN) sigaddset(&ends, SIGHUP);
  return ends;
}

}  // namespace temper
