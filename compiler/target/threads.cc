#include "compiler/target/threads.h"

namespace temper {

std::string WithoutThreads(std::string_view target) {
  constexpr std::string_view kOption = " -threads=";
  std::string text(target);
  const size_t at = text.find(kOption);
  if (at == std::string::npos) return text;
  return text.erase(at, std::min(text.find(' ', at + 1), text.size()) - at);
}

}  // namespace temper
