#include "base/failpoint.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace temper {
namespace failpoint_internal {

std::atomic<bool> armed = false;

namespace {
std::string armed_name;  // written before `armed` is set, and never again
std::atomic<int> left = 0;
}  // namespace

void Pass(std::string_view name) {
  if (name == armed_name && --left == 0) kill(getpid(), SIGKILL);
}

}  // namespace failpoint_internal

void ArmFailpoint() {
  const char* text = std::getenv("TEMPER_FAILPOINT");
  if (text == nullptr) return;
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  int count = 0;
  if (!absl::SimpleAtoi(parts.second, &count) || count < 1) return;
  failpoint_internal::armed_name = parts.first;
  failpoint_internal::left = count;
  failpoint_internal::armed = true;
}

}  // namespace temper
