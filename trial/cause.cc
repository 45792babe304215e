#include "trial/cause.h"

#include "absl/strings/ascii.h"

namespace temper {
namespace {

bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }

// Past a number that starts at i: 12, 0x7f3a, 1.5e-06.
size_t EndOfNumber(std::string_view s, size_t i) {
  const auto digits = [&] {
    while (i < s.size() && IsDigit(s[i])) ++i;
  };
  if (s[i] == '0' && i + 2 < s.size() && s[i + 1] == 'x') {
    for (i += 2; i < s.size() && absl::ascii_isxdigit(static_cast<unsigned char>(s[i]));) ++i;
    return i;
  }
  digits();
  if (i + 1 < s.size() && s[i] == '.' && IsDigit(s[i + 1])) {
    ++i;
    digits();
  }
  if (i < s.size() && s[i] == 'e') {
    const size_t sign = i + 1 < s.size() && (s[i + 1] == '-' || s[i + 1] == '+') ? 1 : 0;
    if (i + 1 + sign < s.size() && IsDigit(s[i + 1 + sign])) {
      i += 1 + sign;
      digits();
    }
  }
  return i;
}

}  // namespace

std::string CauseOf(std::string_view error) {
  const size_t start = error.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos) return "no message";
  std::string_view line = error.substr(start);
  line = line.substr(0, line.find_first_of("\r\n"));
  std::string cause;
  for (size_t i = 0; i < line.size();) {
    if (IsDigit(line[i])) {
      cause += 'N';
      i = EndOfNumber(line, i);
    } else {
      cause += line[i++];
    }
  }
  return cause;
}

}  // namespace temper
