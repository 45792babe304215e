#include "base/state_directory.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace temper {

std::string StateDirectory() {
  if (const char* state = std::getenv("XDG_STATE_HOME"); state && *state) return absl::StrCat(state, "/temper");
  if (const char* home = std::getenv("HOME"); home && *home) return absl::StrCat(home, "/.local/state/temper");
  return "";
}

}  // namespace temper
